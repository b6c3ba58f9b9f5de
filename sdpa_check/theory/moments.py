"""Exact moments of the dot product s = q·k in closed form (theory.md §1).

All component laws are symmetric about their mean, so a component enters only by its mean μ, its
variance v and its kurtosis κ = E[(x−μ)⁴]/v². Where a moment does not exist the prediction says so
and why; it is never a number.

Under ``ar1`` and ``equi`` dependence q and k are independent with covariances v_q R and v_k R and
the same correlation matrix R. Under ``qk`` the components are pairs with
k_a − μ_k = ρ (σ_k/σ_q) (q_a − μ_q) + √(1−ρ²) z_a, where z_a is a centred copy of the key law; both
laws must be of one family.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check.errors import InputError, unknown_name
from sdpa_check.records import Prediction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.records import Component, Design

_KURTOSIS = {
    "gaussian": 3.0,
    "uniform": 9 / 5,
    "rademacher": 1.0,
    "laplace": 6.0,
    "mixture": 25 / 3,  # 3 (0.9 + 0.1·81) / (0.9 + 0.1·9)²
}
_DEPENDENCE = ("none", "ar1", "equi", "qk")


def tail_index(component: Component) -> float:
    """Index ν of the tail P(|x| > z) ~ z^{−ν}: df for Student t, 1 for Cauchy, ∞ otherwise.

    Raises:
        InputError: unknown distribution, or df missing or unusable.
    """
    name = component.distribution
    if name == "cauchy":
        return 1.0
    if name in _KURTOSIS:
        return math.inf
    if name != "t":
        raise unknown_name("distribution", name, [*_KURTOSIS, "t", "cauchy"])
    least = 2.0 if component.standardize else 0.0
    if component.df is None or not least < component.df < math.inf:
        raise InputError("df", component.df, f"finite degrees of freedom above {least:g}")
    return component.df


def component_variance(component: Component) -> float:
    """Variance of one component: σ² times that of the standard member; ∞ for Cauchy and t(ν ≤ 2).

    Student t: ν/(ν−2) for ν > 2, and 1 if standardised.

    Raises:
        InputError: unknown distribution, sigma ≤ 0, or df missing or unusable.
    """
    if not component.sigma > 0:
        raise InputError("sigma", component.sigma, "a positive number")
    df = tail_index(component)
    if df <= 2:
        return math.inf
    standard = 1.0 if math.isinf(df) or component.standardize else df / (df - 2)
    return component.sigma**2 * standard


def component_kurtosis(component: Component) -> float:
    """Kurtosis E[(x−μ)⁴]/v² of one component; ∞ for t(2 < ν ≤ 4), NaN where the variance is ∞.

    Student t: 3(ν−2)/(ν−4) for ν > 4.

    Raises:
        InputError: unknown distribution, or df missing or unusable.
    """
    df = tail_index(component)
    if math.isinf(df):
        return _KURTOSIS[component.distribution]
    if df <= 2:
        return math.nan
    return 3 * (df - 2) / (df - 4) if df > 4 else math.inf


def dependence(design: Design) -> tuple[str, float]:
    """Kind and coefficient ρ of ``design.corr``: ``("ar1", ρ)``, …, or ``("none", 0.0)`` if ρ = 0.

    Raises:
        InputError: not one of ``none``, ``ar1:ρ``, ``equi:ρ``, ``qk:ρ``, or ρ out of range; or dk
            is below 1.
    """
    if design.dk < 1:
        raise InputError("dk", design.dk, "at least 1")
    kind, _, text = design.corr.partition(":")
    if kind not in _DEPENDENCE:
        raise unknown_name("corr", kind, _DEPENDENCE)
    if kind == "none":
        return kind, 0.0
    least = -1 / (design.dk - 1) if kind == "equi" and design.dk > 1 else -1.0
    try:
        rho = float(text)
    except ValueError:
        rho = math.nan
    if not least <= rho <= 1 or (kind == "ar1" and abs(rho) == 1):
        raise InputError(
            "corr", design.corr, f"{kind}:ρ with {least:g} ≤ ρ ≤ 1, and |ρ| < 1 for ar1"
        )
    return (kind, rho) if rho else ("none", 0.0)


def correlation_eigenvalues(design: Design) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues of the d × d correlation matrix R of q and of k, and their multiplicities.

    AR(1) (Kac, Murdock, Szegő 1953): λ = (1−ρ²)/(1 − 2ρ cos θ + ρ²), where θ_j is the root of
    sin((d+1)θ) − 2ρ sin(dθ) + ρ² sin((d−1)θ) between (j−1)π/(d+1) and jπ/(d+1), for ρ > 0; the
    sign of ρ does not change λ. Equicorrelated: 1 + (d−1)ρ once, 1−ρ for the rest.

    Returns:
        Eigenvalues and multiplicities, both of shape (number of distinct eigenvalues,).

    Raises:
        InputError: ``design.corr`` cannot be read.
    """
    kind, rho = dependence(design)
    d = design.dk
    if kind == "equi":
        return np.array([1 + (d - 1) * rho, 1 - rho]), np.array([1.0, d - 1.0])
    if kind != "ar1":
        return np.ones(1), np.array([float(d)])
    r = abs(rho)
    index = np.arange(1, d + 1)
    low, high = (index - 1) * math.pi / (d + 1), index * math.pi / (d + 1)
    sign_high = np.where(index % 2 == 0, 1.0, -1.0)
    for _ in range(60):
        mid = (low + high) / 2
        value = np.sin((d + 1) * mid) - 2 * r * np.sin(d * mid) + r**2 * np.sin((d - 1) * mid)
        above = value * sign_high > 0
        low, high = np.where(above, low, mid), np.where(above, mid, high)
    # 1 − 2ρ cos θ + ρ² without cancellation at θ → 0, ρ → 1
    denominator = (1 - r) ** 2 + 4 * r * np.sin((low + high) / 4) ** 2
    return (1 - r**2) / denominator, np.ones(d)


