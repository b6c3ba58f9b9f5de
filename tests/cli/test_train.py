"""`train` on the command line: what its help says, what a stopped run leaves, and going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sdpa_check.cli import app
from sdpa_check.cli.output import Progress
from sdpa_check.errors import LostWorkersError
from sdpa_check.studies import train

LINE = "train --dk 4 --lr 0.3,3 --warmup 0 --steps 12 --keys 16 --seeds 16 --jobs 1"
LINE += " --scale sqrt --format json --no-plot"
TRIALS = Path("here/trials.json")


@pytest.fixture
def stop(monkeypatch):
    """Have the next run raise when so many of its 32 trials are done; 0 for never."""
    seen = Progress.__call__

    def at(number: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        def count(self, label, done, *more):
            if label == "trials" and done == number:
                raise error("stopped by the test")
            seen(self, label, done, *more)

        monkeypatch.setattr(Progress, "__call__", count)

    return at


def test_the_help_gives_the_limits_of_train():
    helps = {param.name: param.help for param in app.command("train").params}
    assert f"1 to {train.MAX_DK};" in helps["dk"]
    assert f"{train.MIN_KEYS} to {train.MAX_KEYS}." in helps["keys"]


@pytest.mark.parametrize("option", ["", "--quiet"])
def test_a_stopped_run_says_what_is_kept_and_goes_on(invoke, stop, option):
    whole = invoke(f"{LINE} --no-save")
    stop(12)
    found = invoke(f"{LINE} --out here {option}")
    says = f"stopped: 12 of 32 trials are in {TRIALS}, --resume goes on\n"
    assert (found.code, found.out, found.err) == (130, "", "" if option else says)
    assert [path.name for path in Path("here").iterdir()] == ["trials.json"]
    stop(0)
    again = invoke(f"{LINE} --out here --resume")
    assert again.code == 0
    assert again.record()["environment"]["trials_resumed"] == 12
    assert again.numbers() == whole.numbers()


def test_without_resume_a_run_begins_anew(invoke, stop):
    stop(12)
    invoke(f"{LINE} --out here")
    stop(0)
    found = invoke(f"{LINE} --out here")
    assert found.record()["environment"]["trials_resumed"] == 0


def test_before_the_first_trial_there_is_nothing_to_keep(invoke, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "start_rows", interrupt)
    found = invoke(f"{LINE} --out here")
    assert (found.code, found.out) == (130, "")
    assert "nothing was measured" in found.err
    assert not TRIALS.exists()


def test_nothing_is_kept_where_nothing_is_saved(invoke, stop, tmp_path):
    stop(12)
    found = invoke(f"{LINE} --no-save")
    assert (found.code, found.err) == (130, "stopped: nothing is kept: --no-save\n")
    assert list(tmp_path.iterdir()) == []


def test_lost_workers_leave_the_trials(invoke, stop):
    stop(12, LostWorkersError)
    found = invoke(f"{LINE} --out here")
    assert (found.code, found.out) == (1, "")
    assert f"12 of 32 trials are in {TRIALS}, --resume goes on" in found.err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("--seed 1", "want trials of the same --keys"),
        ("--steps 13", "want trials of the same --keys"),
        ("--no-save", "one of the two"),
        ("--out elsewhere", "there is no such file"),
    ],
)
def test_there_must_be_trials_to_go_on_from(invoke, stop, more, says):
    stop(12)
    invoke(f"{LINE} --out here")
    before = TRIALS.read_bytes()
    found = invoke(f"{LINE} --out here --resume {more}")
    assert (found.code, found.out, found.err.count("\n")) == (2, "", 1)
    assert found.err.startswith("error: --resume: got ")
    assert says in found.err
    assert TRIALS.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_real_command_and_a_real_signal(number):
    """A run of hours that gets a signal once its first trials are in the file."""
    code = (
        "import sys\n"
        "from sdpa_check.cli import output, run\n"
        "class Told(output.Progress):\n"
        "    def __call__(self, *call):\n"
        "        sys.stderr.write('.')\n"
        "        sys.stderr.flush()\n"
        "output.Progress = Told\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    line = "train --dk 4 --steps 50 --keys 16 --seeds 800 --jobs 2 --out here --format json"
    with subprocess.Popen(
        [sys.executable, "-c", code, *line.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    ) as process:
        try:
            assert process.stderr.read(1) == "."
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    kept = len(json.loads(TRIALS.read_text("utf-8"))["trials"])
    assert 0 < kept < 19200
    says = f"stopped: {kept} of 19200 trials are in {TRIALS}, --resume goes on\n"
    assert (process.returncode, out, err.lstrip(".")) == (130, "", says)
