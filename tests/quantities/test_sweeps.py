"""Growth of logits and of the distance from uniform: slopes by hand, exact and measured."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from sdpa_check import experiment
from sdpa_check.checks import Check, Settings
from sdpa_check.engine import Replicates
from sdpa_check.logits import scaling
from sdpa_check.measures.dot import DotWork
from sdpa_check.quantities import Case, Sample, quantity
from sdpa_check.records import Component, Design, Fault, Outcome

DKS = (16, 64, 256)


def law(name="gaussian", **kwargs):
    component = Component(distribution=name, **kwargs)
    return {"query": component, "key": component}


def sweep(scale, dks=DKS, d_model=None, **design):
    designs = tuple(Design(dk=dk, **design) for dk in dks)
    return Case(designs=designs, scale=scaling.parse(scale), d_model=d_model)


def predict(name, asked):
    return quantity(name).predict(asked)


def made(design, multiplier, mean=0.0):
    """Sums of given scores around d_k·mean, with the scores."""
    work = DotWork(design, 8)
    s = design.dk * mean + design.dk**0.7 * np.random.default_rng(design.dk).normal(size=(20, 64))
    t = s - work.pivot
    count = np.full(20, 64.0)
    sums = {"pairs": count, "power1": t.sum(axis=1), "power2": (t**2).sum(axis=1)}
    return Sample(work=work, replicates=Replicates(sums, 20), multiplier=multiplier), s


@pytest.mark.parametrize("exponent", [0.0, -0.5, -1.0])
def test_the_slope_of_the_standard_deviation(exponent):
    """As fitted by hand to the logits that the applied multipliers give."""
    asked = sweep("sqrt")
    found = [made(design, design.dk**exponent) for design in asked.designs]
    logs = [
        math.log(d.dk**exponent * s.std()) for d, (_, s) in zip(asked.designs, found, strict=True)
    ]
    result = quantity("logit.std_exponent").estimate(asked, tuple(sample for sample, _ in found))
    assert result.value == pytest.approx(stats.linregress(np.log(DKS), logs).slope, rel=1e-10)
    each = [quantity("dot.std").estimate(Case(designs=(s.work.design,)), (s,)) for s, _ in found]
    weights = np.array([-1, 0, 1]) / (2 * math.log(4))
    errors = [one.se / one.value for one in each]
    assert result.se == pytest.approx(np.linalg.norm(weights * errors), rel=0.05)


def test_the_slope_of_the_mean():
    asked = sweep("sqrt", corr="qk:0.5")
    found = [made(design, design.dk**-0.5, mean=20.0) for design in asked.designs]
    logs = [math.log(d.dk**-0.5 * s.mean()) for d, (_, s) in zip(asked.designs, found, strict=True)]
    result = quantity("logit.mean_exponent").estimate(asked, tuple(sample for sample, _ in found))
    assert result.value == pytest.approx(stats.linregress(np.log(DKS), logs).slope, rel=1e-10)
    assert result.se > 0


def test_a_mean_near_zero_has_no_exponent():
    asked = sweep("sqrt")
    samples = tuple(made(design, design.dk**-0.5)[0] for design in asked.designs)
    result = quantity("logit.mean_exponent").estimate(asked, samples)
    assert result.se is None
    assert "no logarithm" in result.withheld
    assert predict("logit.mean_exponent", asked).kind == "none"


def test_error_bars_need_their_moments():
    for name, df in (("logit.std_exponent", 4), ("logit.mean_exponent", 2)):
        for more, available in ((0.0, False), (0.1, True)):
            asked = sweep("none", **law("t", df=df + more))
            samples = tuple(made(design, 1.0, mean=20.0)[0] for design in asked.designs)
            result = quantity(name).estimate(asked, samples)
            assert (result.se is not None) == available, name
            assert ("infinite" in result.withheld) != available


@pytest.mark.parametrize(
    ("scale", "slope"),
    [("none", 0.5), ("pow:-0.25", 0.25), ("sqrt", 0.0), ("sqrt2", 0.0), ("dk", -0.5), ("3.5", 0.5)],
)
def test_predicted_slopes_of_the_standard_deviation(scale, slope):
    """½ − a for the multiplier d^−a, whatever the law with a variance."""
    for design in ({}, law("t", df=3), {"key": Component(sigma=0.3)}):
        found = predict("logit.std_exponent", sweep(scale, **design))
        assert found.value == pytest.approx(slope, abs=1e-12)
        assert found.kind == "exact"


def test_predictions_of_other_exponents():
    assert predict("logit.std_exponent", sweep("sqrt_dmodel", d_model=512)).value == pytest.approx(
        0.5
    )
    for scale, slope in (("sqrt", 0.5), ("dk", 0.0), ("none", 1.0)):
        for corr in ("qk:0.3", "qk:-0.3"):
            found = predict("logit.mean_exponent", sweep(scale, corr=corr))
            assert found.value == pytest.approx(slope, abs=1e-12)
    assert predict("logit.std_exponent", sweep("sqrt", **law("cauchy"))).kind == "infinite"
    assert predict("logit.mean_exponent", sweep("sqrt", **law("cauchy"))).kind == "none"


@pytest.mark.parametrize(("scale", "slope"), [("pow:-0.75", -0.499), ("dk", -1.000), ("sqrt", 0.0)])
def test_predicted_slopes_of_the_entropy_deficit(scale, slope):
    """claims.md, C-unique, at 64 keys."""
    found = predict("softmax.deficit_exponent", sweep(scale, (16, 64, 256, 1024), keys=64))
    assert found.value == pytest.approx(slope, abs=2e-3)
    assert found.kind == "exact"


def test_a_limit_is_not_called_exact():
    found = predict("softmax.deficit_exponent", sweep("dk", keys=8, **law("laplace")))
    assert found.kind == "limit"
    assert predict("softmax.deficit_exponent", sweep("dk", keys=8, **law("cauchy"))).kind == "none"


CASES = [
    ("logit.std_exponent", sweep("none")),
    ("logit.std_exponent", sweep("dk", **law("laplace"))),
    ("logit.mean_exponent", sweep("sqrt", corr="qk:0.5")),
    ("logit.mean_exponent", sweep("dk", corr="qk:-0.5")),
    ("softmax.deficit_exponent", sweep("sqrt", keys=8)),
    ("softmax.deficit_exponent", sweep("dk", keys=8)),
    ("softmax.deficit_exponent", sweep("pow:-0.25", keys=8, corr="ar1:0.5")),
]
SETTINGS = Settings(seed=1, samples=20_000, alpha=1e-5, jobs=1)


def checks(cases):
    return [Check(id=str(i), quantity=name, case=c, band=0.0) for i, (name, c) in enumerate(cases)]


def test_theory_and_measurement_agree():
    """No band at all: false-alarm rate 1e-5 for the seven together, fixed seed."""
    rows, _ = experiment.run(checks(CASES), SETTINGS)
    for row, (_, asked) in zip(rows, CASES, strict=True):
        assert row.verdict is not Outcome.REFUTED, (row.quantity, row.reason)
        assert row.prediction.value == predict(row.quantity, asked).value
        assert row.estimate.se < 0.02, row.quantity
        assert row.params["dk"] == list(DKS)


def test_a_wrong_rule_is_refuted():
    """The control: every exponent of a multiplier is off by ½ where 1/d stands for 1/√d."""
    cases = [(name, asked) for name, asked in CASES if asked.scale.name == "sqrt"]
    assert len(cases) == 2
    settings = dataclasses.replace(SETTINGS, fault=Fault(scale="dk"))
    rows, _ = experiment.run(checks(cases), settings)
    assert {row.verdict for row in rows} == {Outcome.REFUTED}
