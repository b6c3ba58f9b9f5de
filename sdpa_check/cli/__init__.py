"""The command line: one file per group of commands, options declared once, exit codes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from sdpa_check.cli.stopping import StoppedRun, discard, tell
from sdpa_check.errors import (
    EXIT_CRASH,
    EXIT_STOPPED,
    EXIT_USAGE,
    LostWorkersError,
    SdpaCheckError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Run one command; no traceback reaches the user unless ``--debug`` is among the arguments."""
    from sdpa_check.cli.app import app

    try:
        code = app(args=list(arguments), prog_name="sdpa-check", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # typer turns the former into the latter
        discard(sys.stdout)
        return 0
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_STOPPED
    except StoppedRun as stopped:
        if not stopped.quiet:
            tell(f"stopped: {stopped}")
        return EXIT_STOPPED
    except Exception as error:
        message, code = _explained(error)
        if "--debug" in arguments and code != EXIT_USAGE:
            raise
        return _fail(message, code)
    if code == EXIT_STOPPED:  # typer turns Ctrl-C into this code
        return _fail("interrupted; nothing was measured, files are as they were", code)
    return int(code or 0)


def _explained(error: Exception) -> tuple[str, int]:
    """One line for the user, and the exit code."""
    if isinstance(error, LostWorkersError):
        return str(error), EXIT_CRASH
    if isinstance(error, SdpaCheckError):
        return str(error), EXIT_USAGE
    if hasattr(error, "format_message"):  # a ClickException, whichever click typer carries
        return _usage_line(error), EXIT_USAGE
    if isinstance(error, OSError):
        return f"cannot read or write: {error}", EXIT_USAGE
    what = f"internal error: {type(error).__name__}: {error}"
    return f"{what}; --debug shows where. Please report it", EXIT_CRASH


def _usage_line(error: Exception) -> str:
    """A usage error of typer's in one line, with the command that explains more."""
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "sdpa-check")
    message = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
    return f"{message.rstrip('.')}; see {command} --help"


def _fail(message: str, code: int) -> int:
    tell(f"error: {' '.join(message.split())}")
    return code
