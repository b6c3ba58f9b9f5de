"""What a user may bring to a pipeline, good and bad."""

from __future__ import annotations

import numpy as np

NUMBER = 3


def doubled(x):
    return 2 * x


def as_integers(x):
    return np.rint(x).astype(int)


def in_place(x):
    x *= 2
    return x


def as_lists(x):
    return [list(row) for row in x]


def first_row(x):
    return x[:1]


def complex_numbers(x):
    return x + 1j


def words(x):
    return np.full(x.shape, "x")


def ragged(x):
    return [[1.0], [1.0, 2.0]]


def nan(x):
    return x - np.inf + np.inf


def raising(x):
    raise ZeroDivisionError("of its own")


def leaving(x):
    raise SystemExit(0)


def talking(x):
    print("hello")  # noqa: T201, what it is for
    return x


def infinite(x):
    return np.where(x > 0, np.inf, x)


def seen(x):
    """What it gets must be one set, plain and its own to write to; the place of a number counts."""
    assert x.ndim == 2
    assert x.flags.c_contiguous
    assert x.flags.writeable
    assert x.base is None
    return x * np.arange(1, x.size + 1).reshape(x.shape) / x.size
