"""Values that typer need not convert: its converter takes longer to import than numpy does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def spare(options: Iterable[Any]) -> None:
    """Let options keep a value that is absent or has the type of the default, as texts often have.

    Every other value goes the way of typer, with its messages.

    Args:
        options: parameters of a command, before its arguments are parsed.
    """
    for each in options:
        each.process_value = partial(_processed, each, each.process_value)


def _processed(option: Any, convert: Callable[..., Any], context: Any, value: Any) -> Any:
    """The value for the command, and what a callback makes of it."""
    if option.required or not {*map(type, _parts(value))} <= {*map(type, _parts(option.default))}:
        return convert(context, value)
    return value if option.callback is None else option.callback(context, option, value)


def _parts(value: Any) -> Iterable[Any]:
    """The entries of an option that is repeatable, or the one of another; None is no entry."""
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)
