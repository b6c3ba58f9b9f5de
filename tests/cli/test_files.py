"""What a run leaves on the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sdpa_check.cli.output import save_figures
from sdpa_check.report.figures import Figure, Panel, from_json, to_json

LINE = "variance --dk 4 --dist rademacher --samples 4096"
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


def test_figures_are_drawn_after_the_record_is_safe(invoke, small_figures, monkeypatch):
    def fail(*_: object) -> None:
        assert set(contents(Path("outputs/variance"))) == RUN
        raise MemoryError

    monkeypatch.setattr("sdpa_check.cli.output.save_figures", fail)
    result = invoke(LINE)
    assert result.code == 1
    assert "dot.variance" in result.out
    assert set(contents(Path("outputs/variance"))) == RUN


def test_no_plot(invoke):
    invoke(f"{LINE} --no-plot")
    assert set(contents(Path("outputs/variance"))) == RUN


def test_no_save(invoke, tmp_path):
    result = invoke(f"{LINE} --no-save")
    assert result.err == ""
    assert "dot.variance" in result.out
    assert list(tmp_path.iterdir()) == []


def test_no_save_does_not_care_about_the_directory(invoke, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert invoke(f"{LINE} --no-save --out file").code == 4


def test_quiet(invoke):
    result = invoke(f"{LINE} --no-plot --quiet")
    assert result.err == ""
    assert "dot.variance" in result.out
    assert set(contents(Path("outputs/variance"))) == RUN
    assert invoke("variance --dk 0 --quiet").err.startswith("error: ")


def test_out(invoke, tmp_path):
    result = invoke(f"{LINE} --no-plot --out a/b")
    assert result.err == f"files: {Path('a/b')}\n"
    assert set(contents(tmp_path / "a" / "b")) == RUN
    assert not Path("outputs").exists()


def test_a_number_in_a_file_of_options_names_a_directory_too(invoke, tmp_path):
    (tmp_path / "options.toml").write_text("out = 5\n")
    assert invoke(f"{LINE} --no-plot --config options.toml").code == 4
    assert set(contents(tmp_path / "5")) == RUN


@pytest.mark.parametrize("name", ["run.json", "table.md", "figures.json", "partial.npz"])
def test_a_folder_where_a_file_is_to_be_written(invoke, tmp_path, name):
    (tmp_path / "here" / name).mkdir(parents=True)
    result = invoke(f"{LINE} --no-plot --out here")
    assert (result.code, result.out) == (2, "")
    path = str(Path("here") / name)
    assert result.err == f"error: --out: got {path!r}, want a file or nothing there; a folder\n"
    assert [path.name for path in (tmp_path / "here").iterdir()] == [name]


def test_the_figures_of_an_earlier_run_do_not_stay(invoke):
    old = Figure(title="old", panels=(Panel(),))
    save_figures(Path("here"), {"old": old, "histogram": old}, 1)
    assert set(contents(Path("here"))) == {
        "figures.json",
        *(f"{name}.{kind}" for name in ("old", "histogram") for kind in ("png", "svg")),
    }
    invoke(f"{LINE} --no-plot --out here")
    assert set(contents(Path("here"))) == RUN


def test_files_that_are_not_of_a_run_stay(invoke, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    for name in ("photo.png", "drawing.svg", "notes.txt", "run.json"):
        (here / name).write_text("mine")
    (tmp_path / "outside.png").write_text("mine")
    panel = Figure(title="t", panels=(Panel(),))
    (here / "figures.json").write_text(to_json({"../outside": panel, "photo/..": panel}))
    invoke(f"{LINE} --no-plot --out here")
    assert set(contents(here)) == RUN | {"photo.png", "drawing.svg", "notes.txt"}
    assert (here / "photo.png").read_text() == "mine"
    assert (here / "run.json").read_text() != "mine"
    assert (tmp_path / "outside.png").exists()


def test_an_unreadable_index_of_figures_is_no_obstacle(invoke, tmp_path):
    (tmp_path / "figures.json").write_bytes(b"\xff")
    (tmp_path / "photo.png").write_text("mine")
    assert invoke(f"{LINE} --no-plot --out .").code == 4
    assert set(contents(tmp_path)) == RUN | {"photo.png"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_failed_run_leaves_the_earlier_one(invoke, monkeypatch, error):
    line = f"{LINE} --no-plot --out here --seed"
    invoke(f"{line} 1")
    before = contents(Path("here"))

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("sdpa_check.verdict.conclude", fail)
    result = invoke(f"{line} 2")
    assert result.code == (130 if error is KeyboardInterrupt else 1)
    assert (result.out, result.err.count("\n")) == ("", 1)
    after = contents(Path("here"))
    assert bool(after.pop("partial.npz", None)) == (error is KeyboardInterrupt)
    assert after == before


def test_equal_runs_leave_equal_files(invoke):
    invoke(f"{LINE} --no-plot --out one")
    invoke(f"{LINE} --no-plot --out two --jobs 3")
    one, two = contents(Path("one")), contents(Path("two"))
    assert set(one) == set(two) == RUN
    records = [json.loads(each.pop("run.json")) for each in (one, two)]
    for record in records:
        record.pop("environment")
    assert one == two
    assert records[0] == records[1]


def test_figures_drawn_side_by_side_are_the_same(tmp_path):
    """Byte for byte, whether processes are forked for it (in a process of one thread) or not."""
    code = """
        from pathlib import Path
        from sdpa_check import engine
        from sdpa_check.cli.output import save_figures
        from sdpa_check.report.figures import Figure, Panel, Series
        engine.available_cores = lambda: 2
        line = Series(label="a", kind="curve", x=(1.0, 2.0), y=(3.0, 4.0))
        figures = {
            name: Figure(title=name, panels=(Panel(xlabel="x", series=(line,)),))
            for name in ("one", "two", "three")
        }
        for jobs in (1, 2):
            save_figures(Path(str(jobs)), figures, jobs)
        for path in sorted(Path("1").iterdir()):
            print(path.name, path.read_bytes() == (Path("2") / path.name).read_bytes())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    found = [line.split() for line in done.stdout.splitlines()]
    names = [f"{name}.{kind}" for name in ("one", "three", "two") for kind in ("png", "svg")]
    assert found == [[name, "True"] for name in ("figures.json", *names)]
