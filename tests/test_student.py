"""Student's t in pure Python, against scipy."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from sdpa_check import student
from sdpa_check.errors import InputError

EPS = 2.0**-52
DOFS = [1, 1.5, 2, 3, 4, 7, 10, 31, 39.9, 40, 63, 127, 1e3, 1e4, 1e5, 1e6]
TAILS = [0.4999, 0.4, 0.25, 0.1, 0.05, 0.025, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12]


def allowed(t, dof):
    """Relative error: 1e-13 for some hundred rounded operations, and what rounding x does.

    The incomplete beta function depends on 1 − x = t²/(dof + t²) through x, whose rounding ε is
    (1 + dof/t²) ε of it.
    """
    return 1e-13 + EPS * (1 + dof / t**2)


@pytest.mark.parametrize("dof", DOFS)
@pytest.mark.parametrize("tail", TAILS)
def test_quantile(tail, dof):
    right = stats.t.isf(tail, dof)
    assert student.quantile(tail, dof) == pytest.approx(right, rel=allowed(right, dof))


@pytest.mark.parametrize("tail", TAILS)
def test_normal_quantile(tail):
    # statistics.NormalDist is Wichura's AS 241, of relative accuracy 1e-16 in the probability p;
    # near ½ the quantile itself, about 2.5 (½ − p), keeps ε/(½ − p) of it.
    rel = 1e-13 + 2 * EPS / (0.5 - tail)
    assert student.quantile(tail, math.inf) == pytest.approx(stats.norm.isf(tail), rel=rel)


@pytest.mark.parametrize("dof", DOFS)
def test_half_is_the_median(dof):
    assert abs(student.quantile(0.5, dof)) < 1e-15


@pytest.mark.parametrize("dof", DOFS)
@pytest.mark.parametrize("t", [0.0, 1e-3, 0.1, 0.7, 1.0, 2.0, 5.0, 20.0, 300.0])
def test_survival(t, dof):
    # The relative error of a tail probability is that of t times d ln P/d ln t ≤ 1 + dof and t².
    right = stats.t.sf(t, dof)
    steep = min(dof + 1, t * t + 1)
    rel = steep * (1e-13 + EPS * (1 + dof / t**2)) if t else EPS
    assert student.survival(t, dof) == pytest.approx(right, rel=rel, abs=1e-300)


@pytest.mark.parametrize("dof", [0.1, 1, 2, 63, 1e5])
@pytest.mark.parametrize("tail", [0.3, 1e-4, 1e-10])
def test_survival_undoes_quantile(tail, dof):
    t = student.quantile(tail, dof)
    steep = min(dof + 1, t * t + 1)
    assert student.survival(t, dof) == pytest.approx(tail, rel=steep * 2 * allowed(t, dof))


def test_known_values():
    """Two closed forms: t(1) is Cauchy, tan(π(½ − p)); t(2) is (1 − 2p)/√(2p(1 − p))."""
    assert student.quantile(0.05, 1) == pytest.approx(math.tan(0.45 * math.pi), rel=1e-13)
    assert student.quantile(0.05, 2) == pytest.approx(0.9 / math.sqrt(0.095), rel=1e-13)


def test_monotone_in_both_arguments():
    by_tail = [student.quantile(tail, 63) for tail in TAILS]
    by_dof = [student.quantile(1e-6, dof) for dof in (*DOFS, math.inf)]
    assert by_tail == sorted(by_tail)
    assert by_dof == sorted(by_dof, reverse=True)


@pytest.mark.parametrize(
    ("tail", "dof"),
    [(0.0, 5), (-0.1, 5), (0.6, 5), (math.nan, 5), (0.1, 0), (0.1, -1), (0.1, math.nan)],
)
def test_out_of_range(tail, dof):
    with pytest.raises(InputError):
        student.quantile(tail, dof)
