"""A run of `ledger` for people: one line per pipeline, its numbers side by side, one verdict."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import zip_longest
from typing import TYPE_CHECKING

from sdpa_check.records import Outcome
from sdpa_check.report import markup, rows, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from sdpa_check.records import Estimate, Row, Run

_GAP = _INDENT = "  "
_PREDICTED, _STD, _WITHIN = "std\npred.", "std\nmeas.", "within-\nrow std"
_MEASURED = {
    ("ledger.mean", ""): "mean",
    ("ledger.std", ""): _STD,
    ("ledger.within_std", ""): _WITHIN,
    ("ledger.entropy", ""): "entropy",
    ("ledger.effective_keys", ""): "eff.\nkeys",
    ("ledger.frobenius", "rms"): "RMS\n‖J‖_F",
    ("ledger.frobenius", "median"): "median\n‖J‖_F",
    ("gradient.burstiness", ""): "bursts",
}
"""The header of each quantity and statistic; others that a run holds follow by their own names."""

_OPTIONAL = ("bursts", "median\n‖J‖_F", "eff.\nkeys", "RMS\n‖J‖_F", "entropy", "mean")
"""What goes where there is no room, the first to go first."""

_DIGITS = 4  # so many stand without an error; the record has all
_WRAPPED = 3  # so many columns go before a line takes several lines
_BREAKS = {"change": re.compile(r"(?<=\|) "), "verdict": re.compile(r"(?<=[✗,]) ")}
"""Where a cell may be cut into lines when its column is narrow; numbers are never cut."""

_SEVERITY = (Outcome.REFUTED, Outcome.CONFIRMED, Outcome.UNDEFINED, Outcome.NOT_RUN)
"""The verdicts that are as expected, the one that a line shows first."""

_JUDGED = (Outcome.CONFIRMED, Outcome.REFUTED, Outcome.INCONCLUSIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    """All that a run says about one pipeline in one design; `section` names the design."""

    section: str
    change: str
    checks: Mapping[str, Row]

    @property
    def worst(self) -> Row:
        return min(self.checks.values(), key=_rank)

    @property
    def verdict(self) -> str:
        """The worst verdict, and where it is wrong the checks that end so."""
        text = rows.cells(self.worst)["verdict"]
        if _rank(self.worst) > 0:
            return text
        names = [
            "std" if name == _STD else _flat(name)
            for name, row in self.checks.items()
            if rows.cells(row)["verdict"] == text
        ]
        return f"{text} {', '.join(names)}"

    @property
    def judged(self) -> str:
        barred = (
            row for row in self.checks.values() if row.estimate and row.estimate.se is not None
        )
        count = sum(row.verdict in _JUDGED for row in barred)
        return f"{count} of {len(self.checks)}"

    def cells(self, *, errors: bool) -> dict[str, str]:
        """The texts of the line by their columns; with the errors, or rounded to them."""
        text = rows.concise if errors else _short
        found = {name: text(row.estimate) for name, row in self.checks.items()}
        about = {"change": self.change, "verdict": self.verdict, "judged": self.judged}
        return {**about, _PREDICTED: self._predicted(errors=errors), **found}

    def _predicted(self, *, errors: bool) -> str:
        std = self.checks.get(_STD)
        if std is None:
            return rows.ABSENT
        if errors:
            return rows.cells(std)["predicted"].partition(" (")[0]
        text = rows.cells(replace(std, estimate=None))["predicted"].partition(" (")[0]
        value = std.prediction.value
        return text.replace(rows.number(value), rows.number(value, _DIGITS))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The cells of each account, aligned, and the widths of the columns that are shown.

    Without a column ``change`` the pipeline stands above its numbers.
    """

    accounts: Sequence[_Account]
    cells: Sequence[Mapping[str, str]]
    widths: Mapping[str, int]
    errors: bool

    @property
    def stacked(self) -> bool:
        return "change" not in self.widths

    @property
    def indent(self) -> str:
        sections = any(each.section for each in self.accounts)
        return _INDENT * (sections + self.stacked)

    @property
    def width(self) -> int:
        gaps = len(_GAP) * (len(self.widths) - 1)
        return len(self.indent) + sum(self.widths.values()) + gaps

    def narrowed(self, width: int) -> _Layout:
        """With the cells that may be cut no wider than `width` asks, nor than their pieces."""
        widths = dict(self.widths)
        for name in (name for name in _BREAKS if name in widths):
            pieces = (piece for each in self.cells for piece in _cut(each[name], name, 0))
            least = max(len(name), *map(len, pieces))
            over = max(0, replace(self, widths=widths).width - width)
            widths[name] = max(least, widths[name] - over)
        return replace(self, widths=widths)


