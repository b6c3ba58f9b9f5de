"""Sums over weights and ordered scores of a block, against loops over its rows."""

from __future__ import annotations

import dataclasses
import statistics

import numpy as np
import pytest

from sdpa_check import rng
from sdpa_check.measures import row_scores, scores, weights
from sdpa_check.measures.row_scores import RowsShape
from sdpa_check.measures.rows import RowsWork
from sdpa_check.measures.weights import EXTREMES, PARTS, WEIGHT_GRID, WeightsWork
from sdpa_check.records import Component, Design, Fault
from sdpa_check.rowsums import FEW_KEYS

SHAPE = RowsShape(groups=2, queries=3, key_sets=4)
MULTIPLIERS = (0.02, 0.35, 4.0)
FLOAT64 = {"key": Component(mean=0.25)}  # any mean asks for float64
DESIGNS = {
    "float32": Design(dk=8, keys=5),
    "float64": Design(dk=8, keys=5, **FLOAT64),
    "two keys": Design(dk=8, keys=2, **FLOAT64),
    "even": Design(dk=8, keys=70, **FLOAT64),
    "long rows": Design(dk=8, keys=101, **FLOAT64),
    "ar1": Design(dk=8, keys=5, corr="ar1:0.5", **FLOAT64),
    "qk": Design(dk=8, keys=5, corr="qk:0.5", **FLOAT64),
    "cauchy": Design(dk=8, keys=5, query=Component(distribution="cauchy")),
    "rademacher": Design(dk=8, keys=6, query=Component(distribution="rademacher", mean=1.0)),
}
designs = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)


def generator(work, block=0):
    return rng.generator(0, work.experiment, block)


def raw_rows(work):
    """The scores of every row of block 0, drawn and ordered as `raw_scores` documents it."""
    g, design, shape = generator(work), work.design, work.shape
    total = shape.key_sets * design.keys
    q = scores.vectors(g, design, design.query, shape.groups * shape.queries, work.fault)
    k = scores.vectors(g, design, design.key, shape.groups * total, work.fault)
    found = []
    pairs = zip(np.split(q, shape.groups, axis=1), np.split(k, shape.groups, axis=1), strict=True)
    for queries, own in pairs:
        s = scores.products(design, queries, own, work.fault)
        sets = [s[:, start : start + design.keys] for start in range(0, total, design.keys)]
        order = sets if design.keys < FEW_KEYS else zip(*sets, strict=True)
        found += [row for part in order for row in part]
    return [[float(x) for x in row] for row in found]


def naive_extremes(row):
    """In the order of `EXTREMES`."""
    falling = sorted(row, reverse=True)
    return (
        falling[0],
        falling[0] - falling[1],
        falling[0] - statistics.median(row),
        max(abs(x) for x in row),
    )


def naive_weights(row, multiplier):
    top = max(row)
    terms = [np.exp(multiplier * (x - top)) for x in row]
    return [term / sum(terms) for term in terms]


def counted(grid, values):
    """How many of `values` fall into [edge, next edge), bin by bin."""
    edges = grid.edges()
    bins = np.searchsorted(edges, values, side="right") - 1
    return np.bincount(bins, minlength=len(edges) - 1)


@designs
def test_extremes_twin(design):
    work = WeightsWork(design, MULTIPLIERS, SHAPE)
    sums, raw = work.block(generator(work)), raw_rows(work)
    assert sums["rows"] == len(raw) == work.size == 24
    columns = np.array([naive_extremes(row) for row in raw]).T
    for name, column in zip(EXTREMES, columns, strict=True):
        np.testing.assert_allclose(sums[f"total.{name}"], column.sum(), rtol=1e-12)
        np.testing.assert_array_equal(sums[f"histogram.{name}"], counted(work.grid, column))


@designs
def test_weights_twin(design):
    """Weights differ from the loop's by rounding, so a count may differ at an edge within it."""
    work = WeightsWork(design, MULTIPLIERS, SHAPE)
    sums, raw = work.block(generator(work)), raw_rows(work)
    for i, c in enumerate(MULTIPLIERS):
        p = [naive_weights(row, c) for row in raw]
        for name, values in (
            (f"weights{i}", np.concatenate(p)),
            (f"runner_up{i}", np.array([sorted(row)[-2] for row in p])),
        ):
            assert sums[name].sum() == len(values)
            slack = 1e-12 * values
            low, high = (counted(WEIGHT_GRID, values + s) for s in (slack, -slack))
            below = np.cumsum(sums[name])
            assert (np.cumsum(low) <= below).all()
            assert (below <= np.cumsum(high)).all()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("keys", [5, 70, 101])
def test_every_part_is_as_in_the_whole(part, keys):
    whole = WeightsWork(dataclasses.replace(DESIGNS["float64"], keys=keys), MULTIPLIERS, SHAPE)
    work = dataclasses.replace(whole, parts=(part,))
    sums, right = work.block(generator(work)), whole.block(generator(whole))
    names = {part} if "." in part else {f"{part}{i}" for i in range(len(MULTIPLIERS))}
    assert sums.keys() == {"rows"} | names
    for name in sums:
        np.testing.assert_array_equal(sums[name], right[name])


