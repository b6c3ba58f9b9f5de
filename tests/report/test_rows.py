from __future__ import annotations

import dataclasses
import math
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdpa_check.records import Estimate, Outcome, Prediction, Row, Run
from sdpa_check.report import rows

SEEDED = settings(derandomize=True, deadline=None, max_examples=300)


@pytest.mark.parametrize(
    ("value", "se", "text"),
    [
        (63.98213, 0.0312, "63.982 ± 0.031"),
        (63.98213, 0.03, "63.982 ± 0.030"),
        (1.4204e-22, 3.14e-24, "(1.420 ± 0.031)e-22"),
        (1234567.0, 3100.0, "(1.2346 ± 0.0031)e6"),
        (1234567.891, 0.031, "1234567.891 ± 0.031"),
        (12346.0, 310.0, "12350 ± 310"),
        (0.000123456, 0.0000031, "0.0001235 ± 0.0000031"),
        (-0.0001, 0.031, "0.000 ± 0.031"),  # no negative zero
        (-0.12, 0.031, "-0.120 ± 0.031"),
        (0.0, 1e-9, "(0.0 ± 1.0)e-9"),
        (5.0, 0.0996, "5.00 ± 0.10"),  # 0.0996 is 0.10 to two digits, not 0.100
        (9.9996, 0.0031, "9.9996 ± 0.0031"),
        (999999.7, 310.0, "(1.00000 ± 0.00031)e6"),  # the carry makes a seventh digit
        (0.5, 12.0, "0 ± 12"),
        (64.0, 0.0, "64 ± 0"),
        (1 / 3, None, "0.333333"),
        (1 / 3, math.nan, "0.333333"),
        (1 / 3, math.inf, "0.333333 ± ∞"),
        (math.inf, 1.0, "∞ ± 1"),
        (math.nan, 1.0, "— ± 1"),
        (1 / 3, 1e-13, "0.333333333333 ± 1e-13"),
        (1 / 3, 1e-16, "0.333333333333 ± 1e-16"),
        (1e300, 1e299, "(1.00 ± 0.10)e300"),
        (3.9e-176, 3.4e-167, "3.9e-176 ± 3.4e-167"),  # rounded to its error it would be lost
        (1.8e174, 1.3e183, "1.8e174 ± 1.3e183"),
        (0.0, 3.4e-167, "(0.0 ± 3.4)e-167"),
    ],
)
def test_value_is_rounded_to_its_error(value, se, text):
    assert rows.rounded(value, se) == text


@SEEDED
@given(
    value=st.floats(allow_nan=False, allow_infinity=False),
    se=st.floats(min_value=1e-300, max_value=1e300),
)
def test_what_is_shown_is_within_half_a_unit_of_the_last_digit(value, se):
    text = rows.rounded(value, se)
    if abs(Fraction(value)) > Fraction(se) * 10**9:
        return  # more digits than are shown beside so small an error
    if "e" in text and "(" not in text:  # over the power of ten of its error it would be 0
        assert text == f"{rows.number(value, 2)} ± {rows.number(se, 2)}"
        assert 0 < 19 * abs(Fraction(value)) < Fraction(se)
        return
    shown, error, exponent = re.fullmatch(r"\(?(\S+) ± ([^)]+)\)?(?:e(\S+))?", text).groups()
    power = Fraction(10) ** int(exponent or 0)
    place = len(error.partition(".")[2])
    # Two digits of the error decide; in plain notation above the point they are followed by zeros.
    digits = error.replace(".", "").lstrip("0")
    unit = power / 10**place * 10 ** (len(digits) - 2)
    assert digits[2:].strip("0") == ""
    assert len(digits) >= 2
    assert abs(Fraction(shown) * power - Fraction(value)) <= unit / 2
    assert abs(Fraction(error) * power - Fraction(se)) <= unit / 2
    assert not re.match(r"\(?-0?\.?0*( |$)", text)


@SEEDED
@given(st.floats())
def test_six_digits_are_within_half_a_unit_and_never_a_negative_zero(x):
    text = rows.number(x)
    if not math.isfinite(x):
        assert text in {"∞", "-∞", "—"}
    else:
        assert abs(Fraction(text) - Fraction(x)) <= abs(Fraction(x)) * Fraction(5, 10**6)
        assert text != "-0"
        assert len(re.sub(r"e.*|\D", "", text).lstrip("0")) <= 6


