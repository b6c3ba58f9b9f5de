"""A run that judges claims for the terminal: one line per claim, and what explains the others."""

from __future__ import annotations

import io
import re
import textwrap
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from sdpa_check.report import claims, rows, summary, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from sdpa_check.records import Row, Run
    from sdpa_check.report.claims import Told

_GAP = "  "
_NUMBERS = ("stated", "measured", "verdict")
_STATEMENT = 36  # a statement that would have less room beside the numbers stands above them
_LINES = 3  # so much of a statement stands beside the numbers; all of it is in the record
_BREAKS = {
    "id": re.compile(r"(?=\[)|(?<=,)"),
    "label": re.compile(r"(?<=,)"),
    "measured": re.compile(r"(?= [±\[])"),
}
"""Where a cell may be cut into lines when its column is narrow; numbers are never cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The claims, their cells, and the columns that are shown with their widths.

    With a column ``label`` the statement stands above the numbers, and the column holds what tells
    claims with one statement apart.
    """

    rows: Sequence[Row]
    cells: Sequence[Mapping[str, str]]
    widths: Mapping[str, int]

    @property
    def stacked(self) -> bool:
        return "label" in self.widths


def render(run: Run, *, width: int, color: bool) -> str:
    """The claims of `run` with their verdicts, the outcome, notes and explanations.

    Args:
        run: a finished run that judges claims.
        width: columns of the terminal.
        color: whether to write ANSI colours; every colour has its word beside it.
    """
    layout = _layout(claims.parts(run).claims, width)
    stream = io.StringIO()
    console = terminal.console(stream, max(width, _total(layout.widths)), color=color)
    prose = min(width, terminal.PROSE)
    terminal.write(console, claims.title(run), prose, style="bold", hang=_GAP)
    console.print()
    if layout.rows:
        _table(console, layout, width)
        console.print()
    _footer(console, run, prose, legend=any("✓" in each["verdict"] for each in layout.cells))
    _told(console, claims.told(run), prose)
    return terminal.finished(stream)


def _layout(some: Sequence[Row], width: int) -> _Layout:
    cells = [claims.cells(row) for row in some]
    for each, text in zip(
        cells, terminal.aligned([each["measured"] for each in cells], " ± "), strict=True
    ):
        each["measured"] = text
        each["label"] = each["id"][len(each["id"].partition("[")[0]) :]
    numbers = {name: _widest(cells, name) for name in _NUMBERS}
    beside = {"id": max(_narrowest(cells, "id"), min(_widest(cells, "id"), width // 4))}
    room = width - _total({**beside, "claim": 0, **numbers})
    if room >= _STATEMENT:
        widths = {**beside, "claim": min(room, _widest(cells, "claim")), **numbers}
        return _Layout(rows=some, cells=cells, widths=widths)
    widths = {"label": _widest(cells, "label"), **numbers}
    for name in ("label", "measured"):
        over = max(0, _total(widths) + len(_GAP) - width)
        widths[name] = max(_narrowest(cells, name), widths[name] - over)
    return _Layout(rows=some, cells=cells, widths=widths)


def _widest(cells: Sequence[Mapping[str, str]], name: str) -> int:
    return max([len(_header(name)), *(len(each[name]) for each in cells)])


def _narrowest(cells: Sequence[Mapping[str, str]], name: str) -> int:
    pieces = (piece for each in cells for piece in _BREAKS[name].split(each[name].strip()))
    return max([len(_header(name)), *(len(piece.strip()) for piece in pieces)])


def _header(name: str) -> str:
    return "" if name == "label" else name


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _table(console: Console, layout: _Layout, width: int) -> None:
    """The lines of the claims; a statement is not said again below itself."""
    indent = _GAP if layout.stacked else ""
    head = {name: _header(name) for name in layout.widths}
    for line in _lines(head, layout.widths):
        _print(console, indent, line, layout.widths, "bold")
    console.print("─" * min(width, _total(layout.widths) + len(indent)))
    above = ""
    for row, each in zip(layout.rows, layout.cells, strict=True):
        said = _said(each, difference=layout.stacked)
        if layout.stacked and said != above:
            terminal.write(console, said, width, hang=_GAP)
        shown = {**each, "claim": "" if said == above else each["claim"]}
        above = said
        for line in _lines(shown, layout.widths):
            _print(console, indent, line, layout.widths, terminal.style(row))


def _said(each: Mapping[str, str], *, difference: bool) -> str:
    """The claim without what tells it from others with one statement."""
    text = f"{each['id'].partition('[')[0]}: {each['claim']}"
    return f"{text} ({each['difference']})" if difference and each["difference"] else text


def _lines(each: Mapping[str, str], widths: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """The lines of a claim: of every column its text, cut to the width of the column."""
    columns = [_fitted(each[name], name, width) for name, width in widths.items()]
    if "claim" in widths and each.get("difference"):
        columns[list(widths).index("claim")].append(f"({each['difference']})")
    for texts in zip_longest(*columns, fillvalue=""):
        yield dict(zip(widths, texts, strict=True))


def _fitted(text: str, name: str, width: int) -> list[str]:
    if name == "claim":
        return textwrap.wrap(
            text, width, max_lines=_LINES, placeholder=" …", break_on_hyphens=False
        )
    if len(text) <= width or name not in _BREAKS:
        return [text]
    lines = [""]
    for piece in _BREAKS[name].split(text.strip()):
        if lines[-1] and len(lines[-1] + piece) > width:
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.strip()
    return lines


def _print(
    console: Console, indent: str, line: Mapping[str, str], widths: Mapping[str, int], style: str
) -> None:
    from rich.text import Text

    text = Text(indent)
    for index, (name, width) in enumerate(widths.items()):
        padded = line[name].rjust(width) if name == "stated" else line[name].ljust(width)
        text.append(_GAP * bool(index))
        text.append(padded, style if name == "verdict" or style == "bold" else "")
    console.print(text, soft_wrap=True)


def _footer(console: Console, run: Run, width: int, *, legend: bool) -> None:
    if legend:
        terminal.write(console, claims.LEGEND, width, style="dim")
    beside = claims.summaries(run)
    for label, text in beside:
        terminal.write(console, f"{label}: {text}", width, hang=_GAP)
    if legend or beside:
        console.print()
    style = terminal.OUTCOME_STYLES.get(run.exit_code, "bold")
    terminal.write(console, claims.outcome_line(run), width, style=style)
    terminal.write(console, summary.sampling_line(run, z=False), width, style="dim")
    for note in run.notes:
        console.print()
        terminal.write(console, rows.plain(note), width)


def _told(console: Console, some: Sequence[Told], width: int) -> None:
    """What is not as expected in full, then the other verdicts with a sentence each."""
    for each in some:
        if not each.expected:
            console.print()
            wrong = "bold red" if "✗" in each.verdict else "bold yellow"
            terminal.write(console, f"{each.verdict}: {each.ids}", width, style=wrong, hang=_GAP)
            for text in claims.sentences(each):
                terminal.write(console, _GAP + text, width, hang=_GAP * 2)
    verdict = ""
    for each in some:
        if each.expected:
            if each.verdict != verdict:
                verdict = each.verdict
                console.print()
                terminal.write(console, f"{verdict}, as expected", width, style="bold")
            text = " ".join(claims.sentences(each))
            terminal.write(console, f"{_GAP}{each.ids}: {text}", width, hang=_GAP * 2)
