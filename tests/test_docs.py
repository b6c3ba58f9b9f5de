"""What is documented exists, and what exists is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sdpa_check.cli import app

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEST_COMMAND = [
    line
    for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    if "pytest" in line and not line.startswith("#")
]


def commands():
    """Every command, also those of groups: the words that call it, and the command."""
    for name in app.COMMANDS:
        found = app.command(name)
        if hasattr(found, "commands"):
            yield from ((f"{name} {inner}", each) for inner, each in found.commands.items())
        else:
            yield name, found


COMMANDS = dict(commands())


def test_all_registered_commands_are_looked_at():
    listed = {each.name for each in app.app.registered_commands}
    assert listed == {name.partition(" ")[0] for name in COMMANDS}
    assert {"variance", "saturation", "claims show"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_stands_in_the_readme(name):
    assert re.search(rf"\bsdpa-check {name}\b", README)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_help_text_and_a_summary(name):
    command = COMMANDS[name]
    assert len(command.help.split()) > 5
    assert 3 < len(command.get_short_help_str(limit=200).split()) < 20
    assert not command.get_short_help_str(limit=200).endswith("...")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text(name):
    without = [p.name for p in COMMANDS[name].params if not getattr(p, "help", None)]
    assert without == []


@pytest.mark.parametrize("name", COMMANDS)
def test_shared_options_mean_the_same_everywhere(name):
    """But `train` takes fewer d_k and keys than the others, and its help says so."""
    for param in COMMANDS[name].params:
        for at, other in COMMANDS.items():
            own = "train" in (name, at) and param.name in ("dk", "keys")
            for same in other.params:
                if same.name == param.name:
                    assert own or same.help == param.help
                    assert same.opts == param.opts


@pytest.mark.parametrize("line", re.findall(r"^\$? *sdpa-check (.+)$", README, re.MULTILINE))
def test_the_readme_names_commands_and_options_that_exist(line):
    name = max((n for n in COMMANDS if f"{line} ".startswith(f"{n} ")), key=len, default=None)
    if name is None:
        assert line.split()[0] in ("--help", "--version")
        return
    known = {
        text for param in COMMANDS[name].params for text in (*param.opts, *param.secondary_opts)
    }
    used = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", line.partition("#")[0]))
    assert used <= known | {"--help"}


def test_the_readme_gives_the_test_command_of_ci():
    (line,) = TEST_COMMAND
    assert "python3 -m venv" in line
    assert line in README
