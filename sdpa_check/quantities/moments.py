"""Moments of s = q·k and of the logit x = c·s."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdpa_check import estimates
from sdpa_check.measures.scores import tail_index
from sdpa_check.quantities.base import Case, Quantity, Sample, relative
from sdpa_check.theory import moments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from sdpa_check.measures.dot import DotWork
    from sdpa_check.records import Design, Estimate, Prediction


def mean(m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """E[s] from mean sums, counted from the pivot."""
    return np.asarray(m["power1"] / m["pairs"])


def variance(m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Var[s] from mean sums."""
    return np.asarray(m["power2"] / m["pairs"] - mean(m) ** 2)


def _excess_kurtosis(m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    m1, m2, m3, m4 = (m[f"tile{i}"] / m["tile"] for i in (1, 2, 3, 4))
    central2 = m2 - m1**2
    central4 = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
    return np.asarray(central4 / central2**2 - 3)


def from_means(
    function: Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]],
    moment: int,
    count: str = "pairs",
    power: float = 0.0,
    *,
    location: bool = False,
) -> Callable[[Case, tuple[Sample, ...]], Estimate]:
    """An estimator times multiplier**power; its error bar needs the 2·`moment`-th moment of s."""

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        factor = sample.multiplier**power
        shift = cast("DotWork", sample.work).pivot if location else 0.0
        return estimates.function_of_means(
            sample.replicates,
            lambda m: factor * (function(m) + shift),
            samples=int(sample.replicates.sums[count].sum()),
            withheld=without_moment(2 * moment, case.design),
        )

    return estimate


def without_moment(needed: int, design: Design) -> str:
    """Why an error bar that needs E|s|^`needed` must be withheld, or nothing if it need not."""
    nu = tail_index(design)
    if nu > needed:
        return ""
    ordinal = {2: "second", 4: "fourth", 8: "eighth"}[needed]
    return f"not available ({ordinal} moment infinite: tail index {nu:g})"


def times(predict: Callable[[Design], Prediction], power: int) -> Callable[[Case], Prediction]:
    """The prediction for the logit: multiplier**power times that for s."""

    def scaled(case: Case) -> Prediction:
        found = predict(case.design)
        if found.value is None or power == 0:
            return found
        source = f"{found.source}, times c{'²' if power == 2 else ''}"
        return dataclasses.replace(found, value=case.multiplier**power * found.value, source=source)

    return scaled


def _std_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """A mean is held to `tolerance` standard deviations of s (of x, for a logit)."""
    del prediction
    std = moments.dot_std(case.design).value
    return tolerance * abs(case.multiplier) * (std if std is not None else math.inf)


def _kurtosis_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """An excess kurtosis is held to `tolerance` times the kurtosis itself, 3 for a normal law."""
    del case
    return tolerance * (3 + (prediction.value or 0.0))


QUANTITIES = (
    Quantity(
        name="dot.mean",
        formula="E[s], s = q·k",
        unit="1",
        sampling="dot",
        parts=("powers",),
        estimate=from_means(mean, 1, location=True),
        predict=times(moments.dot_mean, 0),
        band=_std_band,
    ),
    Quantity(
        name="dot.variance",
        formula="Var[s]",
        unit="1",
        sampling="dot",
        parts=("powers",),
        estimate=from_means(variance, 2),
        predict=times(moments.dot_variance, 0),
        band=relative,
    ),
    Quantity(
        name="dot.std",
        formula="√Var[s]",
        unit="1",
        sampling="dot",
        parts=("powers",),
        estimate=from_means(lambda m: np.sqrt(variance(m)), 2),
        predict=times(moments.dot_std, 0),
        band=relative,
    ),
    Quantity(
        name="dot.excess_kurtosis",
        formula="E[(s − E s)⁴]/Var[s]² − 3",
        unit="1",
        sampling="dot",
        parts=("tile",),
        estimate=from_means(_excess_kurtosis, 4, "tile"),
        predict=times(moments.dot_excess_kurtosis, 0),
        band=_kurtosis_band,
        lead=False,
    ),
    Quantity(
        name="logit.mean",
        formula="E[x], x = c·s",
        unit="1",
        sampling="dot",
        parts=("powers",),
        params=("scale",),
        estimate=from_means(mean, 1, power=1.0, location=True),
        predict=times(moments.dot_mean, 1),
        band=_std_band,
    ),
    Quantity(
        name="logit.variance",
        formula="Var[x]",
        unit="1",
        sampling="dot",
        parts=("powers",),
        params=("scale",),
        estimate=from_means(variance, 2, power=2.0),
        predict=times(moments.dot_variance, 2),
        band=relative,
    ),
    Quantity(
        name="logit.std",
        formula="√Var[x]",
        unit="1",
        sampling="dot",
        parts=("powers",),
        params=("scale",),
        estimate=from_means(lambda m: np.sqrt(variance(m)), 2, power=1.0),
        predict=times(moments.dot_std, 1),
        band=relative,
    ),
)
