"""What the benchmarks find, as data: it goes into a JSON file, and pages are made from that."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEMA = "sdpa-check/benchmarks/1"
"""Name and version of the format of the JSON file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its quartiles over rounds, or the reason why it was not measured.

    Attributes:
        group: the benchmark it belongs to, see ``--only``.
        title: what was done.
        against: what it is held against; empty where the number stands alone.
        unit: of the number.
        lower: first quartile; None, as median and upper, where nothing was measured.
        median: the number.
        upper: third quartile.
        target: what the median should reach, if anything.
        relation: on which side of the target it should lie.
        tool_seconds: median time of one run of the tool.
        other_seconds: median time of the other side for the same result, scaled where it says so.
        rounds: how many rounds stand behind the quartiles.
        note: what a reader must know, or why nothing was measured.
    """

    group: str
    title: str
    against: str = ""
    unit: str = "×"
    lower: float | None = None
    median: float | None = None
    upper: float | None = None
    target: float | None = None
    relation: Literal["at least", "at most"] = "at least"
    tool_seconds: float | None = None
    other_seconds: float | None = None
    rounds: int = 0
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the target; None where one of the two is missing."""
        if self.median is None or self.target is None:
            return None
        if self.relation == "at least":
            return self.median >= self.target
        return self.median <= self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Seconds against a size, of the tool or of something beside it: `seconds[i]` at `x[i]`."""

    plot: Literal["d", "m", "n"]
    label: str
    x: tuple[float, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Where the time of one piece of work goes: functions with their own share, largest first."""

    title: str
    seconds: float
    functions: tuple[str, ...]
    shares: tuple[float, ...]


Found = Figure | Curve | Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Everything that one run of the benchmarks found, and on what machine."""

    environment: Mapping[str, Any]
    figures: tuple[Figure, ...] = ()
    curves: tuple[Curve, ...] = ()
    profiles: tuple[Profile, ...] = ()


def results(environment: Mapping[str, Any], found: Iterable[Found]) -> Results:
    """Findings sorted by kind, in the order in which they were made."""
    listed = list(found)
    return Results(
        environment=environment,
        figures=tuple(each for each in listed if isinstance(each, Figure)),
        curves=tuple(each for each in listed if isinstance(each, Curve)),
        profiles=tuple(each for each in listed if isinstance(each, Profile)),
    )


def to_json(found: Results) -> str:
    """The results as strict JSON, the inverse of `from_json`."""
    document = {"schema": SCHEMA, **dataclasses.asdict(found)}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str, where: str) -> Results:
    """The results that `to_json` wrote; `where` is the file that an error names.

    Raises:
        InputError: the text is no JSON, of another schema, or does not have the fields.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InputError(where, str(error), "strict JSON") from error
    schema = document.get("schema") if isinstance(document, dict) else document
    if schema != SCHEMA:
        raise InputError(f"{where}: schema", schema, SCHEMA, "run: python -m benchmarks")
    try:
        return Results(
            environment=document["environment"],
            figures=tuple(Figure(**each) for each in document["figures"]),
            curves=tuple(Curve(**_tuples(each)) for each in document["curves"]),
            profiles=tuple(Profile(**_tuples(each)) for each in document["profiles"]),
        )
    except (KeyError, TypeError) as error:
        raise InputError(where, str(error), "the fields of a record of benchmarks") from error


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
