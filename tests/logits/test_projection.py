"""Queries and keys from an initialised projection."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check.logits.pipeline import parse
from sdpa_check.logits.transforms import Context
from sdpa_check.logits.transforms.projection import _orthonormal

EPS = 2.0**-52
D, DIM = 96, 16
VARIANCE = {
    "xavier": 2 * D / (D + DIM),
    "kaiming": 2.0,
    "torch_linear": 1 / 3,
    "packed": 1 / 2,
    "orthogonal": 1.0,
    "normal=0.02": 4e-4 * D,
}
"""σ_q² = D · the variance of an entry of W."""

inits = pytest.mark.parametrize("init", VARIANCE)


def source(text):
    return parse(f"proj:{text}").source


@inits
@pytest.mark.parametrize("common", [0, 1.5])
def test_variance_of_the_components(init, common):
    """Mean of q² and of k² over blocks, by a t-test over 64 blocks.

    |t| > 5.5 at 63 degrees of freedom has probability 7e-7; 24 tests: false alarm 2e-5. Without
    common part a block's relative spread is at most √(2/(DIM·30)) + √(2/(DIM·D)), 10 %, so an
    error of 9 % in the variance would be seen; with it a block is one draw of W u, whose mean
    square spreads by √(2/DIM) = 35 %, and 30 % would be seen.
    """
    made = source(f"{init},{D},{common}")
    context = Context(dk=DIM, keys=30, queries=30)
    rng = np.random.default_rng(20)
    blocks = [made.on_source(rng, context) for _ in range(64)]
    for squares in np.array([[(q**2).mean(), (k**2).mean()] for q, k in blocks]).T:
        se = squares.std(ddof=1) / math.sqrt(64)
        assert se < (0.055 if common else 0.02) * VARIANCE[init]
        assert abs(squares.mean() - VARIANCE[init]) < 5.5 * se


@inits
def test_entries_of_the_matrix(init):
    w = source(f"{init},{D}").matrix(np.random.default_rng(3), Context(dk=D, keys=2))
    variance = 2 / (2 * D) if init == "xavier" else VARIANCE[init] / D
    # D² entries, kurtosis at most 3 (the orthonormal rows fix it): relative SE √(2/D²) = 1.5 %;
    # 5 SE: false alarm 6e-7 each.
    assert w.var() == pytest.approx(variance, rel=5 * math.sqrt(2) / D)
    uniform = init in {"torch_linear", "packed"}
    assert (np.abs(w).max() <= math.sqrt(3 * variance)) == uniform
    if uniform:
        assert np.abs(w).max() > 0.99 * math.sqrt(3 * variance)  # (1 − 0.99^(D²)) is 1


def test_orthogonal_rows():
    context = Context(dk=DIM, keys=2)
    made = source(f"orthogonal,{D}")
    rng = np.random.default_rng(4)
    w = made.matrix(rng, context)
    # Householder QR is orthonormal to a small multiple of √D·d·eps.
    np.testing.assert_allclose(w @ w.T, np.eye(DIM), rtol=0, atol=D * EPS)
    # Uniform over rotations: no entry has a preferred sign (without the signs of R, LAPACK's
    # first row would be −z/‖z‖ on a fixed axis). Mean of 400 entries of variance 1/D; 5 SE.
    first = np.array([made.matrix(rng, context)[0, 0] for _ in range(400)])
    assert abs(first.mean()) < 5 / math.sqrt(400 * D)
    last = np.array([made.matrix(rng, Context(dk=2, keys=2))[1, 1] for _ in range(400)])
    assert abs(last.mean()) < 5 / math.sqrt(400 * D)


@pytest.mark.parametrize("common", [0, -0.7])
def test_inputs_are_layer_normalised(common):
    x = source(f"xavier,{D},{common}").inputs(np.random.default_rng(0), 7, Context(dk=4, keys=2))
    assert x.shape == (D, 7)
    # D + 4 roundings in the sum, half of it after the root, and D in the check.
    assert np.linalg.norm(x, axis=0) == pytest.approx(math.sqrt(D), rel=2 * D * EPS)
    assert np.abs(x.sum(axis=0)).max() <= D * D * EPS


@pytest.mark.parametrize("width", [2, 3, 64, 65])
def test_the_common_direction(width):
    """A huge common part leaves nothing but u: alternating, centred, of norm √D."""
    x = source(f"xavier,{width},1e9").inputs(np.random.default_rng(0), 3, Context(dk=4, keys=2))
    u = [(-1) ** i - (width % 2) / width for i in range(width)]
    u = np.array(u) * math.sqrt(width) / math.sqrt(sum(v * v for v in u))
    assert np.abs(x - u[:, None]).max() < 1e-7  # z is 1e-9 of it


def test_queries_and_keys_share_the_direction_and_not_the_matrix():
    made = source(f"orthogonal,{D},3")
    rng = np.random.default_rng(2)
    x = made.inputs(rng, 50, Context(dk=4, keys=2))
    # x·u/D is a/√(1+a²) up to O(1/√D) per input: 0.949 ± 0.01.
    u = (-1.0) ** np.arange(D)
    assert (u @ x / D).mean() == pytest.approx(3 / math.sqrt(10), abs=0.02)
    q, k = made.on_source(rng, Context(dk=DIM, keys=40, queries=40))
    assert not np.allclose(q, k)
    cosine = q.mean(axis=1) @ k.mean(axis=1)
    cosine /= np.linalg.norm(q.mean(axis=1)) * np.linalg.norm(k.mean(axis=1))
    assert abs(cosine) < 0.99


def slow_source(rng, d, width, n, m, common, times=1):
    """Kaiming's, number by number, from the same draws: q and k, as often as there are matrices."""
    inputs = [rng.standard_normal((width, size)) for size in (n, m)] * times
    draws = [math.sqrt(2 / width) * rng.standard_normal((d, width)) for _ in inputs]
    made = []
    for w, z in zip(draws, inputs, strict=True):
        vectors = []
        for column in z.T:
            x = [v + common * (-1) ** i for i, v in enumerate(column)]
            mean = math.fsum(x) / width
            std = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / width)
            x = [(v - mean) / std for v in x]
            vectors.append([math.fsum(a * b for a, b in zip(row, x, strict=True)) for row in w])
        made.append(np.array(vectors).T)
    return made


