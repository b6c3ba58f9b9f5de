"""Tails of data of unknown law: estimators against slow twins, verdicts against known laws."""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from sdpa_check.errors import InputError
from sdpa_check.tails import (
    Judgement,
    Trust,
    data,
    diagnose,
    diagnosis,
    growth,
    hill,
    pareto_k,
    shape,
)
from sdpa_check.tails.data import Centre
from sdpa_check.tails.moments import Moments

FALSE_ALARM = 1e-6  # of every simulated comparison, two-sided; seeds are fixed
Z = NormalDist().inv_cdf(1 - FALSE_ALARM / 2)

FIELDS = ("mean", "variance", "variance_error", "skewness", "kurtosis")
LAWS = {
    "gaussian": lambda g, n: g.standard_normal(n),
    "uniform": lambda g, n: g.uniform(-1, 1, n),
    "laplace": lambda g, n: g.laplace(size=n),
    "mixture": lambda g, n: np.where(g.random(n) < 0.01, 10, 1) * g.standard_normal(n),
    "rademacher": lambda g, n: 2 * g.integers(0, 2, n) - 1,
    "ternary": lambda g, n: g.integers(-1, 2, n),
    "rounded laplace": lambda g, n: np.rint(g.laplace(size=n)).astype(int),
    "rounded t2": lambda g, n: np.rint(g.standard_t(2, n)).astype(int),
    "half": lambda g, n: g.standard_normal(n).astype(np.float16),
    "sparse": lambda g, n: np.where(g.random(n) < 0.1, g.standard_normal(n), 0),
    **{f"t{nu:g}": lambda g, n, nu=nu: g.standard_t(nu, n) for nu in (1, 1.5, 2, 3, 4, 30)},
}


def trust(report, field):
    return getattr(report, f"{field}_trustworthy").trust


def rates(law, n, runs, seed):
    """How often each field came out with each degree of trust."""
    g = np.random.default_rng(seed)
    counts = dict.fromkeys(((field, degree) for field in FIELDS for degree in Trust), 0)
    for _ in range(runs):
        report = diagnose(LAWS[law](g, n))
        for field in FIELDS:
            counts[field, trust(report, field)] += 1
    return counts


# --- Hill --------------------------------------------------------------------------------------


def slow_hill(x, k):
    size = sorted((abs(float(v)) for v in np.ravel(x)), reverse=True)
    return k / math.fsum(math.log(v / size[k]) for v in size[:k])


def test_hill_by_hand():
    found = hill([[-8, 0], [4, -2], [1, 0]], 3)  # mean of ln 8, ln 4, ln 2
    assert found.index == pytest.approx(1 / (2 * math.log(2)), rel=1e-15)
    assert found.se == pytest.approx(found.index / math.sqrt(3), rel=1e-15)
    assert (found.k, found.threshold, found.largest) == (3, 1.0, 8.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64])
@pytest.mark.parametrize("k", [1, 17, 399])
def test_hill_equals_its_slow_twin(dtype, k):
    x = (1 + 9 * np.random.default_rng(0).pareto(3, (20, 20))).astype(dtype)
    assert hill(x, k).index == pytest.approx(slow_hill(x, k), rel=1e-12)


def test_hill_of_a_power_law():
    """k/ν̂ of an exact power law is Gamma(k)/ν, so the mean of 1/ν̂ has standard error 1/(ν√(kR)).

    The standard error that is reported must match the spread: relative error of a variance of R
    nearly normal numbers √(2/R), Gamma(k = 100) adding 3 % to it.
    """
    g, nu, k, runs = np.random.default_rng(1), 2.5, 100, 400
    found = [hill(1 + g.pareto(nu, 500), k) for _ in range(runs)]
    inverse = np.array([1 / h.index for h in found])
    assert inverse.mean() == pytest.approx(1 / nu, abs=Z / nu / math.sqrt(k * runs))
    claimed = np.mean([(h.se / h.index**2) ** 2 for h in found])
    assert claimed == pytest.approx(inverse.var(ddof=1), rel=1.05 * Z * math.sqrt(2 / runs))


def test_hill_of_a_bounded_atom_is_infinite():
    found = hill([1, -1, 1, 1, 0.5], 3)
    assert found.index == found.se == math.inf


