"""Losses before training: exact where theory is, and the twin of what a block does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check import engine, rng
from sdpa_check.theory.saturation import gaussian_rows
from sdpa_check.training import model
from sdpa_check.training.model import Task
from sdpa_check.training.start import StartWork, start_losses


def test_the_row_begins_at_the_expected_log_partition():
    """18.953 without the scale and 4.646 with it at d = N = 64, not ln 64 = 4.159 (B-6.1-start).

    Six standard errors each, 127 degrees of freedom: a false alarm in 2e-8, twice.
    """
    unscaled, scaled = start_losses(
        Task(dk=64, dmodel=64, keys=64), (1.0, 0.125), wanted_se=0.002, seed=1, jobs=1
    )
    for found, multiplier, value in ((unscaled, 1.0, 18.9526), (scaled, 0.125, 4.6457)):
        exact = gaussian_rows(dk=64, keys=64, multiplier=multiplier).log_partition
        assert exact == pytest.approx(value, abs=1e-4)
        assert found.row.se < 0.002 * exact
        assert abs(found.row.value - exact) < 6 * found.row.se
        # softmax(y) begins nearly uniform: y is a probability, so ln N + (e − 2)/N at most
        excess = found.prediction.value - math.log(64)
        assert -6 * found.prediction.se < excess < (math.e - 2) / 64


def test_a_block_takes_both_signs_of_the_query_matrix():
    task = Task(dk=3, dmodel=8, keys=7)
    work = StartWork(task, (1.0, 0.5))
    sums = work.block(rng.generator(0, work.experiment, 4))
    generator = rng.generator(0, work.experiment, 4)
    weights = model.initial(generator, task)
    batch = model.draw(generator, task)
    s = (batch.queries @ weights.query @ (batch.keys @ weights.key).T).astype(float)
    for i, c in enumerate(work.multipliers):
        rows = [np.log(np.exp(sign * c * s).sum(axis=1)).mean() for sign in (1, -1)]
        assert sums["row"][i] == pytest.approx(np.mean(rows), rel=1e-5)  # float32
    assert not np.array_equal(*sums["prediction"][:, None])


def test_more_layers_are_drawn_for_less_error():
    task = Task(dk=4, dmodel=16, keys=16)
    options = {"seed": 0, "jobs": 1}
    rough, fine = (start_losses(task, (1.0,), wanted_se=w, **options)[0] for w in (0.1, 0.003))
    assert rough.row.samples == engine.whole(512) * 16
    assert fine.row.samples > rough.row.samples
    assert fine.row.se < 0.003 * fine.row.value


def test_scalings_share_their_draws():
    task = Task(dk=4, dmodel=16, keys=16)
    both = start_losses(task, (1.0, 0.5), wanted_se=0.1, seed=0, jobs=1)
    (alone,) = start_losses(task, (0.5,), wanted_se=0.1, seed=0, jobs=2)
    assert both[1] == alone
