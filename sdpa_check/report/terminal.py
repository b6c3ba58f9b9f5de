"""What the renderers for the terminal share: the console, prose within a width, styles."""

from __future__ import annotations

import re
import shutil
import textwrap
from typing import TYPE_CHECKING, TextIO

from sdpa_check.records import Outcome
from sdpa_check.report import rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import StringIO

    from rich.console import Console

    from sdpa_check.records import Row

PIPE_WIDTH = 100
"""Columns where there is no terminal: the same text in every log."""

PROSE = 100
"""Longer lines are hard to read."""

OUTCOME_STYLES = {0: "bold green", 3: "bold red", 4: "bold yellow", 130: "bold yellow"}
"""The style of the outcome by exit code."""

_BOND = re.compile(r" (?=[±%])|(?<=±) ")
"""Where prose may not be cut: 0.31 ± 0.02, 95 %."""


def width_of(stream: TextIO) -> int:
    """The columns of a terminal, and where there is none those of every pipe."""
    if not stream.isatty():
        return PIPE_WIDTH
    return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns


def console(stream: TextIO, width: int, *, color: bool) -> Console:
    """A console that writes `width` columns to `stream` and changes no text on its own."""
    from rich.console import Console

    return Console(
        file=stream,
        width=width,
        force_terminal=color,
        force_jupyter=False,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )


def finished(stream: StringIO) -> str:
    """What was written, without blanks at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def write(to: Console, text: str, width: int, *, style: str = "", hang: str = "") -> None:
    """Write prose, broken at spaces, with `hang` before every line but the first."""
    from rich.text import Text

    lines = wrapped(text, width, hang=hang)
    to.print(Text("\n".join(lines), style=style), soft_wrap=True)


def wrapped(text: str, width: int, *, hang: str = "") -> list[str]:
    """The lines of a prose text; a number is not parted from its error or its unit."""
    lines = textwrap.wrap(
        _BOND.sub("\u00a0", text),
        width,
        subsequent_indent=hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]


def style(row: Row) -> str:
    """The style of a verdict."""
    if row.verdict is Outcome.INCONCLUSIVE:
        return "yellow"
    if not rows.as_expected(row):
        return "bold red"
    return "cyan" if row.verdict in (Outcome.UNDEFINED, Outcome.NOT_RUN) else "green"


def aligned(texts: Sequence[str], mark: str) -> list[str]:
    """The texts of a column with `mark` below `mark`."""
    parts = [text.partition(mark) for text in texts]
    heads = max((len(head) for head, _, _ in parts), default=0)
    return [head.rjust(heads) + sign + tail for head, sign, tail in parts]
