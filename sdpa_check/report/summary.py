"""The sentences around a table of checks: title, outcome, sampling, reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdpa_check.records import Outcome
from sdpa_check.report import rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sdpa_check.records import Row, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why some checks ended as they did; `checks` shares one verdict and one text."""

    verdict: str
    checks: tuple[str, ...]
    text: str
    as_expected: bool


def common(run: Run) -> dict[str, str]:
    """The inputs that all rows share: those of the design, and the parameters equal in all rows."""
    # A design may list what its rows then have one by one.
    pairs = rows.params(run.design) | rows.common_params(run.rows)
    varying = rows.varying_params(run.rows)
    return {key: text for key, text in pairs.items() if key not in varying}


def outcome_line(run: Run) -> str:
    """``NOT as expected: 1 refuted; as expected: 4 confirmed; 1 not run``."""
    off = [row.verdict for row in run.rows if not rows.as_expected(row)]
    if not off:
        return f"{run.outcome}: {_tally(row.verdict for row in run.rows)}"
    fine = [row.verdict for row in run.rows if row.verdict is row.expected]
    skipped = len(run.rows) - len(off) - len(fine)
    parts = [
        f"{run.outcome}: {_tally(off)}",
        *([f"as expected: {_tally(fine)}"] if fine else []),
        *([f"{skipped} {Outcome.NOT_RUN}"] if skipped else []),
    ]
    return "; ".join(parts)


def _tally(verdicts: Iterable[Outcome]) -> str:
    times = Counter(verdicts)
    return ", ".join(f"{times[each]} {each}" for each in Outcome if times[each]) or "no checks"


def sampling_line(run: Run, *, z: bool) -> str:
    """What ±, […] and z mean and what stands behind them: blocks, samples, seed and generator.

    Args:
        run: a finished run.
        z: whether the reader sees the column of that name.
    """
    sampled = [row.estimate for row in run.rows if row.estimate and row.estimate.blocks]
    parts = ["nothing was sampled"]
    if sampled:
        blocks, samples = (
            _span(each.blocks for each in sampled),
            _span(each.samples for each in sampled),
        )
        parts = [
            f"± is one standard error, from {blocks} independent blocks of {samples} samples in all"
        ]
    levels = {each.level for each in sampled if each.se is None and each.lo is not None}
    if len(levels) == 1:
        parts.append(f"[ ] is the {rows.number(100 * levels.pop(), 12)} % interval")
    if z and any(each.se for each in sampled):
        parts.append("z is the deviation in standard errors")
    return "; ".join([*parts, f"seed {run.seed}, {rows.plain(run.generator)}"])


def _span(counts: Iterable[int]) -> str:
    distinct = sorted(set(counts))
    return " to ".join(rows.count(n) for n in dict.fromkeys((distinct[0], distinct[-1])))


def reasons(run: Run) -> list[Reason]:
    """The reasons of rows that are not confirmed or not as expected; equal ones once.

    What is not as expected stands first.
    """
    found: dict[tuple[bool, str, str], list[str]] = {}
    for row, cells in zip(run.rows, rows.run_cells(run), strict=True):
        if _needs_reason(row) and cells["reason"]:
            key = (rows.as_expected(row), cells["verdict"], cells["reason"])
            found.setdefault(key, []).append(cells["check"])
    return [
        Reason(verdict=verdict, checks=tuple(checks), text=text, as_expected=as_expected)
        for (as_expected, verdict, text), checks in sorted(
            found.items(), key=lambda item: item[0][0]
        )
    ]


def _needs_reason(row: Row) -> bool:
    return row.verdict is not Outcome.CONFIRMED or row.verdict is not row.expected
