"""A TOML file gives defaults, and the command line wins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdpa_check.cli.options import fraction, integer, integers, optional, seed, words
from sdpa_check.errors import InputError

BASE = 'format = "json"\nsamples = 4096\nplot = false\nsave = false\n'


@pytest.fixture
def configured(invoke, tmp_path):
    """Run a command with a configuration file: its result."""

    def call(line: str, text: str):
        (tmp_path / "options.toml").write_text(BASE + text, encoding="utf-8")
        return invoke(f"{line} --config options.toml")

    return call


def design(result):
    return result.record()["design"]


def test_a_file_gives_every_kind_of_default(configured, tmp_path):
    result = configured(
        "variance",
        'dk = [8, 16]\nscale = ["none", "pow:-0.25"]\ndist = "t"\ndf = 5\nstandardize = true\n'
        'sigma = 0.5\nsigma-k = 2\nmean_k = 1.5\ntolerance = "5%"\nseed = 7\njobs = 1\n',
    )
    found = design(result)
    assert found["dk"] == [8, 16]
    assert found["scale"] == ["none", "pow:-0.25"]
    assert (found["distribution"], found["df"], found["standardize"]) == ("t", 5.0, True)
    assert (found["sigma"], found["sigma_k"]) == (0.5, 2.0)
    assert (found["mean"], found["mean_k"]) == (0.0, 1.5)
    assert (found["samples"], found["tolerance"]) == (4096, 0.05)
    assert result.record()["seed"] == 7
    assert [path.name for path in tmp_path.iterdir()] == ["options.toml"]


def test_the_command_line_wins(configured):
    result = configured(
        "variance --dk 4 --scale dk --sigma 3 --seed 9 --tolerance 0.1",
        'dk = [8, 16]\nscale = ["none"]\nsigma = 0.5\nmean = 1\nseed = 7\ntolerance = 0.05\n',
    )
    found = design(result)
    assert (found["dk"], found["scale"]) == ([4], ["dk"])
    assert (found["sigma"], found["tolerance"]) == (3.0, 0.1)
    assert result.record()["seed"] == 9
    assert found["mean"] == 1.0  # what the command line does not say stays


def test_flags_of_the_command_line_win_too(invoke, tmp_path):
    (tmp_path / "options.toml").write_text("save = false\nplot = true\nquiet = true\n")
    result = invoke(
        "variance --dk 4 --dist rademacher --samples 4096 --save --no-plot --config options.toml"
    )
    assert result.err == ""
    assert sorted(p.name for p in Path("outputs/variance").iterdir()) == [
        "run.json",
        "table.csv",
        "table.md",
    ]


@pytest.mark.parametrize(
    ("text", "dk", "scale"),
    [
        ("dk = [8, 16]", [8, 16], ["sqrt"]),
        ('dk = ["8,16", "32"]', [8, 16, 32], ["sqrt"]),
        ("dk = 16", [16], ["sqrt"]),
        ('dk = "8,16"', [8, 16], ["sqrt"]),
        ('scale = "none"', [64], ["none"]),
        ("scale = 0.125", [64], ["0.125"]),
        ('scale = ["all", 0.5]', [64], ["none", "sqrt", "dk", "0.5"]),
    ],
)
def test_lists_may_be_lists_or_what_one_would_type(configured, text, dk, scale):
    found = design(configured("variance", text))
    assert (found["dk"], found["scale"]) == (dk, scale)


def test_options_of_one_command_belong_to_it(configured):
    found = design(configured("saturation", "dk = 4\nkeys = [2, 8]\n"))
    assert (found["dk"], found["keys"]) == ([4], [2, 8])
    assert configured("variance", "keys = 8\n").code == 2


@pytest.mark.parametrize(
    ("text", "key"),
    [("jobs = true", "jobs"), ("sigma = true", "sigma"), ("dk = [8, true]", "dk")],
)
def test_true_is_no_number(configured, text, key):
    result = configured("variance", text)
    assert result.code == 2
    assert f"options.toml: {key}: got " in result.err


def test_an_unknown_key_suggests_the_nearest(configured):
    result = configured("variance", "tolerence = 0.05\n")
    assert result.code == 2
    assert "got 'tolerence'" in result.err
    assert "did you mean 'tolerance'?" in result.err


def test_the_same_design_from_a_file_and_from_flags_gives_the_same_numbers(configured, invoke):
    one = configured("variance", 'dk = [4, 8]\ndist = "laplace"\nseed = 3\n')
    other = invoke(
        "variance --dk 4,8 --dist laplace --seed 3 --samples 4096 --no-save --format json"
    )
    assert one.numbers() == other.numbers()


class TestTexts:
    """How the text of an option is read."""

    @pytest.mark.parametrize(
        ("text", "value"), [("7", 7), ("1e6", 10**6), ("2.5e3", 2500), (" 8 ", 8), ("-3", -3)]
    )
    def test_integer(self, text, value):
        found = integer("--samples", text)
        assert found == value
        assert isinstance(found, int)

    def test_a_large_integer_keeps_every_digit(self):
        assert integer("--seed", "9007199254740993") == 2**53 + 1

    @pytest.mark.parametrize("text", ["", "x", "1.5", "inf", "nan", "1e400", "0x10", "1,2"])
    def test_no_integer(self, text):
        with pytest.raises(InputError, match="--samples"):
            integer("--samples", text)

    @pytest.mark.parametrize(
        ("text", "value"), [("0.1%", 0.001), ("0.001", 0.001), ("1e-3", 0.001), (" 5 % ", 0.05)]
    )
    def test_fraction(self, text, value):
        # one division by 100: half a unit in the last place
        assert fraction("--precision", text) == pytest.approx(value, rel=2.3e-16, abs=0)

    @pytest.mark.parametrize("text", ["", "%", "x", "1%%", "0,1"])
    def test_no_fraction(self, text):
        with pytest.raises(InputError, match="--precision"):
            fraction("--precision", text)

    def test_lists(self):
        assert integers("--dk", ["8,64", " 512 ", "1e3"]) == [8, 64, 512, 1000]
        assert words("--scale", ["none, sqrt", "dk"]) == ["none", "sqrt", "dk"]

    @pytest.mark.parametrize("texts", [[""], [" "], [","], ["4,,8"], ["4,"], [",4"], ["4", ""]])
    def test_no_entry_of_a_list_is_empty(self, texts):
        for read in (integers, words):
            with pytest.raises(InputError, match=r"--dk: got .* none of them empty"):
                read("--dk", texts)

    def test_an_absent_option_stays_absent(self):
        assert optional(integer, "--samples", None) is None
        assert optional(integer, "--samples", "5") == 5

    def test_seed(self):
        assert seed("12") == 12
        drawn = {seed(" Random ") for _ in range(4)}
        # four draws from 2^31 all agree with probability 1e-28
        assert len(drawn) > 1
        assert all(0 <= value < 2**31 for value in drawn)


def test_every_option_of_the_configuration_stands_in_the_record_or_shapes_the_output(configured):
    shown = json.dumps(configured("variance", "").record()["design"])
    for name in ("distribution", "df", "sigma", "mean", "corr", "scale", "dmodel", "samples"):
        assert f'"{name}"' in shown
