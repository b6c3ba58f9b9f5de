"""The losses before any training, over many initial weights: blocks for the engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

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

_PILOT_BLOCKS: Final = 32
_LEAST_BLOCKS: Final = 512
_MOST_BLOCKS: Final = 1 << 14


class StartLosses(NamedTuple):
    """The mean losses at the start, as `model.Losses`, with their errors."""

    prediction: Estimate
    row: Estimate


@dataclass(frozen=True, slots=True)
class StartWork:
    """Blocks of one initial layer and one sequence, under several multipliers c.

    Sums of a block: ``prediction`` and ``row``, as `model.Losses`, one per multiplier. W_Q and −W_Q
    are equally likely and either is taken, so that the target's own logit, of mean 0 but of one
    sign for all queries of a block, cancels: what is left of the row's loss is ln Z.
    """

    task: Task
    multipliers: tuple[float, ...]
    stream: str = "main"

    @property
    def experiment(self) -> str:
        """The task and the stream; multipliers share draws and do not enter."""
        return json.dumps({"start": self.task.experiment, "stream": self.stream}, sort_keys=True)

    @property
    def size(self) -> int:
        """Rows of a block, under one multiplier."""
        return self.task.keys

    @property
    def cost(self) -> float:
        """Elementary operations of a block, roughly."""
        task, passes = self.task, 2 * len(self.multipliers)
        products = task.dmodel * task.dk + passes * task.keys * (task.dk + task.keys)
        return float(2 * task.keys * products + 4 * task.dmodel * task.dk**2)

    def split(self, parts: int) -> StartWork:
        """The same work: a block is as small as it can be."""
        del parts
        return self

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw a layer and a sequence and return their losses."""
        weights = model.initial(generator, self.task).map(lambda w: w[None])
        batch = model.draw(generator, self.task)
        both = np.array(self.multipliers + tuple(-c for c in self.multipliers), dtype=np.float32)
        found = model.losses(weights, both, batch)
        return {
            name: loss.astype(np.float64).reshape(2, -1).mean(axis=0)
            for name, loss in found._asdict().items()
        }


def start_losses(
    task: Task,
    multipliers: Sequence[float],
    *,
    wanted_se: float,
    seed: int,
    jobs: int | None = None,
    executor: Executor | None = None,
) -> list[StartLosses]:
    """The mean losses at the start, for each multiplier.

    A pilot plans how many layers are drawn, 512 or more.

    Args:
        task: the sizes.
        multipliers: c of each scaling.
        wanted_se: relative standard error that every loss shall have.
        seed: root seed.
        jobs: workers; None for the cores present.
        executor: where blocks run instead.
    """

    def run(work: StartWork, blocks: int) -> list[StartLosses]:
        found = engine.run(work, seed=seed, blocks=blocks, jobs=jobs, executor=executor)
        return [_estimated(found, task, index) for index in range(len(multipliers))]

    blocks = _LEAST_BLOCKS
    pilot = run(StartWork(task, tuple(multipliers), "pilot"), _PILOT_BLOCKS)
    for estimate in (each for losses in pilot for each in losses):
        target = wanted_se * abs(estimate.value)
        blocks = max(blocks, power.blocks_needed(estimate.se or 0.0, estimate.blocks, target))
    return run(StartWork(task, tuple(multipliers)), min(blocks, _MOST_BLOCKS))


def _estimated(found: Replicates, task: Task, index: int) -> StartLosses:
    per_replicate = found.blocks // found.count

    def mean(name: str) -> Estimate:
        return function_of_means(
            found,
            lambda sums: sums[name][:, index] / per_replicate,
            samples=found.blocks * task.keys,
        )

    return StartLosses(*map(mean, StartLosses._fields))
