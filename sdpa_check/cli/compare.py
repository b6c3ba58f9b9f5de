"""`compare`: two saved runs, number by number."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sdpa_check.cli import output
from sdpa_check.cli.options import Format
from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from sdpa_check.records import Run


def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="run.json of the earlier run.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="run.json of the later run.")],
    *,
    form: Format = "table",
) -> None:
    """Show which numbers moved by more than their error bars; exit code 3 if any did.

    For example:

      sdpa-check compare baseline/run.json outputs/verify/run.json

      sdpa-check compare old new --format json
    """
    from sdpa_check.studies.compare import compare as compare_runs

    output.check_format("--format", form)
    run = compare_runs(read_run(old, "OLD"), read_run(new, "NEW"))
    output.show(run, form, sys.stdout)
    raise typer.Exit(run.exit_code)


def read_run(path: Path, where: str = "RUN") -> Run:
    """The record in a file, or in the run.json of a folder; `where` is what an error names.

    Raises:
        InputError: for a file that cannot be read or is no record of this schema.
    """
    from sdpa_check.report.record import loads

    file = path / "run.json" if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(where, str(path), f"a run.json or a folder with one ({reason})") from error
    return loads(text, str(file))
