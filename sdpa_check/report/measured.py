"""Numbers that are only measured, in compact grids: one line per quantity and design."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from sdpa_check.report import rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sdpa_check.records import Row, Run

SOURCE = "measured only"
"""How the source of a prediction begins where a number exists and no closed form of it is known."""

TITLE = "measured only (no closed form)"

_STATISTIC = "statistic"
_GAP = _INDENT = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What stands before the numbers of a line, and the numbers by their column."""

    section: str
    labels: tuple[str, ...]
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Numbers in lines and columns.

    Attributes:
        labels: the headers of the labels that each line begins with.
        columns: the headers of the numbers.
        lines: in the order of the sections, then of the labels from left to right.
        optional: columns that may go where there is no room, the first to go first.
    """

    labels: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    optional: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One number; `case` is the last parameter of its design, `section` all parameters before."""

    section: str
    case: tuple[str, ...]
    name: str
    statistic: str
    text: str

    @property
    def place(self) -> tuple[object, ...]:
        return self.section, self.case, self.name


def partition(run: Run) -> tuple[list[Row], list[Row]]:
    """The rows that need a line of their own, and those that are only measured.

    What is not as expected is never among the latter, nor is a number that theory calls undefined.
    Where rows go by their id, none is.
    """
    own: list[Row] = []
    only: list[Row] = []
    compact = not rows.by_id(run)
    for row in run.rows:
        (only if compact and _is_measured_only(row) else own).append(row)
    return own, only


def _is_measured_only(row: Row) -> bool:
    return (
        row.prediction.kind == "none"
        and row.prediction.source.startswith(SOURCE)
        and row.verdict is row.expected
        and row.estimate is not None
    )


def grids(run: Run) -> list[Grid]:
    """The rows that are only measured: quantities that are one number, then those with statistics.

    The statistics of a quantity are columns. A line has all of them, so that it is complete; some
    may have been judged.
    """
    _, only = partition(run)
    design = _design(run, only)
    entries = _entries(run, only, design)
    begun = {each.place for each in entries if each.statistic}
    complete = [each for each in _entries(run, run.rows, design) if each.place in begun]
    found = (
        _numbers([each for each in entries if not each.statistic], design[-1:]),
        _statistics([each for each in complete if each.statistic], design[-1:]),
    )
    return [grid for grid in found if grid.lines]


def _design(run: Run, only: Sequence[Row]) -> tuple[str, ...]:
    """The parameters by which designs differ; what only some rows have belongs to the quantity."""
    every = [rows.params(row.params) for row in only]
    return tuple(
        key
        for key in rows.varying_params(run.rows)
        if key != _STATISTIC and all(key in each for each in every)
    )


def _entries(run: Run, some: Iterable[Row], design: Sequence[str]) -> list[_Entry]:
    own = set(rows.varying_params(run.rows)).difference([_STATISTIC, *design])
    return [
        _Entry(
            section=rows.assignments(_picked(row, design[:-1])),
            case=tuple(_picked(row, design[-1:]).values()),
            name=f"{rows.plain(row.quantity)} {rows.assignments(_picked(row, own))}".rstrip(),
            statistic=rows.params(row.params).get(_STATISTIC, ""),
            text=rows.concise(row.estimate),
        )
        for row in some
    ]


def _picked(row: Row, keys: Collection[str]) -> dict[str, str]:
    return {key: text for key, text in rows.params(row.params).items() if key in keys}


def _numbers(entries: Sequence[_Entry], case: tuple[str, ...]) -> Grid:
    """One line per design, one column per quantity."""
    return _grid(case, ((each, each.case, each.name) for each in entries))


def _statistics(entries: Sequence[_Entry], case: tuple[str, ...]) -> Grid:
    """One line per quantity and design, one column per statistic."""
    family = _family(each.name for each in entries)
    grid = _grid(
        (family.rstrip("."), *case),
        (
            (each, (each.name.removeprefix(family), *each.case), _percent(each.statistic))
            for each in entries
        ),
    )
    tails = frozenset(name for name in grid.columns if name.endswith("%"))
    return replace(grid, optional=(tails, frozenset({"mean"})))


