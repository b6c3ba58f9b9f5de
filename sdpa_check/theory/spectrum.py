"""Eigenvalues of the correlation matrices within a vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def correlation_spectrum(corr: str, dk: int) -> NDArray[np.float64]:
    """Eigenvalues of the d_k × d_k correlation matrix R named by `corr`, ascending.

    ``equi:ρ``, R = (1−ρ) I + ρ 11ᵀ: 1 + (d−1)ρ once and 1 − ρ for the rest. ``ar1:ρ``, R_ij = ρ^|i−j|:
    reciprocals of the eigenvalues of its tridiagonal inverse, with diagonal 1, 1+ρ², …, 1+ρ², 1
    and off-diagonal −ρ, all over 1 − ρ² (Kac, Murdock & Szegő 1953). Anything else: R = I.

    Raises:
        InputError: for an AR(1) coefficient that is not inside (−1, 1).
    """
    kind, _, text = corr.partition(":")
    if kind == "equi":
        rho = float(text)
        return np.sort(np.r_[1 + (dk - 1) * rho, np.full(dk - 1, 1 - rho)])
    if kind != "ar1" or dk == 1:
        return np.ones(dk)
    rho = float(text)
    if not -1 < rho < 1:
        raise InputError("--corr", corr, "ar1:ρ with −1 < ρ < 1")
    from scipy.linalg import eigvalsh_tridiagonal

    diagonal = np.full(dk, 1 + rho * rho)
    diagonal[[0, -1]] = 1.0
    inverse = eigvalsh_tridiagonal(diagonal, np.full(dk - 1, -rho))
    return np.sort((1 - rho * rho) / inverse)
