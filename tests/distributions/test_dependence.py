"""The dependences: their text, their range, and the matrix that they apply."""

from __future__ import annotations

import math
import statistics
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdpa_check.distributions.dependence import KINDS, Dependence, parse, stratified_normals
from sdpa_check.errors import InputError

DIMENSIONS = [1, 2, 3, 8, 64]
AR1 = [-0.999, -0.5, 0.0, 1e-9, 0.5, 0.9, 0.999999]
# 1 + (d−1)ρ is cancelled to rounding at the lower end, so its root is good to 1e-8 there; A Aᵀ,
# in which the root is squared, is good to 1e-16 all the same.
EQUI = [0.0, 1e-9, 0.1, 0.5, 0.999999, 1.0]

valid = st.one_of(
    st.just(Dependence()),
    st.floats(-1, 1, exclude_min=True, exclude_max=True).map(lambda r: Dependence("ar1", r)),
    st.floats(-1, 1).map(lambda r: Dependence("equi", r)),
    st.floats(-1, 1).map(lambda r: Dependence("qk", r)),
)


def correlation(dependence, d):
    """The target, entry by entry."""
    target = np.empty((d, d))
    for a in range(d):
        for b in range(d):
            if dependence.kind == "ar1":
                target[a, b] = dependence.rho ** abs(a - b)
            else:
                target[a, b] = 1 if a == b else dependence.rho
    return target


def slow_ar1(z, rho):
    x = [list(z[0])]
    for row in z[1:]:
        previous = x[-1]
        x.append([rho * p + math.sqrt(1 - rho**2) * v for p, v in zip(previous, row, strict=True)])
    return np.array(x)


def equi_range(d):
    lowest = [-1 / (d - 1), -0.5 / (d - 1)] if d > 1 else [-1.0, -0.3]
    return [*lowest, *EQUI]


# --- text ------------------------------------------------------------------------------------


@given(valid)
def test_text_and_dependence_are_one_to_one(dependence):
    text = str(dependence)
    assert parse(text) == dependence
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("none", "none"),
        ("ar1:0.5", "ar1:0.5"),
        (" AR1:0.50 ", "ar1:0.5"),
        ("equi:.1", "equi:0.1"),
        ("equi:1", "equi:1.0"),
        ("qk:-0.3", "qk:-0.3"),
        ("qk:-0", "qk:0.0"),
    ],
)
def test_canonical_text(text, canonical):
    assert str(parse(text)) == canonical


def test_equal_dependences_have_one_text():
    assert str(Dependence("equi", 1)) == str(Dependence("equi", 1.0))
    assert str(Dependence("qk", -0.0)) == str(Dependence("qk", 0.0))


def test_what_is_parsed_may_be_shared():
    """The same text gives the same object, which nobody can change; a refusal is not remembered."""
    shared = parse("ar1:0.5")
    with pytest.raises(FrozenInstanceError):
        shared.rho = 0.9
    texts = [f"equi:{i / 1000!r}" for i in range(200)]
    for text in (*texts, *texts[::-1]):
        assert str(parse(text)) == text
    for _ in range(2):
        with pytest.raises(InputError):
            parse("ar1:1")


def test_only_qk_joins_query_and_key():
    assert parse("qk:0.3").qk_rho == 0.3
    assert [parse(text).qk_rho for text in ("none", "ar1:0.3", "equi:0.3")] == [0, 0, 0]


