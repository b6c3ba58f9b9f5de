"""softmax.py against 250-digit school formulas, the explicit Jacobian, and its own invariants."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdpa_check import rowsums
from sdpa_check import softmax as module
from sdpa_check.errors import InputError
from sdpa_check.softmax import chosen_statistics, entropy, jacobian, row_statistics, softmax

NAMES = list(module.NAMES)
FROM_UNIFORM = {"entropy_deficit", "sum_squares_excess"}
EPS = {np.float32: 2.0**-23, np.float64: 2.0**-52}


def twin(scores, multiplier):
    """Every statistic but the spectral norm, as its definition says, and the weights."""
    x = [Decimal(float(multiplier)) * Decimal(float(s)) for s in scores if s != -math.inf]
    weights = [v.exp() for v in x]
    total = sum(weights)
    p = sorted((w / total for w in weights), reverse=True)
    h = -sum(w / total * (v - total.ln()) for w, v in zip(weights, x, strict=True))
    square, cube = sum(w**2 for w in p), sum(w**3 for w in p)
    values = {
        "entropy": h,
        "entropy_deficit": Decimal(len(p)).ln() - h,
        "max_weight": p[0],
        "one_minus_max": 1 - p[0],
        "sum_squares": square,
        "sum_squares_excess": len(p) * square - 1,
        "effective_keys": 1 / square,
        "trace": 1 - square,
        "frobenius": (square - 2 * cube + square**2).sqrt(),
        "inf_norm": 2 * p[0] * (1 - p[0]),
    }
    return values, p


def is_largest_eigenvalue(value, p, tolerance):
    """Whether λ_max(diag p − ppᵀ) lies within value·(1 ± tolerance).

    Between the two largest weights, Σ p²/(p − λ) − 1 rises from −∞ to ∞ through its only zero.
    """

    def excess(x):
        return sum(w * w / (w - x) for w in p) - 1

    low, high = (Decimal(float(value)) * (1 + Decimal(s * tolerance)) for s in (-1, 1))
    above = low <= p[1] or excess(low) <= 0
    below = high >= p[0] or excess(high) >= 0
    return low <= p[0] and high >= p[1] and above and below


def check(scores, multiplier, dtype):
    """Compare every statistic of every row with its twin.

    Tolerance: eps·(16 + gap), 16 for some ten roundings, gap for that of x_(1) − x_(2) before the
    exponential; for the differences from the uniform row 16·eps absolute, unless the row is flat.
    """
    scores = np.asarray(scores, dtype)
    eps = EPS[dtype]
    (got,) = row_statistics(scores, [multiplier])
    for i, row in enumerate(scores):
        x = np.sort(np.float64(dtype(multiplier)) * row[row > -np.inf].astype(np.float64))
        flat = np.abs(x - x.mean()).max() <= rowsums._FLAT[scores.itemsize]
        relative = eps * (16 + x[-1] - x[-2])
        with localcontext(prec=250):
            want, p = twin(row, dtype(multiplier))
            for name, value in want.items():
                slack = 0.0 if flat or name not in FROM_UNIFORM else 16 * eps
                error = abs(float(Decimal(float(getattr(got, name)[i])) - value))
                allowed = relative * abs(float(value)) + slack
                assert error <= allowed, f"row {i} {name}: {error=:.2e} {allowed=:.2e} {value=:.6e}"
            assert is_largest_eigenvalue(got.spectral[i], p, relative), f"row {i} spectral"


def same(a, b, rel=0.0):
    for name in NAMES:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=rel, err_msg=name)


# --- softmax, entropy, jacobian -----------------------------------------------------------------


def test_softmax_is_exp_over_sum():
    x = np.random.default_rng(1).normal(0, 3, (4, 9))
    for row, got in zip(x, softmax(x), strict=True):
        e = [math.exp(v) for v in row]
        np.testing.assert_allclose(got, np.array(e) / math.fsum(e), rtol=16 * 2.0**-52)


def test_softmax_ignores_a_common_shift_and_cannot_overflow():
    x = np.array([0.0, 1.0, -2.0])
    np.testing.assert_array_equal(softmax(x + 8192), softmax(x))
    np.testing.assert_array_equal(softmax([1e4, -1e4]), [1.0, 0.0])


def test_softmax_gives_masked_keys_no_weight():
    np.testing.assert_array_equal(softmax([0.0, -np.inf, 0.0]), [0.5, 0.0, 0.5])


@pytest.mark.parametrize("x", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf], [], 3.0])
def test_softmax_refuses_rows_without_an_answer(x):
    with pytest.raises(InputError, match="x: got"):
        softmax(x)


def test_entropy_of_known_vectors():
    assert entropy([0.25] * 4) == pytest.approx(math.log(4), rel=1e-15)
    assert entropy([1.0, 0.0]) == 0.0
    np.testing.assert_allclose(
        entropy([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]]), [math.log(2), 1.5 * math.log(2)], rtol=1e-15
    )


@pytest.mark.parametrize("p", [[-0.1, 1.1], [np.nan, 1.0]])
def test_entropy_refuses_what_are_no_weights(p):
    with pytest.raises(InputError, match="p: got"):
        entropy(p)


def test_jacobian_is_the_derivative_of_softmax():
    x, h = np.random.default_rng(2).normal(size=6), 1e-5
    steps = [(softmax(x + h * e) - softmax(x - h * e)) / (2 * h) for e in np.eye(6)]
    # Truncation h²/6·|p'''| ≤ 2e-11, rounding 2^-53/h = 1.1e-11.
    np.testing.assert_allclose(jacobian(softmax(x)), np.array(steps).T, atol=5e-11)


def test_jacobian_wants_a_vector():
    with pytest.raises(InputError, match="single vector"):
        jacobian([[0.5, 0.5]])


# --- row_statistics against the definitions -----------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("keys", [2, 3, 8, 100])
@pytest.mark.parametrize("std", [32, 8, 1, 0.25, 0.1, 1e-3, 1e-6])
def test_gaussian_rows(dtype, keys, std):
    rng = np.random.default_rng([keys, int(std * 1e6)])
    check(8 * rng.standard_normal((4, keys)), std / 8, dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("scores", "multiplier"),
    [
        (np.random.default_rng(3).standard_cauchy((6, 40)).clip(-90, 90), 1.0),
        (np.random.default_rng(4).normal(1000, 1, (3, 20)), 0.5),
        (np.random.default_rng(5).normal(0, 5, (3, 20)), -0.75),
        ([[1.0] + [0.0] * 63, [3.0] + [0.0] * 63, [9.0] + [0.0] * 63], 1.0),  # top and bulk
        ([[0.0] * 63 + [-10.0], [0.0] * 32 + [-100.0] * 32], 1.0),  # a soft mask
        ([[100.0, 0.0, 0.0, -1.0], [100.0, 99.0, 0.0, -200.0]], 1.0),  # two keys carry all
    ],
    ids=["cauchy", "offset", "negative", "bulk", "soft-mask", "two-keys"],
)
def test_awkward_rows(dtype, scores, multiplier):
    check(scores, multiplier, dtype)


@pytest.mark.parametrize("distance", [0.0, *(10.0**-k for k in range(1, 16))])
def test_ties_and_near_ties_of_the_largest(distance):
    scores = np.random.default_rng(6).normal(0, 1, (2, 30))
    scores[:, 7] = scores[:, 21] = 4.0
    scores[0, 7] += distance
    check(scores, 1.5, np.float64)


def test_uniform_rows_are_exact():
    for got in row_statistics(np.random.default_rng(7).normal(size=(3, 9)), [0.0, -0.0]):
        assert (got.entropy == math.log(9)).all()
        assert (got.entropy_deficit == 0).all()
        assert (got.sum_squares_excess == 0).all()
        np.testing.assert_allclose(got.spectral, 1 / 9, rtol=4 * 2.0**-52)


def test_one_hot_rows_reach_their_limits_without_a_warning():
    scores = np.zeros((2, 5))
    scores[:, 2] = [1e4, 700.0]
    (got,) = row_statistics(scores, [1.0])
    for name in ("entropy", "one_minus_max", "trace", "frobenius", "inf_norm", "spectral"):
        assert getattr(got, name)[0] == 0.0, name
    assert got.max_weight[0] == got.sum_squares[0] == got.effective_keys[0] == 1.0
    assert got.entropy_deficit[0] == pytest.approx(math.log(5), rel=1e-15)
    assert got.sum_squares_excess[0] == 4.0
    # x_i = −700 for four keys: first order in h = e^−700, which still is a normal number.
    h, rel = math.exp(-700), 800 * 2.0**-52
    assert got.one_minus_max[1] == pytest.approx(4 * h, rel=rel, abs=0)
    assert got.entropy[1] == pytest.approx(4 * h * 701, rel=rel, abs=0)
    assert got.frobenius[1] == pytest.approx(h * math.sqrt(16 + 3 * 4), rel=rel, abs=0)
    assert got.spectral[1] == pytest.approx(
        5 * h, rel=rel, abs=0
    )  # Laplacian of a star with 4 leaves


def test_logits_beyond_the_largest_float_are_one_hot():
    (got,) = row_statistics(np.array([[1e300, 0.0, 1.0]]), [1e10])
    assert got.max_weight[0] == 1.0
    assert got.entropy[0] == got.frobenius[0] == got.spectral[0] == 0.0


def test_naive_forms_fail_where_these_do_not():
    row = np.zeros((1, 8))
    row[0, 0] = 45.0
    p = softmax(row)[0]
    square, cube = (p**2).sum(), (p**3).sum()
    naive = math.sqrt(max(square - 2 * cube + square**2, 0.0))
    (got,) = row_statistics(row, [1.0])
    want = math.exp(-45) * math.sqrt(49 + 3 * 7)  # J₁₁ = 7h, J_ii = h, J_1i = −h
    assert abs(naive / want - 1) > 0.5
    assert got.frobenius[0] == pytest.approx(want, rel=1e-13, abs=0)


@pytest.mark.parametrize("std", [0.05, 1.0, 6.0])
def test_against_the_explicit_jacobian(std):
    scores = np.random.default_rng(8).normal(0, std, (20, 48))
    (got,) = row_statistics(scores, [1.0])
    for i, p in enumerate(softmax(scores)):
        j = jacobian(p)
        values = np.linalg.eigvalsh(j)
        assert got.spectral[i] == pytest.approx(values[-1], abs=1e-12)
        assert got.trace[i] == pytest.approx(values.sum(), abs=1e-12)
        assert got.frobenius[i] == pytest.approx(np.linalg.norm(j), abs=1e-12)
        assert got.inf_norm[i] == pytest.approx(np.linalg.norm(j, np.inf), abs=1e-12)
        assert got.entropy[i] == pytest.approx(float(entropy(p)), abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_long_rows(dtype):
    scores = np.random.default_rng(9).standard_normal((2, 150_001)).astype(dtype)
    for c, got in zip((0.05, 2.0), row_statistics(scores, [0.05, 2.0]), strict=True):
        p = softmax(np.longdouble(dtype(c)) * scores.astype(np.longdouble))
        want = {
            "entropy": entropy(p),
            "sum_squares": (p**2).sum(axis=1),
            "max_weight": p.max(axis=1),
        }
        for name, value in want.items():
            # As in check(); the float64 twin has errors of a few eps of its own.
            np.testing.assert_allclose(
                getattr(got, name), value, rtol=24 * EPS[dtype], err_msg=name
            )
        assert (got.max_weight >= got.spectral).all()


def test_million_keys_give_a_sound_deficit():
    scores = np.random.default_rng(10).standard_normal((1, 10**6)).astype(np.float32)
    (got,) = row_statistics(scores, [0.02])
    y = 0.02 * (scores[0] - scores[0].mean(dtype=np.float64))
    # ln m − H = κ₂/2 + κ₃/3 + O(κ₂²) for small cumulants κ of the logits.
    assert got.entropy_deficit[0] == pytest.approx((y**2).mean() / 2 + (y**3).mean() / 3, rel=1e-5)


# --- batches ------------------------------------------------------------------------------------


def mixed_rows(rng, rows, keys):
    """Rows from nearly uniform to one-hot, shuffled together."""
    return rng.standard_normal((rows, keys)) * 10.0 ** rng.uniform(-6, 2, (rows, 1))


@pytest.mark.parametrize("keys", [2, 5, 33, 120])
def test_a_row_does_not_depend_on_its_neighbours(monkeypatch, keys):
    monkeypatch.setattr(rowsums, "BLOCK", 64 * keys)
    monkeypatch.setattr(module, "_ROWS", 100)
    scores = mixed_rows(np.random.default_rng(11), 257, keys)
    (got,) = row_statistics(scores, [1.0])
    alone = [row_statistics(row[None], [1.0])[0] for row in scores]
    for name in NAMES:
        want = np.concatenate([getattr(a, name) for a in alone])
        # Sums in another order: the tolerance of check(), twice.
        np.testing.assert_allclose(getattr(got, name), want, rtol=64 * 2.0**-52, atol=32 * 2.0**-52)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_both_layouts_agree(monkeypatch, dtype):
    scores = mixed_rows(np.random.default_rng(12), 200, 37).astype(dtype)
    results = []
    for few in (0, 1000):
        monkeypatch.setattr(rowsums, "FEW_KEYS", few)
        (got,) = row_statistics(scores, [0.5])
        results.append(got)
    for name in NAMES:
        a, b = (getattr(r, name) for r in results)
        np.testing.assert_allclose(a, b, rtol=64 * EPS[dtype], atol=32 * EPS[dtype], err_msg=name)


def test_several_multipliers_are_each_as_if_alone():
    scores = mixed_rows(np.random.default_rng(13), 50, 20)
    multipliers = [1.0, -1.0, 0.125, 0.0, -0.01]
    for c, got in zip(multipliers, row_statistics(scores, multipliers), strict=True):
        same(got, row_statistics(scores, [c])[0])
        same(got, row_statistics(math.copysign(1.0, c) * scores, [abs(c)])[0])


def test_no_multipliers_and_no_rows():
    assert row_statistics(np.zeros((2, 3)), []) == ()
    (got,) = row_statistics(np.zeros((0, 3)), [1.0])
    assert got.entropy.shape == (0,)


def test_spectral_norm_only_if_asked_for():
    scores = mixed_rows(np.random.default_rng(14), 60, 20)
    (full,), (part,) = (row_statistics(scores, [1.0], spectral=s) for s in (True, False))
    assert np.isnan(part.spectral).all()
    assert not np.isnan(full.spectral).any()
    for name in set(NAMES) - {"spectral"}:
        # Another selection of rows may be summed in another order.
        np.testing.assert_allclose(
            getattr(part, name), getattr(full, name), rtol=64 * 2.0**-52, atol=32 * 2.0**-52
        )


def test_spectral_norm_of_some_multipliers():
    scores = mixed_rows(np.random.default_rng(14), 60, 20)
    got = row_statistics(scores, [1.0, 0.3, -0.5], spectral=[True, False, True])
    for found, c, asked in zip(got, (1.0, 0.3, -0.5), (True, False, True), strict=True):
        same(found, row_statistics(scores, [c], spectral=asked)[0])
    with pytest.raises(InputError, match="one per multiplier"):
        row_statistics(scores, [1.0, 0.3], spectral=[True])


@pytest.mark.parametrize("keys", [1, 8, 120])
@pytest.mark.parametrize("masks", [False, True])
def test_what_is_chosen_is_as_in_the_whole(monkeypatch, keys, masks):
    """One statistic at a time and of some rows, in several blocks and parts; the rest is NaN."""
    monkeypatch.setattr(rowsums, "BLOCK", 64 * keys)
    monkeypatch.setattr(module, "_ROWS", 100)
    rng = np.random.default_rng(21)
    scores = mixed_rows(rng, 250, keys)
    if masks:
        scores[:, 1:][rng.random((250, keys - 1)) < 0.3] = -np.inf
    (whole,) = row_statistics(scores, [0.7])
    for name, rows in itertools.product(NAMES, (250, 170, 64, 3, 0)):
        first, got = chosen_statistics(scores, [1.0, 0.7], [{}, {name: rows}])
        column = getattr(got, name)
        # Another selection of rows may be summed in another order.
        np.testing.assert_allclose(
            column[:rows],
            getattr(whole, name)[:rows],
            rtol=64 * 2.0**-52,
            atol=32 * 2.0**-52,
            err_msg=name,
        )
        assert np.isnan(column[rows:]).all()
        for result, others in ((got, set(NAMES) - {name}), (first, NAMES)):
            assert all(np.isnan(getattr(result, other)).all() for other in others)


def test_statistics_of_different_numbers_of_rows():
    scores = mixed_rows(np.random.default_rng(22), 90, 20)
    (whole,) = row_statistics(scores, [0.7])
    (got,) = chosen_statistics(scores, [0.7], [{"frobenius": 90, "spectral": 30, "entropy": 50}])
    for name, rows in (("frobenius", 90), ("spectral", 30), ("entropy", 50)):
        np.testing.assert_allclose(
            getattr(got, name)[:rows], getattr(whole, name)[:rows], rtol=64 * 2.0**-52
        )
        assert np.isnan(getattr(got, name)[rows:]).all()


def test_the_input_is_never_written_to():
    for shape in ((100, 8), (4, 300)):
        scores = np.random.default_rng(15).normal(size=shape)
        before = scores.copy()
        scores.flags.writeable = False
        row_statistics(scores, [1.0, -0.1])
        np.testing.assert_array_equal(scores, before)


def test_any_memory_layout_and_type():
    base = np.random.default_rng(16).integers(-9, 9, (40, 60))
    want = row_statistics(np.ascontiguousarray(base[::2, ::3], np.float64), [0.3])[0]
    same(row_statistics(base[::2, ::3], [0.3])[0], want)
    same(row_statistics(base.astype(np.float64)[::2, ::3], [0.3])[0], want, 64 * 2.0**-52)
    fortran = np.asfortranarray(base[::2, ::3], np.float64)
    same(row_statistics(fortran, [0.3])[0], want, 64 * 2.0**-52)


def test_threads_get_the_same_bits():
    rng = np.random.default_rng(17)
    jobs = [rng.normal(0, 4, (300, 64)).astype(np.float32) for _ in range(8)]
    want = [row_statistics(job, [1.0, 0.1]) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda job: row_statistics(job, [1.0, 0.1]), jobs))
    for pair in zip(got, want, strict=True):
        for a, b in zip(*pair, strict=True):
            same(a, b)


# --- masked keys --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_masked_keys_are_as_if_absent(monkeypatch, dtype):
    monkeypatch.setattr(rowsums, "BLOCK", 200)  # several blocks, some of them without a mask
    rng = np.random.default_rng(18)
    scores = rng.normal(0, 3, (40, 25)).astype(dtype)
    visible = rng.random(scores.shape) < rng.random((40, 1))
    visible[:, 3] = True
    visible[0] = np.arange(25) == 3  # one key left
    visible[24:] = True
    masked = np.where(visible, scores, dtype(-np.inf))
    for c, got in zip((1.0, -0.5, 0.0), row_statistics(masked, [1.0, -0.5, 0.0]), strict=True):
        for i in range(40):
            (want,) = row_statistics(scores[i][visible[i]][None], [c])
            for name in NAMES:
                a, b = getattr(got, name)[i], getattr(want, name)[0]
                assert a == pytest.approx(b, rel=64 * EPS[dtype], abs=32 * EPS[dtype]), (i, name)


def test_a_single_key_leaves_nothing_to_choose():
    (got,) = row_statistics(np.array([[-np.inf, 5.0]]), [2.0])
    assert {name: float(getattr(got, name)[0]) for name in NAMES} == dict.fromkeys(NAMES, 0.0) | {
        "max_weight": 1.0,
        "sum_squares": 1.0,
        "effective_keys": 1.0,
    }
    assert np.isnan(row_statistics(np.ones((1, 1)), [1.0], spectral=False)[0].spectral).all()


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "multiplier", "where"),
    [
        ([[1.0, np.nan]], 1.0, "scores: got nan"),
        ([[1.0, np.inf]], 1.0, "scores: got inf"),
        ([[1.0, np.inf], [-np.inf, 0.0]], 1.0, "scores: got inf"),
        ([[0.0, 1.0], [-np.inf, -np.inf]], 1.0, "row 1"),
        ([[1e308, -1e308]], 1.0, "differences"),
        ([1.0, 2.0], 1.0, "scores: got"),
        (np.zeros((3, 0)), 1.0, "scores: got"),
        ([[1.0, 2.0]], np.nan, "multipliers: got nan"),
        ([[1.0, 2.0]], -np.inf, "multipliers: got -inf"),
        (np.float32([[1.0, 2.0]]), 1e39, "finite in float32"),
    ],
)
def test_unusable_input_is_named(scores, multiplier, where):
    with pytest.raises(InputError, match=where):
        row_statistics(np.asarray(scores), [multiplier])


def test_large_finite_scores_are_no_masks():
    scores = np.full((2, 40), 1e37, np.float32)  # their sum overflows, their differences do not
    (got,) = row_statistics(scores, [1.0])
    assert (got.entropy_deficit == 0).all()


# --- invariants ---------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    st.lists(st.floats(-50, 50), min_size=2, max_size=12),
    st.floats(-4, 4),
    st.randoms(use_true_random=False),
)
def test_bounds_and_symmetry(scores, multiplier, shuffle):
    order = shuffle.sample(range(len(scores)), len(scores))
    rows = np.array([scores, [scores[i] for i in order]])
    (r,) = row_statistics(rows, [multiplier])
    slack = 1 + 64 * 2.0**-52
    p = np.sort(softmax(multiplier * rows), axis=1)
    bound = np.minimum(np.minimum(r.max_weight, r.inf_norm), 0.5) * slack
    assert (r.spectral >= np.maximum(p[:, -2], r.max_weight * r.one_minus_max) / slack**8).all()
    assert (r.spectral <= bound).all()
    assert (r.spectral <= r.frobenius * slack).all()
    assert (r.frobenius <= r.trace * slack).all()
    assert (r.entropy >= 0).all()
    assert (r.entropy <= math.log(len(scores)) * slack).all()
    np.testing.assert_allclose(r.entropy + r.entropy_deficit, math.log(len(scores)), rtol=1e-14)
    np.testing.assert_allclose(r.max_weight + r.one_minus_max, 1, rtol=1e-15)
    for name in NAMES:
        a, b = getattr(r, name)
        assert a == pytest.approx(b, rel=64 * 2.0**-52, abs=32 * 2.0**-52), name
