"""Checks → one sampling per design → rows: the one orchestrator behind every command."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from sdpa_check import engine, estimates, sampling, works
from sdpa_check.checks import Check, Settings, parameters
from sdpa_check.errors import InputError
from sdpa_check.quantities import ExactQuantity, Sample, quantity
from sdpa_check.records import Outcome, Row
from sdpa_check.verdict import Verdict, held_to, judge, judge_exact, unjudged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sdpa_check.checkpoint import Checkpoint
    from sdpa_check.quantities import Quantity
    from sdpa_check.records import Estimate, Prediction

Samples = dict[works.Key, Sample]
"""The merged sums of every design that was sampled."""

_NEVER = "stopped before it was sampled"


def run(
    checks: Sequence[Check],
    settings: Settings,
    population: Sequence[Check] = (),
    *,
    keep: bool = True,
    known: Samples | None = None,
) -> tuple[list[Row], Samples]:
    """Sample every design once, then estimate, predict and judge every check.

    Args:
        checks: what to do.
        settings: how.
        population: the checks that `checks` were selected from. They share out the false-alarm
            probability and plan the sample sizes, so that selecting fewer changes no number.
        keep: whether to return the samples; many designs fill much memory.
        known: samples of an earlier run that measured all that these checks read of them.

    With a checkpoint in the settings an interrupt ends the sampling. Designs that are finished are
    then judged as ever; the others are not, since who stops a run may have seen its numbers.

    Raises:
        InputError: for an unknown quantity or a case that it cannot be asked about.
        KeyboardInterrupt: without a checkpoint, or before any block was finished.
    """
    total = max(len(checks), len(population))
    checkpoint = settings.checkpoint
    rows: dict[int, Row] = {} if keep or checkpoint is None else checkpoint.rows
    open_ = [check for i, check in enumerate(checks) if i not in rows]
    samples: Samples = dict(known or {})
    needed = {key for check in open_ for key in works.keys(check)} - samples.keys()
    groups: dict[works.Key, list[Check]] = {key: [] for key in needed}
    for check in population or checks:
        for key in works.keys(check) & needed:
            groups[key].append(check)
    order = sorted(groups.items(), key=lambda item: sampling.text_of(item[0]))
    judging = _Judge(checks, settings, total)
    try:
        with _workers(settings) as here:
            for (key, group), planned in zip(order, _plans(order, here, total), strict=True):
                plan = planned()
                judging.predicted.update(zip(map(id, group), plan.predictions, strict=True))
                samples[key] = sampling.sample(key, group, plan, here)
                judging.add(rows, samples)
                if not keep:
                    _drop(checks, samples, rows, checkpoint)
    except KeyboardInterrupt:
        if checkpoint is None or checkpoint.empty:
            raise
        checkpoint.stopped = True
    judging.add(rows, samples)
    left = _unfinished(checks, samples, rows, settings, checkpoint) if checkpoint else {}
    return [rows[i] if i in rows else left[i] for i in range(len(checks))], samples


@contextmanager
def _workers(settings: Settings) -> Iterator[Settings]:
    """The settings with processes to be forked, where they have no executor and it can be."""
    if settings.executor is not None:
        yield settings
        return
    with engine.workers(settings.jobs) as pool:
        yield replace(settings, pool=pool)


def _plans(
    order: list[tuple[works.Key, list[Check]]], settings: Settings, total: int
) -> list[Callable[[], sampling.Plan]]:
    """How each design is measured, and by how many blocks: functions that find out, or wait for it.

    Workers plan the designs of many while they would wait for the last blocks of another. A single
    one is planned here, with the workers running its pilot.
    """
    pool = settings.pool
    if pool is None or len(order) == 1:
        return [partial(sampling.planned, *key, group, settings, total) for key, group in order]
    alone = replace(settings, pool=None, jobs=1)
    return [
        pool.later(partial(sampling.planned, *key, group, alone, total)) for key, group in order
    ]


@dataclass(frozen=True, slots=True)
class _Judge:
    """Makes the rows of checks.

    Attributes:
        checks: of which the rows are made.
        settings: how checks are run.
        total: how many checks share the false-alarm probability.
        predicted: what is known already of what theory says, by the `id` of the check.
    """

    checks: Sequence[Check]
    settings: Settings
    total: int
    predicted: dict[int, Prediction | None] = field(default_factory=dict)

    def add(self, rows: dict[int, Row], samples: Samples) -> None:
        """Add the rows of the checks whose samples are all there."""
        for i, check in enumerate(self.checks):
            if i not in rows and works.keys(check) <= samples.keys():
                rows[i] = self._row(check, samples)

    def _row(self, check: Check, samples: Samples) -> Row:
        asked, settings = quantity(check.quantity), self.settings
        if isinstance(asked, ExactQuantity):
            return _exact_row(check, asked)
        estimate = works.measured(check, asked, samples, settings)
        prediction = self.predicted.get(id(check)) or check.prediction(asked)
        verdict = judge(
            estimate,
            prediction,
            check.band_for(asked, prediction, settings.tolerance),
            relation=check.relation,
            alpha=settings.alpha,
            checks=self.total,
        )
        return _told(check, estimate, prediction, verdict, settings)


def _drop(
    checks: Sequence[Check],
    samples: Samples,
    rows: dict[int, Row],
    checkpoint: Checkpoint | None,
) -> None:
    """Forget the samples that no check still waits for."""
    waiting = [check for i, check in enumerate(checks) if i not in rows]
    needed = {key for check in waiting for key in works.keys(check)}
    for key in set(samples) - needed:
        del samples[key]
        if checkpoint is not None:
            del checkpoint.entries[sampling.text_of(key)]


def _unfinished(
    checks: Sequence[Check],
    samples: Samples,
    rows: dict[int, Row],
    settings: Settings,
    checkpoint: Checkpoint,
) -> dict[int, Row]:
    """The rows that a stopped run cannot judge: of a design under way, and of those after it."""
    left = {i: check for i, check in enumerate(checks) if i not in rows}
    told, begun = {}, dict(samples)
    for key in {key for check in left.values() for key in works.keys(check)} - samples.keys():
        entry = checkpoint.entries.get(sampling.text_of(key))
        if entry is None or not entry.state.merged:
            continue
        told[key] = f"stopped after {entry.state.merged} of {entry.state.blocks} blocks"
        if entry.work is not None and entry.state.complete >= sampling.LEAST:
            begun[key] = Sample(work=entry.work, replicates=entry.state.replicates())
    found = {}
    for i, check in left.items():
        missing = works.keys(check) - samples.keys()
        after = [told[key] for key in missing if key in told]
        advice = f"; {checkpoint.advice}" if checkpoint.advice else ""
        reason = after[0] + advice if len(after) == len(missing) else _NEVER
        found[i] = _unjudged(check, begun, reason, settings)
    return found


def _unjudged(check: Check, samples: Samples, reason: str, settings: Settings) -> Row:
    """A row with the number that complete replicates give, if any, and without a verdict.

    A run may have been stopped because it looked good just then.
    """
    asked = cast("Quantity", quantity(check.quantity))
    prediction = check.prediction(asked)
    if works.keys(check) <= samples.keys():
        estimate = works.measured(check, asked, samples, settings)
        verdict = unjudged(prediction, reason)
    else:
        estimate = None
        verdict = Verdict(Outcome.NOT_RUN, reason)
    return _told(check, estimate, prediction, verdict, settings)


def _told(
    check: Check,
    estimate: Estimate | None,
    prediction: Prediction,
    verdict: Verdict,
    settings: Settings,
) -> Row:
    asked = cast("Quantity", quantity(check.quantity))
    judged = prediction.value is not None and prediction.kind != "limit"
    band = check.band_for(asked, prediction, settings.tolerance) if judged else math.inf
    banded = check.relation == "equal" and math.isfinite(band)
    return Row(
        id=check.id,
        quantity=check.quantity,
        params=parameters(check.case, asked),
        estimate=estimate,
        prediction=prediction,
        verdict=verdict.outcome,
        expected=check.expected or _expected(estimate, prediction),
        reason=verdict.reason,
        tolerance=held_to(band, estimate, prediction) if banded else None,
        detectable=verdict.detectable,
    )


def _exact_row(check: Check, asked: ExactQuantity) -> Row:
    """A row for a number that is computed; of a list, the entry furthest from its claim."""
    values = asked.evaluate(check.case)
    if len(check.stated) != len(values):
        want = f"{len(values)} numbers for {asked.name}"
        raise InputError(f"{check.id}: stated", list(check.stated), want)
    band = asked.bound if check.band is None else check.band
    verdict = judge_exact(values, check.stated, band, check.relation)
    _, value, stated = max(
        (abs(v - s) if v != s else 0.0, v, s) for v, s in zip(values, check.stated, strict=True)
    )
    return Row(
        id=check.id,
        quantity=check.quantity,
        params=dict(check.case.inputs),
        estimate=estimates.computed(value),
        prediction=check.states(stated),
        verdict=verdict.outcome,
        expected=check.expected or Outcome.CONFIRMED,
        reason=verdict.reason,
        tolerance=band if check.relation == "equal" else None,
    )


def _expected(estimate: Estimate | None, prediction: Prediction) -> Outcome:
    """What theory itself expects: no verdict without a prediction, none without an error bar."""
    if prediction.value is None or prediction.kind == "limit":
        return Outcome.UNDEFINED
    bare = estimate is not None and estimate.se is None
    return Outcome.INCONCLUSIVE if bare else Outcome.CONFIRMED
