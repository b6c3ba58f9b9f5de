"""Thresholds and sample sizes: formulas, and the probabilities that they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sdpa_check import power
from sdpa_check.errors import InputError

Z = stats.norm.isf(0.5e-6)  # false-alarm rate 1e-6 of every simulated comparison; seeds are fixed
DRAWS = 1_000_000
PILOTS = [16, 32, 64, 128, 256]
SETTINGS = [(1e-6, 1, 64), (1e-6, 8, 128), (1e-6, 100, 64), (0.05, 1, 64), (0.01, 3, 128)]
settings = pytest.mark.parametrize(("alpha", "checks", "blocks"), SETTINGS)


def simulated(blocks, seed):
    """Value and standard error of a mean of normal blocks, both in true standard errors."""
    g = np.random.default_rng(seed)
    dof = blocks - 1
    return g.standard_normal(DRAWS), np.sqrt(g.chisquare(dof, DRAWS) / dof)


@settings
def test_threshold_is_bonferronis(alpha, checks, blocks):
    right = stats.t.isf(alpha / checks / 2, blocks - 1)
    assert power.threshold(alpha, checks, blocks) == pytest.approx(right, rel=1e-12)


@settings
def test_planned_error_confirms_a_true_prediction(alpha, checks, blocks):
    """A run at `wanted_se` ends inconclusive with probability β.

    The number of draws leaves β a relative error of √(1/(β N)) = 3 %; 5 % are granted to the normal
    approximation of the estimated standard error.
    """
    se = power.wanted_se(1.0, alpha=alpha, checks=checks, blocks=blocks)
    value, error = simulated(blocks, 1)
    t = power.threshold(alpha, checks, blocks)
    missed = np.mean(np.abs(value * se) + t * error * se > 1.0)
    assert missed == pytest.approx(power.BETA, rel=0.05 + Z / math.sqrt(power.BETA * DRAWS))


@settings
def test_detectable_deviation_is_refuted(alpha, checks, blocks):
    """A truth that is off by `detectable` escapes with probability β at most.

    The standard error of the run is that from which `detectable` was computed, on average. The
    spread of t_α ŝe is skewed to the right, so the lower tail that matters here is lighter than
    the normal one: the bound is one-sided, and within a factor of two.
    """
    value, error = simulated(blocks, 2)
    t = power.threshold(alpha, checks, blocks)
    truth = power.detectable(0.5, 1.0, alpha=alpha, checks=checks, blocks=blocks)
    missed = np.mean(truth + value - t * error <= 0.5)
    assert missed < power.BETA * (1 + Z / math.sqrt(power.BETA * DRAWS))
    assert missed > power.BETA / 2


def test_the_band_and_the_error_scale_together():
    one = power.wanted_se(1.0, alpha=1e-6, checks=8)
    assert power.wanted_se(0.01, alpha=1e-6, checks=8) == pytest.approx(0.01 * one, rel=1e-14)
    seen = power.detectable(0.3, 0.1, alpha=1e-6, checks=8, blocks=64)
    more = power.detectable(0.3, 0.2, alpha=1e-6, checks=8, blocks=64)
    assert more - 0.3 == pytest.approx(2 * (seen - 0.3), rel=1e-14)
    assert power.detectable(0.3, 0.0, alpha=1e-6, checks=8, blocks=64) == 0.3


def test_stricter_means_wider():
    thresholds = [power.threshold(1e-6, checks, 64) for checks in (1, 2, 10, 1000)]
    assert thresholds == sorted(thresholds)
    assert len(set(thresholds)) == 4
    by_blocks = [power.threshold(1e-6, 1, blocks) for blocks in (2, 8, 32, 64, 128)]
    assert by_blocks == sorted(by_blocks, reverse=True)
    by_alpha = [power.wanted_se(1.0, alpha=a, checks=1) for a in (1e-8, 1e-6, 0.01, 0.05)]
    assert by_alpha == sorted(by_alpha)


def test_blocks_needed():
    caution = 1 + 2 * math.sqrt(2 / 31)
    assert power.blocks_needed(0.1, 32, 0.1) == math.ceil(32 * caution)
    assert power.blocks_needed(0.1, 32, 0.01) == math.ceil(3200 * caution)
    assert power.blocks_needed(0.0, 32, 0.01) == 0


def test_blocks_needed_is_monotone():
    errors, targets = np.geomspace(1e-3, 10, 50), np.geomspace(1e-3, 1, 50)
    by_error = [power.blocks_needed(e, 32, 0.05) for e in errors]
    by_target = [power.blocks_needed(0.5, 32, t) for t in targets]
    assert by_error == sorted(by_error)
    assert by_target == sorted(by_target, reverse=True)


def test_a_pilot_seldom_leaves_the_run_short():
    """The run is short where the pilot's variance comes out below 1/caution: 8 % of normal pilots.

    False-alarm rate 1e-6 for each of 100,000 pilots' binomial count.
    """
    pilots = 100_000
    g = np.random.default_rng(3)
    sizes = [
        power.blocks_needed(se / math.sqrt(32), 32, 0.01)
        for se in np.sqrt(g.chisquare(31, pilots) / 31)
    ]
    short = np.mean(np.array(sizes) < 10_000)  # (1/0.01)² blocks of variance 1 are enough
    right = stats.chi2.cdf(31 / (1 + 2 * math.sqrt(2 / 31)), 31)
    assert 0.05 < right < 0.1
    assert abs(short - right) < Z * math.sqrt(right * (1 - right) / pilots)


def asked_for(pilot, alpha, checks, blocks, se=None, band=1e-6):
    """Blocks for the band 1e-6, by a pilot that found the standard error of one block to be 1."""
    found = 1 / math.sqrt(pilot) if se is None else se
    return power.blocks_to_judge(found, pilot, band, alpha=alpha, checks=checks, blocks=blocks)


@pytest.mark.parametrize("pilot", PILOTS)
@settings
def test_a_run_planned_by_a_pilot_confirms_a_true_prediction(alpha, checks, blocks, pilot):
    """Over all pilots and runs, at most a share β of true predictions ends inconclusive.

    Pilot and run are means of normal blocks; N of them leave β a relative error of √(1/(β N)).
    The bound is one-sided, for short pilots miss less often, about 0.2 β with 16 blocks. There are
    two reasons. A standard error comes out very low less often than the normal approximation says,
    by the ratio of the two lower tails. And where it does, a run may miss to either side, so that
    β/2 each is once too often. No plan misses less than both together explain.
    """
    nu, g = pilot - 1, np.random.default_rng(4)
    value, error = simulated(blocks, 5)
    pilot_error = np.sqrt(g.chisquare(nu, DRAWS) / nu)
    reach = 1e-6 * math.sqrt(asked_for(pilot, alpha, checks, blocks)) * pilot_error
    t = power.threshold(alpha, checks, blocks)
    missed = np.mean(np.abs(value) + t * error > reach)
    chance = Z / math.sqrt(power.BETA * DRAWS)
    assert missed <= power.BETA * (1 + chance)
    low = 1 - 1 / (4 * nu) - stats.norm.isf(power.BETA / 2) / math.sqrt(2 * nu)
    lighter = stats.chi2.cdf(nu * low**2, nu) / (power.BETA / 2)
    assert 0 < lighter < 1
    least = power.BETA * lighter / 2
    assert missed >= least - Z * math.sqrt(least / DRAWS)


@pytest.mark.parametrize("pilot", PILOTS)
@settings
def test_blocks_to_judge_solves_its_equation(alpha, checks, blocks, pilot):
    k = 1e-6 * math.sqrt(asked_for(pilot, alpha, checks, blocks))
    nu, t = pilot - 1, stats.t.isf(alpha / checks / 2, blocks - 1)
    spread = 1 + t * t / (2 * (blocks - 1)) + k * k / (2 * nu)
    strayed = stats.norm.isf(power.BETA / 2) * math.sqrt(spread)
    assert k * (1 - 1 / (4 * nu)) - t == pytest.approx(strayed, rel=1e-9)


@settings
def test_a_longer_pilot_asks_for_less(alpha, checks, blocks):
    """Down to what a known standard error asks for."""
    plans = [asked_for(pilot, alpha, checks, blocks) for pilot in (*PILOTS, 10**9)]
    assert plans == sorted(plans, reverse=True)
    assert len(set(plans)) == len(plans)
    known = 1 / power.wanted_se(1e-6, alpha=alpha, checks=checks, blocks=blocks) ** 2
    # To first order in 1/ν the pilot adds K/(4ν) + z K²/(4ν spread) to K; spread ≥ 1 and K < 12.
    assert known <= plans[-1] < known * (1 + (1 + 3.3 * 12) / (2 * 10**9)) + 1


def test_what_else_asks_for_less():
    """A wider band, fewer checks, and more replicates, whose t quantile is smaller."""
    assert asked_for(32, 1e-6, 8, 64) > asked_for(32, 1e-6, 2, 64) > asked_for(32, 1e-3, 2, 64)
    by_run = [asked_for(32, 1e-6, 8, blocks) for blocks in (32, 64, 128, 256)]
    assert by_run == sorted(by_run, reverse=True)
    assert len(set(by_run)) == 4
    one = asked_for(32, 1e-6, 8, 64, se=1.0, band=1.0)
    exact = asked_for(32, 1e-6, 8, 64, se=1.0) * 1e-12
    assert one == math.ceil(exact)
    assert asked_for(32, 1e-6, 8, 64, se=0.3, band=0.01) == math.ceil(900 * exact)
    assert asked_for(32, 1e-6, 8, 64, se=0.0) == 0


@pytest.mark.parametrize("pilot", [2, 4, 6])
def test_a_pilot_that_knows_nothing_is_refused(pilot):
    with pytest.raises(InputError, match="pilot_blocks"):
        asked_for(pilot, 1e-6, 8, 64)
    assert asked_for(7, 1e-6, 8, 64) > 10 * asked_for(16, 1e-6, 8, 64)
