"""The samplers against the exact moments and distribution functions of their laws.

False alarms: every statistical assertion below fails for a correct sampler with a probability of
1e-9 over the choice of the seed, where the statistic is normal or binomial; the skewness of the
fourth powers raises that of the kurtosis test to at most 1e-7. The seeds are fixed.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from sdpa_check.distributions.base import CHUNK
from sdpa_check.distributions.cauchy import Cauchy
from sdpa_check.distributions.gaussian import Gaussian
from sdpa_check.distributions.laplace import Laplace
from sdpa_check.distributions.mixture import Mixture
from sdpa_check.distributions.rademacher import Rademacher
from sdpa_check.distributions.student_t import StudentT
from sdpa_check.distributions.uniform import Uniform
from sdpa_check.errors import InputError

ALPHA = 1e-9
Z = 6.11  # two-sided normal quantile of ALPHA
ROUNDING = 5e-7
N = 500_003  # odd, and no multiple of the chunk or of a byte

LIGHT = [Gaussian(), Uniform(), Rademacher(), Laplace(), Mixture()]
CONTINUOUS = [
    *(each for each in LIGHT if each.name != "rademacher"),
    Cauchy(),
    *map(StudentT, (0.5, 1.0, 2.0, 3.0, 4.5, 30.0, 1e6, 1e12)),
]
PRECISIONS = [np.float32, np.float64]

# E X⁸: Gaussian 7!!, uniform 3⁴/9, Laplace 8!/√2⁸, mixture 105 a⁸ (0.9 + 0.1·3⁸).
EIGHTH = {
    "gaussian": 105.0,
    "uniform": 9.0,
    "rademacher": 1.0,
    "laplace": 2520.0,
    "mixture": 105 * 657 / 1.8**4,
}

both_precisions = pytest.mark.parametrize("dtype", PRECISIONS, ids=["float32", "float64"])
continuous = pytest.mark.parametrize("law", CONTINUOUS, ids=str)
light = pytest.mark.parametrize("law", LIGHT, ids=str)


def generator(seed=20240607):
    return np.random.Generator(np.random.SFC64(seed))


def cdf(law, x):
    """The exact distribution function, from a library that the samplers do not use."""
    from scipy import stats

    if law.name == "mixture":
        a = 1 / math.sqrt(1.8)
        return 0.9 * stats.norm.cdf(x, scale=a) + 0.1 * stats.norm.cdf(x, scale=3 * a)
    return frozen(law).cdf(x)


@functools.cache
def frozen(law):
    from scipy import stats

    match law.name:
        case "gaussian":
            return stats.norm()
        case "uniform":
            return stats.uniform(-math.sqrt(3), 2 * math.sqrt(3))
        case "laplace":
            return stats.laplace(scale=math.sqrt(0.5))
        case "cauchy":
            return stats.cauchy()
        case "t":
            return stats.t(law.df)


@functools.cache
def quantile_of_size(law, p):
    """The x with P(|X| > x) = p, by bisection of the distribution function on a log scale."""
    low, high = -20.0, 80.0
    for _ in range(100):
        middle = (low + high) / 2
        if 2 * float(cdf(law, -math.exp(middle))) > p:
            low = middle
        else:
            high = middle
    return math.exp(low)


@both_precisions
@light
def test_sample_moments_are_the_stated_ones(law, dtype):
    x = law.sample(generator(), (N,), dtype).astype(np.float64)
    assert abs(x.mean() - law.mean) <= Z * math.sqrt(law.variance / N)
    # The rounding of float32 moves x² and x⁴ by 4 eps = 5e-7 of themselves at most.
    assert abs((x**2).mean() - law.variance) <= Z * math.sqrt((law.kurtosis - 1) / N) + ROUNDING
    allowed = Z * math.sqrt((EIGHTH[law.name] - law.kurtosis**2) / N) + ROUNDING * law.kurtosis
    assert abs((x**4).mean() - law.kurtosis) <= allowed


@both_precisions
@pytest.mark.parametrize("df", [5.0, 9.0, 1e6])
def test_sample_mean_and_variance_of_t(df, dtype):
    law = StudentT(df)
    x = law.sample(generator(1), (N,), dtype).astype(np.float64)
    assert abs(x.mean()) <= Z * math.sqrt(law.variance / N)
    if df > 8:  # the squares need a few more moments than the fourth to be near normal
        se = law.variance * math.sqrt((law.kurtosis - 1) / N)
        assert abs((x**2).mean() - law.variance) <= Z * se


@both_precisions
@continuous
def test_distribution_function(law, dtype):
    from scipy import stats

    x = np.sort(law.sample(generator(2), (N,), dtype).astype(np.float64))
    expected = cdf(law, x)
    rank = np.arange(N + 1) / N
    distance = max((expected - rank[:-1]).max(), (rank[1:] - expected).max())
    # The grid of float32 moves a distribution function by no more than 2⁻²⁴ · density ≤ 1e-7.
    assert stats.kstwo.sf(distance - 1e-7, N) > ALPHA


@both_precisions
@continuous
def test_both_tails_hold_their_share(law, dtype):
    from scipy import stats

    x = law.sample(generator(3), (N,), dtype)
    for p in (1e-2, 1e-3, 1e-4):
        edge = quantile_of_size(law, p)
        for count in (int((x > edge).sum()), int((x < -edge).sum())):
            assert stats.binomtest(count, N, p / 2).pvalue > ALPHA


@both_precisions
@continuous
def test_sizes_are_independent_along_the_stream(law, dtype):
    large = np.abs(law.sample(generator(4), (N,), dtype)) > quantile_of_size(law, 0.5)
    for lag in (1, 2, 7, CHUNK):
        agree, pairs = int((large[lag:] == large[:-lag]).sum()), N - lag
        assert abs(agree - pairs / 2) <= Z * math.sqrt(pairs) / 2


@both_precisions
@pytest.mark.parametrize("law", [Laplace(), StudentT(3.0), Mixture()], ids=str)
def test_sign_is_independent_of_size(law, dtype):
    x = law.sample(generator(5), (N,), dtype)
    large = np.abs(x) > quantile_of_size(law, 0.2)
    positive, size = int((x[large] > 0).sum()), int(large.sum())
    assert abs(positive - size / 2) <= Z * math.sqrt(size) / 2


@both_precisions
def test_rademacher_draws_independent_fair_bits(dtype):
    from scipy import stats

    x = Rademacher().sample(generator(6), (N // 8, 8), dtype)
    assert set(np.unique(x)) == {-1.0, 1.0}
    words = (x > 0) @ (1 << np.arange(8))
    counts = np.bincount(words, minlength=256)
    assert stats.chisquare(counts).pvalue > ALPHA


@both_precisions
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 2731), (2, 3, 4), (CHUNK + 1,)], ids=str)
@pytest.mark.parametrize("law", [*LIGHT, Cauchy(), StudentT(3.0)], ids=str)
def test_shape_and_dtype(law, dtype, shape):
    x = law.sample(generator(), shape, dtype)
    assert x.shape == shape
    assert x.dtype == dtype
    assert np.isfinite(x).all()


@pytest.mark.parametrize("law", [*LIGHT, Cauchy(), StudentT(3.0)], ids=str)
def test_same_generator_same_numbers(law):
    first, again = (law.sample(generator(9), (2, CHUNK), np.float64) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], first[1])


# --- what the records of the laws state ------------------------------------------------------


@pytest.mark.parametrize("df", [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 4.5, 5.0, 9.0, 1e6])
def test_stated_moments_of_t(df):
    from scipy import stats

    law = StudentT(df)
    variance, excess = (float(value) for value in stats.t.stats(df, moments="vk"))
    assert law.variance == pytest.approx(variance, rel=1e-12, nan_ok=True)
    assert law.kurtosis == pytest.approx(excess + 3, rel=1e-12, nan_ok=True)
    assert law.tail_index == df
    assert law.mean == 0 if df > 1 else math.isnan(law.mean)


@pytest.mark.parametrize("law", [*CONTINUOUS[:4], StudentT(9.0)], ids=str)
def test_stated_moments_are_integrals_over_the_law(law):
    # E X^p = 2 ∫₀^∞ p x^(p−1) P(X > x) dx for a symmetric law without an atom at 0.
    from scipy import integrate

    def moment(p):
        end = math.sqrt(3) if law.name == "uniform" else math.inf
        tail = lambda x: 2 * p * x ** (p - 1) * float(cdf(law, -x))  # noqa: E731
        return integrate.quad(tail, 0, end, epsabs=1e-12, epsrel=1e-11, limit=200)[0]

    assert law.mean == 0
    assert law.variance == pytest.approx(moment(2), rel=1e-9)
    assert law.kurtosis == pytest.approx(moment(4) / moment(2) ** 2, rel=1e-9)


@light
def test_light_tails_have_no_index(law):
    assert law.tail_index == math.inf


def test_cauchy_has_no_moment():
    law = Cauchy()
    assert all(math.isnan(value) for value in (law.mean, law.variance, law.kurtosis))
    assert law.tail_index == 1


def test_kurtosis_of_the_named_laws():
    stated = {law.name: law.kurtosis for law in LIGHT}
    right = {"gaussian": 3, "uniform": 1.8, "rademacher": 1, "laplace": 6, "mixture": 25 / 3}
    assert stated == right


# --- heavy tails at their limits -------------------------------------------------------------


class Scripted:
    """A generator whose float64 draws are given and whose draws of the target dtype are 0.

    A draw that is allocated by the generator but not in float64 fits no signature and fails: the
    variable that carries the tail must have more than 24 random bits.
    """

    def __init__(self, given):
        self.given = np.array(given)

    def standard_exponential(self, size):
        assert size == self.given.size
        return self.given.copy()

    def random(self, size=None, *, dtype=None, out=None):
        if out is None:
            assert dtype is None
            return self.standard_exponential(size)
        out[:] = 0
        return out


@both_precisions
@pytest.mark.parametrize("df", [0.5, 1.0, 3.0, 1e6, 1e12])
def test_radius_of_t_is_exact_from_the_centre_to_the_far_tail(df, dtype):
    exponentials = [1e-12, 1e-6, 0.1, 1.0, 10.0, 40.0]
    out = np.empty(len(exponentials), dtype)
    StudentT(df).fill(Scripted(exponentials), out)  # and the cosine is −1
    assert (out < 0).all()
    # R exceeds r with probability (1 + r²/ν)^(−ν/2), and E exceeds e with probability e^−e. Seen
    # from R, a relative error in E is at most twice that of R, which rounding to dtype makes.
    back = np.log1p(out.astype(np.float64) ** 2 / df) * df / 2
    np.testing.assert_allclose(back, exponentials, rtol=8 * np.finfo(dtype).eps)


@both_precisions
def test_cauchy_inverts_its_distribution_function_out_to_the_far_tail(dtype):
    level = np.array([2.0**-40, 2.0**-20, 0.1, 0.25, 0.75])
    out = np.empty(len(level), dtype)
    Cauchy().fill(Scripted(level), out)
    # Rounding π(u − ½) near −π/2 moves a quantile by eps/u of itself.
    moved = np.finfo(float).eps / level
    right = -1 / np.tan(math.pi * level)
    assert (np.abs(out / right - 1) <= moved + 4 * np.finfo(dtype).eps).all()


def test_smallest_df_stays_finite_in_float64():
    assert np.isfinite(StudentT(0.1).sample(generator(), (N,), np.float64)).all()


def test_float32_cannot_hold_the_heaviest_tails():
    with pytest.raises(InputError, match=r"--df: got 0\.4, want df ≥ 0\.5 in float32"):
        StudentT(0.4).sample(generator(), (3,), np.float32)


@pytest.mark.parametrize("df", [0.0, -1.0, 0.0999, math.nan, math.inf, -math.inf])
def test_df_outside_its_range_is_refused(df):
    with pytest.raises(InputError, match=r"--df: .*want a finite df ≥ 0\.1"):
        StudentT(df)


def test_infinite_df_names_the_limit_law():
    with pytest.raises(InputError, match="take gaussian"):
        StudentT(math.inf)