@pytest.mark.parametrize(
    ("value", "se", "text"),
    [
        (63.98213, 0.0312, "63.982(31)"),
        (63.98213, 0.0996, "63.98(10)"),
        (0.000123456, 0.0000031, "0.0001235(31)"),
        (28.1, 1.2, "28.1(12)"),
        (12346.0, 310.0, "12350(310)"),
        (1.4204e-22, 3.14e-24, "1.420(31)e-22"),
        (1234567.0, 3100.0, "1.2346(31)e6"),
        (-0.0001, 0.031, "0.000(31)"),
        (0.0, 0.0, "0 ± 0"),
        (1 / 3, 1e-16, "0.333333333333 ± 1e-16"),
        (math.inf, 1.0, "∞ ± 1"),
    ],
)
def test_the_error_in_units_of_the_last_digit(value, se, text):
    found = _row(0.0, value, se).estimate
    assert rows.concise(found) == text


def test_the_concise_form_of_a_number_without_an_error_is_that_of_its_column(mixed):
    assert rows.concise(mixed.rows[4].estimate) == "1.2345e9 ± n/a"
    assert rows.concise(None) == "—"
    found = Estimate(value=2.0, se=None, lo=1.9, hi=2.2, level=0.95, blocks=64, samples=640)
    assert rows.concise(found) == "2.00 [1.90, 2.20]"


@SEEDED
@given(
    value=st.floats(min_value=-1e12, max_value=1e12), se=st.floats(min_value=1e-9, max_value=1e9)
)
def test_the_concise_form_says_what_the_long_one_says(value, se):
    found, long = rows.concise(_row(0.0, value, se).estimate), rows.rounded(value, se)
    if found == long:
        return  # more digits than are shown
    shown, digits, exponent = re.fullmatch(r"(\S+?)\((\d+)\)(?:e(\S+))?", found).groups()
    unit = Fraction(1, 10 ** len(shown.partition(".")[2])) * Fraction(10) ** int(exponent or 0)
    wanted = re.fullmatch(r"\(?(\S+) ± ([^)]+)\)?(?:e(\S+))?", long).groups()
    assert (shown, exponent) == (wanted[0], wanted[2])
    assert int(digits) * unit == Fraction(wanted[1]) * Fraction(10) ** int(wanted[2] or 0)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (None, "—"),
        (64.0, "64"),
        (64, "64"),
        (123456789, "123456789"),
        (1e-22, "1e-22"),
        (1234567.0, "1.23457e6"),
        (-0.0, "0"),
    ],
)
def test_number(x, text):
    assert rows.number(x) == text


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((0.6741, 0.6611, 0.6893), "0.674 [0.661, 0.689]"),
        ((1.42e-22, 1.39e-22, 1.46e-22), "(1.420 [1.390, 1.460])e-22"),
        ((2.0, 2.0, 2.0), "2 [2, 2]"),
        ((2.0, -math.inf, 2.0), "2 [-∞, 2]"),
    ],
)
def test_an_interval_is_rounded_to_its_half_width(args, text):
    assert rows.interval(*args) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        (0.1, "0.1"),
        (1.0, "1"),
        ([8, 64], "8,64"),
        (list(range(12)), "0,1,2,3,4,5,…,11 (12 values)"),
        ("a\x1b[2Jb\nc", "a\\x1b[2Jb c"),
    ],
)
def test_param(value, text):
    assert rows.param(value) == text


def test_text_of_a_record_cannot_steer_a_terminal():
    assert rows.plain("\x1b]0;x\x07 \u202e \ud800 \x9b31m") == (
        "\\x1b]0;x\\x07 \\u202e \\ud800 \\x9b31m"
    )
    assert rows.plain("‖J‖_F ≈ ½\tσ⁴ ") == "‖J‖_F ≈ ½ σ⁴"


def test_params_are_flat_and_those_not_set_are_left_out():
    given_ = {"dk": 8, "df": None, "note": "", "fault": {"scale": "dk"}, "list": []}
    assert rows.params(given_) == {"dk": "8", "fault.scale": "dk"}


