"""Checks → one sampling per design → rows: the one orchestrator behind every command."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sdpa_check import engine, power, rng
from sdpa_check.logits import scaling
from sdpa_check.measures.dot import DotWork, block_vectors
from sdpa_check.measures.rows import RowsShape, RowsWork
from sdpa_check.quantities import Case, Quantity, Sample, multiplier, quantity
from sdpa_check.records import Design, Fault, Outcome, Row
from sdpa_check.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Executor

    from sdpa_check.quantities.base import Sampling
    from sdpa_check.records import Estimate, Prediction

PILOT_BLOCKS = 32
"""Blocks of the pilot that plans the sample size; it has streams of its own and is thrown away."""

WORK_LIMIT = 2e11
"""Elementary operations a planned run may cost; beyond, checks may end inconclusive and say so."""

_FOLLOWERS = 8
"""A quantity that does not lead may ask for at most this many times the blocks of those that do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question: a quantity, a case, and what the answer is expected to be.

    `stated` replaces the theory's prediction by the number of an author; `band` the equivalence
    band; `expected` the outcome that counts as expected (None: what theory makes of it).
    """

    id: str
    quantity: str
    case: Case
    expected: Outcome | None = None
    stated: Prediction | None = None
    band: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How checks are run. Nothing here changes what is true, only how precisely it is seen.

    Attributes:
        seed: root seed.
        jobs: threads; None for the cores present.
        executor: where blocks run instead of threads.
        precision: wanted standard error relative to the scale that the band is a fraction of;
            None plans the sample size from the band itself, so that a true prediction is confirmed.
        samples: number of dot products or rows per design; overrides the plan.
        tolerance: relative half-width of the equivalence band.
        alpha: false-alarm probability of all checks together.
        checks: how many checks share `alpha`; None for those that are run.
        fault: a planted error, for showing that the checks can fail.
        progress: called as progress(label, blocks done, blocks in all).
    """

    seed: int = 0
    jobs: int | None = None
    executor: Executor | None = None
    precision: float | None = None
    samples: int | None = None
    tolerance: float = 0.01
    alpha: float = power.ALPHA
    checks: int | None = None
    fault: Fault = field(default_factory=Fault)
    progress: Callable[[str, int, int], None] | None = None


Samples = dict[tuple["Sampling", Design], Sample]
"""The merged sums of every design that was sampled."""


def run(checks: Sequence[Check], settings: Settings) -> tuple[list[Row], Samples]:
    """Sample every design once, then estimate, predict and judge every check.

    Raises:
        InputError: for an unknown quantity or a case that it cannot be asked about.
    """
    groups: dict[tuple[Sampling, Design], list[Check]] = {}
    for check in checks:
        for design in check.case.designs:
            sampling = quantity(check.quantity).sampling
            groups.setdefault((sampling, design), []).append(check)
    total = settings.checks or len(checks)
    samples = {key: _sample(*key, group, settings, total) for key, group in groups.items()}
    return [_row(check, samples, settings, total) for check in checks], samples


def _row(check: Check, samples: Samples, settings: Settings, total: int) -> Row:
    asked = quantity(check.quantity)
    estimate = asked.estimate(check.case, _taken(check, samples, settings))
    prediction = check.stated or asked.predict(check.case)
    band = _band(check, asked, prediction, settings)
    verdict = judge(estimate, prediction, band, alpha=settings.alpha, checks=total)
    return Row(
        id=check.id,
        quantity=check.quantity,
        params=parameters(check.case, asked),
        estimate=estimate,
        prediction=prediction,
        verdict=verdict.outcome,
        expected=check.expected or _expected(estimate, prediction),
        reason=verdict.reason,
        tolerance=None if prediction.value is None else band,
        detectable=verdict.detectable,
    )


def _expected(estimate: Estimate, prediction: Prediction) -> Outcome:
    """What theory itself expects: no verdict without a prediction, none without an error bar."""
    if prediction.value is None or prediction.kind == "limit":
        return Outcome.UNDEFINED
    return Outcome.CONFIRMED if estimate.se is not None else Outcome.INCONCLUSIVE


def _band(check: Check, asked: Quantity, prediction: Prediction, settings: Settings) -> float:
    if check.band is not None:
        return check.band
    return asked.band(check.case, prediction, check.tolerance or settings.tolerance)


def _taken(check: Check, samples: Samples, settings: Settings) -> tuple[Sample, ...]:
    """The samples that a check reads, each with the multiplier that was applied to it."""
    sampling = quantity(check.quantity).sampling
    return tuple(
        dataclasses.replace(
            samples[sampling, design], multiplier=_applied(check.case, design, settings)
        )
        for design in check.case.designs
    )


