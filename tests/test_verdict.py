"""Verdicts: the logic on numbers made by hand, and the false alarms of the whole chain."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from sdpa_check import estimates, power, verdict
from sdpa_check.engine import Replicates
from sdpa_check.records import Outcome, Prediction, Row

BLOCKS = 64
Z = stats.norm.isf(0.5e-6)  # false-alarm rate 1e-6 of every simulated count; seeds are fixed


def estimate(value, se=0.1, blocks=BLOCKS, samples=1000):
    return estimates.with_error(value, se, blocks, samples)


def exact(value):
    return Prediction(value=value, kind="exact", source="by hand")


def judge(value, predicted, band, se=0.1, **kwargs):
    return verdict.judge(estimate(value, se), exact(predicted), band, **kwargs)


REACH = stats.t.isf(power.ALPHA / 2, BLOCKS - 1) * 0.1


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    ("deviation", "outcome"),
    [
        (0.0, Outcome.CONFIRMED),
        (2.0 - REACH - 1e-9, Outcome.CONFIRMED),
        (2.0 - REACH + 1e-9, Outcome.INCONCLUSIVE),
        (2.0, Outcome.INCONCLUSIVE),
        (2.0 + REACH - 1e-9, Outcome.INCONCLUSIVE),
        (2.0 + REACH + 1e-9, Outcome.REFUTED),
        (1e6, Outcome.REFUTED),
    ],
)
def test_two_one_sided_tests(sign, deviation, outcome):
    """The interval ± `REACH` against the band ± 2 around 5."""
    assert judge(5 + sign * deviation, 5.0, 2.0).outcome is outcome


@pytest.mark.parametrize(
    ("deviation", "outcome"),
    [(0.25, Outcome.CONFIRMED), (math.nextafter(0.25, 1), Outcome.INCONCLUSIVE)],
)
def test_blocks_that_all_agree_confirm_but_never_refute(deviation, outcome):
    """Events too rare for the sample leave no spread: that is no error bar of 0."""
    assert judge(deviation, 0.0, 0.25, se=0.0).outcome is outcome


def test_a_vanishing_band_allows_for_rounding():
    value = 4.158883083359677
    assert judge(value, math.nextafter(value, 0), 1e-30, se=0.0).outcome is Outcome.CONFIRMED
    assert judge(value, value * (1 - 1e-12), 1e-30, se=0.0).outcome is Outcome.INCONCLUSIVE


def test_the_band_that_a_number_is_held_to_is_no_finer_than_rounding():
    found, right = estimate(4.0), exact(-8.0)
    assert verdict.held_to(1e-30, found, right) == 8 * verdict._ROUNDING
    assert verdict.held_to(0.5, found, right) == 0.5
    assert verdict.held_to(1e-30, None, right) == 1e-30
    for value in (math.inf, math.nan):
        bare = estimates.bare(value, BLOCKS, 1, "why")
        assert verdict.held_to(0.5, bare, right) == 0.5


def test_no_band_can_confirm_nothing_that_is_uncertain():
    assert judge(1.0, 1.0, 0.0).outcome is Outcome.INCONCLUSIVE
    assert judge(1.0, 1.0, 0.0, se=0.0).outcome is Outcome.CONFIRMED
    assert judge(9.0, 1.0, 0.0).outcome is Outcome.REFUTED


def test_an_infinite_band_confirms_nothing():
    assert judge(5.0, 1e9, math.inf).outcome is Outcome.INCONCLUSIVE
    stated = verdict.judge(estimate(5.0, 0.1), exact(math.inf), math.inf)
    assert stated.outcome is Outcome.INCONCLUSIVE
    assert "no band" in stated.reason


def test_few_samples_cannot_confirm():
    """A value that is right by chance, with an error bar as wide as the band."""
    assert judge(5.0, 5.0, 0.1, se=0.1).outcome is Outcome.INCONCLUSIVE


def test_more_checks_widen_the_interval():
    edge = 2.0 + REACH + 1e-6
    assert judge(edge, 0.0, 2.0, checks=1).outcome is Outcome.REFUTED
    assert judge(edge, 0.0, 2.0, checks=2).outcome is Outcome.INCONCLUSIVE
    assert judge(edge, 0.0, 2.0, alpha=0.05, checks=2).outcome is Outcome.REFUTED


def test_fewer_blocks_widen_the_interval():
    few = verdict.judge(estimate(2.0 + REACH + 1e-6, blocks=32), exact(0.0), 2.0)
    assert few.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("prediction", "said"),
    [
        (Prediction(value=None, kind="infinite", source="tail index 1"), "predicted ∞"),
        (Prediction(value=None, kind="none", source="unknown"), "no prediction: unknown"),
        (Prediction(value=1.0, kind="limit", source="large d"), "large d"),
    ],
)
@pytest.mark.parametrize("se", [0.0, 0.1, None])
def test_without_an_exact_prediction_nothing_is_judged(prediction, said, se):
    found = estimate(5.0, se) if se is not None else estimates.bare(5.0, BLOCKS, 1, "why")
    result = verdict.judge(found, prediction, 0.01)
    assert result.outcome is Outcome.UNDEFINED
    assert said in result.reason
    assert result.detectable is None


@pytest.mark.parametrize("value", [5.0, 1e9, math.nan])
def test_withheld_is_never_judged(value):
    bare = estimates.bare(value, BLOCKS, 1, "fourth moment infinite")
    result = verdict.judge(bare, exact(5.0), 0.1)
    assert result.outcome is Outcome.INCONCLUSIVE
    assert "fourth moment infinite" in result.reason


def test_reasons_hold_the_numbers():
    reason = judge(5.5, 5.0, 2.0).reason
    for number in (0.5, REACH, 2.0):
        assert f"{number:.3g}" in reason


def test_detectable_is_that_of_power():
    right = power.detectable(2.0, 0.1, alpha=1e-3, checks=7, blocks=BLOCKS)
    for value in (5.0, 7.0, 50.0):
        assert judge(value, 5.0, 2.0, alpha=1e-3, checks=7).detectable == right


def test_an_open_check_says_what_would_settle_it():
    wanted = power.wanted_se(1.0, alpha=power.ALPHA, checks=1)
    reason = judge(5.0, 5.0, 1.0, se=3 * wanted).reason
    assert "needs about 9 times the samples (--samples 9e+03)" in reason
    assert "edge of the band" in judge(6.0, 5.0, 1.0, se=wanted / 2).reason


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize(
    ("margin", "outcome"),
    [
        (9.0, Outcome.CONFIRMED),
        (REACH + 1e-9, Outcome.CONFIRMED),
        (REACH - 1e-9, Outcome.INCONCLUSIVE),
        (0.0, Outcome.INCONCLUSIVE),
        (-REACH + 1e-9, Outcome.INCONCLUSIVE),
        (-REACH - 1e-9, Outcome.REFUTED),
    ],
)
def test_one_sided_claims(margin, outcome, mirrored):
    """The interval ± `REACH` against the bound 5, above it or below; no band plays a part."""
    relation, value = ("at most", 5 - margin) if mirrored else ("at least", 5 + margin)
    found = judge(value, 5.0, 100.0, relation=relation)
    assert found.outcome is outcome
    assert f"claimed {relation} 5" in found.reason


@pytest.mark.parametrize(
    ("value", "stated", "band", "outcome"),
    [
        (1.0, 1.0, 0.0, Outcome.CONFIRMED),
        (1.25, 1.0, 0.25, Outcome.CONFIRMED),
        (1.26, 1.0, 0.25, Outcome.REFUTED),
        (math.inf, math.inf, 0.0, Outcome.CONFIRMED),
        (-math.inf, math.inf, 0.0, Outcome.REFUTED),
        (math.nan, 1.0, 9.0, Outcome.REFUTED),
        (math.inf, 1.0, 9.0, Outcome.REFUTED),
    ],
)
def test_exact(value, stated, band, outcome):
    """One number, and the same number among others that are right."""
    assert verdict.judge_exact([value], [stated], band).outcome is outcome
    assert verdict.judge_exact([2.0, value], [2.0, stated], band).outcome is outcome


@pytest.mark.parametrize(
    ("values", "relation", "outcome"),
    [
        ([1.0, 2.0], "at least", Outcome.CONFIRMED),
        ([0.9, 2.0], "at least", Outcome.REFUTED),
        ([1.0, 2.0], "at most", Outcome.CONFIRMED),
        ([1.0, 2.1], "at most", Outcome.REFUTED),
        ([math.nan, 2.0], "at most", Outcome.REFUTED),
    ],
)
def test_exact_bounds(values, relation, outcome):
    assert verdict.judge_exact(values, [1.0, 2.0], 9.0, relation).outcome is outcome


def test_exact_lists_have_one_length():
    with pytest.raises(ValueError, match="zip"):
        verdict.judge_exact([1.0], [1.0, 2.0], 0.0)


def row(outcome, expected=Outcome.CONFIRMED):
    return Row(
        id="r",
        quantity="dot.mean",
        params={},
        estimate=None,
        prediction=exact(0.0),
        verdict=outcome,
        expected=expected,
        reason="",
    )


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([], 4),
        ([row(Outcome.CONFIRMED)], 0),
        ([row(Outcome.REFUTED)], 3),
        ([row(Outcome.INCONCLUSIVE)], 4),
        ([row(Outcome.UNDEFINED)], 3),
        ([row(Outcome.NOT_RUN)], 4),
        ([row(Outcome.NOT_RUN), row(Outcome.CONFIRMED)], 0),
        ([row(Outcome.REFUTED, Outcome.REFUTED)], 0),
        ([row(Outcome.CONFIRMED, Outcome.REFUTED)], 3),
        ([row(Outcome.INCONCLUSIVE, Outcome.REFUTED)], 4),
        ([row(Outcome.UNDEFINED, Outcome.UNDEFINED)], 0),
        ([row(Outcome.CONFIRMED, Outcome.UNDEFINED)], 3),
        ([row(Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE)], 0),
        ([row(Outcome.CONFIRMED), row(Outcome.INCONCLUSIVE), row(Outcome.REFUTED)], 3),
        ([row(Outcome.CONFIRMED), row(Outcome.INCONCLUSIVE), row(Outcome.NOT_RUN)], 4),
    ],
)
def test_exit_code(rows, code):
    words = {0: "as expected", 3: "NOT as expected", 4: "open"}
    outcome, found = verdict.conclude(rows)
    assert found == code
    checked = any(r.verdict is not Outcome.NOT_RUN for r in rows)
    assert outcome == (words[code] if checked else "nothing was checked")
    for order in itertools.permutations(rows):
        assert verdict.conclude(order) == (outcome, found)


def simulated(runs, blocks, truth, seed):
    """Estimates from normal block means, through the estimator that every run uses."""
    g = np.random.default_rng(seed)
    for x in truth + math.sqrt(blocks) * g.standard_normal((runs, blocks)):
        yield estimates.function_of_means(Replicates({"x": x}, blocks), lambda m: m["x"], samples=1)


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize(
    ("truth", "band", "share"),
    [(0.0, 0.0, 1.0), (1.0, 1.0, 0.5), (-20.0, 20.0, 0.5)],
    ids=["no band", "edge of a narrow band", "edge of a wide band"],
)
def test_false_alarms_are_as_many_as_stated(alpha, truth, band, share):
    """Refuted although the truth lies in the band: at most α, with no band exactly α.

    At the edge of a band one tail counts, α/2. A count of N runs is binomial; Z standard errors.
    """
    runs = 4000
    outcomes = [
        verdict.judge(found, exact(0.0), band, alpha=alpha).outcome
        for found in simulated(runs, 33, truth, seed=11)
    ]
    refuted = outcomes.count(Outcome.REFUTED)
    rate = share * alpha
    assert abs(refuted - rate * runs) < Z * math.sqrt(rate * (1 - rate) * runs)


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("checks", [1, 4])
def test_false_alarms_of_a_family(alpha, checks):
    """Independent checks that share α: at least one is refuted with 1 − (1 − α/k)^k ≤ α."""
    families = 4000 // checks
    alarms = [
        verdict.judge(found, exact(0.0), 0.0, alpha=alpha, checks=checks).outcome is Outcome.REFUTED
        for found in simulated(families * checks, 64, 0.0, seed=12)
    ]
    count = np.reshape(alarms, (families, checks)).any(axis=1).sum()
    rate = 1 - (1 - alpha / checks) ** checks
    assert abs(count - rate * families) < Z * math.sqrt(rate * (1 - rate) * families)


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_a_truth_at_the_edge_is_seldom_confirmed(alpha):
    """The size of two one-sided tests at simultaneous level α is α/2."""
    runs = 4000
    outcomes = [
        verdict.judge(found, exact(0.0), 20.0, alpha=alpha).outcome
        for found in simulated(runs, 33, 20.0, seed=13)
    ]
    confirmed, rate = outcomes.count(Outcome.CONFIRMED), alpha / 2
    assert abs(confirmed - rate * runs) < Z * math.sqrt(rate * (1 - rate) * runs)


@pytest.mark.parametrize("outcome", [Outcome.CONFIRMED, Outcome.REFUTED, Outcome.INCONCLUSIVE])
def test_a_stopped_run_has_no_other_outcome(outcome):
    assert verdict.conclude([row(outcome)], stopped=True) == ("stopped", 130)


def test_an_unjudged_number_is_open_or_undefined_as_ever():
    open_ = verdict.unjudged(Prediction(value=1.0, kind="exact", source=""), "stopped")
    assert (open_.outcome, open_.reason) == (Outcome.INCONCLUSIVE, "stopped")
    for prediction in (
        Prediction(value=None, kind="infinite", source="x"),
        Prediction(value=1.0, kind="limit", source="x"),
    ):
        assert verdict.unjudged(prediction, "stopped") == verdict.judge(
            estimate(1.0), prediction, 0.1
        )
