"""The rows of `train`: losses at the start, held to theory, and what the trials came to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sdpa_check import estimates, power, verdict
from sdpa_check.records import Outcome, Prediction, Row
from sdpa_check.theory.saturation import gaussian_rows
from sdpa_check.training.measures import FINAL, HALF
from sdpa_check.training.start import start_losses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sdpa_check.checks import Settings
    from sdpa_check.records import Estimate
    from sdpa_check.training.measures import Results, Setting
    from sdpa_check.training.model import Task

ABOUT: Final = 0.02
"""What "about ln N" is taken to mean. A read-out that starts as the identity begins with up to
(e − 2)/N more than ln N, which is 1.6 % of it at 16 keys and 0.3 % at 64."""

START, START_ROW = "train.start_loss", "train.start_row_loss"
BEST_LR = "train.best_lr"

BEST: Final = "best"
"""The parameter ``lr`` of rows whose rate the outcome chose; `BEST_LR` says which it is."""

LOWEST, HIGHEST = "lowest alike", "highest alike"
"""The parameters ``statistic`` of the least and the largest rate not to be told from the best."""


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
        measured = start_losses(
            start.task,
            tuple(start.multipliers.values()),
            wanted_se=power.wanted_se(ABOUT, alpha=settings.alpha, checks=total),
            seed=settings.seed,
            jobs=settings.jobs,
            executor=settings.executor,
        )
        for (scale, factor), losses in zip(start.multipliers.items(), measured, strict=True):
            predictions = (_uniform(start.task), _log_partition(start.task, factor))
            for name, estimate, prediction in zip(
                (START, START_ROW), losses, predictions, strict=True
            ):
                params = {"dk": start.task.dk, "scale": scale}
                found.append(_judged(name, params, estimate, prediction, settings.alpha / total))
    return found


def _uniform(task: Task) -> Prediction:
    return Prediction(value=math.log(task.keys), kind="stated", source="ln N (B-6.1)")


def _log_partition(task: Task, multiplier: float) -> Prediction:
    row = gaussian_rows(dk=task.dk, keys=task.keys, multiplier=multiplier)
    source = (
        "E[ln Z] of Gaussian q, k, up to O(1/(N d_model)) as the target's key resembles the query"
    )
    return Prediction(value=row.log_partition, kind="exact", source=source)


def _judged(
    quantity: str,
    params: Mapping[str, Any],
    estimate: Estimate,
    prediction: Prediction,
    alpha: float,
) -> Row:
    band = ABOUT * abs(prediction.value or 0.0)
    judged = verdict.judge(estimate, prediction, band, alpha=alpha)
    return Row(
        id=_id(quantity, params),
        quantity=quantity,
        params=params,
        estimate=estimate,
        prediction=prediction,
        verdict=judged.outcome,
        expected=Outcome.CONFIRMED,
        reason=judged.reason,
        tolerance=band,
        detectable=judged.detectable,
    )


def training_rows(results: Results) -> list[Row]:
    """What the trials came to: measured, with intervals over seeds, and not judged.

    The final loss of every setting, the steps that it took to ½ ln N, and its difference from the
    first scaling at the same rate. Then, under ``lr`` = ``best``: the best rate, with the range of
    those that cannot be told from it, and the same numbers there; the difference from the first
    scaling at its own best rate; what the best rate of the first d_k costs at another; and the
    difference from the first warmup. The rows are the same whichever rates turn out to be the best,
    so that two runs can be compared.
    """
    first, settings = results.settings[0], results.settings
    found = []
    for s in settings:
        found += [_row(name, results.estimate(name, s), s) for name in (FINAL, HALF)]
    for s in settings:
        if s.scale != first.scale:
            other = s._replace(scale=first.scale)
            less = results.difference(FINAL, s, other)
            found.append(_row(FINAL, less, s, versus={"scale": first.scale}))
    for s in results.best_settings():
        found += _best_rows(results, s, first)
    return found


def _best_rows(results: Results, s: Setting, first: Setting) -> Iterator[Row]:
    """What is told of a d_k, scaling and warmup at its best rate."""
    yield from _best_lr_rows(results, s)
    for name in (FINAL, HALF):
        yield _row(name, results.estimate(name, s), s, lr=BEST)
    if s.scale != first.scale:
        other = results.best(s.dk, first.scale, s.warmup)
        for name in (FINAL, HALF):
            less = results.difference(name, s, other)
            yield _row(name, less, s, lr=BEST, versus={"scale": first.scale})
    if s.dk != first.dk:
        kept = s._replace(lr=results.best(first.dk, s.scale, s.warmup).lr)
        more = results.difference(FINAL, kept, s)
        if kept == s:  # nothing was compared, and 0 has no error
            more = estimates.bare(0.0, more.blocks, more.samples, "")
        yield _row(FINAL, more, s, lr=f"{BEST} of d_k={first.dk}", versus={"lr": f"own {BEST}"})
    if s.warmup != first.warmup:
        less = results.difference(FINAL, s, results.best(s.dk, s.scale, first.warmup))
        yield _row(FINAL, less, s, lr=BEST, versus={"warmup": first.warmup})


def _best_lr_rows(results: Results, s: Setting) -> Iterator[Row]:
    """The best rate and the range of its like: rates that were tried, each a number of its own."""
    found = results.best_lr_set(s)
    for name, rate in ((BEST, found.value), (LOWEST, found.lo), (HIGHEST, found.hi)):
        alone = estimates.bare(rate or 0.0, found.blocks, found.samples, "")
        yield _row(BEST_LR, alone, s, lr=BEST, statistic=name)


def _row(
    quantity: str,
    estimate: Estimate,
    setting: Setting,
    *,
    lr: str | None = None,
    versus: Mapping[str, Any] | None = None,
    statistic: str | None = None,
) -> Row:
    """A number that is measured only; `lr` is what stands for the rate where that was chosen."""
    params: dict[str, Any] = setting._asdict() if lr is None else setting._asdict() | {"lr": lr}
    if statistic is not None:
        params["statistic"] = statistic
    if versus is not None:
        params["versus"] = versus
    prediction = Prediction(value=None, kind="none", source="measured only: no theory of training")
    judged = verdict.judge(estimate, prediction, 0.0)
    return Row(
        id=_id(quantity, params),
        quantity=quantity,
        params=params,
        estimate=estimate,
        prediction=prediction,
        verdict=judged.outcome,
        expected=Outcome.UNDEFINED,
        reason=judged.reason,
    )


def _id(quantity: str, params: Mapping[str, Any]) -> str:
    """``train.final_loss[dk=16,scale=sqrt−none,warmup=0,lr=1.0]``."""
    versus = params.get("versus", {})
    parts = [
        f"{name}={value}" + (f"−{versus[name]}" if name in versus else "")
        for name, value in params.items()
        if name != "versus"
    ]
    return f"{quantity}[{','.join(parts)}]"
