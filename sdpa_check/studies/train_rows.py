"""The rows of `train`: losses at the start, held to theory, and what the trials came to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sdpa_check import estimates, verdict
from sdpa_check.records import Outcome, Prediction, Row
from sdpa_check.theory.saturation import gaussian_rows
from sdpa_check.training.measures import Results, Setting
from sdpa_check.training.start import start_losses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sdpa_check.checks import Settings
    from sdpa_check.records import Estimate
    from sdpa_check.training.model import Task

ABOUT: Final = 0.02
"""What "about ln N" is taken to mean. A read-out that starts as the identity begins with up to
(e − 2)/N more than ln N, which is 1.6 % of it at 16 keys and 0.3 % at 64."""

FINAL, HALF, BEST = "train.final_loss", "train.half_steps", "train.best_lr"


@dataclass(frozen=True, slots=True)
class Start:
    """A task, and the multiplier of each scaling rule there, by the rule's name."""

    task: Task
    multipliers: Mapping[str, float]


def start_rows(starts: Sequence[Start], settings: Settings) -> list[Row]:
    """The losses before training: that of the prediction against ln N, that of the row exactly."""
    total = sum(2 * len(start.multipliers) for start in starts)
    found = []
    for start in starts:
        losses = start_losses(
            start.task,
            tuple(start.multipliers.values()),
            tolerance=ABOUT,
            alpha=settings.alpha,
            checks=total,
            seed=settings.seed,
            jobs=settings.jobs,
            executor=settings.executor,
        )
        for (scale, factor), by_name in zip(start.multipliers.items(), losses, strict=True):
            predicted = _at_the_start(start.task, factor)
            for name, estimate in by_name.items():
                found.append(
                    _start_row(start.task, scale, name, estimate, predicted[name], settings, total)
                )
    return found


def _at_the_start(task: Task, multiplier: float) -> dict[str, Prediction]:
    row = gaussian_rows(dk=task.dk, keys=task.keys, multiplier=multiplier)
    return {
        "prediction": Prediction(value=math.log(task.keys), kind="stated", source="ln N (B-6.1)"),
        "row": Prediction(
            value=row.log_partition,
            kind="exact",
            source="E[ln Z] of iid N(0, 1) components, up to O(1/(N d_model)): the target's key "
            "is correlated with the query",
        ),
    }


def _start_row(
    task: Task,
    scale: str,
    name: str,
    estimate: Estimate,
    prediction: Prediction,
    settings: Settings,
    total: int,
) -> Row:
    band = ABOUT * abs(prediction.value or 0.0)
    judged = verdict.judge(estimate, prediction, band, alpha=settings.alpha, checks=total)
    quantity = {"prediction": "train.start_loss", "row": "train.start_row_loss"}[name]
    return Row(
        id=f"{quantity}[dk={task.dk},scale={scale}]",
        quantity=quantity,
        params={"dk": task.dk, "scale": scale, "keys": task.keys, "dmodel": task.dmodel},
        estimate=estimate,
        prediction=prediction,
        verdict=judged.outcome,
        expected=Outcome.CONFIRMED,
        reason=judged.reason,
        tolerance=band,
        detectable=judged.detectable,
    )


def training_rows(results: Results, common: Mapping[str, Any]) -> list[Row]:
    """What the trials came to: measured, with intervals over seeds, and not judged.

    The final loss of every setting; at each best rate the steps to half the first loss; then final
    losses less those of the first scaling, rate by rate and each at its own best rate; what the
    best rate of the first d_k costs at the others; and what a warmup does.

    Args:
        results: the curves.
        common: parameters that all rows share.
    """
    return [
        *(_row(FINAL, results.estimate(FINAL, s), common, s) for s in results.settings),
        *_best(results, common),
        *(
            _row(FINAL, results.difference(FINAL, one, other), common, one, other)
            for one, other in _pairs(results)
        ),
    ]


def _best(results: Results, common: Mapping[str, Any]) -> Iterator[Row]:
    for s in best_settings(results):
        why = "not available (the best of the rates that were tried)"
        seeds, samples = common["seeds"], results.estimate(FINAL, s).samples
        row = _row(BEST, estimates.bare(s.lr, seeds, samples, why), common, s)
        yield row
        yield _row(HALF, results.estimate(HALF, s), common, s)


def best_settings(results: Results) -> list[Setting]:
    """Every d_k, scaling and warmup at its best rate."""
    rest = dict.fromkeys((s.dk, s.scale, s.warmup) for s in results.settings)
    return [Setting(d, c, results.best_lr(d, c, w), w) for d, c, w in rest]


def _pairs(results: Results) -> Iterator[tuple[Setting, Setting]]:
    """The pairs of settings whose final losses are compared, each pair once."""
    first, best = results.settings[0], best_settings(results)
    found: dict[tuple[Setting, Setting], None] = {}
    for s in results.settings:
        found[s, s._replace(scale=first.scale)] = None
    for s in best:
        own = s._replace(scale=first.scale)
        found[s, own._replace(lr=results.best_lr(own.dk, own.scale, own.warmup))] = None
        found[s._replace(lr=results.best_lr(first.dk, s.scale, s.warmup)), s] = None
        plain = results.best_lr(s.dk, s.scale, first.warmup)
        found[s, s._replace(lr=plain, warmup=first.warmup)] = None
    return (pair for pair in found if pair[0] != pair[1])


def _row(
    quantity: str,
    estimate: Estimate,
    common: Mapping[str, Any],
    setting: Setting,
    versus: Setting | None = None,
) -> Row:
    """A number that is measured only; with `versus`, the difference of two."""
    params: dict[str, Any] = setting._asdict()
    other = {} if versus is None else versus._asdict()
    differing = {name: value for name, value in other.items() if value != params[name]}
    label = ",".join(
        f"{name}={value}" + (f"-{differing[name]}" if name in differing else "")
        for name, value in params.items()
        if name != "lr" or quantity != BEST
    )
    if quantity == BEST:
        del params["lr"]
    prediction = Prediction(value=None, kind="none", source="measured only: no theory of training")
    judged = verdict.judge(estimate, prediction, 0.0)
    return Row(
        id=f"{quantity}[{label}]",
        quantity=quantity,
        params={**params, **common, **({"versus": differing} if differing else {})},
        estimate=estimate,
        prediction=prediction,
        verdict=judged.outcome,
        expected=Outcome.UNDEFINED,
        reason=judged.reason,
    )
