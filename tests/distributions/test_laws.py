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
from sdpa_check.distributions.student_t import (
    LARGEST_DF_FLOAT32,
    StudentT,
)
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
    *map(StudentT, (0.5, 1.0, 1.5, 2.0, 3.0, 4.5, 30.0)),
    *map(StudentT, (LARGEST_DF_FLOAT32, LARGEST_DF_FLOAT32 + 1, 1e6, 1e12)),
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
    """A generator whose draws are given, each in the one precision in which it may be asked for.

    Whether a variable has enough random bits to carry its tail is a matter of how it is drawn: a
    draw of another kind or another dtype fails.
    """

    def __init__(self, *, exponentials=None, uniforms=None, raw=None):
        self.exponentials, self.uniforms, self.raw = exponentials, uniforms, raw

    def standard_exponential(self, size, dtype=np.float64):
        assert self.exponentials.shape == (size,)
        assert self.exponentials.dtype == dtype
        return self.exponentials.copy()

    def random(self, *, dtype=np.float64, out):
        assert out.dtype == dtype
        out[:] = self.uniforms
        return out

    @property
    def bit_generator(self):
        return self

    def random_raw(self, size):
        assert self.raw.shape == (size,)
        return self.raw.copy()


def in_single(df, dtype):
    """Whether the radius of t is drawn in float32."""
    return dtype is np.float32 and 1 <= df <= LARGEST_DF_FLOAT32


def off(e, df, dtype):
    """How far the E that belongs to a radius may be off, where the one that was drawn is e.

    The dtype of the result rounds R, which moves E by eps·E at most, and roundings of the way
    there by a few times as much. In float32 e^(2E/ν) is off by eps (2E/ν + 3): two roundings of
    2E/ν, and an exponential good to 3 units. Its size cancels in the E that belongs to it, which is
    off by ν/2 times as much; with 5 more roundings of R² itself, by eps (E + 3ν) at most.
    """
    eps = np.finfo(dtype).eps
    return eps * (e + 3 * df) if in_single(df, dtype) else 8 * eps * e


DFS = [0.5, 1.0, 1.5, 3.0, LARGEST_DF_FLOAT32, LARGEST_DF_FLOAT32 + 1, 1e6, 1e12]


@both_precisions
@pytest.mark.parametrize("df", DFS)
def test_radius_of_t_is_exact_from_the_centre_to_the_far_tail(df, dtype):
    single = in_single(df, dtype)
    given = [1e-12, 1e-6, 0.1, 1.0, 10.0, 22.0 if single else 40.0]
    given = np.array(given, np.float32 if single else np.float64)
    out = np.empty(len(given), dtype)
    StudentT(df).fill(Scripted(exponentials=given, uniforms=0), out)
    assert (out <= 0).all()  # the cosine is −1
    assert (out < 0)[given > off(given, df, dtype)].all()
    # R exceeds r with probability (1 + r²/ν)^(−ν/2), and E exceeds e with probability e^−e.
    back = np.log1p(out.astype(np.float64) ** 2 / df) * df / 2
    assert (np.abs(back - given) <= off(given.astype(np.float64), df, dtype)).all()


@both_precisions
@pytest.mark.parametrize("df", DFS)
def test_t_is_its_formula_in_float64(df, dtype):
    """With the angle: its rounding and those of the cosine come to 12 eps at most.

    Of the angle π eps. In float64 the tangent is good to 4 units, of which 2/(1 + tan²) makes 4 eps
    at most, and there are four more roundings of numbers up to 2; a cosine in float32 is good to 2.
    """
    g, single = generator(7), in_single(df, dtype)
    e = g.standard_exponential(N, np.float32 if single else np.float64)
    u = np.concatenate([[0, 0.25, 0.5, 0.75, 1 - 2.0**-24], g.random(N - 5, np.float32)])
    out = np.empty(N, dtype)
    StudentT(df).fill(Scripted(exponentials=e, uniforms=u), out)
    e, eps = e.astype(np.float64), np.finfo(dtype).eps
    radius = np.sqrt(df * np.expm1(2 * e / df))
    right = radius * np.cos(2 * math.pi * (u - 0.5))
    # dR/dE = R/(ν (1 − e^(−2E/ν)))
    moved = off(e, df, dtype) * radius / (df * -np.expm1(-2 * e / df))
    assert (np.abs(out - right) <= moved + 12 * eps * radius).all()