@pytest.mark.parametrize("k", [0, -1, 5, 2.0, "3", None])
def test_hill_wants_a_k_below_n(k):
    with pytest.raises(InputError, match=r"k: got .* want a whole number from 1 to 4"):
        hill([1.0, 2, 3, 4, 5], k)


def test_hill_wants_a_threshold_above_zero():
    with pytest.raises(InputError, match="at most 1, as few data are not zero"):
        hill([0, 0, 0, 3, 4], 2)


# --- generalised Pareto ------------------------------------------------------------------------


def slow_pareto(excess):
    """Zhang & Stephens (2009) with the prior of Vehtari et al., as school arithmetic."""
    y = sorted(float(v) for v in excess)
    n = len(y)
    count = 30 + int(math.sqrt(n))
    quartile = y[int(n / 4 + 0.5) - 1]
    grid = [
        1 / y[-1] + (1 - math.sqrt(count / (j - 0.5))) / (3 * quartile) for j in range(1, count + 1)
    ]

    def shape(b):
        return math.fsum(math.log1p(-b * v) for v in y) / n

    profile = [n * (math.log(-b / shape(b)) - shape(b) - 1) for b in grid]
    weights = [1 / math.fsum(math.exp(min(v - u, 700)) for v in profile) for u in profile]
    b = math.fsum(w * v for w, v in zip(weights, grid, strict=True))
    raw = shape(b)
    return (n * raw + 10 * 0.5) / (n + 10), -raw / b


@pytest.mark.parametrize("nu", [0.5, 1, 3, 30])
@pytest.mark.parametrize("k", [5, 40, 199])
def test_pareto_equals_its_slow_twin(nu, k):
    """To 1e-12, and what the float64 rounding of the weights' exponents, ~10³ each, can change."""
    x = np.random.default_rng(2).standard_t(nu, (10, 20))
    size = np.sort(np.abs(x.reshape(-1)))
    shape, scale = slow_pareto(size[-k:] - size[-k - 1])
    found = pareto_k(x, k)
    assert found.shape == pytest.approx(shape, rel=1e-11, abs=1e-12)
    assert found.scale == pytest.approx(scale, rel=1e-11)
    assert found.se == pytest.approx(max(1, 1 + shape) / math.sqrt(k), rel=1e-11)
    assert (found.k, found.threshold) == (k, size[-k - 1])


@pytest.mark.parametrize(("xi", "exactness"), [(-0.3, 0.62), (0, 1), (0.5, 1), (1.2, 1)])
def test_pareto_finds_the_shape_and_its_error(xi, exactness):
    """Mean and spread of k̂ over 300 generalised Pareto samples, prior included.

    Its bias beyond that of the prior is of the order 1/k: 3/k is granted. The spread of the shrunk
    estimate is that of the other times k/(k + 10); 15 % of its square are granted to k = 500 not
    being infinite, plus Z relative errors √(2/R) of a variance. At −0.3 the claim is too wide.
    """
    g, k, runs = np.random.default_rng(3), 500, 300
    samples = stats.genpareto.rvs(xi, size=(runs, k + 1), random_state=g)
    found = [pareto_k(sample, k) for sample in samples]
    shapes, claimed = np.array([f.shape for f in found]), np.mean([f.se**2 for f in found])
    shrunk, spread = (k * xi + 5) / (k + 10), math.sqrt(claimed) * k / (k + 10)
    assert shapes.mean() == pytest.approx(shrunk, abs=3 / k + Z * spread / math.sqrt(runs))
    room = 0.15 + Z * math.sqrt(2 / runs)
    assert shapes.var() == pytest.approx(exactness * spread**2, rel=room)


@pytest.mark.parametrize(("n", "k"), [(25, 5), (100, 20), (225, 45), (1000, 95), (10_000, 300)])
def test_default_tail_is_that_of_psis(n, k):
    assert pareto_k(np.random.default_rng(4).standard_normal(n)).k == k


def test_pareto_scales_with_the_data():
    x = np.random.default_rng(5).standard_t(3, 1000)
    one, other = pareto_k(x), pareto_k(-1e-150 * x)
    assert other.shape == pytest.approx(one.shape, rel=1e-12)
    assert other.scale == pytest.approx(1e-150 * one.scale, rel=1e-12)


