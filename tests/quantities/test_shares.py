"""Shares from histograms: counts by hand, and the error of what is seldom seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check.engine import Replicates
from sdpa_check.histogram import LogGrid
from sdpa_check.quantities.base import Case
from sdpa_check.quantities.shares import FEWEST, share, share_band
from sdpa_check.records import Component, Design, Prediction

GRID = LogGrid.octaves(-10, 10)
PLAIN = Design(dk=4)
COUNT = 20


def merged(x):
    """Replicates of a sample of shape (replicates, n)."""
    return Replicates({"h": np.array([GRID.counts(row) for row in x])}, len(x))


def estimate(x, above, design=PLAIN, independent=1, **kwargs):
    return share(
        merged(x),
        "h",
        GRID,
        above,
        samples=x.size,
        independent=independent,
        design=design,
        **kwargs,
    )


@pytest.fixture(scope="module")
def normal():
    return np.random.default_rng(0).normal(1.0, 3.0, (COUNT, 5000))


@pytest.mark.parametrize("x", [0.5, 1.0, 3.0, -2.0, 4.25])  # edges of the grid
def test_counts_are_exact_at_edges(normal, x):
    found = estimate(normal, {x: 1.0})
    each = (normal > x).mean(axis=1)
    assert found.value == pytest.approx(each.mean(), rel=1e-12)
    assert found.se == pytest.approx(each.std(ddof=1) / math.sqrt(COUNT), rel=1e-9)
    assert (found.blocks, found.samples) == (COUNT, normal.size)


@pytest.mark.parametrize("x", [0.5003, 2.7182818, -1.23456])
def test_within_a_bin_counts_are_spread_evenly(normal, x):
    """A bin is 1/128 of an octave wide and holds about 0.2 % of the sample, 400 numbers at most."""
    found = estimate(normal, {x: 1.0}).value
    edges = GRID.edges()
    i = np.searchsorted(edges, x) - 1
    inside = normal[(normal >= edges[i]) & (normal < edges[i + 1])]
    part = (edges[i + 1] - x) / (edges[i + 1] - edges[i])
    by_hand = ((normal >= edges[i + 1]).sum() + part * len(inside)) / normal.size
    assert found == pytest.approx(by_hand, rel=1e-12)
    # the number above x in the bin is binomial: 5 standard deviations, false-alarm rate 6e-7
    slack = 5 * math.sqrt(len(inside) * part * (1 - part)) / normal.size
    assert found == pytest.approx((normal > x).mean(), abs=slack)


def test_intervals_and_what_lies_outside(normal):
    inside = estimate(normal, {-1.0: 1.0, 2.0: -1.0})
    outside = estimate(normal, {-1.0: -1.0, 2.0: 1.0}, base=1.0)
    assert inside.value == pytest.approx(((normal >= -1) & (normal < 2)).mean(), rel=1e-12)
    assert inside.value + outside.value == pytest.approx(1.0, rel=1e-12)
    assert inside.se == pytest.approx(outside.se, rel=1e-9)


@pytest.mark.parametrize("events", [0, 1, FEWEST - 1, FEWEST])
@pytest.mark.parametrize("mirrored", [False, True])
def test_few_events_get_an_error_that_needs_no_law(events, mirrored):
    x = np.full((COUNT, 5000), 0.5)
    x.reshape(-1)[:: x.size // max(events, 1)][:events] = 3.0
    above = {1.0: -1.0} if mirrored else {1.0: 1.0}
    found = estimate(x, above, independent=4, base=float(mirrored))
    assert found.value == pytest.approx(abs(mirrored - events / x.size), abs=1e-15)
    floor = 3 / (4 * COUNT)
    if events < FEWEST:
        assert found.se == pytest.approx(floor, rel=1e-12)
    else:
        assert 0 < found.se < floor / 10


def test_a_cluster_of_few_events_keeps_its_own_error():
    x = np.full((COUNT, 50), 0.5)
    x[0] = 3.0  # one replicate in which everything happens
    found = estimate(x, {1.0: 1.0}, independent=50)
    assert found.se == pytest.approx(1 / COUNT, rel=1e-9)


def test_nothing_seen_does_not_mean_nothing_there():
    """Of 400 experiments with p = 1/(10 n) none may exclude p at ±2 standard errors of theirs."""
    g = np.random.default_rng(1)
    for _ in range(400):
        x = np.where(g.random((COUNT, 5)) < 1 / (10 * COUNT * 5), 3.0, 0.5)
        found = estimate(x, {1.0: 1.0}, independent=5)
        assert abs(found.value - 1 / (10 * COUNT * 5)) < 2 * found.se


@pytest.mark.parametrize("x", [1025.0, 1e9, -(2.0**11)])
def test_beyond_the_bins_there_is_no_error_bar(normal, x):
    found = estimate(normal, {x: 1.0})
    assert found.se is None
    assert "beyond the bins" in found.withheld


def test_an_open_first_bin_is_beyond_the_bins_too():
    grid = LogGrid.octaves(-10, 0, signed=False)
    x = np.full((COUNT, 10), 2.0**-12)
    counts = Replicates({"h": np.array([grid.counts(row) for row in x])}, COUNT)
    given = {"samples": 200, "independent": 1, "design": PLAIN}
    assert share(counts, "h", grid, {2.0**-11: 1.0}, **given).se is None
    assert share(counts, "h", grid, {2.0**-10: 1.0}, **given).se is not None


def test_a_lattice_has_no_error_bar(normal):
    sign = Component(distribution="rademacher")
    assert "lattice" in estimate(normal, {1.0: 1.0}, Design(dk=4, query=sign, key=sign)).withheld
    assert estimate(normal, {1.0: 1.0}, Design(dk=4, query=sign)).se is not None


@pytest.mark.parametrize(
    ("value", "band"), [(0.25, 0.0025), (0.75, 0.0025), (0.0, 0.0), (1.0, 0.0), (None, 0.0), (3, 0)]
)
def test_bands_sit_on_the_smaller_part(value, band):
    prediction = Prediction(value=value, kind="stated", source="")
    assert share_band(Case(), prediction, 0.01) == pytest.approx(band)
