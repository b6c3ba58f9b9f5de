"""The arguments of a step: read one after the other, written in one canonical form."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Arguments:
    """The arguments of one step, read from the left.

    Every method takes the next argument; where none is left it returns `default`, or, that being
    None, complains. Every complaint is a ValueError whose text says what is wrong in a few words.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._left = list(texts)

    def text(self, default: str | None = None) -> str:
        """The next argument as it was written."""
        if self._left:
            return self._left.pop(0).strip()
        if default is None:
            raise ValueError("an argument is missing")
        return default

    def choice(self, names: Sequence[str], default: str | None = None) -> str:
        """One of `names`, in any case."""
        given = self.text(default).lower()
        if given in names:
            return given
        near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
        raise ValueError(f"did you mean {near[0]!r}?" if near else f"{given!r} is none of them")

    def flag(self, name: str) -> bool:
        """Whether `name` is the next argument; anything else in its place is wrong."""
        return bool(self._left) and self.choice((name,)) == name

    def number(
        self,
        default: float | None = None,
        *,
        above: float = -math.inf,
        at_least: float = -math.inf,
    ) -> float:
        """A finite number > `above` and ≥ `at_least`."""
        if default is not None and not self._left:
            return default
        given = self.text()
        try:
            value = float(given)
        except ValueError:
            raise ValueError(f"{given!r} is no number") from None
        if not (math.isfinite(value) and value > above and value >= at_least):
            raise ValueError(f"{given} is out of range")
        return value

    def integer(self, *, at_least: int) -> int | None:
        """An integer ≥ `at_least`, or None where no argument is left."""
        if not self._left:
            return None
        value = self.number(at_least=at_least)
        if not value.is_integer():
            raise ValueError(f"{value!r} is no integer")
        return int(value)

    def end(self) -> None:
        """See that nothing is left."""
        if self._left:
            raise ValueError(f"{self._left[0]!r} is one argument too many")


def shown(value: str | float) -> str:
    """The one text of an argument: numbers in their shortest exact form, 50.0 as 50."""
    if isinstance(value, str):
        return value
    return str(int(value)) if abs(value) < 1e16 and value == int(value) else repr(value)


def trimmed(*pairs: tuple[str | float | None, str | float | None]) -> tuple[str, ...]:
    """The canonical arguments, from pairs (value, default): defaults at the end are left out."""
    kept = list(pairs)
    while kept and kept[-1][0] == kept[-1][1]:
        kept.pop()
    return tuple(shown(value) for value, _ in kept if value is not None)