def test_pareto_of_a_lattice_counts_from_the_middle_of_a_cell():
    """Rounded exponential data still look exponential: ξ = 0 within Z (1 + ξ)/√k and the prior."""
    x = np.rint(3 * np.random.default_rng(6).exponential(size=100_000))
    found = pareto_k(x, 2000)
    assert found.threshold % 1 == 0.5
    assert found.k == np.count_nonzero(x > found.threshold)
    assert abs(found.shape) < 5 / found.k + Z / math.sqrt(found.k)


@pytest.mark.parametrize("k", [5, 30, *range(98, 122), 1000])
def test_pareto_of_equal_exceedances_is_bounded(k):
    """Here b = 0 lies on the grid, for k = 100 … 120: the exponential law as a limit of 0/0."""
    found = pareto_k([0.0] * 5 + [1.0] * k, k)
    assert -50 < found.shape < 0
    assert found.scale > 0


def test_nothing_exceeds_an_atom_at_the_end():
    found = pareto_k([-1, 1] * 50, 10)
    assert (found.shape, found.k, found.threshold) == (-math.inf, 0, 1)


def test_pareto_survives_any_range():
    """Six hundred orders of magnitude between bulk and outlier: shape large, nothing overflows."""
    assert pareto_k([*np.linspace(1e-300, 2e-300, 99), 1e300], 20).shape > 5


def test_pareto_wants_exceedances():
    with pytest.raises(InputError, match=r"2 data above 0\.5"):
        pareto_k([0] * 50 + [1, 2], 20)
    with pytest.raises(InputError, match="want a whole number from 5 to 9"):
        pareto_k(range(10), 4)
    with pytest.raises(InputError, match="want a whole number from 5 to 19"):
        pareto_k(range(20))


# --- moments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 3, -1000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int16])
def test_moments_equal_their_textbook_twins(dtype, offset):
    """A library's float64 centring on the mean errs by the offset over σ: 1e-12 times that."""
    x = (5 * np.random.default_rng(7).gamma(2, size=(15, 10, 7)) + offset).astype(dtype)
    found, plain, rel = diagnose(x), x.astype(float).reshape(-1), 1e-12 * (1 + abs(offset))
    assert (found.n, found.blocks) == (1050, None)
    assert found.mean == pytest.approx(math.fsum(plain) / 1050, rel=1e-12, abs=1e-12)
    assert found.variance == pytest.approx(plain.var(ddof=1), rel=rel)
    assert found.std == pytest.approx(plain.std(ddof=1), rel=rel)
    assert found.median == pytest.approx(np.median(plain), rel=1e-14)
    assert found.iqr == pytest.approx(np.subtract(*np.quantile(plain, [0.75, 0.25])), rel=rel)
    moments = Moments.of(x.reshape(-1), Centre(found.median, 1.0))
    assert moments.skewness == pytest.approx(stats.skew(plain), rel=rel)
    assert moments.excess_kurtosis == pytest.approx(stats.kurtosis(plain), rel=rel)
    size = np.abs(plain - found.median)
    for p in (1, 2, 3, 4):
        carriers = (size**p).sum() ** 2 / (size ** (2 * p)).sum()
        assert moments.carriers(p) == pytest.approx(carriers, rel=rel)


def test_shape_moments_are_shown_only_where_they_say_something():
    g = np.random.default_rng(8)
    light, heavy = diagnose(g.uniform(size=10_000)), diagnose(g.standard_t(3, 10_000))
    assert light.excess_kurtosis == pytest.approx(-1.2, abs=0.1)
    assert light.skewness == pytest.approx(0, abs=0.1)
    assert heavy.excess_kurtosis is heavy.skewness is None
    assert heavy.variance > 0


def test_chunks_do_not_show(monkeypatch):
    x = np.random.default_rng(9).standard_t(3, 2000)
    whole = diagnose(x)
    monkeypatch.setattr(data, "_CHUNK", 77)
    parts = diagnose(x)
    assert (parts.hill, parts.pareto, parts.growth) == (whole.hill, whole.pareto, whole.growth)
    assert parts.variance == pytest.approx(whole.variance, rel=1e-13)
    assert hill(x, 50) == whole_hill(x, 50)


