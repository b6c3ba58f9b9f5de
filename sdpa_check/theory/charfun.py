"""Characteristic functions of the product of two components, for every pair of laws.

All component laws here are symmetric, so the product x·y has the real characteristic function
φ(t) = E[cos(t x y)] = E_x[φ_y(t x)] (theory.md §2). One identity gives it for every pair: the
Mellin transform turns a product of independent variables into a product of moments,

    ∫_0^∞ t^{s−1} φ(t) dt = Γ(s) cos(πs/2) E|x|^{−s} E|y|^{−s},      0 < Re s < 1,

and each absolute moment E|x|^{−s} is a closed form of gamma functions. The inverse is an integral
along a vertical line, whose integrand decays exponentially as soon as one of the laws is a variance
mixture of normals (all but uniform and rademacher); the trapezoid rule then reaches rounding error.
Left of the pole at s = 0 the same integral gives φ(t) − 1, which keeps full relative accuracy for
t → 0, where a power φ^d with large d needs it. Pairs of bounded laws have elementary forms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.theory.moments import tail_index

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sdpa_check.records import Component

    RealArray = NDArray[np.float64]
    ComplexArray = NDArray[np.complexfloating[Any, Any]]

BOUNDED = ("rademacher", "uniform")
"""Laws on a bounded support; every other law is a variance mixture of normals."""


_MIXTURE_INNER = 1 / math.sqrt(1.8)  # a in 0.9 N(0, a²) + 0.1 N(0, 9a²), of unit variance
_CUTOFF = 1e-18  # relative weight below which nodes of the contour integral are dropped
_CHUNK = 1 << 18  # elements of the (t, node) matrix handled at a time


def component_scale(component: Component) -> float:
    """Factor that turns the standard member of the family into the centred component.

    It is sigma, divided by √(df/(df−2)) for a standardised Student t.

    Raises:
        InputError: unknown distribution, sigma ≤ 0, or df missing or unusable.
    """
    df = tail_index(component)
    if not component.sigma > 0:
        raise InputError("sigma", component.sigma, "a positive number")
    if component.distribution == "t" and component.standardize:
        return component.sigma * math.sqrt((df - 2) / df)
    return component.sigma


def product_cf(query: Component, key: Component, t: ArrayLike) -> RealArray:
    """Characteristic function φ(t) = E[exp(i t q_a k_a)] of the product of two components.

    Real and even, because the laws are symmetric. Absolute accuracy about 1e-14.

    Args:
        query: law of q_a, mean zero.
        key: law of k_a, mean zero, independent of q_a.
        t: real frequencies, any shape, in units of 1/s.

    Returns:
        φ(t) in the shape of t.

    Raises:
        InputError: a mean is not zero, or a component is not usable.
    """
    x = np.abs(np.asarray(t, dtype=np.float64)) * _joint_scale(query, key)
    names = {query.distribution, key.distribution}
    if names == {"rademacher"}:
        return np.asarray(np.cos(x))
    if names == {"rademacher", "uniform"}:
        return np.asarray(np.sinc(math.sqrt(3) * x / math.pi))
    if names == {"uniform"}:
        return _sine_integral_ratio(3 * x)
    return np.exp(_log_standard_cf(query, key, x.astype(np.complex128)).real)


def log_product_cf(query: Component, key: Component, t: ComplexArray) -> ComplexArray:
    """Logarithm of φ(t), continued to complex t; at least one law must be outside `BOUNDED`.

    Such a φ is analytic for |arg t| < π/2 and at most 1 in modulus for |arg t| ≤ π/4, because
    given everything but the normal factor it is exp(−t² w/2) with w ≥ 0.

    Args:
        query: law of q_a, mean zero.
        key: law of k_a, mean zero.
        t: frequencies with |arg t| ≤ π/8, any shape.

    Returns:
        ln φ(t) in the shape of t; its absolute error tends to 4e-18 for t → 0, where ln φ ~ φ − 1.

    Raises:
        InputError: a mean is not zero, both laws are bounded, or a component is not usable.
    """
    if query.distribution in BOUNDED and key.distribution in BOUNDED:
        raise InputError("distribution", query.distribution, "a law that is not bounded")
    return _log_standard_cf(query, key, t * _joint_scale(query, key))


def _joint_scale(query: Component, key: Component) -> float:
    for component in (query, key):
        if component.mean != 0:
            raise InputError("mean", component.mean, "0")
    return component_scale(query) * component_scale(key)


def _log_standard_cf(query: Component, key: Component, t: ComplexArray) -> ComplexArray:
    """Logarithm of φ(t) of the standard members by the inverse Mellin transform, |arg t| ≤ π/8."""
    flat = t.ravel()
    small = np.abs(flat) <= 1
    tail = min(tail_index(query), tail_index(key), 2.0)
    out = np.empty_like(flat)
    # Poles: s = 0, s = −2 or −ν, s = 1. Both lines stay half-way between their neighbours.
    out[small] = log1p_complex(_contour(query, key, flat[small], -tail / 2))
    out[~small] = np.log(_contour(query, key, flat[~small], 0.5))
    return out.reshape(t.shape)


def _contour(query: Component, key: Component, t: ComplexArray, real: float) -> ComplexArray:
    """(1/2π) ∫ M(s) t^{−s} dω along s = real + iω: φ(t) right of s = 0, φ(t) − 1 left of it.

    The trapezoid rule of step 2π/P repeats φ with the period P in ln t; the copies enter by
    exp(−|real| P), here exp(−40) = 4e-18.
    """
    if t.size == 0:
        return t
    step = 2 * math.pi * abs(real) / 40
    omega = step * np.arange(-math.ceil(120 / step), math.ceil(120 / step) + 1)
    s = real + 1j * omega
    log_weight = _log_cosine_kernel(s) + _log_moment(query, s) + _log_moment(key, s)
    # At arg t = ±π/8 the factor t^{−s} grows by exp(π|ω|/8).
    size = np.exp(log_weight.real + math.pi / 8 * np.abs(omega))
    keep = size > _CUTOFF * size.max()
    s, weight = s[keep], np.exp(log_weight[keep]) * (step / (2 * math.pi))
    log_t = np.log(np.where(t == 0, 1e-300, t))
    rows = max(1, _CHUNK // s.size)
    blocks = [
        np.exp(np.multiply.outer(-log_t[i : i + rows], s)) @ weight for i in range(0, t.size, rows)
    ]
    return np.concatenate(blocks)


def _log_cosine_kernel(s: ComplexArray) -> ComplexArray:
    """Logarithm of the Mellin transform of cos t, Γ(s) cos(πs/2) = √π 2^{s−1} Γ(s/2)/Γ((1−s)/2)."""
    constant = 0.5 * math.log(math.pi) - math.log(2)
    return constant + s * math.log(2) + log_gamma(s / 2) - log_gamma((1 - s) / 2)


def _log_moment(component: Component, s: ComplexArray) -> ComplexArray:
    """Logarithm of E|x|^{−s}, standard member, −ν < Re s < 1, up to multiples of 2πi."""
    name = component.distribution
    if name == "rademacher":
        return np.zeros_like(s)
    if name == "uniform":
        return -0.5 * math.log(3) * s - np.log(1 - s)
    if name == "laplace":
        return 0.5 * math.log(2) * s + log_gamma(1 - s)
    normal = -0.5 * math.log(2) * s + log_gamma((1 - s) / 2) - 0.5 * math.log(math.pi)
    if name == "mixture":
        scales = 0.9 + 0.1 * np.exp(-s * math.log(3))
        return np.asarray(normal - s * math.log(_MIXTURE_INNER) + np.log(scales))
    if name in ("t", "cauchy"):
        # x = N √(ν/χ²_ν), and E (χ²_ν)^{s/2} = 2^{s/2} Γ((ν+s)/2)/Γ(ν/2)
        half = tail_index(component) / 2
        return normal - 0.5 * s * math.log(half) + log_gamma_ratio(half, s / 2)
    return np.asarray(normal)


def log1p_complex(w: ComplexArray) -> ComplexArray:
    """ln(1 + w) without the loss of digits that numpy's complex log1p has for small w."""
    real = 0.5 * np.log1p(w.real * (2 + w.real) + w.imag**2)
    return np.asarray(real + 1j * np.arctan2(w.imag, 1 + w.real))