def test_cells_of_every_verdict(mixed):
    columns = ("check", "measured", "predicted", "z", "tolerance", "verdict")
    table = [tuple(rows.cells(row)[name] for name in columns) for row in mixed.rows]
    assert table == [
        ("dot.variance dk=64", "63.982 ± 0.031", "64 (exact)", "-0.6", "±0.64", "confirmed"),
        (
            "logit.variance dk=64 scale=none",
            "63.982 ± 0.031",
            "8 (stated)",
            "+1794",
            "±0.08",
            "refuted (expected)",
        ),
        (
            "logit.variance dk=64 scale=sqrt",
            "1.06090 ± 0.00050",
            "1 (exact)",
            "+122",
            "±0.01",
            "refuted ✗",
        ),
        (
            "dot.iqr dk=64 distribution=cauchy",
            "(1.420 ± 0.031)e-22",
            "1.4e-22 (exact)",
            "+0.6",
            "±1.4e-24",
            "inconclusive",
        ),
        ("dot.variance dk=64 distribution=cauchy", "1.2345e9 ± n/a", "∞", "—", "—", "undefined"),
        (
            "softmax.effective_keys dk=64 keys=1024 level=0.5",
            "12.50 ± 0.25",
            "≈ 12 (limit)",
            "+2.0",
            "±0.12",
            "undefined",
        ),
        ("float.exp", "—", "—", "—", "—", "not run"),
    ]


def test_a_withheld_error_bar_says_why_once(mixed):
    reason = rows.cells(mixed.rows[4])["reason"]
    assert reason == (
        "Cauchy components have no variance; error bar not available (fourth moment infinite)"
    )
    told = dataclasses.replace(mixed.rows[4], reason=reason)
    assert rows.cells(told)["reason"] == reason


def test_a_prediction_has_as_many_digits_as_the_measurement():
    assert _cells(0.998_973_412, 0.998_971_21, 3.1e-3)["predicted"] == "0.998973 (exact)"
    assert _cells(0.998_973_412, 0.998_971_21, 3.1e-7)["predicted"] == "0.99897341 (exact)"


def test_an_interval_stands_where_there_is_no_standard_error():
    found = Estimate(value=2.0, se=None, lo=1.9, hi=2.2, level=0.95, blocks=64, samples=640)
    cells = rows.cells(dataclasses.replace(_row(2.0, 2.0, 0.1), estimate=found))
    assert (cells["measured"], cells["z"]) == ("2.00 [1.90, 2.20]", "—")


@pytest.mark.parametrize(
    ("verdict", "expected", "text"),
    [
        (Outcome.CONFIRMED, Outcome.CONFIRMED, "confirmed"),
        (Outcome.REFUTED, Outcome.REFUTED, "refuted (expected)"),
        (Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE, "inconclusive (expected)"),
        (Outcome.INCONCLUSIVE, Outcome.REFUTED, "inconclusive (expected refuted)"),
        (Outcome.CONFIRMED, Outcome.REFUTED, "confirmed ✗ (expected refuted)"),
        (Outcome.UNDEFINED, Outcome.CONFIRMED, "undefined ✗"),
        (Outcome.NOT_RUN, Outcome.CONFIRMED, "not run"),
        (Outcome.UNDEFINED, Outcome.UNDEFINED, "undefined"),
    ],
)
def test_verdict_names_what_was_expected_where_it_matters(verdict, expected, text):
    row = dataclasses.replace(_row(2.0, 2.0, 0.1), verdict=verdict, expected=expected)
    assert rows.cells(row)["verdict"] == text


def test_a_huge_deviation_is_short():
    assert _cells(1.0, 3e9, 1e-3)["z"] == "+3e12"
    assert _cells(1.0, -3e9, 1e-3)["z"] == "-3e12"
    assert _cells(1.0, 1.0 - 1e-5, 1e-3)["z"] == "+0.0"


def test_only_parameters_that_differ_are_named(sweep):
    assert rows.varying_params(sweep.rows) == ("dk", "statistic")
    assert rows.common_params(sweep.rows) == {"scale": "sqrt", "sigma": "1"}
    assert [each["check"] for each in rows.run_cells(sweep)][:2] == [
        "softmax.saturated_fraction dk=8",
        "jacobian.frobenius dk=8 statistic=rms",
    ]
    assert rows.varying_params(sweep.rows[:1]) == ()
    assert rows.varying_params(()) == ()


def test_neighbours_that_share_a_design_stand_in_a_group(sweep):
    grouped = [(each["group"], each["check"]) for each in rows.grouped_cells(sweep, sweep.rows)]
    assert grouped[2:4] == [
        ("dk=8", "jacobian.frobenius statistic=mean"),
        ("dk=64", "softmax.saturated_fraction"),
    ]


def test_a_group_of_one_is_none(sweep):
    alone = dataclasses.replace(sweep, rows=(sweep.rows[0], sweep.rows[3]))
    assert [(each["group"], each["check"]) for each in rows.grouped_cells(alone, alone.rows)] == [
        ("", "softmax.saturated_fraction dk=8"),
        ("", "softmax.saturated_fraction dk=64"),
    ]