def dot_mean(design: Design) -> Prediction:
    """E[q·k] = d μ_q μ_k, plus d ρ √(v_q v_k) under q-k correlation.

    Kind ``none`` where a component has no mean (Cauchy, t(ν ≤ 1)); ``infinite`` under q-k
    correlation of components with a mean and no variance.

    Raises:
        InputError: the design cannot be read.
    """
    q, k, d = design.query, design.key, design.dk
    kind, rho = dependence(design)
    if min(tail_index(q), tail_index(k)) <= 1:
        return _none("E(q·k) is undefined: a component has no mean (Cauchy, or t with df ≤ 1)")
    mean = d * q.mean * k.mean
    if kind != "qk":
        return Prediction(value=mean, kind="exact", source="theory: E(q·k) = d μ_q μ_k")
    if not _same_family(design):
        return _none("no exact form: q-k correlation is defined for equal families only")
    spread = math.sqrt(component_variance(q) * component_variance(k))
    if math.isinf(spread):
        return _infinite("theory: E(q·k) contains ρ E(q²), infinite for df ≤ 2")
    source = "theory: E(q·k) = d (μ_q μ_k + ρ σ_q σ_k)"
    return Prediction(value=mean + d * rho * spread, kind="exact", source=source)


def dot_variance(design: Design) -> Prediction:
    """Var(q·k).

    Independent components: d (v_q v_k + v_q μ_k² + v_k μ_q²). AR(1) and equicorrelated:
    v_q v_k tr(R²) + (v_q μ_k² + v_k μ_q²) 1ᵀR1. q-k correlation ρ, any law of kurtosis κ:
    d [v_q v_k (ρ²(κ−1) + 1 − ρ²) + v_q μ_k² + v_k μ_q² + 2 μ_q μ_k ρ √(v_q v_k)], where the first
    term is 1 + ρ² for Gaussian components.

    Raises:
        InputError: the design cannot be read.
    """
    kind, rho = dependence(design)
    vq, vk = component_variance(design.query), component_variance(design.key)
    if math.isinf(vq) or math.isinf(vk):
        return _infinite("theory: Var(q·k) is infinite: a component has no variance")
    if kind == "qk":
        return _correlated_pair_variance(design, rho, vq, vk)
    square, total = _correlation_sums(design)
    mean_part = vq * design.key.mean**2 + vk * design.query.mean**2
    source = {
        "ar1": "theory: Var(q·k) = tr(Σ_q Σ_k), AR(1)",
        "equi": "theory: Var(q·k) = d σ_q² σ_k² (1 + (d−1)ρ²)",
    }.get(kind, "theory: Var(q·k) = d σ_q² σ_k²")
    if mean_part:
        source = f"{source} + (σ_q² μ_k² + σ_k² μ_q²) 1ᵀR1"
    if mean_part and kind == "none":
        source = "theory: Var(q·k) = d (σ_q² σ_k² + σ_q² μ_k² + σ_k² μ_q²)"
    return Prediction(value=vq * vk * square + mean_part * total, kind="exact", source=source)


