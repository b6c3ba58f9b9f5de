"""Markdown as GitHub reads it: escaped text, tables, parts that fold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

# An underscore inside a word is literal in GitHub's Markdown.
_MARKUP = re.compile(r"[\\|<>*`\[\]&~$#]|(?<!\w)_|_(?!\w)")


def escaped(text: str) -> str:
    """The text with nothing in it that Markdown would read as markup."""
    return _MARKUP.sub(lambda match: "\\" + match[0], text)


def table(lines: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """A table whose columns are aligned in the source too, for those who read it there.

    Args:
        lines: the headers, then the cells line by line; all as plain text.
        right: the headers of the columns that are aligned to the right.
    """
    head = lines[0]
    cells = [[escaped(cell) for cell in line] for line in lines]
    widths = [max(1, *map(len, column)) for column in zip(*cells, strict=True)]
    rule = [
        "-" * (width - 1) + ":" if name in right else "-" * width
        for name, width in zip(head, widths, strict=True)
    ]
    return "\n".join(
        f"| {' | '.join(_padded(line, widths, [name in right for name in head]))} |"
        for line in (cells[0], rule, *cells[1:])
    )


def _padded(line: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterable[str]:
    for cell, width, to_the_right in zip(line, widths, right, strict=True):
        yield cell.rjust(width) if to_the_right else cell.ljust(width)


def folded(summary: str, body: str) -> str:
    """A part that shows `summary`, and `body`, which is Markdown, at a click.

    The summary is HTML, where a backslash escapes nothing.
    """
    plain = summary.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<details>\n<summary>{plain}</summary>\n\n{body}\n\n</details>"
