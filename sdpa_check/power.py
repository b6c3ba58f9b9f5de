"""What a run can see: thresholds, the smallest detectable deviation, the blocks it needs."""

from __future__ import annotations

import math

from sdpa_check import student

ALPHA = 1e-6
"""False-alarm probability of a whole command or registry, shared out among its checks."""

BETA = 1e-3
"""Probability that a check whose prediction holds ends inconclusive at the planned size."""

MIN_BLOCKS = 64
"""The least number of blocks behind a verdict: Student's t pays for fewer at a small α."""


def threshold(alpha: float, checks: int, blocks: int) -> float:
    """How many standard errors the simultaneous interval reaches to each side.

    t quantile at upper tail α / (2 · checks) with blocks − 1 degrees of freedom (Bonferroni).
    """
    return student.quantile(alpha / (2 * checks), blocks - 1)


def detectable(band: float, se: float, *, alpha: float, checks: int, blocks: int) -> float:
    """The smallest deviation from the prediction that is refuted with probability 1 − β.

    δ + (t_α + z_β √(1 + t_α²/(2(B − 1)))) · se: the estimate must lie beyond the band by t_α
    standard errors, and does so with probability 1 − β when the truth is that much further.
    """
    return band + _reach(BETA, threshold(alpha, checks, blocks), blocks) * se


def wanted_se(band: float, *, alpha: float, checks: int, blocks: int = MIN_BLOCKS) -> float:
    """The standard error at which a true prediction is confirmed with probability 1 − β.

    δ / (t_α + z_{β/2} √(1 + t_α²/(2(B − 1)))): the interval of half-width t_α · se must fit into
    the band after the estimate has strayed to either side.
    """
    return band / _reach(BETA / 2, threshold(alpha, checks, blocks), blocks)


def _reach(miss: float, t_alpha: float, blocks: int) -> float:
    """How many standard errors t_α · ŝe, plus what the estimate strays, exceed with P = `miss`.

    ŝe is estimated too, with a relative error of 1/√(2(B − 1)), so value and end of the interval
    differ by a nearly normal number of standard errors: mean t_α, variance 1 + t_α²/(2(B − 1)).
    """
    spread = math.sqrt(1 + t_alpha**2 / (2 * (blocks - 1)))
    return t_alpha + spread * student.quantile(miss, math.inf)


def blocks_needed(pilot_se: float, pilot_blocks: int, target_se: float) -> int:
    """Blocks for a standard error of `target_se`, when a pilot of `pilot_blocks` gave `pilot_se`.

    The pilot's own variance is uncertain by a factor of about 1 ± √(2/(B−1)); two of those standard
    errors are added, so that a pilot that came out low does not leave the run short.
    """
    caution = 1 + 2 * math.sqrt(2 / (pilot_blocks - 1))
    return math.ceil(pilot_blocks * caution * (pilot_se / target_se) ** 2)
