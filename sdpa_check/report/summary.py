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
    """Why some checks ended as they did; `checks` share one verdict and one text.

    Attributes:
        verdict: the verdict as the table words it.
        checks: the checks as the table names them.
        text: the reason.
        wrong: whether the verdict counts against the run.
    """

    verdict: str
    checks: tuple[str, ...]
    text: str
    wrong: bool


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
    generator = rows.plain(run.generator).partition(",")[0]  # how it is seeded is in the record
    return "; ".join([*parts, f"seed {run.seed}, {generator}"])


def _span(counts: Iterable[int]) -> str:
    distinct = sorted(set(counts))
    return " to ".join(rows.count(n) for n in dict.fromkeys((distinct[0], distinct[-1])))


def reasons(run: Run) -> list[Reason]:
    """The reasons of rows that are not confirmed or not as expected; equal ones once.

    What is wrong stands first, then what is open, then what is as expected.
    """
    found: dict[tuple[int, str, str], list[str]] = {}
    for row, cells in zip(run.rows, rows.run_cells(run), strict=True):
        told = row.verdict is row.expected is Outcome.CONFIRMED
        if cells["reason"] and not told:
            key = (_rank(row), cells["verdict"], cells["reason"])
            found.setdefault(key, []).append(cells["check"])
    return [
        Reason(verdict=verdict, checks=tuple(checks), text=text, wrong=rank == 0)
        for (rank, verdict, text), checks in sorted(found.items(), key=lambda item: item[0][0])
    ]


def _rank(row: Row) -> int:
    if rows.as_expected(row):
        return 2
    return 1 if row.verdict is Outcome.INCONCLUSIVE else 0
