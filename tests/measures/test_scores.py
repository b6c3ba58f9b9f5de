"""Scores of queries and keys: every pair has the law that its design asks for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check.distributions import draw, parse_dependence
from sdpa_check.measures import scores
from sdpa_check.records import Component, Design, Fault

NONE = Fault()
EPS64 = 2.0**-52


def component(name="gaussian", **kwargs):
    return Component(distribution=name, **kwargs)


PLAIN = Design(dk=5)
MEANS = Design(
    dk=5,
    query=component(mean=0.5, sigma=2.0),
    key=component("uniform", mean=-0.25, sigma=0.5),
)
AR1 = Design(dk=5, query=component(mean=0.1), key=component(mean=0.2), corr="ar1:0.5")


@pytest.mark.parametrize(
    ("design", "dtype"),
    [
        (PLAIN, np.float32),
        (Design(dk=5, corr="qk:0.3"), np.float32),
        (MEANS, np.float64),
        (Design(dk=5, key=component(mean=1.0)), np.float64),
        (Design(dk=5, key=component("cauchy")), np.float32),
        (Design(dk=5, key=component("cauchy", mean=0.5)), np.float64),
        (Design(dk=5, query=component("t", df=1.5)), np.float32),
        (Design(dk=5, query=component("t", df=1)), np.float32),
        (Design(dk=5, query=component("t", df=0.999)), np.float64),
        (Design(dk=5, key=component("t", df=0.7)), np.float64),
        (Design(dk=5, query=component("cauchy"), key=component("t", df=0.7)), np.float64),
    ],
)
def test_precision(design, dtype):
    assert scores.precision(design) is dtype
    generator = np.random.default_rng(0)
    assert scores.vectors(generator, design, design.query, 3, NONE).dtype == dtype


@pytest.mark.parametrize(
    ("corr", "df", "df_k", "index"),
    [
        ("none", 3.0, 5.0, 3.0),
        ("none", 5.0, 3.0, 3.0),
        ("equi:0.5", 3.0, 3.0, 3.0),
        ("qk:0.5", 3.0, 3.0, 1.5),
        ("qk:-1", 3.0, 3.0, 1.5),
        ("qk:0", 3.0, 3.0, 3.0),
        ("qk:0.5", 9.0, 2.0, 2.0),
    ],
)
def test_a_key_that_follows_its_query_brings_its_square(corr, df, df_k, index):
    query, key = component("t", df=df), component("t", df=df_k)
    assert scores.tail_index(Design(dk=5, query=query, key=key, corr=corr)) == index


def test_the_tail_of_a_correlated_pair_has_half_the_index():
    """Hill's estimate from the largest thousandth of 2^22 pairs, d = 1: within 5 of its errors.

    The bias of s = 0.9 q² + … at that depth is below 5 %. False-alarm rate 6e-7.
    """
    design = Design(dk=1, query=component("t", df=2.0), key=component("t", df=2.0), corr="qk:0.9")
    generator = np.random.default_rng(5)
    q = scores.vectors(generator, design, design.query, 1 << 22, NONE).astype(float)[0]
    z = scores.vectors(generator, design, design.key, 1 << 22, NONE).astype(float)[0]
    top = np.sort(np.abs(q * (0.9 * q + math.sqrt(1 - 0.81) * z)))[-4196:]
    found = 1 / np.log(top[1:] / top[0]).mean()
    assert abs(found - scores.tail_index(design)) < 0.05 + 5 / math.sqrt(4195)


@pytest.mark.parametrize("design", [PLAIN, MEANS, AR1, Design(dk=5, corr="equi:0.2")])
def test_vectors_are_those_of_the_law(design):
    found = scores.vectors(np.random.default_rng(1), design, design.query, 7, NONE)
    right = draw(
        np.random.default_rng(1),
        design.query,
        parse_dependence(design.corr),
        dk=5,
        n=7,
        dtype=scores.precision(design),
    )
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("design", [PLAIN, MEANS, AR1])
def test_a_fault_widens_every_component(design):
    right, wide = (
        scores.vectors(np.random.default_rng(1), design, design.query, 7, fault)
        for fault in (NONE, Fault(sample_scale=1.5))
    )
    np.testing.assert_array_equal(wide, right * np.float32(1.5))


@pytest.mark.parametrize(
    ("design", "right"),
    [
        (Design(dk=64, corr="equi:0.3"), True),
        (Design(dk=64, corr="equi:0.1"), True),
        (Design(dk=64, corr="equi:0.05"), False),
        (Design(dk=64, corr="equi:-0.01"), False),
        (Design(dk=64, corr="ar1:0.99"), False),
        (Design(dk=64), False),
        (Design(dk=64, key=component("laplace"), corr="equi:0.3"), False),
        (Design(dk=64, query=component("uniform"), corr="equi:0.3"), False),
    ],
)
def test_where_one_number_of_each_vector_rules(design, right):
    assert scores.has_common_factor(design) is right


@pytest.mark.parametrize("mean", [0.0, 0.5])
def test_vectors_of_given_common_factors(mean):
    """Σ(x − μ)/√d is √λ σ w, with λ = 1 + (d − 1)ρ."""
    law = component(mean=mean, sigma=2.0)
    design, w = Design(dk=5, query=law, corr="equi:0.2"), np.array([-2.0, 0.0, 0.5, 3.0])
    x = scores.vectors(np.random.default_rng(1), design, law, 4, NONE, common=w)
    along = (x - mean).sum(axis=0) / math.sqrt(5)
    np.testing.assert_allclose(along, math.sqrt(1.8) * 2 * w, rtol=0, atol=1e-5)


HEAVY = [component("cauchy"), component("t", df=1.0), component("t", df=1.5)]


@pytest.mark.parametrize("dk", [1, 4, 64])
@pytest.mark.parametrize("law", HEAVY, ids=["cauchy", "t(1)", "t(1.5)"])
def test_float32_is_enough_for_the_quantiles_of_heavy_tails(law, dk):
    """Scores of the same vectors in both precisions have the same quantiles, up to rounding.

    A score of float32 is off by dk · eps · Σ|q_a k_a| at most, dk roundings of half a unit in the
    products and as many in the sum. Moving every score by no more than that leaves each order
    statistic between those of the scores moved down and up. These differ by no more than a
    hundredth of the band of 1 % to which quantiles are held.
    """
    design, n = Design(dk=dk, query=law, key=law), 1024
    generator, eps = np.random.default_rng(5), 2.0**-23
    q, k = (scores.vectors(generator, design, law, n, NONE) for _ in range(2))
    assert q.dtype == k.dtype == np.float32
    single = scores.products(design, q, k, NONE)
    assert single.dtype == np.float32
    q, k = q.astype(np.float64), k.astype(np.float64)
    double, size = q.T @ k, np.abs(q).T @ np.abs(k)
    off = dk * eps * size
    levels = [0.001, 0.05, 0.25, 0.5, 0.75, 0.95, 0.999]
    found, low, high = (np.quantile(s, levels) for s in (single, double - off, double + off))
    assert (low <= found).all()
    assert (found <= high).all()
    iqr = found[4] - found[2]
    assert (high - low < 1e-4 * np.maximum(np.abs(found), iqr)).all()


def pair_by_pair(design, q, k, rho):
    """Every score from its own key, in a loop."""
    mu_q, mu_k = design.query.mean, design.key.mean
    ratio = design.key.sigma / design.query.sigma
    out = np.empty((q.shape[1], k.shape[1]))
    for i in range(q.shape[1]):
        for j in range(k.shape[1]):
            total = 0.0
            for a in range(len(q)):
                z = k[a, j] - mu_k
                own = mu_k + rho * ratio * (q[a, i] - mu_q) + math.sqrt(1 - rho**2) * z
                key = own if rho else k[a, j]
                total += q[a, i] * key
            out[i, j] = total
    return out


@pytest.mark.parametrize("rho", [0.0, 0.3, -0.8, 1.0])
@pytest.mark.parametrize("design", [PLAIN, MEANS])
def test_products_twin(design, rho):
    corr = f"qk:{rho}" if rho else "none"
    design = Design(dk=5, query=design.query, key=design.key, corr=corr)
    g = np.random.default_rng(2)
    q = design.query.mean + design.query.sigma * g.standard_normal((5, 6))
    k = design.key.mean + design.key.sigma * g.standard_normal((5, 4))
    before = q.copy(), k.copy()
    found = scores.products(design, q, k, NONE)
    np.testing.assert_allclose(found, pair_by_pair(design, q, k, rho), rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(q, before[0])
    np.testing.assert_array_equal(k, before[1])


@pytest.mark.parametrize("corr", ["none", "qk:0.4"])
@pytest.mark.parametrize("design", [PLAIN, MEANS])
def test_a_fault_multiplies_every_score_by_its_square(design, corr):
    """Means are widened too, also where ``qk`` takes them out and puts them back."""
    design = Design(dk=5, query=design.query, key=design.key, corr=corr)
    g = np.random.default_rng(3)
    q, k = g.standard_normal((5, 6)), g.standard_normal((5, 4))
    right = scores.products(design, q, k, NONE)
    wide = scores.products(design, 1.5 * q, 1.5 * k, Fault(sample_scale=1.5))
    np.testing.assert_allclose(wide, 2.25 * right, rtol=0, atol=64 * EPS64 * np.abs(right).max())


@pytest.mark.parametrize(
    ("design", "right"),
    [
        (PLAIN, 0.0),
        (MEANS, 5 * 0.5 * -0.25),
        (Design(dk=64, query=component(sigma=2.0), corr="qk:0.3"), 64 * 0.3 * 2),
        (Design(dk=64, query=component(mean=0.5), key=component(mean=0.2), corr="ar1:0.9"), 6.4),
    ],
)
def test_pivot_is_the_mean(design, right):
    assert scores.pivot(design) == pytest.approx(right, rel=4 * EPS64)


def test_qk_pairs_have_the_joint_law():
    """Correlation ρ and variances of q_a and k_a within each pair, over n independent pairs.

    The sample correlation has the standard error (1 − ρ²)/√n and a sample variance √(2/n) of the
    variance: 5.5 standard errors, a false-alarm rate of 4e-8 each; the seed is fixed. The key of a
    pair shows in its scores with unit queries.
    """
    n, rho = 20_000, 0.6
    design = Design(dk=1, query=component(sigma=2.0), key=component(sigma=3.0), corr=f"qk:{rho}")
    generator = np.random.default_rng(4)
    q = scores.vectors(generator, design, design.query, n, NONE)
    z = scores.vectors(generator, design, design.key, n, NONE)
    s = np.concatenate(
        [scores.products(design, q[:, [i]], z[:, [i]], NONE).ravel() for i in range(n)]
    )
    q, k = q.ravel().astype(float), s.astype(float) / q.ravel()
    assert abs(np.corrcoef(q, k)[0, 1] - rho) < 5.5 * (1 - rho**2) / math.sqrt(n)
    assert abs(np.var(q) / 4 - 1) < 5.5 * math.sqrt(2 / n)
    assert abs(np.var(k) / 9 - 1) < 5.5 * math.sqrt(2 / n)
