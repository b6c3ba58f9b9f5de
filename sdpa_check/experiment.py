"""Checks → one sampling per design → rows: the one orchestrator behind every command."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sdpa_check import estimates, sampling
from sdpa_check.checks import Check, Settings, parameters
from sdpa_check.errors import InputError
from sdpa_check.quantities import ExactQuantity, quantity
from sdpa_check.records import Outcome, Row
from sdpa_check.verdict import judge, judge_exact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.quantities import Case, Quantity, Sample
    from sdpa_check.records import Estimate, Prediction

Samples = dict[sampling.Key, "Sample"]
"""The merged sums of every design that was sampled."""


def run(
    checks: Sequence[Check],
    settings: Settings,
    population: Sequence[Check] = (),
    *,
    keep: bool = True,
) -> tuple[list[Row], Samples]:
    """Sample every design once, then estimate, predict and judge every check.

    Args:
        checks: what to do.
        settings: how.
        population: the checks that `checks` were selected from. They share out the false-alarm
            probability and plan the sample sizes, so that selecting fewer changes no number.
        keep: whether to return the samples; many designs fill much memory.

    Raises:
        InputError: for an unknown quantity or a case that it cannot be asked about.
    """
    total = max(len(checks), len(population))
    needed = {key for check in checks for key in sampling.keys(check)}
    groups: dict[sampling.Key, list[Check]] = {key: [] for key in needed}
    for check in population or checks:
        for key in sampling.keys(check) & needed:
            groups[key].append(check)
    samples: Samples = {}
    rows: dict[int, Row] = {}
    for key, group in sorted(groups.items(), key=lambda item: repr(item[0])):
        samples[key] = sampling.sample(*key, group, settings, total)
        if not keep:
            _judge(checks, samples, rows, settings, total)
            _drop(checks, samples, rows)
    _judge(checks, samples, rows, settings, total)
    return [rows[i] for i in range(len(checks))], samples


def _judge(
    checks: Sequence[Check],
    samples: Samples,
    rows: dict[int, Row],
    settings: Settings,
    total: int,
) -> None:
    """Add the rows of the checks whose samples are all there."""
    for i, check in enumerate(checks):
        if i not in rows and sampling.keys(check) <= samples.keys():
            rows[i] = _row(check, samples, settings, total)


def _drop(checks: Sequence[Check], samples: Samples, rows: dict[int, Row]) -> None:
    """Forget the samples that no check still waits for."""
    waiting = [check for i, check in enumerate(checks) if i not in rows]
    needed = {key for check in waiting for key in sampling.keys(check)}
    for key in set(samples) - needed:
        del samples[key]


def _row(check: Check, samples: Samples, settings: Settings, total: int) -> Row:
    asked = quantity(check.quantity)
    if isinstance(asked, ExactQuantity):
        return _exact_row(check, asked)
    estimate = _estimated(check, asked, check.case, samples, settings)
    if check.versus is not None:
        other = _estimated(check, asked, check.versus, samples, settings)
        estimate = estimates.difference(estimate, other)
    prediction = check.prediction(asked)
    band = check.band_for(asked, prediction, settings.tolerance)
    verdict = judge(
        estimate,
        prediction,
        band,
        relation=check.relation,
        alpha=settings.alpha,
        checks=total,
    )
    return Row(
        id=check.id,
        quantity=check.quantity,
        params=parameters(check.case, asked),
        estimate=estimate,
        prediction=prediction,
        verdict=verdict.outcome,
        expected=check.expected or _expected(estimate, prediction),
        reason=verdict.reason,
        tolerance=None if prediction.value is None or check.relation != "equal" else band,
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


def _expected(estimate: Estimate, prediction: Prediction) -> Outcome:
    """What theory itself expects: no verdict without a prediction, none without an error bar."""
    if prediction.value is None or prediction.kind == "limit":
        return Outcome.UNDEFINED
    return Outcome.CONFIRMED if estimate.se is not None else Outcome.INCONCLUSIVE


def _estimated(
    check: Check, asked: Quantity, case: Case, samples: Samples, settings: Settings
) -> Estimate:
    """The estimate for a case, from samples that carry the multiplier that was applied to them."""
    taken = tuple(
        dataclasses.replace(
            samples[sampling.kind(asked, case), design],
            multiplier=sampling.applied(case, design, settings),
        )
        for design in case.designs
    )
    if not taken:
        raise InputError(f"{check.id}: dk", None, f"a design for {asked.name}")
    return asked.estimate(case, taken)