def whole_hill(x, k):
    top = np.sort(np.abs(x))[-k - 1 :]
    return shape._hill(top)


@pytest.mark.parametrize("scale", [2.0**-1040, 2.0**-900, 2.0**40, 2.0**1000])
def test_units_do_not_matter(scale):
    """Powers of two are exact; squares of the smallest and largest leave the range of float64."""
    x = np.rint(1000 * np.random.default_rng(10).standard_t(5, 3000))
    one, other = diagnose(x), diagnose(x * scale)
    for field in FIELDS:
        assert getattr(other, f"{field}_trustworthy") == getattr(one, f"{field}_trustworthy")
    assert other.pareto.shape == one.pareto.shape
    assert other.std == pytest.approx(one.std * scale, rel=1e-12)
    assert other.growth.slope == pytest.approx(one.growth.slope, rel=1e-9)


def test_tails_are_counted_from_the_median():
    x = np.rint(1e6 * np.random.default_rng(11).standard_t(2, 5000))
    here, there = diagnose(x), diagnose(x + 2.0**40)
    assert there.pareto == here.pareto
    assert there.variance_trustworthy == here.variance_trustworthy


def test_hill_plot_goes_from_few_to_many():
    found = diagnose(LAWS["t2"](np.random.default_rng(12), 10_000))
    assert [h.k for h in found.hill] == [15, 31, 62, 125, 250, 500]
    assert all(h.se == pytest.approx(h.index / math.sqrt(h.k), rel=1e-12) for h in found.hill)
    thresholds = [h.threshold for h in found.hill]
    assert thresholds == sorted(thresholds, reverse=True)
    assert abs(found.hill[-1].index - 2) < Z * found.hill[-1].se


# --- growth ------------------------------------------------------------------------------------


def slow_growth(x, groups=16):
    """Slopes and mean logarithms by a loop over groups, sizes and sub-samples."""
    length = len(x) // groups
    small = length // 4
    sizes, slopes, means = (small, 2 * small, 4 * small), [], []
    for g in range(groups):
        start, stop = g * len(x) // groups, (g + 1) * len(x) // groups
        step = round((stop - start) * (math.sqrt(5) - 1) / 2)
        while math.gcd(step, stop - start) > 1:
            step += 1
        order = [start + i * step % (stop - start) for i in range(4 * small)]
        logs = [
            np.mean([math.log(x[order[i : i + m]].var(ddof=1)) for i in range(0, 4 * small, m)])
            for m in sizes
        ]
        slopes.append(np.polyfit(np.log(sizes), logs, 1)[0])
        means.append(logs)
    return sizes, slopes, np.mean(means, axis=0)


@pytest.mark.parametrize("n", [512, 5003])
def test_growth_equals_its_slow_twin(n):
    x = np.random.default_rng(13).standard_t(3, n)
    sizes, slopes, means = slow_growth(x)
    found = diagnose(x).growth
    assert found.sizes == sizes
    assert found.groups == 16
    assert found.slope == pytest.approx(np.mean(slopes), rel=1e-11)
    assert found.se == pytest.approx(np.std(slopes, ddof=1) / 4, rel=1e-11)
    assert found.log_variances == pytest.approx(means, rel=1e-11)
    assert found.boundary == pytest.approx(1 / np.log(sizes).mean(), rel=1e-14)


@pytest.mark.parametrize(("law", "slope"), [("t1", 1), ("t1.5", 1 / 3), ("gaussian", 0)])
def test_growth_has_the_slope_of_the_tail(law, slope):
    """2/ν − 1, or 0, over 20 samples of 10^5: Student's t of 19 degrees at 1e-6.

    At m = 1562 … 6248 the slope is still off by the slope of E ln S²: κ/(2m) for normal data, and
    a relative correction m^(1 − 2/ν) for the others, 10 % at ν = 1.5.
    """
    g, t = np.random.default_rng(14), stats.t.isf(FALSE_ALARM / 2, 19)
    found = [diagnose(LAWS[law](g, 100_000)).growth for _ in range(20)]
    slopes = np.array([f.slope for f in found])
    error = slopes.std(ddof=1) / math.sqrt(20)
    assert slopes.mean() == pytest.approx(slope, abs=t * error + 0.1 * slope + 1e-3)
    assert (slopes.mean() > found[0].boundary) == (slope > 0)
    assert np.mean([f.se**2 for f in found]) == pytest.approx(slopes.var(ddof=1), rel=0.95)


