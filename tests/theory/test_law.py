"""The exact law of q·k against printed values, closed forms, other quadratures and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from sdpa_check.errors import InputError
from sdpa_check.records import Component, Design
from sdpa_check.theory.law import (
    DotLaw,
    gaussian_survival,
    local_scale_exponents,
    scale_exponent,
)

ROOT3 = math.sqrt(3)
LEVELS = (0.001, 0.01, 0.1, 0.25, 0.45, 0.75, 0.9, 0.99, 0.999)
LAWS = ("gaussian", "uniform", "rademacher", "laplace", "mixture", "t", "cauchy")


def law(query, d, key=None, df=None, **keywords):
    """DotLaw of d independent products; a tuple names a Student t: ("t", df)."""
    first = component(query)
    return DotLaw(Design(dk=d, query=first, key=component(key) if key else first, **keywords))


def component(spec):
    return (
        Component(distribution="t", df=spec[1])
        if isinstance(spec, tuple)
        else Component(distribution=spec)
    )


# --- printed values -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "d", "upper_quartile", "ninety", "unit"),
    [
        ("cauchy", 4, 7.6318, 34.256, (1e-4, 1e-3)),
        ("cauchy", 64, 249.839, 945.735, (1e-3, 1e-3)),
        (("t", 3.0), 4, 1.9479, 4.6924, (1e-4, 1e-4)),
        (("t", 3.0), 64, 12.915, 25.873, (1e-3, 1e-3)),
        (("t", 1.5), 64, 48.99, 124.08, (1e-2, 1e-2)),
        (("t", 5.0), 64, 8.542, 16.557, (1e-3, 1e-3)),
    ],
)
def test_printed_quantiles(spec, d, upper_quartile, ninety, unit):
    one = law(spec, d)
    assert one.quantile(0.75) == pytest.approx(upper_quartile, abs=0.5001 * unit[0])
    assert one.quantile(0.9) == pytest.approx(ninety, abs=0.5001 * unit[1])
    assert one.iqr() == pytest.approx(2 * one.quantile(0.75), rel=1e-12)


@pytest.mark.parametrize(
    ("spec", "exponents"),
    [
        ("cauchy", (1.300, 1.216, 1.166, 1.133, 1.111)),
        (("t", 1.5), (0.985, 0.881, 0.822, 0.786, 0.762)),
        (("t", 2.0), (0.851, 0.739, 0.676, 0.638, 0.613)),
        (("t", 3.0), (0.738, 0.627, 0.570, 0.540, 0.523)),
        (("t", 5.0), (0.664, 0.565, 0.525, 0.509, 0.503)),
    ],
)
def test_printed_scale_exponents(spec, exponents):
    # Two digits were printed after rounding twice: 0.6765 → .677 and 0.6645 → .665.
    design = Design(dk=1, query=component(spec), key=component(spec))
    dks = (4, 16, 64, 256, 1024, 4096)
    local = local_scale_exponents(design, dks)
    assert local == pytest.approx(exponents, abs=0.50001e-3)
    # Equal steps in ln d: the slope is the mean of the local exponents with weights i (6 − i).
    weights = np.array([5, 8, 9, 8, 5])
    assert scale_exponent(design, dks) == pytest.approx(weights @ local / 35, rel=1e-12)


@pytest.mark.parametrize(
    ("d", "distance", "unit"),
    [
        (1, 0.10753, 1e-5),
        (2, 0.06202, 1e-5),
        (4, 0.03331, 1e-5),
        (8, 0.01710, 1e-5),
        (16, 0.00860, 1e-5),
        (64, 0.00215, 1e-5),
        (512, 0.000269, 1e-6),
    ],
)
def test_printed_normal_distances(d, distance, unit):
    assert law("gaussian", d).normal_distance() == pytest.approx(distance, abs=0.5001 * unit)


@pytest.mark.parametrize(("d", "tail"), [(64, 0.003304), (512, 0.002777), (4096, 0.002710)])
def test_printed_tail_probabilities(d, tail):
    one = law("gaussian", d)
    z = 3 * math.sqrt(d)
    assert 2 * float(one.survival(z)) == pytest.approx(tail, abs=0.5001e-6)
    assert float(one.cdf(-z) + one.survival(z)) == pytest.approx(tail, abs=0.5001e-6)


@pytest.mark.parametrize("means", [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (1.0, -1.0)])
def test_the_normal_distance_is_the_widest_gap_of_both_sides(means):
    query, key = (Component(mean=mean) for mean in means)
    one = DotLaw(Design(dk=8, query=query, key=key))
    # s = q·k has the mean 8 μ_q μ_k and the variance 8 (1 + μ_q² + μ_k²)
    mean, std = 8 * means[0] * means[1], math.sqrt(8 * (1 + means[0] ** 2 + means[1] ** 2))
    z = np.linspace(-4, 4, 6401)
    widest = np.max(np.abs(one.cdf(mean + std * z) - stats.norm.cdf(z)))
    # Between two points of a step h the gap rises by at most h²/8 · |gap''|, and |gap''| < 1 here.
    assert 0 <= one.normal_distance() - widest + 1e-14 < (8 / 6400) ** 2 / 8


def test_a_law_far_narrower_than_its_deviation_is_furthest_from_normal_next_to_its_centre():
    one = law(("t", 2.0000001), 1)
    std = 1e7 * 2.0000001  # of a product of two t: df/(df − 2)
    z = -np.geomspace(1e-6, 1, 20_001)
    gap = np.abs(one.cdf(std * z) - stats.norm.cdf(z))
    assert z[np.argmax(gap)] == pytest.approx(-4.08e-5, rel=0.01)
    # Between points of a relative step h the gap rises by at most h²/8 · |z² gap''| < h²/8.
    assert 0 <= one.normal_distance() - gap.max() + 1e-14 < (math.log(1e6) / 20_000) ** 2 / 8


def test_rademacher_normal_distance_is_half_the_central_mass():
    got = law("rademacher", 64).normal_distance()
    assert got == pytest.approx(0.0497, abs=0.5e-4)
    assert got == pytest.approx(stats.binom.pmf(32, 64, 0.5) / 2, rel=1e-11)


# --- Gaussian components: two routes and closed forms -------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 7, 16, 64, 512, 4096])
def test_characteristic_function_and_chi_squared_mixture_agree(d):
    z = math.sqrt(d) * np.linspace(0, 12, 60)
    assert 1 - law("gaussian", d).cdf(z) == pytest.approx(gaussian_survival(z, d), abs=2e-14)


@pytest.mark.parametrize("z", [0.0, 0.3, 4.0, 30.0, 300.0, 700.0])
def test_chi_squared_mixture_is_relatively_accurate_in_the_tail(z):
    # d = 2 is the Laplace law, d = 4 has density e^{−|z|}(1 + |z|)/4.
    exact = 0.5 * math.exp(-z)
    assert gaussian_survival(z, 2) == pytest.approx(exact, rel=1e-12, abs=0)
    assert gaussian_survival(z, 4) == pytest.approx(exact * (1 + z / 2), rel=1e-12, abs=0)
    assert law("gaussian", 4).survival(z) == gaussian_survival(z, 4)
    assert law("gaussian", 4).survival(-z) == pytest.approx(1 - gaussian_survival(z, 4), abs=1e-15)


@pytest.mark.parametrize("d", [1, 3, 16, 64])
def test_variance_gamma_density(d):
    # Theory.md §2: |s|^{(d−1)/2} K_{(d−1)/2}(|s|) / (√π 2^{(d−1)/2} Γ(d/2))
    s, order = np.linspace(-8, 8, 40), (d - 1) / 2
    size = np.abs(s)
    constant = math.sqrt(math.pi) * 2**order * math.gamma(d / 2)
    want = size**order * special.kv(order, size) / constant
    assert law("gaussian", d).density(s) == pytest.approx(want, abs=3e-14)


@pytest.mark.parametrize("level", LEVELS)
def test_gaussian_quantiles_at_two_components_are_those_of_laplace(level):
    want = stats.laplace.ppf(level)
    assert law("gaussian", 2).quantile(level) == pytest.approx(want, rel=1e-12)


def test_gaussian_with_means_by_conditioning_on_the_query():
    # d = 1: given q, s ~ N(q μ_k, q² σ_k²).
    design = Design(dk=1, query=Component(mean=0.8, sigma=1.5), key=Component(mean=-0.7, sigma=0.5))
    one = DotLaw(design)
    for z in (-4.0, -0.5, 0.2, 1.0):

        def integrand(q, z=z):
            spread = max(abs(q) * 0.5, 1e-300)
            return stats.norm.pdf(q, 0.8, 1.5) * special.ndtr((z + 0.7 * q) / spread)

        parts = [
            integrate.quad(integrand, *ends, epsabs=1e-12, limit=200)[0]
            for ends in ((-12, -0.5), (-0.5, 0), (0, 0.5), (0.5, 14))
        ]
        assert float(one.cdf(z)) == pytest.approx(sum(parts), abs=1e-9)


@pytest.mark.parametrize("rho", [-0.9, 0.3, 0.9])
def test_query_key_correlation_at_two_components(rho):
    # s = (1+ρ) E − (1−ρ) E' with independent unit exponentials: an asymmetric Laplace law.
    one = law("gaussian", 2, corr=f"qk:{rho}")
    z = np.linspace(0, 10, 21)
    assert one.survival(z) == pytest.approx((1 + rho) / 2 * np.exp(-z / (1 + rho)), abs=1e-14)
    assert one.cdf(-z) == pytest.approx((1 - rho) / 2 * np.exp(-z / (1 - rho)), abs=1e-14)
    assert one.density(z) == pytest.approx(np.exp(-z / (1 + rho)) / 2, abs=1e-14)


@pytest.mark.parametrize(("d", "rho"), [(5, 0.5), (64, -0.3), (1024, 0.9)])
def test_query_key_correlation_by_a_difference_of_chi_squared(d, rho):
    # s = (1+ρ)/2 A − (1−ρ)/2 B with A, B ~ χ²_d: condition on B, trapezoid in its normal score.
    one = law("gaussian", d, corr=f"qk:{rho}")
    score = np.linspace(-9, 9, 1801)
    b, weights = stats.chi2.isf(stats.norm.sf(score), d), 0.01 * stats.norm.pdf(score)
    for level in (0.001, 0.05, 0.5, 0.95, 0.999):
        z = one.quantile(level)
        a = np.maximum((z + (1 - rho) / 2 * b) / ((1 + rho) / 2), 0)
        assert weights @ stats.chi2.cdf(a, d) == pytest.approx(level, abs=1e-10)


def test_far_below_the_mean_nothing_is_left_and_nothing_overflows():
    one = law("gaussian", 40_000, corr="qk:0.9")
    z = np.array([-1e9, -1.0, 0.0, 1.0, 1e4, 1e9])
    assert one.cdf(z) == pytest.approx([0, 0, 0, 0, 0, 1], abs=1e-14)
    assert one.quantile(0.5) == pytest.approx(36_000, rel=1e-3)


@pytest.mark.parametrize("corr", ["equi:0.6", "ar1:0.6", "equi:-0.8"])
def test_correlated_components_at_two_components(corr):
    # With eigenvalues a, b of R and x² + y² exponential, s given the angle φ is a Laplace law
    # of scale √(a² cos²φ + b² sin²φ); the trapezoid rule in φ is exact to rounding.
    rho = float(corr.split(":")[1])
    angle = np.arange(400) * (2 * math.pi / 400)
    scale = np.sqrt(((1 + rho) * np.cos(angle)) ** 2 + ((1 - rho) * np.sin(angle)) ** 2)
    z = np.linspace(0, 8, 17)
    want = 0.5 * np.exp(-z[:, None] / scale).mean(axis=1)
    assert law("gaussian", 2, corr=corr).survival(z) == pytest.approx(want, abs=1e-13)


# --- other laws: closed forms -------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 17, 4096])
@pytest.mark.parametrize("level", LEVELS)
def test_signs_times_gaussian_and_cauchy_stay_in_their_family(d, level):
    normal = law("rademacher", d, "gaussian").quantile(level)
    assert normal == pytest.approx(math.sqrt(d) * stats.norm.ppf(level), rel=1e-10)
    cauchy = law("rademacher", d, "cauchy").quantile(level)
    assert cauchy == pytest.approx(d * stats.cauchy.ppf(level), rel=1e-10)


@pytest.mark.parametrize("df", [0.5, 1.5, 2.0, 2.1, 4.0, 30.0])
@pytest.mark.parametrize("level", LEVELS)
def test_one_sign_times_student_t(df, level):
    got = law(("t", df), 1, "rademacher").quantile(level)
    assert got == pytest.approx(stats.t.ppf(level, df), rel=1e-10)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_signs_times_uniform_is_irwin_hall(d):
    # Standard uniforms u: P(Σu ≤ x) = Σ_k (−1)^k C(d,k) (x−k)_+^d / d!
    z = np.linspace(-ROOT3 * d, ROOT3 * d, 31)
    x = (z / ROOT3 + d) / 2
    k = np.arange(d + 1)
    signs = (-1.0) ** k * special.comb(d, k)
    want = np.maximum(x[:, None] - k, 0) ** d @ signs / math.factorial(d)
    assert law("rademacher", d, "uniform").cdf(z) == pytest.approx(want, abs=1e-10)


def test_two_uniform_squares_by_convolution():
    # F₂(z) = ∫ F₁(z − x) f₁(x) dx with f₁ = ln(3/|x|)/6 on [−3, 3]
    single = law("uniform", 1)
    for z in (0.4, 1.7, 4.4):

        def integrand(x, z=z):
            return float(single.cdf(z - x)) * math.log(3 / abs(x)) / 6

        ends = sorted({-3.0, 0.0, 3.0, *(e for e in (z - 3, z) if -3 < e < 3)})
        want = sum(
            integrate.quad(integrand, low, high, epsabs=1e-11)[0]
            for low, high in itertools.pairwise(ends)
        )
        assert float(law("uniform", 2).cdf(z)) == pytest.approx(want, abs=1e-9)


def test_product_of_two_cauchy():
    # Density ln(s²)/(π² (s² − 1)) of the product of two standard Cauchy variables
    s = np.array([0.01, 0.5, 2.0, 30.0])
    want = np.log(s**2) / (math.pi**2 * (s**2 - 1))
    assert law("cauchy", 1).density(s) == pytest.approx(want, rel=1e-11)
    assert law("cauchy", 1).quantile(0.75) == pytest.approx(1, rel=1e-12)


def test_rademacher_lattice():
    one = law("rademacher", 9)
    k = np.arange(-9, 10)
    want = stats.binom.cdf(np.floor((k + 9) / 2), 9, 0.5)
    assert one.cdf(k) == pytest.approx(want, abs=1e-14)
    assert one.survival(k - 1e-3) == pytest.approx(
        1 - stats.binom.cdf((k + 8) // 2, 9, 0.5), abs=1e-14
    )
    assert one.quantile(0.5) == -1
    assert law("rademacher", 64).quantile(0.5) == 0
    for level in LEVELS:
        assert one.quantile(level) == 2 * stats.binom.ppf(level, 9, 0.5) - 9
    with pytest.raises(InputError):
        one.density(0.0)


def test_rademacher_lattice_keeps_its_atoms_under_a_scale():
    small = Component(distribution="rademacher", sigma=0.1)
    one = DotLaw(Design(dk=9, query=small, key=small))
    atoms = np.arange(-9, 10, 2)
    want = stats.binom.cdf((atoms + 9) // 2, 9, 0.5)
    assert one.cdf(atoms * 0.1 * 0.1) == pytest.approx(want, abs=1e-14)
    assert one.cdf(atoms * 0.01) == pytest.approx(want, abs=1e-14)


# --- other laws: independent quadratures --------------------------------------------------------

FROZEN = {
    "gaussian": stats.norm(),
    "laplace": stats.laplace(scale=math.sqrt(0.5)),
    "cauchy": stats.cauchy(),
    "uniform": stats.uniform(-ROOT3, 2 * ROOT3),
    ("t", 2.0): stats.t(2.0),
    ("t", 2.1): stats.t(2.1),
    ("t", 3.0): stats.t(3.0),
    ("t", 5.0): stats.t(5.0),
}


@pytest.mark.parametrize(
    ("query", "key", "level"),
    [
        ("gaussian", "gaussian", 0.999),
        ("uniform", "gaussian", 0.9),
        (("t", 3.0), ("t", 3.0), 0.75),
        (("t", 2.0), ("t", 2.1), 0.99),
        ("gaussian", "cauchy", 0.75),
        ("laplace", ("t", 5.0), 0.999),
        ("uniform", "laplace", 0.99),
    ],
)
def test_single_product_by_direct_quadrature(query, key, level):
    # P(q k ≤ z) = E_q[F_k(z/|q|)], over the levels of |q|; quad's own error estimate is 1e-10.
    z = law(query, 1, key).quantile(level)
    q, k = FROZEN[query], FROZEN[key]

    def integrand(u):
        return k.sf(z / max(float(q.isf(u / 2)), 1e-300))

    parts = [
        integrate.quad(integrand, *ends, epsabs=1e-11, epsrel=1e-10, limit=400)[0]
        for ends in ((0, 1e-6), (1e-6, 1e-3), (1e-3, 0.1), (0.1, 1))
    ]
    assert sum(parts) == pytest.approx(1 - level, abs=1e-9)


@pytest.mark.parametrize(
    ("query", "key", "d", "cf"),
    [
        ("gaussian", "cauchy", 3, lambda t: special.erfcx(t / math.sqrt(2))),
        ("gaussian", "cauchy", 64, lambda t: special.erfcx(t / math.sqrt(2))),
        (
            "gaussian",
            "laplace",
            5,
            lambda t: math.sqrt(math.pi) / t * special.erfcx(1 / t),
        ),
        (
            "uniform",
            "laplace",
            4,
            lambda t: math.atan(math.sqrt(1.5) * t) / (math.sqrt(1.5) * t),
        ),
    ],
)
@pytest.mark.parametrize("level", [0.6, 0.9])
def test_sums_by_fourier_quadrature_on_the_real_axis(query, key, d, cf, level):
    # QUADPACK's QAWF on closed forms of φ: shares neither φ nor the contour with the law.
    z = law(query, d, key).quantile(level)
    cut = 0.05 / max(z, 1)
    head = integrate.quad(lambda t: math.sin(t * z) / t * cf(t) ** d, 0, cut, epsabs=1e-13)[0]
    tail = integrate.quad(
        lambda t: cf(t) ** d / t, cut, math.inf, weight="sin", wvar=z, epsabs=1e-10, limlst=200
    )[0]
    assert 0.5 + (head + tail) / math.pi == pytest.approx(level, abs=1e-8)


# --- simulation, limits, consistency ------------------------------------------------------------


def draw(spec, rng, shape):
    name, df = spec if isinstance(spec, tuple) else (spec, None)
    if name == "mixture":
        scale = np.where(rng.random(shape) < 0.9, 1.0, 3.0) / math.sqrt(1.8)
        return scale * rng.standard_normal(shape)
    return {
        "gaussian": lambda: rng.standard_normal(shape),
        "uniform": lambda: rng.uniform(-ROOT3, ROOT3, shape),
        "rademacher": lambda: rng.choice([-1.0, 1.0], shape),
        "laplace": lambda: rng.laplace(scale=math.sqrt(0.5), size=shape),
        "t": lambda: rng.standard_t(df, shape),
        "cauchy": lambda: rng.standard_cauchy(shape),
    }[name]()


@pytest.mark.parametrize(
    ("query", "key", "d"),
    [
        ("gaussian", "mixture", 3),
        ("mixture", "mixture", 16),
        ("laplace", "laplace", 2),
        ("uniform", "uniform", 3),
        ("uniform", ("t", 4.0), 8),
        (("t", 2.0), ("t", 2.0), 4),
        (("t", 1.5), "cauchy", 16),
        (("t", 3.0), "rademacher", 5),
        ("cauchy", "uniform", 32),
        ("laplace", "cauchy", 2),
    ],
)
def test_quantiles_by_simulation(query, key, d):
    # Counts below the exact quantiles are binomial: 10 cases × 5 levels at z ≤ 5.5 have a
    # false-alarm rate of 50 × 3.8e-8 = 1.9e-6 under correct code. Seed fixed.
    n, rng = 200_000, np.random.default_rng(20240502)
    s = np.sum(draw(query, rng, (n, d)) * draw(key, rng, (n, d)), axis=1)
    one = law(query, d, key)
    for level in (0.001, 0.1, 0.4, 0.75, 0.99):
        below = np.count_nonzero(s <= one.quantile(level))
        assert abs(below - n * level) < 5.5 * math.sqrt(n * level * (1 - level))


def test_ar1_and_means_by_simulation():
    # As above: 2 designs × 3 levels, 2.3e-7 under correct code. Seed fixed.
    n, d, rho, rng = 200_000, 6, 0.7, np.random.default_rng(20240503)
    root = np.linalg.cholesky(rho ** np.abs(np.subtract.outer(range(d), range(d))))
    q, k = rng.standard_normal((n, d)), rng.standard_normal((n, d))
    means = Design(dk=d, query=Component(mean=0.5, sigma=2), key=Component(mean=1.0))
    cases = [
        (Design(dk=d, corr="ar1:0.7"), np.sum((q @ root.T) * (k @ root.T), axis=1)),
        (means, np.sum((0.5 + 2 * q) * (1 + k), axis=1)),
    ]
    for design, s in cases:
        for level in (0.01, 0.4, 0.9):
            below = np.count_nonzero(s <= DotLaw(design).quantile(level))
            assert abs(below - n * level) < 5.5 * math.sqrt(n * level * (1 - level))


@pytest.mark.parametrize("d", [1, 4, 64, 4096])
@pytest.mark.parametrize("level", LEVELS)
def test_very_many_degrees_of_freedom_are_gaussian(d, level):
    got, want = law(("t", 1e6), d).quantile(level), law("gaussian", d).quantile(level)
    assert got == pytest.approx(want, rel=1e-5)
    assert got != pytest.approx(want, rel=1e-8)  # the difference of order 1/ν is resolved


def test_laws_tend_to_the_normal_law():
    for name in ("uniform", "laplace", "mixture"):
        distances = [law(name, d).normal_distance() for d in (1, 8, 64, 4096)]
        assert all(later < earlier for earlier, later in itertools.pairwise(distances))
        # Edgeworth: |excess| max|φ(x)(x³ − 3x)|/24 with the maximum 0.5506 near x = 0.742
        excess = {"uniform": 1.8**2, "laplace": 36.0, "mixture": (25 / 3) ** 2}[name] - 3
        assert distances[-1] == pytest.approx(excess / 4096 * 0.5506 / 24, rel=0.02)


def test_normal_distance_of_a_skewed_law():
    one = law("gaussian", 9, corr="qk:0.5")
    std = math.sqrt(9 * 1.25)
    x = np.linspace(-5, 5, 2_001)
    gap = np.abs(one.cdf(4.5 + std * x) - stats.norm.cdf(x))
    assert one.normal_distance() == pytest.approx(gap.max(), abs=5e-7)


@pytest.mark.parametrize("d", [1, 2, 3, 64, 4096])
@pytest.mark.parametrize("name", LAWS)
def test_quantile_inverts_the_distribution_function(name, d):
    spec = ("t", 2.1) if name == "t" else name
    one = law(spec, d)
    for level in LEVELS:
        z = one.quantile(level)
        if name == "rademacher":
            assert one.cdf(z) >= level - 1e-12 > one.cdf(z - 1) - 2e-12
            continue
        assert float(one.cdf(z)) == pytest.approx(level, abs=5e-14)
        assert one.quantile(1 - level) == pytest.approx(-z, rel=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "uniform", "laplace", "cauchy"])
@pytest.mark.parametrize("d", [1, 3, 64])
def test_density_is_the_derivative(name, d):
    one = law(name, d)
    z = one.quantile(0.8) * np.array([-1.5, 0.3, 1.0])
    step = 1e-3 * one.quantile(0.8)
    # Five-point difference: error O(step⁴) relative to the fifth derivative, below 1e-8 here.
    slope = (
        8 * (one.cdf(z + step) - one.cdf(z - step))
        - (one.cdf(z + 2 * step) - one.cdf(z - 2 * step))
    ) / (12 * step)
    assert one.density(z) == pytest.approx(slope, rel=1e-7)


def test_scale_of_the_components():
    query, key = Component(distribution="t", df=3.0, sigma=2.0), Component(sigma=0.3)
    one = DotLaw(Design(dk=5, query=query, key=key))
    unit = law(("t", 3.0), 5, "gaussian")
    assert one.quantile(0.9) == pytest.approx(0.6 * unit.quantile(0.9), rel=1e-13)
    assert one.cdf(1.2) == pytest.approx(float(unit.cdf(2.0)), abs=1e-15)
    assert one.density(1.2) == pytest.approx(float(unit.density(2.0)) / 0.6, rel=1e-13)
    standard = Component(distribution="t", df=3.0, standardize=True)
    got = DotLaw(Design(dk=5, query=standard, key=standard)).quantile(0.9)
    assert got == pytest.approx(law(("t", 3.0), 5).quantile(0.9) / 3, rel=1e-12)


@pytest.mark.parametrize("name", LAWS)
def test_shapes_and_infinite_points(name):
    for d in (1, 3):
        one = law(("t", 1.5) if name == "t" else name, d)
        z = np.array([[-math.inf, -1e300], [0.5, math.inf]])
        assert one.cdf(z) + one.survival(z) == pytest.approx(np.ones((2, 2)), abs=1e-14)
        assert one.cdf(z)[0] == pytest.approx([0, 0], abs=1e-13)
        assert one.survival(z)[1, 1] == pytest.approx(0, abs=1e-13)
        assert one.cdf(0.5).shape == ()
        assert one.cdf(np.zeros(0)).shape == (0,)


CAUCHY = Component(distribution="cauchy")


@pytest.mark.parametrize(
    "design",
    [
        Design(dk=4, query=CAUCHY, key=Component(mean=1.0)),
        Design(dk=4, query=Component(distribution="laplace"), corr="equi:0.2"),
        Design(dk=4, query=Component(mean=1.0), corr="equi:0.2"),
        Design(dk=4, query=Component(distribution="t", df=0.05)),
        Design(dk=4, query=Component(distribution="triangular")),
        Design(dk=0),
    ],
)
def test_designs_without_an_exact_law_are_refused(design):
    with pytest.raises(InputError):
        DotLaw(design)


def test_wrong_requests_are_refused():
    with pytest.raises(InputError):
        law("cauchy", 4).normal_distance()
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(InputError):
            law("gaussian", 4).quantile(level)
    for dks in ((), (4,), (4, 4)):
        with pytest.raises(InputError):
            scale_exponent(Design(dk=4), dks)
