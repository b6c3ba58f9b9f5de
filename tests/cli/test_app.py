"""The table of commands, and the commands that stand behind it."""

from __future__ import annotations

import inspect

import pytest

from sdpa_check.cli import app


@pytest.mark.parametrize("name", app.COMMANDS)
def test_a_command_stands_where_the_table_says(name):
    found = app.command(name)
    assert found.name == name
    assert found.callback is not None
    assert len(found.help.split()) > 5


def test_the_help_shows_every_line_of_the_table(invoke):
    result = invoke("--help")
    assert result.code == 0
    shown = [line.split(maxsplit=1) for line in result.out.partition("Commands:\n")[2].splitlines()]
    assert shown == [[name, summary] for name, (_, summary) in app.COMMANDS.items()]


def test_a_called_command_is_not_its_stand_in(invoke):
    for name in app.COMMANDS:
        assert invoke(f"{name} --help").out.startswith(f"Usage: sdpa-check {name} ")
    assert not inspect.signature(app._stand_in).parameters


def test_a_group_below_keeps_its_own_members(invoke):
    result = invoke("claims --help")
    members = result.out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in members] == ["list", "show", "quantities"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("varience", "No such command 'varience'. Did you mean 'variance'?; see sdpa-check --help"),
        ("xyz", "No such command 'xyz'; see sdpa-check --help"),
        (
            "claims lst",
            "No such command 'lst'. Did you mean 'list'?; see sdpa-check claims --help",
        ),
    ],
)
def test_an_unknown_command_is_told_with_its_nearest_match(invoke, line, message):
    result = invoke(line)
    assert (result.code, result.out, result.err) == (2, "", f"error: {message}\n")
