"""One softmax row of iid normal logits: its exact expectations as integrals over one variable.

For m logits iid N(0, τ²), with h_n(y) = e^{ny} exp(−e^y) and z ~ N(0, 1), let

    φ(u) = E[exp(−e^{u+τz})],      ψ_n(u) = E[h_n(u + τz)].

Z^{−n} = ∫ t^{n−1} e^{−tZ} dt / Γ(n) with t = e^u makes every expectation one integral over u:

    E[Σp]     = m ∫ ψ₁ φ^{m−1} du = 1
    E[ln Z]   = −γ − m ∫ u ψ₁ φ^{m−1} du
    E[H]      = −m ∫ E[(y + γ) h₁(y)] φ^{m−1} du,  y = u + τz
    E[Σp²]    = m ∫ ψ₂ φ^{m−1} du
    E[Σp³]    = m/2 ∫ ψ₃ φ^{m−1} du
    E[tr J]   = m(m−1) ∫ ψ₁² φ^{m−2} du
    E[‖J‖_F²] = m(m−1)/6 ∫ (2 ψ₂² φ^{m−2} + (m−2) ψ₂ ψ₁² φ^{m−3}) du

The last two are tr J = Σ_{i≠j} pᵢpⱼ and ‖J‖_F² = 2 Σ_{i≠j} pᵢ²pⱼ² + Σ pᵢ²pⱼp_k over distinct i, j
and k: sums of positive terms, relatively accurate where 1 − Σp² would cancel. For small τ the
distance from uniform is computed as such, from ratios to the τ = 0 integrands.

All integrals are trapezoid sums of functions analytic in a strip, accurate to rounding.
"""

from __future__ import annotations

from math import ceil, log, pi, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sdpa_check.theory.quadrature import even_grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NARROW = 0.25
"""Up to this τ a row is computed as a deviation from uniform, above it as it stands."""

CUT = 40.0
"""Integrands are dropped where they are below e^−40 = 4e-18 of their scale."""


class RowMeans(NamedTuple):
    """Expectations over one row, all linear, so that they may be averaged over τ.

    `deficit` is E[ln m − H], `excess` m E[Σp²] − 1, `log_partition` E[ln Z] − ln m, `mass` E[Σp],
    `cubes` E[Σp³], `trace` E[tr J], `frobenius` E[‖J‖_F²]. The first three are relatively accurate
    as τ → 0.
    """

    deficit: float
    excess: float
    log_partition: float
    mass: float
    cubes: float
    trace: float
    frobenius: float


def row_means(keys: int, tau: float) -> RowMeans:
    """Exact expectations for `keys` ≥ 2 logits iid N(0, `tau`²), 0 ≤ τ < 1e150."""
    return _narrow_row(float(keys), tau) if tau <= NARROW else _wide_row(float(keys), tau)


def _products(
    m: float, log_phi: Floats, psi: Floats, step: float
) -> tuple[float, float, float, float]:
    """E[Σp], E[Σp³], E[tr J], E[‖J‖_F²] from ln φ and ψ₁, ψ₂, ψ₃, shape (3, u), on an even grid."""
    first, second, third = psi
    one, two, three = (np.exp((m - k) * log_phi) for k in (1, 2, 3))
    mass = m * first @ one
    cubes = m / 2 * third @ one
    trace = m * (m - 1) * first**2 @ two
    pairs, triples = second**2 @ two, second * first**2 @ three
    frobenius = m * (m - 1) / 6 * (2 * pairs + (m - 2) * triples)
    return float(mass) * step, float(cubes) * step, float(trace) * step, float(frobenius) * step


def _narrow_row(m: float, tau: float) -> RowMeans:
    """One row for τ ≤ `NARROW`, relatively accurate as τ → 0.

    With a = e^u, φ = e^{−a}(1 + δ₀) and ψ_n = aⁿe^{−a}(1 + δ_n), where
    δ_n = E[expm1(nτz − a expm1(τz))], the integrals minus their τ = 0 values (ln m for E[ln Z], 1
    for m E[Σp²]) are integrals of expm1.
    """
    step = 0.2
    v = even_grid(-CUT, log(CUT) + 6 * tau, step)
    growth = np.exp(v)
    a = growth / m
    ratio = [_log_ratio(n, a, tau) for n in range(4)]
    log_phi = ratio[0] - a
    psi = np.stack([a**n * np.exp(ratio[n] - a) for n in (1, 2, 3)])
    mass, cubes, trace, frobenius = _products(m, log_phi, psi, step)
    base = np.exp(-growth)
    excess = step * float((growth**2 * base) @ np.expm1(ratio[2] + (m - 1) * ratio[0]))
    log_partition = -step * float(base @ np.expm1(m * ratio[0]))
    # Stein: E[Σ xp] = τ² E[tr J], so that ln m − H = τ² tr J − (ln Z − ln m).
    deficit = tau**2 * trace - log_partition
    return RowMeans(deficit, excess, log_partition, mass, cubes, trace, frobenius)


