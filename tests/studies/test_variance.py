"""`variance`: predictions are those of the theory, and what is measured agrees with them."""

from __future__ import annotations

import json
import math

import pytest

import sdpa_check
from sdpa_check.records import Outcome
from sdpa_check.report.record import dumps

SMALL = 200_000
"""Dot products per design: relative errors of some per cent, in a twentieth of a second."""

# name of the case, options, and mean, variance, excess kurtosis of q·k at d = 64, by hand:
# d μ_q μ_k;  d(σ_q²σ_k² + σ_q²μ_k² + σ_k²μ_q²);  (κ_q κ_k − 3)/d for independent, centred ones
MOMENTS = {
    "gaussian": ({}, 0, 64, 6 / 64),
    "sigma 0.5": ({"sigma": 0.5}, 0, 4, 6 / 64),
    "two sigmas": ({"sigma": 0.5, "sigma_k": 3.0}, 0, 64 * 0.25 * 9, 6 / 64),
    "means": ({"mean": 0.5, "mean_k": 0.2}, 6.4, 82.56, None),
    "uniform": ({"dist": "uniform"}, 0, 64, (1.8**2 - 3) / 64),
    "rademacher": ({"dist": "rademacher"}, 0, 64, (1 - 3) / 64),
    "laplace": ({"dist": "laplace"}, 0, 64, (6**2 - 3) / 64),
    "t(5)": ({"dist": "t", "df": 5.0}, 0, 64 * (5 / 3) ** 2, (9**2 - 3) / 64),
    "t(5), standardized": (
        {"dist": "t", "df": 5.0, "standardize": True},
        0,
        64,
        (9**2 - 3) / 64,
    ),
    "t(3)": ({"dist": "t", "df": 3.0}, 0, 64 * 3**2, None),
    "ar1:0.5": ({"corr": "ar1:0.5"}, 0, 105.778, None),
    "ar1:0.9": ({"corr": "ar1:0.9"}, 0, 564.809, None),
    "equi:0.5": ({"corr": "equi:0.5"}, 0, 1072, None),
    "qk:0.3": ({"corr": "qk:0.3"}, 19.2, 69.76, None),
}
STATED = ("ar1:0.5", "ar1:0.9")
"""Cases whose variance was stated to three decimals."""


@pytest.fixture(scope="module", params=MOMENTS)
def case(request):
    """A case of the table: its name, its run and its three moments."""
    options, *expected = MOMENTS[request.param]
    return request.param, sdpa_check.variance(dk=64, samples=SMALL, seed=1, **options), *expected


def test_predictions_are_those_of_the_theory(case, row):
    name, run, mean, variance, kurtosis = case
    tolerance = {"rel": 1e-12, "abs": 1e-12} if name not in STATED else {"rel": 0, "abs": 5e-4}
    assert row(run, "dot.mean").prediction.value == pytest.approx(mean, rel=1e-12, abs=1e-12)
    assert row(run, "dot.variance").prediction.value == pytest.approx(variance, **tolerance)
    std = row(run, "dot.std").prediction.value
    assert std == pytest.approx(math.sqrt(variance), rel=1e-5)
    assert std**2 == pytest.approx(row(run, "dot.variance").prediction.value, rel=1e-12)
    if kurtosis is not None:
        found = row(run, "dot.excess_kurtosis").prediction.value
        assert found == pytest.approx(kurtosis, rel=1e-12)
    for quantity, value in (
        ("logit.mean", mean / 8),
        ("logit.variance", row(run, "dot.variance").prediction.value / 64),
        ("logit.std", std / 8),
    ):
        prediction = row(run, quantity, scale="sqrt").prediction.value
        assert prediction == pytest.approx(value, rel=1e-12, abs=1e-12)


def test_measured_numbers_lie_within_their_errors(case, within_error):
    within_error(case[1])


def test_nothing_is_refuted(case):
    assert Outcome.REFUTED not in {row.verdict for row in case[1].rows}
    assert case[1].exit_code in (0, 4)


def test_by_default_everything_is_confirmed():
    # The sample size is planned for it: a row ends inconclusive with probability below 1e-3.
    run = sdpa_check.variance(dk=64)
    assert {row.verdict for row in run.rows} == {Outcome.CONFIRMED}
    assert (run.outcome, run.exit_code) == ("as expected", 0)


