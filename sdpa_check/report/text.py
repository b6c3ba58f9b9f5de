"""A run as CSV for programs, with every digit, and as a Markdown table for people."""

from __future__ import annotations

import io
import json
import re
from csv import DictWriter
from typing import TYPE_CHECKING, Any

from sdpa_check.report import measured, record, rows, summary

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sdpa_check.records import Run
    from sdpa_check.report.measured import Grid

_ESTIMATE = ("value", "se", "lo", "hi", "level", "blocks", "samples")
_AFTER = (
    *_ESTIMATE,
    "prediction",
    "prediction_kind",
    "verdict",
    "expected",
    "tolerance",
    "detectable",
    "reason",
)
_COLUMNS = ("check", "measured", "predicted", "z", "tolerance", "verdict")
_RIGHT = ("measured", "predicted", "z", "tolerance")

# An underscore inside a word is literal in GitHub's Markdown.
_MARKUP = re.compile(r"[\\|<>*`\[\]&~$#]|(?<!\w)_|_(?!\w)")


def csv(run: Run) -> str:
    """One line per row, each parameter a column, floats in full; what is absent is empty.

    A parameter whose name is also that of another column stands under ``param_<name>``.
    """
    data = [_flat(row) for row in record.to_dict(run)["rows"]]
    params = dict.fromkeys(key for each in data for key in each if key not in _AFTER)
    columns = [*dict.fromkeys(("id", "quantity", *params)), *_AFTER]
    stream = io.StringIO()
    writer = DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _field(value) for key, value in each.items()} for each in data)
    return stream.getvalue()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    taken = {"id", "quantity", *_AFTER}
    params = {f"param_{k}" if k in taken else k: value for k, value in row["params"].items()}
    estimate = row["estimate"] or {}
    return {
        "id": row["id"],
        "quantity": row["quantity"],
        **params,
        **{name: estimate.get(name) for name in _ESTIMATE},
        "prediction": row["prediction"]["value"],
        "prediction_kind": row["prediction"]["kind"],
        **{name: row[name] for name in ("verdict", "expected", "tolerance", "detectable")},
        "reason": row["reason"],
    }


def _field(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str):
        return rows.plain(value)
    # JSON writes a float as Python does, shortest form that reads back the same, and bools and
    # lists in a form that other programs know.
    return json.dumps(value, ensure_ascii=False)


def markdown(run: Run) -> str:
    """GitHub tables of the numbers as people read them, with outcome, notes and reasons."""
    own, _ = measured.partition(run)
    cells = [[each[name] for name in _COLUMNS] for each in rows.run_cells(run, own)]
    grids = measured.grids(run)
    parts = [
        f"**{_escaped(summary.verdict_line(run))}**",
        _escaped(" ".join(summary.title(run).split())),
        *([_table([_COLUMNS, *cells], _RIGHT)] if cells else []),
        *([_escaped(measured.title(run, grids))] if grids else []),
        *(_grid(grid) for grid in grids),
        _escaped(summary.sampling_line(run, z=True)),
        *(_escaped(rows.plain(note)) for note in run.notes),
        *(["\n".join(_reasons(run))] if summary.reasons(run) else []),
    ]
    return "\n\n".join(parts) + "\n"


def _grid(grid: Grid) -> str:
    """A grid of numbers with the name of the section, where there are several, in each line."""
    sections = any(line.section for line in grid.lines)
    head = [*([""] if sections else []), *grid.labels, *grid.columns]
    body = [
        [
            *([line.section] if sections else []),
            *line.labels,
            *(line.cells.get(name, rows.ABSENT) for name in grid.columns),
        ]
        for line in grid.lines
    ]
    return _table([head, *body], grid.columns)


def _table(table: Sequence[Sequence[str]], right: Collection[str]) -> str:
    """A table whose columns are aligned in the source too, for those who read it there."""
    head = table[0]
    escaped = [[_escaped(cell) for cell in line] for line in table]
    widths = [max(1, *map(len, column)) for column in zip(*escaped, strict=True)]
    rule = [
        "-" * (width - 1) + ":" if name in right else "-" * width
        for name, width in zip(head, widths, strict=True)
    ]
    return "\n".join(
        f"| {' | '.join(_padded(line, widths, [name in right for name in head]))} |"
        for line in (escaped[0], rule, *escaped[1:])
    )


def _padded(line: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterable[str]:
    for cell, width, to_the_right in zip(line, widths, right, strict=True):
        yield cell.rjust(width) if to_the_right else cell.ljust(width)


def _reasons(run: Run) -> Iterable[str]:
    for reason in summary.reasons(run):
        checks = _escaped("; ".join(reason.checks))
        yield f"- **{_escaped(reason.verdict)}** {checks}: {_escaped(reason.text)}"


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda match: "\\" + match[0], text)
