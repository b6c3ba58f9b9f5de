"""Soft caps C tanh(x/C) and their expectations (theory, section 7)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import asinh, atan, inf, log, pi, sqrt
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.theory.arguments import check_finite
from sdpa_check.theory.quadrature import even_grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.theory.law import DotLaw

    Floats = NDArray[np.float64]

REACH = 10.0
"""Normal integrals stop at ±10 standard deviations: rows of 10⁶ keys feel what lies beyond 8."""

FINENESS = 0.17
"""Trapezoid step over the half-width a of the strip of analyticity: exp(−2πa/h) = 9e-17."""


@dataclass(frozen=True, slots=True)
class Squash:
    """A chain of multiplications and soft caps: x ← C tanh(c x/C) for each (c, C), then x·last."""

    caps: tuple[tuple[float, float], ...] = ()
    last: float = 1.0

    def times(self, factor: float) -> Squash:
        """The chain with one more multiplication."""
        return replace(self, last=self.last * factor)

    def capped(self, cap: float) -> Squash:
        """The chain with one more soft cap."""
        return Squash((*self.caps, (self.last, cap)), 1.0)

    def value(self, x: Floats) -> Floats:
        """The image of x, in its shape."""
        for factor, cap in self.caps:
            x = cap * np.tanh(x * (factor / cap))
        return self.last * x

    def slope(self, x: Floats) -> Floats:
        """The derivative of the chain at x, in its shape."""
        slope = np.full_like(x, self.last)
        for factor, cap in self.caps:
            # sech² = 1 − tanh² would cancel; beyond 300 it is 0 in double precision.
            slope = slope * factor / np.cosh(np.minimum(np.abs(x) * (factor / cap), 300)) ** 2
            x = cap * np.tanh(x * (factor / cap))
        return slope

    def strip(self, width: float = inf) -> float:
        """Half-width of a strip around the real axis whose image stays within ±i·width.

        |Im C tanh(x/C)| ≤ C tan(|Im x|/C), and the chain is analytic where this is finite.
        """
        width /= self.last
        for factor, cap in reversed(self.caps):
            width = cap * atan(width / cap) / factor
        return width


def tanh_mean_square(std: float) -> float:
    """E[tanh²(std·z)], z ~ N(0, 1), to about 1e-15 relative.

    tanh has its poles at ±iπ/2 and beyond on the imaginary axis; z = a sinh t with a = min(1,
    1/std) keeps them π/4 or more from the real t axis, so one step serves every std.

    Args:
        std: standard deviation of the argument, ≥ 0.

    Raises:
        InputError: std is negative or not finite.
    """
    check_finite("std", std)
    scale = min(1.0, 1 / std) if std > 0 else 1.0
    t = even_grid(-asinh(REACH / scale), asinh(REACH / scale), 0.1)
    z = scale * np.sinh(t)
    weights = np.exp(-0.5 * z**2) * np.cosh(t) * (0.1 * scale / sqrt(2 * pi))
    return float(weights @ np.tanh(std * z) ** 2)


def softcap_variance(cap: float, std: float) -> float:
    """Var[C tanh(x/C)] for x ~ N(0, std²): C² E[tanh²(std·z/C)].

    Args:
        cap: C > 0, in the unit of x.
        std: standard deviation of x, ≥ 0.

    Raises:
        InputError: cap is not positive, or std negative, or one of them not finite.
    """
    if not 0 < cap < inf:
        raise InputError("softcap", cap, "a positive number")
    return cap**2 * tanh_mean_square(std / cap)


def squashed_mean_square(law: DotLaw, squash: Squash) -> float:
    """E[f(s)²] of a capped chain f for s with a symmetric continuous law.

    By parts, ∫_0^∞ 4 f f′ P(s > z) dz, the trapezoid rule in ln z: it asks nothing of the tail,
    so it serves laws without a variance too. Limited by P(s > z), to about 1e-13.

    Args:
        law: law of s.
        squash: f, with at least one cap.
    """
    factor, cap = squash.caps[0]
    # f′ vanishes above; below, f² is 1e-52 of its bound, which leaves room for a narrow law.
    y = log(cap / factor) + even_grid(-60.0, 3.5, 0.1)
    z = np.exp(y)
    integrand = 4 * squash.value(z) * squash.slope(z) * law.survival(z) * z
    return float(0.1 * integrand.sum())


def tanh_row_variance(std_q: float, std_k: float) -> float:
    """E_q[Var_k tanh(q + k)] for q ~ N(0, std_q²), k ~ N(0, std_k²), by two trapezoid sums.

    E[tanh²] − E_q[g(q)²] with g(q) = E_k tanh(q + k), which is as smooth as the law of k is wide.

    Args:
        std_q: standard deviation of what is constant in a row, > 0.
        std_k: standard deviation of what varies in it, > 0.
    """
    half = pi / 2
    own = even_grid(-REACH, REACH, min(0.5, FINENESS * half / std_k))
    # The integrand grows like exp(y²(1/(2 std_q²) + 1/std_k²)) at imaginary part y.
    growth = 0.5 / std_q**2 + 1 / std_k**2
    step = max(FINENESS * half, 0.5 / sqrt(growth)) / std_q
    common = even_grid(-REACH, REACH, min(0.5, step))
    weights = np.exp(-0.5 * own**2)
    inner = np.array([weights @ np.tanh(std_q * z + std_k * own) for z in common])
    inner /= weights.sum()
    outer = np.exp(-0.5 * common**2)
    between = float(outer @ inner**2 / outer.sum())
    return tanh_mean_square(sqrt(std_q**2 + std_k**2)) - between
