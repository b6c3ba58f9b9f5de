"""Raw scores s = q·k of a block of queries and keys, for every dependence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.distributions import component_law, draw, law, parse_dependence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.records import Component, Design, Fault

_FEW = 4  # independent components, at most, that q·k is worth where a common factor rules it


def tail_index(design: Design) -> float:
    """ν with P(|s| > z) ~ z^−ν up to logarithms: the smaller index of the two component laws.

    Where the key is correlated with its query there is ρ q² in s, of half the index of q.
    """
    q, k = law(design.query).tail_index, law(design.key).tail_index
    return min(q / 2 if parse_dependence(design.corr).qk_rho else q, k)


def effective_dimension(design: Design) -> int:
    """How many independent components would make q·k vary as much: (tr R²)²/tr R⁴, rounded.

    R is the correlation matrix of a vector. Equicorrelated: from its two eigenvalues. AR(1), with
    r = ρ² and d → ∞: d (1 + r)²(1 − r)/(1 + 9r + 9r² + r³), from ∫f² and ∫f⁴ over the spectral
    density f.
    """
    corr, d = parse_dependence(design.corr), design.dk
    rho, found = corr.rho, float(d)
    if corr.kind == "equi":
        large, small = 1 + (d - 1) * rho, 1 - rho
        found = (large**2 + (d - 1) * small**2) ** 2 / (large**4 + (d - 1) * small**4)
    if corr.kind == "ar1":
        r = rho**2
        found = d * (1 + r) ** 2 * (1 - r) / (1 + 9 * r + 9 * r**2 + r**3)
    return max(1, min(d, round(found)))


def has_common_factor(design: Design) -> bool:
    """Whether one number of each vector rules q·k: normal components with equal correlations.

    Where q·k varies as if few components were independent, statistics of rows vary mostly with the
    part w of a vector that all its components share, x_a = √(1−ρ) (z_a − z̄) + √(λ/d) w, and not
    with the rest.
    """
    corr, laws = parse_dependence(design.corr), (design.query, design.key)
    normal = all(component.distribution == "gaussian" for component in laws)
    return normal and corr.kind == "equi" and corr.rho > 0 and effective_dimension(design) <= _FEW


def precision(design: Design) -> type[np.floating[Any]]:
    """The dtype to draw in: float32, or float64 where a mean or a heavy tail needs its range."""
    heavy = tail_index(design) < 1
    return np.float64 if heavy or design.query.mean or design.key.mean else np.float32


def vectors(
    generator: np.random.Generator,
    design: Design,
    component: Component,
    n: int,
    fault: Fault,
    *,
    common: NDArray[np.float64] | None = None,
) -> NDArray[Any]:
    """`n` vectors, shape (d_k, n): axis 0 holds the components.

    Their common factors are drawn with them, or given; see `Dependence.apply`.
    """
    drawn = draw(
        generator,
        component,
        parse_dependence(design.corr),
        dk=design.dk,
        n=n,
        dtype=precision(design),
        common=common,
    )
    return drawn if fault.sample_scale == 1.0 else drawn * drawn.dtype.type(fault.sample_scale)


def sets(
    generator: np.random.Generator, design: Design, count: int, sizes: tuple[int, int], fault: Fault
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The q (count, d_k, n) and k (count, d_k, m) of some sets, sizes being n and m.

    They are drawn set by set, the queries before the keys, each as by `vectors`.
    """
    dtype, dependence = precision(design), parse_dependence(design.corr)
    laws = [component_law(component) for component in (design.query, design.key)]
    q, k = (np.empty((count, design.dk, size), dtype) for size in sizes)
    for pair in zip(q, k, strict=True):
        for whole, out in zip(laws, pair, strict=True):
            drawn = whole.standard.sample(generator, out.shape, dtype, out)
            placed = whole.place(dependence.apply(drawn))
            if placed is not out:
                out[:] = placed
    if fault.sample_scale != 1.0:
        q *= dtype(fault.sample_scale)
        k *= dtype(fault.sample_scale)
    return q, k


def products(design: Design, q: NDArray[Any], k: NDArray[Any], fault: Fault) -> NDArray[Any]:
    """All scores of the queries q (…, d_k, n) with the keys k (…, d_k, m): shape (…, n, m).

    Where q and k are correlated (``qk:ρ``), `k` holds the independent part z of the key, and the
    key of the pair (i, j) is k_ij = μ_k + ρ (σ_k/σ_q)(q_i − μ_q) + √(1−ρ²) (z_j − μ_k): every
    pair has the right joint law, and the n·m pairs still share n + m vectors.
    """
    rho = parse_dependence(design.corr).qk_rho
    if rho == 0.0:
        return np.asarray(q.swapaxes(-1, -2) @ k)
    scale = fault.sample_scale
    mean_q, mean_k = design.query.mean * scale, design.key.mean * scale
    ratio = rho * design.key.sigma / design.query.sigma
    own = mean_k * q.sum(axis=-2) + ratio * ((q - mean_q) * q).sum(axis=-2)
    scores = np.asarray(q.swapaxes(-1, -2) @ (k - mean_k if mean_k else k))
    scores *= math.sqrt(1 - rho * rho)
    scores += own[..., None].astype(scores.dtype)
    return scores


def pivot(design: Design) -> float:
    """A round location near the mean of s, from which powers are counted; any constant is valid."""
    rho = parse_dependence(design.corr).qk_rho
    each = design.query.mean * design.key.mean + rho * design.query.sigma * design.key.sigma
    return float(design.dk * each)