def dot_std(design: Design) -> Prediction:
    """Standard deviation of q·k: the square root of `dot_variance`, of the same kind."""
    variance = dot_variance(design)
    if variance.value is None:
        return variance
    source = variance.source.replace("Var(q·k) =", "std(q·k)² =")
    return Prediction(value=math.sqrt(variance.value), kind="exact", source=source)


def dot_excess_kurtosis(design: Design) -> Prediction:
    """Excess kurtosis κ₄/κ₂² of q·k.

    Independent zero-mean components: (κ_q κ_k − 3)/d, whatever the sigmas; with means, from
    q_a k_a − μ_q μ_k = xy + μ_q y + μ_k x. Gaussian and AR(1) or equicorrelated, zero mean:
    6 tr(R⁴)/tr(R²)², from φ(t) = det(I + t² Σ_q Σ_k)^{−1/2}. Gaussian with q-k correlation, zero
    mean: 6 (1 + 6ρ² + ρ⁴) / (d (1+ρ²)²), from φ(t) = [1 − 2iρt + (1−ρ²)t²]^{−d/2}.

    Raises:
        InputError: the design cannot be read.
    """
    kind, rho = dependence(design)
    kurtosis = (component_kurtosis(design.query), component_kurtosis(design.key))
    if any(math.isnan(value) for value in kurtosis):
        return _none("kurtosis is undefined: the variance of q·k is infinite")
    if any(math.isinf(value) for value in kurtosis):
        return _infinite("theory: the fourth moment of a component is infinite (t with df ≤ 4)")
    if kind == "none":
        return _independent_excess_kurtosis(design, *kurtosis)
    names = {design.query.distribution, design.key.distribution}
    if names != {"gaussian"} or design.query.mean != 0 or design.key.mean != 0:
        return _none("no exact form: correlated components need Gaussian laws with zero means")
    if kind == "qk":
        value = 6 * (1 + 6 * rho**2 + rho**4) / (design.dk * (1 + rho**2) ** 2)
        source = "theory: excess kurtosis = 6 (1 + 6ρ² + ρ⁴) / (d (1+ρ²)²)"
        return Prediction(value=value, kind="exact", source=source)
    values, count = correlation_eigenvalues(design)
    value = 6 * float(count @ values**4) / float(count @ values**2) ** 2
    source = "theory: excess kurtosis = 6 tr((Σ_q Σ_k)²) / tr(Σ_q Σ_k)²"
    return Prediction(value=value, kind="exact", source=source)


def within_row_variance(design: Design) -> Prediction:
    """E_q[Var(q·k | q)]: the variance of s among the keys of one row, on average over q.

    Independent: d v_k (v_q + μ_q²). Correlated components: v_k (v_q tr(R²) + μ_q² 1ᵀR1). Under q-k
    correlation the part ρ(σ_k/σ_q)‖q‖² is common to the row, so only (1−ρ²) v_k is left of v_k.

    Raises:
        InputError: the design cannot be read.
    """
    kind, rho = dependence(design)
    vq, vk = component_variance(design.query), component_variance(design.key)
    if kind == "qk" and not _same_family(design):
        return _none("no exact form: q-k correlation is defined for equal families only")
    if math.isinf(vq) or math.isinf(vk):
        return _infinite("theory: a component has no variance, so the row has none on average")
    square, total = _correlation_sums(design)
    own = 1 - rho**2 if kind == "qk" else 1.0
    value = own * vk * (vq * square + design.query.mean**2 * total)
    source = {
        "none": "theory: E Var(q·k | q) = d σ_k² (σ_q² + μ_q²)",
        "qk": "theory: E Var(q·k | q) = d (1−ρ²) σ_k² (σ_q² + μ_q²)",
    }.get(kind, "theory: E Var(q·k | q) = tr(Σ_k (Σ_q + μ_q μ_qᵀ))")
    return Prediction(value=value, kind="exact", source=source)


