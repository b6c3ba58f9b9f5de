"""The vocabulary: estimators on sums made by hand, predictions of the theory, and both together."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from sdpa_check import engine, experiment
from sdpa_check.checks import Check, Settings
from sdpa_check.engine import Replicates
from sdpa_check.errors import InputError
from sdpa_check.histogram import SampleGrid
from sdpa_check.logits import scaling
from sdpa_check.measures.dot import DotWork
from sdpa_check.measures.row_scores import RowsShape
from sdpa_check.measures.rows import AVERAGED, NORMS, RowsWork
from sdpa_check.quantities import QUANTITIES, Case, Quantity, Sample, quantity
from sdpa_check.quantities.params import PARAMS
from sdpa_check.records import Component, Design, Outcome

COUNT, N = 20, 64  # replicates, and dot products or rows in each
SQRT = scaling.parse("sqrt")


def law(name="gaussian", **kwargs):
    component = Component(distribution=name, **kwargs)
    return {"query": component, "key": component}


def case(design, **kwargs):
    return Case(designs=(design,), **kwargs)


def estimate(name, asked, *samples):
    return quantity(name).estimate(asked, samples)


def predict(name, asked):
    return quantity(name).predict(asked)


def test_names_are_those_of_the_table():
    assert all(found.name == name for name, found in QUANTITIES.items())
    for found in QUANTITIES.values():
        assert found.formula
        assert found.unit in {"1", "nats"}
        assert set(found.params) <= PARAMS.keys()
        if isinstance(found, Quantity):
            assert (found.statistic is not None) == ("statistic" in found.params)
            if found.sampling in {"dot", "rows"}:
                assert found.sampling == ("dot" if found.name[:3] in {"dot", "log"} else "rows")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"did you mean 'dot\.variance'"):
        quantity("dot.varience")
    with pytest.raises(InputError, match="row 7"):
        quantity("nonsense", where="row 7")


def dot_sample(design, multiplier=1.0, seed=0):
    """Sums of given scores, with the scores."""
    work = DotWork(design, 8)
    s = 3 * np.random.default_rng(seed).standard_t(12, (COUNT, N)) + work.pivot + 0.5
    t = s - work.pivot
    powers = {f"tile{p}": (t**p).sum(axis=1) for p in (1, 2, 3, 4)}
    count = np.full(COUNT, float(N))
    sums = {"pairs": count, "tile": count, **powers}
    sums |= {"power1": powers["tile1"], "power2": powers["tile2"]}
    sums["histogram"] = np.array([work.grid.counts(row) for row in t])
    return Sample(work=work, replicates=Replicates(sums, COUNT), multiplier=multiplier), s


PLAIN = Design(dk=16)
MOVED = Design(dk=16, **law(mean=1.5))  # its pivot is 36


@pytest.mark.parametrize("design", [PLAIN, MOVED])
@pytest.mark.parametrize("multiplier", [1.0, 0.25])
def test_moments_are_those_of_the_sample(design, multiplier):
    sample, s = dot_sample(design, multiplier)
    dot, logit = case(design), case(design, scale=SQRT)
    right = {
        "dot.mean": s.mean(),
        "dot.variance": s.var(),
        "dot.std": s.std(),
        "dot.excess_kurtosis": stats.kurtosis(s, axis=None),
        "logit.mean": multiplier * s.mean(),
        "logit.variance": multiplier**2 * s.var(),
        "logit.std": multiplier * s.std(),
    }
    for name, value in right.items():
        factor = 1.0 if name.startswith("dot") else multiplier
        whole = dataclasses.replace(sample, multiplier=factor)
        found = estimate(name, dot if factor == 1 else logit, whole)
        assert found.value == pytest.approx(value, rel=1e-11), name
        assert found.samples == s.size
        assert found.blocks == COUNT


@pytest.mark.parametrize("design", [PLAIN, MOVED])
def test_quantiles_are_those_of_the_sample(design):
    """To the width of a bin, 1/128 of the distance from the pivot, and of the gap to the next."""
    sample, s = dot_sample(design)
    for level in (0.1, 0.5, 0.9):
        found = estimate("dot.quantile", case(design, level=level), sample)
        around = np.quantile(s, [level - 1 / s.size, level + 1 / s.size])
        width = np.abs(around - sample.work.pivot).max() / 128
        assert around[0] - width <= found.value <= around[1] + width
    found = estimate("dot.iqr", case(design), sample)
    assert found.value == pytest.approx(stats.iqr(s), abs=np.abs(s - sample.work.pivot).mean() / 20)


@pytest.mark.parametrize("level", [None, 0.0, 1.0, -1.0, math.nan])
def test_a_quantile_needs_a_level(level):
    sample, _ = dot_sample(PLAIN)
    with pytest.raises(InputError, match="level"):
        estimate("dot.quantile", case(PLAIN, level=level), sample)


@pytest.mark.parametrize(
    ("name", "needed"),
    [("dot.mean", 2), ("dot.variance", 4), ("dot.std", 4), ("dot.excess_kurtosis", 8)],
)
def test_error_bars_need_twice_the_moment(name, needed):
    for df, available in ((needed, False), (needed + 0.1, True), (1, False), (20, True)):
        design = Design(dk=16, query=Component(distribution="t", df=df))
        sample, _ = dot_sample(design)
        found = estimate(name, case(design), sample)
        assert (found.se is not None) == available
        assert bool(found.withheld) != available
        assert estimate("dot.iqr", case(design), sample).se is not None


def rows_sample(multiplier):
    """Sums of given row statistics of two multipliers, of which the second is asked for."""
    design = Design(dk=16, keys=8)
    g = np.random.default_rng(1)
    values = {name: g.uniform(0.1, 0.4, (COUNT, N)) for name in AVERAGED}
    grids = tuple(SampleGrid.of(values[name]) for name in NORMS)
    sums = {"rows1": np.full((COUNT, 2), float(N))}
    sums["mean1"] = np.stack([v.sum(axis=1) for v in values.values()], axis=1)
    sums["square1"] = np.stack([(values[name] ** 2).sum(axis=1) for name in NORMS], axis=1)
    for name, grid in zip(NORMS, grids, strict=True):
        sums[f"histogram1.{name}"] = np.array([grid.counts(row) for row in values[name]])
    work = RowsWork(design, (1.0, multiplier), RowsShape(1, 8, 8), ((), grids))
    sample = Sample(work=work, replicates=Replicates(sums, COUNT), multiplier=multiplier)
    return sample, values, case(design, scale=SQRT)


def test_row_averages_are_those_of_the_sample():
    sample, values, asked = rows_sample(0.25)
    right = {f"softmax.{name}": v.mean() for name, v in values.items() if name not in NORMS}
    right["softmax.saturated_fraction"] = right.pop("softmax.saturated")
    right["softmax.entropy_ratio"] = right["softmax.entropy"] / math.log(8)
    for name in right.keys() & QUANTITIES.keys():
        found = estimate(name, asked, sample)
        assert found.value == pytest.approx(right[name], rel=1e-12), name
        assert found.samples == COUNT * N
    assert len(right.keys() & QUANTITIES.keys()) >= 8
    distance = 1 - 2 * right["softmax.max_weight"] + right["softmax.sum_squares"]
    assert estimate("softmax.argmax_distance", asked, sample).value == pytest.approx(distance)


def test_the_distance_from_the_likeliest_value_by_drawing_values():
    """Of rows p and values v ~ N(3, 1), d_v = 64, 2000 of them: 5.5 standard errors, 4e-8."""
    g = np.random.default_rng(4)
    sample = measured_rows(Design(dk=16, keys=8), 1.0)
    found = estimate("softmax.argmax_distance", case(Design(dk=16, keys=8), scale=SQRT), sample)
    s = g.standard_normal((2000, 1, 16)) @ g.standard_normal((2000, 16, 8))
    p = np.exp(s - s.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)
    v = 3 + g.standard_normal((2000, 8, 64))
    best = v[np.arange(2000), s[:, 0].argmax(axis=1)]
    each = np.square((p @ v)[:, 0] - best).mean(axis=1)
    error = math.hypot(each.std() / math.sqrt(len(each)), found.se)
    assert abs(found.value - each.mean()) < 5.5 * error
    assert error < 0.05 * found.value


def measured_rows(design, multiplier):
    work = RowsWork(design, (multiplier,), RowsShape(8, 16, 4))
    return Sample(
        work=work, replicates=engine.run(work, seed=0, blocks=32, jobs=1), multiplier=multiplier
    )


@pytest.mark.parametrize("norm", NORMS)
def test_norm_statistics_are_those_of_the_sample(norm):
    sample, values, asked = rows_sample(0.25)
    x = values[norm]
    right = {"mean": (x.mean(), 1e-12), "rms": (math.sqrt((x**2).mean()), 1e-12)}
    for statistic, level in (("median", 0.5), ("q05", 0.05), ("q95", 0.95)):
        right[statistic] = (np.quantile(x, level), 0.005)  # bins hold a 2048th of [0.1, 0.4]
    for statistic, (value, rel) in right.items():
        found = estimate(
            f"jacobian.{norm}", dataclasses.replace(asked, statistic=statistic), sample
        )
        assert found.value == pytest.approx(value, rel=rel), statistic
    plain = estimate(f"jacobian.{norm}", asked, sample)
    assert plain.value == pytest.approx(right["rms"][0], rel=1e-12)


def test_exponents_are_slopes():
    """Scores widened by known factors have known slopes, with errors as if fitted by hand."""
    designs = tuple(Design(dk=dk) for dk in (4, 16, 64))
    sweep = Case(designs=designs)
    found, logs, errors = [], [], []
    for design in designs:
        sample, s = dot_sample(design, seed=design.dk)
        found.append(sample)
        logs.append(math.log(s.var()))
        variance = estimate("dot.variance", case(design), sample)
        errors.append(variance.se / variance.value)  # of the logarithm, to first order
    slope = stats.linregress(np.log([4, 16, 64]), logs).slope
    weights = np.array([-1, 0, 1]) / (2 * math.log(4))
    exponent = estimate("dot.variance_exponent", sweep, *found)
    assert exponent.value == pytest.approx(slope, rel=1e-10)
    assert exponent.se == pytest.approx(np.linalg.norm(weights * errors), rel=0.05)
    assert exponent.samples == 3 * COUNT * N


@pytest.mark.parametrize("name", ["dot.variance_exponent", "dot.scale_exponent"])
def test_a_slope_needs_two_points(name):
    sample, _ = dot_sample(PLAIN)
    with pytest.raises(InputError, match="two different"):
        estimate(name, case(PLAIN), sample)


T5 = law("t", df=5)
BOTH_MEANS = Design(dk=64, query=Component(mean=0.5), key=Component(mean=0.2))
VALUES = [
    # theory.md, sections 1 and 2: name, design, value, unit in the last decimal given there
    ("dot.variance", Design(dk=64), 64, 1e-9),
    ("dot.excess_kurtosis", Design(dk=64), 0.09375, 1e-9),
    ("dot.variance", Design(dk=64, corr="ar1:0.5"), 105.778, 1e-3),
    ("dot.variance", Design(dk=64, corr="ar1:0.9"), 564.809, 1e-3),
    ("dot.variance", Design(dk=64, corr="equi:0.5"), 1072, 1e-9),
    ("dot.mean", BOTH_MEANS, 6.4, 1e-9),
    (
        "dot.variance",
        Design(dk=64, query=Component(mean=0.5), key=Component(mean=0.2)),
        82.56,
        1e-9,
    ),
    ("dot.mean", Design(dk=64, corr="qk:0.3"), 19.2, 1e-9),
    ("dot.variance", Design(dk=64, corr="qk:0.3"), 69.76, 1e-9),
    ("dot.iqr", Design(dk=4, **law("cauchy")), 2 * 7.6318, 2e-4),
    ("dot.iqr", Design(dk=64, **law("cauchy")), 2 * 249.839, 2e-3),
    ("dot.iqr", Design(dk=64, **T5), 2 * 8.542, 2e-3),
]


@pytest.mark.parametrize(("name", "design", "value", "unit"), VALUES)
def test_predictions_of_dot_products(name, design, value, unit):
    found = predict(name, case(design))
    assert found.kind == "exact"
    assert found.value == pytest.approx(value, abs=unit)


@pytest.mark.parametrize(
    ("design", "level", "value", "unit"),
    [
        (Design(dk=4, **law("cauchy")), 0.9, 34.256, 1e-3),
        (Design(dk=64, **T5), 0.9, 16.557, 1e-3),
        (Design(dk=64, **T5), 0.1, -16.557, 1e-3),
        (Design(dk=64), 0.5, 0.0, 1e-9),
    ],
)
def test_predictions_of_quantiles(design, level, value, unit):
    found = predict("dot.quantile", case(design, level=level))
    assert found.value == pytest.approx(value, abs=unit)


@pytest.mark.parametrize(
    ("name", "kwargs", "slopes"),
    [
        ("cauchy", {}, (1.300, 1.216, 1.166)),
        ("t", {"df": 3}, (0.738, 0.627, 0.570)),
        ("t", {"df": 5}, (0.665, 0.565, 0.525)),
    ],
)
def test_predictions_of_exponents(name, kwargs, slopes):
    """Local exponents of the IQR, d = 4 → 16 → 64 → 256, of theory.md section 2."""
    for dk, slope in zip((4, 16, 64), slopes, strict=True):
        sweep = Case(designs=tuple(Design(dk=d, **law(name, **kwargs)) for d in (dk, 4 * dk)))
        assert predict("dot.scale_exponent", sweep).value == pytest.approx(slope, abs=6e-4)
    variance = predict("dot.variance_exponent", sweep)
    if name == "cauchy":
        assert (variance.value, variance.kind) == (None, "infinite")
    else:
        assert variance.value == pytest.approx(1.0, abs=1e-12)


ROWS = [
    # theory.md, section 3: d, m, scale, entropy, trace, RMS ‖J‖_F
    (16, 8, "none", 0.672787, 0.347797, 0.301220),
    (64, 2, "sqrt", 0.540470, 0.364078, 0.385759),
    (64, 64, "none", 0.584278, 0.291383, 0.271085),
    (64, 64, "dk", 4.151196, 0.984133, 0.124930),
    (64, 1024, "sqrt", 6.433372, 0.997326, 0.051381),
]


@pytest.mark.parametrize(("dk", "keys", "scale", "entropy", "trace", "rms"), ROWS)
def test_predictions_of_rows(dk, keys, scale, entropy, trace, rms):
    asked = case(Design(dk=dk, keys=keys), scale=scaling.parse(scale))
    right = {
        "softmax.entropy": entropy,
        "softmax.entropy_deficit": math.log(keys) - entropy,
        "softmax.entropy_ratio": entropy / math.log(keys),
        "softmax.sum_squares": 1 - trace,
        "softmax.sum_squares_excess": keys * (1 - trace) - 1,
        "jacobian.frobenius": rms,
    }
    for name, value in right.items():
        unit = keys if name == "softmax.sum_squares_excess" else 1  # of the trace, times m
        assert predict(name, asked).value == pytest.approx(value, abs=1.1e-6 * unit), name
    mean = dataclasses.replace(asked, statistic="mean")
    assert predict("jacobian.trace", mean).value == pytest.approx(trace, abs=1.1e-6)
    assert predict("jacobian.frobenius", mean).kind == "none"
    assert predict("jacobian.trace", asked).kind == "none"


@pytest.mark.parametrize(
    ("design", "kind"),
    [
        (Design(dk=8, keys=4), "exact"),
        (Design(dk=8, keys=4, corr="ar1:0.5"), "exact"),
        (Design(dk=8, keys=4, corr="qk:0.5"), "exact"),
        (Design(dk=8, keys=4, key=Component(mean=3.0)), "exact"),
        (Design(dk=8, keys=4, **law("laplace")), "limit"),
        (Design(dk=8, keys=4, **law("t", df=3)), "limit"),
        (Design(dk=8, keys=4, query=Component(mean=1.0)), "none"),
        (Design(dk=8, keys=4, **law("cauchy")), "none"),
        (Design(dk=8, keys=4, **law("t", df=2)), "none"),
    ],
)
def test_kinds_of_row_predictions(design, kind):
    found = predict("softmax.entropy", case(design, scale=SQRT))
    assert found.kind == kind
    assert (found.value is None) == (kind == "none")
    assert found.source


def test_a_mean_of_the_keys_is_not_seen():
    plain, moved = Design(dk=8, keys=4), Design(dk=8, keys=4, key=Component(mean=3.0))
    values = [predict("softmax.entropy", case(d, scale=SQRT)).value for d in (plain, moved)]
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dot.mean", "none"),
        ("dot.variance", "infinite"),
        ("dot.std", "infinite"),
        ("dot.excess_kurtosis", "none"),
    ],
)
def test_predictions_where_moments_are_missing(name, kind):
    found = predict(name, case(Design(dk=8, **law("cauchy"))))
    assert (found.value, found.kind) == (None, kind)


BANDS = [
    ("dot.mean", case(Design(dk=64)), 8.0),  # a std of s
    ("logit.mean", case(Design(dk=64), scale=SQRT), 1.0),
    ("dot.variance", case(Design(dk=64)), 64.0),
    ("logit.std", case(Design(dk=64), scale=scaling.parse("dk")), 1 / 8),
    ("dot.iqr", case(Design(dk=4, **law("cauchy"))), 2 * 7.6318),
    ("dot.quantile", case(Design(dk=4, **law("cauchy")), level=0.9), 2 * 7.6318),
    ("dot.variance_exponent", Case(designs=(Design(dk=4), Design(dk=8))), 1.0),
    ("softmax.entropy", case(Design(dk=64, keys=64), scale=scaling.parse("none")), 0.584278),
    ("softmax.entropy", case(Design(dk=64, keys=64), scale=SQRT), math.log(64) - 3.685705),
    ("softmax.entropy_deficit", case(Design(dk=64, keys=64), scale=SQRT), math.log(64) - 3.685705),
    ("softmax.sum_squares", case(Design(dk=64, keys=64), scale=SQRT), 1 - 0.960973 - 1 / 64),
    ("softmax.sum_squares", case(Design(dk=64, keys=2), scale=scaling.parse("none")), 0.070429),
    (
        "softmax.sum_squares_excess",
        case(Design(dk=64, keys=64), scale=SQRT),
        64 * (1 - 0.960973) - 1,
    ),
    (
        "softmax.sum_squares_excess",
        case(Design(dk=64, keys=2), scale=scaling.parse("none")),
        0.140858,
    ),
    ("jacobian.frobenius", case(Design(dk=64, keys=64), scale=SQRT), 0.184636),
]


@pytest.mark.parametrize(("name", "asked", "scale"), BANDS)
def test_bands_sit_on_what_carries_the_information(name, asked, scale):
    band = quantity(name).band(asked, predict(name, asked), 0.01)
    assert band == pytest.approx(0.01 * scale, rel=1e-4)


@pytest.mark.parametrize(
    "design", [Design(dk=8, **law("laplace"), corr="ar1:0.5"), Design(dk=8, **law("rademacher"))]
)
def test_a_quantile_without_an_exact_law_has_no_band(design):
    asked = case(design, level=0.9)
    found = predict("dot.quantile", asked)
    assert found.value is None
    assert quantity("dot.quantile").band(asked, found, 0.01) == 0.0


MOMENTS = ("dot.mean", "dot.variance", "dot.std", "dot.excess_kurtosis", "dot.iqr")
LOGITS = ("logit.mean", "logit.variance", "logit.std")
ROW_NAMES = (
    *("softmax.entropy", "softmax.entropy_deficit", "softmax.entropy_ratio"),
    *("softmax.sum_squares", "softmax.sum_squares_excess", "jacobian.frobenius"),
)
AGREEING = {
    "gaussian": Design(dk=64),
    "one component": Design(dk=1),
    "two scales": Design(dk=8, query=Component(sigma=2.0), key=Component(sigma=0.25)),
    "means": Design(dk=8, query=Component(mean=0.5), key=Component(mean=-1.0, sigma=0.5)),
    "ar1": Design(dk=16, corr="ar1:0.7"),
    "ar1 and means": Design(dk=16, **law(mean=0.3), corr="ar1:-0.5"),
    "equi": Design(dk=16, corr="equi:0.3"),
    "qk": Design(dk=16, corr="qk:0.4"),
    "qk and means": Design(dk=16, query=Component(mean=0.5, sigma=2.0), corr="qk:-0.6"),
    "large d": Design(dk=300),
    "uniform": Design(dk=8, **law("uniform")),
    "rademacher": Design(dk=8, **law("rademacher")),
    "laplace": Design(dk=8, **law("laplace")),
    "mixture": Design(dk=8, **law("mixture")),
    "t(9)": Design(dk=16, **law("t", df=9)),
    "t(5)": Design(dk=16, **T5),
    "standardised t(5)": Design(dk=16, **law("t", df=5, standardize=True)),
    "t(3) and gaussian": Design(dk=16, query=Component(distribution="t", df=3)),
    "cauchy": Design(dk=16, **law("cauchy")),
    "rows": Design(dk=16, keys=8),
    "rows, two keys": Design(dk=4, keys=2),
    "rows, two scales": Design(dk=16, keys=8, query=Component(sigma=2.0), key=Component(mean=1.0)),
    "rows, ar1": Design(dk=16, keys=8, corr="ar1:0.7"),
    "rows, equi": Design(dk=16, keys=8, corr="equi:0.3"),
    "rows, qk": Design(dk=16, keys=8, corr="qk:0.6"),
}


@pytest.mark.parametrize("design", AGREEING.values(), ids=AGREEING)
def test_theory_and_measurement_agree(design):
    """No band at all: an exact prediction may differ by its error bar only.

    False-alarm rate: 1e-5 for each design, 25 designs, fixed seed.
    """
    rules = [scaling.parse(text) for text in ("sqrt", "none")]
    if design.keys is None:
        cases = [(name, case(design)) for name in MOMENTS]
        cases += [(name, case(design, scale=SQRT)) for name in LOGITS]
        samples = 1_000_000
    else:
        cases = [(name, case(design, scale=rule)) for name in ROW_NAMES for rule in rules]
        cases += [("jacobian.trace", case(design, scale=SQRT, statistic="mean"))]
        samples = 20_000
    checks = [
        Check(id=str(i), quantity=name, case=asked, band=0.0)
        for i, (name, asked) in enumerate(cases)
    ]
    rows, _ = experiment.run(checks, Settings(seed=1, samples=samples, alpha=1e-5, jobs=1))
    refuted = [row.quantity for row in rows if row.verdict is Outcome.REFUTED]
    assert not refuted, [row.reason for row in rows if row.quantity in refuted]
    judged = [row for row in rows if row.estimate.se and row.prediction.value is not None]
    assert judged
    for row in judged:  # an error bar too wide to refute anything would prove nothing
        if row.quantity != "dot.mean" and row.prediction.value:
            assert row.estimate.se < 0.15 * max(3.0, abs(row.prediction.value)), row.quantity