RULES = {
    "none": 1.0,
    "sqrt": 1 / 8,
    "dk": 1 / 64,
    "sqrt2": 1 / math.sqrt(128),
    "sqrt_dmodel": 1 / math.sqrt(512),
    "pow:-0.25": 64**-0.25,
    "0.3": 0.3,
}


@pytest.fixture(scope="module")
def scaled():
    """A run under every rule."""
    options = {"dmodel": 512, "samples": SMALL, "mean": 0.5, "mean_k": 0.2}
    return sdpa_check.variance(dk=64, scale=list(RULES), **options)


class TestScale:
    """The logit rows follow the rule."""

    @pytest.mark.parametrize("rule", RULES)
    def test_multiplier_mean_and_variance(self, scaled, row, rule):
        c = RULES[rule]
        found = row(scaled, "logit.variance", scale=rule)
        assert found.params["multiplier"] == pytest.approx(c, rel=1e-15)
        assert found.prediction.value == pytest.approx(c**2 * 82.56, rel=1e-12)
        mean, std = row(scaled, "logit.mean", scale=rule), row(scaled, "logit.std", scale=rule)
        assert mean.prediction.value == pytest.approx(c * 6.4, rel=1e-12)
        # one sampling: the logit is the dot product, scaled
        dot_mean, dot_std = row(scaled, "dot.mean").estimate, row(scaled, "dot.std").estimate
        assert mean.estimate.value == pytest.approx(c * dot_mean.value, rel=1e-12)
        assert std.estimate.value == pytest.approx(c * dot_std.value, rel=1e-12)
        assert std.estimate.se == pytest.approx(c * dot_std.se, rel=1e-9)

    def test_rules_in_their_order(self, scaled):
        assert scaled.design["scale"] == list(RULES)


@pytest.fixture(scope="module")
def swept():
    """A run over two d_k."""
    return sdpa_check.variance(dk=[8, 64], samples=SMALL, seed=2)


class TestSweep:
    """Several d_k: the growth exponents."""

    def test_exponents(self, swept, row, within_error):
        variance = row(swept, "dot.variance_exponent")
        assert variance.params["dk"] == [8, 64]
        assert variance.prediction.value == pytest.approx(1, rel=1e-12)
        scale = row(swept, "dot.scale_exponent")
        iqrs = [row(swept, "dot.iqr", dk=dk).prediction.value for dk in (8, 64)]
        slope = math.log(iqrs[1] / iqrs[0]) / math.log(8)
        assert scale.prediction.value == pytest.approx(slope, rel=1e-9)
        assert 0.5 < slope < 0.55
        within_error(swept)

    def test_measured_exponents_follow_from_measured_variances(self, swept, row):
        values = [row(swept, "dot.variance", dk=dk).estimate.value for dk in (8, 64)]
        slope = math.log(values[1] / values[0]) / math.log(8)
        # the jackknife takes off a bias of the order of the squared relative error
        error = row(swept, "dot.variance_exponent").estimate
        assert abs(error.value - slope) < error.se

    def test_one_d_has_no_exponent(self):
        run = sdpa_check.variance(dk=[8, 8], samples=SMALL)
        assert not [row for row in run.rows if "exponent" in row.quantity]
        assert run.design["dk"] == [8]

    def test_equicorrelation_grows_as_d_squared(self, row):
        run = sdpa_check.variance(dk=[64, 512], corr="equi:0.5", samples=SMALL)
        found = row(run, "dot.variance_exponent").prediction.value
        exact = math.log((512 * (1 + 511 / 4)) / (64 * (1 + 63 / 4))) / math.log(8)
        assert found == pytest.approx(exact, rel=1e-12)
        assert found > 1.9


