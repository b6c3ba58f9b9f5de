"""Sums as they travel between processes: the same in every bit, and short."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from sdpa_check.packing import packed, unpacked


def histogram(entries, size=20_000, dtype=np.int64):
    full = np.zeros(size, dtype)
    full[:: size // entries] = np.arange(1, len(full[:: size // entries]) + 1)
    return full


@pytest.mark.parametrize(
    "value",
    [
        histogram(100),
        histogram(10_000),
        histogram(10, dtype=np.int32),
        histogram(10, size=511),
        np.zeros(1000),
        np.array([np.nan, *np.zeros(999)]),
        np.arange(6.0).reshape(2, 3),
        np.float64(2.5),
    ],
)
def test_sums_come_back_as_they_were(value):
    found = unpacked(packed({"a": value, "b": np.int64(1)}))
    assert found.keys() == {"a", "b"}
    np.testing.assert_array_equal(found["a"], value, strict=True)


@pytest.mark.parametrize("value", [None, 3, "text", [1, 2], (np.float64(1), {"x": 2})])
def test_other_values_travel_too(value):
    assert unpacked(packed(value)) == value


def test_zeros_of_a_histogram_do_not_travel():
    sums = {"histogram": histogram(100)}
    assert 50 * len(packed(sums)) < len(pickle.dumps(sums))
