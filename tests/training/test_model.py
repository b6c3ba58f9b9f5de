"""The layer: losses and gradients against plain twins, the laws of what is drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check.training import model
from sdpa_check.training.model import NOISE, Batch, Task, Weights
from sdpa_check.training.optimisers import Sgd

TASK = Task(dk=3, dmodel=5, keys=6)


def layer(trials=2, task=TASK, seed=0):
    """Weights of several trials that are nowhere special, their multipliers, and a sequence."""
    g = np.random.default_rng(seed)
    shapes = [(task.dmodel, task.dk), (task.dmodel, task.dk), (task.keys, task.keys)]
    weights = Weights(*(g.standard_normal((trials, *shape)) for shape in shapes))
    batch = Batch(*(g.standard_normal((task.keys, task.dmodel)) for _ in range(2)))
    return weights, g.uniform(0.3, 1.5, trials), batch


def plain_losses(weights, c, batch):
    """The losses of one trial, in loops: prediction, row."""

    def entropy(logits, target):
        return math.log(sum(math.exp(x) for x in logits)) - logits[target]

    count = len(batch.keys)
    row = prediction = 0.0
    for i in range(count):
        q = weights.query.T @ batch.queries[i]
        s = [c * float(q @ (weights.key.T @ x)) for x in batch.keys]
        z = sum(math.exp(x) for x in s)
        p = [math.exp(x) / z for x in s]
        y = [sum(p[j] * weights.readout[j, n] for j in range(count)) for n in range(count)]
        row += entropy(s, i) / count
        prediction += entropy(y, i) / count
    return prediction, row


def test_losses_are_those_of_the_plain_loops():
    weights, c, batch = layer()
    found = model.losses(weights, c, batch)
    for t in range(len(c)):
        twin = plain_losses(Weights(*(w[t] for w in weights)), float(c[t]), batch)
        # a few dozen roundings of numbers of order 10
        assert (found.prediction[t], found.row[t]) == pytest.approx(twin, rel=1e-12)


def test_gradient_is_that_of_the_complex_step():
    """Im L(w + ih)/h does not cancel: the derivative to rounding (Squire & Trapp 1998)."""
    weights, c, batch = layer()
    _, gradient = model.losses_and_gradients(weights, c, batch)
    for name in Weights._fields:
        matrix = getattr(weights, name)
        twin = np.empty_like(matrix)
        for at in np.ndindex(matrix.shape):
            moved = matrix.astype(complex)
            moved[at] += 1e-30j
            losses = model.losses(weights._replace(**{name: moved}), c, batch)
            twin[at] = losses.prediction[at[0]].imag / 1e-30
            other = losses.prediction[1 - at[0]]
            assert np.imag(other) == 0, "a trial moves no other"
        size = np.abs(twin).max()
        assert size > 1e-3
        assert np.abs(getattr(gradient, name) - twin).max() <= 1e-12 * size, name


def test_losses_and_gradient_see_the_same_losses():
    weights, c, batch = layer(seed=1)
    both, _ = model.losses_and_gradients(weights, c, batch)
    alone = model.losses(weights, c, batch)
    assert np.array_equal(both.prediction, alone.prediction)
    assert np.array_equal(both.row, alone.row)


def test_huge_logits_neither_overflow_nor_vanish():
    weights, c, batch = layer()
    huge = weights._replace(query=1e6 * weights.query)
    losses, gradient = model.losses_and_gradients(huge, c, batch)
    assert np.isfinite(losses.prediction).all()
    assert (losses.row > 1e4).all()
    assert all(np.isfinite(g).all() for g in gradient)


def test_dividing_by_the_scale_is_a_smaller_start_and_a_smaller_rate():
    """Under gradient descent c = 1/√d is W_Q, W_K times d^(−1/4), and their rate over √d, exactly.

    Both trainings keep the same logits. Rounding grows with training; 30 steps stay below 1e-9.
    """
    d, lr, generator = TASK.dk, 0.3, np.random.default_rng(2)
    start, _, _ = layer(trials=1)
    small = start._replace(query=d**-0.25 * start.query, key=d**-0.25 * start.key)
    scaled, unscaled, rule = start, small, Sgd()
    for _ in range(30):
        batch = Batch(*(generator.standard_normal((TASK.keys, TASK.dmodel)) for _ in range(2)))
        of_scaled, g = model.losses_and_gradients(scaled, np.array([d**-0.5]), batch)
        of_unscaled, h = model.losses_and_gradients(unscaled, np.array([1.0]), batch)
        assert of_scaled.row == pytest.approx(of_unscaled.row, rel=1e-9)
        assert of_scaled.prediction == pytest.approx(of_unscaled.prediction, rel=1e-9)
        scaled = rule.step(scaled, g, np.full((1, 1, 1), lr))
        slower = h._replace(query=h.query / math.sqrt(d), key=h.key / math.sqrt(d))
        unscaled = rule.step(unscaled, slower, np.full((1, 1, 1), lr))
    assert np.abs(scaled.query - start.query).max() > 0.01, "something was learnt"


def test_initial_columns_are_orthonormal_and_the_readout_is_the_identity():
    weights = model.initial(np.random.default_rng(0), Task(dk=16, dmodel=64, keys=8))
    assert {w.dtype for w in weights} == {np.dtype(np.float32)}
    for w in (weights.query, weights.key):
        # sums of 64 products of float32
        assert np.abs(w.T @ w - np.eye(16)).max() < 64 * np.finfo(np.float32).eps
    assert np.array_equal(weights.readout, np.eye(8))
    assert not np.array_equal(weights.query, weights.key)


def test_the_initial_law_has_no_preferred_sign():
    """Householder's QR alone would give a first entry that is always negative.

    Of 64 fair signs fewer than 10 or more than 54 come up with probability 2e-8.
    """
    g, task = np.random.default_rng(3), Task(dk=2, dmodel=4, keys=2)
    positive = sum(model.initial(g, task).query[0, 0] > 0 for _ in range(64))
    assert 10 <= positive <= 54


def test_a_query_is_a_noisy_copy_of_its_key():
    """Moments of 64 000 features; 6 standard errors each, five false alarms in 1e8."""
    task = Task(dk=1, dmodel=64, keys=1000)
    batch = model.draw(np.random.default_rng(4), task)
    n, x, z = 64_000, batch.keys.astype(float), batch.queries.astype(float)
    assert abs(x.mean()) < 6 / math.sqrt(n)
    assert abs((x**2).mean() - 1) < 6 * math.sqrt(2 / n)
    assert abs((z**2).mean() - 1) < 6 * math.sqrt(2 / n)
    rho = math.sqrt(1 - NOISE**2)
    assert abs((x * z).mean() - rho) < 6 * math.sqrt((1 + rho**2) / n)
    shifted = (x * np.roll(z, 1, axis=0)).mean()
    assert abs(shifted) < 6 / math.sqrt(n)


def test_streams_go_by_the_sizes_alone():
    assert TASK.experiment == Task(dk=3, dmodel=5, keys=6).experiment
    others = [
        Task(dk=4, dmodel=5, keys=6),
        Task(dk=3, dmodel=6, keys=6),
        Task(dk=3, dmodel=5, keys=7),
    ]
    assert len({TASK.experiment, *(t.experiment for t in others)}) == 4