def log_gamma(z: ComplexArray) -> ComplexArray:
    """Logarithm of Γ(z), up to multiples of 2πi: Stirling (DLMF 5.11.1) after a shift by 12."""
    shift = np.ones_like(z)
    for k in range(12):
        shift = shift * (z + k)
    w = z + 12
    return (w - 0.5) * np.log(w) - w + 0.5 * math.log(2 * math.pi) + _stirling(w) - np.log(shift)


def log_gamma_ratio(z: float, a: ComplexArray) -> ComplexArray:
    """Logarithm of Γ(z + a)/Γ(z), z > 0, without cancellation between two large logarithms."""
    if z < 40:
        return log_gamma(z + a) - math.lgamma(z)
    ratio = (z + a - 0.5) * log1p_complex(a / z) + a * math.log(z) - a
    return ratio + _stirling(z + a) - _stirling(np.asarray(z, dtype=np.complex128))


def _stirling(w: ComplexArray) -> ComplexArray:
    """Σ B_{2k} / (2k (2k−1) w^{2k−1}), k ≤ 8, the correction terms of Stirling's series."""
    coefficients = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
    inverse = 1 / w
    total = np.full_like(inverse, -3617 / 122400)
    for coefficient in reversed(coefficients):
        total = total * inverse**2 + coefficient
    return np.asarray(total * inverse)


def _sine_integral_ratio(x: RealArray) -> RealArray:
    """Si(x)/x for x ≥ 0: ∫_0^1 sinc by Gauss-Legendre up to 40, then the asymptotic series.

    Si(x) = π/2 − f(x) cos x − g(x) sin x with f, g as in DLMF 6.12.3–4.
    """
    out = np.empty_like(x)
    near = x <= 40
    nodes, weights = np.polynomial.legendre.leggauss(48)
    out[near] = np.sinc(np.multiply.outer(x[near], (nodes + 1) / (2 * math.pi))) @ (weights / 2)
    far = x[~near]
    f, g, term = np.zeros_like(far), np.zeros_like(far), 1 / far
    for n in range(16):  # terms (−1)^n (2n)!/x^{2n+1} and (−1)^n (2n+1)!/x^{2n+2}
        f += term
        g += term * (2 * n + 1) / far
        term = -term * (2 * n + 1) * (2 * n + 2) / far**2
    out[~near] = (math.pi / 2 - f * np.cos(far) - g * np.sin(far)) / far
    return out
