"""Sample moments about the median, and how many data carry them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.tails.data import Centre, chunks

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums of y = (x − median)/unit: Σ|y|^p in `absolute`, Σy and Σy³ in `signed`."""

    n: int
    centre: Centre
    absolute: dict[int, float]
    signed: tuple[float, float]

    @classmethod
    def of(cls, flat: NDArray[Any], centre: Centre) -> Moments:
        """The sums over a vector of data."""
        total = np.zeros(8)
        for x in chunks(flat):
            y = centre(x)
            size, square = np.abs(y), y * y
            fourth = square * square
            powers = (size, square, fourth, y, square * size, square * fourth, fourth * fourth)
            total += [*(power.sum() for power in powers), (square * y).sum()]
        one, two, four, signed, three, six, eight, cube = total.tolist()
        absolute = {1: one, 2: two, 3: three, 4: four, 6: six, 8: eight}
        return cls(flat.size, centre, absolute, (signed, cube))

    @property
    def mean(self) -> float:
        """x̄."""
        return self.centre.median + self.signed[0] / self.n * self.centre.unit

    @property
    def central(self) -> tuple[float, float, float]:
        """m₂, m₃, m₄ of y. Nothing cancels: mean and median differ by one σ at most."""
        first, third = (s / self.n for s in self.signed)
        second, fourth = self.absolute[2] / self.n, self.absolute[4] / self.n
        m3 = third - 3 * first * second + 2 * first**3
        m4 = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
        return second - first**2, m3, m4

    @property
    def std(self) -> float:
        """The root of the variance with divisor n − 1."""
        return math.sqrt(self.central[0] * self.n / (self.n - 1)) * self.centre.unit

    @property
    def skewness(self) -> float | None:
        """m₃/m₂^(3/2), None where all data are equal."""
        m2, m3, _ = self.central
        return m3 / m2**1.5 if m2 else None

    @property
    def excess_kurtosis(self) -> float | None:
        """m₄/m₂² − 3, None where all data are equal."""
        m2, _, m4 = self.central
        return m4 / m2**2 - 3 if m2 else None

    def carriers(self, order: int) -> float:
        """The effective number of data in Σ|y|^p: all n where they are equal, 1 where one rules."""
        return self.absolute[order] ** 2 / self.absolute[2 * order]
