"""Figures as plain data: arrays, axes and labels, nothing of experiments and nothing of drawing.

A `Figure` is a grid of `Panel`; a panel holds `Series` (marks with an interval), `Span` (a
reference line or region) and at most one `HeatMap`. All text is plain Unicode, without markup.
All numbers are finite; a number that is missing or infinite is None and leaves a gap.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import types
from dataclasses import dataclass, is_dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

SCHEMA = "sdpa-check/figures/1"
"""Name and version of the format that `to_json` writes."""

Values = tuple[float | None, ...]
Limits = tuple[float, float]
Scale = Literal["linear", "log", "log2"]
Kind = Literal["points", "rings", "curve", "guide", "steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One set of marks.

    Series of one label share colour, marker, dashes and legend entry in all panels of a figure, so
    measured points and their exact curve carry the same label; an empty label stays out of the
    legend. A label borne by guides alone is drawn grey.

    Attributes:
        label: the text of the legend entry.
        kind: ``points`` are measured values, ``rings`` predicted values without a curve between
            them, a ``curve`` is an exact law, a ``guide`` a thin dotted line for what is not exact
            (a limit, a slope), ``steps`` a histogram.
        x: positions; for ``steps`` the n + 1 edges of the n bins.
        y: the values.
        lo: lower ends of the intervals about the values, in the unit of `y`, or empty: error bars
            on points, a shaded band about a curve.
        hi: upper ends of the intervals, likewise.
    """

    label: str
    kind: Kind
    x: Values
    y: Values
    lo: Values = ()
    hi: Values = ()

    def __post_init__(self) -> None:
        count = len(self.y)
        _check_length("x", self.x, count + (self.kind == "steps"))
        if self.lo or self.hi:
            _check_length("lo", self.lo, count)
            _check_length("hi", self.hi, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The region lo ≤ x ≤ hi (or y), open at an end that is None; a line where lo = hi."""

    axis: Literal["x", "y"]
    lo: float | None
    hi: float | None
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """A field over a grid, shown in colour.

    Attributes:
        x: centres of the columns, increasing.
        y: centres of the rows, increasing.
        z: one tuple per row, of one value per column: shape (len(y), len(x)).
        label: what the colour shows, with its unit.
        limits: the values at the two ends of the colour bar; None takes them from the data.
        marks: measured (x, y, z), drawn as discs in the colour of their z; a disc agrees with the
            field where it has the colour around it.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    z: tuple[Values, ...]
    label: str
    limits: Limits | None = None
    marks: tuple[tuple[float, float, float], ...] = ()

    def __post_init__(self) -> None:
        for name, centres in (("x", self.x), ("y", self.y)):
            if not centres or any(a >= b for a, b in pairwise(centres)):
                raise InputError(name, centres, "at least one number, in increasing order")
        _check_length("z", self.z, len(self.y))
        for index, row in enumerate(self.z):
            _check_length(f"z[{index}]", row, len(self.x))


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes.

    On a log axis a value ≤ 0 is left out. Of an interval about a point that reaches down to 0 only
    the part above the value is drawn, so that it does not look like decades of data; a band about a
    curve runs to the edge. ``log2`` is a log axis with ticks at powers of two.

    Attributes:
        rows: names of the rows of a chart on its side, from the top. With it, y = 0, 1, … are the
            rows, the values lie along x, and the intervals are about x.
    """

    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    xscale: Scale = "linear"
    yscale: Scale = "linear"
    xlim: Limits | None = None
    ylim: Limits | None = None
    series: tuple[Series, ...] = ()
    spans: tuple[Span, ...] = ()
    heatmap: HeatMap | None = None
    rows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for axis in ("x", "y"):
            limits, centres = getattr(self, f"{axis}lim"), getattr(self.heatmap, axis, ())
            ends = [end for span in self.spans if span.axis == axis for end in (span.lo, span.hi)]
            fixed = [number for number in (*(limits or ()), *centres, *ends) if number is not None]
            scale = getattr(self, f"{axis}scale")
            if scale != "linear" and min(fixed, default=1) <= 0:
                raise InputError(f"{axis}scale", scale, f"linear, for {min(fixed)} is to be shown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Panels in a grid, row by row, under one title and with one legend.

    Attributes:
        caption: how to read the marks, one line below the panels.
    """

    title: str
    panels: tuple[Panel, ...]
    columns: int = 1
    caption: str = ""

    def __post_init__(self) -> None:
        if not self.panels:
            raise InputError("panels", self.panels, "at least one panel")
        if self.columns < 1:
            raise InputError("columns", self.columns, "a whole number of at least 1")


def values(array: ArrayLike) -> Values:
    """The numbers of a one-dimensional array, None in the place of NaN and ±∞."""
    numbers = np.asarray(array, dtype=np.float64).tolist()
    return tuple(number if math.isfinite(number) else None for number in numbers)


def to_json(figures: Mapping[str, Figure]) -> str:
    """Named figures as strict JSON, the inverse of `from_json`.

    Raises:
        InputError: a number is NaN or infinite.
    """
    document = {"schema": SCHEMA, "figures": dict(figures)}
    try:
        text = json.dumps(
            document, default=_fields, allow_nan=False, ensure_ascii=False, separators=(",", ":")
        )
    except ValueError as error:
        raise InputError("figures", "NaN or infinity", "finite numbers or None") from error
    return text + "\n"


def from_json(text: str, where: str) -> dict[str, Figure]:
    """The figures that `to_json` wrote; `where` is the file that errors name.

    Raises:
        InputError: the text is no JSON, of another schema, or holds what no figure may hold; the
            message names the place, as in ``figures.json: scale.panels[0].series[2].y``.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(where, str(error), "strict JSON") from error
    schema = document.get("schema") if isinstance(document, dict) else document
    if schema != SCHEMA:
        raise InputError(f"{where}: schema", schema, SCHEMA)
    named = document.get("figures")
    if not isinstance(named, dict):
        raise InputError(f"{where}: figures", named, "an object of figures by name")
    return {name: _build(Figure, value, f"{where}: {name}") for name, value in named.items()}


def _check_length(name: str, items: tuple[Any, ...], want: int) -> None:
    if len(items) != want:
        raise InputError(name, f"{len(items)} entries", f"{want} entries")


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def _build(cls: type[Any], value: object, where: str) -> Any:
    """An instance of a dataclass from a JSON object, every field checked against its annotation."""
    if not isinstance(value, dict):
        raise InputError(where, value, f"an object with the fields of {cls.__name__}")
    hints = get_type_hints(cls)
    unknown = sorted(value.keys() - hints.keys())
    if unknown:
        raise InputError(f"{where}.{unknown[0]}", value[unknown[0]], f"one of {', '.join(hints)}")
    for field in dataclasses.fields(cls):
        if field.default is dataclasses.MISSING and field.name not in value:
            raise InputError(where, sorted(value), f"the field {field.name}")
    parts = {name: _parse(hints[name], value[name], f"{where}.{name}") for name in value}
    try:
        return cls(**parts)
    except InputError as error:
        raise InputError(f"{where}.{error.where}", error.got, error.want) from error


def _parse(hint: Any, value: object, where: str) -> Any:
    """A JSON value as the annotated type, with lists as tuples."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if value is None else _parse(args[0], value, where)
    if origin is tuple:
        return _parse_tuple(args, value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return _build(hint, value, where)
    if origin is Literal:
        if value in args:
            return value
        raise InputError(where, value, f"one of {', '.join(args)}")
    return _parse_plain(hint, value, where)


def _parse_tuple(args: tuple[Any, ...], value: object, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise InputError(where, value, "a list")
    hints = args if args[-1] is not Ellipsis else args[:1] * len(value)
    if len(hints) != len(value):
        raise InputError(where, value, f"a list of {len(hints)}")
    return tuple(
        _parse(hint, item, f"{where}[{index}]")
        for index, (hint, item) in enumerate(zip(hints, value, strict=True))
    )


def _parse_plain(hint: type[Any], value: object, where: str) -> Any:
    if hint is str and isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        # An int may be too long for a float, and 1e999 or NaN come out of the parser as floats.
        if hint is int and isinstance(value, int):
            return value
        if hint is float and abs(value) <= sys.float_info.max:
            return float(value)
    raise InputError(where, value, {str: "a text", int: "a whole number"}.get(hint, "a number"))
