"""What a measuring command does around its study: stdout, files, progress, exit code."""

from __future__ import annotations

import sys
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from sdpa_check.cli.options import FORMATS, Output
from sdpa_check.cli.stopping import StoppedRun, discard, stoppable, tell
from sdpa_check.errors import ClusterWarning, InputError, LostWorkersError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rich.progress import Progress as Bar

    from sdpa_check.checkpoint import Checkpoint
    from sdpa_check.checks import Current
    from sdpa_check.inputs import Options
    from sdpa_check.records import Estimate, Run
    from sdpa_check.report.figures import Figure
    from sdpa_check.studies.study import Study

FIGURES = "figures.json"
RECORD = {"run.json": "json", "table.csv": "csv", "table.md": "md"}
"""The files of every run, and the format of each."""


def report(
    command: str,
    options: Output,
    compute: Callable[[Options], Study],
    figures: Callable[[Study], dict[str, Figure]] | None = None,
    more: Mapping[str, str] | None = None,
) -> None:
    """Compute a study, show it, save it, draw its figures, and leave with its exit code.

    The table stands on the screen and the record on the disk before any plotting starts. A run that
    is stopped is shown and saved as far as it came, with all that a later one needs to go on.

    Raises:
        StoppedRun: the run was stopped, but some of it was measured.
    """
    check_format("--format", options.format)
    if options.stderr is not None:
        check_format("--stderr", options.stderr)
    directory = options.out or Path("outputs") / command
    if options.save:
        from sdpa_check.checkpoint import FILE
        from sdpa_check.report.save import check_writable

        check_writable(directory)
        _check_names(directory, (*RECORD, *(more or {}), FIGURES, FILE))
    with stoppable():
        checkpoint = _checkpoint(directory, options)
        with _warnings(quiet=options.quiet):
            study = _computed(compute, checkpoint, directory, options)
        show(study.run, options.format, sys.stdout)
        if options.stderr is not None:
            show(study.run, options.stderr, sys.stderr)
        if options.save:
            save_run(directory, study.run, more or {}, checkpoint)
        if study.run.stopped:
            kept = _kept(directory) if options.save else "nothing is kept: --no-save"
            raise StoppedRun(kept, quiet=options.quiet)
        if options.save and options.plot and figures is not None:
            save_figures(directory, figures(study), study.inputs.settings.jobs)
        if options.save and not options.quiet:
            tell(f"files: {directory}")
    raise typer.Exit(study.run.exit_code)


def _check_names(directory: Path, names: Iterable[str]) -> None:
    """Make sure that no folder stands where a file is to be written."""
    for name in names:
        if (directory / name).is_dir():
            raise InputError("--out", str(directory / name), "a file or nothing there", "a folder")


def _checkpoint(directory: Path, options: Output) -> Checkpoint:
    """What the run starts from: nothing, or with ``--resume`` what a stopped one has left."""
    from sdpa_check import checkpoint

    advice = "--resume goes on" if options.save else ""
    if options.resume:
        return checkpoint.load(directory / checkpoint.FILE, advice)
    return checkpoint.Checkpoint(advice)


def _computed(
    compute: Callable[[Options], Study], checkpoint: Checkpoint, directory: Path, options: Output
) -> Study:
    """The study; where it ends without one, its checkpoint is saved before the error goes on."""
    progress = Progress(quiet=options.quiet)
    try:
        return compute({"progress": progress, "checkpoint": checkpoint})
    except (KeyboardInterrupt, LostWorkersError) as error:
        if checkpoint.empty or not options.save:
            raise
        from sdpa_check.checkpoint import FILE
        from sdpa_check.report.save import save

        save(directory, {FILE: checkpoint.dumps()})
        if isinstance(error, KeyboardInterrupt):  # while rows were judged
            raise StoppedRun(_kept(directory), quiet=options.quiet) from error
        raise LostWorkersError(f"{error}; {_kept(directory)}") from error
    finally:
        progress.close()


def _kept(directory: Path) -> str:
    return f"what was measured is in {directory}, --resume goes on"


