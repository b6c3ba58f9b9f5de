"""What a measuring command does around its study: stdout, files, progress, exit code."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from sdpa_check.cli.options import FORMATS, Output
from sdpa_check.errors import InputError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from sdpa_check.inputs import Options
    from sdpa_check.records import Run
    from sdpa_check.report.figures import Figure
    from sdpa_check.studies.study import Study

FIGURES = "figures.json"


def report(
    command: str,
    options: Output,
    compute: Callable[[Options], Study],
    figures: Callable[[Study], dict[str, Figure]] | None = None,
    more: Mapping[str, str] | None = None,
) -> None:
    """Compute a study, show it, save it, draw its figures, and leave with its exit code.

    The table stands on the screen and the record on the disk before any plotting starts.
    """
    check_format("--format", options.format)
    if options.stderr is not None:
        check_format("--stderr", options.stderr)
    directory = options.out or Path("outputs") / command
    if options.save:
        from sdpa_check.report.save import check_writable

        check_writable(directory)
    progress = Progress(quiet=options.quiet)
    try:
        study = compute({"progress": progress})
    finally:
        progress.close()
    show(study.run, options.format, sys.stdout)
    if options.stderr is not None:
        show(study.run, options.stderr, sys.stderr)
    if options.save:
        save_run(directory, study.run, more or {})
        if options.plot and figures is not None:
            save_figures(directory, figures(study))
        if not options.quiet:
            sys.stderr.write(f"files: {directory}\n")
    raise typer.Exit(study.run.exit_code)


def check_format(option: str, form: str) -> None:
    """Refuse a format that does not exist.

    Raises:
        InputError: naming the nearest one.
    """
    if form not in FORMATS:
        raise unknown_name(option, form, FORMATS)


def show(run: Run, form: str, stream: TextIO) -> None:
    """Write the run to a stream, and nothing else.

    A reader that goes early, `head` say, ends neither the saving of files nor the exit code.
    """
    try:
        if form == "table":
            from sdpa_check.report.table import show as show_table

            show_table(run, stream)
        else:
            stream.write(rendered(run, form))
        stream.flush()
    except BrokenPipeError:
        discard_stdout()


def discard_stdout() -> None:
    """Send what is still to be written to a closed pipe nowhere: Python flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def rendered(run: Run, form: str) -> str:
    """The run as json, csv, md or junit."""
    if form == "json":
        from sdpa_check.report.record import dumps

        return dumps(run)
    if form == "junit":
        from sdpa_check.report.junit import junit

        return junit(run)
    from sdpa_check.report import text

    return text.csv(run) if form == "csv" else text.markdown(run)


def save_run(directory: Path, run: Run, more: Mapping[str, str]) -> None:
    """Write run.json, the tables, and the files that `more` gives a format.

    Figures of an earlier run would belie them and are removed.
    """
    from sdpa_check.report.save import save

    names = {"run.json": "json", "table.csv": "csv", "table.md": "md", **more}
    save(directory, {name: rendered(run, form) for name, form in names.items()})
    _remove_figures(directory)


def _remove_figures(directory: Path) -> None:
    """Remove the figures that figures.json names, and no other pictures: they may be anyone's."""
    from sdpa_check.report.figures import from_json

    index = directory / FIGURES
    if not index.exists():
        return
    with suppress(InputError, OSError, UnicodeDecodeError):
        for name in from_json(index.read_text(encoding="utf-8"), str(index)):
            if Path(name).name == name:  # a picture beside its index, not elsewhere
                for kind in ("png", "svg"):
                    (directory / f"{name}.{kind}").unlink(missing_ok=True)
    with suppress(OSError):
        index.unlink(missing_ok=True)


def save_figures(directory: Path, figures: dict[str, Figure]) -> None:
    """Write every figure as PNG and SVG, and figures.json from which they can be drawn again."""
    from sdpa_check.report import plots
    from sdpa_check.report.figures import to_json
    from sdpa_check.report.save import save

    files: dict[str, bytes | str] = {FIGURES: to_json(figures)}
    for name, figure in figures.items():
        files |= {f"{name}.{kind}": data for kind, data in plots.render(figure).items()}
    save(directory, files)


class Progress:
    """A progress bar on stderr: on a terminal only, and only for a run that takes a while."""

    PATIENCE = 0.7

    def __init__(self, *, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._start = time.perf_counter()
        self._bar: Bar | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, label: str, done: int, total: int) -> None:
        """Note that `done` of `total` blocks of the design `label` are finished."""
        if not self._shown or time.perf_counter() - self._start < self.PATIENCE:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(stderr=True), transient=True)
            self._bar.start()
        if label not in self._tasks:
            self._tasks[label] = self._bar.add_task(label, total=total)
        self._bar.update(self._tasks[label], completed=done)

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()
