"""Designs → merged sums: which work is done for a design, and how many blocks of it."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from sdpa_check import engine, power, rng
from sdpa_check.logits import scaling
from sdpa_check.measures.dot import DotWork, block_vectors
from sdpa_check.measures.rows import RowsShape, RowsWork
from sdpa_check.quantities import ExactQuantity, Quantity, Sample, multiplier, quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from sdpa_check.checks import Check, Settings
    from sdpa_check.measures.pipeline import PipelineWork
    from sdpa_check.measures.weights import WeightsWork
    from sdpa_check.quantities import Case
    from sdpa_check.records import Design
    from sdpa_check.training.measures import TrainWork
    from sdpa_check.training.start import StartWork

    SizedWork = DotWork | RowsWork | WeightsWork | PipelineWork | StartWork | TrainWork


Key = tuple[str, "Design"]
"""What is sampled once: the kind of block, with its pipeline or training if any, and the design."""

PILOT_BLOCKS = 32
"""Blocks of the pilot that plans the sample size; it has streams of its own and is thrown away."""

WORK_LIMIT = 2e11
"""Elementary operations a planned run may cost; beyond, checks may end inconclusive and say so."""

SEEDS = 32
"""Blocks of a training, each a seed of every setting: neither planned nor changed by settings."""

_FOLLOWERS = 8
"""A quantity that does not lead may ask for at most this many times the blocks of those that do."""


def keys(check: Check) -> set[Key]:
    """The samplings that a check reads."""
    asked = quantity(check.quantity)
    if isinstance(asked, ExactQuantity):
        return set()
    return {(kind(asked, case), design) for case in check.cases for design in case.designs}


def kind(asked: Quantity, case: Case) -> str:
    """The kind of block on which a case is measured, with the pipeline or the training if any."""
    if asked.trained:
        from sdpa_check.quantities.training import kind as kind_of_training

        return kind_of_training(asked.sampling, case)
    if asked.sampling == "pipeline":
        from sdpa_check.quantities.pipeline import pipeline_text

        return f"pipeline {pipeline_text(case)}"
    return asked.sampling


def applied(case: Case, design: Design, settings: Settings) -> float:
    """The multiplier of the measurement: that of the case, unless a fault replaces its rule."""
    if case.scale is None:
        return 1.0
    rule = scaling.parse(settings.fault.scale) if settings.fault.scale else case.scale
    return multiplier(rule, design, case.d_model)


def sample(
    kind_: str, design: Design, group: list[Check], settings: Settings, total: int
) -> Sample:
    """Draw and merge the blocks of one design, as many as the checks of its `group` need.

    Args:
        kind_: the kind of block, as from `kind`.
        design: what is drawn.
        group: the checks that read the design.
        settings: how checks are run.
        total: how many checks share the false-alarm probability.
    """
    make = _work_maker(kind_, design, group, settings)
    label = f"d_k={design.dk}" + (f", m={design.keys}" if design.keys else "")
    work = make("main")
    planned = SEEDS if kind_.startswith("train ") else _blocks_of_samples(work, settings)
    blocks = engine.whole(planned or _planned(make, group, settings, total))
    done = 0

    def advance(step: int) -> None:
        nonlocal done
        done += step
        if settings.progress is not None:
            settings.progress(label, done, blocks)

    return Sample(work=work, replicates=_merged(work, blocks, settings, advance))


def _merged(
    work: SizedWork,
    blocks: int,
    settings: Settings,
    progress: Callable[[int], None] | None = None,
) -> engine.Replicates:
    return engine.run(
        work,
        seed=settings.seed,
        blocks=blocks,
        jobs=settings.jobs,
        executor=settings.executor,
        progress=progress,
    )


def _work_maker(
    kind_: str, design: Design, group: list[Check], settings: Settings
) -> Callable[[str], SizedWork]:
    """A function from the name of the random stream to the work of a design."""
    wanted = None if settings.samples is None else max(1, settings.samples // power.MIN_BLOCKS)
    if kind_.startswith(("start ", "train ")):
        return _training_maker(kind_, design, group, settings)
    if kind_.startswith("pipeline "):
        return _pipeline_maker(kind_.removeprefix("pipeline "), design, group, settings, wanted)
    if kind_ == "dot":
        vectors = block_vectors(design, wanted)
        return lambda stream: DotWork(design, vectors, settings.fault, stream)
    wanted_multipliers = {
        applied(case, design, settings)
        for check in group
        for case in check.cases
        if design in case.designs
    }
    multipliers = tuple(sorted(wanted_multipliers))
    shape = RowsShape.fitting(design.dk, design.keys or 2, wanted)
    if kind_ == "weights":
        from sdpa_check.measures.weights import WeightsWork

        return lambda stream: WeightsWork(design, multipliers, shape, settings.fault, stream)
    whole = RowsShape.fitting(design.dk, design.keys or 2)
    scout = RowsWork(design, multipliers, whole, (), settings.fault, "scout")
    gridded = scout.with_grids(rng.generator(settings.seed, scout.experiment, 0))
    return lambda stream: dataclasses.replace(gridded, shape=shape, stream=stream)


def _pipeline_maker(
    text: str, design: Design, group: list[Check], settings: Settings, wanted: int | None
) -> Callable[[str], SizedWork]:
    from sdpa_check.measures.pipeline import PipelineWork

    cases = [case for check in group for case in check.cases]
    d_model = next((case.d_model for case in cases if case.d_model is not None), None)
    work = PipelineWork.fitting(design, text, d_model, wanted, settings.fault)
    whole = PipelineWork.fitting(design, text, d_model, None, settings.fault)
    scout = dataclasses.replace(whole, stream="scout")
    grids = scout.with_grids(rng.generator(settings.seed, scout.experiment, 0)).grids
    return lambda stream: dataclasses.replace(work, grids=grids, stream=stream)


def _training_maker(
    kind_: str, design: Design, group: list[Check], settings: Settings
) -> Callable[[str], SizedWork]:
    """One work for all settings that the group asks about: they share their draws."""
    from sdpa_check.quantities import training
    from sdpa_check.training.measures import TrainWork
    from sdpa_check.training.start import StartWork

    name = kind_.partition(" ")[0]
    asked = [case for check in group for case in check.cases if design in case.designs]
    cases = [case for case in asked if training.kind(name, case) == kind_]
    if name == "train":
        pairs = [each for case in cases for each in training.pair(case)]
        trials = [training.trial(each, applied(each, design, settings)) for each in pairs]
        work = TrainWork(tuple(dict.fromkeys(trials)))
        return lambda _: work
    multipliers = tuple(sorted({applied(case, design, settings) for case in cases}))
    task = training.task(cases[0])
    return lambda stream: StartWork(task, multipliers, stream)


def _blocks_of_samples(work: SizedWork, settings: Settings) -> int | None:
    if settings.samples is None:
        return None
    return max(power.MIN_BLOCKS, math.ceil(settings.samples / work.size))


def _planned(
    make: Callable[[str], SizedWork],
    group: list[Check],
    settings: Settings,
    total: int,
) -> int:
    """Blocks from the wanted precision, by a pilot that is thrown away.

    Going on until the error looks small enough would correlate value and error; the count is
    fixed before the first block of the run is drawn.
    """
    pilot = make("pilot")
    sample = Sample(work=pilot, replicates=_merged(pilot, PILOT_BLOCKS, settings))
    lead, rest = power.MIN_BLOCKS, 0
    for check in group:
        asked = quantity(check.quantity)
        if isinstance(asked, ExactQuantity) or asked.sweep or check.versus is not None:
            continue
        needed = _needed(check, asked, sample, settings, total)
        if asked.lead:
            lead = max(lead, needed)
        else:
            rest = max(rest, needed)
    blocks = max(lead, min(rest, _FOLLOWERS * lead))
    if settings.precision is not None:
        return blocks
    return min(blocks, max(power.MIN_BLOCKS, int(WORK_LIMIT / pilot.cost)))


def _needed(check: Check, asked: Quantity, pilot: Sample, settings: Settings, total: int) -> int:
    """Blocks that one check needs; 0 where it has no error bar or nothing to be held to."""
    design = check.case.designs[0]
    sample = dataclasses.replace(pilot, multiplier=applied(check.case, design, settings))
    found = asked.estimate(check.case, (sample,))
    prediction = check.prediction(asked)
    if found.se is None or prediction.value is None or prediction.kind == "limit":
        return 0
    band = check.band_for(asked, prediction, settings.tolerance)
    if not 0 < band < math.inf:
        return 0
    if settings.precision is not None:
        target = settings.precision * band / (check.tolerance or settings.tolerance)
        return power.blocks_needed(found.se, found.blocks, target)
    # A number that is far from its claim is told apart from it with less than the band asks for.
    away = abs(found.value - prediction.value) - 4 * found.se
    room = max(band, away - band if check.relation == "equal" else away)
    target = power.wanted_se(room, alpha=settings.alpha, checks=total)
    return power.blocks_needed(found.se, found.blocks, target)
