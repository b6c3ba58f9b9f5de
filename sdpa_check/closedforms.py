"""Sums of a softmax row → its entropy, its weights and the norms of its Jacobian, in closed form.

One class for concentrated rows and one for nearly uniform ones. Either has an attribute for every
statistic, computed when it is asked for, and what several of them need only once.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from sdpa_check.rowsums import Floats, RowSums


def statistics(sums: RowSums, names: Collection[str]) -> dict[str, Floats]:
    """The statistics of these names, each of shape (rows,), from the sums that apply to a row.

    Args:
        sums: of some rows under one multiplier.
        names: fields of `softmax.RowStatistics`.
    """
    if sums.flat.all():
        return _columns(_Flat(sums), names)
    concentrated = _columns(_Concentrated(sums), names)
    if not sums.flat.any():
        return concentrated
    flat = _columns(_Flat(sums), names)
    return {name: np.where(sums.flat, flat[name], concentrated[name]) for name in names}


def _columns(forms: _Concentrated | _Flat, names: Collection[str]) -> dict[str, Floats]:
    return {name: getattr(forms, name) for name in names}


class _Concentrated:
    """The closed forms in f = p/p_(2), which is summed over all keys but the largest.

    With h = p_(2)/p_(1), R = hΣf and Z = 1 + R: p_(1) = 1/Z, 1 − p_(1) = R/Z,
    H = ln Z − hΣf(x − x_(1))/Z, 1 − Σp² = (2R + h²((Σf)² − Σf²))/Z² and, with a = Σf²/Z²,
    ‖J‖_F² = h²·[(p_(1)Σf/Z)² + a − 2hΣf³/Z³ + 2p_(1)²a + h²a²]. Nothing cancels; h is outside the
    root so that its square cannot underflow.
    """

    def __init__(self, sums: RowSums) -> None:
        self.s = sums
        self.gap = np.minimum(sums.gap, 800.0)  # exp(−800) is 0, and 0·∞ would not be
        self.h: Floats = np.exp(-self.gap)
        self.r: Floats = self.h * sums.second[0]
        self.z: Floats = 1.0 + self.r
        self.max_weight: Floats = 1.0 / self.z

    @cached_property
    def below_top(self) -> Floats:
        """Σ p (x − x_(1))."""
        sum_1, *_, sum_log = self.s.second
        return np.asarray(self.h * (sum_log - self.gap * sum_1) * self.max_weight)

    @property
    def entropy(self) -> Floats:
        return np.log1p(self.r) - self.below_top

    @property
    def entropy_deficit(self) -> Floats:
        return self.below_top - np.log(self.z / self.s.keys)

    @property
    def one_minus_max(self) -> Floats:
        return self.r * self.max_weight

    @cached_property
    def a(self) -> Floats:
        """Σf²/Z²."""
        return np.asarray(self.s.second[1] * self.max_weight**2)

    @cached_property
    def sum_squares(self) -> Floats:
        return self.max_weight**2 + self.h**2 * self.a

    @property
    def sum_squares_excess(self) -> Floats:
        return self.s.keys * self.sum_squares - 1.0

    @property
    def effective_keys(self) -> Floats:
        return 1.0 / self.sum_squares

    @property
    def trace(self) -> Floats:
        sum_1, sum_2, *_ = self.s.second
        return np.asarray((2.0 * self.r + self.h**2 * (sum_1**2 - sum_2)) * self.max_weight**2)

    @property
    def frobenius(self) -> Floats:
        sum_1, _, sum_3, _ = self.s.second
        top, h, a = self.max_weight, self.h, self.a
        square = (top**2 * sum_1) ** 2 + a - 2.0 * h * sum_3 * top**3 + 2.0 * top**2 * a
        return np.asarray(h * np.sqrt(square + (h * a) ** 2))

    @property
    def inf_norm(self) -> Floats:
        return 2.0 * self.max_weight * self.one_minus_max

    @property
    def spectral(self) -> Floats:
        return self.h * self.max_weight * (1.0 + self.s.root)


class _Flat:
    """The closed forms in u = exp(x − x̄) − 1, for nearly uniform rows.

    With ū the mean of u: ln m − H = Σu(x − x̄)/(m(1 + ū)) − ln(1 + ū) and
    mΣp² − 1 = (Σu²/m − ū²)/(1 + ū)². All terms are of second order in x, as the results are.
    """

    def __init__(self, sums: RowSums) -> None:
        self.s = sums
        # Σ(x − x̄) is rounding error: nothing is gained by adding it.
        self.u: Floats = sums.mean[0] / sums.keys
        self.w: Floats = 1.0 + self.u

    @cached_property
    def entropy_deficit(self) -> Floats:
        return np.asarray(self.s.mean[3] / (self.s.keys * self.w) - np.log1p(self.u))

    @property
    def entropy(self) -> Floats:
        return math.log(self.s.keys) - self.entropy_deficit

    @cached_property
    def max_weight(self) -> Floats:
        return np.exp(self.s.rise) / (self.s.keys * self.w)

    @property
    def one_minus_max(self) -> Floats:
        return 1.0 - self.max_weight

    @cached_property
    def sum_squares_excess(self) -> Floats:
        return np.asarray((self.s.mean[1] / self.s.keys - self.u**2) / self.w**2)

    @cached_property
    def sum_squares(self) -> Floats:
        return (1.0 + self.sum_squares_excess) / self.s.keys

    @property
    def effective_keys(self) -> Floats:
        return 1.0 / self.sum_squares

    @property
    def trace(self) -> Floats:
        return 1.0 - self.sum_squares

    @property
    def frobenius(self) -> Floats:
        sum_rest, sum_2, sum_3, _ = self.s.mean
        cubes = (self.s.keys + 3.0 * (sum_rest + sum_2) + sum_3) / (self.s.keys * self.w) ** 3
        return np.asarray(np.sqrt(self.sum_squares - 2.0 * cubes + self.sum_squares**2))

    @property
    def inf_norm(self) -> Floats:
        return 2.0 * self.max_weight * self.one_minus_max

    @property
    def spectral(self) -> Floats:
        return self.max_weight * np.exp(-self.s.gap) * (1.0 + self.s.root)
