"""A run as a table for the terminal, or for a pipe."""

from __future__ import annotations

import io
import os
import re
import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TextIO

from sdpa_check.report import measured, rows, summary, terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from sdpa_check.records import Row, Run

_COLUMNS = ("check", "measured", "predicted", "z", "tolerance", "verdict")
_GAP = 2
_INDENT = "  "
_CHECK = 30  # a name is given so much before a column goes
_EXPLAINED = 8  # so many reasons are given, or as many as something is wrong
_NAMED = 3  # so many checks are named beside the reason that they share
_BREAKS = {
    "measured": re.compile(r" (?=[±\[])|(?<=,) "),
    "predicted": re.compile(r" (?=\()"),
    "verdict": re.compile(r" "),
}
"""Where a cell may be cut into lines when its column is narrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The rows, their cells, and the width and header of each column that is shown."""

    rows: Sequence[Row]
    cells: Sequence[Mapping[str, str]]
    widths: Mapping[str, int]
    headers: Mapping[str, str]

    @property
    def width(self) -> int:
        return _total(self.widths)

    @property
    def shows_z(self) -> bool:
        return "z" in self.widths and any(row["z"] != rows.ABSENT for row in self.cells)

    @property
    def tall(self) -> bool:
        """Whether most rows take several lines, and so need air between them."""
        wrapped = sum(
            any(len(row[name]) > width for name, width in self.widths.items()) for row in self.cells
        )
        return 2 * wrapped > len(self.cells)


