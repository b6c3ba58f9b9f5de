"""Exact row statistics against tables, closed forms, slow twins and simulation."""

import time
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from sdpa_check.errors import InputError
from sdpa_check.theory import iid_row
from sdpa_check.theory.quadrature import chi_square_rule, even_grid
from sdpa_check.theory.saturation import (
    RowExpectations,
    dependent_rows,
    gaussian_rows,
    iid_normal_row,
)

TWIN = 1e-12  # fast code and slow twin
WIDTHS = [1e-4, 0.05, 0.2499, 0.2501, 0.5, 1.0, 2.0, 5.0, 40.0, 500.0]
AR1 = 0.7 ** np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
EQUICORRELATED = np.full((8, 8), 0.5) + 0.5 * np.eye(8)


# --- slow twins -----------------------------------------------------------------------------------


def _row_values(x):
    """H, Σp², Σp³, ‖J‖_F² and ln Z of the rows x, shape (rows, m), by the textbook formulas."""
    top = x.max(axis=1, keepdims=True)
    e = np.exp(x - top)
    z = e.sum(axis=1)
    p = e / z[:, None]
    square, cube = (p**2).sum(axis=1), (p**3).sum(axis=1)
    log_z = top[:, 0] + np.log(z)
    entropy = log_z - (p * x).sum(axis=1)
    return np.stack([entropy, square, cube, square - 2 * cube + square**2, log_z])


def _reported(row):
    values = (row.entropy, row.sum_squares, row.sum_cubes, row.frobenius_ms, row.log_partition)
    return np.array(values)


def _two_keys(tau):
    """m = 2: p = logistic(Δ), Δ = x₁ − x₂ ~ N(0, 2τ²): one integral over Δ > 0."""
    width = np.sqrt(2) * tau
    nodes, weights = np.polynomial.legendre.leggauss(300)
    reach = min(9.0 * width, 60.0)
    delta = 0.5 * reach * (nodes + 1)
    weights = weights * reach * np.exp(-0.5 * (delta / width) ** 2) / (width * np.sqrt(2 * np.pi))
    x = np.stack([0.5 * delta, -0.5 * delta], axis=1)
    entropy, square, cube, frobenius, log_z = _row_values(x)
    # 1 − f decays with Δ where f does not; ln Z − Δ/2 likewise, and E|Δ| = width √(2/π).
    return np.array(
        [
            weights @ entropy,
            1 - weights @ (1 - square),
            1 - weights @ (1 - cube),
            weights @ frobenius,
            weights @ (log_z - delta / 2) + width / np.sqrt(2 * np.pi),
        ]
    )


def _three_keys(tau, step=0.2, reach=8.6):
    """m = 3: the trapezoid rule in all three normals."""
    z = step * np.arange(-round(reach / step), round(reach / step) + 1)
    w = np.exp(-0.5 * z**2) * step / np.sqrt(2 * np.pi)
    x = tau * np.stack(np.meshgrid(z, z, z), axis=-1).reshape(-1, 3)
    return _row_values(x) @ np.multiply.outer(np.multiply.outer(w, w), w).ravel()


def _plain_row(m, tau):
    """Any m: the integrals as section 3 of the theory states them, on one dense grid."""
    z = 0.05 * np.arange(-180, 181)
    weights = np.exp(-0.5 * z**2) * 0.05 / np.sqrt(2 * np.pi)
    u = 0.05 * np.arange(-1400, 500)
    e = np.exp(u[:, None] + tau * z)
    h = [e**n * np.exp(-e) @ weights for n in (1, 2, 3, 4)]
    log_phi = np.log1p(np.maximum(np.expm1(-e) @ weights, 1e-15 - 1))
    one, two = np.exp((m - 1) * log_phi), np.exp((m - 2) * log_phi)
    log_z = (np.exp(-np.exp(u)) - np.exp(m * log_phi)).sum() * 0.05
    square = m * (h[1] @ one) * 0.05
    cube = m / 2 * (h[2] @ one) * 0.05
    fourth = (m / 6 * (h[3] @ one) + m * (m - 1) / 6 * (h[1] ** 2 @ two)) * 0.05
    entropy = log_z - tau**2 * (1 - square)
    return np.array([entropy, square, cube, square - 2 * cube + fourth, log_z])


