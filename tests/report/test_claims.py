from __future__ import annotations

import dataclasses

import pytest

from sdpa_check.records import Outcome
from sdpa_check.report import claims, rows


def test_a_run_judges_claims_where_a_row_has_one(judged, mixed, sweep):
    assert rows.judges_claims(judged)
    assert not rows.judges_claims(mixed)
    assert not rows.judges_claims(sweep)


def test_parts_are_told_apart_by_what_they_are_about(judged):
    found = claims.parts(judged)
    ids = [[row.id for row in some] for some in found.named.values()]
    assert ids == [
        ["A-var[dk=8]", "A-var[dk=64]", "B-1.4", "B-15.3"],
        ["theory/dot.variance[dk=8]"],
        ["moved/A-var[dk=8]"],
    ]
    assert [row.id for row in found.documentary] == ["B-9"]


def test_a_claim_that_could_not_run_is_no_documentary_one(unexpected):
    found = claims.parts(unexpected)
    assert "A-var[dk=64]" in [row.id for row in found.claims]
    assert [row.id for row in found.documentary] == ["B-9"]


def test_cells(judged):
    assert claims.cells(judged.rows[2]) == {
        "id": "B-1.4",
        "claim": "the unscaled Jacobian is smaller",
        "difference": "scale=none − sqrt",
        "stated": "≤ 0",
        "measured": "0.08626 ± 0.00030",
        "verdict": "refuted ✓",
    }
    assert claims.cells(judged.rows[5])["claim"] == "dot.variance dk=8"
    assert claims.cells(judged.rows[5])["stated"] == "8 (exact)"


def test_of_a_list_one_number_is_shown_and_how_many_there_are(judged):
    row = dataclasses.replace(judged.rows[3], params={"stated": [0.295, 0.487, 0.218]})
    assert claims.cells(row)["stated"] == "0.295 (of 3)"


@pytest.mark.parametrize(
    ("verdict", "expected", "text"),
    [
        (Outcome.CONFIRMED, Outcome.CONFIRMED, "confirmed"),
        (Outcome.REFUTED, Outcome.REFUTED, "refuted ✓"),
        (Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE, "inconclusive ✓"),
        (Outcome.REFUTED, Outcome.CONFIRMED, "refuted ✗"),
        (Outcome.CONFIRMED, Outcome.REFUTED, "confirmed ✗"),
        (Outcome.UNDEFINED, Outcome.CONFIRMED, "undefined ✗"),
        (Outcome.INCONCLUSIVE, Outcome.CONFIRMED, "inconclusive"),
        (Outcome.NOT_RUN, Outcome.CONFIRMED, "not run"),
    ],
)
def test_a_verdict_shows_whether_it_is_the_expected_one(judged, verdict, expected, text):
    row = dataclasses.replace(judged.rows[0], verdict=verdict, expected=expected)
    assert claims.cells(row)["verdict"] == text


def test_the_outcome_counts_what_is_wrong_by_what_it_is_about(judged, unexpected):
    assert claims.outcome_line(judged) == "as expected: 2 confirmed, 2 refuted, 1 not measured"
    assert claims.outcome_line(unexpected) == (
        "NOT as expected: 1 claim ✗, 1 claim inconclusive, 1 exact prediction ✗, "
        "1 comparison with the baseline ✗; as expected: 1 refuted, 1 not run, 1 not measured"
    )


def test_the_outcome_without_anything_as_expected(unexpected):
    run = dataclasses.replace(unexpected, rows=unexpected.rows[2:3])
    assert claims.outcome_line(run) == "NOT as expected: 1 claim ✗"
    run = dataclasses.replace(unexpected, rows=(unexpected.rows[6],) * 2)
    assert claims.outcome_line(run) == "NOT as expected: 2 comparisons with the baseline ✗"


def test_what_is_not_shown_row_by_row_has_one_line(judged, unexpected):
    assert claims.summaries(judged) == [
        ("theory", "1 of 1 exact predictions hold on the same samples"),
        ("baseline", "1 of 1 numbers are where the earlier run had them"),
        ("not measured (1)", "B-9"),
    ]
    assert claims.summaries(unexpected)[0][1].startswith("0 of 1 ")
    assert claims.summaries(dataclasses.replace(judged, rows=judged.rows[:2])) == []


def test_names_are_not_repeated():
    ids = ["A[dk=8]", "A[dk=16]", "B", "A[dk=8]", "C[x=1]", "D[x=1]"]
    assert claims.joined(ids) == "A[dk=8], [dk=16], B, A[dk=8], C[x=1], D[x=1]"


def test_refuted_claims_are_told_with_the_right_value(judged):
    told = [(each.ids, each.verdict, claims.sentences(each)) for each in claims.told(judged)]
    assert told == [
        (
            "B-1.4",
            "refuted",
            ["the unscaled Jacobian is smaller.", "Right: it is larger: 0.271 against 0.185."],
        ),
        ("B-15.3", "refuted", ["softmax(…) ≈ 0.295.", "Right: 0.307."]),
    ]


def test_claims_that_share_a_statement_are_told_once_and_by_their_reason_without_a_right(judged):
    rows = [
        dataclasses.replace(
            row, verdict=Outcome.REFUTED, expected=Outcome.REFUTED, reason="too large."
        )
        for row in judged.rows[:2]
    ]
    (told,) = claims.told(dataclasses.replace(judged, rows=tuple(rows)))
    assert told.ids == "A-var[dk=8], [dk=64]"
    assert claims.sentences(told) == ["the variance is d_k.", "Too large."]


def test_what_is_wrong_is_told_first_and_in_full(unexpected):
    told = claims.told(unexpected)
    assert [each.verdict for each in told] == [
        "✗ confirmed, expected refuted",
        "✗ refuted, expected confirmed",
        "✗ refuted, expected confirmed",
        "inconclusive, expected confirmed",
        "not run, expected confirmed",
        "refuted",
    ]
    assert claims.sentences(told[0]) == [
        "the unscaled Jacobian is smaller.",
        "dot.variance dk=64 scale=none − sqrt: measured 0.08626 ± 0.00030, stated ≤ 0.",
        "The reason of B-1.4.",
        "Right: it is larger: 0.271 against 0.185.",
        "Source: B, 1.4.",
    ]
    assert claims.sentences(told[2]) == [
        "dot.variance dk=8: 0.001 ± 0.010 from where the baseline has it.",
        "Moved by 0.3.",
    ]
    assert claims.sentences(told[1]) == [
        "dot.variance dk=8: measured 8.0025 ± 0.0074, predicted 8 (exact).",
        "Outside the band.",
    ]


def test_what_a_stopped_run_did_not_come_to_is_told_at_once(judged):
    """Not claim by claim: there may be hundreds."""
    rows = [
        dataclasses.replace(row, verdict=Outcome.NOT_RUN, estimate=None, reason="stopped before")
        if row.id in ("A-var[dk=8]", "A-var[dk=64]", "theory/dot.variance[dk=8]")
        else row
        for row in judged.rows
    ]
    run = dataclasses.replace(judged, outcome="stopped", exit_code=130, rows=tuple(rows))
    first, *others = claims.told(run)
    assert (first.ids, first.verdict, first.expected) == (
        "A-var[dk=8], [dk=64]",
        "not run",
        False,
    )
    assert claims.sentences(first) == ["Stopped before."]
    assert not [each for each in others if each.verdict == "not run"]
    assert claims.outcome_line(run).startswith("stopped: ")
    theory = dict(claims.summaries(run))["theory"]
    assert theory == "0 of 0 exact predictions hold on the same samples; 1 not run"
