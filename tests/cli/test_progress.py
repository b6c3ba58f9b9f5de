"""The progress bar: on a terminal, on stderr, and for a run that takes a while."""

from __future__ import annotations

import io

import pytest

from sdpa_check.cli.output import Progress


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
        progress("d_k=64", done, 10)
    progress("d_k=512, m=8", 3, 10)
    progress.close()


def test_a_long_run_on_a_terminal_shows_every_design(screen, monkeypatch):
    monkeypatch.setattr(Progress, "PATIENCE", 0)
    stream = screen(terminal=True)
    advanced(quiet=False)
    assert "d_k=64" in stream.getvalue()
    assert "d_k=512, m=8" in stream.getvalue()


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
        lambda _, label, done, total: seen.setdefault(label, []).append((done, total)),
    )
    invoke("saturation --dk 4 --keys 2,8 --scale sqrt --samples 4096 --no-save")
    assert list(seen) == ["d_k=4, m=2", "d_k=4, m=8"]
    for steps in seen.values():
        assert [done for done, _ in steps] == sorted({done for done, _ in steps})
        assert steps[-1][0] == steps[-1][1]
