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
        """Draw tan(π(U − ½)), the inverse of the distribution function.

        U has 53 random bits for either dtype: 24 would end the tail at 2²⁴/π.
        """
        angle = rng.random(out.size)
        angle -= 0.5
        angle *= math.pi
        np.tan(angle, out=out, casting="same_kind")