def test_neighbours_that_are_alike_are_no_growth():
    """Runs of 50 data share a scale: unscattered sub-samples would see their variance grow."""
    g = np.random.default_rng(15)
    x = (np.exp(g.standard_normal((400, 1))) * g.uniform(-1, 1, (400, 50))).reshape(-1)
    found = diagnose(x).growth
    t = stats.t.isf(FALSE_ALARM / 2, 15)
    assert found.slope < 0.02 + t * found.se
    assert found.slope + t * found.se < found.boundary


def test_sub_samples_that_do_not_vary_are_left_out():
    x = np.zeros(4000)
    x[::100] = np.random.default_rng(16).standard_normal(40)
    assert diagnose(x).growth is None or min(diagnose(x).growth.sizes) > 4000 / 64
    assert diagnose(np.ones(4000)).growth is None
    assert diagnose(np.arange(255)).growth is None


@pytest.mark.parametrize("length", [8, 13, 1000, 2**18, 3 * 5 * 7 * 11 * 13])
def test_golden_steps_visit_every_place(length):
    step = growth._golden(length)
    assert math.gcd(step, length) == 1
    assert step / length == pytest.approx(0.618, abs=0.15)


# --- verdicts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "field", "degree", "rate"),
    [
        *((law, "variance", Trust.TRUSTED, 0.99) for law in ("gaussian", "uniform", "t30")),
        ("gaussian", "variance_error", Trust.TRUSTED, 0.96),
        ("uniform", "variance_error", Trust.TRUSTED, 0.97),
        ("laplace", "variance", Trust.TRUSTED, 0.98),
        ("half", "variance_error", Trust.TRUSTED, 0.96),
        ("rademacher", "kurtosis", Trust.TRUSTED, 1.0),
        ("t3", "variance_error", Trust.NOT_TRUSTED, 0.96),
        ("t2", "variance", Trust.NOT_TRUSTED, 0.93),
        ("t1.5", "variance", Trust.NOT_TRUSTED, 0.99),
        ("t1", "variance", Trust.NOT_TRUSTED, 0.99),
        ("t1", "mean", Trust.NOT_TRUSTED, 0.92),
    ],
)
def test_verdicts_on_a_thousand_data(law, field, degree, rate):
    """Rates of at least `rate`, the binomial bound at 1e-6 below it."""
    check_rate(law, 1000, 150, field, degree, rate)


@pytest.mark.parametrize(
    ("law", "field", "degree", "rate"),
    [
        *((law, "variance_error", Trust.TRUSTED, 0.99) for law in ("gaussian", "t30")),
        ("laplace", "variance_error", Trust.TRUSTED, 0.98),
        ("uniform", "variance_error", Trust.TRUSTED, 0.98),
        ("rounded laplace", "variance_error", Trust.TRUSTED, 0.98),
        ("ternary", "kurtosis", Trust.TRUSTED, 1.0),
        ("sparse", "variance", Trust.TRUSTED, 0.98),
        ("mixture", "mean", Trust.TRUSTED, 0.98),
        ("t3", "variance_error", Trust.NOT_TRUSTED, 0.98),
        ("t2", "variance", Trust.NOT_TRUSTED, 0.94),
        ("rounded t2", "variance", Trust.NOT_TRUSTED, 0.85),
        ("t1.5", "variance", Trust.NOT_TRUSTED, 0.99),
        ("t1", "variance", Trust.NOT_TRUSTED, 0.99),
        ("t1", "mean", Trust.NOT_TRUSTED, 0.94),
    ],
)
def test_verdicts_on_ten_thousand_data(law, field, degree, rate):
    check_rate(law, 10_000, 60, field, degree, rate)


