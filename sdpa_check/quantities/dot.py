"""Moments and quantiles of s = q·k and of the logit x = c·s."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdpa_check import estimates
from sdpa_check.distributions import law
from sdpa_check.errors import InputError
from sdpa_check.quantities.base import Case, Quantity, Sample, absolute, relative
from sdpa_check.records import Design, Estimate, Prediction
from sdpa_check.theory import moments
from sdpa_check.theory.law import DotLaw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from sdpa_check.measures.dot import DotWork


def tail_index(design: Design) -> float:
    """ν with P(|s| > z) ~ z^−ν up to logarithms: the smaller index of the two component laws."""
    return min(law(design.query).tail_index, law(design.key).tail_index)


def _mean(m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(m["power1"] / m["pairs"])


def _variance(m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(m["power2"] / m["pairs"] - _mean(m) ** 2)


def _excess_kurtosis(m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    m1, m2, m3, m4 = (m[f"tile{i}"] / m["tile"] for i in (1, 2, 3, 4))
    central2 = m2 - m1**2
    central4 = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
    return np.asarray(central4 / central2**2 - 3)


def _from_means(
    function: Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]],
    moment: int,
    count: str = "pairs",
    power: float = 0.0,
    *,
    location: bool = False,
) -> Callable[[Case, tuple[Sample, ...]], Estimate]:
    """An estimator times multiplier**power; its error bar needs the 2·`moment`-th moment of s."""
    needed = 2 * moment

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        nu = tail_index(case.design)
        withheld = "" if nu > needed else _withheld(needed, nu)
        factor = sample.multiplier**power
        shift = cast("DotWork", sample.work).pivot if location else 0.0
        return estimates.function_of_means(
            sample.replicates,
            lambda m: factor * (function(m) + shift),
            samples=int(sample.replicates.sums[count].sum()),
            withheld=withheld,
        )

    return estimate


def _withheld(needed: int, nu: float) -> str:
    ordinal = {2: "second", 4: "fourth", 8: "eighth"}[needed]
    return f"not available ({ordinal} moment infinite: tail index {nu:g})"


def _quantiles(
    levels: Callable[[Case], tuple[float, ...]], weights: tuple[float, ...]
) -> Callable[[Case, tuple[Sample, ...]], Estimate]:
    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        work = cast("DotWork", sample.work)
        found = estimates.quantile_combination(
            sample.replicates.sums["histogram"],
            work.grid,
            levels(case),
            weights,
            samples=int(sample.replicates.sums["tile"].sum()),
        )
        shift = work.pivot * sum(weights)
        if shift == 0 or found.se is None:
            return found
        return estimates.with_error(found.value + shift, found.se, found.blocks, found.samples)

    return estimate


def _level(case: Case) -> tuple[float, ...]:
    if case.level is None or not 0 < case.level < 1:
        raise InputError("level", case.level, "a number between 0 and 1")
    return (case.level,)


@lru_cache(maxsize=256)
def _law(design: Design) -> DotLaw:
    return DotLaw(design)


def _exact_law(value: Callable[[DotLaw, Case], float], what: str) -> Callable[[Case], Prediction]:
    def predict(case: Case) -> Prediction:
        design = case.design
        if {design.query.distribution, design.key.distribution} == {"rademacher"}:
            source = "a lattice law: its quantiles jump from one lattice point to the next"
            return Prediction(value=None, kind="none", source=source)
        try:
            law_ = _law(design)
        except InputError as error:
            return Prediction(value=None, kind="none", source=str(error))
        source = f"{what} of the exact law of q·k (inversion of its characteristic function)"
        return Prediction(value=value(law_, case), kind="exact", source=source)

    return predict


def _times(predict: Callable[[Design], Prediction], power: int) -> Callable[[Case], Prediction]:
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


def _iqr_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """A quantile is held to `tolerance` interquartile ranges; without an exact law, to nothing."""
    if prediction.value is None:
        return 0.0
    return tolerance * _law(case.design).iqr()


def _kurtosis_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """An excess kurtosis is held to `tolerance` times the kurtosis itself, 3 for a normal law."""
    del case
    return tolerance * (3 + (prediction.value or 0.0))


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
        return np.asarray(np.log(_variance(m)))

    each = [
        _from_means(log_variance, 2)(dataclasses.replace(case, designs=(design,)), (sample,))
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


_predict_iqr = _exact_law(lambda law_, _: law_.iqr(), "interquartile range")

QUANTITIES = (
    Quantity(
        name="dot.mean",
        formula="E[s], s = q·k",
        unit="1",
        sampling="dot",
        estimate=_from_means(_mean, 1, location=True),
        predict=_times(moments.dot_mean, 0),
        band=_std_band,
    ),
    Quantity(
        name="dot.variance",
        formula="Var[s]",
        unit="1",
        sampling="dot",
        estimate=_from_means(_variance, 2),
        predict=_times(moments.dot_variance, 0),
        band=relative,
    ),
    Quantity(
        name="dot.std",
        formula="√Var[s]",
        unit="1",
        sampling="dot",
        estimate=_from_means(lambda m: np.sqrt(_variance(m)), 2),
        predict=_times(moments.dot_std, 0),
        band=relative,
    ),
    Quantity(
        name="dot.excess_kurtosis",
        formula="E[(s − E s)⁴]/Var[s]² − 3",
        unit="1",
        sampling="dot",
        estimate=_from_means(_excess_kurtosis, 4, "tile"),
        predict=_times(moments.dot_excess_kurtosis, 0),
        band=_kurtosis_band,
        lead=False,
    ),
    Quantity(
        name="dot.iqr",
        formula="Q(¾) − Q(¼), Q the quantiles of s",
        unit="1",
        sampling="dot",
        estimate=_quantiles(lambda _: (0.25, 0.75), (-1.0, 1.0)),
        predict=_predict_iqr,
        band=relative,
    ),
    Quantity(
        name="dot.quantile",
        formula="Q(level), the quantile of s",
        unit="1",
        sampling="dot",
        params=("level",),
        estimate=_quantiles(_level, (1.0,)),
        predict=_exact_law(lambda law_, case: law_.quantile(_level(case)[0]), "quantile"),
        band=_iqr_band,
    ),
    Quantity(
        name="dot.variance_exponent",
        formula="slope of ln Var[s] on ln d_k",
        unit="1",
        sampling="dot",
        sweep=True,
        estimate=_variance_exponent,
        predict=_exponent(_times(moments.dot_variance, 0), "Var[s]"),
        band=absolute(1.0),
    ),
    Quantity(
        name="dot.scale_exponent",
        formula="slope of ln IQR[s] on ln d_k",
        unit="1",
        sampling="dot",
        sweep=True,
        estimate=_scale_exponent,
        predict=_exponent(_predict_iqr, "IQR[s]"),
        band=absolute(1.0),
    ),
    Quantity(
        name="logit.mean",
        formula="E[x], x = c·s",
        unit="1",
        sampling="dot",
        params=("scale",),
        estimate=_from_means(_mean, 1, power=1.0, location=True),
        predict=_times(moments.dot_mean, 1),
        band=_std_band,
    ),
    Quantity(
        name="logit.variance",
        formula="Var[x]",
        unit="1",
        sampling="dot",
        params=("scale",),
        estimate=_from_means(_variance, 2, power=2.0),
        predict=_times(moments.dot_variance, 2),
        band=relative,
    ),
    Quantity(
        name="logit.std",
        formula="√Var[x]",
        unit="1",
        sampling="dot",
        params=("scale",),
        estimate=_from_means(lambda m: np.sqrt(_variance(m)), 2, power=1.0),
        predict=_times(moments.dot_std, 1),
        band=relative,
    ),
)