@pytest.mark.parametrize("tau", WIDTHS)
def test_two_keys_are_one_integral_over_the_logistic_function(tau):
    got = _reported(iid_normal_row(keys=2, tau=tau))
    # ln Z grows with τ, so its last entry is compared relatively.
    assert got == pytest.approx(_two_keys(tau), abs=TWIN, rel=TWIN)


@pytest.mark.parametrize("tau", [0.01, 0.2, 0.3, 1.0, 2.0])
def test_three_keys_by_cubature(tau):
    got = _reported(iid_normal_row(keys=3, tau=tau))
    assert got == pytest.approx(_three_keys(tau), abs=TWIN)


@pytest.mark.parametrize("keys", [2, 8, 1000, 1_000_000])
@pytest.mark.parametrize("tau", [0.2, 0.26, 1.0, 3.0])
def test_a_row_equals_the_plain_integrals(keys, tau):
    # The plain sums cancel: 1 − Σp² times τ², and ln Z of about 14.
    got = _reported(iid_normal_row(keys=keys, tau=tau))
    assert got == pytest.approx(_plain_row(keys, tau), abs=5 * TWIN)


@pytest.mark.parametrize("dk", [1, 5, 40])
def test_the_average_over_the_query_equals_adaptive_quadrature(dk):
    def integrand(s):
        return stats.chi2.pdf(s, dk) * iid_normal_row(keys=8, tau=float(np.sqrt(s))).entropy

    low, high = stats.chi2.ppf([1e-15, 1 - 1e-14], dk)
    # In √s the integrand has no singularity at 0 when d = 1.
    expected, error = integrate.quad(
        lambda r: 2 * r * integrand(r * r), np.sqrt(low), np.sqrt(high), epsabs=1e-10, limit=200
    )
    assert error < 1e-9
    assert gaussian_rows(dk=dk, keys=8, multiplier=1.0).entropy == pytest.approx(expected, abs=1e-9)


# --- tables ---------------------------------------------------------------------------------------

TABLE = [  # d, m, scaling → entropy, tr J, RMS ‖J‖_F
    (16, 8, "none", (0.672787, 0.347797, 0.301220)),
    (16, 8, "sqrt", (1.728958, 0.769301, 0.365193)),
    (16, 8, "dk", (2.052462, 0.868112, 0.335589)),
    (64, 2, "none", (0.115256, 0.070429, 0.153829)),
    (64, 2, "sqrt", (0.540470, 0.364078, 0.385759)),
    (64, 2, "dk", (0.689287, 0.496155, 0.496185)),
    (64, 8, "none", (0.318279, 0.177407, 0.228685)),
    (64, 8, "sqrt", (1.723646, 0.768101, 0.366364)),
    (64, 8, "dk", (2.072626, 0.873288, 0.331993)),
    (64, 64, "none", (0.584278, 0.291383, 0.271085)),
    (64, 64, "sqrt", (3.685705, 0.960973, 0.184636)),
    (64, 64, "dk", (4.151196, 0.984133, 0.124930)),
    (64, 1024, "none", (0.915417, 0.402584, 0.292036)),
    (64, 1024, "sqrt", (6.433372, 0.997326, 0.051381)),
    (64, 1024, "dk", (6.923667, 0.999008, 0.031479)),
    (512, 64, "none", (0.182072, 0.103549, 0.177457)),
    (512, 64, "sqrt", (3.684866, 0.961168, 0.184613)),
    (512, 64, "dk", (4.157922, 0.984345, 0.124133)),
]
EXPONENT = {"none": 0.0, "sqrt": 0.5, "dk": 1.0}

