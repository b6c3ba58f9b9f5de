"""`saturation`: predictions are those of the theory, and what is measured agrees with them."""

from __future__ import annotations

import math

import pytest

import sdpa_check
from sdpa_check.records import Outcome

# d, m → entropy (nats), mean tr J, RMS ‖J‖_F for the multipliers 1, 1/√d, 1/d
TABLE = {
    (16, 8): (
        (0.672787, 0.347797, 0.301220),
        (1.728958, 0.769301, 0.365193),
        (2.052462, 0.868112, 0.335589),
    ),
    (64, 8): (
        (0.318279, 0.177407, 0.228685),
        (1.723646, 0.768101, 0.366364),
        (2.072626, 0.873288, 0.331993),
    ),
    (64, 64): (
        (0.584278, 0.291383, 0.271085),
        (3.685705, 0.960973, 0.184636),
        (4.151196, 0.984133, 0.124930),
    ),
    (64, 1024): (
        (0.915417, 0.402584, 0.292036),
        (6.433372, 0.997326, 0.051381),
        (6.923667, 0.999008, 0.031479),
    ),
    (512, 64): (
        (0.182072, 0.103549, 0.177457),
        (3.684866, 0.961168, 0.184613),
        (4.157922, 0.984345, 0.124133),
    ),
}
ROUNDED = 0.51e-6
"""Half a unit of the last of six decimals."""

# median of ‖J‖_F, unscaled and scaled, in samples of their own
MEDIANS = {(64, 8): (0.0619, 0.3667), (64, 64): (0.1985, 0.1790)}


@pytest.fixture(scope="module", params=TABLE, ids=str)
def case(request):
    """A design of the table with its run: about 8192 rows, fewer of the longest."""
    dk, keys = request.param
    samples = 2048 if keys == 1024 else 8192
    return dk, keys, sdpa_check.saturation(dk=dk, keys=keys, samples=samples, seed=1)


def test_predictions_are_those_of_the_theory(case, row):
    dk, keys, run = case
    for scale, numbers in zip(("none", "sqrt", "dk"), TABLE[dk, keys], strict=True):
        entropy, trace, frobenius = numbers
        for quantity, statistic, value in (
            ("softmax.entropy", None, entropy),
            ("softmax.sum_squares", None, 1 - trace),
            ("jacobian.trace", "mean", trace),
            ("jacobian.frobenius", "rms", frobenius),
        ):
            found = row(run, quantity, scale=scale, statistic=statistic).prediction
            assert found.kind == "exact"
            assert found.value == pytest.approx(value, abs=ROUNDED, rel=0)
        ratio = row(run, "softmax.entropy_ratio", scale=scale).prediction.value
        assert ratio == pytest.approx(entropy / math.log(keys), abs=ROUNDED, rel=0)


def test_measured_numbers_lie_within_their_errors(case, within_error):
    within_error(case[2])


def test_measured_numbers_agree_with_each_other(case, row):
    _, keys, run = case
    for scale in ("none", "sqrt", "dk"):

        def value(quantity: str, statistic: str | None = None, scale: str = scale) -> float:
            return row(run, quantity, scale=scale, statistic=statistic).estimate.value

        # tr J = 1 − Σp², row by row; sums of some thousand rows round to 1e-12
        squares, trace = value("softmax.sum_squares"), value("jacobian.trace", "mean")
        assert squares + trace == pytest.approx(1, abs=1e-12)
        entropy = value("softmax.entropy")
        assert entropy == pytest.approx(value("softmax.entropy_ratio") * math.log(keys), rel=1e-12)
        assert 1 <= value("softmax.effective_keys") <= keys
        assert 1 / keys <= value("softmax.max_weight") <= 1
        for norm in ("frobenius", "spectral", "inf_norm", "trace"):
            of = {s: value(f"jacobian.{norm}", s) for s in ("mean", "rms", "median", "q05", "q95")}
            assert of["q05"] < of["median"] < of["q95"]
            assert of["mean"] <= of["rms"]
        spectral, frobenius = value("jacobian.spectral", "rms"), value("jacobian.frobenius", "rms")
        assert spectral < frobenius
        assert spectral < value("jacobian.inf_norm", "rms") <= 0.5


@pytest.mark.parametrize("design", MEDIANS, ids=str)
def test_medians(design, row):
    dk, keys = design
    run = sdpa_check.saturation(dk=dk, keys=keys, scale=["none", "sqrt"], samples=16384, seed=3)
    for scale, median in zip(("none", "sqrt"), MEDIANS[design], strict=True):
        found = row(run, "jacobian.frobenius", scale=scale, statistic="median")
        # five standard errors: a false alarm in 1e-6, four times; the reference is good to a unit
        assert abs(found.estimate.value - median) < 5 * found.estimate.se + 1e-4
        assert found.prediction.kind == "none"
        assert found.verdict is found.expected is Outcome.UNDEFINED


