"""A stopped run is shown and kept as far as it came; a resumed one ends as if it was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import sdpa_check
from sdpa_check.checkpoint import FILE, Checkpoint
from sdpa_check.cli.output import Progress
from sdpa_check.cli.stopping import stoppable
from sdpa_check.errors import LostWorkersError
from sdpa_check.report import record

RUN = {"run.json", "table.csv", "table.md"}
CLAIMS = """
[[claim]]
id = "W-1"
statement = "the variance is d_k"
quantity = "dot.variance"
params = { dk = 8 }
stated = 8
band = 3

[[claim]]
id = "W-2"
statement = "it grows with d_k"
quantity = "dot.variance_exponent"
params = { dk = [8, 16] }
stated = 1
band = 0.9

[[claim]]
id = "W-3"
statement = "the mean is 0"
quantity = "dot.mean"
params = { dk = 32 }
stated = 0
band = 9
"""

VARIANCE = "variance --dk 8,16,32 --samples 1048576 --no-plot --format json"
LINES = {
    "variance": VARIANCE,
    "saturation": "saturation --dk 4 --keys 4,8 --scale sqrt --samples 4096 --no-plot",
    "gradient": "gradient --dk 4 --keys 4 --scale none,sqrt --samples 4096 --no-plot",
    "ledger": "ledger --dk 8 --keys 8 --pipeline dot --pipeline rope --sort std --samples 4096 "
    "--no-plot",
    "verify": "verify claims.toml --samples 65536",
}


@pytest.fixture
def stop(monkeypatch):
    """Have the next run raise at the `at`-th sign of progress; 0 for never."""
    seen = Progress.__call__

    def at(number: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        calls = 0

        def count(self, *call):
            nonlocal calls
            calls += 1
            if calls == number:
                raise error("stopped by the test")
            seen(self, *call)

        monkeypatch.setattr(Progress, "__call__", count)

    Path("claims.toml").write_text(CLAIMS)
    return at


def saved(directory: str) -> dict[str, object]:
    """The record in a folder, without the block that may differ between equal runs."""
    found = json.loads((Path(directory) / "run.json").read_text())
    record.from_dict(found, "run.json")
    del found["environment"]
    return found


def names(directory: str) -> set[str]:
    return {path.name for path in Path(directory).iterdir()}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_resumed_run_ends_as_one_that_was_not_stopped(invoke, stop, line):
    whole = invoke(f"{line} --out whole")
    assert whole.code in (0, 3, 4)
    resume, stops = "", 0
    for at in (1, 30, 50, 40, 0):  # within a design and from one to the next
        stop(at)
        found = invoke(f"{line} --out here{resume}")
        resume = " --resume"
        if found.code != 130:
            break
        stops += 1
        assert found.err == "stopped: what was measured is in here, --resume goes on\n"
        assert FILE in names("here")
        assert (saved("here")["outcome"], saved("here")["exit_code"]) == ("stopped", 130)
    assert stops >= 3
    assert found.code == whole.code
    assert names("here") == names("whole")
    assert saved("here") == saved("whole")
    for name in ("table.csv", "table.md"):
        assert Path("here", name).read_bytes() == Path("whole", name).read_bytes()


def test_what_was_finished_is_not_sampled_again(invoke, stop, monkeypatch):
    stop(100)  # 64 blocks of the first design, and 36
    invoke(f"{VARIANCE} --out here")
    seen = []
    monkeypatch.setattr(Progress, "__call__", lambda _, *call: seen.append(call[:2]))
    invoke(f"{VARIANCE} --out here --resume")
    labels = [label for label, _ in seen]
    assert set(labels) == {"d_k=32", "d_k=8"}
    first = [done for label, done in seen if label == labels[0]]
    assert first == list(range(37, 65))


@pytest.mark.parametrize("at", [1, 2, 64, 65, 90, 130])
def test_what_a_stopped_run_says(invoke, stop, at):
    whole = {row["id"]: row for row in invoke(f"{VARIANCE} --out whole").record()["rows"]}
    stop(at)
    result = invoke(f"{VARIANCE} --out here")
    assert result.code == 130
    rows = result.record()["rows"]
    assert [row["id"] for row in rows] == list(whole)
    order = [16, 32, 8]  # in which designs are sampled
    for row in rows:
        same = whole[row["id"]]
        assert (row["params"], row["prediction"]) == (same["params"], same["prediction"])
        dks = row["params"]["dk"]
        last = max(order.index(dk) for dk in (dks if isinstance(dks, list) else [dks]))
        blocks = at - 64 * last
        if blocks > 64:
            assert row == same
        elif blocks >= 2:
            assert row["verdict"] == "inconclusive"
            assert row["reason"] == f"stopped after {blocks} of 64 blocks; --resume goes on"
            assert row["estimate"]["blocks"] in (blocks, blocks // 2)  # some take them in pairs
        else:
            assert (row["verdict"], row["estimate"]) == ("not run", None)
            want = "stopped after 1 of 64 blocks; --resume goes on"
            assert row["reason"] == (want if blocks == 1 else "stopped before it was sampled")


@pytest.mark.parametrize("form", ["table", "md", "csv", "junit"])
@pytest.mark.parametrize("line", ["variance", "saturation", "gradient", "ledger", "verify"])
def test_every_format_shows_that_a_run_was_stopped(invoke, stop, line, form):
    stop(84)  # in the second design
    text = invoke(f"{LINES[line].partition(' --format')[0]} --out here --format {form}").out
    assert "topped after 20 of 64 blocks" in text.replace("\n    ", " ").replace("\n  ", " ")
    if form in ("table", "md"):
        assert "stopped: " in text
        assert "This is a partial run" in text
    if form == "junit":
        errors = ET.XML(text).findall("testsuite/testcase/error")
        assert [each.get("type") for each in errors] == ["stopped"]
        assert ET.XML(text).find("testsuite").get("errors") == "1"


def test_a_finished_run_takes_the_state_away(invoke, stop):
    stop(70)
    invoke(f"{VARIANCE} --out here")
    stop(0)
    assert invoke(f"{VARIANCE} --out here").code in (0, 4)  # anew, without --resume
    assert names("here") == RUN


def test_figures_of_an_earlier_run_go_and_none_are_drawn(invoke, stop):
    here = Path("here")
    here.mkdir()
    (here / "figures.json").write_text("{}")
    stop(70)
    invoke(f"{VARIANCE.replace('--no-plot', '--plot')} --out here")
    assert names("here") == RUN | {FILE}


def test_a_quiet_run_is_stopped_without_a_word(invoke, stop):
    stop(70)
    result = invoke(f"{VARIANCE} --out here --quiet")
    assert (result.code, result.err) == (130, "")
    assert names("here") == RUN | {FILE}


def test_nothing_is_kept_where_nothing_is_saved(invoke, stop, tmp_path):
    stop(70)
    result = invoke(f"{VARIANCE} --no-save")
    assert (result.code, result.err) == (130, "stopped: nothing is kept: --no-save\n")
    assert "stopped after 6 of 64 blocks" in {row["reason"] for row in result.record()["rows"]}
    assert {path.name for path in tmp_path.iterdir()} == {"claims.toml"}


def test_before_the_first_block_there_is_nothing_to_keep(invoke, stop, monkeypatch):
    invoke(f"{VARIANCE} --out here --seed 1")
    before = (Path("here") / "run.json").read_bytes()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sdpa_check.sampling.planned", interrupt)
    result = invoke(f"{VARIANCE} --out here")
    assert (result.code, result.out) == (130, "")
    assert result.err == "error: interrupted; nothing was measured, files are as they were\n"
    assert names("here") == RUN
    assert (Path("here") / "run.json").read_bytes() == before


def test_a_stop_while_the_next_design_is_planned(invoke, stop, monkeypatch):
    from sdpa_check import sampling

    planned, calls = sampling.planned, []

    def interrupt(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return planned(*arguments)

    monkeypatch.setattr(sampling, "planned", interrupt)
    rows = invoke(f"{VARIANCE} --out here").record()["rows"]
    verdicts = {(str(row["params"]["dk"]), row["verdict"]) for row in rows}
    assert ("16", "confirmed") in verdicts
    assert ("16", "not run") not in verdicts
    assert {verdict for dk, verdict in verdicts if dk != "16"} == {"not run"}


@pytest.mark.parametrize(
    ("option", "names_"),
    [
        ("--seed 5", "seed: got 5, want 0"),
        ("--dk 8", "dk: got [8], want [8, 16, 32]"),
        ("--samples 7e5", "samples: got 700000, want 1048576"),
        ("--tolerance 2%", "tolerance: got 0.02, want 0.01"),
        ("--scale none", "scale: got ['none'], want ['sqrt']"),
    ],
)
def test_another_command_is_refused_and_the_state_left_alone(invoke, stop, option, names_):
    stop(70)
    invoke(f"{VARIANCE} --out here")
    before = {path: path.read_bytes() for path in Path("here").iterdir()}
    name, value = option.split()
    line = [part for part in VARIANCE.split() if part not in ("--dk", "8,16,32")]
    base = ["--dk", "8,16,32"] if name != "--dk" else []
    result = invoke(" ".join([*line, *base, name, value, "--out here --resume"]))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"error: --resume: {names_}, as in the run that was stopped;")
    assert result.err.count("\n") == 1
    assert {path: path.read_bytes() for path in Path("here").iterdir()} == before


@pytest.mark.parametrize("name", ["version", "numpy"])
def test_another_version_is_refused(invoke, stop, monkeypatch, name):
    stop(70)
    invoke(f"{VARIANCE} --out here")
    where = {"version": "sdpa_check.__version__", "numpy": "numpy.__version__"}[name]
    monkeypatch.setattr(where, "0.0.1")
    result = invoke(f"{VARIANCE} --out here --resume")
    assert result.code == 2
    assert result.err.startswith(f"error: --resume: {name}: got '0.0.1', want ")


def test_changed_claims_are_refused(invoke, stop):
    stop(70)
    invoke(f"{LINES['verify']} --out here")
    Path("claims.toml").write_text(CLAIMS.replace("band = 9", "band = 8"))
    result = invoke(f"{LINES['verify']} --out here --resume")
    assert result.code == 2
    assert result.err.startswith("error: --resume: checks: got ")


@pytest.mark.parametrize("command", ["variance", "train"])
def test_there_must_be_something_to_resume(invoke, command):
    result = invoke(f"{command} --out here --resume")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith("error: --resume: got ")
    assert "there is no such file" in result.err
    assert not Path("here").exists()


def test_a_lost_cluster_leaves_the_state(invoke, stop):
    whole = invoke(f"{VARIANCE} --no-save").numbers()
    stop(70, LostWorkersError)
    result = invoke(f"{VARIANCE} --out here")
    assert (result.code, result.out) == (1, "")
    assert "what was measured is in here, --resume goes on" in result.err
    assert names("here") == {FILE}
    stop(0)
    assert invoke(f"{VARIANCE} --out here --resume").numbers() == whole


def test_stopped_runs_are_not_compared(invoke, stop):
    invoke(f"{LINES['verify']} --out old")
    stop(70)
    assert invoke(f"{LINES['verify']} --out new --baseline old").code == 130
    result = invoke("compare old new")
    assert result.code == 2
    assert result.err == ("error: NEW: outcome: got 'stopped', want a run that was not stopped\n")


class TestApi:
    """A program asks for partial runs; else an interrupt is an interrupt."""

    @staticmethod
    def interrupt(_label, done, _total, _current):
        if done == 30:
            raise KeyboardInterrupt

    def test_an_interrupt_reaches_the_caller(self):
        with pytest.raises(KeyboardInterrupt):
            sdpa_check.variance(dk=8, samples=1 << 16, jobs=1, progress=self.interrupt)

    def test_with_a_checkpoint_it_ends_in_a_partial_run(self):
        kept = Checkpoint()
        options = {"dk": 8, "samples": 1 << 16, "jobs": 1, "checkpoint": kept}
        run = sdpa_check.variance(**options, progress=self.interrupt)
        assert (run.stopped, run.exit_code, kept.stopped) == (True, 130, True)
        assert run.rows[1].reason == "stopped after 30 of 64 blocks"
        again = sdpa_check.variance(**options)
        assert again.rows == sdpa_check.variance(dk=8, samples=1 << 16, jobs=1).rows
        assert not again.stopped


BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("first", BOTH)
def test_only_the_first_signal_interrupts(first):
    before = [signal.getsignal(each) for each in BOTH]
    with stoppable():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(first)
        for each in BOTH:
            signal.raise_signal(each)
    assert [signal.getsignal(each) for each in BOTH] == before


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stoppable():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_interrupt_while_files_are_written_waits(invoke, stop, monkeypatch):
    from sdpa_check.report import save

    put, progress = save._put_in_place, Progress.__call__

    def put_slowly(pairs):
        for each in BOTH:
            signal.raise_signal(each)
        put(pairs)

    def interrupt(self, label, done, *more):
        if done == 20:
            signal.raise_signal(signal.SIGINT)
        progress(self, label, done, *more)

    monkeypatch.setattr(save, "_put_in_place", put_slowly)
    monkeypatch.setattr(Progress, "__call__", interrupt)
    assert invoke(f"{VARIANCE} --out here").code == 130
    assert names("here") == RUN | {FILE}


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
class TestSignals:
    """The real command, and real signals once something has been measured."""

    CODE = (
        "import sys\n"
        "from sdpa_check.cli import output, run\n"
        "class Told(output.Progress):\n"
        "    def __call__(self, *call):\n"
        "        sys.stderr.write('.')\n"
        "        sys.stderr.flush()\n"
        "output.Progress = Told\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )

    def stopped(self, *signals: signal.Signals) -> tuple[int, str, str]:
        """A run of hours that gets signals after its first blocks."""
        line = "variance --dk 64 --samples 1e12 --jobs 2 --out here --format json"
        with subprocess.Popen(
            [sys.executable, "-c", self.CODE, *line.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        ) as process:
            try:
                assert process.stderr.read(1) == "."
                for each in signals:
                    process.send_signal(each)
                out, err = process.communicate(timeout=120)
            finally:
                process.kill()
        return process.returncode, out, err.lstrip(".")

    @pytest.mark.parametrize(
        "signals",
        [
            (signal.SIGINT,),
            (signal.SIGTERM,),
            (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT),
        ],
    )
    def test_files_are_whole(self, signals):
        code, out, err = self.stopped(*signals)
        assert code == 130
        assert err == "stopped: what was measured is in here, --resume goes on\n"
        assert names("here") == RUN | {FILE}
        assert json.loads(out)["outcome"] == "stopped"
        assert Path("here/run.json").read_text("utf-8") == out