@pytest.mark.parametrize(
    ("law", "field", "degree", "rate"),
    [
        *(
            (law, "variance_error", Trust.TRUSTED, 0.99)
            for law in ("uniform", "laplace", "mixture")
        ),
        *((law, "kurtosis", Trust.TRUSTED, 0.98) for law in ("gaussian", "t30")),
        ("t3", "variance", Trust.TRUSTED, 0.96),
        ("t3", "variance_error", Trust.NOT_TRUSTED, 0.99),
        ("t2", "variance", Trust.NOT_TRUSTED, 0.95),
        ("t1", "mean", Trust.NOT_TRUSTED, 0.94),
    ],
)
def test_verdicts_on_a_hundred_thousand_data(law, field, degree, rate):
    check_rate(law, 100_000, 12, field, degree, rate)


def check_rate(law, n, runs, field, degree, rate):
    count = rates(law, n, runs, seed=17)[field, degree]
    assert count >= stats.binom.ppf(FALSE_ALARM, runs, rate), (law, field, count, runs)


@pytest.mark.parametrize(("law", "field"), [("t2", "variance"), ("t4", "variance_error")])
@pytest.mark.parametrize(("n", "runs"), [(1000, 200), (10_000, 100)])
def test_boundary_laws_are_hardly_ever_trusted(law, field, n, runs):
    """At the limit of a moment at most 4 % are trusted, the binomial bound at 1e-6 above that."""
    count = rates(law, n, runs, seed=18)[field, Trust.TRUSTED]
    assert count <= stats.binom.isf(FALSE_ALARM, runs, 0.04)


@pytest.mark.parametrize("law", ["gaussian", "laplace", "t2", "t4", "mixture", "rounded t2"])
def test_no_moment_is_trusted_more_than_a_lower_one(law):
    g = np.random.default_rng(19)
    for n in (100, 150, 400, 3000):
        report = diagnose(LAWS[law](g, n))
        severity = [diagnosis._SEVERITY.index(trust(report, field)) for field in FIELDS]
        assert severity == sorted(severity)
        assert (report.excess_kurtosis is None) == (severity[-1] == 2)


def test_growth_alone_can_refuse_a_variance():
    """And with it what stands on the variance, but not the mean."""
    x = np.random.default_rng(28).standard_normal(10_000)
    report, moments = diagnose(x), Moments.of(x, Centre(0.0, 1.0))
    for slope, degree in ((0.05, Trust.TRUSTED), (0.1, Trust.DOUBTFUL), (0.12, Trust.NOT_TRUSTED)):
        growth = dataclasses.replace(report.growth, slope=slope, se=0.03, boundary=0.18)
        verdicts = diagnosis._verdicts(moments, report.pareto, growth, math.inf)
        assert [verdict.trust for verdict in verdicts] == [Trust.TRUSTED] + 4 * [degree]
    assert verdicts[1].reason.startswith("slope 0.12 ± 0.03 of ln S² on ln m")


@pytest.mark.parametrize("n", [2, 3, 7, 24, 99])
def test_few_data_are_always_doubtful(n):
    for law in ("t1", "rademacher", "gaussian"):
        report = diagnose(LAWS[law](np.random.default_rng(20), n))
        assert {trust(report, field) for field in FIELDS} == {Trust.DOUBTFUL}
        assert f"{n} data are too few" in report.mean_trustworthy.reason


@pytest.mark.parametrize("value", [0, 0.1, -7, 1e300])
def test_equal_data(value):
    report = diagnose(np.full((10, 40), value))
    assert (report.mean, report.variance, report.iqr) == (value, 0, 0)
    assert report.variance_error_trustworthy
    assert trust(report, "kurtosis") is Trust.NOT_TRUSTED
    assert report.skewness is report.excess_kurtosis is None
    assert diagnose([3, 3]).excess_kurtosis is None


def test_an_outlier_is_seen_though_the_tail_is_light():
    """It is one of 5000 exceedances: k̂ stays far from 1/2, but the variance is its own."""
    x = np.random.default_rng(21).standard_normal(1_000_000, dtype=np.float32)
    x[77] = 1e4
    report = diagnose(x)
    assert report.pareto.shape + 3 * report.pareto.se < 0.5
    assert trust(report, "variance") is Trust.NOT_TRUSTED
    carried = "the mean of |x − median|^2 is carried by about 1 of 1000000 data"
    assert report.variance_trustworthy.reason == carried
    x[:5] = 1e4
    assert trust(diagnose(x), "variance") is Trust.NOT_TRUSTED


