"""The optimisers against their formulas, written out for one number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check.errors import InputError
from sdpa_check.training.model import Weights
from sdpa_check.training.optimisers import OPTIMISERS, RATES, Adam, Sgd, optimiser


def matrices(value):
    return Weights(*(np.full((2, 1, 1), value * k) for k in (1.0, 2.0, 3.0)))


def rates(*values):
    return np.array(values)[:, None, None]


def test_sgd_goes_down_the_gradient_at_the_rate_of_the_trial():
    found = Sgd().step(matrices(1.0), matrices(0.5), rates(0.1, 2.0))
    assert found.query[:, 0, 0] == pytest.approx([1 - 0.05, 1 - 1.0])
    assert found.readout[:, 0, 0] == pytest.approx([3 - 0.15, 3 - 3.0])


def test_adam_is_the_algorithm_of_kingma_and_ba():
    gradients, lr = [0.3, -1.2, 0.7, 0.01], 0.05
    w, m, v = 1.0, 0.0, 0.0
    rule, found = Adam(), matrices(1.0)
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w -= lr * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
        found = rule.step(found, matrices(g), rates(lr, 2 * lr))
        assert found.query[0, 0, 0] == pytest.approx(w, rel=1e-12)


def test_the_first_step_of_adam_has_the_size_of_the_rate():
    found = Adam().step(matrices(0.0), matrices(-1e3), rates(0.1, 0.2))
    for matrix in found:
        # ε / 1e3 is lost
        assert matrix[:, 0, 0] == pytest.approx([0.1, 0.2], rel=1e-9)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_forget_nothing_and_share_nothing(name):
    one, other = optimiser(name), optimiser(name)
    for _ in range(3):
        one.step(matrices(1.0), matrices(5.0), rates(0.1, 0.1))
    fresh = optimiser(name).step(matrices(1.0), matrices(0.2), rates(0.1, 0.1))
    assert np.array_equal(other.step(matrices(1.0), matrices(0.2), rates(0.1, 0.1)).key, fresh.key)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_single_precision_stays(name):
    weights = matrices(1.0).map(lambda w: w.astype(np.float32))
    found = optimiser(name).step(weights, weights, rates(0.1, 0.1).astype(np.float32))
    assert {w.dtype for w in found} == {np.dtype(np.float32)}


def test_every_optimiser_has_rates_in_increasing_order():
    assert set(RATES) == set(OPTIMISERS)
    assert all(list(r) == sorted(set(r)) and r[0] > 0 for r in RATES.values())


def test_an_unknown_optimiser_is_refused():
    with pytest.raises(InputError, match="did you mean 'adam'"):
        optimiser("adamw")
