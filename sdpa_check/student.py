"""Student's t distribution in pure Python: its import must not cost the start-up of scipy."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

from sdpa_check.errors import InputError

_TINY = 1e-300


def survival(t: float, dof: float) -> float:
    """P(T > t) for T ~ t(dof), t ≥ 0.

    Half the incomplete beta function I_x(dof/2, 1/2) at x = dof/(dof + t²).

    Source: Abramowitz & Stegun 26.7.1.
    """
    x = dof / (dof + t * t)
    return 0.5 * _incomplete_beta(dof / 2, x, t * t / (dof + t * t))


@lru_cache(maxsize=4096)
def quantile(tail: float, dof: float) -> float:
    """The t ≥ 0 with P(T > t) = `tail`, for T ~ t(dof).

    The relative error is below 1e-13 + (1 + dof/t²)·2e-16.

    Args:
        tail: upper tail probability, 0 < tail ≤ 1/2.
        dof: degrees of freedom, > 0; ``math.inf`` gives the normal quantile.

    Raises:
        InputError: if an argument is out of range.
    """
    if not 0 < tail <= 0.5:
        raise InputError("tail", tail, "a probability in (0, 0.5]")
    if not dof > 0:
        raise InputError("dof", dof, "a number > 0")
    if math.isinf(dof):
        return -NormalDist().inv_cdf(tail)
    low, high = 0.0, 1.0
    while survival(high, dof) > tail:
        low, high = high, 2 * high
    t = 0.5 * (low + high)
    for _ in range(200):
        excess = survival(t, dof) - tail
        low, high = (t, high) if excess > 0 else (low, t)
        step = t + excess / _density(t, dof)  # Newton; bisect where it leaves the bracket
        nearer = step if low < step < high else 0.5 * (low + high)
        if abs(nearer - t) <= 1e-14 * t:
            break
        t = nearer
    return t


def _density(t: float, dof: float) -> float:
    log_norm = _log_gamma_step(dof / 2) - 0.5 * math.log(dof * math.pi)
    return math.exp(log_norm - (dof + 1) / 2 * math.log1p(t * t / dof))


def _incomplete_beta(a: float, x: float, y: float) -> float:
    """I_x(a, 1/2) with y = 1 − x given apart, so that neither end loses digits."""
    if x <= 0 or y <= 0:
        return 0.0 if x <= 0 else 1.0
    log_x = math.log1p(-y) if y < x else math.log(x)  # a multiplies its error
    log_front = _log_gamma_step(a) - 0.5 * math.log(math.pi)
    front = math.exp(log_front + a * log_x + 0.5 * math.log(y))
    if x < (a + 1) / (a + 2.5):
        return front * _beta_fraction(a, 0.5, x) / a
    return 1.0 - front * _beta_fraction(0.5, a, y) / 0.5


def _log_gamma_step(a: float) -> float:
    """The step ln Γ(a + 1/2) − ln Γ(a); for large a by its series: the difference would cancel."""
    if a < 20:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    z = 1 / (a * a)
    series = 1 / 8 - z * (1 / 192 - z * (1 / 640 - z * (17 / 14336 - z * (31 / 18432))))
    return 0.5 * math.log(a) - series / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    c, d = 1.0, 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1.0 / _nonzero(1.0 + even * d), _nonzero(1.0 + even / c)
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1.0 / _nonzero(1.0 + odd * d), _nonzero(1.0 + odd / c)
        value *= d * c
        if abs(d * c - 1.0) < 1e-16:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