def _family(names: Iterable[str]) -> str:
    """``jacobian.`` where all names begin so, and nothing otherwise."""
    found = {name[: name.find(".") + 1] for name in names}
    return found.pop() if len(found) == 1 else ""


def _percent(statistic: str) -> str:
    """``q05`` → ``5 %``."""
    return re.sub(r"^q0?(\d{1,2})$", r"\1 %", statistic)


def _grid(labels: tuple[str, ...], cells: Iterable[tuple[_Entry, tuple[str, ...], str]]) -> Grid:
    """Lines and columns from every number with the labels of its line and the name of its column.

    Equal labels come together, in the order in which they first came.
    """
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for entry, names, column in cells:
        found.setdefault((entry.section, *names), {})[column] = entry.text
    orders = [list(dict.fromkeys(texts)) for texts in zip(*found, strict=True)]
    keys = sorted(found, key=lambda key: [o.index(x) for o, x in zip(orders, key, strict=True)])
    return Grid(
        labels=labels,
        columns=tuple(dict.fromkeys(chain.from_iterable(found.values()))),
        lines=tuple(Line(section=key[0], labels=key[1:], cells=found[key]) for key in keys),
    )


def fitted(grid: Grid, width: int) -> list[Grid]:
    """The grid within `width`: without optional columns where it must be, else in pieces."""
    narrow = grid
    for left_out in accumulate(grid.optional, frozenset.union, initial=frozenset[str]()):
        columns = tuple(name for name in grid.columns if name not in left_out)
        narrow = replace(grid, columns=columns or grid.columns)
        if _width(narrow) <= width:
            return [narrow]
    return _pieces(narrow, width)


def _pieces(grid: Grid, width: int) -> list[Grid]:
    """The grid column by column, as many side by side as there is room for."""
    pieces = [replace(grid, columns=grid.columns[:1])]
    for name in grid.columns[1:]:
        longer = replace(grid, columns=(*pieces[-1].columns, name))
        if _width(longer) <= width:
            pieces[-1] = longer
        else:
            pieces.append(replace(grid, columns=(name,)))
    return pieces


def _width(grid: Grid) -> int:
    return max(len(text) for text, _ in lines(grid))


def lines(grid: Grid) -> Iterator[tuple[str, bool]]:
    """The lines of a grid as text, point below point, and whether each is a heading."""
    head, *body = zip(*(_padded(texts) for texts in _columns(grid)), strict=True)
    indent, section = _INDENT if any(each.section for each in grid.lines) else "", ""
    yield (indent + _GAP.join(head)).rstrip(), True
    for line, texts in zip(grid.lines, body, strict=True):
        if line.section != section:
            section = line.section
            yield section, True
        yield (indent + _GAP.join(texts)).rstrip(), False


def _columns(grid: Grid) -> Iterator[list[str]]:
    """The texts of each column, its header first; a label is not said again below itself."""
    for i, head in enumerate(grid.labels):
        texts = [head]
        above: tuple[str, ...] = ()
        for line in grid.lines:
            path = (line.section, *line.labels[: i + 1])
            texts.append("" if path == above else path[-1])
            above = path
        yield texts
    for name in grid.columns:
        yield [name, *_aligned([line.cells.get(name, rows.ABSENT) for line in grid.lines])]


def _aligned(texts: Sequence[str]) -> list[str]:
    """Numbers with point below point."""
    heads = [len(text) - len(text.lstrip("-0123456789")) for text in texts]
    return [" " * (max(heads) - head) + text for head, text in zip(heads, texts, strict=True)]


def _padded(texts: Sequence[str]) -> list[str]:
    width = max(map(len, texts))
    return [text.ljust(width) for text in texts]


def title(run: Run, shown: Collection[Grid]) -> str:
    """What the grids are, what (15) means in them, and which columns are not `shown`."""
    parts = [TITLE]
    for row in partition(run)[1]:
        found, text = row.estimate, rows.concise(row.estimate)
        if found and text.endswith(")"):
            parts.append(f"{text} is {rows.rounded(found.value, found.se)}")
            break
    seen = {name for grid in shown for name in grid.columns}
    missing = [name for grid in grids(run) for name in grid.columns if name not in seen]
    if missing:
        parts.append(f"no room for {', '.join(missing)}")
    return "; ".join(parts)
