"""Checks of arguments that several predictions share."""

from __future__ import annotations

from math import isfinite

import numpy as np

from sdpa_check.errors import InputError


def check_count(where: str, value: object, least: int) -> None:
    """Raise `InputError` unless `value` is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(where, value, f"an integer of at least {least}")


def check_finite(where: str, value: float, *, negative: bool = False) -> None:
    """Raise `InputError` unless `value` is finite and, without `negative`, at least 0."""
    if not isfinite(value) or (value < 0 and not negative):
        raise InputError(where, value, "a finite number" + ("" if negative else ", not negative"))