DEFICITS = [  # ln m − H at m = 64 for the multiplier d^−a; digits as printed
    (0.0, (2.777, 3.575, 3.894, 4.033), 3),
    (0.25, (1.468, 2.213, 2.846, 3.292), 3),
    (0.5, (0.47026, 0.47318, 0.47390, 0.47408), 5),
    (0.75, (0.1221, 0.0613, 0.0307, 0.0154), 4),
    (1.0, (0.0307, 0.0077, 0.0019, 0.0005), 4),
]

RMS = [  # (d, m, scaled) → RMS ‖J‖_F
    (64, 8, False, 0.2287, 4),
    (64, 8, True, 0.3663, 4),
    (64, 64, False, 0.2711, 4),
    (64, 64, True, 0.1846, 4),
    (64, 1024, False, 0.292, 3),
    (64, 1024, True, 0.0514, 4),
    (512, 64, False, 0.177, 3),
    (1024, 64, False, 0.151, 3),
    (16, 64, False, 0.3152, 4),
    (16, 64, True, 0.1846, 4),
]


@pytest.mark.parametrize(("dk", "keys", "scale", "values"), TABLE)
def test_the_table_of_section_3(dk, keys, scale, values):
    row = gaussian_rows(dk=dk, keys=keys, multiplier=dk ** -EXPONENT[scale])
    got = (row.entropy, row.trace, row.frobenius_rms)
    assert got == pytest.approx(values, abs=0.51e-6)


@pytest.mark.parametrize(("power", "values", "digits"), DEFICITS)
def test_the_deficits_of_section_3(power, values, digits):
    got = [
        gaussian_rows(dk=d, keys=64, multiplier=d**-power).entropy_deficit
        for d in (16, 64, 256, 1024)
    ]
    assert got == pytest.approx(values, abs=0.51 * 10.0**-digits)


@pytest.mark.parametrize(("dk", "keys", "scaled", "value", "digits"), RMS)
def test_the_rms_figures_of_section_3(dk, keys, scaled, value, digits):
    # These came from large samples: one unit in the last place.
    row = gaussian_rows(dk=dk, keys=keys, multiplier=dk**-0.5 if scaled else 1.0)
    assert row.frobenius_rms == pytest.approx(value, abs=1.01 * 10.0**-digits)


# --- identities, limits, accuracy -----------------------------------------------------------------


@pytest.mark.parametrize("keys", [2, 3, 17, 1024, 100_000, 1_000_000])
@pytest.mark.parametrize("tau", [0.0, 1e-8, *WIDTHS, 1e5])
def test_weights_sum_to_one_and_the_parts_fit(keys, tau):
    row = iid_normal_row(keys=keys, tau=tau)
    # Sums of up to 500 positive terms, each with a few roundings.
    assert row.normalisation_error < 1e-13
    assert row.trace + row.sum_squares == pytest.approx(1, abs=1e-13)
    assert row.entropy + row.entropy_deficit == pytest.approx(np.log(keys), abs=1e-13)
    assert row.sum_squares_excess == pytest.approx(keys * row.sum_squares - 1, abs=1e-13 * keys)
    # Stein: E[Σ xp] = τ² E[tr J].
    by_parts = row.log_partition - tau**2 * row.trace
    assert row.entropy == pytest.approx(by_parts, abs=1e-13 * max(1.0, row.log_partition))


@pytest.mark.parametrize("dk", [1, 2, 3, 7, 16, 64, 1000, 16384])
@pytest.mark.parametrize("keys", [2, 64, 1_000_000])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_normalisation_over_the_whole_range(dk, keys, power):
    row = gaussian_rows(dk=dk, keys=keys, multiplier=dk**-power)
    assert row.normalisation_error < 1e-13
    assert row.trace + row.sum_squares == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_the_normalisation_error_shows_a_bad_integration(monkeypatch, tau):
    monkeypatch.setattr("sdpa_check.theory.iid_row.CUT", 5.0)  # drops terms below e^−5 = 0.007
    assert 1e-4 < iid_normal_row(keys=8, tau=tau).normalisation_error < 0.1


