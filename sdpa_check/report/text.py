"""A run as CSV for programs, with every digit, and as a Markdown table for people."""

from __future__ import annotations

import io
import json
from csv import DictWriter
from typing import TYPE_CHECKING, Any

from sdpa_check.report import (
    claims_text,
    ledger_table,
    markup,
    measured,
    record,
    rows,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sdpa_check.records import Run
    from sdpa_check.report.measured import Grid

_ESTIMATE = ("value", "se", "lo", "hi", "level", "blocks", "samples")
_AFTER = (
    *_ESTIMATE,
    "prediction",
    "prediction_kind",
    "relation",
    "verdict",
    "expected",
    "tolerance",
    "detectable",
    "reason",
)
_CLAIM = ("statement", "source", "section", "right", "note")
_COLUMNS = ("check", "measured", "predicted", "z", "tolerance", "verdict")
_RIGHT = ("measured", "predicted", "z", "tolerance")


def csv(run: Run) -> str:
    """One line per row, each parameter a column, floats in full; what is absent is empty.

    A parameter whose name is also that of another column stands under ``param_<name>``. What a
    document says follows where the run judges claims.
    """
    after = (*_AFTER, *(_CLAIM if rows.judges_claims(run) else ()))
    data = [_flat(row, after) for row in record.to_dict(run)["rows"]]
    params = dict.fromkeys(key for each in data for key in each if key not in after)
    columns = [*dict.fromkeys(("id", "quantity", *params)), *after]
    stream = io.StringIO()
    writer = DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _field(value) for key, value in each.items()} for each in data)
    return stream.getvalue()


def _flat(row: dict[str, Any], after: Collection[str]) -> dict[str, Any]:
    taken = {"id", "quantity", *after}
    params = {f"param_{k}" if k in taken else k: value for k, value in row["params"].items()}
    estimate = row["estimate"] or {}
    return {
        "id": row["id"],
        "quantity": row["quantity"],
        **params,
        **{name: estimate.get(name) for name in _ESTIMATE},
        "prediction": row["prediction"]["value"],
        "prediction_kind": row["prediction"]["kind"],
        "relation": row["prediction"]["relation"],
        **{name: row[name] for name in ("verdict", "expected", "tolerance", "detectable")},
        "reason": row["reason"],
        **(row["claim"] or {}),
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
    if rows.judges_claims(run):
        return claims_text.markdown(run)
    ledger = rows.accounts_for_changes(run)
    parts = [
        f"**{markup.escaped(summary.verdict_line(run))}**",
        markup.escaped(" ".join(summary.title(run).split())),
        *(ledger_table.markdown(run) if ledger else _tables(run)),
        markup.escaped(summary.sampling_line(run, z=not ledger)),
        *(markup.escaped(rows.plain(note)) for note in run.notes),
        *(["\n".join(_reasons(run))] if summary.reasons(run) else []),
    ]
    return "\n\n".join(parts) + "\n"


def _tables(run: Run) -> Iterable[str]:
    """The checks, then the numbers that are only measured."""
    own, _ = measured.partition(run)
    cells = [[each[name] for name in _COLUMNS] for each in rows.run_cells(run, own)]
    if cells:
        yield markup.table([_COLUMNS, *cells], _RIGHT)
    grids = measured.grids(run)
    if grids:
        yield markup.escaped(measured.title(run, grids))
    yield from map(_grid, grids)


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
    return markup.table([head, *body], grid.columns)


def _reasons(run: Run) -> Iterable[str]:
    for reason in summary.reasons(run):
        checks = markup.escaped("; ".join(reason.checks))
        yield f"- **{markup.escaped(reason.verdict)}** {checks}: {markup.escaped(reason.text)}"
