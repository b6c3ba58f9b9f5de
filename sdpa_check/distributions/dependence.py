"""How the components of one vector, or of a query and its key, depend on each other.

``none``, ``ar1:ρ``, ``equi:ρ`` and ``qk:ρ``. The text is part of a design, so it has one canonical
form: `str` gives it and `parse` reads it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from sdpa_check.errors import InputError, unknown_name

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    from sdpa_check.distributions.base import FloatArray

_OPTION: Final = "--corr"
_LEAST: Final = 2.0**-53
_RANGES: Final = {"ar1": "−1 < ρ < 1", "equi": "−1/(d−1) ≤ ρ ≤ 1", "qk": "−1 ≤ ρ ≤ 1"}
KINDS: Final = ("none", *_RANGES)
"""Every kind of dependence, by the name that stands before the colon."""


@dataclass(frozen=True, slots=True)
class Dependence:
    """A kind of dependence with its correlation ρ.

    - ``none``: all components independent.
    - ``ar1``: within a vector, corr(x_a, x_b) = ρ^|a−b|.
    - ``equi``: within a vector, corr(x_a, x_b) = ρ for a ≠ b.
    - ``qk``: corr(q_a, k_a) = ρ between a query and its key, each with independent components.

    Raises:
        InputError: unknown kind, or ρ outside the range that holds for every d.
    """

    kind: str = "none"
    rho: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name(_OPTION, self.kind, KINDS)
        widest = 0.0 if self.kind == "none" else 1.0
        if not abs(self.rho) <= widest or (self.kind == "ar1" and abs(self.rho) == 1):
            raise self._out_of_range(_RANGES.get(self.kind, "no ρ"))

    def __str__(self) -> str:
        # Equal dependences need one text: 1 and 1.0, and −0.0 and 0.0, are equal.
        return self.kind if self.kind == "none" else f"{self.kind}:{float(self.rho) + 0.0!r}"

    @property
    def qk_rho(self) -> float:
        """The correlation between q_a and k_a, which the measuring code applies to the pair."""
        return self.rho if self.kind == "qk" else 0.0

    def check(self, dk: int) -> None:
        """See that a vector of `dk` components can have this dependence.

        Raises:
            InputError: ``equi`` with ρ < −1/(dk−1), where the matrix has a negative eigenvalue.
        """
        if self.kind == "equi" and dk > 1 and self.rho < -1 / (dk - 1):
            raise self._out_of_range(f"{-1 / (dk - 1):.6g} ≤ ρ ≤ 1 at d = {dk}")

    def apply(self, z: FloatArray, common: NDArray[np.float64] | None = None) -> FloatArray:
        """Correlate the components of each vector: x = A z, with A Aᵀ the correlation matrix.

        Where z has unit variance, that matrix is the covariance of x. Only Gaussian components
        keep their law: others keep mean and variance while a finite kurtosis moves towards 3.
        Components of infinite variance are mixed by the same map, without that meaning.

        Args:
            z: (d, n), n vectors as columns, independent centred components; left unchanged.
            common: (n,), for ``equi`` only: w_i takes the place of Σ_a z_ai/√d, the part that all
                components of a vector share. For normal z it is N(0, 1) and independent of the
                rest of z, so that x keeps its law wherever w is drawn from N(0, 1) apart from z.

        Returns:
            (d, n), of the dtype of z; z itself for ``none`` and for ``qk``, whose correlation
            needs the other vector.

        Raises:
            InputError: as `check`.
            ValueError: `common` for another kind of dependence.
        """
        if common is not None and self.kind != "equi":
            raise ValueError(f"{self} has no common factor")
        if self.kind == "ar1":
            return _autoregressive(z, self.rho)
        if self.kind == "equi":
            self.check(len(z))
            return _equicorrelated(z, self.rho, common)
        return z

    def _out_of_range(self, valid: str) -> InputError:
        return InputError(_OPTION, f"{self.kind}:{self.rho!r}", f"{self.kind} with {valid}")


@lru_cache(maxsize=64)
def parse(text: str) -> Dependence:
    """Read ``none``, ``ar1:ρ``, ``equi:ρ`` or ``qk:ρ``.

    Raises:
        InputError: unknown kind, ρ missing, not a number, or outside its range.
    """
    kind, colon, number = text.strip().lower().partition(":")
    if kind not in KINDS:
        raise unknown_name(_OPTION, kind, KINDS)
    if kind == "none":
        if colon:
            raise InputError(_OPTION, text, "none, without ρ")
        return Dependence()
    try:
        rho = float(number)
    except ValueError:
        want = f"{kind}:ρ with {_RANGES[kind]}"
        raise InputError(_OPTION, text, want, f"for example {kind}:0.5") from None
    return Dependence(kind, rho)


def stratified_normals(rng: Generator, sequences: int, groups: int, n: int) -> NDArray[np.float64]:
    """Normals for the common factors of vectors: each N(0, 1), together spread evenly.

    Means over vectors with a strong common factor vary mostly with that one number, and little is
    left of this where the numbers are stratified: w = Φ⁻¹((t + u)/N) with u uniform on [0, 1) and
    with every stratum t = 0, …, N − 1 taken exactly once by the N = groups · n numbers of a
    sequence (Owen, Monte Carlo theory, methods and examples, sections 8.4 and 10.3). The n numbers
    of a group lie one in each of n wider strata, in random order. As t is uniform, each single w is
    N(0, 1), and a mean keeps its expectation; but two of a sequence are not independent, so an
    error bar needs several such draws. Sequences are independent of each other: one number of each
    is an independent sample, and all together are a Latin hypercube (McKay, Beckman and Conover
    1979).

    Returns:
        (sequences, groups, n).
    """
    from scipy.special import ndtri

    fine = rng.permuted(np.broadcast_to(np.arange(groups), (sequences, n, groups)), axis=2)
    strata = np.arange(n) * groups + fine.transpose(0, 2, 1)
    u = (rng.permuted(strata, axis=2) + rng.random(strata.shape)) / (groups * n)
    found: NDArray[np.float64] = ndtri(np.clip(u, _LEAST, 1 - _LEAST))
    return found


def _autoregressive(z: FloatArray, rho: float) -> FloatArray:
    """x_1 = z_1, x_a = ρ x_{a−1} + √(1−ρ²) z_a: stationary, so every variance is that of z."""
    fresh = math.sqrt((1 - rho) * (1 + rho))
    x = z * fresh
    x[0] = z[0]
    step = np.empty_like(x[0])
    for a in range(1, len(x)):
        np.multiply(x[a - 1], rho, out=step)
        x[a] += step
    return x


def _equicorrelated(
    z: FloatArray, rho: float, factor: NDArray[np.float64] | None = None
) -> FloatArray:
    """The symmetric square root of (1−ρ) I + ρ 11ᵀ, applied in O(nd).

    The eigenvalues are 1 − ρ, (d−1)-fold, and λ = 1 + (d−1)ρ for the vector 1, so the root is
    √(1−ρ) I + b 11ᵀ with b = (√λ − √(1−ρ))/d = ρ/(√λ + √(1−ρ)); the last form does not cancel.

    A common factor w in the place of 1ᵀz/√d adds √λ w/√d − √(1−ρ) 1ᵀz/d in the place of b 1ᵀz.
    """
    own = math.sqrt(1 - rho)
    common = math.sqrt(max(0.0, 1 + (len(z) - 1) * rho))
    x = z * own
    total = z.sum(axis=0)
    if factor is None:
        x += rho / (common + own) * total
    else:
        shift = common / math.sqrt(len(z)) * factor - own / len(z) * total
        x += shift.astype(z.dtype)
    return x
