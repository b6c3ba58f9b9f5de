"""A normal law with one tenth of outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sdpa_check.distributions.base import FloatArray, Law

if TYPE_CHECKING:
    from numpy.random import Generator

_OUTLIERS = 0.1
_NARROW = math.sqrt(1 / 1.8)  # a: 0.9 a² + 0.1 (3a)² = 1.8 a² = 1
_WIDE = 3 * _NARROW


@dataclass(frozen=True, slots=True)
class Mixture(Law):
    """0.9 N(0, a²) + 0.1 N(0, (3a)²) with a² = 1/1.8: unit variance, all moments finite."""

    name: ClassVar[str] = "mixture"

    @property
    def kurtosis(self) -> float:
        """E X⁴ = 3 a⁴ (0.9 + 0.1·81) = 27/3.24 = 25/3."""
        return 25 / 3

    def fill(self, rng: Generator, out: FloatArray) -> None:
        """Draw a normal variable, then which of the two widths it takes."""
        rng.standard_normal(dtype=out.dtype, out=out)
        kind = out.dtype.type
        out *= np.where(rng.random(out.size) < _OUTLIERS, kind(_WIDE), kind(_NARROW))
