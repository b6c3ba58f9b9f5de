"""From a `records.Component` to its law and to vectors.

False alarms: 1e-9 for each statistical assertion (normal approximation); the seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check.distributions import (
    NAMES,
    ComponentLaw,
    Dependence,
    component_law,
    draw,
    law,
    parse_dependence,
)
from sdpa_check.distributions.student_t import StudentT
from sdpa_check.errors import InputError
from sdpa_check.records import Component

Z = 6.11  # two-sided normal quantile of 1e-9
N = 200_000


def generator(seed=77):
    return np.random.Generator(np.random.SFC64(seed))


def component(name, **fields):
    return Component(distribution=name, df=3.0 if name == "t" else None, **fields)


def test_every_name_has_a_law_of_that_name():
    assert set(NAMES) == {
        "gaussian", "uniform", "rademacher", "laplace", "t", "cauchy", "mixture",
    }  # fmt: skip
    for name in NAMES:
        assert law(component(name)).name == name


def test_default_component_is_the_standard_normal_law():
    whole = component_law(Component())
    assert (whole.mean, whole.variance, whole.kurtosis) == (0, 1, 3)
    assert whole.tail_index == math.inf


def test_df_reaches_the_law():
    assert law(Component(distribution="t", df=7.5)) == StudentT(7.5)


@pytest.mark.parametrize("name", [each for each in NAMES if each not in {"t", "cauchy"}])
def test_location_and_scale_of_a_unit_variance_law(name):
    whole = component_law(component(name, sigma=2.5, mean=-0.5))
    assert whole.mean == -0.5
    assert whole.variance == 6.25
    assert whole.kurtosis == law(component(name)).kurtosis
    assert component_law(component(name, sigma=2.5, mean=-0.5, standardize=True)) == whole


def test_location_and_scale_of_a_raw_t():
    whole = component_law(Component(distribution="t", df=6.0, sigma=2.0, mean=1.0))
    assert whole.mean == 1
    assert whole.variance == pytest.approx(4 * 1.5, rel=1e-15)
    assert whole.kurtosis == 6
    assert whole.tail_index == 6


def test_standardized_t_has_unit_variance():
    whole = component_law(Component(distribution="t", df=12.0, standardize=True, sigma=3.0))
    assert whole.variance == pytest.approx(9, rel=1e-15)
    x = whole.sample(generator(), (N,), np.float64)
    assert abs((x**2).mean() - 9) <= Z * 9 * math.sqrt((whole.kurtosis - 1) / N)


def test_moments_that_do_not_exist_stay_so():
    shifted = component_law(Component(distribution="cauchy", sigma=2.0, mean=1.0))
    assert math.isnan(shifted.mean)
    assert math.isnan(shifted.variance)
    assert math.isnan(shifted.kurtosis)
    assert shifted.tail_index == 1
    heavy = component_law(Component(distribution="t", df=1.5, mean=1.0))
    assert heavy.mean == 1
    assert heavy.variance == math.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_sample_is_the_standard_member_moved(name, dtype):
    whole = component_law(component(name, sigma=0.5, mean=2.0))
    x = whole.sample(generator(), (4, 5), dtype)
    standard = law(component(name)).sample(generator(), (4, 5), dtype)
    assert x.dtype == dtype
    np.testing.assert_allclose(x, 2 + 0.5 * standard, rtol=4 * np.finfo(dtype).eps)


def test_place_works_in_place_and_leaves_the_standard_member_alone():
    x = np.arange(3.0)
    assert ComponentLaw(StudentT(3.0), 1.0, 2.0).place(x) is x
    assert x.tolist() == [1, 3, 5]
    assert ComponentLaw(StudentT(3.0), 0.0, 1.0).place(x).tolist() == [1, 3, 5]


# --- vectors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("text", ["none", "ar1:0.8", "equi:0.3", "qk:0.6"])
def test_draw_adds_the_mean_after_the_dependence(text, dtype):
    dependence = parse_dependence(text)
    part = Component(distribution="laplace", sigma=3.0, mean=0.25)
    x = draw(generator(), part, dependence, dk=6, n=10, dtype=dtype)
    standard = law(part).sample(generator(), (6, 10), dtype)
    assert x.shape == (6, 10)
    assert x.dtype == dtype
    right = 0.25 + 3 * dependence.apply(standard)
    np.testing.assert_allclose(x, right, rtol=8 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)


@pytest.mark.parametrize("text", ["none", "qk:0.6"])
def test_dependence_between_query_and_key_is_left_to_the_caller(text):
    x = draw(generator(), Component(), parse_dependence(text), dk=5, n=7, dtype=np.float64)
    right = draw(generator(), Component(), Dependence(), dk=5, n=7, dtype=np.float64)
    assert np.array_equal(x, right)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["gaussian", "uniform"])
@pytest.mark.parametrize("text", ["none", "ar1:-0.7", "equi:0.4", "equi:-0.3"])
def test_covariance_of_drawn_vectors(name, text, dtype):
    d, sigma, mean = 4, 2.0, 1.5
    part = component(name, sigma=sigma, mean=mean)
    x = draw(generator(3), part, parse_dependence(text), dk=d, n=N, dtype=dtype)
    centred = x.astype(np.float64) - mean
    kind, _, number = text.partition(":")
    rho, a = float(number or 0), np.arange(d)
    lags = np.abs(a[:, np.newaxis] - a)
    right = rho**lags if kind == "ar1" else np.where(lags == 0, 1.0, rho)
    # Var(x_a x_b) ≤ √(E x_a⁴ E x_b⁴) ≤ 3 σ⁴: a sum of components with kurtosis ≤ 3 has no more.
    se = sigma**2 * math.sqrt(3 / N)
    assert np.abs(centred @ centred.T / N - sigma**2 * right).max() <= Z * se
    assert np.abs(centred.mean(axis=1)).max() <= Z * sigma / math.sqrt(N)


def test_draw_checks_the_dependence_against_the_dimension():
    with pytest.raises(InputError, match="--corr"):
        draw(generator(), Component(), Dependence("equi", -0.5), dk=8, n=2, dtype=np.float64)


# --- what is refused -------------------------------------------------------------------------


def test_unknown_law_names_the_nearest():
    with pytest.raises(InputError, match=r"--dist: got 'gausian'.*did you mean 'gaussian'"):
        law(Component(distribution="gausian"))


def test_t_needs_df():
    with pytest.raises(InputError, match=r"--df: got None, want the degrees of freedom"):
        law(Component(distribution="t"))


@pytest.mark.parametrize("name", [each for each in NAMES if each != "t"])
def test_df_belongs_to_t_alone(name):
    with pytest.raises(InputError, match=rf"--df: got 5\.0, want no df for {name}"):
        law(Component(distribution=name, df=5.0))


def test_df_below_its_limit():
    with pytest.raises(InputError, match=r"--df: got 0\.05, want a finite df ≥ 0\.1"):
        component_law(Component(distribution="t", df=0.05))


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, math.nan])
def test_sigma_must_be_positive(sigma):
    with pytest.raises(InputError, match=r"--sigma: .*want a finite number > 0"):
        component_law(Component(sigma=sigma))


@pytest.mark.parametrize("mean", [math.inf, -math.inf, math.nan])
def test_mean_must_be_finite(mean):
    with pytest.raises(InputError, match=r"--mean: .*want a finite number"):
        component_law(Component(mean=mean))


@pytest.mark.parametrize(("name", "df"), [("cauchy", None), ("t", 0.5), ("t", 1.5), ("t", 2.0)])
def test_standardize_needs_a_variance(name, df):
    with pytest.raises(InputError, match=rf"--standardize: got '{name}', want .*finite variance"):
        component_law(Component(distribution=name, df=df, standardize=True))