def write(console: Console, run: Run, width: int) -> None:
    """Write the table and its legend within `width`.

    The errors go first where there is no room, then columns from the right, then cells wrap, and
    then the pipelines stand above their numbers; a still narrower terminal gets lines that are too
    long.
    """
    from rich.text import Text

    accounts = _accounts(run)
    layout = _layout(accounts, _columns(accounts), width)
    for line in _header(layout.widths):
        console.print(Text(layout.indent + line, "bold"), soft_wrap=True)
    console.print("─" * min(width, layout.width))
    section = ""
    for account, cells in zip(accounts, layout.cells, strict=True):
        if account.section != section:
            section = account.section
            console.print(Text(section, "bold"), soft_wrap=True)
        _write_line(console, layout, cells, terminal.style(account.worst), width)
    console.print()
    legend = _legend(accounts, tuple(layout.widths), errors=layout.errors)
    terminal.write(console, legend, min(width, terminal.PROSE), style="dim")


def markdown(run: Run) -> list[str]:
    """The table and its legend as paragraphs of Markdown, with all columns and errors."""
    accounts = _accounts(run)
    columns = _columns(accounts)
    designs = [each.section for each in accounts]
    head = [*(["design"] if any(designs) else []), *map(_flat, columns)]
    body = []
    for each in accounts:
        cells = each.cells(errors=True)
        section = [each.section] if any(designs) else []
        body.append([*section, *(cells.get(name, rows.ABSENT) for name in columns)])
    legend = _legend(accounts, columns, errors=True)
    left = ("design", "change", "verdict")
    right = [name for name in head if name not in left]
    return [markup.table([head, *body], right), markup.escaped(legend)]


def _rank(row: Row) -> int:
    """What counts against a run comes first, then what is open, then the rest."""
    if row.verdict is Outcome.INCONCLUSIVE:
        return 1
    return 2 + _SEVERITY.index(row.verdict) if rows.as_expected(row) else 0


def _accounts(run: Run) -> list[_Account]:
    """The pipelines in the order of the run, design by design."""
    every = [rows.params(row.params) for row in run.rows]
    design = [
        key
        for key in rows.varying_params(run.rows)
        if key not in ("pipeline", "statistic") and all(key in each for each in every)
    ]
    found: dict[str, dict[str, dict[str, Row]]] = {}
    for row, params in zip(run.rows, every, strict=True):
        section = rows.assignments({key: params[key] for key in design})
        checks = found.setdefault(section, {}).setdefault(params["pipeline"], {})
        checks[_name(row)] = row
    return [
        _Account(section=section, change=change, checks=checks)
        for section, changes in found.items()
        for change, checks in changes.items()
    ]


def _name(row: Row) -> str:
    """The header of the column in which the number of a row stands."""
    statistic = rows.params(row.params).get("statistic", "")
    own = f"{rows.plain(row.quantity).removeprefix('ledger.')} {statistic}".rstrip()
    return _MEASURED.get((row.quantity, statistic), own)


def _columns(accounts: Sequence[_Account]) -> tuple[str, ...]:
    present = dict.fromkeys(name for each in accounts for name in each.checks)
    if not any(map(_differs_within, accounts)):
        present.pop(_WITHIN, None)
    known = [name for name in _MEASURED.values() if name in present]
    if _STD in known:
        known.insert(known.index(_STD), _PREDICTED)
    own = [name for name in present if name not in known]
    return ("change", *known, *own, "verdict", "judged")


def _differs_within(account: _Account) -> bool:
    """Whether the std within a row is another number than the std, as predicted or as measured."""
    std, within = account.checks.get(_STD), account.checks.get(_WITHIN)
    if std is None or within is None:
        return within is not None
    if rows.number(std.prediction.value) != rows.number(within.prediction.value):
        return True
    one, other = std.estimate, within.estimate
    if one is None or other is None:
        return one is not other
    if not one.se or not other.se:
        return rows.number(one.value) != rows.number(other.value)
    # Both stem from the same samples and so differ by far less than their errors where equal.
    return abs(one.value - other.value) > one.se + other.se


def _short(estimate: Estimate | None) -> str:
    """A number rounded at the first digit of its error, or to `_DIGITS`: 1.0011(13) → 1.001."""
    if estimate is None or not estimate.se or not math.isfinite(estimate.value):
        return rows.concise(estimate)
    # `rows` rounds at the second digit of an error: that of ten times the error is its first one.
    least = 10.0 ** (Decimal(estimate.value).adjusted() - _DIGITS + 2) if estimate.value else 0.0
    wide = replace(estimate, se=max(10 * estimate.se, least))
    text, found = re.subn(r"\(\d+\)", "", rows.concise(wide), count=1)
    return text if found else rows.concise(estimate)