def test_rows_are_put_in_order_for_a_median_only(monkeypatch):
    seen = []
    sort = np.sort
    monkeypatch.setattr(
        weights.np, "sort", lambda *args, **kwargs: seen.append(1) or sort(*args, **kwargs)
    )
    work = WeightsWork(DESIGNS["float64"], MULTIPLIERS, SHAPE)
    parts = tuple(part for part in PARTS if "median" not in part)
    dataclasses.replace(work, parts=parts).block(generator(work))
    assert not seen
    work.block(generator(work))
    assert seen


@pytest.mark.parametrize("height", [1, 7, 10**6])
def test_slices_change_nothing(height, monkeypatch):
    work = WeightsWork(DESIGNS["float64"], MULTIPLIERS, SHAPE)
    whole = work.block(generator(work))
    monkeypatch.setattr(weights, "_SLICE_SCORES", 5 * height)
    sliced = work.block(generator(work))
    assert whole.keys() == sliced.keys()
    for name, value in whole.items():
        np.testing.assert_allclose(sliced[name], value, rtol=1e-12)


@designs
def test_the_scores_are_those_of_rows_work(design):
    """One function draws for both; under one name their blocks would hold the same rows."""
    mine, theirs = WeightsWork(design, (1.0,), SHAPE), RowsWork(design, (1.0,), SHAPE)
    g = [rng.generator(0, mine.experiment, 0) for _ in range(2)]
    drawn = theirs._scores(g[0])
    np.testing.assert_array_equal(drawn, row_scores.raw_scores(g[1], design, SHAPE, Fault()))
    right = np.array(raw_rows(mine))
    # A product may be summed in another order: d roundings of terms that add up to |q|·|k|.
    slack = design.dk * np.finfo(drawn.dtype).eps * np.abs(right).max()
    np.testing.assert_allclose(drawn, right, rtol=0, atol=slack)
    assert mine.experiment != theirs.experiment


def test_a_scale_does_not_change_the_numbers_of_another():
    def measured(multipliers):
        work = WeightsWork(DESIGNS["float32"], multipliers, SHAPE)
        sums, i = work.block(generator(work)), multipliers.index(0.35)
        raw = [sums[part] for part in PARTS if "." in part]
        return [x.tolist() for x in (*raw, sums[f"weights{i}"], sums[f"runner_up{i}"])]

    alone = measured((0.35,))
    assert measured((0.02, 0.35, 1.0)) == alone


def test_a_fault_is_a_wider_sampler():
    faulty = WeightsWork(DESIGNS["float64"], (0.2,), SHAPE, fault=Fault(sample_scale=1.5))
    right = WeightsWork(DESIGNS["float64"], (0.2 * 2.25,), SHAPE)
    found, wanted = (work.block(generator(work)) for work in (faulty, right))
    for name in EXTREMES:
        right = pytest.approx(2.25 * wanted[f"total.{name}"], rel=1e-12)
        assert found[f"total.{name}"] == right
    np.testing.assert_array_equal(found["weights0"], wanted["weights0"])


def test_the_experiment_names_what_shapes_the_draws():
    work = WeightsWork(DESIGNS["float32"], (1.0,), SHAPE)
    others = [
        dataclasses.replace(work, stream="pilot"),
        dataclasses.replace(work, shape=RowsShape(3, 2, 4)),
        dataclasses.replace(work, design=Design(dk=8, keys=6)),
    ]
    assert len({work.experiment, *(other.experiment for other in others)}) == 4
    assert dataclasses.replace(work, multipliers=(2.0,)).experiment == work.experiment
    assert dataclasses.replace(work, parts=("weights",)).experiment == work.experiment


def test_rows_need_keys():
    work = WeightsWork(Design(dk=8), (1.0,), SHAPE)
    with pytest.raises(TypeError, match="keys"):
        work.block(generator(work))


def test_cost_grows_with_the_work():
    design = Design(dk=64, keys=64)
    by_scales = [WeightsWork(design, (1.0,) * n, SHAPE).cost for n in (1, 2, 3)]
    by_rows = [WeightsWork(design, (1.0,), RowsShape(n, 64, 4)).cost for n in (1, 2, 3)]
    assert by_scales == sorted(set(by_scales))
    assert by_rows == sorted(set(by_rows))


@pytest.mark.parametrize(
    ("shape", "disjoint"),
    [(RowsShape(2, 3, 4), 6), (RowsShape(5, 8, 2), 10), (RowsShape(1, 256, 1), 1)],
)
def test_rows_that_share_nothing(shape, disjoint):
    assert shape.disjoint == disjoint


def test_a_split_block_has_fewer_groups():
    work = WeightsWork(DESIGNS["float32"], (1.0,), SHAPE)
    one = work.split(SHAPE.groups)
    assert one == dataclasses.replace(work, shape=SHAPE.split(SHAPE.groups))
    assert one.size * SHAPE.groups == work.size