def test_small_deviations_from_uniform_keep_their_relative_accuracy():
    """m = 2: ln 2 − H = Δ²/8 − Δ⁴/64 + Δ⁶/576 − … and 2Σp² − 1 = tanh²(Δ/2), Δ ~ N(0, 2τ²)."""
    for tau in (1e-3, 1e-5, 1e-8):
        row = iid_normal_row(keys=2, tau=tau)
        t = tau**2
        assert row.entropy_deficit == pytest.approx(
            t / 4 - 3 * t**2 / 16 + 5 * t**3 / 24, rel=1e-13
        )
        assert row.sum_squares_excess == pytest.approx(t / 2 - t**2 / 2 + 17 * t**3 / 24, rel=1e-13)


@pytest.mark.parametrize("keys", [2, 3, 64, 1_000_000])
def test_leading_order_as_tau_vanishes(keys):
    row = iid_normal_row(keys=keys, tau=1e-4)
    # The next order is smaller by a factor of order τ² = 1e-8.
    assert row.entropy_deficit == pytest.approx(0.5e-8 * (1 - 1 / keys), rel=2e-8)
    assert row.sum_squares_excess == pytest.approx(1e-8 * (1 - 1 / keys), rel=4e-8)


def test_the_two_methods_meet():
    """Below and above τ = ¼ different integrals are used; their values continue each other."""
    for keys in (2, 8, 1_000_000):
        left, middle, right = (
            np.array(
                [getattr(iid_normal_row(keys=keys, tau=t), f.name) for f in fields(RowExpectations)]
            )
            for t in (0.25 - 1e-5, 0.25, 0.25 + 1e-5)
        )
        # Second difference: f'' h² with |f''| of order 1 per unit, times m for the excess.
        assert right - middle == pytest.approx(middle - left, abs=2e-9)


def test_a_zero_multiplier_gives_uniform_weights():
    for row in (
        gaussian_rows(dk=64, keys=10, multiplier=0.0),
        dependent_rows(keys=10, multiplier=0.0, spectrum=[1.0, 2.0]),
    ):
        assert row.entropy == pytest.approx(np.log(10), abs=1e-10)
        assert row.entropy_deficit == 0
        assert row.sum_squares_excess == 0
        assert row.frobenius_ms == pytest.approx(0.1 - 0.01, abs=1e-11)


def test_large_tau_is_frozen():
    """As τ → ∞ only a near tie of the two largest weights is left, with probability ∝ 1/τ."""
    rows = [iid_normal_row(keys=64, tau=t) for t in (1e4, 1e6)]
    assert rows[1].trace * 1e6 == pytest.approx(rows[0].trace * 1e4, rel=1e-4)
    assert rows[1].sum_cubes == pytest.approx(1, abs=1e-5)
    assert rows[1].log_partition == pytest.approx(2.34373 * 1e6, rel=3e-6)  # τ E[max of 64]


def test_everything_is_monotone_in_tau():
    taus = np.geomspace(1e-3, 1e3, 200)
    for keys in (2, 64, 100_000):
        rows = [iid_normal_row(keys=keys, tau=t) for t in taus]
        for before, after in pairwise(rows):
            assert after.entropy_deficit > before.entropy_deficit
            assert after.sum_squares_excess > before.sum_squares_excess
            assert after.sum_cubes > before.sum_cubes
            assert after.trace < before.trace
            assert after.log_partition > before.log_partition


def test_the_derivative_of_the_log_partition_is_half_the_trace():
    """The heat equation: d E[ln Z] / d(τ²) = ½ E[tr J]."""
    for keys, tau in ((2, 0.1), (64, 1.0), (1024, 6.0)):
        t, h = tau**2, 1e-4 * tau**2
        high, low = (iid_normal_row(keys=keys, tau=np.sqrt(t + s)).log_partition for s in (h, -h))
        trace = iid_normal_row(keys=keys, tau=tau).trace
        # Central difference: h² f''' / 6, of order 1e-8 relative; rounding 1e-15·ln Z / h.
        assert (high - low) / (2 * h) == pytest.approx(0.5 * trace, rel=1e-7, abs=1e-8)


