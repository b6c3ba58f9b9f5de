"""Checks → what is drawn and measured for them: the work behind every design."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from sdpa_check import estimates, power, rng
from sdpa_check.errors import InputError
from sdpa_check.logits import scaling
from sdpa_check.measures.dot import PARTS, DotWork, block_vectors
from sdpa_check.quantities import ExactQuantity, multiplier, quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sdpa_check.checks import Check, Settings
    from sdpa_check.measures.pipeline import PipelineWork
    from sdpa_check.measures.rows import Depth, RowsWork
    from sdpa_check.measures.weights import WeightsWork
    from sdpa_check.quantities import Case, Quantity, Sample
    from sdpa_check.records import Design, Estimate
    from sdpa_check.training.measures import TrainWork
    from sdpa_check.training.start import StartWork

    PlannedWork = DotWork | RowsWork | WeightsWork | PipelineWork | StartWork


Key = tuple[str, "Design"]
"""What is sampled once: the kind of block, with its pipeline or training if any, and the design."""


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


def measured(
    check: Check, asked: Quantity, samples: Mapping[Key, Sample], settings: Settings
) -> Estimate:
    """The number of a check: that of its case, or the difference between its two cases."""
    estimate = _estimated(check, asked, check.case, samples, settings)
    if check.versus is None:
        return estimate
    other = _estimated(check, asked, check.versus, samples, settings)
    return estimates.difference(estimate, other)


def _estimated(
    check: Check, asked: Quantity, case: Case, samples: Mapping[Key, Sample], settings: Settings
) -> Estimate:
    """The estimate for a case, from samples that carry the multiplier that was applied to them."""
    taken = tuple(
        dataclasses.replace(
            samples[kind(asked, case), design],
            multiplier=applied(case, design, settings),
        )
        for design in case.designs
    )
    if not taken:
        raise InputError(f"{check.id}: dk", None, f"a design for {asked.name}")
    return asked.estimate(case, taken)


def work_of(kind_: str, design: Design, group: list[Check], settings: Settings) -> PlannedWork:
    """The work that measures what the checks of a group ask of one design.

    Args:
        kind_: the kind of block, as from `kind`.
        design: what is drawn.
        group: the checks that read the design.
        settings: how checks are run.
    """
    wanted = None if settings.samples is None else max(1, settings.samples // power.MIN_BLOCKS)
    if kind_.startswith("start "):
        return _start_work(kind_, design, group, settings)
    if kind_.startswith("pipeline "):
        return _pipeline_work(kind_.removeprefix("pipeline "), design, group, settings, wanted)
    if kind_ == "dot":
        parts = _parts(group)
        vectors = block_vectors(design, wanted, parts)
        return DotWork(design, vectors, settings.fault, parts=parts)
    return _rows_work(kind_, design, group, settings, wanted)


def _parts(group: list[Check]) -> tuple[str, ...]:
    """What the checks of a group read of a block of dot products."""
    asked = [quantity(check.quantity) for check in group]
    read = {part for each in asked if not isinstance(each, ExactQuantity) for part in each.parts}
    return tuple(part for part in PARTS if part in read)


def _rows_work(
    kind_: str, design: Design, group: list[Check], settings: Settings, wanted: int | None
) -> RowsWork | WeightsWork:
    from sdpa_check.measures.row_scores import RowsShape
    from sdpa_check.measures.rows import RowsWork
    from sdpa_check.measures.scores import effective_dimension

    asked = _by_multiplier(group, design, settings)
    free = effective_dimension(design)
    fitting = partial(RowsShape.fitting, design.dk, design.keys or 2, free=free)
    if kind_ == "weights":
        from sdpa_check.measures.weights import PARTS as OF_WEIGHTS
        from sdpa_check.measures.weights import WeightsWork
        from sdpa_check.quantities.weights import reads

        read = {
            part for each in asked.values() for one, case, _ in each for part in reads(one, case)
        }
        parts = tuple(part for part in OF_WEIGHTS if part in read)
        return WeightsWork(design, tuple(asked), fitting(wanted), settings.fault, parts=parts)
    shape, whole = fitting(wanted), fitting()
    depths = tuple(_depth(each) for each in asked.values())
    work = RowsWork(design, tuple(asked), whole, (), settings.fault, "scout", depths)
    if any(depth.counted for depth in depths):
        work = work.with_grids(rng.generator(settings.seed, work.experiment, 0))
    return dataclasses.replace(work, shape=shape, stream="main")


def _depth(asked: list[tuple[Quantity, Case, Check]]) -> Depth:
    """How much of a block is done for what is asked under one multiplier."""
    from sdpa_check.quantities.rows import depth, looks_closer

    closer = [(each, check) for each, case, check in asked if looks_closer(each, case)]
    judged = any(check.prediction(each).value is not None for each, check in closer)
    return depth(((each, case) for each, case, _ in asked), judged=judged)


def _by_multiplier(
    group: list[Check], design: Design, settings: Settings
) -> dict[float, list[tuple[Quantity, Case, Check]]]:
    """What is asked of a design under every multiplier, in order, and by which check."""
    found: dict[float, list[tuple[Quantity, Case, Check]]] = {}
    for check in group:
        asked = quantity(check.quantity)
        if isinstance(asked, ExactQuantity):
            continue
        for case in check.cases:
            if design in case.designs:
                factor = applied(case, design, settings)
                found.setdefault(factor, []).append((asked, case, check))
    return dict(sorted(found.items()))


def _pipeline_work(
    text: str, design: Design, group: list[Check], settings: Settings, wanted: int | None
) -> PipelineWork:
    from sdpa_check.measures.pipeline import PARTS, PipelineWork

    cases = [case for check in group for case in check.cases]
    d_model = next((case.d_model for case in cases if case.d_model is not None), None)
    read = _read_of_pipeline(text, design, group)
    parts = tuple(part for part in PARTS if part in read)
    shown = tuple(part for part in parts if not read[part])
    whole = PipelineWork.fitting(design, text, d_model, None, settings.fault)
    scout = dataclasses.replace(whole, parts=parts, shown=shown, stream="scout")
    if any(part.startswith("histogram.") for part in parts):
        scout = scout.with_grids(rng.generator(settings.seed, scout.experiment, 0))
    work = PipelineWork.fitting(design, text, d_model, wanted, settings.fault)
    return dataclasses.replace(work, parts=parts, shown=shown, grids=scout.grids)


def _read_of_pipeline(text: str, design: Design, group: list[Check]) -> dict[str, bool]:
    """The parts of a block that checks read, and whether anything is judged by them."""
    from sdpa_check.quantities.pipeline import reads

    found: dict[str, bool] = {}
    for check in group:
        asked = quantity(check.quantity)
        if isinstance(asked, ExactQuantity):
            continue
        prediction = check.prediction(asked)
        judged = prediction.value is not None and prediction.kind != "limit"
        for case in check.cases:
            if design in case.designs and kind(asked, case) == f"pipeline {text}":
                found |= {part: judged or found.get(part, False) for part in reads(asked, case)}
    return found


def _start_work(kind_: str, design: Design, group: list[Check], settings: Settings) -> StartWork:
    from sdpa_check.quantities import training
    from sdpa_check.training.start import StartWork

    cases = _training_cases(kind_, design, group)
    multipliers = tuple(sorted({applied(case, design, settings) for case in cases}))
    return StartWork(training.task(cases[0]), multipliers)


def training_work(kind_: str, design: Design, group: list[Check], settings: Settings) -> TrainWork:
    """The trainings that a group asks about: all settings of one seed share its draws."""
    from sdpa_check.quantities import training
    from sdpa_check.training.measures import TrainWork

    cases = _training_cases(kind_, design, group)
    pairs = [each for case in cases for each in training.pair(case)]
    trials = [training.trial(each, applied(each, design, settings)) for each in pairs]
    return TrainWork(tuple(dict.fromkeys(trials)))


def _training_cases(kind_: str, design: Design, group: list[Check]) -> list[Case]:
    from sdpa_check.quantities import training

    name = kind_.partition(" ")[0]
    asked = [case for check in group for case in check.cases if design in case.designs]
    return [case for case in asked if training.kind(name, case) == kind_]
