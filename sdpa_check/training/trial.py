"""Trials: one scaling, one learning rate, one warmup and one seed → a loss curve.

Trials of one task and seed share initial weights and sequences, so that they can be compared pair
by pair, and are worked on together in one array. A trial's numbers are its own all the same: they
depend neither on its company nor on the number of workers.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from sdpa_check import engine, rng
from sdpa_check.training import model
from sdpa_check.training.optimisers import optimiser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from sdpa_check.training.model import Task

POINTS: Final = 50
"""A loss curve has this many points (fewer steps: as many as steps), each a mean over its steps."""

TOGETHER: Final = 8
"""The most trials in one array: two of (8, 64, 64) float32 fit into the cache of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training from scratch.

    Attributes:
        task: the sizes.
        scale: name of the scaling rule.
        multiplier: c, which the rule puts before q·k.
        lr: learning rate of all weights.
        warmup: steps over which the rate rises linearly from lr/warmup to lr; 0 for none.
        steps: how many steps, each on a new sequence.
        optimiser: a name of `OPTIMISERS`.
        seed: number of the seed, 0, 1, …, below the root seed.
    """

    task: Task
    scale: str
    multiplier: float
    lr: float
    warmup: int
    steps: int
    optimiser: str
    seed: int


class Curve(NamedTuple):
    """Mean losses over each of the windows of `windows`, in nats; ∞ where training diverged."""

    prediction: tuple[float, ...]
    row: tuple[float, ...]


def windows(steps: int) -> NDArray[np.intp]:
    """The first step of every point of a curve, and `steps`: shape (points + 1,)."""
    points = min(steps, POINTS)
    return np.arange(points + 1) * steps // points


def middles(steps: int) -> NDArray[np.float64]:
    """The middle of every window, in steps that were made before."""
    edges = windows(steps)
    return np.asarray((edges[:-1] + edges[1:] - 1) / 2)


def train(trials: Sequence[Trial], root_seed: int) -> list[Curve]:
    """The curves of trials that differ in scaling, rate and warmup only."""
    first = trials[0]
    return curves(trials, rng.generator(root_seed, first.task.experiment, first.seed))


def curves(trials: Sequence[Trial], generator: np.random.Generator) -> list[Curve]:
    """As `train`, with the generator of the seed."""
    found = _losses(trials, generator)
    starts = windows(trials[0].steps)
    # One sum per window and trial, over contiguous memory: the same bits in any company.
    means = np.add.reduceat(found, starts[:-1], axis=-1) / np.diff(starts)
    means[~np.isfinite(means)] = np.inf
    return [Curve(*(tuple(loss.tolist()) for loss in pair)) for pair in means]


def _losses(trials: Sequence[Trial], generator: np.random.Generator) -> NDArray[np.float64]:
    """The losses on every step, before its update: shape (trials, 2, steps), as `model.Losses`."""
    first, count = trials[0], len(trials)
    start = model.initial(generator, first.task)
    weights = start.map(lambda w: np.repeat(w[None], count, axis=0))
    multiplier = np.array([trial.multiplier for trial in trials], dtype=np.float32)
    rule, found = optimiser(first.optimiser), np.empty((count, 2, first.steps))
    with np.errstate(all="ignore"):  # a training that diverges ends at ∞, and the curve says so
        for step in range(first.steps):
            batch = model.draw(generator, first.task)
            losses, gradient = model.losses_and_gradients(weights, multiplier, batch)
            found[:, 0, step], found[:, 1, step] = losses
            weights = rule.step(weights, gradient, _rates(trials, step))
    return found


def _rates(trials: Sequence[Trial], step: int) -> NDArray[np.float32]:
    """The learning rate of every trial at a step, shape (S, 1, 1)."""
    rates = [t.lr * min(1.0, (step + 1) / t.warmup) if t.warmup else t.lr for t in trials]
    return np.array(rates, dtype=np.float32)[:, None, None]


def run(
    trials: Sequence[Trial],
    *,
    root_seed: int,
    known: Mapping[Trial, Curve] | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    finished: Callable[[Mapping[Trial, Curve]], None] | None = None,
) -> dict[Trial, Curve]:
    """The curve of every trial, in the order of `trials`.

    Args:
        trials: what to train.
        root_seed: root seed.
        known: curves from an earlier run, which are not trained again.
        jobs: threads; None for the cores present.
        executor: where trials run instead.
        finished: called with everything that is known, whenever that has become more.
    """
    wanted = set(trials)
    found = {trial: curve for trial, curve in (known or {}).items() if trial in wanted}
    groups = list(_groups([trial for trial in trials if trial not in found]))
    with engine.single_threaded_blas():
        for group, curves in _completed(groups, root_seed, jobs, executor):
            found.update(zip(group, curves, strict=True))
            if finished is not None:
                finished(found)
    return {trial: found[trial] for trial in trials}


def _groups(trials: Sequence[Trial]) -> Iterator[list[Trial]]:
    """Trials that can be worked on together, at most `TOGETHER` at once."""

    def alike(trial: Trial) -> tuple[object, ...]:
        task = trial.task
        return task.dk, task.dmodel, task.keys, trial.seed, trial.steps, trial.optimiser

    for _, same in groupby(sorted(trials, key=alike), key=alike):
        members = list(same)
        for start in range(0, len(members), TOGETHER):
            yield members[start : start + TOGETHER]


def _completed(
    groups: Sequence[list[Trial]], root_seed: int, jobs: int | None, executor: Executor | None
) -> Iterator[tuple[list[Trial], list[Curve]]]:
    """Groups with their curves, as they come to an end."""
    jobs = jobs or engine.available_cores()
    if executor is None and jobs == 1:
        yield from ((group, train(group, root_seed)) for group in groups)
        return
    pool = executor or ThreadPoolExecutor(jobs, thread_name_prefix="sdpa-check")
    under_way: dict[Future[list[Curve]], list[Trial]] = {}
    try:
        under_way.update(
            (pool.submit(engine.single_threaded, train, group, root_seed), group)
            for group in groups
        )
        for future in as_completed(under_way):
            yield under_way[future], future.result()
    finally:
        for future in under_way:
            future.cancel()
        if executor is None:
            pool.shutdown(wait=True, cancel_futures=True)