@pytest.mark.parametrize("common", [0, 0.8])
def test_slow_twin(common):
    q, k = source(f"kaiming,12,{common}").on_source(
        np.random.default_rng(9), Context(dk=5, keys=4, queries=3)
    )
    slow_q, slow_k = slow_source(np.random.default_rng(9), 5, 12, 3, 4, common)
    np.testing.assert_allclose(q, slow_q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(k, slow_k, rtol=0, atol=1e-12)


def test_matrices_are_drawn_anew_for_the_same_inputs():
    context = Context(dk=5, keys=4, queries=3, weights=3)
    q, k = source("kaiming,12,0.8").repeated(np.random.default_rng(9), context)
    right = slow_source(np.random.default_rng(9), 5, 12, 3, 4, 0.8, times=3)
    np.testing.assert_allclose(q, right[::2], rtol=0, atol=1e-12)
    np.testing.assert_allclose(k, right[1::2], rtol=0, atol=1e-12)


@inits
@pytest.mark.parametrize("weights", [1, 3])
def test_how_much_is_drawn(init, weights):
    class Counting(np.random.Generator):
        drawn = 0

        def standard_normal(self, size, **kwargs):
            self.drawn += math.prod(size)
            return super().standard_normal(size, **kwargs)

        def random(self, size, **kwargs):
            self.drawn += math.prod(size)
            return super().random(size, **kwargs)

    context = Context(dk=8, keys=5, queries=3, weights=weights)
    rng = Counting(np.random.PCG64(0))
    made = source(f"{init},32")
    assert [len(x) for x in made.repeated(rng, context)] == [weights, weights]
    assert rng.drawn == made.draws(context)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("dk", "width"), [(1, 2), (16, 32), (16, 31), (16, 16), (64, 512)])
def test_orthonormal_rows_are_those_of_gram_and_schmidt(dk, width, dtype):
    """Each row of Z less what lies in the span of those before it, by loops, in float64.

    Both lose digits with the square of how close Z is to linear dependence.
    """
    given = np.random.default_rng(7).standard_normal((dk, width)).astype(dtype)
    z = given.astype(np.float64)
    right = []
    for row in z:
        left = row
        for _ in range(2):
            left = left - sum((left @ other) * other for other in right)
        right.append(left / np.linalg.norm(left))
    found, eps = _orthonormal(given), np.finfo(dtype).eps
    assert found.dtype == dtype
    near = 4 * width * eps * np.linalg.cond(z) ** 2
    np.testing.assert_allclose(found, right, rtol=0, atol=near)
    assert near < 5e7 * eps


@inits
def test_single_precision(init):
    context = Context(dk=8, keys=3, queries=2, dtype=np.float32)
    q, k = source(f"{init},32,0.5").on_source(np.random.default_rng(0), context)
    assert (q.dtype, k.dtype) == (np.float32, np.float32)
    assert (q.shape, k.shape) == ((8, 2), (8, 3))


def test_width():
    assert source("xavier,33").width_in(Context(dk=4, keys=2, d_model=64)) == 33
    assert source("xavier").width_in(Context(dk=4, keys=2, d_model=64)) == 64
    assert source("xavier").width_in(Context(dk=4, keys=2)) == 512


def test_the_source_takes_the_place_of_the_draw():
    def never(_):
        raise AssertionError("drawn")

    context = Context(dk=8, keys=5, queries=3)
    applied = parse("proj:xavier | scale:sqrt").run(np.random.default_rng(0), never, context)
    assert (applied.q.shape, applied.k.shape) == ((8, 3), (8, 5))
    right = applied.q.T @ applied.k / math.sqrt(8)
    np.testing.assert_allclose(applied.logits, right, rtol=4 * EPS)
