"""Error bars: against loops, against textbook formulas, and against the truth over many runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sdpa_check import engine, estimates, rng
from sdpa_check.engine import Replicates
from sdpa_check.histogram import LogGrid
from sdpa_check.logits import scaling
from sdpa_check.measures.dot import DotWork
from sdpa_check.measures.row_scores import RowsShape
from sdpa_check.measures.rows import RowsWork
from sdpa_check.quantities import Case, Sample, quantity
from sdpa_check.records import Component, Design
from sdpa_check.theory.law import DotLaw

FALSE_ALARM = 1e-6  # of every statistical comparison below; all seeds are fixed
Z = stats.norm.isf(FALSE_ALARM / 2)


def replicates(**sums):
    return Replicates(sums, len(next(iter(sums.values()))))


def draw(count=40, seed=0):
    g = np.random.default_rng(seed)
    x = 3 + g.standard_normal((count, 2)) + g.standard_normal((count, 1))
    return replicates(x=x, n=g.uniform(5, 9, count))


def ratio(m):
    return m["x"][:, 0] / m["n"]


def logarithm(m):
    return np.log(m["x"][:, 0] ** 2 + m["x"][:, 1] * m["n"])


def jackknife(data, function):
    """The delete-one jackknife, written out."""
    count = data.count
    left_out = []
    for r in range(count):
        rest = {k: [v[i] for i in range(count) if i != r] for k, v in data.sums.items()}
        means = {k: np.array([sum(v) / (count - 1)]) for k, v in rest.items()}
        left_out.append(float(function(means)[0]))
    centre = sum(left_out) / count
    square = sum((theta - centre) ** 2 for theta in left_out)
    whole = {k: np.array([sum(v) / count]) for k, v in data.sums.items()}
    return float(function(whole)[0]), math.sqrt((count - 1) / count * square)


@pytest.mark.parametrize("function", [ratio, logarithm])
@pytest.mark.parametrize("count", [2, 3, 40, 128])
def test_jackknife_twin(function, count):
    data = draw(count)
    found = estimates.function_of_means(data, function, samples=7)
    value, se = jackknife(data, function)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert found.se == pytest.approx(se, rel=1e-12)
    assert (found.blocks, found.samples, found.level, found.withheld) == (count, 7, 0.95, "")


@pytest.mark.parametrize("count", [2, 32, 100])
def test_a_mean_has_the_ordinary_standard_error(count):
    x = np.random.default_rng(count).standard_normal(count)
    found = estimates.function_of_means(replicates(x=x), lambda m: m["x"], samples=1)
    assert found.value == pytest.approx(x.mean(), abs=1e-14)
    assert found.se == pytest.approx(x.std(ddof=1) / math.sqrt(count), rel=1e-12)


@pytest.mark.parametrize("count", [2, 32, 128])
def test_interval_is_students(count):
    found = estimates.with_error(3.0, 0.5, count, 1)
    lo, hi = stats.t(count - 1, 3.0, 0.5).interval(0.95)
    assert (found.lo, found.hi) == pytest.approx((lo, hi), rel=1e-12)


def test_withheld_gives_the_value_alone():
    found = estimates.function_of_means(draw(), ratio, samples=5, withheld="no fourth moment")
    assert found.value == estimates.function_of_means(draw(), ratio, samples=5).value
    assert (found.se, found.lo, found.hi) == (None, None, None)
    assert found.withheld == "no fourth moment"


@pytest.mark.parametrize("bad", [math.inf, math.nan, 1e200])
def test_no_error_bar_beyond_floating_point(bad):
    x = np.array([1.0, 2.0, bad])
    found = estimates.function_of_means(replicates(x=x), lambda m: m["x"] ** 2, samples=1)
    assert found.se is None
    assert found.withheld


def test_scaled():
    found = estimates.with_error(3.0, 0.5, 32, 9)
    twice = estimates.scaled(found, -2.0)
    assert (twice.value, twice.se, twice.blocks, twice.samples) == (-6.0, 1.0, 32, 9)
    assert (twice.lo, twice.hi) == pytest.approx((-2 * found.hi, -2 * found.lo), rel=1e-15)
    bare = estimates.scaled(estimates.bare(3.0, 32, 9, "why"), 2.0)
    assert (bare.value, bare.se, bare.withheld) == (6.0, None, "why")


def test_combined():
    parts = [estimates.with_error(2.0, 0.3, 64, 10), estimates.with_error(1.0, 0.4, 32, 5)]
    found = estimates.combined(parts, [1.0, -2.0])
    assert found.value == 0.0
    assert found.se == pytest.approx(math.hypot(0.3, 0.8), rel=1e-14)
    assert (found.blocks, found.samples) == (32, 15)
    bare = estimates.combined([parts[0], estimates.bare(1.0, 32, 5, "why")], [1.0, 1.0])
    assert (bare.value, bare.se, bare.withheld) == (3.0, None, "why")


SIGNED = LogGrid.octaves(-8, 6, bits=5)
UNSIGNED = LogGrid.octaves(-40, 1, bits=5, signed=False)


def laws(name, g, shape):
    return {
        "normal": lambda: (SIGNED, g.standard_normal(shape)),
        "cauchy": lambda: (SIGNED, g.standard_cauchy(shape)),
        "shifted": lambda: (SIGNED, 5 + g.standard_normal(shape)),
        "beta": lambda: (UNSIGNED, g.beta(0.3, 2, shape)),
        "burst": lambda: (UNSIGNED, np.exp(-np.abs(5 * g.standard_normal(shape)))),
    }[name]()


def histogram(grid, x):
    return np.array([grid.counts(row) for row in x])


@pytest.mark.parametrize("name", ["normal", "cauchy", "shifted", "beta", "burst"])
@pytest.mark.parametrize("level", [0.02, 0.05, 0.25, 0.5, 0.75, 0.95, 0.98])
def test_quantile_lies_in_the_bin_of_the_true_one(name, level):
    """Pooled counts give F exactly at every edge, so only the place within a bin is interpolated.

    Where level · n is an integer k, every number between the k-th and the next is the quantile.
    """
    grid, x = laws(name, np.random.default_rng(1), (20, 300))
    found = estimates.quantile_combination(histogram(grid, x), grid, (level,), (1.0,), samples=1)
    k, ordered, edges = level * x.size, np.sort(x, axis=None), grid.edges()
    before, after = ordered[math.ceil(k - 1e-9) - 1], ordered[math.floor(k + 1e-9)]
    assert edges[np.searchsorted(edges, before, "right") - 1] <= found.value
    assert found.value <= edges[np.searchsorted(edges, after, "right")]


@pytest.mark.parametrize("name", ["normal", "cauchy", "beta"])
def test_shares_below_a_point_are_those_of_the_whole_distribution_function(name):
    grid, x = laws(name, np.random.default_rng(4), (20, 300))
    counts, edges = histogram(grid, x), estimates._finite_edges(grid)
    totals = counts.sum(axis=1)
    whole = np.cumsum(counts, axis=1) / totals[:, None]
    points = [*edges[[0, 1, 2, -3, -2, -1]], *np.quantile(x, [0.02, 0.5, 0.98]), 0.0]
    for at in points:
        each = [np.interp(at, edges[1:], row) for row in whole]
        np.testing.assert_array_equal(estimates._shares_below(at, counts, edges, totals), each)


@pytest.mark.parametrize("level", [0.1, 0.9])
def test_no_number_beyond_the_grid(level):
    """A fifth of the sample lies in either open bin, where nothing is known about the place."""
    grid = LogGrid.octaves(-8, 3, bits=5)
    x = np.repeat([-100.0, 1.0, 2.0, 3.0, 100.0], 20) * np.ones((10, 1))
    found = estimates.quantile_combination(histogram(grid, x), grid, (level,), (1.0,), samples=1)
    assert found.se is None
    assert math.isnan(found.value)
    assert "beyond" in found.withheld
    inside = estimates.quantile_combination(histogram(grid, x), grid, (0.5,), (1.0,), samples=1)
    assert inside.se is not None


def test_combination_adds_up():
    grid, x = laws("normal", np.random.default_rng(2), (20, 300))
    counts = histogram(grid, x)
    alone = [
        estimates.quantile_combination(counts, grid, (p,), (1.0,), samples=1).value
        for p in (0.25, 0.75)
    ]
    both = estimates.quantile_combination(counts, grid, (0.25, 0.75), (-1.0, 1.0), samples=1)
    logs = estimates.quantile_combination(
        counts, grid, (0.25, 0.75), (-1.0, 1.0), samples=1, log=True
    )
    assert both.value == pytest.approx(alone[1] - alone[0], rel=1e-14)
    assert logs.value == pytest.approx(math.log(both.value), rel=1e-14)
    assert logs.se == pytest.approx(both.se / both.value, rel=1e-14)


def influence_twin(counts, grid, levels, weights):
    """The standard error written out: slope of F over ±2 standard errors, at least the own bin."""
    edges = grid.edges()
    edges[-1] = 2 * edges[-2]
    if grid.signed:
        edges[0] = 2 * edges[1]
    total = counts.sum(axis=0)

    def cdf(z, row):
        share = np.clip((z - edges[:-1]) / np.diff(edges), 0, 1)
        return float((row * share).sum() / row.sum())

    def quantile(level):
        return float(np.interp(level, [cdf(e, total) for e in edges], edges))

    errors = np.zeros(len(counts))
    for level, weight in zip(levels, weights, strict=True):
        at = quantile(level)
        own = np.array([cdf(at, row) for row in counts])
        half = max(2 * own.std(ddof=1) / math.sqrt(len(counts)), 2 / total.sum())
        i = np.flatnonzero(edges <= at)[-1]
        low = min(quantile(level - half), edges[i])
        high = max(quantile(level + half), edges[i + 1])
        errors -= weight * (own - level) * (high - low) / (cdf(high, total) - cdf(low, total))
    return errors.std(ddof=1) / math.sqrt(len(counts))


@pytest.mark.parametrize("name", ["normal", "cauchy", "beta"])
@pytest.mark.parametrize(
    ("levels", "weights"), [((0.3,), (1.0,)), ((0.25, 0.75), (-1.0, 1.0)), ((0.9,), (-2.0,))]
)
def test_quantile_error_twin(name, levels, weights):
    grid, x = laws(name, np.random.default_rng(3), (10, 200))
    counts = histogram(grid, x)
    found = estimates.quantile_combination(counts, grid, levels, weights, samples=1)
    assert found.se == pytest.approx(influence_twin(counts, grid, levels, weights), rel=1e-10)


@pytest.mark.parametrize("cluster", [0.0, 0.5], ids=["independent", "clustered"])
@pytest.mark.parametrize(
    ("levels", "weights", "log"),
    [
        ((0.5,), (1.0,), False),
        ((0.25, 0.75), (-1.0, 1.0), False),
        ((0.25, 0.75), (-1.0, 1.0), True),
    ],
    ids=["median", "iqr", "log iqr"],
)
def test_quantile_error_is_the_spread_over_repetitions(cluster, levels, weights, log):
    """Mean se² against the variance of the values over 800 repetitions.

    The variance of N values has the relative error √(2/N), the mean of se² less than √(2/(R N)) by
    the replicates and about 1/√(2·half·n) per run by the window of the slope; the window also
    biases the slope by about 5 % here. False-alarm rate below 1e-6 at Z standard errors.
    """
    repetitions, count, n = 800, 32, 200
    g = np.random.default_rng(4)
    values, squares = [], []
    for _ in range(repetitions):
        spread = np.exp(cluster * g.standard_normal((count, 1)))
        x = spread * g.standard_normal((count, n)) + cluster * g.standard_normal((count, 1))
        found = estimates.quantile_combination(
            histogram(SIGNED, x), SIGNED, levels, weights, samples=1, log=log
        )
        values.append(found.value)
        squares.append(found.se**2)
    ratio_ = np.mean(squares) / np.var(values, ddof=1)
    assert abs(ratio_ - 1) < Z * math.sqrt(2 / repetitions) + 0.05


# -- Calibration: small runs over many fixed seeds, against exact values. --
# `benchmarks/coverage.py` does the same with more laws, more seeds and a table.

RUNS, BLOCKS = 200, 32
LAPLACE = Component(distribution="laplace")
DOT_WORKS = {
    "gaussian": DotWork(Design(dk=16), 32),
    "laplace": DotWork(Design(dk=64, query=LAPLACE, key=LAPLACE), 32),
}
MOMENTS = ("dot.mean", "dot.variance", "dot.std", "dot.excess_kurtosis", "dot.iqr")


def intervals(work, multiplier, asked):
    """(value, se, lo, hi) of every (name, case) asked, shape (RUNS, asked, 4)."""
    found = []
    for seed in range(RUNS):
        merged = engine.run(work, seed=seed, blocks=BLOCKS, jobs=1)
        sample = Sample(work=work, replicates=merged, multiplier=multiplier)
        each = [quantity(name).estimate(case, (sample,)) for name, case in asked]
        found.append([(e.value, e.se, e.lo, e.hi) for e in each])
    return np.array(found)


def assert_calibrated(name, right, runs):
    """Coverage of the 95 % interval, and the size of the error bar, over independent runs.

    A true coverage of 93 to 97 % is allowed; the count of RUNS is binomial around it. The spread of
    the values has the relative error √((κ − 1)/(4 RUNS)), with κ ≤ 5 for what is measured here, and
    an interval for that is only as narrow as this. False-alarm rate below 1e-6 each.
    """
    value, se, lo, hi = runs.T
    held = int(np.sum((lo <= right) & (right <= hi)))
    assert held >= stats.binom.ppf(FALSE_ALARM, RUNS, 0.93), f"{name}: {held} of {RUNS}"
    assert held <= stats.binom.isf(FALSE_ALARM, RUNS, 0.97), f"{name}: {held} of {RUNS}"
    ratio_ = math.sqrt(np.mean(se**2)) / value.std(ddof=1)
    assert abs(ratio_ - 1) < 0.03 + Z / math.sqrt(RUNS), f"{name}: se/sd = {ratio_:.3f}"


@pytest.mark.parametrize("law", DOT_WORKS)
def test_intervals_of_dot_products_hold_the_truth(law):
    work = DOT_WORKS[law]
    asked = [(name, Case(designs=(work.design,))) for name in MOMENTS]
    found = intervals(work, 1.0, asked)
    for i, (name, case) in enumerate(asked):
        assert_calibrated(name, quantity(name).predict(case).value, found[:, i])


@pytest.mark.parametrize("scale", ["none", "sqrt"])
def test_intervals_of_rows_hold_the_truth(scale):
    """With two keys ‖J‖_F = 2p(1 − p) falls in |Δ|, Δ = c q·(k₁ − k₂): its median is exact too."""
    design, rule = Design(dk=16, keys=2), scaling.parse(scale)
    c = rule.multiplier(16)
    case = Case(designs=(design,), scale=rule)
    work = RowsWork(design, (c,), RowsShape(groups=1, queries=16, key_sets=4))
    work = work.with_grids(rng.generator(0, "grids", 0))
    asked = [("softmax.entropy", case), ("softmax.sum_squares", case), ("jacobian.frobenius", case)]
    right = [quantity(name).predict(case).value for name, _ in asked]
    asked.append(("jacobian.frobenius", Case(designs=(design,), scale=rule, statistic="median")))
    gap = math.sqrt(2) * c * DotLaw(design).quantile(0.75)
    right.append(0.5 / math.cosh(gap / 2) ** 2)
    found = intervals(work, c, asked)
    for i, (name, one) in enumerate(asked):
        assert_calibrated(f"{name} {one.statistic}", right[i], found[:, i])
