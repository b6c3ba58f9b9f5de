"""Quadrature over the law of ‖q‖², exact to about 1e-11: the outer average of every row statistic.

Both rules are the trapezoid rule in the signed root r of the saddlepoint exponent, the coordinate
in which any positive quadratic form of normals is nearly N(0, 1), so that a few dozen nodes
serve one degree of freedom and ten thousand alike. With the cumulant function
K(θ) = −½ Σ nᵢ log(1 − 2θλᵢ), the node that belongs to θ and its coordinate r are

    s = K'(θ) = Σ nᵢ λᵢ / (1 − 2θλᵢ),      r² / 2 = θ s − K(θ),   sign r = sign θ,

and ds/dr = r/θ. The saddlepoint is only the coordinate: the density at the nodes is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

REACH = 8.5
"""The rules stop at |r| = 8.5, beyond which lies a probability of 2e-17."""

MOST_NODES = 80
"""A finer rule is condensed to the Gauss rule in log s with this many nodes."""

TOLERANCE = 1e-11
"""A rule is refined until total mass, mean and variance of the quadratic form are right to this."""


@dataclass(frozen=True, slots=True)
class _SaddleGrid:
    """Nodes of the rule; `tilted` holds aᵢ = λᵢ/(1 − 2θλᵢ), shape (nodes, eigenvalues)."""

    root: Floats
    theta: Floats
    tilted: Floats
    counts: Floats
    step: float

    @property
    def nodes(self) -> Floats:
        nodes: Floats = self.tilted @ self.counts
        return nodes

    @property
    def gauss(self) -> Floats:
        """The weights up to the factor density·exp(r²/2): exp(−r²/2) ds/dr dr."""
        return np.exp(-0.5 * self.root**2) * (self.root / self.theta) * self.step


def even_grid(low: float, high: float, step: float) -> Floats:
    """Integer multiples of `step` that cover [low, high], for the trapezoid rule.

    Not np.arange(low, high, step), whose spacing is (low + step) − low, rounded to the size of low.
    """
    multiples = np.arange(floor(low / step), ceil(high / step) + 1, dtype=np.float64)
    return step * multiples


def chi_square_rule(dk: int) -> tuple[Floats, Floats]:
    """Nodes s and weights w with Σ w f(s) = E f(S) for S ~ χ² with `dk` degrees of freedom.

    The density at a node is exp(−r²/2)/s times a constant, which Σ w = 1 supplies, so neither
    the gamma function nor its cancellation at large `dk` appears.

    Args:
        dk: degrees of freedom, at least 1.

    Returns:
        Two arrays of equal length: 24 nodes from dk = 25 on, 114 at dk = 1.
    """
    grid = _saddle_grid(np.ones(1), np.array([float(dk)]), _first_step(dk))
    weights = grid.gauss / grid.nodes
    return grid.nodes, weights / weights.sum()


def quadratic_form_rule(spectrum: ArrayLike) -> tuple[Floats, Floats]:
    """Nodes s and weights w with Σ w f(s) = E f(S) for S = Σ λᵢ zᵢ², zᵢ iid N(0, 1).

    The density is the inverse Laplace transform of exp(K), integrated along a path of near
    steepest descent through each node's own saddlepoint; nothing is approximated but by
    spectrally accurate trapezoid sums. The step in r is halved until Σ w, mean and variance
    are exact to `TOLERANCE`. Eigenvalues of very different size need many nodes to be integrated
    right, but a function that is smooth in log s does not; hence the condensation at the end.

    Args:
        spectrum: the λᵢ, one-dimensional, non-negative up to rounding, not all zero.

    Raises:
        InputError: the spectrum is empty, not one-dimensional, not finite, negative or all zero.
    """
    eigenvalues, counts, scale = _merged(_checked(spectrum))
    mean, variance = eigenvalues @ counts, 2 * eigenvalues**2 @ counts
    step = _first_step(float(2 * mean**2 / variance))
    for _ in range(6):
        grid = _saddle_grid(eigenvalues, counts, step)
        nodes, weights = grid.nodes, grid.gauss * _tilted_density(grid)
        errors = (
            weights.sum() - 1,
            weights @ nodes / mean - 1,
            weights @ (nodes - mean) ** 2 / variance - 1,
        )
        if max(map(abs, errors)) < TOLERANCE:
            break
        step /= 2
    if nodes.size > MOST_NODES:
        logs, weights = _condensed(np.log(nodes), weights, MOST_NODES)
        nodes = np.exp(logs)
    return nodes * scale, weights


def _first_step(freedom: float) -> float:
    # For a χ² law s(r) is analytic for |Im r| < √(π·freedom); functions of log s with singularities
    # at Im log s = ±π/2 narrow the strip further. From 25 on the Gaussian weight is the limit.
    return min(0.75, 0.15 * sqrt(freedom))


def _checked(spectrum: ArrayLike) -> Floats:
    values = np.asarray(spectrum, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise InputError("spectrum", spectrum, "a one-dimensional array of finite eigenvalues")
    # Eigenvalue solvers return zeros as ±(a few eps)·(largest).
    if values.max() <= 0 or values.min() < -1e-10 * values.max():
        raise InputError("spectrum", spectrum, "non-negative eigenvalues, at least one positive")
    felt: Floats = values[values > 1e-30 * values.max()]
    return felt


def _merged(values: Floats) -> tuple[Floats, Floats, float]:
    """Distinct eigenvalues, scaled to a largest of 1, their multiplicities, and the scale.

    Eigenvalues that differ by less than 1e-13 of themselves count as equal.
    """
    scale = float(values.max())
    logs, counts = np.unique(np.round(np.log(values / scale), 13), return_counts=True)
    return np.exp(logs), counts.astype(np.float64), scale


def _condensed(points: Floats, weights: Floats, order: int) -> tuple[Floats, Floats]:
    """The Gauss rule of the discrete measure `weights` on `points`, by the Lanczos process."""
    basis = np.zeros((order, points.size))
    diagonal, coupling = np.zeros(order), np.zeros(order)
    vector = np.sqrt(np.maximum(weights, 0.0))  # far tails may round to −1e-20
    total = float(vector @ vector)
    vector /= sqrt(total)
    for k in range(order):
        basis[k] = vector
        image = points * vector
        diagonal[k] = image @ vector
        for _ in range(2):  # twice is enough to stay orthogonal
            image -= (basis[: k + 1] @ image) @ basis[: k + 1]
        coupling[k] = np.linalg.norm(image)
        vector = image / coupling[k]
    jacobi = np.diag(diagonal) + np.diag(coupling[:-1], 1) + np.diag(coupling[:-1], -1)
    nodes, vectors = np.linalg.eigh(jacobi)
    return nodes, total * vectors[0] ** 2


def _saddle_grid(eigenvalues: Floats, counts: Floats, step: float) -> _SaddleGrid:
    """Solve r(θ) = (j + ½)·step for all j by bracketed Newton in x = −log(1 − 2θ), max λ = 1.

    The half-step offset keeps θ = 0 off the grid, where r/θ is 0/0.
    """
    half = ceil(REACH / step)
    wanted = (np.arange(-half, half) + 0.5) * step
    low, high = np.full_like(wanted, -90.0), np.full_like(wanted, 30.0)
    x = 2 * wanted / np.sqrt(2 * eigenvalues**2 @ counts)
    for _ in range(100):
        x = np.where((x >= low) & (x <= high), x, 0.5 * (low + high))
        stretch = np.expm1(-x)
        excess = np.multiply.outer(stretch, eigenvalues)
        tilted = eigenvalues / (1 + excess)
        exponent = (np.log1p(excess) - excess / (1 + excess)) @ counts
        root = np.sign(x) * np.sqrt(np.maximum(exponent, 0.0))
        error = wanted - root
        if np.abs(error).max() < 1e-11:
            break
        low, high = np.where(error > 0, x, low), np.where(error < 0, x, high)
        # dr/dx = θ K''(θ) (dθ/dx) / r with θ = −stretch/2 and K'' = 2 Σ nᵢ aᵢ².
        x = x - 2 * error * root * np.exp(x) / (stretch * (tilted**2 @ counts))
    # Roots within 1e-11 of an even grid are even enough: the weights use each root as it is.
    return _SaddleGrid(root, -0.5 * stretch, tilted, counts, step)


def _tilted_density(grid: _SaddleGrid) -> Floats:
    """Density at the nodes times exp(r²/2) = (1/2πi) ∫ exp(K(θ+δ) − K(θ) − sδ) dδ.

    The path δ = iy + c y²/√(1 + (c y/σ)²) starts along steepest descent, c = K'''/(6K''), and ends
    in rays of slope σ < 1, so that it never climbs however unequal the eigenvalues are. y = sinh t.
    """
    slope, spacing = 0.6, 0.1
    t = np.arange(spacing / 2, 5.2, spacing)
    second, third = 2 * grid.tilted**2 @ grid.counts, 8 * grid.tilted**3 @ grid.counts
    width = 1 / np.sqrt(second)[:, None]
    y, dy = np.sinh(t) * width, np.cosh(t) * width * spacing
    bend = (third / (6 * second))[:, None]
    turned = 1 + (bend * y / slope) ** 2
    x, dx = bend * y**2 / np.sqrt(turned), bend * y * (1 + turned) / turned**1.5 * dy
    nodes = grid.nodes[:, None]
    modulus, phase = -nodes * x, -nodes * y
    # Real log and arctan2 take a twentieth of the time of numpy's complex log.
    for tilted, count in zip(2 * grid.tilted.T[:, :, None], grid.counts, strict=True):
        real, imag = 1 - tilted * x, tilted * y
        modulus -= 0.25 * count * np.log(real**2 + imag**2)
        phase += 0.5 * count * np.arctan2(imag, real)
    # Half the path gives half the real integral: (1/π) Im ∫ exp(modulus + i phase) (dx + i dy).
    density: Floats = (np.exp(modulus) * (np.cos(phase) * dy + np.sin(phase) * dx)).sum(axis=1)
    return density / np.pi
