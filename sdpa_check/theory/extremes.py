"""Extremes of a row of n iid standard normals, exact by quadrature (theory, section 5).

Given q the logits of a row are iid N(0, τ²), τ = c ‖q‖ σ_k: multiply by τ and average over τ, for
which `expected_norm` gives E‖q‖/σ_q. The sums are trapezoid sums of entire functions; they agree
with finer grids to 1e-14 relative for n up to 10⁷.
"""

from __future__ import annotations

from math import exp, lgamma, log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check.theory.arguments import check_count
from sdpa_check.theory.quadrature import even_grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

STEP = 0.02
"""Trapezoid step, a tenth of the width 1/√(2 ln n) of the law of the maximum at n = 10⁷."""


def expected_max(n: int) -> float:
    """E[max of n standard normals] = ∫ x n φ(x) Φ(x)^{n−1} dx, for n ≥ 1.

    Raises:
        InputError: for n below 1 or not an integer.
    """
    x, log_cdf = _grid(n, least=1)
    density = np.exp((n - 1) * log_cdf - 0.5 * x**2) / sqrt(2 * np.pi)
    return float(x @ density) * n * STEP


def expected_gap(n: int) -> float:
    """E[largest − second largest of n standard normals] = n ∫ Φ(x)^{n−1} (1 − Φ(x)) dx, for n ≥ 2.

    Raises:
        InputError: for n below 2 or not an integer.
    """
    from scipy.special import ndtr

    x, log_cdf = _grid(n, least=2)
    return float(np.exp((n - 1) * log_cdf) @ ndtr(-x)) * n * STEP


def expected_max_minus_median(n: int) -> float:
    """E[max − median of n standard normals], which is `expected_max`.

    The median, for even n the mean of the two middle order statistics, has expectation 0 by
    symmetry.

    Raises:
        InputError: for n below 1 or not an integer.
    """
    return expected_max(n)


def leading_term(n: int) -> float:
    """√(2 ln n), the leading term of `expected_max` as n → ∞; 9 % too large at n = 10⁵.

    Raises:
        InputError: for n below 1 or not an integer.
    """
    check_count("n", n, 1)
    return sqrt(2 * log(n))


def expected_norm(dk: int) -> float:
    """E‖z‖ = √2 Γ((d+1)/2) / Γ(d/2) for z ~ N(0, I) in d = `dk` dimensions.

    Relative error below 1e-10 for d up to 10⁵, from the cancellation of the two ln Γ.

    Raises:
        InputError: for dk below 1 or not an integer.
    """
    check_count("dk", dk, 1)
    return sqrt(2) * exp(lgamma((dk + 1) / 2) - lgamma(dk / 2))


def _grid(n: int, least: int) -> tuple[Floats, Floats]:
    """Nodes x and ln Φ(x), where the integrands exceed 1e-17."""
    from scipy.special import log_ndtr

    check_count("n", n, least)
    x = even_grid(-9.0, 11.0, STEP)
    return x, log_ndtr(x)
