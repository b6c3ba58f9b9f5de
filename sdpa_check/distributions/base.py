"""The contract that every component law fulfils."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from numpy.random import Generator

CHUNK = 8192
"""Variables drawn at a time: the scratch arrays stay in cache and below the size at which an
allocator asks the system for fresh pages, which would halve the speed. Part of the random stream.
"""

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
Precision: TypeAlias = type[np.float32] | type[np.float64]


@dataclass(frozen=True, slots=True)
class Law(ABC):
    """The standard member X of a family of symmetric laws: a sampler and its exact moments.

    The moments that stand here are those of a law with unit variance and light tails; a law that
    differs overrides them. A moment is ``math.inf`` where its integral diverges and ``math.nan``
    where it is not defined at all (the variance of a law without a mean, or the kurtosis of a law
    without a finite variance).
    """

    name: ClassVar[str]

    @property
    def mean(self) -> float:
        """E X."""
        return 0.0

    @property
    def variance(self) -> float:
        """σ² = E (X − E X)²."""
        return 1.0

    @property
    @abstractmethod
    def kurtosis(self) -> float:
        """E (X − E X)⁴ / σ⁴, not the excess: 3 for the normal law."""

    @property
    def tail_index(self) -> float:
        """The ν of P(|X| > x) ~ x^−ν; infinite where the tail falls faster than every power."""
        return math.inf

    @abstractmethod
    def fill(self, rng: Generator, out: FloatArray) -> None:
        """Overwrite `out`, a contiguous float32 or float64 vector, with independent copies of X."""

    def sample(
        self,
        rng: Generator,
        shape: tuple[int, ...],
        dtype: Precision,
        out: FloatArray | None = None,
    ) -> FloatArray:
        """Draw an array of the given shape and dtype, its entries independent copies of X.

        It is `out`, where that is given: a contiguous array of this shape and dtype.
        """
        drawn = np.empty(shape, dtype) if out is None else out
        flat = drawn.reshape(-1)
        for start in range(0, flat.size, CHUNK):
            self.fill(rng, flat[start : start + CHUNK])
        return drawn
