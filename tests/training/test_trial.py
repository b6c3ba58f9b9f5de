"""Trials: their numbers are their own, whatever runs beside them and wherever it runs."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sdpa_check import rng
from sdpa_check.training import model
from sdpa_check.training import trial as trials_
from sdpa_check.training.trial import POINTS, TOGETHER, Curve


def many(trial, **fields):
    """24 trials of two d_k, two scalings, two rates and three seeds."""
    return [
        trial(dk=dk, scale=scale, lr=lr, seed=seed, **fields)
        for dk in (3, 4)
        for scale in ("none", "sqrt")
        for lr in (0.1, 1.0)
        for seed in range(3)
    ]


def test_a_trial_is_the_plain_loop(trial):
    """Weights, sequences and steps one after another, in the same single precision."""
    one = trial(lr=0.5, warmup=4, steps=7)
    generator = rng.generator(5, one.task.experiment, one.seed)
    weights = model.initial(generator, one.task).map(lambda w: w[None])
    losses = []
    for step in range(7):
        batch = model.draw(generator, one.task)
        found, g = model.losses_and_gradients(weights, np.float32([one.multiplier]), batch)
        losses.append(float(found.prediction[0]))
        lr = np.float32(0.5 * min(1, (step + 1) / 4))
        weights = weights.map(lambda w, d, lr=lr: w - lr * d, g)
    (curve,) = trials_.train([one], root_seed=5)
    assert curve.prediction == tuple(losses)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_company_changes_no_bit(trial, optimiser):
    together = [
        trial(scale=scale, lr=lr, warmup=warmup, optimiser=optimiser)
        for scale in ("none", "sqrt")
        for lr in (0.1, 1.0)
        for warmup in (0, 9)
    ]
    curves = trials_.train(together, root_seed=0)
    assert len(set(curves)) == len(together)
    for one, curve in zip(together, curves, strict=True):
        assert trials_.train([one], root_seed=0) == [curve]


def test_workers_change_no_bit(trial):
    wanted = many(trial)
    alone = trials_.run(wanted, root_seed=1, jobs=1)
    assert list(alone) == wanted
    assert trials_.run(wanted, root_seed=1, jobs=3) == alone
    with ThreadPoolExecutor(2) as pool:
        assert trials_.run(wanted, root_seed=1, executor=pool) == alone
    assert list(trials_.run(wanted[::-1], root_seed=1, jobs=2)) == wanted[::-1]


def test_what_a_worker_gets_and_gives_can_be_sent_to_another_process(trial):
    job = pickle.loads(pickle.dumps((trials_.train, [trial(steps=5)], 0)))  # noqa: S301
    function, *arguments = job
    curves = function(*arguments)
    assert pickle.loads(pickle.dumps(curves)) == trials_.train([trial(steps=5)], 0)  # noqa: S301


def test_seeds_differ_and_scalings_share_their_draws(trial):
    """Before the first update the prediction loss knows the scaling, the draws do not."""
    (a,) = trials_.train([trial(steps=1)], root_seed=0)
    (b,) = trials_.train([trial(steps=1, seed=1)], root_seed=0)
    (c,) = trials_.train([trial(steps=1)], root_seed=1)
    assert len({a, b, c}) == 3
    slow = [trial(scale=s, lr=1e-30, steps=3) for s in ("sqrt", "none")]
    scaled, unscaled = (curve.row for curve in trials_.train(slow, root_seed=0))
    # unscaled logits are √3 times the scaled ones: both losses come from the same q·k
    alike = trials_.train([trial(lr=1e-30, steps=3)], root_seed=0)[0].row
    assert scaled == alike
    assert scaled != unscaled


def test_a_longer_training_begins_as_the_shorter_one(trial):
    (short,) = trials_.train([trial(steps=20)], root_seed=0)
    (long,) = trials_.train([trial(steps=40)], root_seed=0)
    assert long.prediction[:20] == short.prediction  # up to 50 steps a point is a step


@pytest.mark.parametrize("steps", [1, 7, 49, 50, 51, 99, 400])
def test_windows_cover_every_step_once(steps):
    edges = trials_.windows(steps)
    assert (edges[0], edges[-1]) == (0, steps)
    assert len(edges) - 1 == min(steps, POINTS)
    widths = np.diff(edges)
    assert widths.min() >= 1
    assert widths.max() - widths.min() <= 1
    middles = trials_.middles(steps)
    assert middles[0] == (widths[0] - 1) / 2
    assert (np.diff(middles) > 0).all()


def test_points_are_means_over_windows(trial, monkeypatch):
    steps = np.arange(2 * 103, dtype=float).reshape(1, 2, 103)
    monkeypatch.setattr(trials_, "_losses", lambda *_: steps)
    (curve,) = trials_.curves([trial(steps=103)], generator=None)
    edges = trials_.windows(103)
    for i in range(POINTS):
        window = range(edges[i], edges[i + 1])
        assert curve.prediction[i] == pytest.approx(sum(window) / len(window), rel=1e-12)
        assert curve.row[i] == pytest.approx(103 + sum(window) / len(window), rel=1e-12)


def test_training_learns_and_too_large_a_rate_diverges(trial):
    """From about ln 9 to far below, and with a rate beyond reason to ∞, without a warning.

    A last bit of BLAS moves the final loss of one seed, so the bound holds their mean: over 48
    seeds and two BLAS kernels a seed ends at 0.77 ± 0.17, eight of them at 0.77 ± 0.06.
    """
    rates = [trial(dk=8, lr=lr, steps=400) for lr in (1.0, 1e6)]
    good, bad = trials_.train(rates, root_seed=0)
    assert good.prediction[0] == pytest.approx(math.log(9), rel=0.1)
    seeds = trials_.run([trial(dk=8, steps=400, seed=seed) for seed in range(8)], root_seed=0)
    assert np.mean([each.prediction[-1] for each in seeds.values()]) < math.log(9) / 2
    assert max(bad.prediction) > 100
    assert not any(map(math.isnan, bad.prediction + bad.row))


def test_an_overflow_is_an_infinite_loss(trial, monkeypatch):
    steps = np.array([[[1.0, np.nan, 2.0], [np.inf, 1.0, -np.inf]]])
    monkeypatch.setattr(trials_, "_losses", lambda *_: steps)
    (curve,) = trials_.curves([trial(steps=3)], generator=None)
    assert curve == Curve((1.0, math.inf, 2.0), (math.inf, 1.0, math.inf))


def test_what_is_known_is_not_trained_again(trial, monkeypatch):
    wanted = many(trial)
    known = {one: Curve((float(i),), (0.0,)) for i, one in enumerate(wanted[:10])}
    stranger = trial(lr=77.0)
    trained = []

    def train(group, root_seed):
        trained.extend(group)
        return [Curve((-1.0,), (0.0,)) for _ in group]

    monkeypatch.setattr(trials_, "train", train)
    seen = []
    found = trials_.run(
        wanted,
        root_seed=0,
        known={**known, stranger: Curve((9.0,), (9.0,))},
        jobs=1,
        finished=lambda all_: seen.append(len(all_)),
    )
    assert set(trained) == set(wanted[10:])
    assert [found[one] for one in wanted[:10]] == list(known.values())
    assert stranger not in found
    assert seen == sorted(seen)
    assert seen[-1] == len(wanted)


def test_groups_are_alike_within_and_small(trial):
    wanted = many(trial) + many(trial, optimiser="adam") + many(trial, steps=30)
    groups = list(trials_._groups(wanted))
    assert sorted(map(repr, wanted)) == sorted(repr(one) for group in groups for one in group)
    for group in groups:
        assert len(group) <= TOGETHER
        assert len({(t.task, t.seed, t.steps, t.optimiser) for t in group}) == 1


def test_an_error_stops_the_workers(trial):
    def finished(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trials_.run(many(trial), root_seed=0, jobs=2, finished=finished)
