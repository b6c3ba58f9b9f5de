"""The vocabulary: every name that a command or a claim can ask for."""

from __future__ import annotations

from sdpa_check.errors import unknown_name
from sdpa_check.quantities import (
    attention,
    exact,
    law,
    moments,
    pipeline,
    rows,
    sweeps,
    training,
    variants,
    weights,
)
from sdpa_check.quantities.base import Case, ExactQuantity, Quantity, Sample, multiplier

__all__ = ["QUANTITIES", "Case", "ExactQuantity", "Quantity", "Sample", "multiplier", "quantity"]

QUANTITIES: dict[str, Quantity | ExactQuantity] = {
    q.name: q
    for module in (
        *(moments, law, sweeps, rows, weights, pipeline),
        *(training, exact, attention, variants),
    )
    for q in module.QUANTITIES
}
"""Name → quantity, in the order in which tables show them."""


def quantity(name: str, where: str = "quantity") -> Quantity | ExactQuantity:
    """The quantity of that name.

    Raises:
        InputError: if there is none, naming the nearest one.
    """
    if name not in QUANTITIES:
        raise unknown_name(where, name, QUANTITIES)
    return QUANTITIES[name]
