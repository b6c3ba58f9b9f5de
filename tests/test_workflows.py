"""The workflows, and the page on claims in CI, say what is true of the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sdpa_check.claims import registry
from sdpa_check.cli.app import command

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
PAGE = (ROOT / "docs" / "claims-in-ci.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]


def text(name):
    return (WORKFLOWS / name).read_text(encoding="utf-8")


def test_the_tests_run_as_the_readme_says_on_every_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    versions = re.search(r"python: \[(.*)\]", text("tests.yml"))[1]
    assert versions == f'"{oldest}", "3.12", "3.13"'
    (line,) = [x for x in text("tests.yml").splitlines() if "pytest" in x]
    command = line.partition("run: ")[2]
    for place in (".ci/run", "README.md"):
        assert command in (ROOT / place).read_text(encoding="utf-8")


def test_every_check_of_ci_run_is_in_the_workflow():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    checks = [line for line in lines if line.startswith(".venv/bin/")]
    assert checks
    assert all(f"run: {line}\n" in text("tests.yml") for line in checks)


@pytest.mark.parametrize("source", ["verify.yml", "claims-in-ci.md"])
def test_the_options_of_verify_exist(source):
    given = PAGE if source.endswith("md") else text(source)
    options = {
        name for param in command("verify").params for name in (*param.opts, *param.secondary_opts)
    }
    lines = re.findall(r"sdpa-check verify (.*)", given)
    assert lines
    for line in lines:
        assert set(re.findall(r"(?<!\S)--[a-z-]+", line.partition("`")[0])) <= options


@pytest.mark.parametrize("source", ["verify.yml", "claims-in-ci.md"])
def test_the_files_that_are_uploaded_are_those_that_verify_leaves(source):
    given = PAGE if source.endswith("md") else text(source)
    assert "report_paths: outputs/verify/junit.xml" in given
    assert "path: outputs/verify\n" in given
    assert given.count("if: ${{ !cancelled()") == 2  # after a failure too


def test_the_fields_of_the_page_are_those_of_a_claim():
    table = PAGE[PAGE.index("| field | is |") : PAGE.index("A mistake in the file")]
    rows = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]
    named = {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert named == set(registry.FIELDS)


def test_the_example_is_the_article_of_the_configs():
    article = ROOT / "configs" / "examples" / "article.toml"
    assert article.read_text(encoding="utf-8") == EXAMPLE


def test_the_table_of_the_page_has_every_claim_of_the_example():
    """That the verdicts are these is tested with the article itself."""
    table = PAGE[PAGE.index("\nid ") : PAGE.index("\n## 3.")]
    claims = registry.parse(EXAMPLE, "article.toml")
    first = {line.split()[0]: line for line in reversed(table.splitlines()) if line.strip()}
    verdicts = {claim.id: " ".join(first[claim.id].split()[-2:]) for claim in claims}
    assert [name for name, text in verdicts.items() if not text.endswith("confirmed")] == [
        "half-scale"
    ]
    assert verdicts["half-scale"] == "refuted ✗"
