"""Which values typer is spared, and that the others still reach it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sdpa_check.cli import conversion

CONVERTED = object()


def processed(value, default, *, required=False, callback=None):
    """What becomes of a value, `CONVERTED` where typer was asked."""
    option = SimpleNamespace(
        default=default,
        required=required,
        callback=callback,
        process_value=lambda _context, _value: CONVERTED,
    )
    conversion.spare([option])
    return option.process_value("context", value)


@pytest.mark.parametrize(
    ("value", "default"),
    [
        ("1%", "0.1%"),
        (2.0, 1.0),
        (True, False),
        (("8", "64"), ["64"]),
        (["8"], ["64"]),
        (None, None),
        (None, "text"),
        ((), None),
    ],
)
def test_a_value_of_the_right_type_stays_as_it_is(value, default):
    assert processed(value, default) is value


@pytest.mark.parametrize(
    ("value", "default"),
    [
        ("2", 1.0),
        (2, 1.0),
        (1, False),
        ("2", None),
        (("8", 64), ["64"]),
        (("8",), None),
        (64, "64"),
    ],
)
def test_every_other_value_is_converted(value, default):
    assert processed(value, default) is CONVERTED


def test_a_missing_argument_is_told_by_typer():
    assert processed(None, None, required=True) is CONVERTED


def test_a_callback_has_the_last_word():
    def callback(context, option, value):
        return context, option.default, value

    assert processed("a", "b", callback=callback) == ("context", "b", "a")


@pytest.mark.parametrize("line", ["variance --jobs x", "variance --sigma x", "compare"])
def test_the_messages_of_typer_stay(invoke, line):
    result = invoke(line)
    assert result.code == 2
    assert result.err.startswith(("error: Invalid value for '--", "error: Missing argument 'OLD'"))
