"""The losses before any training, over many initial weights: blocks for the engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from sdpa_check import engine, power
from sdpa_check.estimates import function_of_means
from sdpa_check.training import model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from sdpa_check.engine import Replicates, Sums
    from sdpa_check.records import Estimate
    from sdpa_check.training.model import Task

_PILOT_BLOCKS = 32
_MOST_BLOCKS: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class StartWork:
    """Blocks of one initial layer and one sequence, under several multipliers c.

    Sums of a block: ``prediction`` and ``row``, as `model.Losses`, one per multiplier. W_Q and −W_Q
    are equally likely and either is taken, so that the target's own logit, of mean 0 but the same
    sign for all queries of a block, cancels: what is left of the row's loss is ln Z.
    """

    task: Task
    multipliers: tuple[float, ...]
    stream: str = "main"

    @property
    def experiment(self) -> str:
        """The task and the stream; multipliers share draws and do not enter."""
        return json.dumps({"start": self.task.experiment, "stream": self.stream}, sort_keys=True)

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw a layer and a sequence and return their losses."""
        weights = model.initial(generator, self.task).map(lambda w: w[None])
        batch = model.draw(generator, self.task)
        both = np.array(self.multipliers + tuple(-c for c in self.multipliers), dtype=np.float32)
        found = model.losses(weights, both, batch)
        names = ("prediction", "row")
        return {
            name: loss.astype(np.float64).reshape(2, -1).mean(axis=0)
            for name, loss in zip(names, found, strict=True)
        }


def start_losses(
    task: Task,
    multipliers: Sequence[float],
    *,
    tolerance: float,
    alpha: float,
    checks: int,
    seed: int,
    jobs: int | None,
    executor: Executor | None,
) -> list[dict[str, Estimate]]:
    """The mean losses at the start, for each multiplier by the names of `StartWork`.

    A pilot plans how many layers are drawn: as many as a band of `tolerance` times the loss asks
    for, so that a true prediction is confirmed.
    """
    pilot = StartWork(task, tuple(multipliers), "pilot")
    found = engine.run(pilot, seed=seed, blocks=_PILOT_BLOCKS, jobs=jobs, executor=executor)
    blocks = power.MIN_BLOCKS
    for estimate in (each for by_name in _estimates(pilot, found) for each in by_name.values()):
        if estimate.se is not None:
            target = power.wanted_se(tolerance * estimate.value, alpha=alpha, checks=checks)
            blocks = max(blocks, power.blocks_needed(estimate.se, estimate.blocks, target))
    work = StartWork(task, tuple(multipliers))
    blocks = min(blocks, _MOST_BLOCKS)
    return _estimates(
        work, engine.run(work, seed=seed, blocks=blocks, jobs=jobs, executor=executor)
    )


def _estimates(work: StartWork, found: Replicates) -> list[dict[str, Estimate]]:
    samples = found.blocks * work.task.keys
    per_replicate = found.blocks // found.count

    def mean(name: str, index: int) -> Estimate:
        return function_of_means(
            found, lambda m: m[name][:, index] / per_replicate, samples=samples
        )

    return [
        {name: mean(name, index) for name in found.sums} for index in range(len(work.multipliers))
    ]
