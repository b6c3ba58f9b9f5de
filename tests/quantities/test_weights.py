"""Extremes of rows and shares of weights: made by hand, by other routes, and measured."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import integrate, stats

from sdpa_check import engine
from sdpa_check.engine import Replicates
from sdpa_check.errors import InputError
from sdpa_check.logits import scaling
from sdpa_check.measures.weights import EXTREMES, WEIGHT_GRID, RowsShape, WeightsWork
from sdpa_check.quantities import Case, Sample, quantity
from sdpa_check.quantities.weights import reads
from sdpa_check.records import Component, Design
from sdpa_check.theory import extremes

SQRT, NONE = scaling.parse("sqrt"), scaling.parse("none")
COUNT, N, M = 20, 64, 8  # replicates, rows in each, keys
DESIGN = Design(dk=16, keys=M)
LOGITS = ("logit.max", "logit.top_gap", "logit.max_minus_median")


def case(design=DESIGN, scale=SQRT, statistic=None, **inputs):
    return Case(designs=(design,), scale=scale, statistic=statistic, inputs=inputs)


def estimate(name, asked, sample):
    return quantity(name).estimate(asked, (sample,))


def predict(name, asked):
    return quantity(name).predict(asked)


def law(name="gaussian", **kwargs):
    component = Component(distribution=name, **kwargs)
    return {"query": component, "key": component}


@pytest.fixture(scope="module")
def made():
    """Sums of given rows under two multipliers, of which the second is asked for."""
    s = 4 * np.random.default_rng(2).standard_normal((COUNT, N, M))
    work = WeightsWork(DESIGN, (1.0, 0.25), RowsShape(1, 8, 8))
    ordered = np.sort(s, axis=2)
    found = {
        "max": ordered[..., -1],
        "top_gap": ordered[..., -1] - ordered[..., -2],
        "max_minus_median": ordered[..., -1] - np.median(s, axis=2),
        "max_abs": np.abs(s).max(axis=2),
    }
    p = np.exp(0.25 * ordered)
    p /= p.sum(axis=2, keepdims=True)
    sums = {"rows": np.full(COUNT, float(N))}
    for name in EXTREMES:
        sums[f"total.{name}"] = found[name].sum(axis=1)
        sums[f"histogram.{name}"] = np.array([work.grid.counts(row) for row in found[name]])
    sums["weights1"] = np.array([WEIGHT_GRID.counts(rows) for rows in p])
    sums["runner_up1"] = np.array([WEIGHT_GRID.counts(rows[:, -2]) for rows in p])
    sample = Sample(work=work, replicates=Replicates(sums, COUNT), multiplier=0.25)
    return sample, found, p


@pytest.mark.parametrize("name", LOGITS)
def test_extremes_are_those_of_the_sample(made, name):
    sample, found, _ = made
    x = 0.25 * found[name.removeprefix("logit.")]
    mean = estimate(name, case(), sample)
    assert mean.value == pytest.approx(x.mean(), rel=1e-12)
    assert mean.se == pytest.approx(x.mean(axis=1).std(ddof=1) / math.sqrt(COUNT), rel=1e-9)
    assert estimate(name, case(statistic="mean"), sample) == mean
    for statistic, level in (("median", 0.5), ("q05", 0.05), ("q95", 0.95)):
        value = estimate(name, case(statistic=statistic), sample).value
        around = np.quantile(x, [level - 1 / x.size, level + 1 / x.size])
        width = np.abs(around).max() / 128
        assert around[0] - width <= value <= around[1] + width, statistic


@pytest.mark.parametrize("statistic", ["rms", "mode"])
def test_other_statistics_are_refused(made, statistic):
    with pytest.raises(InputError, match=r"statistic: .* one of mean, median"):
        estimate("logit.max", case(statistic=statistic), made[0])


def test_shares_are_those_of_the_sample(made):
    sample, found, p = made  # every threshold is an edge of its grid, where counts are exact
    right = {
        ("logit.row_exceedance", 1.5): (0.25 * found["max_abs"] > 1.5).mean(),
        ("logit.top_gap_exceedance", 0.5): (0.25 * found["top_gap"] > 0.5).mean(),
        ("softmax.runner_up_exceeds", 0.1875): (p[..., -2] > 0.1875).mean(),
    }
    for (name, threshold), share in right.items():
        result = estimate(name, case(threshold=threshold), sample)
        assert result.value == pytest.approx(share, rel=1e-12), name
        assert result.samples == COUNT * N
        assert result.se > 0
    result = estimate("softmax.weight_share", case(low=0.125, high=0.25), sample)
    assert result.value == pytest.approx(((p >= 0.125) & (p < 0.25)).mean(), rel=1e-12)
    assert result.samples == COUNT * N * M


@pytest.mark.parametrize(
    ("name", "inputs", "where"),
    [
        ("logit.row_exceedance", {}, "threshold"),
        ("softmax.runner_up_exceeds", {"threshold": 0}, "threshold"),
        ("softmax.weight_share", {"low": 0.1}, "high"),
        ("softmax.weight_share", {"low": 0.5, "high": 0.5}, "high"),
        ("softmax.weight_share", {"low": 0.1, "high": 1}, "high"),
    ],
)
def test_inputs_that_cannot_be_used(made, name, inputs, where):
    with pytest.raises(InputError, match=f"^{where}: got"):
        estimate(name, case(**inputs), made[0])


def test_error_bars_need_the_second_moment(made):
    for df, available in ((2.0, False), (2.1, True)):
        design = dataclasses.replace(DESIGN, query=Component(distribution="t", df=df))
        mean = estimate("logit.max", case(design), made[0])
        assert (mean.se is not None) == available
        assert estimate("logit.max", case(design, statistic="median"), made[0]).se is not None


def test_a_lattice_has_no_quantiles(made):
    lattice = Design(dk=16, keys=M, **law("rademacher"))
    found = estimate("logit.top_gap", case(lattice, statistic="median"), made[0])
    assert found.se is None
    assert "lattice" in found.withheld
    assert estimate("logit.top_gap", case(lattice), made[0]).se is not None


# E of the largest, of the gap, for m normals: theory.md section 5
STANDARD = {8: (1.42360, 0.57138), 64: (2.34373, 0.38073), 1024: (3.24824, 0.28677)}


@pytest.mark.parametrize("dk", [1, 2, 16, 64, 1024])
@pytest.mark.parametrize("keys", STANDARD)
def test_predictions_are_those_for_normals_times_the_mean_norm(dk, keys):
    """The quadrature over ‖q‖ against the closed form of E‖z‖."""
    design = Design(dk=dk, keys=keys, query=Component(sigma=2.0), key=Component(sigma=0.5, mean=3))
    norm = extremes.expected_norm(dk) / math.sqrt(dk)
    largest, gap = STANDARD[keys]
    right = {"logit.max": largest, "logit.top_gap": gap, "logit.max_minus_median": largest}
    for name, value in right.items():
        found = predict(name, case(design))
        assert found.kind == "exact"
        assert found.value == pytest.approx(norm * value, rel=1.2e-5)
    exact = norm * extremes.expected_gap(keys)
    assert predict("logit.top_gap", case(design)).value == pytest.approx(exact, rel=1e-9)


def test_two_keys_differ_by_a_dot_product():
    """The gap of two keys is √2|s|: E|Δ| = 2 E‖q‖/√π, which is 2√(d/π) for large d."""
    found = predict("logit.top_gap", case(Design(dk=1024, keys=2), NONE))
    assert found.value == pytest.approx(36.1, abs=0.05)
    assert found.value == pytest.approx(
        2 * extremes.expected_norm(1024) / math.sqrt(math.pi), rel=1e-9
    )


def test_claims_about_the_largest_logit():
    """d = 1024, 64 keys, no scale: claims.md, C-1024."""
    design = Design(dk=1024, keys=64)
    assert predict("logit.max_minus_median", case(design, NONE)).value == pytest.approx(
        74.98, abs=5e-3
    )
    assert predict("logit.top_gap", case(design, NONE)).value == pytest.approx(12.18, abs=5e-3)


def test_correlated_pairs_share_a_shift():
    plain, paired = (Design(dk=64, keys=8, corr=corr) for corr in ("none", "qk:0.6"))
    for name in LOGITS:
        value, base = predict(name, case(paired)).value, predict(name, case(plain)).value
        shift = 0.6 * 8 if name == "logit.max" else 0.0  # ρ d / √d
        assert value == pytest.approx(0.8 * base + shift, rel=1e-12), name


def test_row_exceedance_against_adaptive_quadrature():
    """P(max|x| > 3) = 1 − E[(2Φ(3/τ) − 1)^m] over the χ law of τ√d, by scipy."""
    for dk, keys in ((512, 1024), (4, 8), (1, 3)):

        def none_beyond(r, dk=dk, keys=keys):
            each = -np.expm1(keys * np.log1p(-2 * stats.norm.sf(3 * math.sqrt(dk) / r)))
            return each * stats.chi.pdf(r, dk)

        centre = math.sqrt(dk)
        right, _ = integrate.quad(
            none_beyond, 1e-9, centre + 40, points=[centre], epsabs=1e-11, limit=400
        )
        found = predict("logit.row_exceedance", case(Design(dk=dk, keys=keys), threshold=3))
        assert found.value == pytest.approx(right, abs=1e-8)
    asked = case(Design(dk=512, keys=1024), threshold=3)
    assert predict("logit.row_exceedance", asked).value == pytest.approx(0.920, abs=5e-4)


@pytest.mark.parametrize(
    ("name", "design", "kind"),
    [
        ("logit.max", Design(dk=8, keys=4, corr="equi:0.5"), "exact"),
        ("logit.max", Design(dk=8, keys=4, **law("laplace")), "limit"),
        ("logit.max", Design(dk=8, keys=4, **law("t", df=3)), "limit"),
        ("logit.max", Design(dk=8, keys=4, **law("cauchy")), "none"),
        ("logit.max", Design(dk=8, keys=4, query=Component(mean=1.0)), "none"),
        ("logit.row_exceedance", Design(dk=8, keys=4), "exact"),
        ("logit.row_exceedance", Design(dk=8, keys=4, corr="ar1:0.5"), "exact"),
        ("logit.row_exceedance", Design(dk=8, keys=4, corr="qk:0.5"), "none"),
        ("logit.row_exceedance", Design(dk=8, keys=4, key=Component(mean=1.0)), "none"),
        ("softmax.runner_up_exceeds", Design(dk=8, keys=4), "none"),
    ],
)
def test_kinds_of_predictions(name, design, kind):
    asked = case(design, threshold=1.0)
    found = predict(name, asked)
    assert found.kind == kind
    assert (found.value is None) == (kind == "none")
    assert found.source
    assert predict("logit.max", case(design, statistic="median")).kind == "none"


@pytest.mark.parametrize(
    ("name", "statistic", "parts"),
    [
        ("logit.max", None, ("total.max",)),
        ("logit.top_gap", "mean", ("total.top_gap",)),
        ("logit.top_gap", "q95", ("histogram.top_gap",)),
        ("logit.max_minus_median", "median", ("histogram.max_minus_median",)),
        ("logit.row_exceedance", None, ("histogram.max_abs",)),
        ("logit.top_gap_exceedance", None, ("histogram.top_gap",)),
        ("softmax.weight_share", None, ("weights",)),
        ("softmax.runner_up_exceeds", None, ("runner_up",)),
    ],
)
def test_a_quantity_reads_its_parts_and_no_other(made, name, statistic, parts):
    sample, *_ = made
    inputs = {"threshold": 1.0, "low": 0.125, "high": 0.25}
    if name == "softmax.runner_up_exceeds":
        inputs["threshold"] = 0.25
    asked = case(statistic=statistic, **inputs)
    assert reads(quantity(name), asked) == parts
    own = {part if "." in part else f"{part}1" for part in parts} | {"rows"}
    sums = {key: value for key, value in sample.replicates.sums.items() if key in own}
    bare = dataclasses.replace(sample, replicates=Replicates(sums, COUNT))
    assert estimate(name, asked, bare) == estimate(name, asked, sample)


def measured(design, scale, blocks=64, seed=0):
    rule = scaling.parse(scale)
    multiplier = rule.multiplier(design.dk)
    shape = RowsShape.fitting(design.dk, design.keys, 2048)
    work = WeightsWork(design, (multiplier, 2.0), shape)
    merged = engine.run(work, seed=seed, blocks=blocks, jobs=1)
    return Sample(work=work, replicates=merged, multiplier=multiplier)


AGREEING = {
    "plain": Design(dk=64, keys=64),
    "one component": Design(dk=1, keys=8),
    "two keys": Design(dk=16, keys=2),
    "odd": Design(dk=16, keys=5, query=Component(sigma=2.0), key=Component(sigma=0.25)),
    "key mean": Design(dk=16, keys=8, key=Component(mean=1.0)),
    "ar1": Design(dk=16, keys=8, corr="ar1:0.7"),
    "equi": Design(dk=16, keys=8, corr="equi:0.3"),
    "qk": Design(dk=16, keys=8, corr="qk:-0.6"),
}


@pytest.mark.parametrize("design", AGREEING.values(), ids=AGREEING)
def test_theory_and_measurement_agree(design):
    """5.5 standard errors of 63 degrees of freedom: 8e-7 each, 31 numbers, fixed seed."""
    sample = measured(design, "sqrt")
    for name in (*LOGITS, "logit.row_exceedance"):
        asked = case(design, threshold=2 * design.query.sigma * design.key.sigma)
        found, right = estimate(name, asked, sample), predict(name, asked)
        if right.value is None:
            continue
        assert abs(found.value - right.value) < 5.5 * found.se, name
        assert found.se < 0.06 * abs(right.value), name


def test_a_wrong_sampler_is_seen():
    """The control of the test above: components 10 % too wide."""
    design = AGREEING["plain"]
    sample, asked = (
        measured(dataclasses.replace(design, key=Component(sigma=1.1)), "sqrt"),
        case(design),
    )
    for name in LOGITS:
        found, right = estimate(name, asked, sample), predict(name, asked)
        assert abs(found.value - right.value) > 5.5 * found.se, name


# claims.md: what, d, m, scale, inputs, value, half a unit of its last digit
CLAIMS = [
    ("softmax.runner_up_exceeds", 512, 64, "none", {"threshold": 0.05}, 0.267, 5e-4),
    ("logit.row_exceedance", 512, 1024, "sqrt", {"threshold": 3}, 0.920, 5e-4),
    ("logit.top_gap_exceedance", 1024, 64, "none", {"threshold": 30}, 0.078, 5e-4),
    ("logit.top_gap", 1024, 64, "none", {"statistic": "median"}, 9.02, 5e-3),
    ("softmax.weight_share", 64, 2, "sqrt", {"low": 0.1, "high": 0.9}, 0.88, 5e-3),
    ("softmax.weight_share", 64, 8, "sqrt", {"low": 0.1, "high": 0.9}, 0.45, 5e-3),
    ("softmax.weight_share", 64, 64, "sqrt", {"low": 0.1, "high": 0.9}, 0.008, 5e-4),
]


@pytest.mark.parametrize(("name", "dk", "keys", "scale", "inputs", "value", "unit"), CLAIMS)
def test_values_of_the_claims(name, dk, keys, scale, inputs, value, unit):
    """5.5 standard errors beside the rounding of the value: 8e-7 each, 7 numbers, fixed seed."""
    design = Design(dk=dk, keys=keys)
    asked = case(design, scaling.parse(scale), **inputs)
    asked = dataclasses.replace(asked, statistic=inputs.get("statistic"))
    found = estimate(name, asked, measured(design, scale))
    assert abs(found.value - value) < unit + 5.5 * found.se
    assert found.se < 0.02 * value


def test_the_weights_of_two_keys_follow_their_difference():
    """p = 1/(1 + e^−Δ), Δ = √2 c s: P(0.1 ≤ p ≤ 0.9) = P(|s| ≤ ln 9/(√2 c)), exactly."""
    design = Design(dk=16, keys=2)
    bound = math.log(9) / (math.sqrt(2) * 0.25)
    beyond = predict("dot.exceedance", case(Design(dk=16), None, threshold=bound)).value
    found = estimate(
        "softmax.weight_share", case(design, low=0.1, high=0.9), measured(design, "sqrt")
    )
    assert abs(found.value - (1 - beyond)) < 5.5 * found.se  # false-alarm rate 8e-7
    assert found.se < 0.01


def test_what_is_never_seen_is_not_ruled_out():
    design = Design(dk=64, keys=1024)
    found = estimate(
        "softmax.weight_share", case(design, low=0.1, high=0.9), measured(design, "sqrt")
    )
    assert found.value < 1e-4
    assert found.se == pytest.approx(3 / 64)  # one key set to a block