def test_with_a_wider_band_everything_is_as_expected():
    run = sdpa_check.saturation(dk=16, keys=8, scale=["none", "sqrt"], tolerance=0.1)
    assert (run.outcome, run.exit_code) == ("as expected", 0)
    verdicts = {row.verdict for row in run.rows if row.prediction.value is not None}
    assert verdicts == {Outcome.CONFIRMED}


def test_the_scalings_all_share_their_samples(row):
    options = {"dk": 16, "keys": 8, "samples": 4096}
    together = sdpa_check.saturation(scale="all", **options)
    alone = sdpa_check.saturation(scale="dk", **options)
    for quantity in ("softmax.entropy", "softmax.max_weight"):
        one, other = (row(run, quantity, scale="dk").estimate for run in (together, alone))
        assert one == other


@pytest.mark.parametrize(
    ("options", "multiplier"),
    [
        ({"sigma": 0.5}, 1 / 4),
        ({"sigma": 0.5, "sigma_k": 4.0}, 2.0),
        ({"corr": "qk:0.6"}, 0.8),
        ({"mean_k": 3.0}, 1.0),
    ],
)
def test_laws_with_the_same_logits_within_a_row(options, multiplier, row, within_error):
    run = sdpa_check.saturation(dk=16, keys=8, scale="sqrt", samples=4096, **options)
    same = sdpa_check.saturation(dk=16, keys=8, scale=multiplier / 4, samples=4096)
    for quantity in ("softmax.entropy", "softmax.sum_squares"):
        one, other = row(run, quantity).prediction, row(same, quantity).prediction
        assert one.kind == "exact"
        assert one.value == pytest.approx(other.value, rel=1e-9)
    within_error(run)


@pytest.mark.parametrize("corr", ["ar1:0.5", "equi:0.3"])
def test_correlated_components_have_exact_rows(corr, within_error):
    run = sdpa_check.saturation(dk=16, keys=8, scale="sqrt", corr=corr, samples=8192, seed=2)
    assert {row.prediction.kind for row in run.rows} == {"exact", "none"}
    within_error(run)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"dist": "laplace"}, "limit"),
        ({"dist": "t", "df": 3.0}, "limit"),
        ({"dist": "cauchy"}, "none"),
        ({"mean": 1.0}, "none"),
    ],
)
def test_other_laws_are_measured_and_not_judged(options, kind, row):
    run = sdpa_check.saturation(dk=16, keys=8, scale="sqrt", samples=4096, **options)
    found = row(run, "softmax.entropy")
    assert found.prediction.kind == kind
    assert found.estimate.se > 0
    assert found.verdict is found.expected is Outcome.UNDEFINED
    assert (run.outcome, run.exit_code) == ("as expected", 0)


class TestNotes:
    """The popular sentence "without the scale the gradient vanishes" is put right."""

    def test_the_rms_is_larger_without_the_scale(self):
        run = sdpa_check.saturation(dk=64, keys=64, scale=["none", "sqrt"], samples=8192)
        (note,) = run.notes
        assert "the RMS ‖J‖_F is larger without the scale" in note
        assert "d_k=64, m=64" in note
        assert note.endswith("nothing vanishes here.")

    def test_where_the_median_is_smaller_the_typical_row_vanishes(self):
        run = sdpa_check.saturation(dk=128, keys=64, scale=["none", "sqrt"], samples=8192)
        (note,) = run.notes
        assert "the RMS ‖J‖_F is larger without the scale" in note
        assert note.endswith("is the gradient of the typical row, not the RMS.")

    def test_what_is_left_comes_in_bursts(self):
        run = sdpa_check.saturation(dk=1024, keys=16, scale=["none", "sqrt"], samples=4096)
        (note,) = run.notes
        assert "rare bursts" in note

    def test_nothing_to_say_without_the_comparison(self):
        assert sdpa_check.saturation(dk=64, keys=64, scale="sqrt", samples=4096).notes == ()

    def test_of_each_kind_the_first(self):
        dks = [32, 64, 128, 256, 512, 1024]
        run = sdpa_check.saturation(dk=dks, keys=64, scale=["none", "sqrt"], samples=4096)
        found = [note.partition(":")[0] for note in run.notes]
        assert found == ["d_k=32, m=64", "d_k=128, m=64", "d_k=512, m=64"]

    def test_none_of_norms_too_small_for_their_bins(self):
        run = sdpa_check.saturation(
            dk=64, keys=16, scale=["none", "sqrt"], dist="cauchy", samples=2048
        )
        assert run.notes == ()


def test_every_design_and_rule_has_its_rows():
    run = sdpa_check.saturation(dk=[4, 8], keys=[2, 3], scale=["sqrt", 0.5], samples=2048)
    found = {(row.params["dk"], row.params["keys"], row.params["scale"]) for row in run.rows}
    assert found == {(d, m, s) for d in (4, 8) for m in (2, 3) for s in ("sqrt", "0.5")}
    assert len({row.id for row in run.rows}) == len(run.rows)
    assert run.design["keys"] == [2, 3]