def test_a_parameter_that_changes_fast_does_not_split_groups(sweep):
    turned = [sweep.rows[i] for i in (0, 3, 1, 4, 2, 5)]
    changed = [
        dataclasses.replace(row, params=row.params | {"scale": scale})
        for scale in ("none", "sqrt")
        for row in turned
    ]
    cells = rows.grouped_cells(dataclasses.replace(sweep, rows=tuple(changed)), changed)
    assert {each["group"] for each in cells} == {"scale=none", "scale=sqrt"}
    assert cells[0]["check"] == "softmax.saturated_fraction dk=8"


def test_of_two_parameters_that_cannot_both_be_lifted_the_slower_is(sweep):
    changed = [
        dataclasses.replace(row, quantity=row.id, params={"keys": keys, "scale": scale})
        for row, keys, scale in zip(sweep.rows, "aabbcc", "xxxyyy", strict=True)
    ]
    cells = rows.grouped_cells(dataclasses.replace(sweep, rows=tuple(changed)), changed)
    assert [each["group"] for each in cells] == ["scale=x"] * 3 + ["scale=y"] * 3


def test_claims_and_checks_that_would_read_alike_go_by_their_id(mixed, sweep):
    assert rows.run_cells(mixed)[0]["check"].startswith("var-64: dot.variance ")
    twice = dataclasses.replace(sweep, rows=(*sweep.rows, sweep.rows[0]))
    assert rows.run_cells(twice)[0]["check"].startswith("softmax.saturated_fraction[dk=8,]: ")
    assert {each["group"] for each in rows.grouped_cells(twice, twice.rows)} == {""}


def _row(predicted: float, value: float, se: float) -> Row:
    return Row(
        id="x",
        quantity="q",
        params={},
        estimate=Estimate(
            value=value, se=se, lo=value - se, hi=value + se, level=0.95, blocks=64, samples=640
        ),
        prediction=Prediction(value=predicted, kind="exact", source=""),
        verdict=Outcome.CONFIRMED,
        expected=Outcome.CONFIRMED,
        reason="",
    )


def _cells(predicted: float, value: float, se: float) -> dict[str, str]:
    return rows.cells(_row(predicted, value, se))


def test_an_empty_run_has_no_cells(sweep: Run):
    assert rows.grouped_cells(dataclasses.replace(sweep, rows=()), ()) == []


def test_a_difference_names_both_values_of_what_differs():
    params = {"dk": 64, "scale": "none", "versus": {"scale": "sqrt", "sigma": 2.0}}
    assert rows.params(params) == {"dk": "64", "scale": "none − sqrt", "sigma": "default − 2"}
    assert rows.difference(params) == "scale=none − sqrt sigma=default − 2"
    assert rows.difference({"dk": 64}) == ""
    assert rows.params({"versus": "a text"}) == {"versus": "a text"}


def test_lists_in_lists_are_told_apart():
    assert rows.param([[1, 2], [3]]) == "[1,2],[3]"


@pytest.mark.parametrize(
    ("values", "relation", "text"),
    [
        ([0.98], "at least", "≥ 0.98"),
        ([0.0], "at most", "≤ 0"),
        ([0.307, 0.506], "equal", "0.307, 0.506"),
        ([math.inf], "equal", "∞"),
    ],
)
def test_what_an_author_states_has_the_sign_of_its_relation(values, relation, text):
    assert rows.claimed(values, relation) == text


def test_a_prediction_has_the_sign_of_its_relation(judged):
    assert rows.cells(judged.rows[2])["predicted"] == "≤ 0 (stated)"
    assert rows.cells(judged.rows[0])["predicted"] == "8 (stated)"
    stated = dataclasses.replace(judged.rows[2].prediction, value=0.5, relation="at least")
    row = dataclasses.replace(judged.rows[2], prediction=stated)
    assert rows.cells(row)["predicted"] == "≥ 0.5 (stated)"


def test_a_stated_infinity_is_read_back_as_one(judged):
    stated = dataclasses.replace(judged.rows[2].prediction, value=None, relation="equal")
    row = dataclasses.replace(judged.rows[2], prediction=stated)
    assert rows.cells(row)["predicted"] == "∞ (stated)"


def test_a_number_that_was_computed_has_no_error(judged):
    assert rows.cells(judged.rows[3])["measured"] == "0.307196"
