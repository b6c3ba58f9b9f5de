"""`train`: one attention layer, trained from scratch under every scaling and learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdpa_check import power
from sdpa_check.inputs import Inputs, Integers, Scales
from sdpa_check.quantities.base import multiplier
from sdpa_check.records import Design, Run
from sdpa_check.studies.study import Study
from sdpa_check.training.measures import Results
from sdpa_check.training.model import NOISE, Task
from sdpa_check.training.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.logits.scaling import Scaling

WIDTH: Final = 64
"""d_model, or the largest d_k where that is larger."""

MAX_DK, MAX_KEYS, MAX_STEPS, MAX_SEEDS, MAX_TRIALS = 1024, 4096, 1_000_000, 1000, 20_000
MIN_KEYS: Final = 16
"""With fewer keys the first read-out already says more than ln N, see `start_rows`."""

MAX_LR: Final = 1e6

_SAVE_EVERY = 2.0  # seconds between two writes of the trials

Rates = float | Sequence[float]


@dataclass(frozen=True, slots=True)
class TrainStudy(Study):
    """A finished run with the curves that its figures show."""

    results: Results


@dataclass(frozen=True, slots=True)
class _Plan:
    """The inputs of `train`, checked: a trial for every combination of them."""

    inputs: Inputs
    tasks: tuple[Task, ...]
    rules: tuple[Scaling, ...]
    rates: tuple[float, ...]
    warmups: tuple[int, ...]
    seeds: int
    steps: int
    optimiser: str

    def multiplier(self, task: Task, rule: Scaling) -> float:
        """What a rule puts before q·k of a task."""
        return multiplier(rule, Design(dk=task.dk), task.dmodel)

    def trials(self) -> list[Trial]:
        """Every combination, seeds last."""
        return [
            Trial(
                task=task,
                scale=rule.name,
                multiplier=self.multiplier(task, rule),
                lr=lr,
                warmup=warmup,
                steps=self.steps,
                optimiser=self.optimiser,
                seed=seed,
            )
            for task, rule, warmup, lr, seed in product(
                self.tasks, self.rules, self.warmups, self.rates, range(self.seeds)
            )
        ]

    def record(self) -> dict[str, Any]:
        """The inputs as the run's record shows them."""
        return {
            "dk": [task.dk for task in self.tasks],
            "scale": [rule.name for rule in self.rules],
            "lr": list(self.rates),
            "warmup": list(self.warmups),
            "optimiser": self.optimiser,
            "seeds": self.seeds,
            "steps": self.steps,
            "keys": self.tasks[0].keys,
            "dmodel": self.tasks[0].dmodel,
            "noise": NOISE,
            "alpha": power.ALPHA,
        }


def train(
    dk: Integers = (16, 64),
    scale: Scales = ("none", "sqrt"),
    lr: Rates | None = None,
    *,
    warmup: Integers = (0, 50),
    seeds: int = 5,
    steps: int = 400,
    keys: int = 64,
    optimiser: str = "sgd",
    trials: str | Path | None = None,
    **options: Any,
) -> Run:
    """Train one attention layer to find the key that matches its query, and compare scalings.

    Every combination of d_k, scaling, learning rate and warmup is trained on every seed, all on the
    same sequences. The task and the layer are described in `sdpa_check.training.model`. Losses are
    measured, with 95 % intervals over seeds and differences taken seed by seed; judged are only the
    losses at the start, of which theory is exact. The notes answer what is said about training.

    Args:
        dk: one d_k or several, up to 1024.
        scale: scaling rules, as for `sdpa_check.saturation`.
        lr: learning rates; None for five or six that span the useful ones of the optimiser.
        warmup: steps of linear warmup, 0 for none; one number or several.
        seeds: how many times each setting is trained, 2 to 1000.
        steps: steps of a training, each on a new sequence.
        keys: N, keys of a sequence and labels to choose from, 16 to 4096.
        optimiser: ``sgd`` or ``adam``.
        trials: a file for finished trials. What it holds from an earlier run is not trained again.
        options: of those in `Options` seed, jobs, executor and progress.

    Raises:
        InputError: for an input that cannot be used.

    Example:
        >>> import sdpa_check
        >>> run = sdpa_check.train(dk=16, lr=1.0, warmup=0, steps=100)
        >>> run.exit_code
        0
    """
    return study(
        dk,
        scale,
        lr,
        warmup=warmup,
        seeds=seeds,
        steps=steps,
        keys=keys,
        rule=optimiser,
        trials=trials,
        options=options,
    ).run
