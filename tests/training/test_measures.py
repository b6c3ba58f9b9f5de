"""Numbers from curves: by hand, by scipy, and by the engine."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check import engine
from sdpa_check.errors import InputError
from sdpa_check.training import trial as trials_
from sdpa_check.training.measures import (
    FINAL,
    FINAL_ROW,
    HALF,
    MEASURES,
    Results,
    Setting,
    TrainWork,
    half_steps,
)
from sdpa_check.training.trial import Curve


def curve(*losses):
    return Curve(tuple(map(float, losses)), tuple(10.0 * x for x in losses))


@pytest.fixture
def results(trial):
    """Two scalings at two rates on four seeds; the last rate of ``none`` diverges on one."""
    finals = {
        ("none", 0.1): (2.0, 2.2, 1.9, 2.3),
        ("none", 1.0): (1.0, math.inf, 1.0, 1.0),
        ("sqrt", 0.1): (1.5, 1.8, 1.4, 1.7),
        ("sqrt", 1.0): (1.4, 1.9, 1.3, 1.9),
    }
    return Results(
        {
            trial(scale=scale, lr=lr, seed=seed, steps=1): curve(loss)
            for (scale, lr), losses in finals.items()
            for seed, loss in enumerate(losses)
        }
    )


def at(scale, lr):
    return Setting(dk=3, scale=scale, warmup=0, lr=lr)


def test_the_final_loss_is_the_mean_of_the_last_tenth(trial):
    one, losses = trial(steps=50), list(range(50))
    assert MEASURES[FINAL].of(one, curve(*losses)) == np.mean(losses[-5:])
    assert MEASURES[FINAL_ROW].of(one, curve(*losses)) == 10 * np.mean(losses[-5:])
    assert MEASURES[FINAL].of(trial(steps=3), curve(3, 2, 1)) == 1


def test_steps_to_half_are_read_off_the_line_between_two_points(trial):
    one, half = trial(keys=9, steps=4), math.log(9) / 2
    assert half_steps(one, curve(2.0, 2.0, half - 1, 0.0)) == pytest.approx(
        1 + (2 - half) / (3 - half)
    )
    assert half_steps(one, curve(2.0, half, 2.0, 2.0)) == 1
    assert half_steps(one, curve(0.5, 0.4, 0.3, 0.2)) == 0
    assert half_steps(one, curve(math.inf, math.inf, 0.5, 0.5)) == 2
    assert math.isnan(half_steps(one, curve(2.0, 2.0, 2.0, 2.0)))
    # of 100 steps a point is the mean of two: the middle of the first is half a step
    hundred = trial(keys=9, steps=100)
    assert half_steps(hundred, curve(*[half - 0.1] * 50)) == 0.5


def test_a_mean_over_seeds_has_the_interval_of_student(results):
    from scipy import stats

    values = [2.0, 2.2, 1.9, 2.3]
    found = results.estimate(FINAL, at("none", 0.1))
    assert found.value == pytest.approx(np.mean(values))
    assert found.se == pytest.approx(stats.sem(values))
    interval = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found.lo, found.hi) == pytest.approx(interval)
    assert (found.blocks, found.samples) == (4, 4)


def test_differences_are_taken_seed_by_seed(results):
    from scipy import stats

    pairs = np.subtract([1.5, 1.8, 1.4, 1.7], [2.0, 2.2, 1.9, 2.3])
    found = results.difference(FINAL, at("sqrt", 0.1), at("none", 0.1))
    assert found.value == pytest.approx(pairs.mean())
    assert found.se == pytest.approx(stats.sem(pairs))
    assert found.se < results.estimate(FINAL, at("none", 0.1)).se, "pairing pays"


def test_a_seed_that_diverged_withholds_the_error(results):
    found = results.estimate(FINAL, at("none", 1.0))
    assert (found.value, found.se, found.lo) == (math.inf, None, None)
    assert found.withheld == "not available (1 of 4 seeds diverged)"
    less = results.difference(FINAL, at("sqrt", 1.0), at("none", 1.0))
    assert less.value == -math.inf
    both = results.difference(FINAL, at("none", 1.0), at("none", 1.0))
    assert math.isnan(both.value)
    assert both.se is None
    never = results.estimate(HALF, at("none", 0.1))
    assert never.withheld == "not available (4 of 4 seeds did not reach ½ ln N)"
    assert math.isnan(never.value)
    assert less.withheld == (
        "not available (1 of 4 seeds diverged in one of the two trials or both)"
    )


def test_seeds_without_a_number_are_counted(results):
    assert results.lost(FINAL, at("none", 1.0)) == 1
    assert results.lost(FINAL, at("sqrt", 1.0)) == 0
    assert results.lost(HALF, at("none", 0.1)) == 4
    assert results.steps(at("none", 0.1)) == 1


def test_the_best_rate_is_that_of_the_least_mean(results):
    assert results.best(3, "none", 0).lr == 0.1, "a rate that diverges is never the best"
    assert results.best(3, "sqrt", 0).lr == 0.1
    assert results.best_settings() == [at("none", 0.1), at("sqrt", 0.1)]
    with pytest.raises(InputError, match="one that was trained"):
        results.best(3, "sqrt", 50)


def test_rates_that_cannot_be_told_from_the_best_are_named(results):
    """sqrt: 1.6 against 1.625 on the same seeds; none: the other rate diverges."""
    found = results.best_lr_set(at("sqrt", 0.1))
    assert (found.value, found.se, found.lo, found.hi) == (0.1, None, 0.1, 1.0)
    alone = results.best_lr_set(at("none", 0.1))
    assert (alone.value, alone.lo, alone.hi) == (0.1, 0.1, 0.1)


def test_the_smaller_of_equal_rates_is_the_best(trial):
    tie = {trial(lr=lr, seed=s, steps=1): curve(1.0) for lr in (3.0, 1.0) for s in range(2)}
    assert Results(tie).best(3, "sqrt", 0).lr == 1.0


def test_points_of_a_curve_have_errors_too(trial):
    found = Results({trial(steps=2): curve(3, 1), trial(steps=2, seed=1): curve(5, 1)})
    first, second = found.curve(at("sqrt", 1.0))
    assert (first.value, first.se) == (4, pytest.approx(1))
    assert (second.value, second.se) == (1, 0)


def test_blocks_of_the_engine_are_the_seeds(trial):
    """`TrainWork` gives every claim the numbers that `train` shows."""
    settings = [trial(scale=s, lr=lr) for s in ("none", "sqrt") for lr in (0.3, 1.0)]
    found = engine.run(TrainWork(tuple(settings)), seed=7, blocks=3, jobs=1)
    wanted = [trial(scale=t.scale, lr=t.lr, seed=s) for t in settings for s in range(3)]
    results = Results(trials_.run(wanted, root_seed=7, jobs=1))
    for name in MEASURES:
        for i, one in enumerate(settings):
            np.testing.assert_array_equal(
                found.sums[name][:, i], results.values(name, at(one.scale, one.lr))
            )
    assert TrainWork(tuple(settings)).cost == 2 * TrainWork(tuple(settings[:2])).cost
