"""Growth with d_k of the scale of s = q·k, of the logits and of the distance from uniform."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdpa_check import estimates
from sdpa_check.errors import InputError
from sdpa_check.quantities.base import Case, Quantity, Sample, absolute
from sdpa_check.quantities.law import predict_iqr
from sdpa_check.quantities.moments import from_means, mean, times, variance
from sdpa_check.quantities.rows import DEFICIT
from sdpa_check.records import Prediction
from sdpa_check.theory import moments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from sdpa_check.measures.dot import DotWork
    from sdpa_check.records import Estimate


_AWAY = 20
"""How many standard errors a number must be from 0 for its logarithm to be taken."""


def slope_weights(xs: tuple[float, ...]) -> list[float]:
    """Weights w with Σ w_i y_i the least-squares slope of y on `xs`."""
    if len(set(xs)) < 2:
        raise InputError("--dk", xs, "at least two different values for an exponent")
    x = np.asarray(xs)
    centred = x - x.mean()
    return [float(w) for w in centred / np.vdot(centred, centred)]


def _log_dk(case: Case) -> tuple[float, ...]:
    return tuple(math.log(design.dk) for design in case.designs)


def slope_error(case: Case) -> float:
    """The error of a slope over the designs of a case, where that of every logarithm is 1."""
    return math.hypot(*slope_weights(_log_dk(case)))


def _slope(
    logarithm: Callable[[Case, Sample], Estimate],
) -> Callable[[Case, tuple[Sample, ...]], Estimate]:
    """The least-squares slope, on ln d, of a logarithm that is estimated design by design."""

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        cases = (dataclasses.replace(case, designs=(design,)) for design in case.designs)
        each = [logarithm(one, sample) for one, sample in zip(cases, samples, strict=True)]
        return estimates.combined(each, slope_weights(_log_dk(case)))

    return estimate


def _log_variance(case: Case, sample: Sample) -> Estimate:
    def log_variance(m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        return np.asarray(np.log(variance(m)))

    return from_means(log_variance, 2)(case, (sample,))


def _log_scale(case: Case, sample: Sample) -> Estimate:
    del case
    return estimates.quantile_combination(
        sample.replicates.sums["histogram"],
        cast("DotWork", sample.work).grid,
        (0.25, 0.75),
        (-1.0, 1.0),
        samples=int(sample.replicates.sums["tile"].sum()),
        log=True,
    )


def _log_std(case: Case, sample: Sample) -> Estimate:
    """½ ln Var[s] + ln|c|, for the multiplier that was applied."""
    half = estimates.scaled(_log_variance(case, sample), 0.5)
    value = half.value + math.log(abs(sample.multiplier))
    if half.se is None:
        return estimates.bare(value, half.blocks, half.samples, half.withheld)
    return estimates.with_error(value, half.se, half.blocks, half.samples)


def _log_mean(case: Case, sample: Sample) -> Estimate:
    return _logarithm(from_means(mean, 1, power=1.0, location=True)(case, (sample,)))


def _log_deficit(case: Case, sample: Sample) -> Estimate:
    return _logarithm(DEFICIT.estimate(case, (sample,)))


def _logarithm(found: Estimate) -> Estimate:
    """ln|v| with the error se/|v|, which is right to first order and needs a v away from 0."""
    value = math.log(abs(found.value)) if found.value else -math.inf
    if found.se is None:
        return estimates.bare(value, found.blocks, found.samples, found.withheld)
    if abs(found.value) < _AWAY * found.se:
        withheld = f"not available (no logarithm of {found.value:.2g} ± {found.se:.1g})"
        return estimates.bare(value, found.blocks, found.samples, withheld)
    return estimates.with_error(value, found.se / abs(found.value), found.blocks, found.samples)


def _exponent(each: Callable[[Case], Prediction], what: str) -> Callable[[Case], Prediction]:
    """The least-squares slope, on ln d, of ln|·| of another prediction over the sweep."""

    def predict(case: Case) -> Prediction:
        found = [each(dataclasses.replace(case, designs=(d,))) for d in case.designs]
        for p in found:
            if p.value is None:
                return Prediction(value=None, kind=p.kind, source=p.source)
            if p.value == 0:
                return Prediction(value=None, kind="none", source=f"no exponent: {what} is 0")
        logs = [math.log(abs(p.value)) for p in found if p.value is not None]
        slope = math.fsum(w * y for w, y in zip(slope_weights(_log_dk(case)), logs, strict=True))
        limit = any(p.kind == "limit" for p in found)
        source = f"slope of ln {what} on ln d_k" + (f"; {found[0].source}" if limit else "")
        return Prediction(value=slope, kind="limit" if limit else "exact", source=source)

    return predict


QUANTITIES = (
    Quantity(
        name="dot.variance_exponent",
        formula="slope of ln Var[s] on ln d_k",
        unit="1",
        sampling="dot",
        parts=("powers",),
        sweep=_log_variance,
        estimate=_slope(_log_variance),
        predict=_exponent(times(moments.dot_variance, 0), "Var[s]"),
        band=absolute(1.0),
    ),
    Quantity(
        name="dot.scale_exponent",
        formula="slope of ln IQR[s] on ln d_k",
        unit="1",
        sampling="dot",
        parts=("histogram",),
        sweep=_log_scale,
        estimate=_slope(_log_scale),
        predict=_exponent(predict_iqr, "IQR[s]"),
        band=absolute(1.0),
    ),
    Quantity(
        name="logit.std_exponent",
        formula="slope of ln std[x] on ln d_k, x = c·s",
        unit="1",
        sampling="dot",
        parts=("powers",),
        params=("scale",),
        sweep=_log_std,
        estimate=_slope(_log_std),
        predict=_exponent(times(moments.dot_std, 1), "std[x]"),
        band=absolute(1.0),
    ),
    Quantity(
        name="logit.mean_exponent",
        formula="slope of ln|E x| on ln d_k, x = c·s",
        unit="1",
        sampling="dot",
        parts=("powers",),
        params=("scale",),
        sweep=_log_mean,
        estimate=_slope(_log_mean),
        predict=_exponent(times(moments.dot_mean, 1), "E[x]"),
        band=absolute(1.0),
    ),
    Quantity(
        name="softmax.deficit_exponent",
        formula="slope of ln(ln m − E[H]) on ln d_k",
        unit="1",
        sampling="rows",
        parts=DEFICIT.parts,
        params=("scale",),
        sweep=_log_deficit,
        estimate=_slope(_log_deficit),
        predict=_exponent(DEFICIT.predict, "(ln m − E[H])"),
        band=absolute(1.0),
    ),
)
