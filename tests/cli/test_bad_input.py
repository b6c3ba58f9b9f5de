"""Every input that cannot be used: one line on stderr, exit code 2, and nothing else anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

QUICK = "--samples 4096 --no-plot"
"""So that an input that is wrongly accepted fails its test soon."""

BAD = {
    # d_k and keys
    "variance --dk -3": "--dk: got -3, want an integer from 1 to 16384",
    "variance --dk 0": "--dk: got 0",
    "variance --dk 1000000000": "--dk: got 1000000000",
    "variance --dk x": "--dk: got 'x', want an integer",
    "variance --dk 8.5": "--dk: got '8.5', want an integer",
    "variance --dk 8,x": "--dk: got 'x'",
    "variance --dk ,": "--dk: got ',', want values with commas between them, none of them empty",
    "variance --dk 4,,8": "--dk: got '4,,8', want values",
    "variance --dk 4,": "--dk: got '4,', want values",
    "saturation --keys 4 --keys=": "--keys: got '4,', want values",
    "variance --dk=": "--dk: got '', want values",
    "variance --config empty.toml": "--dk: got [], want at least one integer",
    "saturation --keys 1": "--keys: got 1, want an integer from 2",
    "saturation --keys 100000000": "--keys: got 100000000",
    "saturation --dk 1,2,3,4,5,6,7,8,9 --keys 2,3,4,5,6,7,8,9": "72, want at most 64 designs",
    # the law
    "variance --dist gausian": "did you mean 'gaussian'?",
    "variance --dist t": "--dist: got 't', want t with its degrees of freedom; --df is missing",
    "variance --dist t --df -1": "--df: got -1.0",
    "variance --dist t --df nan": "--df: got nan",
    "variance --dist t --df x": "--df",
    "variance --df 5": "no df for gaussian",
    "variance --dist cauchy --standardize": "--standardize: got 'cauchy'",
    "variance --dist t --df 2 --standardize": "--standardize: got 't'",
    "variance --sigma nan": "--sigma: got nan",
    "variance --sigma 0": "--sigma: got 0.0",
    "variance --sigma -1": "--sigma: got -1.0",
    "variance --sigma 1e300": "--sigma: got 1e+300",
    "variance --scale 1e300": "--scale: got '1e+300', want a multiplier from 1e-100 to 1e+100",
    "variance --sigma wide": "--sigma",
    "variance --sigma-k 0": "--sigma-k: got 0.0",
    "variance --mean inf": "--mean: got inf",
    "variance --mean-k nan": "--mean-k: got nan",
    "variance --corr equi:-0.9": "--corr: got 'equi:-0.9', want equi with -0.015873",
    "variance --corr ar1:1": "--corr: got 'ar1:1.0', want ar1 with −1 < ρ < 1",
    "variance --corr ar1": "for example ar1:0.5",
    "variance --mean 5000": "--mean: got 5000.0, want at most 1000 σ = 1000 in size",
    "variance --sigma-k 0.1 --mean-k 200": "--mean-k: got 200.0, want at most 1000 σ = 100",
    "variance --corr ar2:0.5": "--corr: got 'ar2', want one of ar1, equi, none, qk; did you mean",
    # the scale
    "variance --scale foo": "--scale: got 'foo', want one of",
    "variance --scale ,": "--scale: got ',', want values",
    "saturation --scale=": "--scale: got '', want values",
    "variance --scale sqrt,,dk": "--scale: got 'sqrt,,dk', want values",
    "train --lr 1,,2": "--lr: got '1,,2', want values",
    "variance --scale -1": "--scale: got '-1', want a finite multiplier > 0",
    "variance --scale pow:nan": "--scale: got 'pow:nan'",
    "variance --scale sqrt_dmodel": "--dmodel: got None",
    "variance --scale sqrt_dmodel --dmodel 0": "--dmodel: got 0",
    # sampling and judging
    "variance --precision 0": "--precision: got 0.0",
    "variance --precision much": "--precision: got 'much'",
    "variance --tolerance 0": "--tolerance: got 0.0",
    "variance --tolerance 100%": "--tolerance: got 1.0, want a fraction from 1e-7 to below 1",
    "variance --samples 3": "--samples: got 3",
    "variance --samples 1e5 --precision 1%": "a number of samples or a precision, not both",
    "variance --samples inf": "--samples: got 'inf', want an integer",
    "variance --seed -1": "--seed: got -1",
    "variance --seed 99999999999999999999": "--seed: got 99999999999999999999",
    "variance --seed one": "--seed: got 'one', want an integer",
    "variance --jobs 0": "--jobs: got 0",
    "variance --jobs many": "--jobs",
    "variance --config missing.toml": "--config: got 'missing.toml', want a readable file",
    "variance --config .": "--config: got '.', want a readable file",
    "variance --config broken.toml": "--config: got 'broken.toml', want a TOML file",
    "variance --config latin1.toml": "--config: got 'latin1.toml', want a TOML file",
    "variance --config typo.toml": "--config typo.toml: got 'sigme', want one of",
    "variance --config table.toml": "--config table.toml: dk: got {'from': 1}",
    "variance --config keys.toml": "--config keys.toml: got 'keys', want one of",
    "variance --config word.toml": "--sigma",
    "variance --config nested.toml": "--config nested.toml: got 'config', want one of",
    # output
    "variance --format yaml": "--format: got 'yaml', want one of csv, json, junit, md, table",
    "variance --out file": "--out: got 'file', want a directory to write to",
    "variance --out=": "--out: got '', want a directory to write to; for the current one write .",
    "variance --config nowhere.toml": "--out: got '', want a directory",
    "variance --out file/below": "--out: got 'file/below', want a directory to write to",
    # the command line itself
    "variance --unknown": "No such option: --unknown",
    "variance --keys 8": "No such option: --keys",
    "variance stray": "unexpected extra argument",
    "varianse": "Did you mean 'variance'?",
    "--unknown": "No such option: --unknown",
}

FILES = {
    "file": b"mine",
    "broken.toml": b"dk = [8,\n",
    "latin1.toml": b'dist = "\xe9"\n',
    "typo.toml": b"sigme = 0.5\n",
    "table.toml": b"dk = {from = 1}\n",
    "keys.toml": b"keys = 8\n",
    "word.toml": b'sigma = "wide"\n',
    "empty.toml": b"dk = []\n",
    "nowhere.toml": b'out = ""\n',
    "nested.toml": b'config = "other.toml"\n',
}


@pytest.fixture
def files(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("line", BAD)
def test_one_line_exit_code_2_and_nothing_else(invoke, files, line):
    options = QUICK if line.split()[0] in ("variance", "saturation") else ""
    result = invoke(f"{line} {options}" if "--samples" not in line else line)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert result.err.endswith("\n")
    assert BAD[line] in result.err
    assert {path.name: path.read_bytes() for path in files.iterdir()} == FILES


@pytest.mark.parametrize("line", ["variance --dk", "variance --no-plot=1", "variance --quiet=yes"])
def test_a_malformed_option_is_one_line_too(invoke, tmp_path, line):
    result = invoke(line)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert list(tmp_path.iterdir()) == []


def test_the_real_command_does_the_same(command, tmp_path):
    result = command("variance --dist gausian")
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert "did you mean 'gaussian'?" in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_usage_error_names_the_help_that_explains_more(invoke):
    assert "see sdpa-check saturation --help" in invoke("saturation --unknown").err
    assert "see sdpa-check --help" in invoke("nothing").err


def test_a_bad_input_leaves_an_earlier_run_alone(invoke, tmp_path):
    invoke(f"variance {QUICK} --dk 4 --dist rademacher")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert Path("outputs/variance/run.json").exists()
    assert invoke(f"variance {QUICK} --dk 0").code == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_longest_input_is_cut(invoke):
    result = invoke("variance --dist", "x" * 5000)
    assert result.code == 2
    assert len(result.err) < 300


def test_control_characters_do_not_reach_the_terminal(invoke):
    for line in (["variance", "--dist", "\x1b[31mred"], ["\x1b[31mred"]):
        result = invoke(*line[:1], *line[1:])
        assert result.code == 2
        assert "\x1b" not in result.err


class TestCrash:
    """An error that no one foresaw: exit code 1, one line, and the traceback for --debug alone."""

    LINE = f"variance --dk 4 {QUICK}"

    @pytest.fixture(autouse=True)
    def bug(self, monkeypatch):
        def crash(*_: object, **__: object) -> None:
            raise ZeroDivisionError("of all\nthings")

        monkeypatch.setattr("sdpa_check.experiment.run", crash)

    def test_is_one_line_without_traceback(self, invoke, tmp_path):
        result = invoke(self.LINE)
        assert (result.code, result.out) == (1, "")
        assert result.err == (
            "error: internal error: ZeroDivisionError: of all things; --debug shows where. "
            "Please report it\n"
        )
        assert list(tmp_path.iterdir()) == []

    def test_debug_shows_the_traceback(self, invoke):
        with pytest.raises(ZeroDivisionError):
            invoke(f"{self.LINE} --debug")