@pytest.mark.parametrize(
    "df",
    [
        1.0,
        LARGEST_DF_FLOAT32,
    ],
)
def test_no_float32_exponential_is_too_large_for_t(df):
    given = np.array([24.34], np.float32)  # numpy's largest: 7.697 + 24 ln 2
    out = np.empty(1, np.float32)
    StudentT(df).fill(Scripted(exponentials=given, uniforms=0), out)
    assert np.isfinite(out).all()


def test_float32_exponentials_have_a_tail_of_more_than_24_bits():
    """The radius of t relies on it.

    Of 10⁷ draws 450 are beyond 10. An inverse of 24 random bits has 761 numbers there, and 110 of
    the draws would repeat another. Of the 1.7 million that there are, two are equal in 6 % of such
    tests, and 20 pairs are with a probability below 1e-40.
    """
    from scipy import stats

    x = generator(8).standard_exponential(10**7, np.float32)
    far = x[x > 10]
    assert stats.binomtest(len(far), len(x), math.exp(-10)).pvalue > ALPHA
    assert len(np.unique(far)) > len(far) - 20


def test_cauchy_inverts_its_distribution_function_out_to_the_far_tail():
    level = np.array([2.0**-40, 2.0**-20, 0.1, 0.25, 0.75])
    out = np.empty(len(level))
    Cauchy().fill(Scripted(uniforms=level), out)
    # Rounding π(u − ½) near −π/2 moves a quantile by eps/u of itself.
    eps = np.finfo(float).eps
    right = -1 / np.tan(math.pi * level)
    assert (np.abs(out / right - 1) <= eps / level + 4 * eps).all()


POWERS = [sign * 2**i + add for i in range(63) for sign in (-1, 1) for add in (-1, 0, 1)]
RAW = np.array([*POWERS, -(2**63), 1 - 2**63, 2**63 - 1])
"""Raw bits as signed numbers: none set, all set, every size with both signs."""


def cauchy_in_float32(raw):
    out = np.empty(len(raw), np.float32)
    Cauchy().fill(Scripted(raw=raw.view(np.uint64)), out)
    return out


def test_cauchy_in_float32_inverts_its_distribution_function_from_centre_to_pole():
    """Every 64 bits that a generator can return give a number, the cotangent of an angle."""
    raw = np.concatenate([RAW, generator(9).bit_generator.random_raw(N).view(np.int64)])
    out = cauchy_in_float32(raw)
    assert np.isfinite(out).all()
    assert cauchy_in_float32(np.array([0, -1])).tolist() == [largest := out.max(), -largest]
    assert abs(largest / (2.0**64 / math.pi) - 1) < 2.0**-22
    assert np.isfinite(largest * largest)  # a query's and a key's may meet
    angle = math.pi * (raw | 1).astype(np.float64) / 2.0**64
    right = 1 / np.tan(angle)
    # Three roundings of the angle, and what a cotangent makes of them; sine and cosine are good to
    # 2 units.
    eps = np.finfo(np.float32).eps
    moved = 1.5 * eps * np.abs(angle) / np.sin(angle) ** 2
    assert (np.abs(out - right) <= moved + 4.5 * eps * np.abs(right)).all()


def test_cauchy_in_float32_is_symmetric():
    """The bits of a number and those of its opposite are as likely: both are odd."""
    odd = RAW | 1
    np.testing.assert_array_equal(cauchy_in_float32(odd), -cauchy_in_float32(-odd))
    even = odd - 1
    np.testing.assert_array_equal(cauchy_in_float32(even), cauchy_in_float32(odd))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("bits", [40, 30])
def test_the_tail_of_cauchy_in_float32_has_more_than_24_bits(bits, sign):
    """Beyond 2²⁴/π, where U is below 2⁻²⁴ and has `bits` bits left, the law is still exact.

    Given that U is below a bound, it is uniform there.
    """
    from scipy import stats

    raw = sign * generator(10).integers(0, 2**bits, N)
    x = sign * cauchy_in_float32(raw).astype(np.float64)
    assert x.min() > 2**24 / math.pi
    u = np.arctan(1 / x) / math.pi * 2.0 ** (64 - bits)
    assert stats.kstest(u, "uniform").pvalue > ALPHA
    assert len(np.unique(x)) > N / 2


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
