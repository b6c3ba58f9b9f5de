"""The checker is checked: with a planted error a run comes out NOT as expected."""

from __future__ import annotations

import pytest

import sdpa_check
from sdpa_check import Fault
from sdpa_check.errors import InputError
from sdpa_check.records import Outcome

WIDE = Fault(sample_scale=1.03)
NARROW = Fault(sample_scale=0.97)
MISSING_ROOT = Fault(scale="dk")
MODEL_WIDTH = Fault(scale="sqrt_dmodel")


def refuted(run):
    return {row.quantity for row in run.rows if row.verdict is Outcome.REFUTED}


@pytest.mark.parametrize(
    ("fault", "quantities"),
    [
        # 3 % in every component are 12.6 % in the variance
        (WIDE, {"dot.variance", "dot.std", "dot.iqr", "logit.variance", "logit.std"}),
        (NARROW, {"dot.variance", "dot.std", "dot.iqr", "logit.variance", "logit.std"}),
        (MISSING_ROOT, {"logit.variance", "logit.std"}),
        (MODEL_WIDTH, {"logit.variance", "logit.std"}),
    ],
    ids=["wide", "narrow", "missing root", "model width"],
)
def test_variance_sees_it_at_default_settings(fault, quantities):
    run = sdpa_check.variance(dk=64, dmodel=512, fault=fault)
    assert (run.outcome, run.exit_code) == ("NOT as expected", 3)
    assert refuted(run) == quantities


@pytest.mark.parametrize("fault", [WIDE, MISSING_ROOT, MODEL_WIDTH], ids=str)
def test_saturation_sees_it(fault):
    run = sdpa_check.saturation(dk=64, keys=64, dmodel=512, samples=65536, fault=fault)
    assert (run.outcome, run.exit_code) == ("NOT as expected", 3)
    assert {"softmax.entropy", "softmax.sum_squares", "jacobian.trace"} <= refuted(run)


def test_the_same_settings_without_a_fault_refute_nothing():
    assert not refuted(sdpa_check.variance(dk=64, dmodel=512))
    assert not refuted(sdpa_check.saturation(dk=64, keys=64, dmodel=512, samples=65536))


def test_a_rule_that_is_measured_as_itself_stays_confirmed(row):
    run = sdpa_check.variance(dk=64, scale=["sqrt", "dk"], fault=MISSING_ROOT)
    assert row(run, "logit.variance", scale="sqrt").verdict is Outcome.REFUTED
    assert row(run, "logit.variance", scale="dk").verdict is Outcome.CONFIRMED


def test_predictions_never_see_a_fault():
    options = {"dk": 4, "dmodel": 512, "samples": 4096}
    runs = [sdpa_check.variance(**options, fault=f) for f in (None, WIDE, MODEL_WIDTH)]
    predictions = [[row.prediction for row in run.rows] for run in runs]
    assert predictions[0] == predictions[1] == predictions[2]


@pytest.mark.parametrize("study", [sdpa_check.variance, sdpa_check.saturation])
def test_a_note_and_the_design_name_the_fault(study):
    run = study(dk=4, samples=1024, fault=WIDE)
    assert "sample_scale=1.03" in run.notes[0]
    assert "planted" in run.notes[0]
    assert run.design["fault"] == {"sample_scale": 1.03, "scale": None}
    run = study(dk=4, samples=1024, dmodel=512, fault=MODEL_WIDTH)
    assert "scale=sqrt_dmodel" in run.notes[0]
    assert run.design["fault"] == {"sample_scale": 1.0, "scale": "sqrt_dmodel"}


@pytest.mark.parametrize("fault", [None, Fault()])
def test_no_fault_no_note(fault):
    run = sdpa_check.variance(dk=4, samples=1024, fault=fault)
    assert run.design["fault"] is None
    assert not any("planted" in note for note in run.notes)


@pytest.mark.parametrize("scale", ["sqrt_dmodel", "nonsense"])
def test_a_fault_that_cannot_be_planted_is_refused(scale):
    with pytest.raises(InputError):
        sdpa_check.variance(dk=4, samples=1024, fault=Fault(scale=scale))
