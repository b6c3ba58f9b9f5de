"""The law of a fair random sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from sdpa_check.distributions.base import FloatArray, Law

if TYPE_CHECKING:
    from numpy.random import Generator

_BYTES = np.arange(256, dtype=np.uint8)
# (256, 8): byte → eight signs, which every floating type holds exactly.
_TABLE = 2 * np.unpackbits(_BYTES[:, np.newaxis], axis=1).astype(np.float32) - 1


@dataclass(frozen=True, slots=True)
class Rademacher(Law):
    """±1 with probability ½ each: the smallest kurtosis that a law can have."""

    name: ClassVar[str] = "rademacher"

    @property
    def kurtosis(self) -> float:
        """E X⁴ = 1."""
        return 1.0

    def fill(self, rng: Generator, out: FloatArray) -> None:
        """Draw one random bit per sign."""
        out[:] = signs(rng, out.size)


def signs(rng: Generator, size: int) -> npt.NDArray[np.float32]:
    """Draw `size` fair signs: a random byte looks up its eight."""
    drawn = np.frombuffer(rng.bytes(-(-size // 8)), np.uint8)
    # take() is four times faster here than indexing the table with the bytes.
    return _TABLE.take(drawn, axis=0).reshape(-1)[:size]
