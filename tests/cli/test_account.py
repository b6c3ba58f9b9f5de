"""`ledger` and `gradient` on the command line."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest

from sdpa_check.report.figures import from_json
from sdpa_check.studies import pipeline_figures
from sdpa_check.studies.ledger import ASKED, CHANGES

LEDGER = "ledger --dk 8 --keys 4 --samples 512 --seed 1"
GRADIENT = "gradient --dk 8 --keys 4 --samples 512 --seed 1"
RUN = {"run.json", "table.csv", "table.md"}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's own in the working directory, which is not on the path."""
    (tmp_path / "own_account.py").write_text(
        "def halved(x):\n    return x / 2\n\n\ndef nan(x):\n    return x * float('nan')\n"
    )
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield
    sys.modules.pop("own_account", None)


def pipelines(record):
    return list(dict.fromkeys(row["params"]["pipeline"] for row in record["rows"]))


def test_ledger_of_some_pipelines(invoke):
    steps = ("qk_norm:rms | scale:sqrt", "softcap:5 | scale:sqrt")
    more = [part for text in steps for part in ("--pipeline", text)]
    result = invoke(f"{LEDGER} --no-save --format json", *more)
    record = result.record()
    assert result.err == ""
    # So few samples may leave a check open, but no prediction is wrong: never 1, 2 or 3.
    assert result.code in {0, 4}
    assert result.code == record["exit_code"]
    assert record["command"] == "ledger"
    assert pipelines(record) == list(steps)
    assert len(record["rows"]) == 2 * len(ASKED)
    assert not any(row["verdict"] == "refuted" for row in record["rows"])
    assert any("softcap" in note for note in record["notes"])


def test_ledger_of_the_default_changes(invoke):
    result = invoke(f"{LEDGER} --no-save --sort std --format json")
    record = result.record()
    assert sorted(pipelines(record)) == sorted(CHANGES)
    values = [row["value"] for row in rows(record, "ledger.std")]
    assert values == sorted(values)


def rows(record, quantity):
    found = [row for row in record["rows"] if row["quantity"] == quantity]
    return [{**row, "value": row["estimate"]["value"]} for row in found]


def test_tables(invoke):
    result = invoke(f"{LEDGER} --no-save", "--pipeline", "scale:sqrt | softcap:5")
    assert "ledger.std" in result.out
    assert "softcap:5" in result.out
    result = invoke(f"{GRADIENT} --no-save --format csv")
    table = list(csv.DictReader(result.out.splitlines()))
    assert len(table) == 3 * 14
    result = invoke(f"{GRADIENT} --no-save --format md --scale sqrt")
    assert "gradient.query" in result.out


def test_gradient(invoke):
    result = invoke(f"{GRADIENT} --no-save --scale none,sqrt --format json")
    record = result.record()
    assert result.code in {0, 4}
    assert record["design"]["scale"] == ["none", "sqrt"]
    assert pipelines(record) == ["scale:none", "scale:sqrt"]
    rms = rows(record, "gradient.query")[0]
    assert rms["prediction"]["kind"] == "exact"


@pytest.mark.parametrize("command", ["ledger", "gradient"])
def test_help_shows_examples_that_can_be_typed(invoke, command):
    text = invoke(f"{command} --help").out
    found = re.findall(rf"sdpa-check {command}\b", text)
    assert len(found) >= 2
    if command == "ledger":
        for word in ("--pipeline", "--transform", "--sort", "qk_norm", "softcap", "user_k"):
            assert word in text


def test_a_transform_from_the_working_directory(invoke, own):
    # A mean keeps both in float64, where a function of the user's own always runs.
    line = f"{LEDGER} --mean 0.25 --no-save --format json --transform own_account:halved"
    result = invoke(line, "--pipeline", "scale:sqrt")
    record = result.record()
    assert pipelines(record) == ["scale:sqrt", "scale:sqrt | user:own_account:halved"]
    one, other = rows(record, "ledger.std")
    assert other["value"] == pytest.approx(one["value"] / 2, rel=1e-12)
    assert other["prediction"]["value"] is None


def test_a_transform_alone_replaces_the_default_changes(invoke, own):
    record = invoke(f"{LEDGER} --no-save --format json --transform own_account:halved").record()
    assert pipelines(record) == ["scale:sqrt | user:own_account:halved"]


def test_a_transform_in_a_process_of_its_own(command, tmp_path):
    (tmp_path / "mine.py").write_text("def doubled(x):\n    return 2 * x\n")
    result = command(f"{LEDGER} --no-save --format json --transform mine:doubled")
    assert result.err == ""
    assert pipelines(result.record()) == ["scale:sqrt | user:mine:doubled"]


@pytest.mark.parametrize(
    ("line", "more", "said"),
    [
        (LEDGER, ["--pipeline", "sofcap:5"], "did you mean 'softcap'?"),
        ("ledger --dk 7", ["--pipeline", "rope"], "d_k = 7 is odd"),
        (LEDGER, ["--pipeline", "scale:sqrt | rope"], "before step 1, scale:sqrt"),
        (LEDGER, ["--sort", "size"], "--sort: got 'size', want one of none, std"),
        (LEDGER, ["--corr", "qk:0.5"], "--corr: got 'qk:0.5'"),
        (GRADIENT, ["--corr", "qk:0.5"], "--corr: got 'qk:0.5'"),
        (GRADIENT, ["--scale", "sqr"], "--scale: got 'sqr'"),
        (LEDGER, ["--transform", "nowhere:f"], "--transform: got 'nowhere:f'"),
        (LEDGER, ["--transform", "own_account:halve"], "did you mean 'halved'?"),
        (LEDGER, ["--transform", "own_account:nan"], "--transform: got 'own_account:nan'"),
        (LEDGER, ["--transform", "own_account"], "--transform: got 'own_account'"),
        (LEDGER, ["--pipeline", "user:nowhere:f"], "--pipeline: got 'user:nowhere:f'"),
    ],
)
def test_bad_input(invoke, own, tmp_path, line, more, said):
    result = invoke(line, *more)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1
    assert not Path("outputs").exists()


@pytest.fixture
def small_figures(monkeypatch):
    monkeypatch.setattr(pipeline_figures, "_DKS", (4, 8))
    monkeypatch.setattr(pipeline_figures, "_ROWS", 512)


@pytest.mark.parametrize(
    ("line", "more"), [(LEDGER, ["--pipeline", "scale:sqrt"]), (GRADIENT, ["--scale", "sqrt"])]
)
def test_files(invoke, small_figures, line, more):
    name = line.split()[0]
    result = invoke(line, *more)
    directory = Path("outputs") / name
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert set(files) == RUN | {"figures.json", f"{name}.png", f"{name}.svg"}
    (figure,) = from_json(files["figures.json"].decode(), "figures.json").values()
    assert len(figure.panels) == (1 if name == "ledger" else 4)
    assert result.err == f"files: {directory}\n"


def test_the_ledger_figure_has_a_row_for_every_pipeline(invoke):
    texts = ("dot", "scale:sqrt", "additive")
    more = [part for text in texts for part in ("--pipeline", text)]
    invoke("ledger --dk 8,4 --keys 4 --samples 512", *more)
    (figure,) = from_json(Path("outputs/ledger/figures.json").read_text("utf-8"), "f").values()
    (panel,) = figure.panels
    assert panel.rows == texts
    assert "d_k = 8, m = 4" in figure.title
    for series in panel.series:
        assert len(series.x) == 3
        assert all(value > 0 for value in series.x)
