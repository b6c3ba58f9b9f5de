"""A run as JUnit XML, which CI systems show test by test."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from sdpa_check.records import Outcome
from sdpa_check.report import claims, rows, summary

if TYPE_CHECKING:
    from sdpa_check.records import Row, Run


def junit(run: Run) -> str:
    """One test case per row, named by its id within a class.

    The class of a claim is where it stands, ``B/8.2``, that of another row its quantity. A row that
    is as expected passes, with its reason as output; another one fails, with the verdict as the
    type of the failure; one that was not run is skipped. A run that was stopped skips what it left
    open too, and has one case more, an error, so that this passes for nothing.
    """
    root = ET.Element("testsuites", name="sdpa-check")
    suite = ET.SubElement(root, "testsuite", name=rows.plain(run.command))
    _properties(suite, run)
    for row, cells in zip(run.rows, rows.run_cells(run), strict=True):
        _case(suite, row, cells, stopped=run.stopped)
    if run.stopped:
        case = ET.SubElement(suite, "testcase", name=run.outcome, classname="sdpa-check")
        ET.SubElement(case, "error", message=rows.plain(" ".join(run.notes)), type=run.outcome)
    tags = Counter(child.tag for case in suite.iter("testcase") for child in case)
    for element in (root, suite):
        element.set("tests", str(len(suite.findall("testcase"))))
        element.set("failures", str(tags["failure"]))
        element.set("errors", str(tags["error"]))
        element.set("skipped", str(tags["skipped"]))
    if isinstance(started := run.environment.get("started"), str):
        suite.set("timestamp", rows.plain(started))
    if isinstance(seconds := run.environment.get("seconds"), int | float):
        suite.set("time", f"{seconds:.3f}")
    ET.indent(root, " ")
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _properties(suite: ET.Element, run: Run) -> None:
    properties = ET.SubElement(suite, "properties")
    values = {
        "version": run.version,
        "seed": str(run.seed),
        "generator": run.generator,
        "outcome": (claims if rows.judges_claims(run) else summary).outcome_line(run),
        **summary.common(run),
    }
    for name, value in values.items():
        ET.SubElement(properties, "property", name=name, value=rows.plain(value))


def _case(suite: ET.Element, row: Row, cells: dict[str, str], *, stopped: bool) -> None:
    case = ET.SubElement(suite, "testcase", name=rows.plain(row.id), classname=_class(row))
    statement = f"{rows.plain(row.claim.statement)}\n" if row.claim else ""
    numbers = "\n".join(
        f"{name}: {cells[name]}"
        for name in ("check", "measured", "predicted", "z", "tolerance", "verdict")
    )
    if row.verdict is Outcome.NOT_RUN or (stopped and row.verdict is Outcome.INCONCLUSIVE):
        ET.SubElement(case, "skipped", message=cells["reason"])
    elif row.verdict is row.expected:
        text = f"{statement}{cells['reason']}\n{numbers}"
        ET.SubElement(case, "system-out").text = text.lstrip()
    else:
        failure = ET.SubElement(case, "failure", message=cells["reason"], type=str(row.verdict))
        failure.text = f"{statement}{numbers}\nexpected: {row.expected}{_right(row)}"


def _class(row: Row) -> str:
    where = (row.claim.source, row.claim.section) if row.claim else ()
    return "/".join(rows.plain(text) for text in where if text) or rows.plain(row.quantity)


def _right(row: Row) -> str:
    return f"\nright: {rows.plain(row.claim.right)}" if row.claim and row.claim.right else ""
