"""What a run can see: thresholds, the smallest detectable deviation, the blocks it needs."""

from __future__ import annotations

import math

from sdpa_check import student
from sdpa_check.errors import InputError

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
    return t_alpha + _spread(t_alpha, blocks) * student.quantile(miss, math.inf)


def _spread(t_alpha: float, blocks: int) -> float:
    return math.sqrt(1 + t_alpha**2 / (2 * (blocks - 1)))


def blocks_needed(pilot_se: float, pilot_blocks: int, target_se: float) -> int:
    """Blocks for a standard error of `target_se`, when a pilot of `pilot_blocks` gave `pilot_se`.

    The pilot's own variance is uncertain by a factor of about 1 ± √(2/(B−1)); two of those standard
    errors are added, so that a pilot that came out low does not leave the run short.
    """
    caution = 1 + 2 * math.sqrt(2 / (pilot_blocks - 1))
    return math.ceil(pilot_blocks * caution * (pilot_se / target_se) ** 2)


def blocks_to_judge(
    pilot_se: float, pilot_blocks: int, band: float, *, alpha: float, checks: int, blocks: int
) -> int:
    """Blocks at which a true prediction is confirmed with probability 1 − β, seen before a pilot.

    With K = band / (pilot's se, scaled to the run) the run ends inconclusive where
    K √(χ²_ν/ν) < t_α + spread · Z, with ν = pilot_blocks − 1 and the spread of `_reach`. The root
    is nearly normal, with mean a = 1 − 1/(4ν) and variance 1/(2ν), so that K solves::

        K a − t_α = z_{β/2} √(spread² + K²/(2ν))

    Args:
        pilot_se: standard error that the pilot gave.
        pilot_blocks: blocks of the pilot.
        band: half-width δ of the equivalence band.
        alpha: false-alarm probability of the whole command.
        checks: how many checks the command has in all.
        blocks: replicates that the run will have at least; they give t_α.

    Raises:
        InputError: the pilot is so short (below 7 blocks) that no K solves this.
    """
    t_alpha, z, nu = (
        threshold(alpha, checks, blocks),
        student.quantile(BETA / 2, math.inf),
        pilot_blocks - 1,
    )
    a, noise = 1 - 1 / (4 * nu), z * z / (2 * nu)
    if a * a <= noise:
        raise InputError("pilot_blocks", pilot_blocks, "at least 7")
    open_ = t_alpha**2 - (z * _spread(t_alpha, blocks)) ** 2
    k = (a * t_alpha + math.sqrt((a * t_alpha) ** 2 - (a * a - noise) * open_)) / (a * a - noise)
    return math.ceil(pilot_blocks * (k * pilot_se / band) ** 2)