def _log_ratio(n: int, a: Floats, tau: float) -> Floats:
    """ln(1 + δ_n), the average over ±z first, so that the terms of order τ cancel exactly."""
    spacing = 0.5
    z = np.arange(spacing, 10.0, spacing)  # at z = 0 the integrand is 0
    weights = np.exp(-0.5 * z**2) * (spacing * sqrt(2 / pi))
    even = np.multiply.outer(a, -2 * np.sinh(0.5 * tau * z) ** 2)
    odd = np.abs(n * tau * z - np.multiply.outer(a, np.sinh(tau * z)))
    # e^even cosh(odd) − 1 without cancellation or overflow
    delta = np.expm1(even) + 0.5 * np.exp(even + odd) * np.expm1(-odd) ** 2
    ratio: Floats = np.log1p(delta @ weights)
    return ratio


def _wide_row(m: float, tau: float) -> RowMeans:
    """One row for τ > `NARROW`: expectations over z as convolutions on a grid of y = u + τz."""
    from scipy.special import ndtr

    u, step = _wide_grid(m, tau)
    spacing = step / ceil(step / min(0.2, 0.45 * tau))
    y = even_grid(-(CUT + log(m)), 9.0, spacing)
    growth = np.exp(y)
    first = growth * np.exp(-growth)
    # 1 − exp(−e^y) does not decay to the right; minus Φ(y), whose convolution is known, it does.
    remainder = -np.expm1(-growth) - ndtr(y)
    entropy = -(y + np.euler_gamma) * first
    functions = (remainder, entropy, first, growth * first, growth**2 * first)
    weighted = np.stack(functions) * (spacing / (tau * sqrt(2 * pi)))
    rest, surprise, *psi = weighted @ _normal_kernel(u, y, spacing, tau).T
    complement = rest + ndtr(u / sqrt(1 + tau**2))
    # From 1 − φ, not φ: m would multiply the rounding of φ near 1. Where 1 − φ rounds to 1 the
    # integrands have vanished.
    log_phi = np.log1p(-np.minimum(complement, 1 - np.finfo(np.float64).eps))
    mass, cubes, trace, frobenius = _products(m, log_phi, np.stack(psi), step)
    power = m * step * np.exp((m - 1) * log_phi)
    deficit = log(m) - float(surprise @ power)
    excess = m * float(psi[1] @ power) - 1
    log_partition = -np.euler_gamma - float(u @ (psi[0] * power)) - log(m)
    return RowMeans(deficit, excess, log_partition, mass, cubes, trace, frobenius)


def _normal_kernel(u: Floats, y: Floats, spacing: float, tau: float) -> Floats:
    """exp(−(y_j − u_i)²/2τ²), shape (u, y), for even grids, y of step `spacing`.

    Where a step of u is a few steps of y, one exponential serves a whole diagonal.
    """
    finer = round((u[-1] - u[0]) / (spacing * (len(u) - 1)))
    if finer > len(y):
        return np.asarray(np.exp(-0.5 * ((y - u[:, None]) / tau) ** 2))
    largest = round((y[-1] - u[0]) / spacing)
    differences = spacing * np.arange(largest, largest - len(y) - finer * (len(u) - 1), -1.0)
    of_all = np.exp(-0.5 * (differences / tau) ** 2)
    kernel: Floats = np.lib.stride_tricks.sliding_window_view(of_all, len(y))[::finer, ::-1]
    return kernel


def _wide_grid(m: float, tau: float) -> tuple[Floats, float]:
    """Grid of u on which m ψ₁ φ^{m−1}, a probability density, exceeds e^−`CUT`, and its step.

    Left: 1 − φ ≤ E[e^{s(u+τz)}] for s ∈ [0, 1], at the best s. Right: φ^m is at most e^−`CUT` where
    φ ≤ P(u + τz < ln `CUT`), and for many keys already where φ ≤ ½ + ½exp(−e^u). The density widens
    like τ/√(2 ln m) once that exceeds 1, and the step with it.
    """
    from scipy.special import ndtri

    reach = CUT + log(m)
    left = -(reach + tau**2 / 2) if tau**2 <= 2 * reach else -tau * sqrt(2 * reach)
    needed = -np.expm1(-CUT / m)
    right = log(CUT) + tau * float(ndtri(needed))
    if needed < 0.5:
        right = min(right, log(-np.log1p(-2 * needed)))
    step = 0.2 * max(1.0, tau / sqrt(2 * log(m)))
    return even_grid(left, right, step), step
