"""Loss curves → numbers: what is taken from a trial, and what seeds say together.

Error bars come from the spread between seeds, Student's t with seeds − 1 degrees of freedom. Trials
of one seed share initial weights and sequences: differences are taken seed by seed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from sdpa_check import estimates
from sdpa_check.engine import Replicates
from sdpa_check.errors import InputError
from sdpa_check.training import trial as trials_

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from sdpa_check.engine import Sums
    from sdpa_check.records import Estimate
    from sdpa_check.training.trial import Curve, Trial

FINAL, FINAL_ROW, HALF = "train.final_loss", "train.final_row_loss", "train.half_steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number of a trial.

    Attributes:
        name: of the quantity.
        formula: what it is, in one line.
        unit: of the number.
        of: trial, curve → the number; not finite where there is none.
        missing: what a trial did that has none.
    """

    name: str
    formula: str
    unit: str
    of: Callable[[Trial, Curve], float]
    missing: str


def last_points(points: int) -> int:
    """How many points of a curve its final loss is the mean of: a tenth."""
    return max(1, points // 10)


def _final(loss: tuple[float, ...]) -> float:
    last = loss[-last_points(len(loss)) :]
    return math.fsum(last) / len(last)


def half_steps(trial: Trial, curve: Curve) -> float:
    """The step at which the prediction loss first falls to ½ ln N, NaN if it never does.

    The curve is taken as linear between the middles of its windows.
    """
    bound = math.log(trial.task.keys) / 2
    middles = trials_.middles(trial.steps)
    for i, loss in enumerate(curve.prediction):
        if loss > bound:
            continue
        if i == 0:
            return float(middles[0])
        before = curve.prediction[i - 1]
        share = (before - bound) / (before - loss) if math.isfinite(before) else 1.0
        return float(middles[i - 1] + share * (middles[i] - middles[i - 1]))
    return math.nan


MEASURES: Final = {
    measure.name: measure
    for measure in (
        Measure(
            name=FINAL,
            formula="mean prediction loss over the last tenth of the steps",
            unit="nats",
            of=lambda _, curve: _final(curve.prediction),
            missing="diverged",
        ),
        Measure(
            name=FINAL_ROW,
            formula="mean −ln p of the target key over the last tenth of the steps",
            unit="nats",
            of=lambda _, curve: _final(curve.row),
            missing="diverged",
        ),
        Measure(
            name=HALF,
            formula="steps until the prediction loss has fallen to ½ ln N",
            unit="steps",
            of=half_steps,
            missing="did not reach ½ ln N",
        ),
    )
}
"""The numbers of a trial, by name."""


class Setting(NamedTuple):
    """What tells trials apart beside their seed."""

    dk: int
    scale: str
    warmup: int
    lr: float


class Results:
    """The curves of all trials, by setting and seed."""

    def __init__(self, curves: Mapping[Trial, Curve]) -> None:
        self._of: dict[Setting, dict[int, tuple[Trial, Curve]]] = defaultdict(dict)
        for trial, curve in curves.items():
            setting = Setting(trial.task.dk, trial.scale, trial.warmup, trial.lr)
            self._of[setting][trial.seed] = (trial, curve)

    @property
    def settings(self) -> list[Setting]:
        """All settings, in the order of the trials."""
        return list(self._of)

    def curve(self, setting: Setting) -> list[Estimate]:
        """The mean over the seeds of every point of the curves of the prediction loss."""
        curves = [curve.prediction for _, curve in self._of[setting].values()]
        return [self._mean(FINAL, np.array(point)) for point in zip(*curves, strict=True)]

    def values(self, name: str, setting: Setting) -> NDArray[np.float64]:
        """A number of `MEASURES` for every seed of a setting."""
        of = MEASURES[name].of
        return np.array([of(trial, curve) for trial, curve in self._of[setting].values()])

    def estimate(self, name: str, setting: Setting) -> Estimate:
        """Its mean over the seeds."""
        return self._mean(name, self.values(name, setting))

    def difference(self, name: str, setting: Setting, other: Setting) -> Estimate:
        """The mean of its differences setting − other, seed by seed."""
        with np.errstate(invalid="ignore"):  # ∞ − ∞
            pairs = self.values(name, setting) - self.values(name, other)
            return self._mean(name, pairs, " in one of the two trials or both")

    def _mean(self, name: str, values: NDArray[np.float64], where: str = "") -> Estimate:
        """The mean with its error; `samples` are the trials behind it."""
        count, lost = len(values), _without(values)
        if lost:
            reason = f"not available ({lost} of {count} seeds {MEASURES[name].missing}{where})"
            return estimates.bare(float(values.mean()), count, count, reason)
        seeds = Replicates({"value": values}, count)
        return estimates.function_of_means(seeds, lambda m: m["value"], samples=count)

    def steps(self, setting: Setting) -> int:
        """How many steps its trainings have."""
        return next(trial.steps for trial, _ in self._of[setting].values())

    def lost(self, name: str, setting: Setting) -> int:
        """How many seeds of a setting do not have the number."""
        return _without(self.values(name, setting))

    def best(self, dk: int, scale: str, warmup: int) -> Setting:
        """A scaling at the rate of its least final loss, mean over seeds; the smaller of equals.

        The rate is chosen on the seeds that its loss is then reported of, which flatters every
        choice by a fraction of a standard error.

        Raises:
            InputError: where no trial has this d_k, scaling and warmup.
        """
        mine = [s for s in self._of if (s.dk, s.scale, s.warmup) == (dk, scale, warmup)]
        if not mine:
            raise InputError("setting", (dk, scale, warmup), "one that was trained")
        mine.sort(key=lambda s: s.lr)
        return min(mine, key=lambda s: float(self.values(FINAL, s).mean()))

    def best_settings(self) -> list[Setting]:
        """Every d_k, scaling and warmup at its best rate."""
        rest = dict.fromkeys((s.dk, s.scale, s.warmup) for s in self._of)
        return [self.best(*each) for each in rest]

    def best_lr_set(self, best: Setting) -> Estimate:
        """The best rate, with the range of the rates tried that it cannot be told from.

        Those are the rates whose final loss, less that of the best seed by seed, has an interval
        that reaches down to 0.
        """
        of_best = self.estimate(FINAL, best)
        rates = [best.lr]
        for s in self._of:
            if s == best._replace(lr=s.lr):
                more = self.difference(FINAL, s, best)
                if more.lo is not None and more.lo <= 0:
                    rates.append(s.lr)
        return replace(of_best, value=best.lr, se=None, lo=min(rates), hi=max(rates), withheld="")


def _without(values: NDArray[np.float64]) -> int:
    return int((~np.isfinite(values)).sum())


@dataclass(frozen=True, slots=True)
class TrainWork:
    """Trials of one task as blocks of the engine: block i is seed i of every setting.

    Sums of a block: every number of `MEASURES` by its name, one per trial. As all trials of a block
    share their draws, a difference of two entries is paired, and its error is that of the pairs.

    Attributes:
        trials: seed 0 of every setting; task, steps and optimiser are the same in all.
    """

    trials: tuple[Trial, ...]

    @property
    def experiment(self) -> str:
        """The text of the task: blocks draw what the trials of `train` draw."""
        return self.trials[0].task.experiment

    @property
    def size(self) -> int:
        """Trials of a setting in a block."""
        return 1

    @property
    def cost(self) -> float:
        """Elementary operations of a block, roughly."""
        task, steps = self.trials[0].task, self.trials[0].steps
        products = task.keys * (6 * task.dmodel * task.dk + 3 * task.keys * (task.dk + task.keys))
        return float(len(self.trials) * steps * products)

    def block(self, generator: np.random.Generator) -> Sums:
        """Train every trial and return its numbers."""
        curves = trials_.curves(self.trials, generator)
        pairs = list(zip(self.trials, curves, strict=True))
        return {name: np.array([m.of(*pair) for pair in pairs]) for name, m in MEASURES.items()}