def test_outliers_beside_the_bulk_are_judged_by_their_own_tail():
    """1 % of data a hundred times as wide: the 1582 largest mix both groups and look like ξ > 1."""
    g = np.random.default_rng(22)
    x = np.where(g.random(100_000) < 0.01, 100, 1) * g.standard_normal(100_000)
    assert pareto_k(x, 1582).shape > 1
    report = diagnose(x)
    assert report.pareto.k < 1000
    assert report.pareto.shape < 0.2
    assert report.mean_trustworthy
    assert report.variance_trustworthy


def test_reasons_are_sentences_about_the_evidence():
    report = diagnose(LAWS["t1"](np.random.default_rng(23), 10_000))
    shape = rf"tail shape {report.pareto.shape:.3f} ± {report.pareto.se:.3f} from 500 exceedances"
    assert report.variance_error_trustworthy.reason.startswith(shape)
    assert "97.5% upper bound" in report.variance_error_trustworthy.reason
    assert "where the moment is infinite" in report.variance_error_trustworthy.reason


def test_only_trusted_is_true():
    assert [bool(Judgement(degree, "")) for degree in Trust] == [True, False, False]


def test_too_few_exceedances_decide_nothing():
    x = np.zeros(2000)
    x[:7] = range(1, 8)
    report = diagnose(x)
    assert report.pareto is None
    assert report.hill == ()
    assert trust(report, "mean") is not Trust.TRUSTED


# --- dependent data ----------------------------------------------------------------------------


def clustered(g, blocks, width, nu):
    """Data of marginal law t(ν) that share their scale within a block."""
    return g.standard_normal((blocks, width)) / np.sqrt(g.chisquare(nu, (blocks, 1)) / nu)


def test_errors_of_blocks_come_from_blocks():
    """Variance of k̂ and 1/ν̂ over 80 samples of shared scales against the mean claimed one.

    The variance of 80 nearly normal numbers has a relative error of √(2/80), 16 groups give each
    claimed one √(2/15), and so their mean √(2/15/80). The jackknife of a ratio is biased by a few
    per cent of 16 groups: 1/16 granted. The error for independent data is too small by far.
    """
    g, runs = np.random.default_rng(24), 80
    found = [diagnose(clustered(g, 400, 64, 4), block_axis=0) for _ in range(runs)]
    last = [f.hill[-1] for f in found]
    room = 1 / 16 + Z * math.sqrt(2 / runs + 2 / 15 / runs)
    shapes = np.var([f.pareto.shape for f in found], ddof=1)
    assert np.mean([f.pareto.se**2 for f in found]) == pytest.approx(shapes, rel=room)
    inverse = np.var([1 / h.index for h in last], ddof=1)
    assert np.mean([(h.se / h.index**2) ** 2 for h in last]) == pytest.approx(inverse, rel=room)
    assert np.mean([1 / h.index**2 / h.k for h in last]) < inverse / 3


