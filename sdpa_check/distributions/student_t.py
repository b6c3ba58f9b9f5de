"""Student's t, the family that carries every tail index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sdpa_check.distributions.base import FloatArray, Law
from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from numpy.random import Generator

SMALLEST_DF = 0.1
"""The sampler's R² passes the largest float64 with probability e^(−355 df): here 4e-16 a draw."""

SMALLEST_DF_FLOAT32 = 0.5
"""The same limit for draws in float32: here P(|X| > 3.4e38) is 5e-20, at df = 0.1 it is 1e-4."""

LARGEST_DF_FLOAT32 = 32
"""From df = 1 to here R² is drawn in float32: its relative error is about 6e-8 · ν/(2E), or 1e-6.

Below 1 it could pass the largest float32.
"""


@dataclass(frozen=True, slots=True)
class StudentT(Law):
    """Raw Student t with ν = `df` degrees of freedom; the scale is 1 and the variance ν/(ν−2).

    Raises:
        InputError: `df` is not a finite number of at least 0.1.
    """

    df: float
    name: ClassVar[str] = "t"

    def __post_init__(self) -> None:
        if not SMALLEST_DF <= self.df < math.inf:
            hint = "for infinite df take gaussian" if self.df == math.inf else ""
            raise InputError("--df", self.df, f"a finite df ≥ {SMALLEST_DF}", hint)

    @property
    def mean(self) -> float:
        """Zero for ν > 1, undefined otherwise."""
        return 0.0 if self.df > 1 else math.nan

    @property
    def variance(self) -> float:
        """ν/(ν−2) for ν > 2, infinite for 1 < ν ≤ 2, undefined otherwise."""
        if self.df > 2:
            return self.df / (self.df - 2)
        return math.inf if self.df > 1 else math.nan

    @property
    def kurtosis(self) -> float:
        """3(ν−2)/(ν−4) for ν > 4, infinite for 2 < ν ≤ 4, undefined otherwise."""
        if self.df > 4:
            return 3 * (self.df - 2) / (self.df - 4)
        return math.inf if self.df > 2 else math.nan

    @property
    def tail_index(self) -> float:
        """P(|X| > x) ~ x^−ν."""
        return self.df

    def fill(self, rng: Generator, out: FloatArray) -> None:
        """Draw by the polar method: X = R cos θ, R² = ν (e^(2E/ν) − 1), E ~ Exp(1), θ uniform.

        Source: Bailey (1994), Polar generation of random variates with the t-distribution,
        Mathematics of Computation 62, with E in place of his −ln U.

        Raises:
            InputError: `out` is float32 and ν < 0.5, where draws would pass 3.4e38.
        """
        if out.dtype == np.float32 and self.df < SMALLEST_DF_FLOAT32:
            want = f"df ≥ {SMALLEST_DF_FLOAT32} in float32"
            raise InputError("--df", self.df, want, "draw in float64")
        radius = self._radius(rng, out)
        _fill_cosine(rng, out)
        np.multiply(out, radius, out=out, casting="same_kind")

    def _radius(self, rng: Generator, like: FloatArray) -> FloatArray:
        """Draw R, which carries the tail.

        In float32 E ends at 24.3, which one draw in 4e10 would pass: R has a tail that far. The
        difference e^(2E/ν) − 1 loses digits as ν grows, and then is left to expm1 in float64.
        """
        single = like.dtype == np.float32 and 1 <= self.df <= LARGEST_DF_FLOAT32
        radius = rng.standard_exponential(like.size, dtype=np.float32 if single else np.float64)
        radius *= 2 / self.df
        if single:
            np.exp(radius, out=radius)
            radius -= 1
        else:
            np.expm1(radius, out=radius)
        radius *= self.df
        return np.sqrt(radius, out=radius)


def _fill_cosine(rng: Generator, out: FloatArray) -> None:
    """Draw cos θ for θ uniform on the circle.

    NumPy has a vector cosine for float32. For float64 it has none, but on some processors a vector
    tangent: 2/(1 + tan²(θ/2)) − 1 is three times faster there, and nowhere slower. Its absolute
    error is that of rounding θ, a few units of the dtype.
    """
    rng.random(dtype=out.dtype, out=out)
    out -= 0.5
    if out.dtype == np.float32:
        out *= 2 * math.pi
        np.cos(out, out=out)
        return
    out *= math.pi
    np.tan(out, out=out)
    np.square(out, out=out)
    out += 1
    np.divide(2, out, out=out)
    out -= 1