class TestHeavyTails:
    """Where a moment is infinite its number has no error bar, or no prediction, and says so."""

    def test_t5_judges_the_variance_but_not_the_kurtosis(self, row):
        run = sdpa_check.variance(dk=64, dist="t", df=5, tolerance=0.05)
        kurtosis = row(run, "dot.excess_kurtosis")
        assert kurtosis.estimate.se is None
        assert "eighth moment infinite" in kurtosis.estimate.withheld
        assert kurtosis.verdict is kurtosis.expected is Outcome.INCONCLUSIVE
        assert row(run, "dot.variance").verdict is Outcome.CONFIRMED
        assert (run.outcome, run.exit_code) == ("as expected", 0)

    def test_t3_withholds_the_interval_of_the_variance(self, row):
        run = sdpa_check.variance(dk=64, dist="t", df=3, tolerance=0.05)
        for quantity in ("dot.variance", "dot.std", "logit.variance", "logit.std"):
            found = row(run, quantity)
            assert (found.estimate.se, found.estimate.lo, found.estimate.hi) == (None, None, None)
            assert "fourth moment infinite" in found.estimate.withheld
            assert found.verdict is found.expected is Outcome.INCONCLUSIVE
        assert row(run, "dot.mean").verdict is Outcome.CONFIRMED
        assert row(run, "dot.iqr").verdict is Outcome.CONFIRMED
        assert (run.outcome, run.exit_code) == ("as expected", 0)
        assert any("tail index 3" in note and "is judged instead" in note for note in run.notes)
        assert row(run, "dot.tail_index").tolerance is None  # a limit, to which nothing is held

    def test_a_key_that_follows_its_query_has_a_heavier_tail(self, row):
        """s contains ρ q², so that t(2.5) has no variance there, and t(5) no fourth moment."""
        options = {"dk": 16, "dist": "t", "corr": "qk:0.5", "samples": 1 << 17}
        run = sdpa_check.variance(df=2.5, **options)
        mean = row(run, "dot.mean")
        assert mean.prediction.value == pytest.approx(16 * 0.5 * 5)
        assert mean.verdict is mean.expected is Outcome.INCONCLUSIVE
        assert (mean.estimate.se, mean.tolerance) == (None, None)
        assert row(run, "dot.tail_index").prediction.value == 1.25
        assert row(run, "dot.variance_growth").prediction.value == pytest.approx(0.6)
        assert "its variance is infinite" in run.notes[0]
        assert "no exact prediction here" in run.notes[0]
        run = sdpa_check.variance(df=5.0, **options)
        assert row(run, "dot.variance").estimate.se is None
        assert "the fourth moment does not" in run.notes[0]

    @pytest.mark.parametrize("options", [{"dist": "cauchy"}, {"dist": "t", "df": 2.0}])
    def test_without_a_variance_the_iqr_is_judged(self, options, row):
        run = sdpa_check.variance(dk=64, tolerance=0.05, **options)
        variance = row(run, "dot.variance")
        assert variance.prediction.kind == "infinite"
        assert variance.prediction.value is None
        assert variance.verdict is variance.expected is Outcome.UNDEFINED
        assert variance.estimate.se is None
        assert row(run, "dot.iqr").verdict is Outcome.CONFIRMED
        assert (run.outcome, run.exit_code) == ("as expected", 0)
        assert any("infinite" in note for note in run.notes)

    def test_cauchy_quartile(self, row):
        run = sdpa_check.variance(dk=[4, 64], dist="cauchy", tolerance=0.1)
        for dk, quartile in ((4, 7.6318), (64, 249.839)):
            found = row(run, "dot.iqr", dk=dk)
            # both quartiles, each stated to half a unit of its last digit
            assert found.prediction.value == pytest.approx(2 * quartile, abs=2e-3, rel=0)
            assert found.verdict is Outcome.CONFIRMED
        assert not [each for each in run.rows if each.quantity == "dot.variance_exponent"]
        # theory: the local exponents 4 → 16 → 64 are 1.300 and 1.216
        exponent = row(run, "dot.scale_exponent").prediction.value
        assert exponent == pytest.approx((1.300 + 1.216) / 2, abs=1e-3)

    def test_the_record_of_infinite_numbers_is_strict_json(self):
        run = sdpa_check.variance(dk=64, dist="cauchy", tolerance=0.1)
        record = json.loads(dumps(run), parse_constant=pytest.fail)
        kinds = {row["prediction"]["kind"] for row in record["rows"]}
        assert {"infinite", "exact"} <= kinds


def test_shared_vectors_are_explained():
    run = sdpa_check.variance(dk=64, samples=10**7)
    (note,) = [note for note in run.notes if "share" in note]
    assert "d_k=64" in note
