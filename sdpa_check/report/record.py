"""A run as strict JSON, and back: the format of run.json and of ``--format json``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib.resources import files
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, get_args

from sdpa_check.errors import EXIT_STOPPED, InputError
from sdpa_check.records import (
    SCHEMA,
    STOPPED,
    ClaimText,
    Estimate,
    Outcome,
    Prediction,
    PredictionKind,
    Relation,
    Row,
    Run,
)

if TYPE_CHECKING:
    from collections.abc import Collection


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the format, as it ships with the package."""
    text = files("sdpa_check.report").joinpath("run.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def dumps(run: Run) -> str:
    """`run` as JSON text: one run, one sequence of bytes.

    Floats are written in full, so that `loads` returns the same ones; a float that is infinite or
    not a number becomes null.
    """
    return json.dumps(to_dict(run), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def to_dict(run: Run) -> dict[str, Any]:
    """`run` as JSON values, keys in the order of the fields of the records.

    Raises:
        TypeError: the design, the parameters or the environment hold something without a JSON form.
    """
    return {"schema": SCHEMA, **_json(run)}


def _json(value: object) -> Any:
    """A value as what the json module reads back; numpy's numbers become Python's."""
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # File names may hold bytes that are no UTF-8; such a text could not be written.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Real):
        return _number(value)
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    raise TypeError(f"{value!r} has no JSON form")


def _number(x: Real) -> int | float | None:
    if isinstance(x, Integral):
        return int(x)
    return float(x) if math.isfinite(x) else None


def loads(text: str | bytes, where: str) -> Run:
    """The run that `dumps` wrote.

    Args:
        text: the contents of a run.json.
        where: the file, as errors shall name it.

    Raises:
        InputError: the text is no strict JSON, is of another version of the format, or holds what
            no run may hold; `InputError.where` names the place: ``run.json: rows[3].estimate.se``.
    """
    try:
        data = json.loads(
            text,
            parse_constant=_not_finite,
            parse_float=_finite,
            object_pairs_hook=_without_duplicates,
        )
    except (ValueError, RecursionError) as error:
        raise InputError(where, str(error), "a run.json, which is strict JSON") from error
    return from_dict(data, where)


def _not_finite(text: str) -> float:
    raise ValueError(f"the number {text}")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_finite(text)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} twice in one object")
        found[key] = value
    return found


def from_dict(data: object, where: str) -> Run:
    """The run that `to_dict` made, from parsed JSON.

    Raises:
        InputError: as `loads` does.
    """
    top = _Node(data, where, "")
    version = top.mapping().get("schema")
    if version != SCHEMA:
        raise InputError(f"{where}: schema", version, f"{SCHEMA!r}, the one version read here")
    at = top.fields(Run, "schema")
    stopped, code = at["outcome"].value == STOPPED, at["exit_code"].value
    if stopped != (code == EXIT_STOPPED):
        raise at["exit_code"].error(f"{EXIT_STOPPED} for a run that was stopped, and for no other")
    return Run(
        command=at["command"].text(),
        version=at["version"].text(),
        outcome=at["outcome"].text(),
        exit_code=at["exit_code"].whole(),
        design=at["design"].mapping(),
        seed=at["seed"].whole(),
        generator=at["generator"].text(),
        rows=tuple(_row(item) for item in at["rows"].items()),
        notes=tuple(item.text() for item in at["notes"].items()),
        environment=at["environment"].mapping(),
    )


def row_to_dict(row: Row) -> dict[str, Any]:
    """A single row as JSON values, as `to_dict` writes those of a run."""
    found: dict[str, Any] = _json(row)
    return found


def row_from_dict(data: object, where: str) -> Row:
    """The row that `row_to_dict` made, from parsed JSON.

    Raises:
        InputError: as `loads` does.
    """
    return _row(_Node(data, where, "row"))


def _row(node: _Node) -> Row:
    at = node.fields(Row)
    return Row(
        id=at["id"].text(),
        quantity=at["quantity"].text(),
        params=at["params"].mapping(),
        estimate=None if at["estimate"].value is None else _estimate(at["estimate"]),
        prediction=_prediction(at["prediction"]),
        verdict=Outcome(at["verdict"].one_of(list(Outcome))),
        expected=Outcome(at["expected"].one_of(list(Outcome))),
        reason=at["reason"].text(),
        tolerance=at["tolerance"].number_or_none(least=0),
        detectable=at["detectable"].number_or_none(least=0),
        claim=None if at["claim"].value is None else _claim(at["claim"]),
    )


def _claim(node: _Node) -> ClaimText:
    return ClaimText(**{name: each.text() for name, each in node.fields(ClaimText).items()})


def _estimate(node: _Node) -> Estimate:
    at = node.fields(Estimate)
    value, level = at["value"].number_or_none(), at["level"].number_or_none()
    if level is None or not 0 < level <= 1:
        raise at["level"].error("a number above 0 and of at most 1")
    return Estimate(
        value=math.nan if value is None else value,
        se=at["se"].number_or_none(least=0),
        lo=at["lo"].number_or_none(),
        hi=at["hi"].number_or_none(),
        level=level,
        blocks=at["blocks"].whole(),
        samples=at["samples"].whole(),
        withheld=at["withheld"].text(),
    )


def _prediction(node: _Node) -> Prediction:
    at = node.fields(Prediction)
    kind: Any = at["kind"].one_of(get_args(PredictionKind))
    relation: Any = at["relation"].one_of(get_args(Relation))
    return Prediction(
        value=at["value"].number_or_none(),
        kind=kind,
        source=at["source"].text(),
        relation=relation,
    )


@dataclass(frozen=True, slots=True)
class _Node:
    """A JSON value that knows its file and its path, so that an error can name them."""

    value: object
    file: str
    path: str

    def error(self, want: str) -> InputError:
        where = f"{self.file}: {self.path}" if self.path else self.file
        return InputError(where, self.value, want)

    def mapping(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.error("an object")
        return self.value

    def fields(self, record: type[Any], *more: str) -> dict[str, _Node]:
        """The values of the fields of a record: the object must have all of them and no others."""
        given, names = self.mapping(), [*more, *(field.name for field in fields(record))]
        at = {name: _Node(given.get(name), self.file, self._below(name)) for name in names}
        for name, node in at.items():
            if name not in given:
                raise InputError(f"{self.file}: {node.path}", "nothing", "a value")
        for name, value in given.items():
            if name not in at:
                want = f"no other keys than {', '.join(names)}"
                raise _Node(value, self.file, self._below(name)).error(want)
        return at

    def _below(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def items(self) -> list[_Node]:
        if not isinstance(self.value, list):
            raise self.error("a list")
        return [
            _Node(item, self.file, f"{self.path}[{index}]") for index, item in enumerate(self.value)
        ]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.error("a text")
        return self.value

    def one_of(self, names: Collection[str]) -> str:
        if not isinstance(self.value, str) or self.value not in names:
            raise self.error(f"one of {', '.join(names)}")
        return self.value

    def whole(self) -> int:
        number = self._number()
        if number is None or number < 0 or number != int(number):
            raise self.error("a whole number of at least 0")
        return int(number)

    def number_or_none(self, *, least: float = -math.inf) -> float | None:
        if self.value is None:
            return None
        number = self._number()
        if number is None or number < least or abs(number) > sys.float_info.max:
            limit = "" if math.isinf(least) else f" of at least {least:g}"
            raise self.error(f"a number{limit} or null")
        return float(number)

    def _number(self) -> int | float | None:
        """The value where it is a finite number; JSON's true is none, though Python's is."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            return None
        return self.value if isinstance(self.value, int) or math.isfinite(self.value) else None
