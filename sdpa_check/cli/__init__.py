"""The command line: one file per group of commands, options declared once, exit codes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from sdpa_check.errors import SdpaCheckError
from sdpa_check.verdict import EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_CRASH, EXIT_INTERRUPTED = 1, 130
_INTERRUPTED = "interrupted; nothing is half-written"


def run(arguments: Sequence[str]) -> int:
    """Run one command; no traceback reaches the user unless ``--debug`` is among the arguments."""
    from sdpa_check.cli.app import app

    debug = "--debug" in arguments
    try:
        code = app(args=list(arguments), prog_name="sdpa-check", standalone_mode=False)
        sys.stdout.flush()
    except SdpaCheckError as error:
        if debug:
            raise
        return _fail(str(error), EXIT_USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(_INTERRUPTED, EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if hasattr(error, "format_message"):  # a ClickException, whichever click typer carries
            return _fail(_usage_line(error), EXIT_USAGE)
        if debug:
            raise
        what = f"internal error: {type(error).__name__}: {error}"
        return _fail(f"{what}; --debug shows where. Please report it", EXIT_CRASH)
    if code == EXIT_INTERRUPTED:  # typer turns Ctrl-C into this code
        return _fail(_INTERRUPTED, EXIT_INTERRUPTED)
    return int(code or 0)


def _usage_line(error: Exception) -> str:
    """A usage error of typer's in one line, with the command that explains more."""
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "sdpa-check")
    message = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
    return f"{message.rstrip('.')}; see {command} --help"


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return code
