from __future__ import annotations

import dataclasses

import pytest

from sdpa_check.records import Outcome
from sdpa_check.report import summary


def test_common_inputs_are_those_of_the_design_and_those_equal_in_all_rows(mixed, sweep):
    assert summary.common(sweep) == {
        "distribution": "t",
        "standardize": "no",
        "scale": "sqrt",
        "alpha": "1e-6",
        "sigma": "1",
    }
    assert summary.common(mixed) == {"standardize": "no", "alpha": "1e-6"}


def test_a_parameter_of_one_case_only_is_common(sweep):
    alone = dataclasses.replace(sweep, rows=sweep.rows[:1])
    assert summary.common(alone)["dk"] == "8"
    assert summary.common(alone)["multiplier"] == "0.353553390593"


def _title(sweep, **design):
    """The title of the first row of a sweep under another design."""
    params = {"dk": 8, **design}
    row = dataclasses.replace(sweep.rows[0], params=params)
    return summary.title(dataclasses.replace(sweep, rows=(row,), design=params))


def test_title_leaves_out_what_says_nothing(sweep):
    neutral = {"standardize": False, "sigma": 1.0, "sigma_k": 1.0, "mean": 0.0, "mean_k": 0.0}
    more = {"corr": "none", "tolerance": 0.01, "alpha": 1e-6}
    said = _title(sweep, distribution="gaussian", **neutral, **more)
    assert said == "saturation  dk=8 distribution=gaussian sigma=1 tolerance=0.01"


@pytest.mark.parametrize(
    ("design", "text"),
    [
        ({"sigma": 2.0, "sigma_k": 2.0}, "sigma=2"),
        ({"sigma": 2.0, "sigma_k": 1.0}, "sigma=2 sigma_k=1"),
        ({"mean": 0.5, "mean_k": 0.5}, "mean=0.5"),
        ({"mean": 0.0, "mean_k": 0.5}, "mean=0 mean_k=0.5"),
        ({"mean": 0.5, "mean_k": 0.0}, "mean=0.5 mean_k=0"),
        ({"corr": "ar1:0.5"}, "corr=ar1:0.5"),
        (
            {"distribution": "gaussian", "standardize": True},
            "distribution=gaussian standardize=yes",
        ),
        ({"standardize": False}, "standardize=no"),
    ],
)
def test_title_says_what_is_not_neutral(sweep, design, text):
    assert _title(sweep, **design) == f"saturation  dk=8 {text}"


@pytest.mark.parametrize(
    ("design", "text"),
    [
        ({"df": 5.0, "standardize": False}, "(raw: variance 1.66667 per component)"),
        ({"df": 5.0, "standardize": True}, "(standardised: variance 1 per component)"),
        ({"df": 2.0, "standardize": False}, "(raw: no finite variance)"),
    ],
)
def test_title_says_which_t_it_is(sweep, design, text):
    law = f"saturation  dk=8 distribution=t df={design['df']:g}"
    common = {"distribution": "t", **design}
    assert _title(sweep, **common, sigma=1.0, sigma_k=1.0) == f"{law} {text} sigma=1"
    scaled = text.replace(" per", " sigma² per")
    assert _title(sweep, **common, sigma=2.0, sigma_k=2.0) == f"{law} {scaled} sigma=2"


def test_title_of_a_t_whose_df_differ_names_the_option(sweep):
    assert summary.title(sweep) == "saturation  distribution=t standardize=no scale=sqrt sigma=1"
    assert _title(sweep, distribution="t", df=[3, 5], standardize=False) == (
        "saturation  dk=8 distribution=t df=3,5 standardize=no"
    )


def test_what_is_measured_only_is_counted_apart(spread, mixed, sweep):
    assert summary.verdict_line(spread) == "as expected: 8 confirmed; 36 measured only"
    assert summary.outcome_line(spread) == "as expected: 8 confirmed, 36 undefined"
    for run in (mixed, sweep):
        assert summary.verdict_line(run) == summary.outcome_line(run)
    only = [row for row in spread.rows if row.prediction.kind == "none"]
    alone = dataclasses.replace(spread, rows=tuple(only))
    assert summary.verdict_line(alone) == "as expected: 36 measured only"


