"""The logarithmic histogram, against a search among its edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdpa_check.errors import InputError
from sdpa_check.histogram import LogGrid

GRIDS = {
    "dot": LogGrid.octaves(-14, 60),
    "coarse": LogGrid.octaves(-3, 4, bits=0),
    "unsigned": LogGrid.octaves(-20, 1, bits=5, signed=False),
    "above one": LogGrid.octaves(2, 5, bits=3),
    "normal float32": LogGrid.octaves(-126, 127, bits=2),
    "within an octave": LogGrid(first=700, inner=33, bits=7),
    "one bin": LogGrid(first=-5, inner=1, bits=3, signed=True),
}
DTYPES = [np.float32, np.float64]
grids = pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def by_search(grid, x):
    """The slow twin. A bin holds its edge nearer to zero: below zero it is closed on the right."""
    edges = grid.edges()
    counts = np.zeros(len(edges) - 1, np.int64)
    for value in np.asarray(x, np.float64).ravel():
        side = "left" if value < 0 else "right"
        found = int(np.searchsorted(edges, value, side)) - 1
        counts[min(max(found, 0), len(counts) - 1)] += 1  # ±∞ lie in the open bins
    return counts


def usable(grid, x):
    return np.abs(x) if not grid.signed else x


@grids
@dtypes
def test_special_values(grid, dtype):
    info = np.finfo(dtype)
    special = [0.0, -0.0, info.smallest_subnormal, info.tiny, info.max, np.inf, 1.0]
    x = usable(grid, np.array(special + [-s for s in special], dtype))
    np.testing.assert_array_equal(grid.counts(x), by_search(grid, x))


@grids
@dtypes
def test_edges_and_their_neighbours(grid, dtype):
    edges = grid.edges()
    edges = edges[np.isfinite(edges)].astype(dtype)
    assert (edges == grid.edges()[np.isfinite(grid.edges())]).all()  # exact in both formats
    x = np.concatenate([edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)])
    x = x[x >= 0] if not grid.signed else x
    np.testing.assert_array_equal(grid.counts(x), by_search(grid, x))


@grids
@given(x=st.lists(st.floats(allow_nan=False), max_size=50))
def test_any_float64(grid, x):
    x = usable(grid, np.array(x, np.float64))
    np.testing.assert_array_equal(grid.counts(x), by_search(grid, x))


@grids
@given(x=st.lists(st.floats(allow_nan=False, width=32), max_size=50))
def test_any_float32(grid, x):
    x = usable(grid, np.array(x, np.float32))
    np.testing.assert_array_equal(grid.counts(x), by_search(grid, x))


@grids
@dtypes
def test_shape_and_order_do_not_matter(grid, dtype):
    x = usable(grid, np.random.default_rng(0).standard_t(1, (6, 10, 4)).astype(dtype))
    before = x.copy()
    counts = grid.counts(x)
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(grid.counts(x.transpose(2, 0, 1)), counts)
    np.testing.assert_array_equal(grid.counts(x.ravel()[::-1]), counts)
    assert counts.sum() == x.size
    assert len(counts) == len(grid.edges()) - 1


@grids
def test_edges_are_as_described(grid):
    edges = grid.edges()
    assert (np.diff(edges) > 0).all()
    if grid.signed:
        np.testing.assert_array_equal(edges, -edges[::-1])
    positive = edges[edges > 0]
    assert len(positive) == grid.inner + 2
    octave, part = np.divmod(grid.first + np.arange(grid.inner + 1), 2**grid.bits)
    np.testing.assert_array_equal(positive[:-1], 2.0**octave * (1 + part / 2**grid.bits))


def test_octaves_reach_from_low_to_high():
    edges = LogGrid.octaves(-3, 5, bits=2).edges()
    assert (edges[edges > 0][0], edges[-2], edges[-1]) == (2.0**-3, 2.0**5, np.inf)
    assert len(edges[(edges >= 1) & (edges < 2)]) == 4


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.int64])
def test_other_formats_are_refused(dtype):
    with pytest.raises(InputError, match="dtype"):
        LogGrid.octaves(0, 1).counts(np.ones(3, dtype))


def sample(name):
    g = np.random.default_rng(1)
    return {
        "narrow": 0.98 + 1e-4 * g.random(5000),
        "normal": np.abs(g.standard_normal(5000)),
        "wide": 10.0 ** g.uniform(-250, 0, 5000),
        "constant": np.full(100, 0.3),
        "power of two": np.full(100, 0.25),
        "zero": np.zeros(100),
        "half zero": np.repeat([0.0, 0.5], 50),
        "subnormal": np.full(100, 5e-324),
    }[name]


MANY_OCTAVES = ["wide", "half zero"]
FEW_OCTAVES = ["narrow", "normal", "constant", "power of two", "zero", "subnormal"]


@pytest.mark.parametrize(
    ("name", "inner"),
    [(name, 2048) for name in MANY_OCTAVES + FEW_OCTAVES] + [(name, 16) for name in FEW_OCTAVES],
)
def test_around_holds_the_bulk_as_finely_as_it_may(name, inner):
    x = sample(name)
    grid = LogGrid.around(x, inner)
    edges = grid.edges()
    low, high = np.maximum(np.quantile(x, [0.005, 0.995], method="nearest"), 2.0**-1000)
    assert 1 <= grid.inner <= inner
    assert edges[1] <= low < edges[2]
    assert edges[-3] <= high < edges[-2]
    if grid.bits < 40:  # with one more bit, `inner` bins from that of `low` end below `high`
        starts = [LogGrid(2 * grid.first + i, inner, grid.bits + 1).edges() for i in (0, 1)]
        assert max(starts, key=lambda e: (e[1] <= low, e[1]))[inner + 1] <= high
    np.testing.assert_array_equal(grid.counts(x), by_search(grid, x))