def test_only_the_product_of_scales_counts():
    one = gaussian_rows(dk=8, keys=16, multiplier=0.6)
    assert gaussian_rows(dk=8, keys=16, multiplier=-0.6) == one
    split = gaussian_rows(dk=8, keys=16, multiplier=0.1, sigma_q=2.0, sigma_k=3.0)
    assert split.entropy == pytest.approx(one.entropy, abs=1e-13)
    negative = dependent_rows(keys=16, multiplier=-0.3, spectrum=[1.0, 4.0])
    assert negative == dependent_rows(keys=16, multiplier=0.3, spectrum=[1.0, 4.0])


def test_results_are_plain_floats():
    row = dependent_rows(keys=np.int64(4), multiplier=np.float64(0.5), spectrum=[1.0, 2.0])
    assert {type(getattr(row, f.name)) for f in fields(row)} == {float}
    assert row.frobenius_rms == np.sqrt(row.frobenius_ms)


# --- dependent components and simulation ----------------------------------------------------------


@pytest.mark.parametrize("dk", [1, 2, 16, 512])
def test_a_flat_spectrum_gives_gaussian_rows(dk):
    independent = gaussian_rows(dk=dk, keys=32, multiplier=dk**-0.5, sigma_q=2.0)
    dependent = dependent_rows(keys=32, multiplier=dk**-0.5, spectrum=np.full(dk, 4.0))
    for field in fields(RowExpectations):
        expected = getattr(independent, field.name)
        # The rule for quadratic forms is refined until it is right to 1e-11.
        assert getattr(dependent, field.name) == pytest.approx(expected, rel=1e-10, abs=2e-11)


def _simulated(cov_q, cov_k, keys, multiplier, seed):
    """Mean and standard error of `_row_values` over rows with their own query and keys."""
    rng, dk, rows = np.random.default_rng(seed), len(cov_q), 60_000
    q = rng.standard_normal((rows, dk)) @ np.linalg.cholesky(cov_q).T
    k = rng.standard_normal((rows, keys, dk)) @ np.linalg.cholesky(cov_k).T
    values = _row_values(multiplier * np.einsum("rd,rmd->rm", q, k))
    return values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(rows)


@pytest.mark.parametrize(
    ("cov_q", "cov_k", "keys", "multiplier", "seed"),
    [
        (np.eye(8), np.eye(8), 4, 1.0, 1),
        (np.eye(8), np.eye(8), 16, 8**-0.5, 2),
        (AR1, AR1, 4, 1.0, 3),
        (AR1, AR1, 16, 8**-0.5, 4),
        (EQUICORRELATED, EQUICORRELATED, 4, 1.0, 5),
        (EQUICORRELATED, EQUICORRELATED, 16, 8**-0.5, 6),
        (AR1, EQUICORRELATED, 8, 0.5, 7),
    ],
)
def test_dependent_rows_agree_with_simulation(cov_q, cov_k, keys, multiplier, seed):
    root = np.linalg.cholesky(cov_q)
    spectrum = np.linalg.eigvalsh(root.T @ cov_k @ root)
    row = dependent_rows(keys=keys, multiplier=multiplier, spectrum=spectrum)
    mean, se = _simulated(cov_q, cov_k, keys, multiplier, seed)
    # 7 designs × 5 statistics, two-sided at z = 5: false alarms below 35 · 5.8e-7 = 2e-5.
    assert np.abs((mean - _reported(row)) / se).max() < 5