def slow_jackknife(x, groups=16):
    """Errors of k̂ and ν̂ by leaving out sixteenths of the rows in a loop; same thresholds."""
    size, k = np.abs(x - np.median(x)), math.ceil(5 * math.sqrt(x.size))
    threshold = np.sort(size.reshape(-1))[-k - 1]
    shapes, inverse = [], []
    for g in range(groups):
        rest = np.delete(size, np.s_[g * len(x) // groups : (g + 1) * len(x) // groups], axis=0)
        above = rest[rest > threshold]
        shapes.append(slow_pareto(above - threshold)[0])
        inverse.append(np.mean(np.log(above / threshold)))
    index = 1 / np.mean(np.log(size[size > threshold] / threshold))
    return [math.sqrt(15) * np.std(shapes), math.sqrt(15) * np.std(inverse) * index**2]


@pytest.mark.parametrize("chunk", [1 << 17, 100])
def test_errors_of_blocks_equal_their_slow_twin(chunk, monkeypatch):
    """To the rounding of k̂, 1e-12, over its error."""
    monkeypatch.setattr(data, "_CHUNK", chunk)
    x = clustered(np.random.default_rng(29), 50, 40, 5)
    found = diagnose(x, block_axis=0)
    errors = found.pareto.se, found.hill[-1].se
    assert found.pareto.k == found.hill[-1].k == 224
    assert errors == pytest.approx(slow_jackknife(x), rel=1e-9)


@pytest.mark.parametrize(("axis", "dof"), [(None, math.inf), (0, 15)])
def test_bounds_of_blocks_are_students(axis, dof):
    x = np.random.default_rng(30).uniform(-1, 1, (200, 50))
    found = diagnose(x, block_axis=axis)
    bound = found.pareto.shape + stats.t.isf(0.005, dof) * found.pareto.se
    assert f"99.5% upper bound {bound:.3g} stays below 0.25" in (
        found.variance_error_trustworthy.reason
    )


def test_any_axis_may_hold_the_blocks():
    x = clustered(np.random.default_rng(25), 40, 60, 5)
    first = diagnose(x.reshape(40, 6, 10), block_axis=0)
    last = diagnose(np.moveaxis(x.reshape(40, 6, 10), 0, -1), block_axis=-1)
    assert last == first
    assert (first.blocks, first.n) == (40, 2400)
    assert first.growth.groups == 16
    assert diagnose(x[:9], block_axis=0).growth.groups == 9
    assert diagnose(x).pareto.shape == first.pareto.shape
    assert diagnose(x).pareto.se != first.pareto.se


def test_a_tail_in_one_block_has_no_error():
    """Without that group of slices no exceedance is left: the tail is then unknown."""
    x = np.random.default_rng(26).uniform(-1, 1, (16, 500))
    x[3] *= 100
    report = diagnose(x, block_axis=0)
    assert report.pareto.se == report.hill[-1].se == math.inf
    assert trust(report, "mean") is Trust.NOT_TRUSTED


# --- input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [diagnose, pareto_k, lambda x: hill(x, 3)])
def test_what_is_not_finite_is_counted(function):
    x = np.ones((3, 100), np.float32)
    x[0, :4], x[1, 7], x[2, 1] = np.nan, np.inf, -np.inf
    with pytest.raises(InputError, match="4 NaN and 2 infinite among 300 data") as raised:
        function(x)
    assert raised.value.where == "x"


class Unconvertible:
    """As a tensor of a kind that numpy does not have."""

    def __array__(self, *_, **__):
        raise TypeError("unsupported ScalarType BFloat16")


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (["a", "b"], "x: got 'list of <U1', want real numbers$"),
        (np.array([1j, 2]), "x: got 'ndarray of complex128', want real numbers$"),
        (None, "x: got 'NoneType of object', want real numbers$"),
        ([None, 1], "x: got 'list of object', want real numbers$"),
        ([True, False], "x: got 'list of bool', want real numbers; convert it to float32 first"),
        ([[1], [2, 3]], "x: got 'list', want an array of real numbers.* inhomogeneous"),
        (Unconvertible(), "x: got 'Unconvertible', want an array .*; numpy: unsupported"),
    ],
)
def test_only_real_numbers(x, said):
    with pytest.raises(InputError, match=f"^{said}"):
        diagnose(x)


@pytest.mark.parametrize("x", [[], 3.0, [1], np.empty((5, 0))])
def test_at_least_two_data(x):
    with pytest.raises(InputError, match="at least 2"):
        diagnose(x)


@pytest.mark.parametrize("axis", [2, -3, "rows", 0.5])
def test_the_block_axis_must_exist(axis):
    with pytest.raises(InputError, match=r"block_axis: got .* from -2 to 1"):
        diagnose(np.ones((20, 20)), block_axis=axis)


def test_few_blocks_are_refused():
    with pytest.raises(InputError, match="at least 8 independent slices, not 7"):
        diagnose(np.ones((7, 50)), block_axis=0)


def test_input_is_left_alone():
    x = np.random.default_rng(27).standard_normal(1000)
    before = x.copy()
    diagnose(x)
    diagnose(x.reshape(50, 20), block_axis=1)
    assert (x == before).all()
