"""The uniform law of unit variance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdpa_check.distributions.base import FloatArray, Law

if TYPE_CHECKING:
    from numpy.random import Generator


@dataclass(frozen=True, slots=True)
class Uniform(Law):
    """Uniform on [−√3, √3): E X² = (√3)²/3 = 1."""

    name: ClassVar[str] = "uniform"

    @property
    def kurtosis(self) -> float:
        """E X⁴ = (√3)⁴/5 = 9/5."""
        return 9 / 5

    def fill(self, rng: Generator, out: FloatArray) -> None:
        """Draw U on [0, 1) and take √12 (U − ½).

        The grid of the float32 generator, multiples of 2⁻²⁴, shifts the mean by −1.0e-7.
        """
        rng.random(dtype=out.dtype, out=out)
        out -= 0.5
        out *= math.sqrt(12)
