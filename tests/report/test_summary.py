from __future__ import annotations

import dataclasses

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


def test_outcome_line_counts_what_is_off_first(mixed, sweep):
    assert summary.outcome_line(sweep) == "as expected: 6 confirmed"
    assert summary.outcome_line(mixed) == (
        "NOT as expected: 1 refuted, 1 inconclusive; "
        "as expected: 1 confirmed, 1 refuted, 2 undefined; 1 not run"
    )
    assert summary.outcome_line(dataclasses.replace(sweep, rows=())) == "as expected: no checks"


def test_sampling_line(mixed, sweep):
    blocks = "± is one standard error, from 64 independent blocks of 1,048,576 samples in all"
    z = "z is the deviation in standard errors"
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
    assert "from 64 to 128 independent blocks of 2,048 to 1,048,576 samples" in line
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