def show(run: Run, stream: TextIO) -> None:
    """Write the table of `run`, coloured and fitted to the window where `stream` is a terminal."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    color = stream.isatty() and not plain
    stream.write(render(run, width=terminal.width_of(stream), color=color))


def render(run: Run, *, width: int, color: bool) -> str:
    """The table of `run` with its title, outcome, notes and reasons.

    Claims have one line each, and so have the pipelines of a ledger.

    Args:
        run: a finished run.
        width: columns of the terminal. Where they are too few the tolerance is left out, then z,
            then cells wrap at spaces; numbers are never cut, so a still narrower terminal gets
            lines that are too long.
        color: whether to write ANSI colours; every colour has its word beside it.
    """
    if rows.judges_claims(run):
        from sdpa_check.report import claims_table

        return claims_table.render(run, width=width, color=color)
    if rows.accounts_for_changes(run):
        return _ledger(run, width=width, color=color)
    layout = _layout(run, width)
    stream = io.StringIO()
    console = terminal.console(stream, max(width, layout.width), color=color)
    prose = min(width, terminal.PROSE)
    terminal.write(console, summary.title(run), prose, style="bold", hang=_INDENT)
    console.print()
    if layout.rows:
        console.print(_table(layout))
        console.print()
    _measured_only(console, run, width)
    _footer(console, run, prose, z=layout.shows_z)
    return terminal.finished(stream)


def _ledger(run: Run, *, width: int, color: bool) -> str:
    from sdpa_check.report import ledger_table

    stream = io.StringIO()
    console = terminal.console(stream, width, color=color)
    prose = min(width, terminal.PROSE)
    terminal.write(console, summary.title(run), prose, style="bold", hang=_INDENT)
    console.print()
    ledger_table.write(console, run, width)
    console.print()
    _footer(console, run, prose, z=False)
    return terminal.finished(stream)


def _layout(run: Run, width: int) -> _Layout:
    own, _ = measured.partition(run)
    cells = rows.grouped_cells(run, own)
    kinds = {each["predicted"].partition(" (")[2] for each in cells} - {""}
    for each in cells:
        each["check"] = each["check"].replace(" statistic=", " ")
        if each["group"]:
            each["check"] = _INDENT + each["check"]
        if len(kinds) == 1:  # said once, in the header
            each["predicted"] = each["predicted"].partition(" (")[0]
    layout = _Layout(
        rows=own,
        cells=cells,
        widths=_widths(cells, width),
        headers={name: name for name in _COLUMNS},
    )
    return _with_kind(layout, f"({kinds.pop()}", width) if len(kinds) == 1 else layout


def _with_kind(layout: _Layout, kind: str, width: int) -> _Layout:
    """The kind of all predictions in the header: beside the name, or below it in less room."""
    header = f"predicted {kind}"
    wider = {**layout.widths, "predicted": max(layout.widths["predicted"], len(header))}
    if _total(wider) <= width:
        return replace(layout, widths=wider, headers={**layout.headers, "predicted": header})
    return replace(layout, headers={**layout.headers, "predicted": f"predicted\n{kind}"})


def _widths(cells: Sequence[Mapping[str, str]], width: int) -> dict[str, int]:
    """The columns that fit into `width`, and the width of each."""
    natural = {
        name: max(len(text) for text in (name, *_aligned([row[name] for row in cells], name)))
        for name in _COLUMNS
    }
    natural["check"] = max([natural["check"], *(len(row["group"]) for row in cells)])
    wanted = min(natural["check"], _CHECK)
    for left_out in ((), ("tolerance",), ("tolerance", "z")):
        widths = {name: natural[name] for name in _COLUMNS if name not in left_out}
        rest = width - _total(widths) + natural["check"]
        if rest >= wanted:
            return widths | {"check": min(rest, natural["check"])}
    for name in ("verdict", "predicted", "measured"):
        if width - _total(widths) + natural["check"] < wanted:
            pieces = (len(piece) for row in cells for piece in _BREAKS[name].split(row[name]))
            widths[name] = max([len(name), *pieces])
    rest = width - _total(widths) + natural["check"]
    widths["check"] = min(natural["check"], max(rest, _CHECK // 2))
    spare = max(0, width - _total(widths))
    return widths | {"measured": min(natural["measured"], widths["measured"] + spare)}


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _table(layout: _Layout) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # One column of padding and one of the box make _GAP.
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
        leading=layout.tall,
    )
    right = {"z", "tolerance"} | {name for name, text in layout.headers.items() if "(" in text}
    for name, width in layout.widths.items():
        table.add_column(
            layout.headers[name],
            width=width,
            justify="right" if name in right else "left",
            header_style="bold",
        )
    columns = {name: _column(layout, name) for name in layout.widths}
    group = ""
    for index, row in enumerate(layout.rows):
        if layout.cells[index]["group"] != group:
            group = layout.cells[index]["group"]
            table.add_row(Text(group, "bold"))
        styles = {"verdict": terminal.style(row)}
        table.add_row(*(Text(columns[name][index], styles.get(name, "")) for name in columns))
    return table


def _column(layout: _Layout, name: str) -> list[str]:
    """The texts of a column, wrapped or aligned as its width allows."""
    texts, width = [row[name] for row in layout.cells], layout.widths[name]
    if name == "check":
        return [_wrapped(text, width) for text in texts]
    aligned = _aligned(texts, name)
    if max(map(len, aligned)) <= width:
        return aligned
    return [text if len(text) <= width else "\n".join(_BREAKS[name].split(text)) for text in texts]


def _aligned(texts: list[str], name: str) -> list[str]:
    """The texts of a column with ± below ±, or kind below kind."""
    mark = {"measured": " ± ", "predicted": " ("}.get(name)
    return texts if mark is None else terminal.aligned(texts, mark)


def _wrapped(text: str, width: int) -> str:
    """A check on one line, or else its parameters indented below its quantity."""
    if len(text) <= width:
        return text
    indent = text[: len(text) - len(text.lstrip())]
    head, _, tail = text.lstrip().partition(" ")
    lines = [indent]
    for piece in re.findall(r"[^._]*[._]|[^._]+", head):
        if len(lines[-1] + piece) > width and lines[-1].strip():
            lines.append(indent + _INDENT)
        lines[-1] += piece
    below = indent + _INDENT
    return "\n".join(
        lines + textwrap.wrap(tail, width, initial_indent=below, subsequent_indent=below)
    )


def _measured_only(console: Console, run: Run, width: int) -> None:
    """The numbers without a prediction, grid by grid; numbers are never cut here either."""
    from rich.text import Text

    shown = [piece for grid in measured.grids(run) for piece in measured.fitted(grid, width)]
    if shown:
        title = measured.title(run, shown)
        terminal.write(console, title, min(width, terminal.PROSE), style="bold", hang=_INDENT)
    for grid in shown:
        for text, heading in measured.lines(grid):
            console.print(Text(text, "bold" if heading else ""), soft_wrap=True)
        console.print()


def _footer(console: Console, run: Run, width: int, *, z: bool) -> None:
    style = terminal.OUTCOME_STYLES.get(run.exit_code, "bold")
    terminal.write(console, summary.verdict_line(run), width, style=style)
    terminal.write(console, summary.sampling_line(run, z=z), width, style="dim")
    for note in run.notes:
        console.print()
        terminal.write(console, rows.plain(note), width)
    reasons = summary.reasons(run)
    wrong = sum(reason.wrong for reason in reasons)
    shown = reasons[: max(wrong, _EXPLAINED)]
    for reason in shown:
        more = len(reason.checks) - _NAMED
        named = [*reason.checks[:_NAMED], *([f"{more} more"] if more > 0 else [])]
        console.print()
        terminal.write(
            console, f"{reason.verdict}  {'; '.join(named)}", width, style="bold", hang=_INDENT
        )
        terminal.write(console, _INDENT + reason.text, width, hang=_INDENT)
    if len(shown) < len(reasons):
        console.print()
        left = rows.count(len(reasons) - len(shown))
        terminal.write(console, f"{left} more reasons stand in the record.", width)
