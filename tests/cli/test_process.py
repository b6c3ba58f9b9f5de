"""The real command, in a process of its own: streams, signals, terminals and imports."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sdpa_check
from sdpa_check.cli.app import COMMANDS
from sdpa_check.engine import available_cores

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [sys.executable, "-m", "sdpa_check"]
LONG = "variance --dk 64 --samples 1e12 --jobs 2 --out here"
SMALL = "variance --dk 4 --dist rademacher --samples 4096 --no-save"
ANSI = "\x1b["
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX signals, pipes and terminals")


@pytest.fixture(scope="module")
def plain():
    """What `SMALL` writes to a pipe."""
    done = subprocess.run([*COMMAND, *SMALL.split()], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (4, b"")
    return done.stdout.decode()


def test_the_first_example_confirms_everything(command, tmp_path):
    # Every prediction is true and the sample size is planned so that each of the rows ends
    # inconclusive with probability below 1e-3; refuted ones are rarer than 1e-6 in all.
    result = command("variance --dk 64 --format json --no-plot")
    record = result.record()
    assert (result.code, record["outcome"]) == (0, "as expected")
    assert {row["verdict"] for row in record["rows"]} == {"confirmed"}
    predicted = {row["quantity"]: row["prediction"]["value"] for row in record["rows"]}
    assert predicted["dot.mean"] == 0
    assert predicted["dot.variance"] == pytest.approx(64, rel=1e-12)
    assert predicted["dot.std"] == pytest.approx(8, rel=1e-12)
    assert predicted["dot.excess_kurtosis"] == pytest.approx(0.09375, rel=1e-12)
    assert predicted["logit.variance"] == pytest.approx(1, rel=1e-12)
    assert result.err == f"files: {Path('outputs/variance')}\n"
    assert (tmp_path / "outputs/variance/run.json").read_text("utf-8") == result.out


def test_version(command):
    result = command("--version")
    assert (result.code, result.err) == (0, "")
    assert result.out == f"sdpa-check {sdpa_check.__version__}\n"


def examples(text: str) -> list[str]:
    """The lines of a help text that can be typed."""
    return re.findall(r"^ +sdpa-check (\w+ .+)$", text, re.MULTILINE)


@pytest.mark.parametrize("line", ["", "variance", "saturation"])
def test_help(command, line):
    result = command(f"{line} --help")
    assert (result.code, result.err) == (0, "")
    assert ANSI not in result.out
    assert len(examples(result.out)) == 2
    for name in ("--dk", "--scale", "--seed", "--out") if line else ("variance", "saturation"):
        assert name in result.out


@pytest.mark.parametrize("line", ["", *COMMANDS])
def test_help_of_every_command_shows_two_examples(invoke, line):
    result = invoke(f"{line} -h")
    assert (result.code, result.err) == (0, "")
    shown = examples(result.out)
    assert len(shown) == 2
    assert all(example.startswith(line) for example in shown)


@pytest.mark.parametrize("line", ["", "variance", "saturation"])
def test_the_examples_of_the_help_are_valid(invoke, line):
    for example in examples(invoke(f"{line} -h").out):
        assert invoke(f"{example} --samples 4096 --tolerance 0.5 --no-save").code in (0, 4)


def test_no_command_shows_the_help_and_is_wrong_usage(command):
    result = command("")
    assert result.code == 2
    assert "variance" in result.out + result.err


@pytest.mark.parametrize(
    "variables", [{"TERM": "xterm-256color"}, {"NO_COLOR": "1"}, {"COLUMNS": "60"}]
)
def test_a_pipe_gets_the_same_plain_text_everywhere(command, plain, variables):
    result = command(SMALL, **variables)
    assert (result.code, result.err) == (4, "")
    assert ANSI not in result.out
    assert result.out == plain


@pytest.mark.parametrize("name", ["ascii", "cp1252"])
def test_a_pipe_gets_utf8_whatever_the_locale(command, plain, name):
    result = command(SMALL, PYTHONIOENCODING=name, LC_ALL="C", PYTHONUTF8="0")
    assert (result.code, result.err) == (4, "")
    assert result.out == plain
    assert not result.out.isascii()


@posix
class TestClosedPipe:
    """`| head -1`: no traceback, files and the exit code as ever."""

    LINES = (
        ("variance --dk 4 --dist rademacher --samples 4096 --no-plot", 4),
        ("variance --dk 4 --dist rademacher --samples 4096 --no-plot --format json", 4),
        ("variance --dk 4 --tolerance 0.5 --samples 1e5 --no-plot", 0),
        ("--help", 0),
        ("variance --help", 0),
        ("--version", 0),
    )

    @pytest.mark.parametrize(("line", "code"), LINES)
    def test_a_reader_that_is_gone(self, tmp_path, line, code):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*COMMAND, *line.split()],
            check=False,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
        )
        os.close(writer)
        directory = Path("outputs/variance")
        assert done.stderr.decode() == (f"files: {directory}\n" if "samples" in line else "")
        assert done.returncode == code
        assert directory.exists() == ("samples" in line)

    BOTH = (
        ("variance --dk 4 --dist rademacher --samples 4096 --no-plot", 4),
        ("variance --dk 4 --dist rademacher --samples 4096 --no-plot --stderr junit", 4),
        ("variance --dk 0", 2),
        ("varianse", 2),
        ("claims list", 0),
        ("claims", 2),
        ("", 2),
    )

    @pytest.mark.parametrize(("line", "code"), BOTH)
    @pytest.mark.parametrize("ends", ["2>&1 | true", "2> >(true) | true", "2> >(true) >table"])
    def test_both_streams(self, line, code, ends):
        whole = " ".join([*COMMAND, line, ends])
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", whole], check=False, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
        assert Path("outputs/variance").exists() == ("samples" in line)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
    @pytest.mark.parametrize(("line", "code"), [BOTH[0], BOTH[2]])
    def test_what_stderr_cannot_take_is_lost(self, line, code):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*COMMAND, *line.split()],
                check=False,
                stdout=subprocess.PIPE,
                stderr=full,
                timeout=60,
            )
        assert done.returncode == code

    def test_head(self, tmp_path):
        line = " ".join([*COMMAND, "saturation --dk 4 --keys 8 --samples 4096 --format json"])
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{line} --no-plot | head -1"],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (4, "{\n")
        assert done.stderr == f"files: {Path('outputs/saturation')}\n"

    @pytest.mark.parametrize("closed", [">&-", "2>&-"])
    def test_a_stream_closed_from_the_start(self, closed):
        line = " ".join([*COMMAND, SMALL])
        done = subprocess.run(
            ["bash", "-c", f"{line} {closed}"], check=False, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (4, b"")


@posix
class TestInterrupt:
    """Ctrl-C: exit code 130, nothing half-written; `test_stopping` says what is written."""

    @staticmethod
    @contextmanager
    def started(*options: str) -> Iterator[subprocess.Popen[str]]:
        """A run of hours that has begun to sample; it ends with the test, whatever happens."""
        with subprocess.Popen(
            [*COMMAND, *LONG.split(), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
                deadline = time.monotonic() + 60
                while len(children.read_text().split()) < 2:  # two that sample
                    assert time.monotonic() < deadline
                    assert process.poll() is None
                    time.sleep(0.01)
                yield process
            finally:
                process.kill()

    def test_exit_code_line_and_files(self, command):
        if not Path(f"/proc/self/task/{os.getpid()}/children").exists() or available_cores() < 2:
            pytest.skip("needs /proc to see when two processes begin to sample")
        assert (
            command("variance --dk 4 --dist rademacher --samples 4096 --no-plot --out here").code
            == 4
        )
        before = {path.name: path.read_bytes() for path in Path("here").iterdir()}
        with self.started() as process:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 130
        after = {path.name: path.read_bytes() for path in Path("here").iterdir()}
        if "partial.npz" in after:  # some blocks were finished
            assert err == "stopped: what was measured is in here, --resume goes on\n"
            assert after.keys() == before.keys() | {"partial.npz"}
            assert json.loads(after["run.json"])["outcome"] == "stopped"
        else:
            assert (out, err) == (
                "",
                "error: interrupted; nothing was measured, files are as they were\n",
            )
            assert after == before

    def test_a_second_interrupt_shows_no_traceback_either(self):
        if not Path(f"/proc/self/task/{os.getpid()}/children").exists() or available_cores() < 2:
            pytest.skip("needs /proc to see when two processes begin to sample")
        with self.started() as process:
            process.send_signal(signal.SIGINT)
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        assert process.returncode in (130, -signal.SIGINT)
        assert "Traceback" not in err
        whole = {"run.json", "table.csv", "table.md", "partial.npz"}
        assert not Path("here").exists() or {p.name for p in Path("here").iterdir()} == whole


@posix
class TestTerminal:
    """Colours and widths on a terminal, which the tests of a pipe are held against."""

    @staticmethod
    def shown(line: str, **variables: str) -> str:
        """What a command writes to a terminal, as one text."""
        import pty

        ours, theirs = pty.openpty()
        environment = os.environ | {"TERM": "xterm-256color"} | variables
        process = subprocess.Popen(
            [*COMMAND, *line.split()], stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        parts = []
        with suppress(OSError):  # EIO: the other side is closed
            while part := os.read(ours, 1 << 16):
                parts.append(part)
        os.close(ours)
        assert process.wait(timeout=60) == 4
        return b"".join(parts).decode().replace("\r\n", "\n")

    def test_colours_on_a_terminal_only(self, plain):
        text = self.shown(SMALL, COLUMNS="100")
        assert ANSI in text
        stripped = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in text.splitlines()]
        assert stripped == plain.splitlines()

    @pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
    def test_no_colours_where_they_are_not_wanted(self, plain, variables):
        assert self.shown(SMALL, COLUMNS="100", **variables) == plain

    def test_a_narrow_terminal(self):
        text = self.shown(SMALL, COLUMNS="60", NO_COLOR="1")
        assert max(len(line) for line in text.splitlines()) <= 60
        assert "dot.variance" in text.replace("\n", "")


class TestImports:
    """Heavy packages are imported where they are needed only, so that the rest starts at once."""

    HEAVY = ("numpy", "scipy", "scipy.stats", "scipy.special", "matplotlib", "rich")

    def imported(self, statement: str) -> set[str]:
        """Which of the heavy packages a new interpreter has imported after `statement`."""
        found = f"*(name for name in {self.HEAVY!r} if name in sys.modules)"
        code = f"import sys\n{statement}\nprint({found})"
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
        )
        return set(done.stdout.splitlines()[-1].split())

    def after(self, *arguments: str) -> set[str]:
        return self.imported(f"from sdpa_check.cli import run\nrun({list(arguments)!r})")

    @pytest.mark.parametrize("line", ["--help", "--version", "variance --help", "saturation -h"])
    def test_help_needs_none(self, line):
        assert not self.after(*line.split())

    def test_the_first_example_needs_no_scipy_and_no_matplotlib(self):
        assert self.after("variance", "--dk", "64", "--no-plot") == {"numpy", "rich"}

    def test_saturation_needs_special_functions_at_most(self):
        found = self.after("saturation", "--samples", "4096", "--no-plot")
        assert found <= {"numpy", "rich", "scipy", "scipy.special"}

    def test_plots_need_matplotlib(self):
        # the control of the tests above: the names are the right ones
        statement = "import matplotlib, scipy.stats, scipy.special, rich"
        assert self.imported(statement) == set(self.HEAVY)

    def test_the_package_alone_needs_none(self):
        assert not self.imported("import sdpa_check\nsdpa_check.__version__")
        assert not self.imported("import sdpa_check\nsdpa_check.Fault, sdpa_check.Run")
