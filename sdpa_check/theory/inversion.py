"""From a characteristic function to a law: the four shapes that the law of q·k can take.

Gil-Pelaez for z ≥ 0, with a law that need not be symmetric:

    P(s > z) = ½ − (1/π) Im ∫_0^∞ e^{itz} φ_s(−t) dt/t,

taken on the ray t = e^{u + iπ/8} instead of the real axis: there e^{itz} decays, φ_s is analytic on
both sides if one of the two component laws is a variance mixture of normals, and the trapezoid rule
in u has an absolute error near 1e-15 for every d ≥ 1 and every z, heavy tails included. The pairs
left over have bounded support: a binomial lattice (Rademacher times Rademacher), or a Fourier
series whose coefficients are values of φ_s. All laws are in units of the component scales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sdpa_check.theory.charfun import ComplexArray, RealArray

_ANGLE = math.pi / 8  # of the ray; |φ_s| ≤ 1 up to π/4, so the strip of analyticity is ± π/8
STEP = 1 / 16
"""Step of the ray nodes in u, exact in binary: trapezoid error exp(−2π (π/8) / STEP) = 7e-18."""
_CHUNK = 1 << 18  # elements of a (point, node) matrix handled at a time


class StandardLaw(Protocol):
    """A law of s = q·k in units of the component scales."""

    def survival(self, x: RealArray) -> RealArray:
        """P(s > x) in the shape of x."""

    def density(self, x: RealArray) -> RealArray:
        """Density at x, in the shape of x."""

    def quantile(self, level: float) -> float:
        """Smallest x with P(s ≤ x) ≥ level."""


class ContinuousLaw:
    """Quantiles of a law without atoms, from its survival function."""

    def survival(self, x: RealArray) -> RealArray:
        """P(s > x) in the shape of x."""
        raise NotImplementedError

    def quantile(self, level: float) -> float:
        """Solution of P(s ≤ x) = level, sought outward from 0 on the side where it lies."""
        at_zero = float(self.survival(np.zeros(())))
        if abs(1 - level - at_zero) < 1e-14:
            return 0.0
        if 1 - level < at_zero:
            return solve_tail(lambda z: float(self.survival(np.asarray(z))), 1 - level)
        return -solve_tail(lambda z: 1 - float(self.survival(np.asarray(-z))), level)


def ray_nodes(lowest: float, step: float = STEP) -> ComplexArray:
    """Nodes t = exp(u + iπ/8), u = lowest … 40; a tail index ν needs lowest = −80/min(1, ν)."""
    return np.asarray(np.exp(np.arange(lowest, 40, step) + 1j * _ANGLE))


@dataclass(frozen=True)
class RayLaw(ContinuousLaw):
    """Gil-Pelaez on the ray: nodes t, and ln φ(−t) of s (for z ≥ 0) and of −s (for z < 0).

    `least`, one for s and one for −s: 8 standard deviations below the mean, or 0. Between 0 and
    there the terms cancel, and the tail is 1 to rounding. Below the mean e^{itz} φ(−t) grows in the
    upper part of the strip, so a law with a mean needs a smaller step: STEP/4.
    """

    t: ComplexArray
    log_cf: tuple[ComplexArray, ComplexArray]
    least: tuple[float, float] = (0.0, 0.0)
    step: float = STEP

    def trimmed(self) -> RayLaw:
        """The same law without the nodes whose terms stay below exp(−45) for every z ≥ least."""
        size = [cf.real - self.t.imag * z for cf, z in zip(self.log_cf, self.least, strict=True)]
        keep = np.maximum(*size) + np.log1p(np.abs(self.t)) > -45  # the density has a factor t
        log_cf = self.log_cf[0][keep], self.log_cf[1][keep]
        return RayLaw(self.t[keep], log_cf, self.least, self.step)

    def survival(self, x: RealArray) -> RealArray:
        """P(s > x); the arc from the real axis to the ray adds its angle to the integral."""
        integral = _ANGLE + self.step * self._sum(x, np.ones_like(self.t)).imag
        tail = np.clip(0.5 - integral / math.pi, 0.0, 1.0)
        return np.asarray(np.where(x >= 0, tail, 1 - tail))

    def density(self, x: RealArray) -> RealArray:
        """(1/π) Re ∫ e^{itz} φ_s(−t) dt."""
        return np.asarray(np.maximum(self._sum(x, self.t).real * (self.step / math.pi), 0.0))

    def _sum(self, x: RealArray, weight: ComplexArray) -> ComplexArray:
        """Σ_j exp(i t_j |x| + ln φ_j) weight_j for every x, with φ of the side where x lies."""
        flat = x.ravel()
        out = np.empty(flat.size, dtype=np.complex128)
        rows = max(1, _CHUNK // self.t.size)
        # Beyond `most` the nodes would have to start closer to 0; the tail is 0 to rounding there.
        most = 1e-14 / abs(self.t[0])
        for side, chosen in enumerate((flat >= 0, flat < 0)):
            index = np.flatnonzero(chosen)
            for part in np.split(index, range(rows, index.size, rows)):
                z = np.clip(np.abs(flat[part]), self.least[side], most)
                exponent = np.multiply.outer(z, 1j * self.t) + self.log_cf[side]
                out[part] = np.exp(exponent) @ weight
        return out.reshape(x.shape)


@dataclass(frozen=True)
class SeriesLaw(ContinuousLaw):
    """Fourier series on the bounded support [−L, L]; coefficients φ_s(kπ/L), k = 1, 2, …."""

    limit: float
    coefficient: RealArray

    def survival(self, x: RealArray) -> RealArray:
        """½ − x/(2L) − (1/π) Σ_k φ_s(kπ/L) sin(kπx/L)/k."""
        k = np.arange(1, self.coefficient.size + 1)
        z = np.clip(x, -self.limit, self.limit) / self.limit
        sums = [np.sin(math.pi * v * k) @ (self.coefficient / k) for v in z.ravel()]
        value = 0.5 - 0.5 * z - np.reshape(sums, x.shape) / math.pi
        return np.asarray(np.clip(value, 0.0, 1.0))

    def density(self, x: RealArray) -> RealArray:
        """(½ + Σ_k φ_s(kπ/L) cos(kπx/L))/L; at d = 2 only to about 1e-5."""
        k = np.arange(1, self.coefficient.size + 1)
        sums = [np.cos(math.pi * v * k) @ self.coefficient for v in (x / self.limit).ravel()]
        value = (0.5 + np.reshape(sums, x.shape)) / self.limit
        return np.asarray(np.where(np.abs(x) < self.limit, np.maximum(value, 0.0), 0.0))


@dataclass(frozen=True)
class SingleBoundedLaw(ContinuousLaw):
    """d = 1: uniform on [−√3, √3], or the product of two such, with density ln(3/|x|)/6."""

    both_uniform: bool

    def survival(self, x: RealArray) -> RealArray:
        """Linear in x, or the integral of the logarithm."""
        limit = 3.0 if self.both_uniform else math.sqrt(3)
        z = np.minimum(np.abs(x), limit)
        tail = 0.5 - z / (2 * limit)
        if self.both_uniform:
            tail = tail - z * np.log(3 / np.maximum(z, 1e-300)) / 6
        return np.asarray(np.where(x >= 0, tail, 1 - tail))

    def density(self, x: RealArray) -> RealArray:
        """Constant, or logarithmic."""
        if not self.both_uniform:
            return np.where(np.abs(x) < math.sqrt(3), 0.5 / math.sqrt(3), 0.0)
        return np.asarray(np.maximum(np.log(3 / np.maximum(np.abs(x), 1e-300)), 0.0) / 6)


class LatticeLaw:
    """Rademacher times Rademacher: s = 2B − d with B ~ Binomial(d, ½).

    Attributes:
        atoms: −d, −d + 2, …, d.
        cumulative: P(s < atom) for each atom, then 1: one entry more than atoms.
    """

    def __init__(self, d: int) -> None:
        self.atoms: RealArray = np.arange(-d, d + 1, 2, dtype=np.float64)
        constant = math.lgamma(d + 1) - d * math.log(2)
        log_mass = [constant - math.lgamma(j + 1) - math.lgamma(d - j + 1) for j in range(d + 1)]
        mass = np.exp(np.asarray(log_mass))
        self.cumulative: RealArray = np.append(0.0, np.cumsum(mass / mass.sum()))

    def survival(self, x: RealArray) -> RealArray:
        """P(s > x); the slack keeps x = atom on its atom after a division by the scale."""
        return 1 - self.cumulative[np.searchsorted(self.atoms - 1e-9, x, side="right")]

    def density(self, x: RealArray) -> RealArray:
        """Does not exist.

        Raises:
            InputError: always.
        """
        raise InputError("density", f"{x.size} points of a lattice", "a law with a density")

    def quantile(self, level: float) -> float:
        """Smallest atom with P(s ≤ atom) ≥ level, up to the rounding of the binomial sums."""
        return float(self.atoms[np.searchsorted(self.cumulative[1:], level - 1e-12)])


def solve_tail(tail: Callable[[float], float], target: float) -> float:
    """The z > 0 with tail(z) = target for a decreasing tail: Illinois steps in (ln z, ln tail)."""

    def excess(x: float) -> float:
        return math.log(max(tail(math.exp(x)), 1e-300) / target)

    low = high = 0.0
    while excess(high) > 0:
        low, high = high, high + 2
    while excess(low) < 0:
        low, high = low - 2, low
    f_low, f_high = excess(low), excess(high)
    for _ in range(100):
        x = (low * f_high - high * f_low) / (f_high - f_low)
        value = excess(x)
        if value * f_high < 0:
            low, f_low = high, f_high
        else:
            f_low /= 2
        high, f_high = x, value
        if abs(value) < 4e-16 or abs(high - low) < 1e-14:
            break
    return math.exp(high)
