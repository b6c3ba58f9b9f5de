"""The command line called in this process and in one of its own, away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from sdpa_check.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPING = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "PYTHONIOENCODING", "PYTHONWARNINGS")


@dataclass(frozen=True)
class Result:
    """What a command left behind: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    def record(self) -> dict[str, Any]:
        """The stdout of ``--format json``, which must be strict JSON."""
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))

    def numbers(self) -> dict[str, Any]:
        """The record without the block that may differ between equal runs."""
        return {key: value for key, value in self.record().items() if key != "environment"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Every test starts in an empty directory, and without variables that shape the output."""
    monkeypatch.chdir(tmp_path)
    for name in SHAPING:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def invoke(capsys) -> Callable[..., Result]:
    """Run the command line in this process: ``invoke("variance --dk 8")``."""

    def call(line: str, *more: str) -> Result:
        capsys.readouterr()
        code = run([*line.split(), *more])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def command() -> Callable[..., Result]:
    """Run the real command in a process of its own."""

    def call(line: str, *more: str, **variables: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "sdpa_check", *line.split(), *more],
            check=False,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            env=os.environ | variables,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return call