def _applied(case: Case, design: Design, settings: Settings) -> float:
    """The multiplier of the measurement: that of the case, unless a fault replaces its rule."""
    if case.scale is None:
        return 1.0
    rule = scaling.parse(settings.fault.scale) if settings.fault.scale else case.scale
    return multiplier(rule, design, case.d_model)


def _sample(
    sampling: Sampling, design: Design, group: list[Check], settings: Settings, total: int
) -> Sample:
    make = _work_maker(sampling, design, group, settings)
    label = f"d_k={design.dk}" + (f", m={design.keys}" if design.keys else "")
    blocks = _blocks_of_samples(make("main"), settings) or _planned(make, group, settings, total)
    blocks = engine.whole(blocks)
    done = 0

    def advance(step: int) -> None:
        nonlocal done
        done += step
        if settings.progress is not None:
            settings.progress(label, done, blocks)

    work = make("main")
    return Sample(work=work, replicates=_merged(work, blocks, settings, advance))


def _merged(
    work: DotWork | RowsWork,
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
    sampling: Sampling, design: Design, group: list[Check], settings: Settings
) -> Callable[[str], DotWork | RowsWork]:
    """A function from the name of the random stream to the work of a design."""
    wanted = None if settings.samples is None else max(1, settings.samples // power.MIN_BLOCKS)
    if sampling == "dot":
        vectors = block_vectors(design, wanted)
        return lambda stream: DotWork(design, vectors, settings.fault, stream)
    multipliers = tuple(sorted({_applied(check.case, design, settings) for check in group}))
    shape = RowsShape.fitting(design.dk, design.keys or 2, wanted)
    whole = RowsShape.fitting(design.dk, design.keys or 2)
    scout = RowsWork(design, multipliers, whole, (), settings.fault, "scout")
    gridded = scout.with_grids(rng.generator(settings.seed, scout.experiment, 0))
    return lambda stream: dataclasses.replace(gridded, shape=shape, stream=stream)


def _blocks_of_samples(work: DotWork | RowsWork, settings: Settings) -> int | None:
    if settings.samples is None:
        return None
    return max(power.MIN_BLOCKS, math.ceil(settings.samples / work.size))


def _planned(
    make: Callable[[str], DotWork | RowsWork],
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
        if asked.sweep:
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
    sample = dataclasses.replace(pilot, multiplier=_applied(check.case, design, settings))
    found = asked.estimate(check.case, (sample,))
    prediction = check.stated or asked.predict(check.case)
    band = _band(check, asked, prediction, settings)
    judged = prediction.value is not None and prediction.kind != "limit"
    if found.se is None or not judged or not 0 < band < math.inf:
        return 0
    if settings.precision is None:
        target = power.wanted_se(band, alpha=settings.alpha, checks=total)
    else:
        target = settings.precision * band / (check.tolerance or settings.tolerance)
    return power.blocks_needed(found.se, found.blocks, target)


def parameters(case: Case, asked: Quantity) -> dict[str, Any]:
    """The parameters of a row, flat and by the names of the options."""
    first = case.designs[0]
    dk: int | list[int] = first.dk if not asked.sweep else [d.dk for d in case.designs]
    params: dict[str, Any] = {"dk": dk, **law_parameters(first), "keys": first.keys}
    params["scale"] = None if case.scale is None else case.scale.name
    if asked.sweep:
        return params
    if "scale" in asked.params:
        params["multiplier"] = case.multiplier
    if "statistic" in asked.params:
        params["statistic"] = case.statistic or "rms"
    if "level" in asked.params:
        params["level"] = case.level
    return params


def law_parameters(design: Design) -> dict[str, Any]:
    """The laws of a design, flat and by the names of the options."""
    q, k = design.query, design.key
    return {
        "distribution": q.distribution,
        "df": q.df,
        "standardize": q.standardize,
        "sigma": q.sigma,
        "sigma_k": k.sigma,
        "mean": q.mean,
        "mean_k": k.mean,
        "corr": design.corr,
    }


def ids(checks: Iterable[tuple[str, Case]]) -> list[str]:
    """A readable id for every check: the quantity and what distinguishes the case."""
    return [f"{name}[{','.join(_parts(quantity(name), case))}]" for name, case in checks]


def _parts(asked: Quantity, case: Case) -> list[str]:
    params = parameters(case, asked)
    dk = params["dk"]
    parts = [f"dk={dk if isinstance(dk, int) else '+'.join(map(str, dk))}"]
    parts += [
        f"{name}={params[name]}"
        for name in ("keys", "scale", "statistic", "level")
        if params.get(name) is not None
    ]
    return parts
