"""The option files and the example claims that come with the package."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from sdpa_check.claims import registry, selection
from sdpa_check.cli import run

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
EXAMPLE = CONFIGS / "examples" / "article.toml"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_a_file_of_options_is_one_of_verify(path, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code = run(["verify", "--config", str(path), "--select", "B-15.2-*", "--no-save"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "B-15.2-softmax" in out
    assert list(tmp_path.iterdir()) == []


def test_the_three_files_are_there():
    assert {path.stem for path in CONFIGS.glob("*.toml")} >= {"quick", "full", "ci"}


def test_the_patterns_of_the_quick_file_match_claims():
    options = tomllib.loads((CONFIGS / "quick.toml").read_text(encoding="utf-8"))
    chosen = selection.select(registry.builtin(), options["select"])
    assert 30 < len(chosen) < 80
    assert not any(claim.slow for claim in chosen)


def test_the_example_finds_its_one_error(capsys):
    code = run(["verify", str(EXAMPLE), "--no-save", "--format", "json", "--jobs", "1"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    claims = [row for row in rows if not row["id"].startswith("theory/")]
    assert code == 3
    assert [row["id"] for row in rows if row["verdict"] != "confirmed"] == ["half-scale"]
    assert {row["id"].partition("[")[0] for row in claims} == {
        "variance",
        "std",
        "half-scale",
        "peaked-row",
        "one-hot",
        "flatter",
    }


def test_the_example_shows_every_kind_of_claim():
    claims = registry.load(EXAMPLE)
    assert {claim.relation for claim in claims} == {"equal", "at least"}
    assert any(claim.versus for claim in claims)
    assert any("[" in claim.id for claim in claims)
    assert any(claim.control for claim in claims)
    assert {claim.source for claim in claims} == {"article"}
