"""What a run leaves on the disk."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sdpa_check.report.figures import from_json

RUN = {"run.json", "table.csv", "table.md"}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def small_figures(monkeypatch):
    """Figures of the right shape from few samples."""
    for module, sweep in (
        ("variance_figures", {"_SWEEP": (1, 4), "SHOWN": (8,), "REFERENCES": ()}),
        ("saturation_figures", {"_DKS": (2, 8), "_KEYS": (2, 8)}),
    ):
        for name, value in {"_SAMPLES": 1 << 12, **sweep}.items():
            monkeypatch.setattr(f"sdpa_check.studies.{module}.{name}", value)


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        ("variance --dk 4 --samples 4096", {"histogram", "scale"}),
        ("saturation --dk 4 --keys 8 --samples 4096", {"against_dk", "against_keys", "map"}),
    ],
)
def test_a_run_leaves_record_tables_and_figures(invoke, small_figures, line, figures):
    result = invoke(line)
    directory = Path("outputs") / line.split()[0]
    files = contents(directory)
    drawn = from_json(files["figures.json"].decode(), "figures.json")
    assert figures <= set(drawn)
    pictures = {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")}
    assert set(files) == RUN | {"figures.json"} | pictures
    assert result.err == f"files: {directory}\n"
    for name, data in files.items():
        if name.endswith(".png"):
            assert data.startswith(b"\x89PNG\r\n")
        if name.endswith(".svg"):
            assert ET.fromstring(data).tag.endswith("svg")  # noqa: S314, made above


def test_figures_are_drawn_after_the_record_is_safe(invoke, monkeypatch):
    def fail(*_: object) -> None:
        assert set(contents(Path("outputs/variance"))) == RUN
        raise MemoryError

    monkeypatch.setattr("sdpa_check.cli.output.save_figures", fail)
    result = invoke("variance --dk 4 --samples 4096")
    assert result.code == 1
    assert "dot.variance" in result.out
    assert set(contents(Path("outputs/variance"))) == RUN


def test_no_plot(invoke):
    invoke("variance --dk 4 --samples 4096 --no-plot")
    assert set(contents(Path("outputs/variance"))) == RUN


def test_no_save(invoke, tmp_path):
    result = invoke("variance --dk 4 --samples 4096 --no-save")
    assert result.err == ""
    assert "dot.variance" in result.out
    assert list(tmp_path.iterdir()) == []


def test_no_save_does_not_care_about_the_directory(invoke, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert invoke("variance --dk 4 --samples 4096 --no-save --out file").code == 4


def test_quiet(invoke):
    result = invoke("variance --dk 4 --samples 4096 --no-plot --quiet")
    assert result.err == ""
    assert "dot.variance" in result.out
    assert set(contents(Path("outputs/variance"))) == RUN
    assert invoke("variance --dk 0 --quiet").err.startswith("error: ")


def test_out(invoke, tmp_path):
    result = invoke("variance --dk 4 --samples 4096 --no-plot --out a/b")
    assert result.err == f"files: {Path('a/b')}\n"
    assert set(contents(tmp_path / "a" / "b")) == RUN
    assert not Path("outputs").exists()


def test_the_figures_of_an_earlier_run_do_not_stay(invoke, tmp_path):
    directory = tmp_path / "here"
    directory.mkdir()
    for name in ("histogram.png", "old.svg", "figures.json", "notes.txt", "run.json"):
        (directory / name).write_text("old")
    invoke("variance --dk 4 --samples 4096 --no-plot --out here")
    assert set(contents(directory)) == RUN | {"notes.txt"}
    assert (directory / "notes.txt").read_text() == "old"
    assert (directory / "run.json").read_text() != "old"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_failed_run_leaves_the_earlier_one(invoke, monkeypatch, error):
    line = "variance --dk 4 --samples 4096 --no-plot --out here --seed"
    invoke(f"{line} 1")
    before = contents(Path("here"))

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("sdpa_check.verdict.conclude", fail)
    result = invoke(f"{line} 2")
    assert result.code == (130 if error is KeyboardInterrupt else 1)
    assert (result.out, result.err.count("\n")) == ("", 1)
    assert contents(Path("here")) == before


def test_equal_runs_leave_equal_files(invoke, small_figures):
    line = "variance --dk 4 --samples 4096 --out"
    invoke(f"{line} one")
    invoke(f"{line} two --jobs 3")
    one, two = contents(Path("one")), contents(Path("two"))
    assert set(one) == set(two)
    assert [name for name in one if one[name] != two[name]] == ["run.json"]  # the environment
