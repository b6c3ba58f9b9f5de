"""The histograms, against a search among their edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdpa_check.errors import InputError
from sdpa_check.histogram import LogGrid, SampleGrid

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


def sample(name, n=5000):
    g = np.random.default_rng(1)
    return {
        "narrow": 0.98 + 1e-4 * g.random(n),
        "normal": np.abs(g.standard_normal(n)),
        "pole": 0.5 - 0.5 * g.random(n) ** 2,
        "wide": 10.0 ** g.uniform(-250, 0, n),
        "constant": np.full(n, 0.3),
        "zero": np.zeros(n),
        "half zero": np.repeat([0.0, 0.5], n // 2),
        "subnormal": np.full(n, 5e-324),
    }[name]


NAMES = ["narrow", "normal", "pole", "wide", "constant", "zero", "half zero", "subnormal"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [2, 8, 5000])
def test_sample_grid_counts(name, n):
    grid = SampleGrid.of(sample(name, n), 64)
    edges = np.array(grid.inner)
    x = np.concatenate([sample(name), edges, np.nextafter(edges, 0), np.nextafter(edges, 1), [0.0]])
    before = x.copy()
    np.testing.assert_array_equal(grid.counts(x), by_search(grid, x))
    np.testing.assert_array_equal(grid.counts(x.reshape(-1, 1)), grid.counts(x))
    np.testing.assert_array_equal(x, before)
    assert (grid.edges()[0], grid.edges()[-1]) == (0.0, np.inf)
    assert (np.diff(grid.edges()) > 0).all()


@pytest.mark.parametrize("name", ["narrow", "normal", "pole", "wide"])
def test_sample_grid_bins_hold_equal_shares(name):
    """Edges at 256 quantiles of 5000 draws: a bin holds about 1/255 of the sample, 19 or 20."""
    x = sample(name)
    grid = SampleGrid.of(x, 256)
    counts = grid.counts(x)
    assert counts.max() <= np.ceil(len(x) / 255) + 1
    inside = counts[counts > 0]
    assert len(inside) >= 255
    assert counts[0] == counts[-1] == 0  # the tails beyond the sample have bins of their own


@pytest.mark.parametrize("name", ["narrow", "normal", "pole", "wide"])
def test_a_small_sample_makes_a_wide_grid(name):
    """Eight draws miss the outer fifths of a law; the grid reaches as far again to either side."""
    small = sample(name, 8)
    edges = np.log(SampleGrid.of(small).inner)
    low, high = np.log(small.min()), np.log(small.max())
    width = high - low
    floor = -700  # exp of less is no normal number
    assert edges[0] == pytest.approx(max(low - width, floor), abs=1e-9)
    assert edges[-1] == pytest.approx(high + width, abs=1e-9)


@pytest.mark.parametrize("name", ["constant", "half zero"])
def test_a_constant_lies_between_two_near_edges(name):
    edges = np.array(SampleGrid.of(sample(name)).inner)
    value = sample(name).max()
    i = np.searchsorted(edges, value, "right")
    assert 0 < i < len(edges)
    assert edges[i - 1] <= value < edges[i]
