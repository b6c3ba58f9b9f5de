"""The rules over ‖q‖² against exact Laplace transforms and moments of quadratic forms."""

import numpy as np
import pytest

from sdpa_check.errors import InputError
from sdpa_check.theory.quadrature import (
    MOST_NODES,
    chi_square_rule,
    even_grid,
    quadratic_form_rule,
)

ONE_AND_MANY = np.r_[np.full(63, 0.25), 32.5**2]  # equicorrelated by ½, on both sides
AR1 = np.linalg.eigvalsh(0.9 ** np.abs(np.subtract.outer(np.arange(64), np.arange(64)))) ** 2
FOUR_SCALES = np.array([1.0, 1e-3, 1e-6, 1e-9])
SPECTRA = {
    "flat-1": np.ones(1),
    "flat-3": np.full(3, 7.0),
    "flat-4096": np.ones(4096),
    "one-and-many": ONE_AND_MANY,
    "two": np.array([1.0, 2.0]),
    "ar1": AR1,
    "four-scales": FOUR_SCALES,
    "lognormal": np.exp(3 * np.random.default_rng(0).standard_normal(50)),
}


def _laplace(spectrum, t):
    """E exp(−tS) = Π (1 + 2tλ)^{−1/2}: exact for any quadratic form of normals."""
    return np.exp(-0.5 * np.log1p(2 * t * spectrum).sum())


@pytest.mark.parametrize("name", SPECTRA)
def test_a_quadratic_form_has_its_exact_laplace_transform(name):
    spectrum = SPECTRA[name]
    nodes, weights = quadratic_form_rule(spectrum)
    for t in np.geomspace(0.01, 10, 13) / spectrum.sum():
        # The rule is refined until mass, mean and variance are right to 1e-11.
        assert weights @ np.exp(-t * nodes) == pytest.approx(_laplace(spectrum, t), abs=1e-10)


@pytest.mark.parametrize("name", SPECTRA)
def test_a_quadratic_form_has_its_exact_first_three_cumulants(name):
    spectrum = SPECTRA[name]
    nodes, weights = quadratic_form_rule(spectrum)
    mean = spectrum.sum()
    centred = nodes - mean
    assert weights.sum() == pytest.approx(1, abs=2e-11)
    assert weights @ nodes == pytest.approx(mean, rel=2e-11)
    assert weights @ centred**2 == pytest.approx(2 * (spectrum**2).sum(), rel=2e-11)
    # The third moment was not asked for; its tails beyond |r| = 8.5 weigh a little more.
    assert weights @ centred**3 == pytest.approx(8 * (spectrum**3).sum(), rel=2e-10)


@pytest.mark.parametrize("dk", [1, 2, 3, 8, 24, 25, 64, 512, 16384, 100_000])
def test_chi_square_has_its_exact_laplace_transform_and_moments(dk):
    nodes, weights = chi_square_rule(dk)
    # The positions r_j of the nodes carry errors up to 1e-11.
    assert weights @ nodes == pytest.approx(dk, rel=1e-11)
    assert weights @ (nodes - dk) ** 2 == pytest.approx(2 * dk, rel=1e-11)
    for t in np.array([0.01, 0.1, 1.0, 10.0]) / dk:
        assert weights @ np.exp(-t * nodes) == pytest.approx(
            np.exp(-0.5 * dk * np.log1p(2 * t)), abs=1e-11
        )


@pytest.mark.parametrize("dk", [1, 3, 64, 4096])
def test_a_flat_spectrum_is_chi_square(dk):
    """The contour integral for the density against its closed form, at functions of log s."""
    nodes, weights = chi_square_rule(dk)
    forms, masses = quadratic_form_rule(np.ones(dk))
    for power in (-0.25, 0.5, 1.5):
        got = masses @ (forms / dk) ** power
        assert got == pytest.approx(weights @ (nodes / dk) ** power, abs=1e-11)


def test_one_big_eigenvalue_against_a_product_rule():
    """S = λ₁ χ²₁ + λ χ²_{d−1}: the average of log S by two independent χ² rules."""
    (big, big_weights), (rest, rest_weights) = chi_square_rule(1), chi_square_rule(63)
    total = np.add.outer(32.5**2 * big, 0.25 * rest)
    expected = big_weights @ np.log(total) @ rest_weights
    nodes, weights = quadratic_form_rule(ONE_AND_MANY)
    assert weights @ np.log(nodes) == pytest.approx(expected, abs=1e-10)


def test_scale_order_and_zeros_of_the_spectrum_do_not_matter():
    nodes, weights = quadratic_form_rule(AR1)
    other, masses = quadratic_form_rule(np.r_[1e6 * AR1[::-1], 0.0, -1e-12])
    assert masses @ np.sqrt(other) == pytest.approx(1e3 * (weights @ np.sqrt(nodes)), rel=1e-11)


def test_rules_stay_small():
    assert chi_square_rule(64)[0].size == 24
    assert chi_square_rule(1)[0].size < 120
    assert all(quadratic_form_rule(s)[0].size <= MOST_NODES for s in SPECTRA.values())


def test_an_even_grid_is_even_to_the_last_bit_and_covers():
    grid = even_grid(-40.0, 3.7, 0.2)
    assert np.array_equal(grid, 0.2 * np.round(grid / 0.2))
    assert grid[0] <= -40 < grid[1]
    assert grid[-2] < 3.7 <= grid[-1]


@pytest.mark.parametrize("spectrum", [[], [[1.0]], [1.0, np.nan], [np.inf], [1.0, -0.1], [0.0]])
def test_a_spectrum_that_is_none_is_refused(spectrum):
    with pytest.raises(InputError, match="spectrum"):
        quadratic_form_rule(spectrum)
