"""The standard Cauchy law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sdpa_check.distributions.base import FloatArray, Law

if TYPE_CHECKING:
    from numpy.random import Generator


@dataclass(frozen=True, slots=True)
class Cauchy(Law):
    """Density 1/(π(1 + x²)): no moment exists, but every quantile does; the upper quartile is 1."""

    name: ClassVar[str] = "cauchy"

    @property
    def mean(self) -> float:
        """Undefined."""
        return math.nan

    @property
    def variance(self) -> float:
        """Undefined."""
        return math.nan

    @property
    def kurtosis(self) -> float:
        """Undefined."""
        return math.nan

    @property
    def tail_index(self) -> float:
        """P(|X| > x) ~ 2/(πx)."""
        return 1.0

    def fill(self, rng: Generator, out: FloatArray) -> None:
        """Draw tan(π(U − ½)) in float64, and cot(πU), U uniform in ±½, in float32.

        Either is the inverse of a distribution function. In float32 the pole lies at U = 0, where
        the dtype is finest, and U has 63 random bits: 24 would end the tail at 2²⁴/π.
        """
        if out.dtype == np.float64:
            rng.random(out=out)
            out -= 0.5
            out *= math.pi
            np.tan(out, out=out)
            return
        bits = rng.bit_generator.random_raw(out.size).view(np.int64)
        bits |= 1  # never 0, and as often negative as positive
        angle = bits.astype(np.float32)
        angle *= math.pi / 2**64
        np.cos(angle, out=out)
        np.sin(angle, out=angle)
        out /= angle
