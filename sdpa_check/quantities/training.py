"""Losses of one attention layer in training, and before it.

Task and layer are those of `sdpa_check.training.model`; training is plain gradient descent. They
draw by laws of their own: of a design, d_k and the number of keys are read.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from sdpa_check import estimates
from sdpa_check.errors import InputError
from sdpa_check.logits import scaling
from sdpa_check.quantities.base import Case, Quantity, Sample, relative
from sdpa_check.quantities.params import required
from sdpa_check.records import Estimate, Prediction
from sdpa_check.theory.saturation import gaussian_rows
from sdpa_check.training.measures import FINAL, MEASURES, TrainWork
from sdpa_check.training.model import WIDTH, Task
from sdpa_check.training.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from sdpa_check.training.start import StartWork

DIFFERENCE: Final = f"{FINAL}_difference"
START, START_ROW = "train.start_loss", "train.start_row_loss"

_OTHER = {"versus_lr": "lr", "versus_warmup": "warmup"}


def task(case: Case) -> Task:
    """The sizes of the layer: d_model is that of the case, else 64, or d_k where that is larger.

    Raises:
        InputError: for d_k > d_model.
    """
    dk, keys = case.design.dk, case.design.keys or 2
    width = case.d_model or max(WIDTH, dk)
    if dk > width:
        raise InputError("dmodel", width, f"a width of at least d_k = {dk}")
    return Task(dk=dk, dmodel=width, keys=keys)


def kind(sampling: str, case: Case) -> str:
    """The text of what cases must share to be measured on the same draws, beside their design."""
    text = f"{sampling} d_model={task(case).dmodel}"
    return f"{text} steps={required(case.inputs, 'steps')}" if sampling == "train" else text


def pair(case: Case) -> tuple[Case, Case]:
    """The training of a case, and the one that ``versus_…`` sets it against (or the same)."""
    own = {name: value for name, value in case.inputs.items() if not name.startswith("versus_")}
    changes = {_OTHER[name]: case.inputs[name] for name in _OTHER if name in case.inputs}
    text = case.inputs.get("versus_scale")
    rule = case.scale if text is None else scaling.parse(str(text), where="versus_scale")
    return replace(case, inputs=own), replace(case, scale=rule, inputs=own | changes)


def trial(case: Case, multiplier: float) -> Trial:
    """Seed 0 of a training with a factor c before q·k; its name stays that of the case's rule."""
    return Trial(
        task=task(case),
        scale="none" if case.scale is None else case.scale.name,
        multiplier=multiplier,
        lr=float(required(case.inputs, "lr")),
        warmup=int(case.inputs.get("warmup", 0)),
        steps=int(required(case.inputs, "steps")),
        optimiser="sgd",
        seed=0,
    )


def _index(work: TrainWork, case: Case) -> int:
    """Which trial of the work is that of a case, whatever multiplier it was given."""
    named = [replace(each, multiplier=1.0) for each in work.trials]
    return named.index(trial(case, 1.0))


def _final(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    return _over_seeds(samples, [(1.0, pair(case)[0])])


def _difference(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    """Seed by seed: the two trainings of a seed start alike and see the same sequences."""
    first, other = pair(case)
    return _over_seeds(samples, [(1.0, first), (-1.0, other)])


def _over_seeds(samples: tuple[Sample, ...], terms: list[tuple[float, Case]]) -> Estimate:
    """Σ weight · final loss: the mean over seeds, its error from the spread between them."""
    (sample,) = samples
    work, seeds = cast("TrainWork", sample.work), sample.replicates
    columns = [_index(work, case) for _, case in terms]
    lost = int((~np.isfinite(seeds.sums[FINAL][:, columns])).any(axis=1).sum())
    reason = f"not available ({lost} of {seeds.count} seeds {MEASURES[FINAL].missing})"
    return estimates.function_of_means(
        seeds,
        lambda m: sum(
            (weight * m[FINAL][:, i] for (weight, _), i in zip(terms, columns, strict=True)),
            start=np.zeros(1),
        ),
        samples=seeds.blocks,
        withheld=reason if lost else "",
    )


def _start(name: str) -> Callable[..., Estimate]:
    """The mean of one of the losses of `StartWork`, whose blocks hold means and not sums."""

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        work, found = cast("StartWork", sample.work), sample.replicates
        index, each = work.multipliers.index(sample.multiplier), found.blocks // found.count
        return estimates.function_of_means(
            found, lambda m: m[name][:, index] / each, samples=found.blocks * task(case).keys
        )

    return estimate


def _near_uniform(case: Case) -> Prediction:
    """With W_O = I the answer is softmax(p), and no p ≤ 1 takes that far from 1/N."""
    keys = task(case).keys
    source = "ln N as N grows, whatever the scale: W_O = I reads weights p ≤ 1 as logits"
    return Prediction(value=math.log(keys), kind="limit", source=source)


def _log_partition(case: Case) -> Prediction:
    sizes = task(case)
    row = gaussian_rows(dk=sizes.dk, keys=sizes.keys, multiplier=case.multiplier)
    source = (
        "E[ln Z] of Gaussian q, k, up to O(1/(N d_model)) as the target's key resembles the query"
    )
    return Prediction(value=row.log_partition, kind="exact", source=source)


def _measured_only(case: Case) -> Prediction:
    del case
    return Prediction(value=None, kind="none", source="measured only: no theory of training")


def _quantity(name: str, formula: str, **fields: Any) -> Quantity:
    return Quantity(name=name, formula=formula, unit="nats", band=relative, **fields)


_TRAINED: Final = ("scale", "lr", "steps", "warmup")

QUANTITIES = (
    _quantity(
        START,
        "mean −ln softmax(y)_target of a new layer with W_O = I",
        sampling="start",
        params=("scale",),
        estimate=_start("prediction"),
        predict=_near_uniform,
    ),
    _quantity(
        START_ROW,
        "mean −ln p of the target key of a new layer, over W_Q and −W_Q",
        sampling="start",
        params=("scale",),
        estimate=_start("row"),
        predict=_log_partition,
    ),
    _quantity(
        FINAL,
        MEASURES[FINAL].formula,
        sampling="train",
        params=_TRAINED,
        estimate=_final,
        predict=_measured_only,
    ),
    _quantity(
        DIFFERENCE,
        "the same less that of the training under versus_scale, versus_lr, versus_warmup, "
        "seed by seed",
        sampling="train",
        params=(*_TRAINED, "versus_scale", "versus_lr", "versus_warmup"),
        estimate=_difference,
        predict=_measured_only,
    ),
)
