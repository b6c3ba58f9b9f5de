"""Extremes of a row against tables, closed forms for small n, and simulation."""

import numpy as np
import pytest

from sdpa_check.errors import InputError
from sdpa_check.theory.extremes import (
    expected_gap,
    expected_max,
    expected_max_minus_median,
    expected_norm,
    leading_term,
)

ROOT_PI = np.sqrt(np.pi)
ROUNDING = 1e-13  # sums of a thousand positive terms


@pytest.mark.parametrize(
    ("n", "value"),
    [(8, 1.42360), (64, 2.34373), (1024, 3.24824), (10**5, 4.38432), (10**6, 4.86290)],
)
def test_expected_max_of_section_5(n, value):
    assert expected_max(n) == pytest.approx(value, abs=0.51e-5)


@pytest.mark.parametrize(
    ("n", "value"), [(8, 0.57138), (64, 0.38073), (1024, 0.28677), (10**5, 0.21836)]
)
def test_expected_gap_of_section_5(n, value):
    assert expected_gap(n) == pytest.approx(value, abs=0.51e-5)


def test_closed_forms_for_few():
    """Known for n up to 5 (Jones 1948)."""
    assert expected_max(1) == pytest.approx(0, abs=ROUNDING)
    assert expected_max(2) == pytest.approx(1 / ROOT_PI, abs=ROUNDING)
    assert expected_max(3) == pytest.approx(1.5 / ROOT_PI, abs=ROUNDING)
    assert expected_max(4) == pytest.approx(6 * np.arctan(np.sqrt(2)) / np.pi**1.5, abs=ROUNDING)
    fifth = 5 / (4 * ROOT_PI) * (1 + 6 / np.pi * np.arcsin(1 / 3))
    assert expected_max(5) == pytest.approx(fifth, abs=ROUNDING)
    assert expected_gap(2) == pytest.approx(2 / ROOT_PI, abs=ROUNDING)
    assert expected_gap(3) == pytest.approx(1.5 / ROOT_PI, abs=ROUNDING)  # the median has mean 0


@pytest.mark.parametrize("n", [2, 3, 10, 1000, 10**5, 10**7])
def test_gap_by_the_recurrence_of_order_statistics(n):
    """E X₍₂₎ of n = n E max of n−1 − (n−1) E max of n, so the gap is n (E max_n − E max_{n−1})."""
    expected = n * (expected_max(n) - expected_max(n - 1))
    # The difference loses its leading digits: n times the rounding of two numbers of order 5.
    assert expected_gap(n) == pytest.approx(expected, abs=2e-15 * n + ROUNDING)


def test_against_simulation():
    n, rows = 50, 100_000
    x = np.sort(np.random.default_rng(0).standard_normal((rows, n)), axis=1)
    norms = np.linalg.norm(x, axis=1)
    for values, expected in (
        (x[:, -1], expected_max(n)),
        (x[:, -1] - x[:, -2], expected_gap(n)),
        (x[:, -1] - np.median(x, axis=1), expected_max_minus_median(n)),
        (norms, expected_norm(n)),
    ):
        z = (values.mean() - expected) / (values.std() / np.sqrt(rows))
        # Four two-sided tests at z = 5: false alarms below 4 · 5.8e-7 = 2.3e-6.
        assert abs(z) < 5


def test_the_leading_term_is_above_and_slow():
    assert leading_term(10**5) == pytest.approx(4.79853, abs=0.51e-5)
    ratios = [leading_term(n) / expected_max(n) for n in (10**2, 10**4, 10**7)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] > 1.05
    assert leading_term(1) == 0


def test_expected_norm():
    assert expected_norm(1) == pytest.approx(np.sqrt(2 / np.pi), rel=ROUNDING)
    assert expected_norm(2) == pytest.approx(np.sqrt(np.pi / 2), rel=ROUNDING)
    assert expected_norm(3) == pytest.approx(np.sqrt(8 / np.pi), rel=ROUNDING)
    for d in (64, 16384, 100_000):
        # Consecutive norms multiply to E‖z_d‖ E‖z_{d+1}‖ = d; ln Γ near 5e5 is rounded to 6e-11.
        assert expected_norm(d) * expected_norm(d + 1) == pytest.approx(d, rel=3e-10)
        asymptotic = np.sqrt(d) * (1 - 1 / (4 * d) + 1 / (32 * d**2))
        assert expected_norm(d) == pytest.approx(asymptotic, rel=1 / d**3 + 1e-10)


@pytest.mark.parametrize(
    ("function", "least"),
    [
        (expected_max, 1),
        (expected_gap, 2),
        (expected_max_minus_median, 1),
        (leading_term, 1),
        (expected_norm, 1),
    ],
)
def test_counts_out_of_range_are_refused(function, least):
    function(least)
    for n in (least - 1, -3, 2.5, True):
        with pytest.raises(InputError, match=f"an integer of at least {least}"):
            function(n)
