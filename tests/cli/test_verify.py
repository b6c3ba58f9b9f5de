"""`verify` on files of a user: how they are read, what errors name, and earlier runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

VARIANCE = """
[[claim]]
id = "x"
statement = "the variance is 64"
quantity = "dot.variance"
params = { dk = 64 }
stated = 64
"""
WEIGHTS = """
[[claim]]
id = "row"
statement = "softmax([0, 0]) is [0.5, 0.5]"
quantity = "softmax.weights"
params = { logits = [0, 0] }
stated = [0.5, 0.5]
"""
FAR = """
[[claim]]
id = "far"
statement = "the ratio is infinite"
quantity = "softmax.ratio"
params = { x = 1000 }
stated = "inf"
"""
OWN = """
[[claim]]
id = "own"
statement = "half of the logits"
quantity = "ledger.std"
params = { dk = 8, keys = 8, pipeline = "user:own_verify:half" }
stated = 1.4
"""
QUICK = "--samples 4096 --no-save"


@pytest.fixture
def verify(invoke, tmp_path):
    """Call `verify` on a file of this text."""

    def call(text, options=QUICK, name="c.toml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return invoke(f"verify {name} {options}")

    return call


@pytest.fixture
def baseline(verify):
    assert verify(VARIANCE + WEIGHTS + FAR, "--samples 4096 --out ra", "a/c.toml").code == 4
    return Path("ra/run.json")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's own in the working directory, which is not on the path."""
    (tmp_path / "own_verify.py").write_text(
        "def half(x):\n    return x / 2\n\n\ndef nan(x):\n    return x * float('nan')\n"
    )
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield
    sys.modules.pop("own_verify", None)


@pytest.mark.usefixtures("own")
def test_a_pipeline_may_name_a_module_in_the_working_directory(verify):
    result = verify(OWN)
    assert (result.code, result.err) == (4, "")
    assert "ledger.std" in result.out


@pytest.mark.usefixtures("own")
def test_what_only_the_sampling_finds_names_the_claim_too(verify):
    result = verify(VARIANCE + OWN.replace(":half", ":nan"))
    assert result.code == 2
    assert result.err.startswith("error: c.toml: own: params.pipeline: got 'user:own_verify:nan'")
    assert result.err.count("\n") == 1


def test_without_anything_beside_the_claims_there_is_one_empty_line(verify):
    out = verify(WEIGHTS).out
    assert "confirmed\n\nas expected: 1 confirmed\n" in out
    assert "confirmed\n\ntheory: " in verify(VARIANCE + WEIGHTS).out


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [("nope", ""), ("X", "; did you mean 'x'?"), ("RO*", "; did you mean 'row'?")],
)
def test_a_pattern_without_a_match(verify, pattern, hint):
    result = verify(VARIANCE + WEIGHTS, f"--select {pattern}")
    want = f"error: --select: got {pattern!r}, want one of x, row, or a pattern with *{hint}\n"
    assert (result.code, result.err) == (2, want)


def test_the_path_of_the_file_does_not_matter_to_a_baseline(verify, invoke, baseline):
    for line in (f"verify {Path('a/c.toml').resolve()}", "verify a/c.toml"):
        result = invoke(f"{line} {QUICK} --baseline {baseline}")
        assert (result.code, result.err) == (4, "")
        assert "baseline: 4 of 4 numbers are where the earlier run had them" in result.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VARIANCE + WEIGHTS, "this run: row far: got 'missing', want that row, as in the baseline"),
        (
            VARIANCE + WEIGHTS + FAR + WEIGHTS.replace('"row"', '"new"'),
            "the baseline: row new: got 'missing', want that row, as in this run",
        ),
        (
            VARIANCE.replace("dk = 64", "dk = 32") + WEIGHTS + FAR,
            "the baseline: row x: dk: got 64, want 32, as in this run",
        ),
    ],
)
def test_other_claims_than_those_of_the_baseline(verify, baseline, text, message):
    result = verify(text, f"{QUICK} --baseline {baseline}")
    assert (result.code, result.err) == (2, f"error: {message}\n")


def test_a_number_that_the_baseline_did_not_have(verify, invoke, baseline):
    record = json.loads(baseline.read_text(encoding="utf-8"))
    record["rows"][0]["estimate"] |= dict.fromkeys(("value", "se", "lo", "hi"))
    baseline.write_text(json.dumps(record), encoding="utf-8")
    result = invoke(f"verify a/c.toml {QUICK} --baseline {baseline}")
    assert result.code == 3
    assert "✗ refuted, expected confirmed: moved/x\n" in result.out
    assert "\n  dot.variance dk=64.\n" in result.out
    assert "Now a finite number; measured 64.3 ± 1.7, before " in result.out
