"""Characteristic functions of products: the Mellin inversion against known closed forms."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import integrate, special

from sdpa_check.errors import InputError
from sdpa_check.records import Component
from sdpa_check.theory.charfun import (
    component_scale,
    log1p_complex,
    log_gamma,
    log_gamma_ratio,
    log_product_cf,
    product_cf,
)

LAWS = ("gaussian", "uniform", "rademacher", "laplace", "mixture", "t", "cauchy")
T_GRID = np.concatenate([[0.0], np.geomspace(1e-6, 1e3, 181)])
ROOT3 = math.sqrt(3)


def law(name, df=3.0, **keywords):
    return Component(distribution=name, df=df if name == "t" else None, **keywords)


def student_cf(t, df):
    """Theory.md §2: K_{ν/2}(√ν|t|) (√ν|t|)^{ν/2} / (Γ(ν/2) 2^{ν/2−1})."""
    x = math.sqrt(df) * np.maximum(t, 1e-12)
    return special.kv(df / 2, x) * x ** (df / 2) / (special.gamma(df / 2) * 2 ** (df / 2 - 1))


def safe(function):
    """The closed form with its removable singularity at t = 0 filled in."""
    return lambda t: np.where(t == 0, 1.0, function(np.where(t == 0, 1.0, t)))


def cauchy_squared(t):
    si, ci = special.sici(t)
    return 2 / math.pi * (ci * np.sin(t) + (math.pi / 2 - si) * np.cos(t))


A = 1 / math.sqrt(1.8)
CLOSED = [
    ("gaussian", "gaussian", lambda t: 1 / np.sqrt(1 + t**2)),
    ("rademacher", "gaussian", lambda t: np.exp(-(t**2) / 2)),
    ("rademacher", "laplace", lambda t: 1 / (1 + t**2 / 2)),
    ("rademacher", "cauchy", lambda t: np.exp(-t)),
    ("rademacher", "rademacher", np.cos),
    ("rademacher", "uniform", safe(lambda t: np.sin(ROOT3 * t) / (ROOT3 * t))),
    (
        "rademacher",
        "mixture",
        lambda t: 0.9 * np.exp(-(t**2) * A**2 / 2) + 0.1 * np.exp(-9 * t**2 * A**2 / 2),
    ),
    ("rademacher", "t", lambda t: student_cf(t, 3.0)),
    (
        "gaussian",
        "mixture",
        lambda t: 0.9 / np.sqrt(1 + (A * t) ** 2) + 0.1 / np.sqrt(1 + (3 * A * t) ** 2),
    ),
    ("gaussian", "cauchy", lambda t: special.erfcx(t / math.sqrt(2))),
    ("gaussian", "laplace", safe(lambda t: math.sqrt(math.pi) / t * special.erfcx(1 / t))),
    (
        "gaussian",
        "uniform",
        safe(lambda t: math.sqrt(math.pi / 6) / t * special.erf(ROOT3 * t / math.sqrt(2))),
    ),
    ("uniform", "laplace", safe(lambda t: np.arctan(math.sqrt(1.5) * t) / (math.sqrt(1.5) * t))),
    ("uniform", "cauchy", safe(lambda t: -np.expm1(-ROOT3 * t) / (ROOT3 * t))),
    ("uniform", "uniform", safe(lambda t: special.sici(3 * t)[0] / (3 * t))),
    ("cauchy", "cauchy", safe(cauchy_squared)),
]


@pytest.mark.parametrize(
    ("query", "key", "exact"), CLOSED, ids=[f"{query}-{key}" for query, key, _ in CLOSED]
)
def test_closed_forms(query, key, exact):
    # The sums have about 1000 terms of size ≤ 1: rounding of some 10 eps, and 4e-18 by design.
    want = exact(T_GRID)
    assert product_cf(law(query), law(key), T_GRID) == pytest.approx(want, abs=2e-14)
    assert product_cf(law(key), law(query), -T_GRID) == pytest.approx(want, abs=2e-14)


@pytest.mark.parametrize("df", [0.5, 1.0, 1.5, 2.0, 2.1, 4.0, 5.0, 30.0, 79.0, 81.0])
def test_student_t_closed_form(df):
    t = np.geomspace(1e-3, 20, 60)
    got = product_cf(law("rademacher"), law("t", df), t)
    assert got == pytest.approx(student_cf(t, df), abs=3e-14)


def test_one_degree_of_freedom_is_cauchy():
    t = np.geomspace(1e-6, 1e3, 50)
    got = product_cf(law("t", 1.0), law("uniform"), t)
    assert got == pytest.approx(product_cf(law("cauchy"), law("uniform"), t), abs=1e-15)


def test_very_many_degrees_of_freedom_are_gaussian():
    # The excess kurtosis 6/(ν−4) changes ln φ by O(1/ν).
    got = product_cf(law("t", 1e6), law("t", 1e6), T_GRID)
    assert got == pytest.approx(1 / np.sqrt(1 + T_GRID**2), abs=2e-6)
    assert np.max(np.abs(got - 1 / np.sqrt(1 + T_GRID**2))) > 1e-8


@pytest.mark.parametrize("t", [0.05, 0.7, 3.0])
@pytest.mark.parametrize(("df_q", "df_k"), [(3.0, 3.0), (2.0, 5.0), (1.5, 1.5)])
def test_two_student_laws_by_direct_quadrature(df_q, df_k, t):
    # E_x φ_y(t x) with x = √ν tan θ, whose density in θ is ∝ cos^{ν−1} θ
    norm = math.sqrt(math.pi) * math.gamma(df_q / 2) / math.gamma((df_q + 1) / 2) / 2

    def integrand(theta):
        return math.cos(theta) ** (df_q - 1) * float(
            student_cf(t * math.sqrt(df_q) * math.tan(theta), df_k)
        )

    want = integrate.quad(integrand, 0, math.pi / 2, epsabs=1e-12, epsrel=1e-12, limit=200)[0]
    got = product_cf(law("t", df_q), law("t", df_k), t)
    assert float(got) == pytest.approx(want / norm, abs=1e-10)


@pytest.mark.parametrize(
    ("query", "key", "log_cf"),
    [
        ("gaussian", "gaussian", lambda t: -0.5 * log1p_complex(t**2)),
        ("rademacher", "gaussian", lambda t: -(t**2) / 2),
        ("rademacher", "cauchy", lambda t: -t),
        ("rademacher", "laplace", lambda t: -log1p_complex(t**2 / 2)),
        ("gaussian", "cauchy", lambda t: np.log(special.wofz(1j * t / math.sqrt(2)))),
    ],
)
def test_continuation_to_the_ray(query, key, log_cf):
    t = np.geomspace(1e-5, 5.0, 80) * np.exp(1j * math.pi / 8)
    got, want = log_product_cf(law(query), law(key), t), log_cf(t)
    assert np.exp(got) == pytest.approx(np.exp(want), abs=2e-14)
    small = np.abs(t) < 1e-3  # there ln φ ~ φ − 1 has an absolute error of exp(−40) = 4e-18
    rounding = 2e-15 if (query, key) == ("gaussian", "cauchy") else 2e-17  # that of np.log(wofz)
    assert got[small] == pytest.approx(want[small], rel=1e-13, abs=rounding)


def test_scales_and_standardisation():
    t = np.geomspace(0.01, 10, 20)
    wide = product_cf(law("laplace", sigma=2.0), law("uniform", sigma=0.25), t)
    assert wide == pytest.approx(product_cf(law("laplace"), law("uniform"), t / 2), abs=1e-15)
    unit = product_cf(law("t", 5.0, standardize=True), law("gaussian"), t)
    raw = product_cf(law("t", 5.0), law("gaussian"), t * math.sqrt(3 / 5))
    assert unit == pytest.approx(raw, abs=1e-15)
    assert component_scale(law("t", 5.0, standardize=True, sigma=2.0)) == pytest.approx(
        2 * math.sqrt(3 / 5), rel=1e-15
    )


@pytest.mark.parametrize("query", LAWS)
@pytest.mark.parametrize("key", LAWS)
def test_every_pair_is_a_characteristic_function(query, key):
    t = np.array([[0.0, 0.3], [1.0, 60.0]])
    values = product_cf(law(query), law(key), t)
    assert values.shape == t.shape
    assert values[0, 0] == 1
    assert np.all(np.abs(values) <= 1)
    assert values[0, 1] < 1
    assert product_cf(law(query), law(key), 0.3) == pytest.approx(values[0, 1], abs=1e-15)


def test_gamma_functions_against_scipy():
    rng = np.random.default_rng(5)
    z = rng.uniform(-0.9, 3, 500) + 1j * rng.uniform(-60, 60, 500)
    want = np.exp(special.loggamma(z))
    assert np.exp(log_gamma(z)) == pytest.approx(want, rel=2e-13)
    for base in (0.3, 3.0, 39.9, 40.1, 200.0):
        ratio = np.exp(special.loggamma(base + z[z.real > 0]) - special.loggamma(base))
        got = np.exp(log_gamma_ratio(base, z[z.real > 0]))
        assert got == pytest.approx(ratio, rel=1e-12)
    # Γ(z + 1)/Γ(z) = z, with large arguments
    assert complex(np.exp(log_gamma_ratio(1e9, np.ones(1) + 0j))[0]) == pytest.approx(
        1e9, rel=1e-13
    )


@pytest.mark.parametrize(
    ("query", "key"),
    [
        (law("gaussian", mean=0.1), law("gaussian")),
        (law("gaussian"), law("cauchy", mean=1.0)),
        (law("gaussian", sigma=0.0), law("gaussian")),
        (law("gaussian", sigma=math.nan), law("gaussian")),
        (law("t", -1.0), law("gaussian")),
        (law("t", 2.0, standardize=True), law("gaussian")),
        (Component(distribution="normal"), law("gaussian")),
    ],
)
def test_unusable_components_are_refused(query, key):
    with pytest.raises(InputError):
        product_cf(query, key, 1.0)


def test_bounded_pairs_have_no_logarithm():
    with pytest.raises(InputError):
        log_product_cf(law("uniform"), law("rademacher"), np.ones(1) + 0j)


def test_no_scipy_on_the_way_to_any_law():
    code = (
        "import sys\n"
        "from sdpa_check.records import Component, Design\n"
        "from sdpa_check.theory.law import DotLaw\n"
        f"for name in {LAWS}:\n"
        "    one = Component(distribution=name, df=3.0)\n"
        "    for d in (1, 3):\n"
        "        law = DotLaw(Design(dk=d, query=one, key=one))\n"
        "        law.quantile(0.9), law.survival(1.0)\n"
        "        name == 'cauchy' or law.normal_distance()\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('scipy', 'matplotlib')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