def test_what_is_measured_only_has_no_reason_but_that_of_a_missing_error_bar(spread):
    (reason,) = summary.reasons(spread)
    assert reason.verdict == "measured only"
    assert reason.text == "error bar not available (a quantile lies beyond the bins)"
    assert len(reason.checks) == 8
    assert reason.checks[0] == "jacobian.frobenius keys=8 scale=none statistic=q95"
    assert not reason.wrong


def test_outcome_line_counts_what_is_off_first(mixed, sweep):
    assert summary.outcome_line(sweep) == "as expected: 6 confirmed"
    assert summary.outcome_line(mixed) == (
        "NOT as expected: 1 refuted, 1 inconclusive; "
        "as expected: 1 confirmed, 1 refuted, 2 undefined; 1 not run"
    )
    assert summary.outcome_line(dataclasses.replace(sweep, rows=())) == "as expected: no checks"


def test_sampling_line(mixed, sweep):
    blocks = "± is one standard error (64 independent blocks, 1,048,576 samples)"
    z = "z counts them"
    assert summary.sampling_line(sweep, z=True) == f"{blocks}; {z}; seed 7, PCG64DXSM"
    assert summary.sampling_line(sweep, z=False) == f"{blocks}; seed 7, PCG64DXSM"
    seeded = dataclasses.replace(sweep, generator="SFC64, SeedSequence(seed)")
    assert summary.sampling_line(seeded, z=False).endswith("; seed 7, SFC64")
    alone = dataclasses.replace(mixed, rows=mixed.rows[-1:])
    assert summary.sampling_line(alone, z=True) == "nothing was sampled; seed 7, PCG64DXSM"


def test_sampling_line_gives_ranges_and_explains_intervals(sweep):
    first = sweep.rows[0].estimate
    other = dataclasses.replace(first, se=None, blocks=128, samples=2048, level=0.999999)
    rows = (dataclasses.replace(sweep.rows[0], estimate=other), *sweep.rows[1:])
    line = summary.sampling_line(dataclasses.replace(sweep, rows=rows), z=False)
    assert "(64 to 128 independent blocks, 2,048 to 1,048,576 samples)" in line
    assert "; [ ] is the 99.9999 % interval; " in line


def test_reasons_are_those_of_what_is_not_confirmed_worst_first(mixed, sweep):
    assert summary.reasons(sweep) == []
    found = [(each.verdict, each.wrong) for each in summary.reasons(mixed)]
    assert found == [
        ("refuted ✗", True),
        ("inconclusive", False),
        ("refuted (expected)", False),
        ("undefined", False),
        ("undefined", False),
        ("not run", False),
    ]


def test_equal_reasons_stand_once(sweep):
    rows = tuple(
        dataclasses.replace(
            row, verdict=Outcome.UNDEFINED, expected=Outcome.UNDEFINED, reason="no closed form"
        )
        for row in sweep.rows[:3]
    )
    (reason,) = summary.reasons(dataclasses.replace(sweep, rows=rows + sweep.rows[3:]))
    assert reason.text == "no closed form"
    assert reason.checks == (
        "softmax.saturated_fraction dk=8",
        "jacobian.frobenius dk=8 statistic=rms",
        "jacobian.frobenius dk=8 statistic=mean",
    )


def test_a_claim_that_should_fail_and_passes_is_explained(mixed):
    passed = dataclasses.replace(mixed.rows[1], verdict=Outcome.CONFIRMED)
    (reason,) = summary.reasons(dataclasses.replace(mixed, rows=(passed,)))
    assert (reason.verdict, reason.wrong) == ("confirmed ✗ (expected refuted)", True)