def test_a_large_unequal_spectrum_against_two_independent_averages():
    """Equicorrelated, S = λ₁ χ²₁ + λ χ²_{d−1}: rows averaged over both χ² by product rule."""
    d, rho, multiplier = 4096, 0.01, 4096**-0.5
    big, small = (1 + (d - 1) * rho) ** 2, (1 - rho) ** 2
    (one, one_weights), (rest, rest_weights) = chi_square_rule(1), chi_square_rule(d - 1)
    forms = np.add.outer(big * one, small * rest)
    entropies = [
        iid_normal_row(keys=64, tau=multiplier * np.sqrt(s)).entropy for s in forms.ravel()
    ]
    expected = one_weights @ np.reshape(entropies, forms.shape) @ rest_weights
    row = dependent_rows(keys=64, multiplier=multiplier, spectrum=np.r_[np.full(d - 1, small), big])
    assert row.entropy == pytest.approx(expected, abs=1e-9)
    assert row.normalisation_error < 2e-11


def test_one_call_takes_less_than_a_third_of_a_second():
    """They take 5 to 40 ms on an idle core; the best of three on a shared one."""
    calls = (
        lambda: gaussian_rows(dk=64, keys=1024, multiplier=1.0),
        lambda: gaussian_rows(dk=1, keys=1_000_000, multiplier=1.0),
        lambda: dependent_rows(keys=1024, multiplier=0.1, spectrum=[1.0] * 63 + [1e3]),
    )
    for call in calls:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        assert min(times) < 0.3


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: iid_normal_row(keys=1, tau=1.0), "keys"),
        (lambda: iid_normal_row(keys=2.0, tau=1.0), "keys"),
        (lambda: iid_normal_row(keys=True, tau=1.0), "keys"),
        (lambda: iid_normal_row(keys=4, tau=-1.0), "tau"),
        (lambda: iid_normal_row(keys=4, tau=np.nan), "tau"),
        (lambda: iid_normal_row(keys=4, tau=np.inf), "tau"),
        (lambda: iid_normal_row(keys=4, tau=1e200), "logit standard deviation"),
        (lambda: gaussian_rows(dk=0, keys=4, multiplier=1.0), "dk"),
        (lambda: gaussian_rows(dk=4.5, keys=4, multiplier=1.0), "dk"),
        (lambda: gaussian_rows(dk=4, keys=0, multiplier=1.0), "keys"),
        (lambda: gaussian_rows(dk=4, keys=4, multiplier=np.inf), "multiplier"),
        (lambda: gaussian_rows(dk=4, keys=4, multiplier=1.0, sigma_q=-1.0), "sigma_q"),
        (lambda: gaussian_rows(dk=4, keys=4, multiplier=1.0, sigma_k=np.nan), "sigma_k"),
        (lambda: dependent_rows(keys=1, multiplier=1.0, spectrum=[1.0]), "keys"),
        (lambda: dependent_rows(keys=4, multiplier=np.nan, spectrum=[1.0]), "multiplier"),
        (lambda: dependent_rows(keys=4, multiplier=1.0, spectrum=[-1.0]), "spectrum"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(call, where):
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.where == where


@pytest.mark.parametrize("tau", [0.26, 0.4, 1.0, 8.0, 300.0, 1e5, 1e20])
@pytest.mark.parametrize("keys", [2, 64, 10**6])
def test_the_kernel_of_the_convolution_by_its_definition(keys, tau):
    """Every entry, where steps of u are one, several or very many steps of y."""
    u, step = iid_row._wide_grid(float(keys), tau)
    for finer in (1, 3, 10**6):
        spacing = step / finer
        y = even_grid(u[-1] - 7 * step - 40 * spacing, u[-1] - 7 * step, spacing)
        want = np.exp(-0.5 * ((y[None, :] - u[:, None]) / tau) ** 2)
        found = iid_row._normal_kernel(u, y, spacing, tau)
        # u and y are rounded to their own size, and so their difference.
        size = max(abs(u[0]), abs(y[0]), abs(u[-1])) / tau
        error = 4 * np.finfo(float).eps * size * (1 + 2 * size)
        np.testing.assert_allclose(found, want, rtol=min(1.0, error), atol=1e-300)
