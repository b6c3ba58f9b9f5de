"""Exact softmax row statistics for Gaussian queries and keys (theory, section 3).

Given q the m logits of a row are iid N(0, τ²) with τ² = c² qᵀΣ_k q, so each statistic is an
expectation for iid normal logits (`iid_row`) averaged over the law of τ (`quadrature`).

Measured against finer grids, for m from 2 to 10⁷: 1e-13 absolute at any fixed τ; 1e-12 for
independent components with d_k from 1 to 10⁵; 1e-9 for dependent ones, however unequal the
eigenvalues. (For one to three components the last two need τ below about 100, root mean square.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.theory.arguments import check_count, check_finite
from sdpa_check.theory.iid_row import RowMeans, row_means
from sdpa_check.theory.quadrature import chi_square_rule, quadratic_form_rule

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]


LARGEST_TAU = 1e150
"""The limit set by τ² ≤ 1.8e308 in double precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExpectations:
    """Expectations over the rows of softmax(x), m logits each; entropies in nats.

    Attributes:
        entropy: E[H], H = −Σ p ln p.
        entropy_deficit: E[ln m − H], relatively accurate however small.
        sum_squares: E[Σp²]; its inverse is a scale for the number of effective keys.
        sum_squares_excess: m E[Σp²] − 1, relatively accurate however small.
        sum_cubes: E[Σp³].
        trace: E[tr J] = E[1 − Σp²], J = diag(p) − ppᵀ.
        frobenius_ms: E[‖J‖_F²].
        log_partition: E[ln Z], Z = Σ exp(x).
        normalisation_error: |E[Σp] − 1| as computed, the numerical error of the integration.
    """

    entropy: float
    entropy_deficit: float
    sum_squares: float
    sum_squares_excess: float
    sum_cubes: float
    trace: float
    frobenius_ms: float
    log_partition: float
    normalisation_error: float

    @property
    def frobenius_rms(self) -> float:
        """√E[‖J‖_F²]."""
        return sqrt(self.frobenius_ms)


def iid_normal_row(*, keys: int, tau: float) -> RowExpectations:
    """Row statistics for m = `keys` logits that are iid N(0, τ²).

    Args:
        keys: number m of logits, at least 2.
        tau: their standard deviation τ ≥ 0.

    Raises:
        InputError: for fewer than two keys, or a τ that is negative or not finite.
    """
    check_count("keys", keys, 2)
    check_finite("tau", tau)
    return _expectations(keys, np.array([float(tau)]), np.ones(1))


def gaussian_rows(
    *, dk: int, keys: int, multiplier: float, sigma_q: float = 1.0, sigma_k: float = 1.0
) -> RowExpectations:
    """Row statistics for logits c q·k with iid N(0, σ_q²) queries and N(0, σ_k²) keys.

    The average of `iid_normal_row` over τ² = c² σ_k² ‖q‖², where ‖q‖²/σ_q² ~ χ² with d_k degrees
    of freedom.

    Args:
        dk: length d_k of q and k, at least 1.
        keys: number m of keys in a row, at least 2.
        multiplier: c, for example 1/√d_k; its sign does not matter.
        sigma_q: standard deviation of the components of q.
        sigma_k: standard deviation of the components of k.

    Raises:
        InputError: for a count out of range, or a scale that is negative or not finite.
    """
    check_count("dk", dk, 1)
    check_count("keys", keys, 2)
    check_finite("multiplier", multiplier, negative=True)
    check_finite("sigma_q", sigma_q)
    check_finite("sigma_k", sigma_k)
    squared_norms, weights = chi_square_rule(dk)
    scale = abs(multiplier) * sigma_q * sigma_k
    return _expectations(keys, scale * np.sqrt(squared_norms), weights)


def dependent_rows(*, keys: int, multiplier: float, spectrum: ArrayLike) -> RowExpectations:
    """Row statistics for logits c q·k, q ~ N(0, Σ_q) and keys iid N(0, Σ_k).

    Given q the logits are iid N(0, c² qᵀΣ_k q), and qᵀΣ_k q = Σ λᵢ zᵢ² with zᵢ iid N(0, 1).

    Args:
        keys: number m of keys in a row, at least 2.
        multiplier: c, for example 1/√d_k; its sign does not matter.
        spectrum: the λᵢ, eigenvalues of Σ_q^{1/2} Σ_k Σ_q^{1/2}, shape (d_k,).

    Raises:
        InputError: for fewer than two keys, a multiplier that is not finite, or a spectrum that is
            not a one-dimensional array of non-negative numbers, one of them positive.
    """
    check_count("keys", keys, 2)
    check_finite("multiplier", multiplier, negative=True)
    forms, weights = quadratic_form_rule(spectrum)
    return _expectations(keys, abs(multiplier) * np.sqrt(forms), weights)


def _expectations(keys: int, taus: Floats, weights: Floats) -> RowExpectations:
    if not taus.max() < LARGEST_TAU:
        raise InputError("logit standard deviation", taus.max(), f"less than {LARGEST_TAU}")
    rows = np.array([row_means(keys, float(tau)) for tau in taus])
    mean = RowMeans(*(weights @ rows).tolist())
    return RowExpectations(
        entropy=log(keys) - mean.deficit,
        entropy_deficit=mean.deficit,
        sum_squares=(1 + mean.excess) / int(keys),
        sum_squares_excess=mean.excess,
        sum_cubes=mean.cubes,
        trace=mean.trace,
        frobenius_ms=mean.frobenius,
        log_partition=log(keys) + mean.log_partition,
        normalisation_error=abs(mean.mass - 1),
    )
