"""Estimate + prediction → verdict and reason; verdicts → exit code."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdpa_check import power
from sdpa_check.errors import EXIT_STOPPED
from sdpa_check.records import STOPPED, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.records import Estimate, Prediction, Relation, Row

_ROUNDING = 64 * sys.float_info.epsilon
"""Relative rounding error allowed to sums and quadratures that agree in real arithmetic."""

EXIT_EXPECTED, EXIT_UNEXPECTED, EXIT_OPEN = 0, 3, 4


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
    relation: Relation = "equal",
    alpha: float = power.ALPHA,
    checks: int = 1,
) -> Verdict:
    """Hold the simultaneous interval value ± t·se against what was predicted.

    ``equal``: two one-sided tests of |truth − prediction| ≤ band; confirmed where the whole
    interval lies inside prediction ± band, refuted where it lies wholly outside (Schuirmann 1987;
    Bonferroni over `checks`). ``at least`` and ``at most``: confirmed where the whole interval lies
    on that side of the prediction, refuted where it lies wholly on the other. Else inconclusive.

    Args:
        estimate: the measured number.
        prediction: what it should be.
        band: half-width δ ≥ 0 of the equivalence band, in the unit of the number; read for
            ``equal`` only.
        relation: how the number is claimed to stand to the prediction.
        alpha: false-alarm probability of the whole command.
        checks: how many checks the command has in all.
    """
    if prediction.value is None or prediction.kind == "limit":
        return Verdict(Outcome.UNDEFINED, _without_prediction(prediction))
    if estimate.se is None:
        return Verdict(Outcome.INCONCLUSIVE, f"no error bar: {estimate.withheld}")
    if relation == "equal" and math.isinf(band):
        return Verdict(Outcome.INCONCLUSIVE, "no band: a number within ±∞ of another says nothing")
    reach = power.threshold(alpha, checks, estimate.blocks) * estimate.se
    deviation = abs(estimate.value - prediction.value)
    band = held_to(band, estimate, prediction)
    if estimate.se == 0 and deviation > band:
        return Verdict(Outcome.INCONCLUSIVE, "all blocks agree: too few samples to see an error")
    if relation != "equal":
        return _one_sided(estimate.value, reach, prediction.value, relation)
    seen = power.detectable(band, estimate.se, alpha=alpha, checks=checks, blocks=estimate.blocks)
    outcome, where = _two_sided(deviation, reach, band)
    if outcome is Outcome.INCONCLUSIVE:
        where = _wish(estimate, band, alpha, checks)
    shown = f"|measured − predicted| = {deviation:.3g}, interval ±{reach:.3g}, band ±{band:.3g}"
    return Verdict(outcome, f"{where}: {shown}", seen)


def held_to(band: float, estimate: Estimate | None, prediction: Prediction) -> float:
    """The band, but none finer than the rounding of the two numbers that it compares."""
    if estimate is None or prediction.value is None:
        return band
    rounding = _ROUNDING * max(abs(estimate.value), abs(prediction.value))
    return max(band, rounding) if math.isfinite(rounding) else band


def unjudged(prediction: Prediction, why: str) -> Verdict:
    """What is said of a number that nobody may judge: inconclusive, or undefined as ever."""
    if prediction.value is None or prediction.kind == "limit":
        return Verdict(Outcome.UNDEFINED, _without_prediction(prediction))
    return Verdict(Outcome.INCONCLUSIVE, why)


def _two_sided(deviation: float, reach: float, band: float) -> tuple[Outcome, str]:
    if deviation + reach <= band:
        return Outcome.CONFIRMED, "inside the band"
    if deviation - reach > band:
        return Outcome.REFUTED, "outside the band"
    return Outcome.INCONCLUSIVE, ""


def _one_sided(value: float, reach: float, bound: float, relation: Relation) -> Verdict:
    margin = value - bound if relation == "at least" else bound - value
    shown = f"measured {value:.4g} ± {reach:.2g} (simultaneous), claimed {relation} {bound:.4g}"
    if margin >= reach:
        return Verdict(Outcome.CONFIRMED, shown)
    if margin < -reach:
        return Verdict(Outcome.REFUTED, shown)
    return Verdict(Outcome.INCONCLUSIVE, f"the interval reaches over the bound: {shown}")


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


def conclude(rows: Sequence[Row], *, stopped: bool = False) -> tuple[str, int]:
    """The outcome of a run in words, and its exit code.

    0 everything as expected; 3 at least one check came out otherwise; 4 none did, but some are
    inconclusive without being expected to be, or nothing was checked; 130 the run was stopped, and
    its rows are not all there is to say.
    """
    if stopped:
        return STOPPED, EXIT_STOPPED
    off = [row.verdict for row in rows if not is_expected(row)]
    if any(outcome is not Outcome.INCONCLUSIVE for outcome in off):
        return "NOT as expected", EXIT_UNEXPECTED
    if off:
        return "open", EXIT_OPEN
    if all(row.verdict is Outcome.NOT_RUN for row in rows):
        return "nothing was checked", EXIT_OPEN
    return "as expected", EXIT_EXPECTED


def judge_exact(
    values: Sequence[float], stated: Sequence[float], band: float, relation: Relation = "equal"
) -> Verdict:
    """Judge numbers that were computed, not sampled, against stated ones, entry by entry."""
    shown = f"computed {_list(values)}, stated {'' if relation == 'equal' else relation + ' '}"
    shown += _list(stated)
    pairs = list(zip(values, stated, strict=True))
    if any(math.isnan(value) for value in values):
        return Verdict(Outcome.REFUTED, f"not a number: {shown}")
    holds = {
        "equal": all(v == s or abs(v - s) <= band for v, s in pairs),
        "at least": all(v >= s for v, s in pairs),
        "at most": all(v <= s for v, s in pairs),
    }[relation]
    allowed = f", allowed ±{band:.3g}" if relation == "equal" else ""
    return Verdict(Outcome.CONFIRMED if holds else Outcome.REFUTED, f"{shown}{allowed}")


def _list(numbers: Sequence[float]) -> str:
    texts = [f"{number:.6g}" for number in numbers]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
