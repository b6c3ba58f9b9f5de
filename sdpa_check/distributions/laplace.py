"""The Laplace law of unit variance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdpa_check.distributions.base import FloatArray, Law
from sdpa_check.distributions.rademacher import signs

if TYPE_CHECKING:
    from numpy.random import Generator


@dataclass(frozen=True, slots=True)
class Laplace(Law):
    """Density e^(−√2|x|)/√2, which is scale b = 1/√2: E X² = 2b² = 1."""

    name: ClassVar[str] = "laplace"

    @property
    def kurtosis(self) -> float:
        """E X⁴ = 24 b⁴ = 6."""
        return 6.0

    def fill(self, rng: Generator, out: FloatArray) -> None:
        """Draw |X| as an exponential variable of scale 1/√2, then its sign."""
        rng.standard_exponential(dtype=out.dtype, out=out)
        out *= math.sqrt(0.5)
        out *= signs(rng, out.size)