def _layout(accounts: Sequence[_Account], columns: Sequence[str], width: int) -> _Layout:
    """The first layout that fits, or else the narrowest."""
    attempts = [(0, True, False, False), *((n, False, False, False) for n in range(_WRAPPED + 1))]
    attempts += [(_WRAPPED, False, False, True)]
    attempts += [(n, False, True, True) for n in range(_WRAPPED, len(_OPTIONAL) + 1)]
    for left_out, errors, stacked, narrow in attempts:
        gone = {*_OPTIONAL[:left_out], *(["change"] if stacked else [])}
        layout = _natural(accounts, [name for name in columns if name not in gone], errors=errors)
        layout = layout.narrowed(width) if narrow else layout
        if layout.width <= width:
            break
    return layout


def _natural(accounts: Sequence[_Account], columns: Sequence[str], *, errors: bool) -> _Layout:
    """The layout with every cell on one line, numbers point below point."""
    every = [each.cells(errors=errors) for each in accounts]
    texts = {name: [each.get(name, rows.ABSENT) for each in every] for name in columns}
    for name in set(texts).difference(_BREAKS, ["judged"]):
        texts[name] = terminal.aligned(texts[name], ".")
    above = [each["change"] for each in every]
    return _Layout(
        accounts=accounts,
        cells=[
            {"change": change, **dict(zip(texts, line, strict=True))}
            for change, line in zip(above, zip(*texts.values(), strict=True), strict=True)
        ],
        widths={
            name: max(map(len, [*name.split("\n"), *column])) for name, column in texts.items()
        },
        errors=errors,
    )


def _header(widths: Mapping[str, int]) -> Iterator[str]:
    """The headers, those of one line at the bottom."""
    split = [("\n" + name).split("\n")[-2:] for name in widths]
    for texts in zip(*split, strict=True):
        padded = (text.ljust(width) for text, width in zip(texts, widths.values(), strict=True))
        yield _GAP.join(padded).rstrip()


def _write_line(
    console: Console, layout: _Layout, cells: Mapping[str, str], style: str, width: int
) -> None:
    """The line of a pipeline, cut into several where its cells are."""
    from rich.text import Text

    if layout.stacked:
        indent = layout.indent.removesuffix(_INDENT)
        for text in _cut(cells["change"], "change", width - len(indent)):
            console.print(Text(indent + text), soft_wrap=True)
    columns = [_cut(cells[name], name, room) for name, room in layout.widths.items()]
    for texts in zip_longest(*columns, fillvalue=""):
        line = Text(layout.indent)
        for index, (name, text) in enumerate(zip(layout.widths, texts, strict=True)):
            line.append(_GAP * bool(index))
            line.append(text.ljust(layout.widths[name]), style if name == "verdict" else "")
        console.print(line, soft_wrap=True)


def _cut(text: str, name: str, width: int) -> list[str]:
    """The lines of a cell, those after the first one set in."""
    if len(text) <= width or name not in _BREAKS:
        return [text]
    first, *others = _BREAKS[name].split(text)
    lines = [first]
    for piece in others:
        if len(f"{lines[-1]} {piece}") <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(_INDENT + piece)
    return lines


def _legend(accounts: Sequence[_Account], columns: Sequence[str], *, errors: bool) -> str:
    """How a number is to be read, what is judged, and which columns are missing."""
    parts = []
    for each in accounts:
        found = each.checks[_STD].estimate if _STD in each.checks else None
        if found and found.se:
            rounded = rows.rounded(found.value, found.se)
            text = rows.concise(found) if errors else _short(found)
            cut = "" if errors else ", rounded at the first digit of its error or to four digits"
            parts.append(f"{text} is {rounded}{cut}")
            break
    parts.append("judged: against a prediction that can be refuted")
    if _STD in columns and _WITHIN not in columns:
        parts.append("the std within a row is the same")
    missing = [_flat(name) for name in _columns(accounts)[1:] if name not in columns]
    if missing:
        parts.append(f"no room for {', '.join(missing)}")
    return "; ".join(parts)


def _flat(header: str) -> str:
    """The name of a column on one line and in full."""
    text = header.replace("-\n", "-").replace("\n", " ")
    return text.replace("pred.", "predicted").replace("meas.", "measured")
