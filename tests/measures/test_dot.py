"""Sums of dot products over a block, against loops over its pairs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from sdpa_check import rng
from sdpa_check.measures import scores
from sdpa_check.measures.dot import PARTS, DotWork, block_vectors
from sdpa_check.measures.scores import effective_dimension
from sdpa_check.records import Component, Design, Fault


def component(name="gaussian", **kwargs):
    return Component(distribution=name, **kwargs)


MEANS = {"query": component(mean=0.5, sigma=2.0), "key": component("laplace", mean=-0.25)}
DESIGNS = {
    "gram": Design(dk=6),
    "gram, different scales": Design(dk=6, query=component(sigma=3.0), key=component(sigma=0.25)),
    "gram, lattice": Design(dk=6, query=component("rademacher"), key=component("uniform")),
    "gram, ar1": Design(dk=6, corr="ar1:0.5"),
    "gram, equi": Design(dk=6, corr="equi:0.3"),
    "scores, means": Design(dk=6, **MEANS),
    "scores, qk": Design(dk=6, corr="qk:-0.4"),
    "scores, qk and means": Design(dk=6, **MEANS, corr="qk:0.7"),
    "scores, large d": Design(dk=300),
    "scores, heavy tail": Design(dk=6, query=component("t", df=2), key=component("uniform")),
    "scores, heaviest tail": Design(dk=6, query=component("t", df=0.7), key=component("laplace")),
    "scores, cauchy": Design(dk=3, query=component("cauchy"), key=component("cauchy")),
}
designs = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)


def drawn(work, seed=0):
    """The vectors of block 0, in float64, and the rounding unit that the block handles them in."""
    generator, design = rng.generator(seed, work.experiment, 0), work.design
    q = scores.vectors(generator, design, design.query, work.vectors, work.fault)
    k = scores.vectors(generator, design, design.key, work.vectors, work.fault)
    return q.astype(np.float64), k.astype(np.float64), float(np.finfo(q.dtype).eps)


def all_pairs(work, q, k):
    """Every score of a block in a loop over pairs, and the sum of its absolute terms."""
    design = work.design
    kind, _, number = design.corr.partition(":")
    rho = float(number) if kind == "qk" else 0.0
    ratio = design.key.sigma / design.query.sigma
    s, size = np.empty((2, work.vectors, work.vectors))
    for i in range(work.vectors):
        for j in range(work.vectors):
            key = k[:, j]
            terms = [q[:, i] * key]
            if rho:
                own = rho * ratio * (q[:, i] - design.query.mean)
                rest = math.sqrt(1 - rho**2) * (key - design.key.mean)
                terms = [q[:, i] * part for part in (own, rest, np.full(len(q), design.key.mean))]
            s[i, j] = math.fsum(t for part in terms for t in part)
            size[i, j] = sum(np.abs(part).sum() for part in terms)
    return s - work.pivot, size + abs(work.pivot)


def in_tile(work):
    """Which pairs (i, j) the tile holds: squares along the diagonal."""
    side, groups = work.tiling
    i, j = np.indices((work.vectors, work.vectors)) // side
    return (i == j) & (i < groups)


def powers(s, error):
    """Sums of powers, and how far they may be off where every s is off by `error`."""
    for power in (1, 2, 3, 4):
        worst = ((np.abs(s) + error) ** power - np.abs(s) ** power).sum()
        summing = 2.0**-52 * s.size * (np.abs(s) ** power).sum()
        yield (s**power).sum(), worst + summing


@pytest.mark.parametrize("name", DESIGNS)
def test_block_twin(name):
    design = DESIGNS[name]
    work = DotWork(design, 40)
    q, k, eps = drawn(work)
    s, size = all_pairs(work, q, k)
    sums = work.block(rng.generator(0, work.experiment, 0))
    error = (design.dk + 6) * eps * size  # d products, d sums, and what qk and the pivot add
    tile = s[in_tile(work)]
    assert sums["tile"] == tile.size
    for power, (right, off) in enumerate(powers(tile, error[in_tile(work)]), start=1):
        assert sums[f"tile{power}"] == pytest.approx(right, abs=off)

    assert sums["pairs"] == work.size
    if name.startswith("gram"):  # all pairs, through sums of up to n rounded terms
        assert work.size == s.size
        right, off = next(iter(powers(s, error)))
        gram = 2 * (work.vectors + design.dk) * eps
        assert sums["power1"] == pytest.approx(right, abs=off + gram * size.sum())
        assert sums["power2"] == pytest.approx((s**2).sum(), abs=gram * (size**2).sum())
    else:
        pooled = [sums[n] for n in ("pairs", "power1", "power2")]
        assert pooled == [sums[n] for n in ("tile", "tile1", "tile2")]

    own, off = (x[in_tile(work) & np.eye(len(s), dtype=bool)] for x in (s, error))
    for i, parts in enumerate((16, 4, 1)):  # pairs that share no vector
        count = max(1, len(own) // parts)
        square, worst = np.mean(own[:count] ** 2), np.mean((np.abs(own) + off)[:count] ** 2)
        allowed = 2 * (worst / square - 1) + 1e-12
        assert sums["growth"][i] == pytest.approx(math.log(square), abs=allowed)
    assert sums["growth"][3] == 1

    counts, edges = sums["histogram"], work.grid.edges()
    assert counts.sum() == tile.size
    slack = error[in_tile(work)] + 2.0**-23 * np.abs(tile)  # the bins are found in float32
    below = np.cumsum(counts)
    assert (np.searchsorted(np.sort(tile + slack), edges[1:], "left") <= below).all()
    assert (below <= np.searchsorted(np.sort(tile - slack), edges[1:], "right")).all()


def test_float64_agrees_to_rounding():
    """The tolerances above are worst cases: in float64 twin and block agree to 1e-12."""
    for name in ("scores, heaviest tail", "scores, means", "scores, qk and means"):
        work = DotWork(DESIGNS[name], 32)
        assert scores.precision(work.design) is np.float64
        q, k, _ = drawn(work)
        tile = all_pairs(work, q, k)[0][in_tile(work)]
        sums = work.block(rng.generator(0, work.experiment, 0))
        for power in (1, 2, 3, 4):
            right, size = (tile**power).sum(), (np.abs(tile) ** power).sum()
            assert sums[f"tile{power}"] == pytest.approx(right, abs=1e-12 * size)


def test_a_lattice_is_counted_exactly():
    """Rademacher scores are whole numbers, exact in every format."""
    design = Design(dk=5, query=component("rademacher"), key=component("rademacher"))
    work = DotWork(design, 24)
    q, k, _ = drawn(work)
    s = q.T @ k
    tile = s[np.equal(*np.indices(s.shape) // 16) & (np.indices(s.shape)[0] < 16)]
    sums = work.block(rng.generator(0, work.experiment, 0))
    assert sums["power1"] == s.sum()
    assert sums["power2"] == (s**2).sum()
    assert [sums[f"tile{p}"] for p in (1, 2, 3, 4)] == [(tile**p).sum() for p in (1, 2, 3, 4)]
    edges = work.grid.edges()
    for value in (-5, -3, -1, 1, 3, 5):
        i = np.searchsorted(edges, value, "right" if value > 0 else "left") - 1
        assert sums["histogram"][i] == (tile == value).sum()


@pytest.mark.parametrize("d", [2, 3, 5, 16, 64, 256])
@pytest.mark.parametrize("n", [1, 2, 8, 40, 300, 2048])
@pytest.mark.parametrize("law", ["gaussian", "cauchy"])
def test_tile_scores_belong_to_pairs_of_their_own(d, n, law):
    """Queries (i, 1, 0, …) and keys (1, n·j, 0, …) have the score i + n·j: it names the pair."""
    work = DotWork(Design(dk=d, query=component(law)), n)
    q, k = np.zeros((2, d, n))
    q[:2] = np.arange(n), np.ones(n)
    k[:2] = np.ones(n), n * np.arange(n)
    tile = work._tile(q, k)
    j, i = np.divmod(tile, n)
    groups, side, columns = tile.shape
    assert (side, groups) == work.tiling
    assert side == columns
    assert tile.size <= 1 << 17
    for group in range(groups):
        want = group * side + np.arange(side)
        np.testing.assert_array_equal(i[group], np.tile(want[:, None], side))
        np.testing.assert_array_equal(j[group].T, i[group])


@pytest.mark.parametrize("d", [1, 2, 3, 16, 64, 256, 1000])
@pytest.mark.parametrize("n", [1, 2, 8, 64, 1024])
@pytest.mark.parametrize(("law", "largest"), [("gaussian", 256), ("cauchy", 64)])
def test_tiling(d, n, law, largest):
    side, groups = DotWork(Design(dk=d, query=component(law)), n).tiling
    assert side == min(n, largest, max(8, 2 ** math.ceil(math.log2(2 * d))))
    assert groups == min(n // side, (1 << 17) // side**2)


def test_blocks_of_one_vector():
    work = DotWork(Design(dk=4), 1)
    q, k, eps = drawn(work)
    sums = work.block(rng.generator(0, work.experiment, 0))
    assert sums["pairs"] == sums["tile"] == 1
    assert sums["power1"] == pytest.approx(float((q * k).sum()), abs=16 * eps * np.abs(q * k).sum())


def test_scores_may_all_be_zero():
    """Two Rademacher components: half of the scores are 0, and the logarithm of 0 is no error."""
    component_ = component("rademacher")
    work = DotWork(Design(dk=2, query=component_, key=component_), 2)
    growth = [work.block(rng.generator(0, work.experiment, b))["growth"][0] for b in range(20)]
    assert set(growth) == {-math.inf, math.log(4)}


@designs
def test_a_fault_multiplies_scores_by_its_square(design):
    """The same draws, every component 1.5 times as large; the pivot stays where it was."""
    work = DotWork(design, 32)
    wide = dataclasses.replace(work, fault=Fault(sample_scale=1.5))
    sums = wide.block(rng.generator(0, wide.experiment, 0))
    q, k, eps = drawn(work)
    s, size = (x[in_tile(work)] for x in all_pairs(work, q, k))
    moved = 2.25 * (s + work.pivot) - work.pivot
    off = 2.25 * (design.dk + 10) * eps * size
    for power, (right, allowed) in enumerate(powers(moved, off), start=1):
        assert sums[f"tile{power}"] == pytest.approx(right, abs=allowed)
    assert sums["pairs"] == work.size


def test_the_experiment_names_what_shapes_the_draws():
    work = DotWork(Design(dk=8), 32)
    others = [
        dataclasses.replace(work, vectors=64),
        dataclasses.replace(work, stream="pilot"),
        dataclasses.replace(work, design=Design(dk=9)),
        dataclasses.replace(work, design=Design(dk=8, corr="ar1:0.5")),
        dataclasses.replace(work, design=Design(dk=8, key=component(sigma=2.0))),
    ]
    assert len({work.experiment, *(other.experiment for other in others)}) == 6
    assert dataclasses.replace(work, fault=Fault(sample_scale=2.0)).experiment == work.experiment


GRAM = Design(dk=64)
SCORES = Design(dk=64, key=component(mean=1.0))
HEAVY = Design(dk=64, key=component("t", df=3))


@pytest.mark.parametrize("dk", [1, 2, 7, 64, 256, 257, 16384])
@pytest.mark.parametrize("design", [GRAM, SCORES, Design(dk=64, corr="qk:0.5"), HEAVY])
def test_block_sizes(dk, design):
    design = dataclasses.replace(design, dk=dk)
    n = block_vectors(design)
    assert n == 1 << (n.bit_length() - 1)
    if design.corr == "none" and design.key == component() and dk <= 256:
        assert 1 << 15 < n * dk <= 1 << 18
        assert DotWork(design, n).size == n * n
    else:  # scores are looked at one by one
        assert 256 <= n <= 1024
        assert DotWork(design, n).size <= 1 << 17
    for pairs in (1, 4, 100, 10**4, 10**12):
        small = block_vectors(design, pairs)
        assert small == 1 << (small.bit_length() - 1) <= n
        assert small**2 <= max(pairs, 4)
        assert small == n or 4 * small**2 > pairs / 4


@pytest.mark.parametrize("sigma", [1e-6, 1e-3, 1.0, 1e6])
def test_the_grid_follows_the_scale(sigma):
    design = Design(dk=16, query=component(sigma=sigma), key=component(sigma=sigma))
    edges = DotWork(design, 2).grid.edges()
    positive = edges[(edges > 0) & np.isfinite(edges)]
    assert positive[0] <= sigma**2 * 2.0**-13
    assert positive[-1] >= sigma**2 * 2.0**59
    assert positive[0] > np.finfo(np.float32).tiny  # the bins are found in float32


def test_cost_grows_with_the_work():
    for design in (GRAM, SCORES):
        costs = [DotWork(design, n).cost for n in (32, 64, 256, 1024)]
        assert costs == sorted(costs)
        assert costs[0] > 0


@pytest.mark.parametrize("d", [64, 512])
@pytest.mark.parametrize("corr", ["equi:0.1", "equi:0.5", "ar1:0.3", "ar1:0.9", "none"])
def test_the_effective_dimension_is_that_of_the_spectrum(d, corr):
    """(tr R²)²/tr R⁴; for AR(1) in the limit of many components, off by less than one here."""
    kind, _, rho = corr.partition(":")
    r = float(rho or 0)
    lags = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    matrix = r**lags if kind == "ar1" else (1 - r) * np.eye(d) + r
    eigenvalues = np.linalg.eigvalsh(matrix)
    exact = (eigenvalues**2).sum() ** 2 / (eigenvalues**4).sum()
    assert abs(effective_dimension(Design(dk=d, corr=corr)) - exact) < 1


@pytest.mark.parametrize("parts", [(part,) for part in PARTS] + [("powers", "growth")])
@pytest.mark.parametrize("name", ["gram", "scores, large d", "scores, heavy tail"])
def test_a_block_measures_the_parts_that_are_asked_for(name, parts):
    """The same numbers as of a block that measures all, on the same draws."""
    whole = DotWork(DESIGNS[name], 16)
    some = dataclasses.replace(whole, parts=parts)
    assert some.experiment == whole.experiment
    got, right = (w.block(rng.generator(0, w.experiment, 0)) for w in (some, whole))
    wanted = {
        "powers": {"pairs", "power1", "power2"},
        "tile": {"tile", "tile1", "tile2", "tile3", "tile4"},
        "histogram": {"tile", "histogram"},
        "growth": {"tile", "growth"},
    }
    names = set().union(*(wanted[part] for part in parts))
    assert names <= got.keys()
    assert not {"histogram", "growth", "tile4"} & (got.keys() - names)
    for key, value in got.items():
        if key not in {"power1", "power2", "pairs"} or "powers" in parts:
            np.testing.assert_allclose(value, right[key], rtol=1e-12)


def test_only_the_variance_needs_gram_matrices():
    """What needs scores alone uses all of them: drawing is balanced against multiplying."""
    design = DESIGNS["gram"]
    assert block_vectors(design) == block_vectors(design, parts=("powers",))
    assert block_vectors(design, parts=("tile",)) == 512
    work = DotWork(design, 512, parts=("tile",))
    side, groups = work.tiling
    assert work.size == side * side * groups
    assert side * groups == 512
    assert "power2" not in work.block(rng.generator(0, work.experiment, 0))
    wide = DotWork(Design(dk=64), 512, parts=("tile",))
    assert wide.tiling == (512, 1)
    assert len(wide.block(rng.generator(0, wide.experiment, 0))) == 5


@pytest.mark.parametrize(
    ("corr", "dk", "side"),
    [("equi:0.5", 64, 64), ("ar1:0.9", 64, 64), ("equi:0.3", 16, 32), ("none", 64, 128)],
)
def test_the_tile_of_dependent_components_is_wide_and_has_all_vectors(corr, dk, side):
    """8√d_k where they depend on each other, 2 d_k where they do not: what `tile_side` derives."""
    design = Design(dk=dk, corr=corr)
    work = DotWork(design, block_vectors(design))
    assert work.tiling[0] == side
    if corr != "none":
        assert work.vectors == side * work.tiling[1]