# --- range -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("equal:0.1", r"--corr: got 'equal', want one of ar1, equi, none, qk"),
        ("", "want one of ar1, equi, none, qk"),
        ("eqi:0.1", "did you mean 'equi'"),
        ("none:0.1", "want none, without ρ"),
        ("ar1", "want ar1:ρ with −1 < ρ < 1; for example ar1:0.5"),
        ("equi:", "want equi:ρ with"),
        ("qk:much", "got 'qk:much', want qk:ρ with −1 ≤ ρ ≤ 1"),
        ("ar1:1", "got 'ar1:1.0', want ar1 with −1 < ρ < 1"),
        ("ar1:-1", "want ar1 with −1 < ρ < 1"),
        ("ar1:nan", "want ar1 with −1 < ρ < 1"),
        ("equi:1.01", r"want equi with −1/\(d−1\) ≤ ρ ≤ 1"),
        ("equi:-1.01", r"want equi with −1/\(d−1\) ≤ ρ ≤ 1"),
        ("qk:inf", "want qk with −1 ≤ ρ ≤ 1"),
        ("qk:-1.0001", "want qk with −1 ≤ ρ ≤ 1"),
    ],
)
def test_text_that_is_refused(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse(text)
    assert caught.value.where == "--corr"
    assert "\n" not in str(caught.value)


def test_constructor_refuses_what_parse_refuses():
    with pytest.raises(InputError, match="want one of ar1"):
        Dependence("ar2", 0.1)
    with pytest.raises(InputError, match="want none with no ρ"):
        Dependence("none", 0.1)
    with pytest.raises(InputError, match="want ar1 with"):
        Dependence("ar1", 1.0)


@pytest.mark.parametrize("d", [2, 3, 64, 1025])
def test_equicorrelation_has_a_lower_end(d):
    lowest = -1 / (d - 1)
    Dependence("equi", lowest).check(d)
    below = Dependence("equi", max(-1.0, lowest * (1 + 1e-9)))
    if d > 2:
        with pytest.raises(InputError, match=rf"--corr: .* ≤ ρ ≤ 1 at d = {d}"):
            below.check(d)
        with pytest.raises(InputError, match=r"--corr"):
            below.apply(np.zeros((d, 1)))


def test_check_accepts_what_every_dimension_can_have():
    for d in DIMENSIONS:
        for dependence in (Dependence(), Dependence("ar1", -0.99), Dependence("qk", -1.0)):
            dependence.check(d)
    Dependence("equi", -1.0).check(1)
    Dependence("equi", -1.0).check(2)


# --- the matrix ------------------------------------------------------------------------------


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("rho", AR1)
def test_ar1_is_the_cholesky_factor(d, rho):
    dependence = Dependence("ar1", rho)
    factor = dependence.apply(np.eye(d))
    target = correlation(dependence, d)
    np.testing.assert_allclose(factor @ factor.T, target, rtol=0, atol=1e-12)
    # Cholesky loses the digits that 1 − ρ² has lost: eps/(1 − ρ²).
    allowed = 1e-12 + 16 * np.finfo(float).eps / (1 - rho**2)
    np.testing.assert_allclose(factor, np.linalg.cholesky(target), rtol=0, atol=allowed)


@pytest.mark.parametrize("rho", [-0.7, 0.0, 0.9])
def test_ar1_equals_its_slow_twin(rho):
    z = np.random.default_rng(1).standard_normal((17, 5))
    x = Dependence("ar1", rho).apply(z)
    np.testing.assert_allclose(x, slow_ar1(z, rho), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("d", "rho"), [(d, rho) for d in DIMENSIONS for rho in equi_range(d)])
def test_equicorrelation_is_the_symmetric_root(d, rho):
    dependence = Dependence("equi", rho)
    root = dependence.apply(np.eye(d))
    np.testing.assert_allclose(root @ root.T, correlation(dependence, d), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(root, root.T)
    assert np.linalg.eigvalsh(root).min() >= -1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_apply_keeps_dtype_shape_and_input(kind, dtype):
    z = np.random.default_rng(2).standard_normal((9, 4)).astype(dtype)
    before = z.copy()
    x = Dependence(kind, 0.0 if kind == "none" else 0.4).apply(z)
    assert np.array_equal(z, before)
    assert x.dtype == dtype
    assert x.shape == z.shape
    if kind in {"none", "qk"}:
        assert x is z
    else:
        double = Dependence(kind, 0.4).apply(z.astype(np.float64))
        np.testing.assert_allclose(x, double, rtol=0, atol=40 * np.finfo(dtype).eps)


@pytest.mark.parametrize("kind", ["ar1", "equi"])
def test_vectors_do_not_mix(kind):
    z = np.random.default_rng(3).standard_normal((6, 3))
    dependence = Dependence(kind, 0.4)
    alone = np.hstack([dependence.apply(z[:, [column]]) for column in range(3)])
    np.testing.assert_allclose(dependence.apply(z), alone, rtol=0, atol=1e-14)


def test_heavy_tails_are_mixed_by_the_same_map():
    z = np.array([[1e12], [-3.0], [0.5]])
    x = Dependence("ar1", 0.5).apply(z)
    np.testing.assert_allclose(x, slow_ar1(z, 0.5), rtol=1e-15)


# --- common factors --------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "rho"), [(d, rho) for d in DIMENSIONS for rho in equi_range(d)])
def test_a_common_factor_takes_the_place_of_the_sum(d, rho):
    """x = A z′ with z′ = z − z̄ + w/√d: the sum of z is replaced and the rest is kept."""
    generator = np.random.default_rng(4)
    z, w = generator.standard_normal((d, 5)), generator.standard_normal(5)
    dependence = Dependence("equi", rho)
    right = dependence.apply(z - z.mean(axis=0) + w / math.sqrt(d))
    np.testing.assert_allclose(dependence.apply(z, w), right, rtol=0, atol=1e-12)
    own = z.sum(axis=0) / math.sqrt(d)
    np.testing.assert_allclose(dependence.apply(z, own), dependence.apply(z), rtol=0, atol=1e-12)
    single = dependence.apply(z.astype(np.float32), w)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, right, rtol=0, atol=1e-5)


@pytest.mark.parametrize("text", ["none", "ar1:0.5", "qk:0.5"])
def test_only_equicorrelation_has_a_common_factor(text):
    with pytest.raises(ValueError, match=f"{text} has no common factor"):
        parse(text).apply(np.zeros((3, 2)), np.zeros(2))


def slow_stratified(rng, sequences, groups, n):
    """One number after another, by the same draws: orders of strata first, then places in them."""
    fine = [[rng.permuted(np.arange(groups)) for _ in range(n)] for _ in range(sequences)]
    strata = [
        [rng.permuted([c * groups + fine[s][c][g] for c in range(n)]) for g in range(groups)]
        for s in range(sequences)
    ]
    normal = statistics.NormalDist()
    return [
        [[normal.inv_cdf((t + rng.random()) / (groups * n)) for t in group] for group in sequence]
        for sequence in strata
    ]


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 4, 8), (3, 5, 2), (5, 1, 7), (2, 6, 1)])
def test_stratified_normals_equal_their_slow_twin(shape):
    found = stratified_normals(np.random.default_rng(5), *shape)
    right = slow_stratified(np.random.default_rng(5), *shape)
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 4, 8), (3, 5, 2), (64, 16, 8), (2, 6, 1)])
def test_every_stratum_is_taken_once(shape):
    _, groups, n = shape
    found = stratified_normals(np.random.default_rng(6), *shape)
    at = np.vectorize(statistics.NormalDist().cdf)(found)
    strata = np.floor(at * groups * n).astype(int)
    for sequence in strata:
        assert sorted(sequence.ravel()) == list(range(groups * n))
        for group in sequence:
            assert sorted(group // groups) == list(range(n))
    assert n == 1 or any((np.diff(group) < 0).any() for sequence in strata for group in sequence)


def test_every_stratified_normal_is_normal():
    """At every place of a block, and independent between sequences.

    Of N = 20,000 blocks the distance √N sup|F_N − F| exceeds x with probability 2 exp(−2x²) at
    most, and √N times a correlation of two independent normals is about N(0, 1): x = 3.8 and
    z = 6.9 give 12 · 6e-13 and 15 · 5e-12, so 1e-10 in all. Within a sequence w² is no longer
    independent: the last line would see that it is not stratified.
    """
    blocks, generator = 20_000, np.random.default_rng(7)
    found = np.array([stratified_normals(generator, 2, 2, 3) for _ in range(blocks)])
    places = found.reshape(blocks, 2, 6)
    ranks = np.arange(1, blocks + 1) / blocks
    for values in places.reshape(blocks, -1).T:
        cdf = np.vectorize(statistics.NormalDist().cdf)(np.sort(values))
        distance = max((ranks - cdf).max(), (cdf - ranks + 1 / blocks).max())
        assert math.sqrt(blocks) * distance < 3.8
    between = np.corrcoef(places[:, 0], places[:, 1], rowvar=False)[:6, 6:]
    assert math.sqrt(blocks) * np.abs(between).max() < 6.9
    assert places[:, 0].sum(axis=1).var() < 0.5 * 6