@contextmanager
def _warnings(*, quiet: bool) -> Iterator[None]:
    """Tell a warning in one line on stderr, without the place in the code that it comes from."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        tell(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "always", ClusterWarning)
        warnings.showwarning = show
        yield


def check_format(option: str, form: str) -> None:
    """Refuse a format that does not exist.

    Raises:
        InputError: naming the nearest one.
    """
    if form not in FORMATS:
        raise unknown_name(option, form, FORMATS)


def show(run: Run, form: str, stream: TextIO) -> None:
    """Write the run to a stream, and nothing else."""
    try:
        if form == "table":
            from sdpa_check.report.table import show as show_table

            show_table(run, stream)
        else:
            stream.write(rendered(run, form))
        stream.flush()
    except BrokenPipeError:
        discard(stream)


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


def save_run(directory: Path, run: Run, more: Mapping[str, str], checkpoint: Checkpoint) -> None:
    """Write run.json, the tables, the files that `more` gives a format, and what a partial run has.

    Figures of an earlier run would belie them and are removed; so is what a stopped one has left.
    """
    from sdpa_check.checkpoint import FILE
    from sdpa_check.report.save import save

    names = RECORD | dict(more)
    files: dict[str, bytes | str] = {name: rendered(run, form) for name, form in names.items()}
    if run.stopped:
        files[FILE] = checkpoint.dumps()
    save(directory, files)
    if not run.stopped:
        with suppress(OSError):
            (directory / FILE).unlink(missing_ok=True)
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


def save_figures(directory: Path, figures: dict[str, Figure], jobs: int | None) -> None:
    """Write every figure as PNG and SVG, and figures.json from which they can be drawn again.

    Several are drawn side by side, by workers that have matplotlib from this process.
    """
    from sdpa_check import engine
    from sdpa_check.report import plots
    from sdpa_check.report.figures import to_json
    from sdpa_check.report.save import save

    files: dict[str, bytes | str] = {FIGURES: to_json(figures)}
    plots.load()
    drawn = engine.side_by_side(plots.render, list(zip(figures.values())), jobs)
    for name, found in zip(figures, drawn, strict=True):
        files |= {f"{name}.{kind}": data for kind, data in found.items()}
    save(directory, files)


class Progress:
    """A progress bar on stderr: on a terminal only, and only for a run that takes a while.

    It is that of the design under way, with its number so far.
    """

    PATIENCE = 0.7
    PERIOD = 1.0  # seconds between two estimates, or as many as keep their cost below 1/SHARE
    SHARE = 10
    REDRAWN = 0.1  # seconds between two looks of the bar alone

    def __init__(self, *, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._start = time.perf_counter()
        self._bar: Bar | None = None
        self._last = ("", 0)
        self._due = self._drawn = 0.0

    def __call__(self, label: str, done: int, total: int, current: Current) -> None:
        """Note that `done` of `total` blocks of the design `label` are finished."""
        now = time.perf_counter()
        if not self._shown or now - self._start < self.PATIENCE:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress as Bar

            from sdpa_check.report import rows  # noqa: F401 - else the first number pays for it

            # It draws when it is told to: with a thread of its own no worker could be forked.
            self._bar = Bar(console=Console(stderr=True), transient=True, auto_refresh=False)
            self._task = self._bar.add_task("", total=None)
            self._bar.start()
        before, self._last = self._last, (label, done)
        if label != before[0] or done <= before[1]:
            self._bar.reset(self._task, total=total, completed=done, description=label)
            self._due = 0.0
        if now < self._due:
            redraw = now - self._drawn > self.REDRAWN
            self._drawn = now if redraw else self._drawn
            self._bar.update(self._task, completed=done, refresh=redraw)
            return
        found = current()
        spent = time.perf_counter() - now
        self._due = now + (max(self.PERIOD, self.SHARE * spent) if found else spent)
        text = f"{label}  {_worded(found)}".rstrip()
        self._bar.update(self._task, completed=done, description=text, refresh=True)

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()


def _worded(found: tuple[str, Estimate] | None) -> str:
    """``dot.variance 64.02 ± 0.03``."""
    if found is None:
        return ""
    from sdpa_check.report.rows import rounded

    name, estimate = found
    return f"{name} {rounded(estimate.value, estimate.se)}"
