from __future__ import annotations

import dataclasses
from xml.etree import ElementTree as ET

import pytest

from sdpa_check.records import Outcome
from sdpa_check.report.junit import junit


def test_every_row_is_a_test_case(mixed):
    root = ET.XML(junit(mixed))
    assert root.tag == "testsuites"
    (suite,) = root
    cases = suite.findall("testcase")
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert names == [(row.quantity, row.id) for row in mixed.rows]
    assert [[child.tag for child in case] for case in cases] == [
        ["system-out"],
        ["system-out"],
        ["failure"],
        ["failure"],
        ["system-out"],
        ["system-out"],
        ["skipped"],
    ]
    for element in (root, suite):
        counts = [element.get(key) for key in ("tests", "failures", "errors", "skipped")]
        assert counts == ["7", "2", "0", "1"]


def test_a_failure_has_verdict_reason_and_numbers(mixed):
    cases = ET.XML(junit(mixed)).findall("testsuite/testcase")
    refuted, open_ = cases[2][0], cases[3][0]
    assert (refuted.get("type"), open_.get("type")) == ("refuted", "inconclusive")
    assert refuted.get("message") == "outside the band <0.99, 1.01>"
    assert "measured: 1.06090 ± 0.00050\npredicted: 1 (exact)\nz: +122" in refuted.text
    assert refuted.text.endswith("expected: confirmed")
    assert cases[1][0].text.startswith("it is the std that is 8\n")
    assert cases[6][0].get("message") == "no torch"


def test_a_claim_is_named_by_its_id_in_the_class_of_its_section(unexpected):
    cases = ET.XML(junit(unexpected)).findall("testsuite/testcase")
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert names[2:4] == [("B/1.4", "B-1.4"), ("B/1.4", "B-15.3")]
    assert names[5] == ("dot.variance", "theory/dot.variance[dk=8]")
    failure = cases[2][0]
    assert failure.get("message") == "the reason of B-1.4"
    assert failure.text.startswith("the unscaled Jacobian is smaller\n")
    assert failure.text.endswith("expected: refuted\nright: it is larger: 0.271 against 0.185")
    assert cases[3][0].text.startswith("softmax(…) ≈ 0.295\nthe reason of B-15.3\n")
    tags = [[child.tag for child in case] for case in cases]
    assert tags == [
        ["failure"],
        ["skipped"],
        ["failure"],
        ["system-out"],
        ["skipped"],
        ["failure"],
        ["failure"],
    ]


def test_without_a_source_the_class_of_a_claim_is_its_quantity(judged):
    row = judged.rows[0]
    said = dataclasses.replace(row.claim, source="", section="")
    one = dataclasses.replace(judged, rows=(dataclasses.replace(row, claim=said),))
    assert ET.XML(junit(one)).find("testsuite/testcase").get("classname") == "dot.variance"


def test_a_claim_that_should_fail_and_passes_is_a_failure(mixed):
    passed = dataclasses.replace(mixed.rows[1], verdict=Outcome.CONFIRMED)
    root = ET.XML(junit(dataclasses.replace(mixed, rows=(passed,))))
    assert root.find("testsuite/testcase/failure").get("type") == "confirmed"


def test_suite_has_seed_and_time_of_the_environment_only(mixed):
    suite = ET.XML(junit(mixed))[0]
    properties = {each.get("name"): each.get("value") for each in suite.find("properties")}
    assert properties["seed"] == "7"
    assert properties["alpha"] == "1e-6"
    assert suite.get("timestamp") == "2025-01-02T03:04:05+00:00"
    assert suite.get("time") == "1.250"
    bare = ET.XML(junit(dataclasses.replace(mixed, environment={})))[0]
    assert "timestamp" not in bare.attrib
    assert "time" not in bare.attrib


def test_any_text_makes_well_formed_xml(mixed):
    nasty = "\x00\x08\x0b\x1b[2J\x7f\ud800\ufffe\uffff]]> <&\"' \n\t"
    row = dataclasses.replace(mixed.rows[2], id=nasty, quantity=nasty, reason=nasty)
    run = dataclasses.replace(
        mixed, rows=(row,), command=nasty, generator=nasty, outcome=nasty, design={nasty: nasty}
    )
    case = ET.XML(junit(run).encode()).find("testsuite/testcase")
    assert case.get("name") == "\\x00\\x08 \\x1b[2J\\x7f\\ud800\\ufffe\\uffff]]> <&\"'"


def test_same_run_same_text(mixed):
    assert junit(mixed) == junit(dataclasses.replace(mixed))
    assert junit(mixed).startswith('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites ')


def test_a_public_parser_reads_it(mixed):
    junitparser = pytest.importorskip("junitparser")
    (suite,) = junitparser.JUnitXml.fromstring(junit(mixed).encode())
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (7, 2, 0, 1)
    results = [type(case.result[0]).__name__ if case.result else "passed" for case in suite]
    assert results == ["passed"] * 2 + ["Failure"] * 2 + ["passed"] * 2 + ["Skipped"]


def test_what_a_stopped_run_left_open_is_skipped(mixed):
    """It has not failed: the case of the run itself is the error."""
    stopped = dataclasses.replace(mixed, outcome="stopped", exit_code=130)
    (suite,), (before,) = ET.XML(junit(stopped)), ET.XML(junit(mixed))
    open_ = [row.id for row in mixed.rows if row.verdict is Outcome.INCONCLUSIVE]
    assert open_
    skipped = {
        case.get("name") for case in suite.iter("testcase") if case.find("skipped") is not None
    }
    assert set(open_) <= skipped
    assert int(suite.get("failures")) == int(before.get("failures")) - len(open_)


def test_a_stopped_run_is_an_error_even_where_no_row_failed(mixed):
    stopped = dataclasses.replace(
        mixed, outcome="stopped", exit_code=130, rows=mixed.rows[:1], notes=("A partial run.",)
    )
    (suite,) = ET.XML(junit(stopped))
    case, mark = suite.findall("testcase")
    assert (case.get("name"), mark.get("name")) == (mixed.rows[0].id, "stopped")
    assert mark.find("error").get("message") == "A partial run."
    counts = [suite.get(key) for key in ("tests", "failures", "errors", "skipped")]
    assert counts == ["2", "0", "1", "0"]
