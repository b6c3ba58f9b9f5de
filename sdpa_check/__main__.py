"""The `sdpa-check` command, also as ``python -m sdpa_check``."""

from __future__ import annotations

import io
import os
import signal
import sys

_BLAS_THREADS = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def main() -> None:
    """Run the command line and exit with its code."""
    # Before numpy is loaded: blocks run in threads, each with a BLAS of one thread. Two levels of
    # threads would compete for the cores, and only a single-threaded BLAS gives the same bits.
    os.environ.update(dict.fromkeys(_BLAS_THREADS, "1"))
    _open_streams()
    try:
        from sdpa_check.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before the command line could take it
        code = 130
    if code == 130:  # a second Ctrl-C, while Python ends, is not to change what the first one did
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _open_streams() -> None:
    """Make sure that every text can be written: σ and √ stand in tables, and not in every encoding.

    A pipe or a file gets UTF-8, as run.json does, whatever the locale; a terminal a ? for a sign
    that it does not have.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started the command
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")


if __name__ == "__main__":
    main()
