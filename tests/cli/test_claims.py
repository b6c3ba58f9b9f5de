"""`claims`: the registry from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sdpa_check.claims import describe, registry
from sdpa_check.quantities import QUANTITIES

FILE = """
[[claim]]
id = "B-8.2"
statement = "the variance is 8"
quantity = "dot.variance"
params = { dk = 64 }
stated = 8
expected = "refuted"
"""


def test_without_a_command_the_help_is_shown(invoke):
    result = invoke("claims")
    assert result.code == 2
    assert "quantities" in result.out


@pytest.mark.parametrize("line", ["claims", "claims list", "claims show", "claims quantities"])
def test_every_help_has_two_examples(invoke, line):
    result = invoke(f"{line} --help")
    assert result.code == 0
    assert result.out.count("\n    sdpa-check claims ") == 2


def test_list_names_every_claim(invoke):
    result = invoke("claims list")
    assert result.code == 0
    words = result.out.split()
    for group in describe.groups(describe.in_order(registry.builtin())):
        assert describe.name(group) in words
    assert f"\n{len(registry.builtin())} claims: " in result.out
    assert max(map(len, result.out.splitlines())) <= 100


def test_list_selects(invoke):
    result = invoke("claims list --source B --verdict refuted --format json")
    found = json.loads(result.out)
    assert {(each["source"], each["expected"]) for each in found} == {("B", "refuted")}
    assert "B-8.2" in [each["id"] for each in found]
    assert len(found) == sum(
        claim.source == "B" and claim.expected == "refuted" for claim in registry.builtin()
    )


def test_list_in_json_has_every_field(invoke):
    found = {each["id"]: each for each in json.loads(invoke("claims list --format json").out)}
    assert list(found) == [claim.id for claim in registry.builtin()]
    assert found["B-8.2"]["stated"] == [8.0]
    assert found["B-8.2"]["right"].startswith("the variance becomes d_k = 64")


def test_list_in_markdown_is_a_page_of_what_was_selected(invoke):
    result = invoke("claims list --source B --verdict refuted --format md")
    assert result.out.startswith("# Claims\n")
    assert "## Document B" in result.out
    assert "## Document A" not in result.out


def test_nothing_selected_is_no_error(invoke):
    result = invoke("claims list --verdict undefined --source A")
    assert (result.code, result.out) == (0, "\n0 claims\n")
    assert (
        "Document"
        not in invoke("claims list --verdict undefined --format md").out.partition("| ")[2]
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("claims list --verdict refutd", ["--verdict", "did you mean 'refuted'?"]),
        ("claims list --source D", ["--source", "one of A, B, C"]),
        ("claims list --format csv", ["--format", "table"]),
        ("claims show B-8.3-scor", ["ID: got 'B-8.3-scor'", "did you mean"]),
        ("claims show x", ["ID: got 'x'", "sdpa-check claims list"]),
        ("claims show a-var", ["did you mean 'A-var'?"]),
        ("claims show A-s*", ["one id, see", "it matches A-std, A-scaled, A-softmax-20, A-sat-8"]),
        ("claims show x*", ["ID: got 'x*', want one id, see sdpa-check claims list"]),
        ("claims show B-8.2 --run nowhere.json", ["--run: got 'nowhere.json'"]),
        ("claims quantities dot.varianc", ["NAME", "did you mean 'dot.variance'?"]),
    ],
)
def test_what_does_not_exist_is_refused_with_the_nearest(invoke, line, words):
    result = invoke(line)
    assert (result.code, result.out) == (2, "")
    assert all(word in result.err for word in words)
    assert result.err.count("\n") == 1


def test_the_nearest_claim_may_be_one_of_a_list(invoke):
    assert "did you mean 'A-var'?" in invoke("claims show A-vr").err


def test_show_says_what_there_is_to_know(invoke):
    result = invoke("claims show B-8.2")
    assert result.code == 0
    title, empty, *lines = result.out.splitlines()
    assert title == "B-8.2: without the scale, attention takes the variance from 1 to √d_k"
    assert empty == ""
    facts = dict(line.split(maxsplit=1) for line in lines)
    assert facts["quantity"] == "dot.variance: Var[s]"
    assert (facts["stated"], facts["theory"], facts["expected"]) == ("8 ± 0.08", "64", "refuted")
    assert "last" not in facts


def test_show_of_a_list_has_a_line_for_each(invoke):
    out = invoke("claims show A-std").out
    assert out.startswith("A-std: ")
    assert out.count("quantity") == 1
    assert "\ndk=8     2.82842712 ± 0.0283  2.82843\n" in out
    assert "\nparams    scale=none − sqrt dk=64" in invoke("claims show B-1.4-d64-64").out
    alone = invoke("claims show A-std[dk=64]").out
    assert alone.startswith("A-std[dk=64]: ")
    assert "dk=8 " not in alone


def test_claims_that_differ_in_nothing_shown_have_no_table(invoke):
    out = invoke("claims show A-sat-64").out
    assert "\n\n\n" not in out
    assert out.endswith("\n\nfor each of keys=64, keys=1024\n")


@pytest.fixture
def run(invoke, tmp_path):
    (tmp_path / "mine.toml").write_text(FILE, encoding="utf-8")
    assert invoke("verify mine.toml --samples 4096 --out outputs/verify").code != 2


@pytest.mark.usefixtures("run")
def test_show_has_the_verdict_of_the_last_run(invoke):
    out = invoke("claims show B-8.2").out
    assert f"last run  {Path('outputs/verify/run.json')}, seed 0, 20" in out
    assert "found     refuted, measured 6" in out
    shutil.move("outputs/verify/run.json", "other.json")
    assert "last run" not in invoke("claims show B-8.2").out
    assert "found     refuted" in invoke("claims show B-8.2 --run other.json").out
    assert "found     not in that run" in invoke("claims show B-1.2 --run other.json").out


def test_quantities_are_listed(invoke):
    result = invoke("claims quantities")
    assert result.code == 0
    assert set(QUANTITIES) <= set(result.out.split())
    names = [each["name"] for each in json.loads(invoke("claims quantities --format json").out)]
    assert names == list(QUANTITIES)


def test_a_quantity_is_shown_with_its_parameters(invoke):
    out = invoke("claims quantities softmax.entropy").out
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["formula"] == "formula     E[H], H = −Σ p ln p"
    assert lines["unit"] == "unit        nats"
    assert "exact for gaussian" in lines["prediction"]
    assert "scale: scaling rule, as for --scale" in out
    assert "softmax.entropy" in invoke("claims quantities softmax.entropy --format md").out


def test_in_a_process_of_its_own_the_output_is_utf8_without_colour(command):
    result = command("claims list --verdict refuted", LC_ALL="C")
    assert result.code == 0
    assert "√d_k" in result.out
    assert "\x1b" not in result.out
