"""The standard normal law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdpa_check.distributions.base import FloatArray, Law

if TYPE_CHECKING:
    from numpy.random import Generator


@dataclass(frozen=True, slots=True)
class Gaussian(Law):
    """N(0, 1): the law that the derivation of 1/√d_k assumes."""

    name: ClassVar[str] = "gaussian"

    @property
    def kurtosis(self) -> float:
        """E X⁴ = 3."""
        return 3.0

    def fill(self, rng: Generator, out: FloatArray) -> None:
        """Draw by the ziggurat method (Marsaglia and Tsang 2000)."""
        rng.standard_normal(dtype=out.dtype, out=out)
