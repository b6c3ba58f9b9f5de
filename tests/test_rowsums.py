"""rowsums.py against plain loops: the sums, the extreme scores, the secular iteration."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from sdpa_check import rowsums
from sdpa_check.rowsums import Want, row_sums

EPS = {np.float32: 2.0**-23, np.float64: 2.0**-52}


def wanted(scores, *, roots=False):
    """All sums of all rows, and the roots if asked for."""
    return Want(rows=len(scores), powers=3, logs=True, roots=len(scores) if roots else 0)


def loop_about_second(row, c):
    ordered = sorted(map(float, row))
    x = [c * (s - ordered[-2]) for s in ordered[:-1]]
    f = [math.exp(v) for v in x]
    return [
        math.fsum(f),
        math.fsum(v**2 for v in f),
        math.fsum(v**3 for v in f),
        math.fsum(map(math.prod, zip(f, x, strict=True))),
    ]


def loop_about_mean(row, c):
    mean = math.fsum(map(float, row)) / len(row)
    y = [c * (float(s) - mean) for s in row]
    u = [math.expm1(v) for v in y]
    # The series, as far as it counts at |y| = 1: 1/20! is 4e-19.
    rest = [math.fsum(v**k / math.factorial(k) for k in range(2, 20)) for v in y]
    return [
        math.fsum(rest),
        math.fsum(v**2 for v in u),
        math.fsum(v**3 for v in u),
        math.fsum(map(math.prod, zip(u, y, strict=True))),
    ]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("keys", [2, 7, 64, 300, 5000])
def test_sums_about_the_second_largest(dtype, keys):
    scores = np.random.default_rng(keys).normal(0, 6, (3, keys)).astype(dtype)
    (got,) = row_sums(scores, [1.5], [wanted(scores)])
    want = np.array([loop_about_second(row, 1.5) for row in scores]).T
    # A rounding of x, |x| ≤ 60 where it counts, and sums of at most 2048 terms: 64·eps.
    np.testing.assert_allclose(got.second, want, rtol=64 * EPS[dtype], atol=16 * EPS[dtype])
    assert not got.flat.any()
    ordered = np.sort(scores.astype(np.float64))
    np.testing.assert_array_equal(got.gap, 1.5 * (ordered[:, -1] - ordered[:, -2]))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("keys", [2, 7, 64, 300, 5000])
@pytest.mark.parametrize("reach", [0.999, 1e-2, 1e-6])
def test_sums_about_the_mean(dtype, keys, reach):
    scores = np.random.default_rng(keys).normal(0, 6, (3, keys)).astype(dtype)
    wide = np.abs(scores - scores.mean(axis=1, keepdims=True)).max()
    c = float(dtype(reach * rowsums._FLAT[scores.itemsize] / wide))
    (got,) = row_sums(scores, [c], [wanted(scores)])
    want = np.array([loop_about_mean(row, c) for row in scores]).T
    assert got.flat.all()
    # Terms of one sign, but for Σu³: there the tolerance is held against Σ|u|³ ≤ reach·Σu².
    scale = np.array([want[0], want[1], reach * want[1], want[3]])
    assert (np.abs(got.mean - want) <= 64 * EPS[dtype] * scale).all()


@pytest.mark.parametrize("keys", [2, 3, 5, 16, 31, 95])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_extremes(keys, axis):
    block = np.random.default_rng(keys).integers(-4, 9, (50, keys)).astype(np.float64)
    ordered = np.sort(block, axis=1)
    given = block.T.copy() if axis == 0 else block
    top, second, least = rowsums.extremes(given, axis)
    np.testing.assert_array_equal(top, ordered[:, -1])
    np.testing.assert_array_equal(second, ordered[:, -2])
    np.testing.assert_array_equal(least, ordered[:, 0])


@pytest.mark.parametrize(("dtype", "limit"), [(np.float64, 5), (np.float32, 4)])
def test_secular_iterates_fall_to_the_root_in_a_few_steps(monkeypatch, dtype, limit):
    iterates = []
    model_root = rowsums._model_root

    def spy(*args):
        iterates.append(model_root(*args))
        return iterates[-1]

    monkeypatch.setattr(rowsums, "_model_root", spy)
    rng = np.random.default_rng(1)
    for std in (1e-3, 0.1, 1, 3, 8, 30):
        for keys in (2, 8, 64, 1024):
            iterates.clear()
            scores = rng.normal(0, std, (2**13 // keys, keys)).astype(dtype)
            (got,) = row_sums(scores, [1.0], [wanted(scores, roots=True)])
            assert len(iterates) <= limit, (std, keys)
            for above, below in itertools.pairwise(iterates):
                # Monotone up to the rounding of sums of `keys` terms.
                assert (below <= above + 16 * EPS[dtype] * (1 + above)).all(), (std, keys)
            np.testing.assert_array_equal(iterates[-1], got.root)


@pytest.mark.parametrize("gap", [1e-14, 1e-9, 1e-3, 1.0, 30.0])
def test_secular_root_of_two_keys(gap):
    # λ = 2 p₁ p₂, so t = p₁ − p₂ = tanh(gap/2), to full relative accuracy.
    scores = np.array([[0.0, gap]])
    (got,) = row_sums(scores, [1.0], [wanted(scores, roots=True)])
    assert got.root[0] == pytest.approx(math.tanh(gap / 2), rel=8 * EPS[np.float64], abs=0)


def test_secular_equation_holds_at_the_root():
    scores = np.random.default_rng(2).normal(0, 2, (20, 200))
    (got,) = row_sums(scores, [1.0], [wanted(scores, roots=True)])
    for row, root in zip(scores, got.root, strict=True):
        x = np.sort(row)
        f = np.exp(x[:-1] - x[-2])
        h = math.exp(x[-2] - x[-1])
        left = (1 + root) / (1 - h - h * root)
        right = f.sum() + (f**2 / (root + 1 - f)).sum()
        # Either side changes by 1/(1 − h − h·t) relative per unit of 1 + t.
        assert left == pytest.approx(right, rel=64 * EPS[np.float64] / (1 - h - h * root))


def test_float32_sums_survive_saturation():
    scores = np.float32([[0.0, -95.0, -96.0, -97.0]])
    (got,) = row_sums(scores, [1.0], [wanted(scores, roots=True)])
    np.testing.assert_allclose(got.second[:, 0], loop_about_second(scores[0], 1.0), rtol=1e-6)
    assert got.gap[0] == 95.0


def test_many_weightless_keys_add_up_to_nothing():
    scores = np.full((1, 200_000), -60.0)
    scores[0, :2] = 0.0
    (got,) = row_sums(scores, [1.0], [wanted(scores)])
    np.testing.assert_allclose(got.second[:, 0], [1.0, 1.0, 1.0, 0.0], atol=2 * EPS[np.float64])


@pytest.mark.parametrize("keys", [33, 120])
@pytest.mark.parametrize("powers", [1, 2, 3])
def test_what_is_wanted_does_not_depend_on_the_rest(monkeypatch, keys, powers):
    """Rows from flat to one-hot, of several blocks, in either layout.

    Another selection of rows may be summed in another order: 64·eps, as for the sums themselves.
    """
    monkeypatch.setattr(rowsums, "BLOCK", 100 * keys)
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((250, keys)) * 10.0 ** rng.uniform(-3, 2, (250, 1))
    (whole,) = row_sums(scores, [1.0], [wanted(scores, roots=True)])
    assert 0 < whole.flat.sum() < len(scores)
    for logs, rows, roots in itertools.product((False, True), (250, 170), (0, 130, 170)):
        if roots and powers == 1:
            continue
        want = Want(rows=rows, powers=powers, logs=logs, roots=roots)
        (got,) = row_sums(scores, [1.0], [want])
        assert (got.flat == whole.flat[:rows]).all()
        np.testing.assert_array_equal(got.gap, whole.gap[:rows])
        np.testing.assert_allclose(got.root[:roots], whole.root[:roots], rtol=64 * EPS[np.float64])
        assert np.isnan(got.root[roots:]).all()
        used = [*range(powers), 3] if logs else [*range(powers)]
        for sums, right, kept in (
            (got.mean, whole.mean, got.flat),
            (got.second, whole.second, ~got.flat),
        ):
            np.testing.assert_allclose(
                sums[used][:, kept], right[used][:, :rows][:, kept], rtol=64 * EPS[np.float64]
            )
            unused = [i for i in range(4) if i not in used]
            assert np.isnan(sums[unused][:, kept]).all()


def test_rows_that_lie_key_by_key_are_as_others():
    scores = np.random.default_rng(4).normal(0, 3, (200, 40))
    turned = np.ascontiguousarray(scores.T).T
    for c in (0.7, -0.7):
        (one,), (other,) = (row_sums(x, [c], [wanted(x)]) for x in (scores, turned))
        np.testing.assert_array_equal(one.second, other.second)
        np.testing.assert_array_equal(one.gap, other.gap)


def test_scratch_memory_is_bounded():
    scores = np.zeros((256, 2**14), np.float32)
    scores[:, ::3] = 1.0
    tracemalloc.start()
    row_sums(scores, [1.0, -0.5, 1e-3], [wanted(scores, roots=True)] * 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Five arrays, and one more where rows of both kinds are separated.
    assert peak < 6.5 * rowsums.BLOCK * 4 < scores.nbytes / 4
