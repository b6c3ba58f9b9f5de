"""Lists and facts as plain text, fitted to a width."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_GAP = "  "
_NARROW = 24  # a last column with less room stands below the others
_WIDE = 110  # longer lines are hard to read


def columns(lines: Sequence[Sequence[str]], width: int, above: Sequence[str] = ()) -> Iterator[str]:
    """Lines of cells below each other; the last cell wraps in what room is left.

    Args:
        lines: the cells line by line.
        width: columns of the terminal.
        above: for every line a heading, which neighbours may share.
    """
    indent = _GAP if above else ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    left = len(indent) + sum(widths) + len(_GAP) * len(widths)
    room = min(width, _WIDE) - left
    for index, line in enumerate(lines):
        if above and (not index or above[index] != above[index - 1]):
            yield above[index]
        heads = (text.ljust(size) for text, size in zip(line[:-1], widths, strict=True))
        head = indent + "".join(text + _GAP for text in heads)
        if room >= _NARROW:
            yield from _hanging(head, line[-1], " " * left, width)
        else:
            yield head.rstrip()
            below = indent + _GAP * 2
            yield from _hanging(below, line[-1], below, width)


def prose(text: str, width: int) -> list[str]:
    """A text in lines, those after the first one set in."""
    return _hanging("", text, _GAP, width)


def facts(pairs: Mapping[str, Sequence[str]], width: int) -> Iterator[str]:
    """Labels with what stands beside them, one text or several below each other."""
    size = max(map(len, pairs), default=0)
    for label, texts in pairs.items():
        for index, text in enumerate(texts):
            head = (label if index == 0 else "").ljust(size) + _GAP
            yield from _hanging(head, text, " " * len(head), width)


def _hanging(head: str, text: str, below: str, width: int) -> list[str]:
    return textwrap.wrap(
        head + text,
        min(width, _WIDE),
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [head.rstrip()]
