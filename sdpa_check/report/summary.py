"""The sentences around a table of checks: title, outcome, sampling, reasons."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sdpa_check.records import Outcome
from sdpa_check.report import measured, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


def title(run: Run) -> str:
    """The command and its common inputs, without those that say nothing.

    ``variance  dk=64 distribution=t df=5 (raw: variance 1.66667 per component) sigma=1``
    """
    pairs = common(run)
    texts = [
        _t_law(pairs) if key == "standardize" and _is_t(pairs) else f"{key}={text}"
        for key, text in pairs.items()
        if not _says_nothing(key, pairs)
    ]
    return f"{rows.plain(run.command)}  {' '.join(texts)}".rstrip()


def _says_nothing(key: str, pairs: Mapping[str, str]) -> bool:
    """Whether an input is neutral, or equal to another that stands for both."""
    text = pairs[key]
    match key:
        case "alpha":  # what it decides is told by the verdicts
            return True
        case "corr" | "full":
            return text in ("none", "no")
        case "standardize":
            return text == "no" and pairs.get("distribution", "t") != "t"
        case "mean":
            return text == "0" == pairs.get("mean_k", text)
        case "sigma_k" | "mean_k":
            return text == pairs.get(key.removesuffix("_k"))
    return False


def _is_t(pairs: Mapping[str, str]) -> bool:
    return (
        pairs.get("distribution") == "t"
        and re.fullmatch(r"[\d.]+", pairs.get("df", "")) is not None
    )


def _t_law(pairs: Mapping[str, str]) -> str:
    """Which t it is, raw with the variance df/(df − 2) or standardised; they are often mixed up."""
    sigma = "" if pairs.get("sigma") == pairs.get("sigma_k") == "1" else " sigma²"
    if pairs["standardize"] == "yes":
        return f"(standardised: variance 1{sigma} per component)"
    df = float(pairs["df"])
    if df <= 2:
        return "(raw: no finite variance)"
    return f"(raw: variance {rows.number(df / (df - 2))}{sigma} per component)"


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


def verdict_line(run: Run) -> str:
    """`outcome_line` as the tables show it: what is only measured is counted apart."""
    own, only = measured.partition(run)
    counted = f"{rows.count(len(only))} {measured.SOURCE}"
    if not own and only:
        return f"{run.outcome}: {counted}"
    return "; ".join([outcome_line(replace(run, rows=tuple(own))), *([counted] if only else [])])


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
    parts = ["no design came to a number" if run.stopped else "nothing was sampled"]
    if sampled:
        blocks = _span(each.blocks for each in sampled)
        samples = _span(each.samples for each in sampled)
        parts = [f"± is one standard error ({blocks} independent blocks, {samples} samples)"]
    levels = {each.level for each in sampled if each.se is None and each.lo is not None}
    if len(levels) == 1:
        parts.append(f"[ ] is the {rows.number(100 * levels.pop(), 12)} % interval")
    if z and any(each.se for each in sampled):
        parts.append("z counts them")
    generator = rows.plain(run.generator).partition(",")[0]  # how it is seeded is in the record
    return "; ".join([*parts, f"seed {run.seed}, {generator}"])


def _span(counts: Iterable[int]) -> str:
    distinct = sorted(set(counts))
    return " to ".join(rows.count(n) for n in dict.fromkeys((distinct[0], distinct[-1])))


def reasons(run: Run) -> list[Reason]:
    """The reasons of rows that are not confirmed or not as expected; equal ones once.

    What is wrong stands first, then what is open, then what is as expected. Of a number that is
    only measured no more is told than why it has no error bar.
    """
    own, only = measured.partition(run)
    found: dict[tuple[int, str, str], list[str]] = {}
    for row, cells in zip(own, rows.run_cells(run, own), strict=True):
        if row.verdict is row.expected is Outcome.CONFIRMED:
            continue
        found.setdefault((_rank(row), cells["verdict"], cells["reason"]), []).append(cells["check"])
    for row, cells in zip(only, rows.run_cells(run, only), strict=True):
        key = (_rank(row), measured.SOURCE, rows.withheld(row))
        found.setdefault(key, []).append(cells["check"])
    return [
        Reason(verdict=verdict, checks=tuple(checks), text=text, wrong=rank == 0)
        for (rank, verdict, text), checks in sorted(found.items(), key=lambda item: item[0][0])
        if text
    ]


def _rank(row: Row) -> int:
    if rows.as_expected(row):
        return 2
    return 1 if row.verdict is Outcome.INCONCLUSIVE else 0
