"""Growth of the scale of s = q·k with d_k: slopes over a sweep of designs."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdpa_check import estimates
from sdpa_check.errors import InputError
from sdpa_check.quantities.base import Case, Quantity, Sample, absolute
from sdpa_check.quantities.law import predict_iqr
from sdpa_check.quantities.moments import from_means, times, variance
from sdpa_check.records import Prediction
from sdpa_check.theory import moments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from sdpa_check.measures.dot import DotWork
    from sdpa_check.records import Estimate


def slope_weights(xs: tuple[float, ...]) -> list[float]:
    """Weights w with Σ w_i y_i the least-squares slope of y on `xs`."""
    if len(set(xs)) < 2:
        raise InputError("--dk", xs, "at least two different values for an exponent")
    x = np.asarray(xs)
    centred = x - x.mean()
    return [float(w) for w in centred / np.vdot(centred, centred)]


def _log_dk(case: Case) -> tuple[float, ...]:
    return tuple(math.log(design.dk) for design in case.designs)


def _variance_exponent(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    def log_variance(m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        return np.asarray(np.log(variance(m)))

    each = [
        from_means(log_variance, 2)(dataclasses.replace(case, designs=(design,)), (sample,))
        for design, sample in zip(case.designs, samples, strict=True)
    ]
    return estimates.combined(each, slope_weights(_log_dk(case)))


def _scale_exponent(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    each = [
        estimates.quantile_combination(
            sample.replicates.sums["histogram"],
            cast("DotWork", sample.work).grid,
            (0.25, 0.75),
            (-1.0, 1.0),
            samples=int(sample.replicates.sums["tile"].sum()),
            log=True,
        )
        for sample in samples
    ]
    return estimates.combined(each, slope_weights(_log_dk(case)))


def _exponent(each: Callable[[Case], Prediction], what: str) -> Callable[[Case], Prediction]:
    """The least-squares slope, on ln d, of the logarithm of another prediction over the sweep."""

    def predict(case: Case) -> Prediction:
        found = [each(dataclasses.replace(case, designs=(d,))) for d in case.designs]
        logs = [math.log(p.value) for p in found if p.value is not None and p.value > 0]
        if len(logs) < len(found):
            bad = next(p for p in found if p.value is None or p.value <= 0)
            return Prediction(value=None, kind=bad.kind, source=bad.source)
        weights = slope_weights(_log_dk(case))
        slope = math.fsum(w * y for w, y in zip(weights, logs, strict=True))
        return Prediction(value=slope, kind="exact", source=f"slope of ln {what} on ln d_k")

    return predict


QUANTITIES = (
    Quantity(
        name="dot.variance_exponent",
        formula="slope of ln Var[s] on ln d_k",
        unit="1",
        sampling="dot",
        sweep=True,
        estimate=_variance_exponent,
        predict=_exponent(times(moments.dot_variance, 0), "Var[s]"),
        band=absolute(1.0),
    ),
    Quantity(
        name="dot.scale_exponent",
        formula="slope of ln IQR[s] on ln d_k",
        unit="1",
        sampling="dot",
        sweep=True,
        estimate=_scale_exponent,
        predict=_exponent(predict_iqr, "IQR[s]"),
        band=absolute(1.0),
    ),
)