def shared_pairs_relative_variance(design: Design, n: int, m: int) -> float:
    """Relative variance of the estimator (1/nm) Σ_ij (q_i·k_j)² of Var(q·k) (performance.md §2).

    Hoeffding decomposition for n queries and m keys that share all n·m pairs, independent zero-mean
    components: [(κ_q−1)/n + (κ_k−1)/m]/d + [2 + (κ_q κ_k − κ_q − κ_k − 1)/d]/(nm).

    Args:
        design: independent components with zero means.
        n: number of queries, ≥ 1.
        m: number of keys, ≥ 1.

    Returns:
        Var(estimate)/Var(q·k)²; ∞ where a component has no fourth moment.

    Raises:
        InputError: the components have means or are correlated, or n or m is below 1.
    """
    if n < 1 or m < 1:
        raise InputError("shared pairs", (n, m), "at least one query and one key")
    if dependence(design)[0] != "none" or design.query.mean != 0 or design.key.mean != 0:
        raise InputError("corr", design.corr, "independent components with zero means")
    kq, kk = component_kurtosis(design.query), component_kurtosis(design.key)
    if not (math.isfinite(kq) and math.isfinite(kk)):
        return math.inf
    single = ((kq - 1) / n + (kk - 1) / m) / design.dk
    return single + (2 + (kq * kk - kq - kk - 1) / design.dk) / (n * m)


def _same_family(design: Design) -> bool:
    q, k = design.query, design.key
    return (q.distribution, q.df, q.standardize) == (k.distribution, k.df, k.standardize)


def _correlation_sums(design: Design) -> tuple[float, float]:
    """tr(R²) and 1ᵀR1 of the correlation matrix R within q and within k."""
    kind, rho = dependence(design)
    d = design.dk
    if kind == "equi":
        return d * (1 + (d - 1) * rho**2), d * (1 + (d - 1) * rho)
    if kind != "ar1":
        return float(d), float(d)
    lag = np.arange(1, d)
    square = d + 2 * float(np.sum((d - lag) * (rho**2) ** lag))
    return square, d + 2 * float(np.sum((d - lag) * rho**lag))


def _correlated_pair_variance(design: Design, rho: float, vq: float, vk: float) -> Prediction:
    if not _same_family(design):
        return _none("no exact form: q-k correlation is defined for equal families only")
    kurtosis = component_kurtosis(design.query)
    if math.isinf(kurtosis):
        return _infinite("theory: Var(q·k) contains ρ² E(q⁴), infinite for df ≤ 4")
    mq, mk = design.query.mean, design.key.mean
    product = vq * vk * (rho**2 * (kurtosis - 1) + 1 - rho**2)
    with_means = vq * mk**2 + vk * mq**2 + 2 * mq * mk * rho * math.sqrt(vq * vk)
    source = "theory: Var(q·k) = d σ_q² σ_k² (ρ²(κ−1) + 1 − ρ²)"
    if mq or mk:
        source += " + d (σ_q² μ_k² + σ_k² μ_q² + 2 ρ μ_q μ_k σ_q σ_k)"
    return Prediction(value=design.dk * (product + with_means), kind="exact", source=source)


def _independent_excess_kurtosis(design: Design, kq: float, kk: float) -> Prediction:
    """(m₄/m₂² − 3)/d with the central moments m of xy + a y + b x, a = μ_q, b = μ_k."""
    vq, vk = component_variance(design.query), component_variance(design.key)
    a, b = design.query.mean**2 / vq, design.key.mean**2 / vk
    second = 1 + a + b
    fourth = kq * kk + a**2 * kk + b**2 * kq + 6 * (a * kk + b * kq + a * b)
    source = "theory: excess kurtosis = (κ_q κ_k − 3)/d"
    if a or b:
        source = "theory: excess kurtosis = (m₄/m₂² − 3)/d of q_a k_a"
    value = (fourth / second**2 - 3) / design.dk
    return Prediction(value=value, kind="exact", source=source)


def _infinite(source: str) -> Prediction:
    return Prediction(value=None, kind="infinite", source=source)


def _none(source: str) -> Prediction:
    return Prediction(value=None, kind="none", source=source)
