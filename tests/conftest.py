"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure():
    """Let what tests start hear Ctrl-C: a job in the background of a shell ignores it, and so would
    every process that is started here.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
