"""Runs of the studies as their readers look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sdpa_check import power

if TYPE_CHECKING:
    from collections.abc import Callable

    from sdpa_check.records import Row, Run


@pytest.fixture(scope="session")
def row() -> Callable[..., Row]:
    """The only row of a quantity with the given parameters."""

    def find(run: Run, quantity: str, **params: Any) -> Row:
        found = [
            row
            for row in run.rows
            if row.quantity == quantity
            and all(row.params.get(name) == value for name, value in params.items())
        ]
        assert len(found) == 1, f"{len(found)} rows of {quantity} with {params}"
        return found[0]

    return find


@pytest.fixture(scope="session")
def within_error() -> Callable[..., None]:
    """Every number that has an error bar lies within it of what was predicted.

    The family of all tests that use this fixture holds fewer than 1000 numbers; each may stray by
    Student's t at 1e-6/1000, so correct code on other seeds would fail with probability 1e-6 in
    all, as far as block means are normal.
    """

    def check(run: Run, truth: dict[str, float] | None = None) -> None:
        looked = 0
        for row in run.rows:
            value = row.prediction.value if truth is None else truth.get(row.id)
            if value is None or row.prediction.kind == "limit":
                continue
            estimate = row.estimate
            if estimate is None or not estimate.se:
                continue
            reach = power.threshold(1e-6, 1000, estimate.blocks)
            z = (estimate.value - value) / estimate.se
            assert abs(z) <= reach, f"{row.id}: {estimate.value} ± {estimate.se}, {value}: z = {z}"
            looked += 1
        assert looked > 0

    return check
