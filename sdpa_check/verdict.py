"""Estimate + prediction → verdict and reason; verdicts → exit code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdpa_check import power
from sdpa_check.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.records import Estimate, Prediction, Row

EXIT_EXPECTED, EXIT_USAGE, EXIT_UNEXPECTED, EXIT_OPEN = 0, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with the sentence that explains it."""

    outcome: Outcome
    reason: str
    detectable: float | None = None


def judge(
    estimate: Estimate,
    prediction: Prediction,
    band: float,
    *,
    alpha: float = power.ALPHA,
    checks: int = 1,
) -> Verdict:
    """Two one-sided tests of |truth − prediction| ≤ band, at the simultaneous level.

    Confirmed where the whole interval value ± t·se lies inside prediction ± band, refuted where it
    lies wholly outside, inconclusive otherwise (Schuirmann 1987; Bonferroni over `checks`).

    Args:
        estimate: the measured number.
        prediction: what it should be.
        band: half-width δ ≥ 0 of the equivalence band, in the unit of the number.
        alpha: false-alarm probability of the whole command.
        checks: how many checks the command has in all.
    """
    if prediction.value is None or prediction.kind == "limit":
        return Verdict(Outcome.UNDEFINED, _without_prediction(prediction))
    if estimate.se is None:
        return Verdict(Outcome.INCONCLUSIVE, f"no error bar: {estimate.withheld}")
    reach = power.threshold(alpha, checks, estimate.blocks) * estimate.se
    deviation = abs(estimate.value - prediction.value)
    seen = power.detectable(band, estimate.se, alpha=alpha, checks=checks, blocks=estimate.blocks)
    shown = f"|measured − predicted| = {deviation:.3g}, interval ±{reach:.3g}, band ±{band:.3g}"
    if deviation + reach <= band:
        return Verdict(Outcome.CONFIRMED, f"inside the band: {shown}", seen)
    if deviation - reach > band:
        return Verdict(Outcome.REFUTED, f"outside the band: {shown}", seen)
    return Verdict(Outcome.INCONCLUSIVE, f"{_wish(estimate, band, alpha, checks)}: {shown}", seen)


def _without_prediction(prediction: Prediction) -> str:
    if prediction.kind == "infinite":
        return f"predicted ∞ ({prediction.source}): a sample value says nothing about it"
    if prediction.kind == "limit" and prediction.value is not None:
        return f"no exact prediction, a limit for comparison: {prediction.source}"
    return f"no prediction: {prediction.source}"


def _wish(estimate: Estimate, band: float, alpha: float, checks: int) -> str:
    """What would settle an inconclusive check."""
    if band <= 0 or estimate.se is None:
        return "inconclusive"
    target = power.wanted_se(band, alpha=alpha, checks=checks)
    factor = (estimate.se / target) ** 2
    if factor <= 1:
        return "at the edge of the band"
    return f"needs about {factor:.2g} times the samples (--samples {factor * estimate.samples:.2g})"


def is_expected(row: Row) -> bool:
    """Whether a row came out as its record expects; "not run" never counts against a run."""
    return row.verdict in (row.expected, Outcome.NOT_RUN)


def conclude(rows: Sequence[Row]) -> tuple[str, int]:
    """The outcome of a run in words, and its exit code.

    0 everything as expected; 3 at least one check came out otherwise; 4 none did, but some are
    inconclusive without being expected to be, or nothing was checked.
    """
    off = [row.verdict for row in rows if not is_expected(row)]
    if any(outcome is not Outcome.INCONCLUSIVE for outcome in off):
        return "NOT as expected", EXIT_UNEXPECTED
    if off:
        return "open", EXIT_OPEN
    if all(row.verdict is Outcome.NOT_RUN for row in rows):
        return "nothing was checked", EXIT_OPEN
    return "as expected", EXIT_EXPECTED


def exact(value: float, prediction: float, band: float) -> Verdict:
    """Judge a number that was computed, not sampled, against a stated one."""
    if math.isnan(value):
        return Verdict(Outcome.REFUTED, "the computed value is not a number")
    deviation = 0.0 if value == prediction else abs(value - prediction)  # ∞ − ∞ is no number
    inside = deviation <= band
    outcome = Outcome.CONFIRMED if inside else Outcome.REFUTED
    return Verdict(outcome, f"|computed − stated| = {deviation:.3g}, allowed {band:.3g}")
