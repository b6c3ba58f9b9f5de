"""The progress bar: on a terminal, on stderr, and for a run that takes a while."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from sdpa_check import estimates
from sdpa_check.cli.output import Progress

if TYPE_CHECKING:
    from sdpa_check.records import Estimate


class Screen(io.StringIO):
    """A stderr that may be a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def screen(monkeypatch):
    def put(*, terminal: bool) -> Screen:
        stream = Screen(terminal)
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return put


def advanced(*, quiet: bool) -> None:
    progress = Progress(quiet=quiet)
    for done in (1, 5, 10):
        progress("d_k=64", done, 10, lambda: None)
    progress("d_k=512, m=8", 3, 10, lambda: None)
    progress.close()


def test_a_long_run_on_a_terminal_shows_every_design(screen, monkeypatch):
    monkeypatch.setattr(Progress, "PATIENCE", 0)
    stream = screen(terminal=True)
    advanced(quiet=False)
    assert "d_k=64" in stream.getvalue()
    assert "d_k=512, m=8" in stream.getvalue()


def test_the_number_so_far_is_shown_and_seldom_asked_for(screen, monkeypatch):
    monkeypatch.setattr(Progress, "PATIENCE", 0)
    stream, asked = screen(terminal=True), []

    def current(value: float) -> tuple[str, Estimate]:
        asked.append(value)
        return "dot.variance", estimates.with_error(value, 0.03, 64, 64)

    progress = Progress(quiet=False)
    monkeypatch.setattr(progress, "PERIOD", 3600)
    progress("d_k=64", 1, 100, lambda: None)
    for done in range(2, 100):
        progress("d_k=64", done, 100, lambda done=done: current(64 + done))
    progress("d_k=65", 2, 100, lambda: current(65))
    progress.close()
    assert asked[1:] == [65]
    assert asked[0] >= 66
    assert f"d_k=64  dot.variance {asked[0]:.3f} ± 0.030" in stream.getvalue()
    assert "d_k=65  dot.variance 65.000 ± 0.030" in stream.getvalue()


@pytest.mark.parametrize(
    ("terminal", "quiet", "patience"), [(False, False, 0), (True, True, 0), (True, False, 3600)]
)
def test_no_bar_for_a_pipe_or_where_quiet_or_soon_over(
    screen, monkeypatch, terminal, quiet, patience
):
    monkeypatch.setattr(Progress, "PATIENCE", patience)
    stream = screen(terminal=terminal)
    advanced(quiet=quiet)
    assert stream.getvalue() == ""


def test_the_bar_is_taken_down_when_the_run_fails(screen, monkeypatch, capsys, invoke):
    monkeypatch.setattr(Progress, "PATIENCE", 0)
    closed = []
    close = Progress.close
    monkeypatch.setattr(Progress, "close", lambda self: (closed.append(True), close(self)))

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sdpa_check.experiment.run", interrupt)
    assert invoke("variance --dk 4 --no-save").code == 130
    assert closed == [True]


def test_a_study_reports_every_block_of_every_design(invoke, monkeypatch):
    seen: dict[str, list[tuple[int, int]]] = {}
    monkeypatch.setattr(
        Progress,
        "__call__",
        lambda _, label, done, total, __: seen.setdefault(label, []).append((done, total)),
    )
    invoke("saturation --dk 4 --keys 2,8 --scale sqrt --samples 4096 --no-save")
    assert list(seen) == ["d_k=4, m=2", "d_k=4, m=8"]
    for steps in seen.values():
        assert [done for done, _ in steps] == sorted({done for done, _ in steps})
        assert steps[-1][0] == steps[-1][1]
