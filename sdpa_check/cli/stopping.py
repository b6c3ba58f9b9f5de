"""What comes from outside while a command runs, and is not to end it too soon.

Of Ctrl-C and SIGTERM the first ends the sampling, those after it wait until all is saved; a reader
that goes early, `head` say, ends neither the saving of files nor the exit code.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class StoppedRun(Exception):  # noqa: N818 - what it reports is no error
    """A run was stopped; the message says what of it is kept, unless it is to be quiet."""

    def __init__(self, kept: str, *, quiet: bool) -> None:
        self.quiet = quiet
        super().__init__(kept)


@contextmanager
def stoppable() -> Iterator[None]:
    """A context in which the first Ctrl-C or SIGTERM raises KeyboardInterrupt, and no later one.

    What was measured in hours would be lost if a second signal ended the saving of it.
    """
    before: dict[signal.Signals, Any] = {}
    stopped = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():  # others get no signals
        for each in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(each)
            # One that is ignored, as under nohup, stays so.
            if handler not in (signal.SIG_IGN, None):
                before[each] = handler
                signal.signal(each, stop)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def write(stream: TextIO, text: str) -> None:
    """Write a text at once, whether or not someone still reads it."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        discard(stream)


def tell(line: str) -> None:
    """Write a line to stderr; there is no place to say that this was not possible."""
    try:
        write(sys.stderr, f"{line}\n")
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Send what is still to be written nowhere: Python would try again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
