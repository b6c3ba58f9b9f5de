"""The exact law of the dot product s = Σ_a q_a k_a: CDF, density, quantiles (theory.md §2).

It comes from the characteristic function φ_s = φ_{q_a k_a}^d (or a closed form for Gaussian
components with means or dependence) by the inversions of `inversion`. For independent Gaussian
components there is a second route that shares nothing with the first, `gaussian_survival`.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.records import Component, Design
from sdpa_check.theory.charfun import (
    BOUNDED,
    component_scale,
    log1p_complex,
    log_product_cf,
    product_cf,
)
from sdpa_check.theory.inversion import (
    STEP,
    LatticeLaw,
    RayLaw,
    SeriesLaw,
    SingleBoundedLaw,
    ray_nodes,
)
from sdpa_check.theory.moments import (
    correlation_eigenvalues,
    dependence,
    dot_mean,
    dot_std,
    tail_index,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from sdpa_check.theory.charfun import ComplexArray, RealArray
    from sdpa_check.theory.inversion import StandardLaw

_SERIES_TERMS = 30_000  # leaves 2e-10 in F at d = 2, 1e-13 at d = 3
_NEAR = -1e-3  # standard deviations from the centre where a gap is sought only if it may be widest
_LOWEST = -80.0  # ln |t| of the first ray node where all moments exist


class DotLaw:
    """Exact law of s = q·k for one design.

    Covered: independent zero-mean components of any two laws; independent Gaussian components with
    means; Gaussian zero-mean components under ``ar1``, ``equi`` or ``qk`` dependence.

    Raises:
        InputError: this design has no exact law here, or a component is unusable.
    """

    def __init__(self, design: Design) -> None:
        self.design = design
        self._scale = component_scale(design.query) * component_scale(design.key)
        self._law = _standard_law(design)
        self._quantile = cache(self._law.quantile)  # a plan and its judgement ask for the same

    def cdf(self, z: ArrayLike) -> RealArray:
        """P(s ≤ z) in the shape of z; absolute error near 1e-14 (2e-10 for bounded laws, d = 2)."""
        return 1 - self._law.survival(np.asarray(z, dtype=np.float64) / self._scale)

    def survival(self, z: ArrayLike) -> RealArray:
        """P(s > z) in the shape of z.

        For independent zero-mean Gaussian components and z ≥ 0 from the χ² mixture, with a relative
        error near 1e-13 down to the smallest numbers; otherwise the absolute error is near 1e-14,
        which leaves four digits of a tail probability of 1e-10.
        """
        x = np.asarray(z, dtype=np.float64) / self._scale
        if not _is_plain_gaussian(self.design):
            return self._law.survival(x)
        tail = gaussian_survival(np.abs(x), self.design.dk)
        return np.asarray(np.where(x >= 0, tail, 1 - tail))

    def density(self, z: ArrayLike) -> RealArray:
        """Density of s in the shape of z; large but finite at a logarithmic pole (d = 1, z = 0).

        Raises:
            InputError: both laws are Rademacher: s has no density.
        """
        x = np.asarray(z, dtype=np.float64) / self._scale
        return self._law.density(x) / self._scale

    def quantile(self, level: float) -> float:
        """Smallest z with P(s ≤ z) ≥ level, in units of s.

        For levels from 0.1 % to 99.9 % the relative error is below 1e-11 (1e-9 for two bounded laws
        at d = 2; next to the median the error is relative to the IQR).

        Raises:
            InputError: level outside (0, 1).
        """
        if not 0 < level < 1:
            raise InputError("level", level, "a number between 0 and 1")
        return self._scale * self._quantile(level)

    def iqr(self) -> float:
        """Interquartile range F⁻¹(¾) − F⁻¹(¼), in units of s; finite for every law."""
        return self.quantile(0.75) - self.quantile(0.25)

    def normal_distance(self) -> float:
        """sup_z |P((s − E s)/std(s) ≤ z) − Φ(z)|, the Kolmogorov distance to the normal law.

        Raises:
            InputError: s has no variance.
        """
        mean, std = dot_mean(self.design).value, dot_std(self.design).value
        if mean is None or std is None:
            raise InputError("design", self.design, "components with a variance")
        if isinstance(self._law, LatticeLaw):
            # The largest gap is at an atom, before or after the jump.
            normal = _normal_cdf(self._law.atoms * (self._scale / std))
            below, up_to = self._law.cumulative[:-1], self._law.cumulative[1:]
            return float(np.max(np.maximum(normal - below, up_to - normal)))
        # Log-spaced at first, because the law may be far narrower than its standard deviation.
        half = np.geomspace(1e-9, 30, 400)
        x = np.concatenate([-half[::-1], [0.0], half])
        if mean == 0:  # both laws are symmetric, and so is the gap
            x = x[: half.size]
            far = x[x < _NEAR]
            gap = self._gap(far, mean, std)
            # Nearer to 0 it is at most what F or Φ rises from there to ½.
            least = min(float(self.cdf(std * far[-1])), float(_normal_cdf(far[-1])))
            x, gap = (far, gap) if gap.max() > 0.5 - least else (x, self._gap(x, mean, std))
        else:
            gap = self._gap(x, mean, std)
        for _ in range(3):
            best = int(np.argmax(gap))
            x = np.linspace(x[max(best - 1, 0)], x[min(best + 1, x.size - 1)], 41)
            gap = self._gap(x, mean, std)
        return float(gap.max())

    def _gap(self, x: RealArray, mean: float, std: float) -> RealArray:
        """|P((s − mean)/std ≤ x) − Φ(x)| in the shape of x."""
        return np.abs(self.cdf(mean + std * x) - _normal_cdf(x))


def local_scale_exponents(design: Design, dks: Sequence[int]) -> tuple[float, ...]:
    """Δ ln IQR / Δ ln d between neighbours in dks: the local growth exponents of the scale of s.

    They tend to ½ where the variance exists, and to 1/ν (slowly, with logarithms) for a tail index
    ν < 2. Of `design` everything but dk is used.

    Raises:
        InputError: dks are not at least two different dimensions, or as `DotLaw`.
    """
    log_d, log_iqr = _log_iqrs(design, dks)
    return tuple((np.diff(log_iqr) / np.diff(log_d)).tolist())


def scale_exponent(design: Design, dks: Sequence[int]) -> float:
    """Least-squares slope of ln IQR(s) on ln d over the dimensions dks, from exact quantiles.

    Raises:
        InputError: dks are not at least two different dimensions, or as `DotLaw`.
    """
    log_d, log_iqr = _log_iqrs(design, dks)
    centred = log_d - log_d.mean()
    return float(centred @ log_iqr / (centred @ centred))


def gaussian_survival(z: ArrayLike, dk: int) -> RealArray:
    """P(s > z) for z ≥ 0 and independent N(0,1) components, as a χ² mixture of normals.

    Given q, s ~ N(0, ‖q‖²) with ‖q‖² ~ χ²_d, so P(s > z) = E[½ erfc(z/√(2χ²_d))], by the trapezoid
    rule in y = ln(χ²_d/d). Relatively accurate to about 1e-13, in the far tail as well.

    Args:
        z: points ≥ 0, any shape.
        dk: number of components d.

    Returns:
        Survival probabilities in the shape of z.
    """
    half = dk / 2
    x = np.minimum(np.asarray(z, dtype=np.float64), 800 + 40 * math.sqrt(dk))  # P(s > x) = 0 there
    # The integrand peaks at χ² = w with the width 1/√curvature in y; half of it is step enough.
    far = float(np.max(x, initial=0.0))
    w = half + math.hypot(half, far)
    curvature = (w + far**2 / w) / 2
    step = min(0.2, 0.5 / math.sqrt(curvature))
    lowest = math.ceil((100 / half + 20 / math.sqrt(half)) / step)
    y = step * np.arange(-lowest, math.ceil(8 / step))
    log_weight = half * (y - np.expm1(y))
    # To the left erfc vanishes as well; to the right very small weights make the far tail of s.
    keep = (log_weight > -750) & ((y > 0) | (log_weight > -50))
    weight, root = np.exp(log_weight[keep]), np.sqrt(2 * dk * np.exp(y[keep]))
    return np.asarray(0.5 * (_erfc(np.multiply.outer(x, 1 / root)) @ weight) / weight.sum())


def _standard_law(design: Design) -> StandardLaw:
    """The law for unit scales, by the method that fits the pair of component laws."""
    query, key, d = design.query, design.key, design.dk
    names = {query.distribution, key.distribution}
    kind, _ = dependence(design)
    if names == {"gaussian"}:
        return _gaussian_law(design)
    if kind != "none":
        raise InputError("corr", design.corr, "none: under dependence only Gaussian laws are exact")
    if query.mean != 0 or key.mean != 0:
        raise InputError("mean", (query.mean, key.mean), "0")
    pair = _standard_member(query), _standard_member(key)
    if not names <= set(BOUNDED):
        t, log_cf = _ray_log_cf(*pair)
        return RayLaw(t, (d * log_cf, d * log_cf)).trimmed()
    if names == {"rademacher"}:
        return LatticeLaw(d)
    if d == 1:
        return SingleBoundedLaw(names == {"uniform"})
    limit = d * (3.0 if names == {"uniform"} else math.sqrt(3))
    # |φ(t)| ≤ 0.62/t, so that the terms below 1e-18 can be left out
    terms = math.ceil(0.62 * 10 ** (18 / d) * limit / math.pi)
    t_real = math.pi / limit * np.arange(1, min(terms, _SERIES_TERMS) + 1)
    return SeriesLaw(limit, product_cf(*pair, t_real) ** d)


@lru_cache(maxsize=64)
def _ray_log_cf(query: Component, key: Component) -> tuple[ComplexArray, ComplexArray]:
    """Nodes and ln φ of one product q_a k_a: the part that does not depend on d."""
    tail = min(1.0, tail_index(query), tail_index(key))
    if tail < 0.1:
        raise InputError(
            "df", tail, "at least 0.1: below, quantiles of s leave the range of floats"
        )
    t = ray_nodes(max(_LOWEST / tail, -690.0))  # exp(−690) is the least that is no subnormal
    return t, log_product_cf(query, key, t)


def _gaussian_law(design: Design) -> RayLaw:
    """Gaussian laws, ln φ_s(−t) in closed form, in units of σ_q σ_k.

    Independent, a = μ_q/σ_q, b = μ_k/σ_k: −(d/2) ln(1+t²) − d (i a b t + ½(a²+b²)t²)/(1+t²).
    Correlation matrix R in q and in k: −½ Σ ln(1 + t² λ²) over the eigenvalues λ of R.
    q-k correlation ρ: −(d/2) [ln(1 + i(1+ρ)t) + ln(1 − i(1−ρ)t)].
    """
    kind, rho = dependence(design)
    a, b = design.query.mean / design.query.sigma, design.key.mean / design.key.sigma
    if kind != "none" and (a or b):
        raise InputError("mean", (design.query.mean, design.key.mean), f"0 with corr {kind}")
    mean, std = dot_mean(design).value or 0.0, dot_std(design).value or 0.0
    step = STEP / 4 if mean else STEP
    t, d = ray_nodes(_LOWEST, step), design.dk
    if kind == "qk":
        right, left = (
            -d / 2 * (log1p_complex(1j * (1 + r) * t) + log1p_complex(-1j * (1 - r) * t))
            for r in (rho, -rho)
        )
    else:
        even = -d * (a**2 + b**2) / 2 * t**2 / (1 + t**2)
        for value, count in zip(*correlation_eigenvalues(design), strict=True):
            even -= count / 2 * log1p_complex((value * t) ** 2)
        odd = d * a * b * 1j * t / (1 + t**2)
        right, left = even - odd, even + odd
    scale = design.query.sigma * design.key.sigma
    least = (max(mean - 8 * std, 0) / scale, max(-mean - 8 * std, 0) / scale)
    return RayLaw(t, (right, left), least, step).trimmed()


def _standard_member(component: Component) -> Component:
    return Component(distribution=component.distribution, df=component.df)


def _is_plain_gaussian(design: Design) -> bool:
    laws = (design.query, design.key)
    return dependence(design)[0] == "none" and all(
        law.distribution == "gaussian" and law.mean == 0 for law in laws
    )


def _log_iqrs(design: Design, dks: Sequence[int]) -> tuple[RealArray, RealArray]:
    if not len(set(dks)) == len(dks) >= 2:
        raise InputError("dk", tuple(dks), "at least two different dimensions")
    designs = [Design(dk=d, query=design.query, key=design.key, corr=design.corr) for d in dks]
    iqrs = [DotLaw(one).iqr() for one in designs]
    return np.log(np.asarray(dks, dtype=np.float64)), np.log(np.asarray(iqrs))


def _erfc(x: RealArray) -> RealArray:
    """Complementary error function without scipy.special, whose import alone takes 0.2 s."""
    return np.asarray(np.frompyfunc(math.erfc, 1, 1)(x), dtype=np.float64)


def _normal_cdf(x: RealArray) -> RealArray:
    return 0.5 * _erfc(-x / math.sqrt(2))
