"""Closed-form moments of q·k against exact enumeration, dense matrices and one simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from sdpa_check.errors import InputError
from sdpa_check.records import Component, Design
from sdpa_check.theory.moments import (
    component_kurtosis,
    component_variance,
    correlation_eigenvalues,
    dot_excess_kurtosis,
    dot_mean,
    dot_std,
    dot_variance,
    shared_pairs_relative_variance,
    tail_index,
    within_row_variance,
)

FINITE = [
    Component(distribution="gaussian", sigma=1.3),
    Component(distribution="uniform", sigma=0.7),
    Component(distribution="rademacher", sigma=2.0),
    Component(distribution="laplace"),
    Component(distribution="mixture", sigma=0.4),
    Component(distribution="t", df=7.0, sigma=1.1),
    Component(distribution="t", df=9.0, standardize=True),
]


def with_mean(component, mean):
    return Component(
        distribution=component.distribution,
        df=component.df,
        sigma=component.sigma,
        standardize=component.standardize,
        mean=mean,
    )


def three_points(component):
    """Nodes and weights of a three-point law with the same moments up to the fifth.

    Zero with weight 1 − 1/κ and ±√(κ v) with 1/(2κ) each have variance v and kurtosis κ.
    """
    kurtosis = component_kurtosis(component)
    size = math.sqrt(kurtosis * component_variance(component))
    nodes = component.mean + np.array([-size, 0.0, size])
    return nodes, np.array([0.5 / kurtosis, 1 - 1 / kurtosis, 0.5 / kurtosis])


def cumulants(values, weights):
    """Mean, variance and excess kurtosis of a discrete law."""
    mean = weights @ values
    second, fourth = weights @ (values - mean) ** 2, weights @ (values - mean) ** 4
    return mean, second, fourth / second**2 - 3


def pair_cumulants(query, key, rho=0.0):
    """The same of one product q_a k_a, by enumeration of the three-point laws."""
    (q, wq), (k, wk) = three_points(query), three_points(key)
    ratio = rho * key.sigma / query.sigma
    keys = key.mean + ratio * (q - query.mean)[:, None] + math.sqrt(1 - rho**2) * (k - key.mean)
    return cumulants((q[:, None] * keys).ravel(), np.outer(wq, wk).ravel())


@pytest.mark.parametrize("component", FINITE, ids=lambda c: f"{c.distribution}{c.df or ''}")
def test_component_moments_agree_with_scipy(component):
    a = 1 / math.sqrt(1.8)
    frozen = {
        "gaussian": stats.norm(),
        "uniform": stats.uniform(-math.sqrt(3), 2 * math.sqrt(3)),
        "laplace": stats.laplace(scale=1 / math.sqrt(2)),
        "t": stats.t(component.df or 1),
    }
    if component.distribution in frozen:
        variance, excess = frozen[component.distribution].stats(moments="vk")
    elif component.distribution == "mixture":
        variance = 0.9 * a**2 + 0.1 * 9 * a**2
        excess = 3 * (0.9 * a**4 + 0.1 * 81 * a**4) / variance**2 - 3
    else:
        variance, excess = 1.0, -2.0
    if component.standardize:
        variance = 1.0
    assert component_variance(component) == pytest.approx(variance * component.sigma**2, rel=1e-12)
    assert component_kurtosis(component) == pytest.approx(excess + 3, rel=1e-12)


@pytest.mark.parametrize(
    ("design", "mean", "variance"),
    [
        (Design(dk=64), 0, 64),
        (Design(dk=64, corr="ar1:0.5"), 0, 105.778),
        (Design(dk=64, corr="ar1:0.9"), 0, 564.809),
        (Design(dk=64, corr="equi:0.5"), 0, 1072),
        (Design(dk=64, query=Component(mean=0.5), key=Component(mean=0.2)), 6.4, 82.56),
        (Design(dk=64, corr="qk:0.3"), 19.2, 69.76),
    ],
)
def test_printed_check_values(design, mean, variance):
    assert dot_mean(design).value == pytest.approx(mean, abs=1e-12)
    assert dot_variance(design).value == pytest.approx(variance, abs=5.0001e-4)
    assert dot_std(design).value == pytest.approx(math.sqrt(dot_variance(design).value), rel=1e-15)
    assert dot_mean(design).kind == dot_variance(design).kind == dot_std(design).kind == "exact"


def test_printed_excess_kurtosis_and_row_variance():
    assert dot_excess_kurtosis(Design(dk=64)).value == 0.09375
    design = Design(dk=64, query=Component(mean=0.5), key=Component(mean=0.2))
    assert within_row_variance(design).value == pytest.approx(80, rel=1e-15)


@pytest.mark.parametrize(("mu_q", "mu_k"), [(0.0, 0.0), (0.5, -0.2), (0.0, 1.0)])
@pytest.mark.parametrize(("query", "key"), list(itertools.product(FINITE[:4], FINITE[3:])))
def test_independent_components_by_enumeration(query, key, mu_q, mu_k):
    query, key, d = with_mean(query, mu_q), with_mean(key, mu_k), 5
    design = Design(dk=d, query=query, key=key)
    mean, variance, excess = pair_cumulants(query, key)
    assert dot_mean(design).value == pytest.approx(d * mean, abs=1e-12)
    assert dot_variance(design).value == pytest.approx(d * variance, rel=1e-12)
    assert dot_excess_kurtosis(design).value == pytest.approx(excess / d, rel=1e-10, abs=1e-12)
    kurtosis = component_kurtosis(query) * component_kurtosis(key)
    if mu_q == mu_k == 0:
        assert excess / d == pytest.approx((kurtosis - 3) / d, abs=1e-12)


@pytest.mark.parametrize("rho", [-0.9, 0.3, 0.99])
@pytest.mark.parametrize(("mu_q", "mu_k"), [(0.0, 0.0), (0.5, -0.2)])
@pytest.mark.parametrize("law", FINITE, ids=lambda c: f"{c.distribution}{c.df or ''}")
def test_query_key_correlation_by_enumeration(law, mu_q, mu_k, rho):
    query = with_mean(law, mu_q)
    key = Component(
        distribution=law.distribution, df=law.df, sigma=0.6, standardize=law.standardize, mean=mu_k
    )
    design = Design(dk=3, query=query, key=key, corr=f"qk:{rho}")
    mean, variance, _ = pair_cumulants(query, key, rho)
    assert dot_mean(design).value == pytest.approx(3 * mean, rel=1e-12)
    assert dot_variance(design).value == pytest.approx(3 * variance, rel=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "uniform"])
def test_query_key_correlation_by_simulation(name):
    # z ≤ 5 twice per law: false-alarm rate 6 × 5.7e-7 = 3.4e-6 under correct code. Seed fixed.
    rng = np.random.default_rng(20240501)
    draw = {
        "gaussian": lambda n: rng.standard_normal((n, 4)),
        "laplace": lambda n: rng.laplace(scale=math.sqrt(0.5), size=(n, 4)),
        "uniform": lambda n: rng.uniform(-math.sqrt(3), math.sqrt(3), (n, 4)),
    }[name]
    n, rho = 200_000, 0.6
    q, z = draw(n), draw(n)
    s = np.sum(q * (rho * 0.5 * q + math.sqrt(1 - rho**2) * 0.5 * z), axis=1)
    component = Component(distribution=name)
    half = Component(distribution=name, sigma=0.5)
    design = Design(dk=4, query=component, key=half, corr=f"qk:{rho}")
    mean, variance = dot_mean(design).value, dot_variance(design).value
    squares = (s - mean) ** 2
    assert abs(s.mean() - mean) < 5 * s.std() / math.sqrt(n)
    assert abs(squares.mean() - variance) < 5 * squares.std() / math.sqrt(n)


def dense(kind, rho, d):
    index = np.arange(d)
    if kind == "ar1":
        return rho ** np.abs(index[:, None] - index).astype(float)
    return np.where(index[:, None] == index, 1.0, rho)


CORRELATED = [("ar1", 0.5), ("ar1", -0.7), ("ar1", 0.999), ("equi", 0.5), ("equi", -0.04)]


@pytest.mark.parametrize("d", [1, 2, 3, 24])
@pytest.mark.parametrize(("kind", "rho"), CORRELATED)
def test_correlated_components_against_dense_matrices(kind, rho, d):
    R = dense(kind, rho, d)
    query, key = Component(sigma=1.5), Component(sigma=0.4)
    design = Design(dk=d, query=query, key=key, corr=f"{kind}:{rho}")
    A = 1.5**2 * R @ (0.4**2 * R)
    assert dot_variance(design).value == pytest.approx(np.trace(A), rel=1e-11)
    excess = 6 * np.trace(A @ A) / np.trace(A) ** 2
    assert dot_excess_kurtosis(design).value == pytest.approx(excess, rel=1e-9)
    values, counts = correlation_eigenvalues(design)
    repeated = np.sort(np.repeat(values, counts.astype(int)))
    assert repeated == pytest.approx(np.linalg.eigvalsh(R), rel=1e-9, abs=1e-12 * d)
    shifted = Design(dk=d, query=with_mean(query, 0.5), key=with_mean(key, -2.0), corr=design.corr)
    extra = (1.5**2 * 4 + 0.4**2 * 0.25) * R.sum()
    assert dot_variance(shifted).value == pytest.approx(np.trace(A) + extra, rel=1e-11)
    row = 0.4**2 * (1.5**2 * np.trace(R @ R) + 0.25 * R.sum())
    assert within_row_variance(shifted).value == pytest.approx(row, rel=1e-11)


@pytest.mark.parametrize("corr", ["equi:0.4", "ar1:-0.6", "qk:0.7"])
def test_excess_kurtosis_of_dependent_gaussians_by_exact_quadrature(corr):
    # Nine Gauss-Hermite nodes integrate polynomials up to degree 17 exactly; s⁴ has degree 8.
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    weights = weights / weights.sum()
    rho = float(corr.split(":")[1])
    x1, x2, y1, y2 = np.meshgrid(nodes, nodes, nodes, nodes, indexing="ij")
    if corr.startswith("qk"):
        root = math.sqrt(1 - rho**2)
        s = x1 * (rho * x1 + root * y1) + x2 * (rho * x2 + root * y2)
    else:
        root = math.sqrt(1 - rho**2)
        s = x1 * y1 + (rho * x1 + root * x2) * (rho * y1 + root * y2)
    weight = np.einsum("i,j,k,l->ijkl", weights, weights, weights, weights)
    mean, variance, excess = cumulants(s.ravel(), weight.ravel())
    design = Design(dk=2, corr=corr)
    assert dot_mean(design).value == pytest.approx(mean, abs=1e-12)
    assert dot_variance(design).value == pytest.approx(variance, rel=1e-12)
    assert dot_excess_kurtosis(design).value == pytest.approx(excess, rel=1e-11)


@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 2), (2, 1, 2), (1, 3, 1), (2, 2, 2)])
@pytest.mark.parametrize(("query", "key"), [(FINITE[0], FINITE[0]), (FINITE[1], FINITE[3])])
def test_shared_pairs_formula_by_enumeration(query, key, n, m, d):
    # The square of the estimator has degree 4 in each component: the three-point laws are exact.
    (xq, wq), (xk, wk) = three_points(query), three_points(key)
    iq = np.array(list(itertools.product(range(3), repeat=n * d)))
    ik = np.array(list(itertools.product(range(3), repeat=m * d)))
    Q, K = xq[iq].reshape(-1, n, d), xk[ik].reshape(-1, m, d)
    estimates = np.mean(np.einsum("and,bmd->abnm", Q, K) ** 2, axis=(2, 3))
    weight = np.outer(wq[iq].prod(axis=1), wk[ik].prod(axis=1))
    mean = np.sum(weight * estimates)
    relative = np.sum(weight * (estimates - mean) ** 2) / mean**2
    design = Design(dk=d, query=query, key=key)
    assert mean == pytest.approx(dot_variance(design).value, rel=1e-12)
    assert shared_pairs_relative_variance(design, n, m) == pytest.approx(relative, rel=1e-10)


def test_shared_pairs_gaussian_form_and_missing_fourth_moment():
    n, m, d = 512, 300, 64
    gaussian = 2 / d * (1 / n + 1 / m) + (2 + 2 / d) / (n * m)
    assert shared_pairs_relative_variance(Design(dk=d), n, m) == pytest.approx(gaussian, rel=1e-13)
    for df in (4.0, 1.5):
        heavy = Design(dk=d, query=Component(distribution="t", df=df))
        assert shared_pairs_relative_variance(heavy, n, m) == math.inf


def kinds(design):
    functions = (dot_mean, dot_variance, dot_std, dot_excess_kurtosis, within_row_variance)
    return [function(design).kind for function in functions]


T = {df: Component(distribution="t", df=df) for df in (0.9, 1.5, 2.0, 3.0, 5.0)}
CAUCHY = Component(distribution="cauchy")


@pytest.mark.parametrize(
    ("query", "key", "corr", "want"),
    [
        (CAUCHY, Component(), "none", ["none", "infinite", "infinite", "none", "infinite"]),
        (T[0.9], T[0.9], "none", ["none", "infinite", "infinite", "none", "infinite"]),
        (T[1.5], T[1.5], "none", ["exact", "infinite", "infinite", "none", "infinite"]),
        (Component(), T[2.0], "none", ["exact", "infinite", "infinite", "none", "infinite"]),
        (T[3.0], T[3.0], "none", ["exact", "exact", "exact", "infinite", "exact"]),
        (T[5.0], T[5.0], "none", ["exact"] * 5),
        (T[1.5], T[1.5], "qk:0.5", ["infinite", "infinite", "infinite", "none", "infinite"]),
        (T[3.0], T[3.0], "qk:0.5", ["exact", "infinite", "infinite", "infinite", "exact"]),
        (T[3.0], T[3.0], "qk:0", ["exact", "exact", "exact", "infinite", "exact"]),
        (T[5.0], T[5.0], "ar1:0.5", ["exact", "exact", "exact", "none", "exact"]),
        (T[5.0], Component(), "qk:0.5", ["none", "none", "none", "none", "none"]),
    ],
)
def test_kinds_where_moments_do_not_exist(query, key, corr, want):
    design = Design(dk=8, query=query, key=key, corr=corr)
    assert kinds(design) == want
    for function in (dot_mean, dot_variance, dot_std, dot_excess_kurtosis, within_row_variance):
        prediction = function(design)
        assert prediction.source
        assert (prediction.value is None) == (prediction.kind != "exact")


def test_row_variance_under_query_key_correlation():
    # Given q, only √(1−ρ²) z_a varies from key to key: d (1−ρ²) σ_k² σ_q².
    design = Design(dk=10, query=Component(sigma=2.0), key=Component(sigma=3.0), corr="qk:0.6")
    assert within_row_variance(design).value == pytest.approx(10 * 0.64 * 9 * 4, rel=1e-14)


def test_tail_index():
    assert tail_index(CAUCHY) == 1
    assert tail_index(T[3.0]) == 3
    assert tail_index(Component(distribution="laplace")) == math.inf


@pytest.mark.parametrize(
    "design",
    [
        Design(dk=4, query=Component(distribution="gausian")),
        Design(dk=4, query=Component(distribution="t")),
        Design(dk=4, query=Component(distribution="t", df=0.0)),
        Design(dk=4, query=Component(distribution="t", df=2.0, standardize=True)),
        Design(dk=4, query=Component(sigma=0.0)),
        Design(dk=4, corr="ar2:0.5"),
        Design(dk=4, corr="ar1:1"),
        Design(dk=4, corr="ar1:nan"),
        Design(dk=4, corr="qk:x"),
        Design(dk=4, corr="equi:-0.5"),
        Design(dk=0),
    ],
)
def test_unusable_designs_are_refused(design):
    with pytest.raises(InputError):
        dot_variance(design)


@pytest.mark.parametrize(
    ("design", "n"),
    [
        (Design(dk=4, corr="qk:0.5"), 8),
        (Design(dk=4, query=Component(mean=1.0)), 8),
        (Design(dk=4), 0),
    ],
)
def test_shared_pairs_outside_their_formula(design, n):
    with pytest.raises(InputError):
        shared_pairs_relative_variance(design, n, 8)
