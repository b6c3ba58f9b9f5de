"""The vocabulary: every name that a command or a claim can ask for.

A module of quantities is imported when one of its names is asked for, or all when all are.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from sdpa_check.errors import unknown_name
from sdpa_check.quantities.base import Case, ExactQuantity, Quantity, Sample, multiplier

if TYPE_CHECKING:
    QUANTITIES: dict[str, Quantity | ExactQuantity]

__all__ = ["QUANTITIES", "Case", "ExactQuantity", "Quantity", "Sample", "multiplier", "quantity"]

_MODULES = (
    *("moments", "law", "sweeps", "rows", "weights", "pipeline"),
    *("training", "exact", "attention", "variants"),
)
"""Modules that define quantities, in the order in which tables show them."""

_FIRST = {
    "dot": ("moments", "law", "sweeps"),
    "logit": ("moments", "law", "sweeps", "weights"),
    "softmax": ("rows", "sweeps", "weights"),
    "jacobian": ("rows",),
}
"""Where names with this beginning are looked for before all other modules."""


@cache
def _of(module: str) -> dict[str, Quantity | ExactQuantity]:
    found = import_module(f"{__name__}.{module}").QUANTITIES
    return {each.name: each for each in found}


def __getattr__(name: str) -> dict[str, Quantity | ExactQuantity]:
    if name != "QUANTITIES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return {name: each for module in _MODULES for name, each in _of(module).items()}


def quantity(name: str, where: str = "quantity") -> Quantity | ExactQuantity:
    """The quantity of that name.

    Raises:
        InputError: if there is none, naming the nearest one.
    """
    for module in (*_FIRST.get(name.partition(".")[0], ()), *_MODULES):
        if name in _of(module):
            return _of(module)[name]
    raise unknown_name(where, name, __getattr__("QUANTITIES"))
