"""Sums over softmax rows of a block, against explicit weights and Jacobians."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from sdpa_check import rng
from sdpa_check.distributions import stratified_normals
from sdpa_check.measures import row_scores, rows, scores
from sdpa_check.measures.row_scores import RowsShape
from sdpa_check.measures.rows import AVERAGED, NORMS, Depth, RowsWork
from sdpa_check.records import Component, Design, Fault
from sdpa_check.rowsums import FEW_KEYS
from sdpa_check.softmax import chosen_statistics
from sdpa_check.theory import saturation

SHAPE = RowsShape(groups=2, queries=3, key_sets=4)
MULTIPLIERS = (0.0, 0.02, 0.35, 1.0)
FLOAT64 = {"key": Component(mean=0.25)}  # any mean asks for float64
DESIGNS = {
    "float32": Design(dk=8, keys=5),
    "float64": Design(dk=8, keys=5, **FLOAT64),
    "two keys": Design(dk=8, keys=2, **FLOAT64),
    "many keys": Design(dk=8, keys=70, **FLOAT64),
    "long rows": Design(dk=8, keys=100, **FLOAT64),
    "long rows, qk": Design(dk=8, keys=100, corr="qk:0.5", **FLOAT64),
    "ar1": Design(dk=8, keys=5, corr="ar1:0.5", **FLOAT64),
    "qk": Design(dk=8, keys=5, corr="qk:0.5", **FLOAT64),
    "laplace": Design(dk=8, keys=5, query=Component(distribution="laplace", mean=0.1)),
}
designs = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)


def generator(work, block=0):
    return rng.generator(0, work.experiment, block)


def raw_rows(work, slice_=None):
    """The scores of every row of block 0: group by group, short ones set by set, long by query.

    With slices of keys every group is drawn by itself, else the queries of all come first.
    """
    g, design, shape = generator(work), work.design, work.shape
    found, total = [], shape.key_sets * design.keys

    def drawn(component, n):
        return scores.vectors(g, design, component, n, work.fault)

    def pairs():
        if not slice_:
            q = drawn(design.query, shape.groups * shape.queries)
            k = drawn(design.key, shape.groups * total)
            both = (np.split(x, shape.groups, axis=1) for x in (q, k))
            yield from zip(*both, strict=True)
            return
        for _ in range(shape.groups):
            q = drawn(design.query, shape.queries)
            sizes = [min(slice_, total - start) for start in range(0, total, slice_)]
            yield q, np.concatenate([drawn(design.key, n) for n in sizes], axis=1)

    for queries, own in pairs():
        s = scores.products(design, queries, own, work.fault)
        sets = [s[:, start : start + design.keys] for start in range(0, total, design.keys)]
        order = sets if design.keys < FEW_KEYS else zip(*sets, strict=True)
        found += [row for part in order for row in part]
    return np.array(found, np.float64)


def naive(x):
    """Statistics of one row from its weights and its Jacobian, as a textbook has them."""
    weights = np.exp(x)
    p = weights / weights.sum()
    jacobian = np.diag(p) - np.outer(p, p)
    entropy = -(p * np.log(p)).sum()
    return {
        "entropy": entropy,
        "entropy_deficit": np.log(len(x)) - entropy,
        "max_weight": p.max(),
        "effective_keys": 1 / (p**2).sum(),
        "saturated": float(p.max() > 0.99),
        "sum_squares": (p**2).sum(),
        "sum_squares_excess": len(x) * (p**2).sum() - 1,
        "trace": np.trace(jacobian),
        "frobenius": np.linalg.norm(jacobian),
        "spectral": np.linalg.eigvalsh(jacobian).max(),
        "inf_norm": np.abs(jacobian).sum(axis=1).max(),
    }


@designs
def test_block_twin(design):
    """The naive forms lose a few rounding units of 1, the block some that grow with the logits."""
    work = RowsWork(design, MULTIPLIERS, SHAPE)
    sums, raw = work.block(generator(work)), raw_rows(work)
    eps = float(np.finfo(scores.precision(design)).eps)
    assert len(raw) == work.size == SHAPE.rows == 24
    for i, c in enumerate(MULTIPLIERS):
        assert sums[f"rows{i}"].tolist() == [24, 24]
        found = [naive(c * x) for x in raw]
        tolerance = 8 * (eps * (2 + np.abs(c * raw).max()) + 4 * 2.0**-52)
        right = np.array([sum(row[name] for row in found) for name in AVERAGED])
        size = np.array([1, 1, 1, design.keys, 1, 1, design.keys, 1, 1, 1, 1])
        assert (np.abs(sums[f"mean{i}"] - right) <= tolerance * size * len(raw)).all()
        squares = np.array([sum(row[name] ** 2 for row in found) for name in NORMS])
        assert (np.abs(sums[f"square{i}"] - squares) <= 2 * tolerance * len(raw)).all()


def test_float64_agrees_to_rounding():
    for name in ("float64", "many keys", "long rows", "long rows, qk", "ar1", "qk", "laplace"):
        work = RowsWork(DESIGNS[name], (0.35, 1.0), SHAPE)
        sums, raw = work.block(generator(work)), raw_rows(work)
        for i, c in enumerate(work.multipliers):
            found = [naive(c * x) for x in raw]
            right = [sum(row[name] for row in found) for name in AVERAGED]
            np.testing.assert_allclose(sums[f"mean{i}"], right, rtol=1e-12, atol=1e-13)


def test_saturated_rows_are_counted():
    work = RowsWork(Design(dk=64, keys=2), (1.0, 0.01), RowsShape(2, 64, 4))
    sums, raw = work.block(generator(work)), raw_rows(work)
    gap = np.abs(raw[:, 0] - raw[:, 1])
    assert (np.abs(gap - math.log(99)) > 1e-4).all()  # no row is too near to tell in float32
    right = (gap > math.log(99)).sum()  # p₁ > 0.99 for two keys
    assert 0 < right < len(raw)
    assert [sums[f"mean{i}"][AVERAGED.index("saturated")] for i in (0, 1)] == [right, 0]


@pytest.mark.parametrize("keys", [70, 100])
def test_keys_drawn_in_slices_are_all_used(monkeypatch, keys):
    monkeypatch.setattr(row_scores, "_TOGETHER_ELEMENTS", 1)  # every group by itself
    monkeypatch.setattr(row_scores, "_DRAW_ELEMENTS", 1)  # in slices of 64, the least
    work = RowsWork(Design(dk=8, keys=keys, **FLOAT64), (0.35,), RowsShape(2, 2, 3))
    sums, raw = work.block(generator(work)), raw_rows(work, slice_=64)
    right = [sum(naive(0.35 * x)[name] for x in raw) for name in AVERAGED]
    np.testing.assert_allclose(sums["mean0"], right, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("design", [DESIGNS["float32"], DESIGNS["float64"]])
def test_a_scale_does_not_change_the_numbers_of_another(design):
    shape = RowsShape(groups=2, queries=16, key_sets=4)

    def measured(multipliers):
        work = RowsWork(design, multipliers, shape)
        work = work.with_grids(rng.generator(0, work.experiment, 99))
        sums, i = work.block(generator(work)), multipliers.index(0.35)
        names = [f"mean{i}", f"square{i}", *(f"histogram{i}.{norm}" for norm in NORMS)]
        return [work.grids[i], *(sums[name].tolist() for name in names)]

    alone = measured((0.35,))
    assert measured((0.02, 0.35, 1.0, 30.0)) == alone
    assert measured((-1.0, 0.35)) == alone


@designs
def test_histograms_count_the_norms_of_the_block(design):
    work = RowsWork(design, (0.02, 0.35), RowsShape(groups=2, queries=8, key_sets=4))
    gridded = work.with_grids(rng.generator(1, work.experiment, 0))
    sums = gridded.block(generator(work))
    assert not any(name.startswith("histogram") for name in work.block(generator(work)))
    raw = raw_rows(work)
    for i, c in enumerate(work.multipliers):
        found = [naive(c * x) for x in raw]
        for norm, grid in zip(NORMS, gridded.grids[i], strict=True):
            counts, edges = sums[f"histogram{i}.{norm}"], grid.edges()
            assert counts.sum() == len(raw)
            values = np.array([row[norm] for row in found])
            slack = 32 * np.finfo(scores.precision(design)).eps * (1 + np.abs(c * raw).max())
            below = np.cumsum(counts)
            assert (np.searchsorted(np.sort(values + slack), edges[1:], "left") <= below).all()
            assert (below <= np.searchsorted(np.sort(values - slack), edges[1:], "right")).all()


def test_a_multiplier_is_measured_on_its_share_of_the_rows():
    design, shape = DESIGNS["float64"], RowsShape(groups=4, queries=8, key_sets=2)
    depths = (Depth(), Depth(share=4), Depth(share=16), Depth(share=1000))
    work = RowsWork(design, (0.02, 0.35, 1.0, 2.0), shape, depths=depths)
    sums, raw = work.block(generator(work)), raw_rows(work)
    for i, (c, n) in enumerate(zip(work.multipliers, (64, 16, 4, 1), strict=True)):
        assert sums[f"rows{i}"].tolist() == [n, n]
        found = [naive(c * x) for x in raw[:n]]
        right = [sum(row[name] for row in found) for name in AVERAGED]
        np.testing.assert_allclose(sums[f"mean{i}"], right, rtol=1e-12, atol=1e-13)


PART = Depth(
    averaged=("max_weight", "saturated", "spectral"), squared=("trace",), counted=("inf_norm",)
)


@pytest.mark.parametrize("closer", [1, 4])
def test_what_is_asked_for_does_not_depend_on_the_rest(closer):
    """Of a block with all statistics and of one with few: the same sums, bit by bit."""
    shape, multipliers = RowsShape(groups=2, queries=8, key_sets=4), (0.02, 0.35)
    design = dataclasses.replace(DESIGNS["float64"], keys=70)  # flat rows, others, and both
    whole = RowsWork(design, multipliers, shape, depths=(Depth(closer=closer),) * 2)
    whole = whole.with_grids(rng.generator(1, whole.experiment, 0))
    depths = (dataclasses.replace(PART, closer=closer),) * 2
    part = RowsWork(design, multipliers, shape, depths=depths)
    part = part.with_grids(rng.generator(1, part.experiment, 0))
    assert part.experiment == whole.experiment
    found, everything = (work.block(generator(work)) for work in (part, whole))
    for i in (0, 1):
        assert part.grid(i, "inf_norm") == whole.grid(i, "inf_norm")
        columns = [AVERAGED.index(name) for name in PART.averaged]
        assert found[f"mean{i}"].tolist() == everything[f"mean{i}"][columns].tolist()
        assert found[f"square{i}"].tolist() == [everything[f"square{i}"][NORMS.index("trace")]]
        for name in (f"rows{i}", f"histogram{i}.inf_norm"):
            assert found[name].tolist() == everything[name].tolist()
    assert len(found) == 2 * 4


def test_of_how_many_rows_a_statistic_is_wanted():
    depth = Depth(
        share=2, closer=4, averaged=("saturated", "spectral"), squared=("trace",), counted=NORMS
    )
    closely = {"spectral": 8, "frobenius": 8, "inf_norm": 8}
    assert depth.wanted(64) == {"one_minus_max": 32, "trace": 32} | closely
    assert Depth().wanted(1)["spectral"] == Depth(share=16, closer=4).wanted(8)["spectral"] == 1


@pytest.mark.parametrize(
    ("part", "rest"),
    [
        (("entropy",), {"frobenius", "sum_squares", "spectral", "one_minus_max"}),
        (("saturated",), {"frobenius", "sum_squares", "spectral", "entropy", "max_weight"}),
    ],
)
def test_statistics_that_are_not_asked_for_are_not_computed(monkeypatch, part, rest):
    seen = []
    chosen = rows.chosen_statistics

    def spy(*args):
        seen.append(chosen(*args))
        return seen[-1]

    monkeypatch.setattr(rows, "chosen_statistics", spy)
    depth = Depth(averaged=part, squared=(), counted=())
    work = RowsWork(DESIGNS["float64"], (0.35,), SHAPE, depths=(depth,))
    work.block(generator(work))
    ((statistics,),) = seen
    assert all(np.isnan(getattr(statistics, name)).all() for name in rest)


def test_only_some_rows_are_looked_at_more_closely():
    shape = RowsShape(groups=4, queries=8, key_sets=2)
    depths = (Depth(share=2, closer=4), Depth(closer=4, counted=()))
    work = RowsWork(DESIGNS["float64"], (0.35, 1.0), shape, depths=depths)
    work = work.with_grids(rng.generator(1, work.experiment, 0))
    sums, raw = work.block(generator(work)), raw_rows(work)
    for i, (c, n) in enumerate(zip(work.multipliers, (32, 64), strict=True)):
        assert sums[f"rows{i}"].tolist() == [n, n / 4]
        found = [naive(c * x) for x in raw[:n]]
        for name in AVERAGED:
            rows_ = found[: n // 4] if name == "spectral" else found
            got = sums[f"mean{i}"][AVERAGED.index(name)]
            assert got == pytest.approx(sum(row[name] for row in rows_), rel=1e-12, abs=1e-13)
        for name in NORMS:
            rows_ = found[: n // 4] if name == "spectral" else found
            got = sums[f"square{i}"][NORMS.index(name)]
            assert got == pytest.approx(sum(row[name] ** 2 for row in rows_), rel=1e-12)
    assert [sums[f"histogram0.{name}"].sum() for name in NORMS] == [8] * 4
    assert not any(name.startswith("histogram1") for name in sums)


@pytest.mark.parametrize("groups", [1, 3, 8, 64])
def test_a_split_block_has_fewer_groups(groups):
    work = RowsWork(DESIGNS["float64"], (1.0,), RowsShape(groups, 4, 2))
    assert work.split(4).shape == RowsShape(max(1, groups // 4), 4, 2)
    assert work.split(4) == dataclasses.replace(work, shape=work.split(4).shape)


COMMON = Design(dk=8, keys=5, corr="equi:0.4", **FLOAT64)


def dealt_rows(work):
    """The scores of every row of block 0: set by set, group by group, query by query."""
    g, design, shape = generator(work), work.design, work._drawn
    m, sets, queries = design.keys, shape.key_sets, shape.queries
    of_queries = stratified_normals(g, 1, shape.groups, queries)
    of_keys = stratified_normals(g, m, shape.groups, sets)
    turns = [g.permuted([i % sets for i in range(queries)]) for _ in range(m)]
    groups = []
    for group in range(shape.groups):
        q = scores.vectors(
            g, design, design.query, queries, work.fault, common=of_queries[0, group]
        )
        own = np.array([of_keys[j, group, s] for s in range(sets) for j in range(m)])
        k = scores.vectors(g, design, design.key, sets * m, work.fault, common=own)
        groups.append((q, k))
    return np.array([
        [q[:, i] @ k[:, (s + turns[j][i]) % sets * m + j] for j in range(m)]
        for s in range(sets)
        for q, k in groups
        for i in range(queries)
    ])  # fmt: skip


@pytest.mark.parametrize("shape", [RowsShape(16, 4, 1), RowsShape(4, 6, 2), RowsShape(8, 3, 1)])
def test_block_twin_where_key_sets_are_dealt(shape):
    work = RowsWork(COMMON, (0.1, 1.0), shape)
    assert work._drawn != shape
    sums, raw = work.block(generator(work)), dealt_rows(work)
    assert len(raw) == work.size
    for i, c in enumerate(work.multipliers):
        right = [sum(naive(c * x)[name] for x in raw) for name in AVERAGED]
        np.testing.assert_allclose(sums[f"mean{i}"], right, rtol=1e-12, atol=1e-13)


def test_which_rows_are_dealt():
    shape = RowsShape(128, 32, 1)
    dealt = RowsWork(COMMON, (1.0,), shape)
    assert dealt._drawn == RowsShape(16, 32, 8)
    assert dealt.split(4) is dealt
    assert dealt.cost < RowsWork(dataclasses.replace(COMMON, corr="none"), (1.0,), shape).cost
    for changed in ({"corr": "none"}, {"corr": "ar1:0.9"}, {"keys": FEW_KEYS}):
        work = RowsWork(dataclasses.replace(COMMON, **changed), (1.0,), shape)
        assert work._drawn is shape
        assert work.split(4).shape.groups == 32
    alone = RowsWork(COMMON, (1.0,), RowsShape(3, 32, 1))  # no two groups can be merged in pairs
    assert alone._drawn is alone.shape


def test_dealt_rows_have_the_law_of_others_and_vary_less():
    """Of d = 64 and 16 keys: means of dealt and other rows agree, and with theory, in 5 se.

    Eight numbers and two comparisons each, 1e-5 in all. The variance between blocks of the same
    rows is 3 times smaller at least: it was 4 to 20 times smaller, and its estimate from 200 blocks
    each is off by a factor of 1.2 at most (2 se).
    """
    multipliers, blocks = (1 / 64, 1 / 8), 200
    design = Design(dk=64, keys=16, corr="equi:0.3")
    depths = (Depth(averaged=("entropy", "sum_squares"), squared=(), counted=()),) * 2
    work = RowsWork(design, multipliers, RowsShape(64, 16, 1), depths=depths)
    means = []
    for draw in (row_scores.raw_scores, row_scores.dealt_scores):
        shape = work.shape if draw is row_scores.raw_scores else work._drawn
        found = []
        for block in range(blocks):
            raw = draw(rng.generator(3, draw.__name__, block), design, shape, Fault())
            each = [
                chosen_statistics(raw, (c,), [depths[0].wanted(len(raw))])[0] for c in multipliers
            ]
            # The last are of an eighth of the rows: that has an eighth of the information, or more.
            found.append([
                *(x.entropy.mean() for x in each), *(x.sum_squares.mean() for x in each),
                *(x.entropy[: len(raw) // 8].mean() for x in each),
                *(x.sum_squares[: len(raw) // 8].mean() for x in each),
            ])  # fmt: skip
        means.append(np.array(found))
    eigenvalues = np.array([1 + 63 * 0.3] + [0.7] * 63)
    exact = [
        saturation.dependent_rows(keys=16, multiplier=c, spectrum=eigenvalues**2)
        for c in multipliers
    ]
    right = [*(e.entropy for e in exact), *(e.sum_squares for e in exact)] * 2
    for found in means:
        error = found.std(axis=0, ddof=1) / math.sqrt(blocks)
        assert (np.abs(found.mean(axis=0) - right) < 5 * error).all()
    plain, dealt = (found.var(axis=0, ddof=1) for found in means)
    assert (plain > 3 * dealt).all()
    assert (dealt[4:] < 1.5 * 8 * dealt[:4]).all()


def test_grids_come_from_the_law_and_not_from_the_block():
    work = RowsWork(DESIGNS["float64"], (0.35,), RowsShape(4, 16, 4))
    one, same, other = (work.with_grids(rng.generator(seed, "scout", 0)) for seed in (1, 1, 2))
    assert one.grids == same.grids != other.grids
    assert one.experiment == work.experiment


@pytest.mark.parametrize("corr", ["none", "qk:0.5"])
def test_a_fault_is_a_multiplier_that_is_too_large_by_its_square(corr):
    design = Design(dk=8, keys=5, corr=corr, **FLOAT64)
    faulty = RowsWork(design, (0.2,), SHAPE, fault=Fault(sample_scale=1.5))
    right = RowsWork(design, (0.2 * 2.25,), SHAPE)
    assert faulty.experiment == right.experiment
    found, wanted = (work.block(generator(work)) for work in (faulty, right))
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12, atol=1e-13)


def test_the_experiment_names_what_shapes_the_draws():
    work = RowsWork(DESIGNS["float32"], (1.0,), SHAPE)
    others = [
        dataclasses.replace(work, stream="pilot"),
        dataclasses.replace(work, shape=RowsShape(3, 2, 4)),
        dataclasses.replace(work, design=Design(dk=8, keys=6)),
        dataclasses.replace(work, design=Design(dk=9, keys=5)),
    ]
    assert len({work.experiment, *(other.experiment for other in others)}) == 5
    assert dataclasses.replace(work, multipliers=(2.0,)).experiment == work.experiment


def test_rows_need_keys():
    work = RowsWork(Design(dk=8), (1.0,), SHAPE)
    with pytest.raises(TypeError, match="keys"):
        work.block(generator(work))


KEYS = [2, 3, 16, 64, 1000, 1024, 2**14, 10**6]


@pytest.mark.parametrize("dk", [1, 8, 16, 64, 1024, 16384])
@pytest.mark.parametrize("keys", KEYS)
def test_shapes(dk, keys):
    whole = RowsShape.fitting(dk, keys)
    assert 8 <= whole.queries <= 512
    assert whole.key_sets * keys <= max(512 * 1.5, keys)  # a power of two of sets, the nearest
    assert whole.queries * whole.key_sets * keys <= max(1 << 20, 8 * keys)  # scores of a group
    assert whole.rows * keys <= max(1 << 20, 8 * keys)  # scores of a block
    for wanted in (1, 2, 15, 16, 17, 100, 1000, 10**9):
        shape = RowsShape.fitting(dk, keys, wanted)
        assert min(shape.groups, shape.queries, shape.key_sets) >= 1
        assert shape.rows <= min(wanted, whole.rows)
        assert 3 * shape.rows >= min(wanted, whole.rows)


def effort(shape, dk, free, keys):
    """What a block costs times the variance of a mean over its rows, as `fitting` has them."""
    n, s = shape.queries, shape.key_sets
    cost = n * s * keys + dk * (n + s * keys) / 2
    return cost * (free + s * keys + n) / (n * s)


@pytest.mark.parametrize(
    ("dk", "free", "keys"),
    [(64, 64, 64), (64, 64, 8), (64, 64, 1024), (16, 16, 64), (256, 256, 64), (512, 512, 512)],
)
def test_no_other_shape_is_much_cheaper_for_its_precision(dk, free, keys):
    """Neighbours of the least are within 25 %: s·m and n are its rounded to a power of two."""
    sizes = [2**i for i in range(11)]
    others = [RowsShape(1, n, s) for n in sizes for s in sizes]
    best = min(effort(shape, dk, free, keys) for shape in others)
    assert effort(RowsShape.fitting(dk, keys, free=free), dk, free, keys) <= 1.25 * best


def test_where_few_components_are_free_few_queries_share_keys():
    assert RowsShape.fitting(64, 64, free=1).queries == 32 < RowsShape.fitting(64, 64).queries
    assert RowsShape.fitting(64, 1024, free=1).queries == 32
    assert RowsShape.fitting(64, 64, free=64) == RowsShape.fitting(64, 64)


@pytest.mark.parametrize("dk", [8, 64])
def test_the_variance_that_shapes_are_chosen_by(dk):
    """(d + s·m + n)/(n·s) is in proportion to the variance of a mean where logits are small.

    Of ln m − H, by 500 blocks of either shape: the ratio of two variances has a relative standard
    error of √(2 · (2 + κ)/500) < 11 %, the excess kurtosis κ of the means being below 1. 5.5 of
    them (4e-8), and 5 % for what the formula leaves out.
    """
    m, variances, formulas = 16, [], []
    depth = Depth(averaged=("entropy_deficit",), squared=(), counted=())
    for n, s in ((256, 1), (4, 64)):
        shape = RowsShape(1, n, s)
        work = RowsWork(Design(dk=dk, keys=m), (0.1 / dk,), shape, depths=(depth,))
        sums = [work.block(rng.generator(2, work.experiment, i))["mean0"] for i in range(500)]
        variances.append(np.var(np.array(sums) / shape.rows, ddof=1))
        formulas.append((dk + s * m + n) / (n * s))
    ratio, right = variances[0] / variances[1], formulas[0] / formulas[1]
    assert right < 0.35
    assert ratio == pytest.approx(right, rel=5.5 * 0.11 + 0.05)


def test_cost_grows_with_the_work():
    design = Design(dk=64, keys=64)
    by_scales = [RowsWork(design, (1.0,) * n, SHAPE).cost for n in (1, 2, 3)]
    by_rows = [RowsWork(design, (1.0,), RowsShape(n, 64, 4)).cost for n in (1, 2, 3)]
    assert by_scales == sorted(by_scales)
    assert by_rows == sorted(by_rows)
