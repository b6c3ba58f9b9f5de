"""The account of a pipeline of attention changes, and the gradient that it passes back."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdpa_check import estimates
from sdpa_check.errors import InputError
from sdpa_check.logits.transforms import Context
from sdpa_check.measures.pipeline import LOGITS, pipeline_of
from sdpa_check.quantities.base import Case, Quantity, Sample, relative
from sdpa_check.quantities.moments import without_moment
from sdpa_check.quantities.params import required
from sdpa_check.records import Design, Estimate, Prediction
from sdpa_check.theory.ledger import account

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from sdpa_check.measures.pipeline import PipelineWork
    from sdpa_check.theory.ledger import Account

    Means = Mapping[str, NDArray[Any]]

_BEYOND_LOGITS = ("gradient_query", "gradient_w_q")
_LEVELS = {"median": 0.5, "q05": 0.05, "q95": 0.95}


def pipeline_text(case: Case) -> str:
    """The canonical text of a case's pipeline."""
    return str(pipeline_of(str(required(case.inputs, "pipeline"))))


def reads(asked: Quantity, case: Case) -> tuple[str, ...]:
    """What a case reads of a block, see `measures.pipeline.PARTS`."""
    if (case.statistic or asked.statistic) not in _LEVELS:
        return asked.parts
    return tuple(f"histogram.{name}" for name in asked.parts)


def _logits(
    function: Callable[[dict[str, NDArray[Any]]], NDArray[Any]], moment: int
) -> Callable[..., Estimate]:
    """A function of the sums of `LOGITS`; its error bar needs the 2·`moment`-th moment of x."""

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        total = sample.replicates.sums["logits"].sum(axis=0)
        if total[LOGITS.index("count")] == 0:
            return _without_rows(sample)
        return estimates.function_of_means(
            sample.replicates,
            lambda m: function({name: m["logits"][:, i] for i, name in enumerate(LOGITS)}),
            samples=int(total[LOGITS.index("rows")]),
            withheld=_without_moment(2 * moment, case),
        )

    return estimate


def _without_moment(needed: int, case: Case) -> str:
    """As `without_moment`, but no tail is heavy behind a pipeline that tames it."""
    tame = pipeline_of(pipeline_text(case)).tame
    return "" if tame else without_moment(needed, case.design)


def _overflow(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    """The share of rows that overflow, of which all may be."""
    del case
    (sample,) = samples
    lost, kept = LOGITS.index("overflow"), LOGITS.index("rows")
    return estimates.function_of_means(
        sample.replicates,
        lambda m: m["logits"][:, lost] / (m["logits"][:, lost] + m["logits"][:, kept]),
        samples=int(sample.replicates.sums["logits"][:, [lost, kept]].sum()),
    )


def _mean(m: dict[str, NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(m["sum"] / m["count"])


def _variance(m: dict[str, NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(m["square"] / m["count"] - _mean(m) ** 2)


def _average(name: str) -> Callable[..., Estimate]:
    """The mean over rows of one row statistic."""

    def mean(m: Means) -> NDArray[Any]:
        return np.asarray(m[name][:, 1] / m[name][:, 0])

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        del case
        (sample,) = samples
        counted = int(sample.replicates.sums[name][:, 0].sum())
        if counted == 0:
            return _without_rows(sample)
        return estimates.function_of_means(sample.replicates, mean, samples=counted)

    return estimate


def _without_rows(sample: Sample) -> Estimate:
    reason = "not available (every row overflows)"
    return estimates.bare(math.nan, sample.replicates.count, 0, reason)


def _norm(name: str, statistic: str | None = None) -> Callable[..., Estimate]:
    """The RMS or a quantile over rows of one norm."""
    histogram = f"histogram.{name}"

    def rms(m: Means) -> NDArray[Any]:
        return np.asarray(np.sqrt(m[name][:, 1] / m[name][:, 0]))

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        asked, sums = statistic or case.statistic or "rms", sample.replicates.sums
        if asked != "rms" and asked not in _LEVELS:
            raise InputError("statistic", asked, "rms, median, q05 or q95")
        counted = int((sums[name][:, 0] if asked == "rms" else sums[histogram]).sum())
        if counted == 0:
            return _without_rows(sample)
        _refuse_without_way_back(name, case)
        if asked == "rms":
            # ‖Kᵀ J g‖ has the tails of the keys, or lighter ones; J g alone has all moments.
            withheld = _without_moment(4, case) if name in _BEYOND_LOGITS else ""
            return estimates.function_of_means(
                sample.replicates, rms, samples=counted, withheld=withheld
            )
        grid = cast("PipelineWork", sample.work).grid(name)
        return estimates.quantile_combination(
            sums[histogram], grid, (_LEVELS[asked],), (1.0,), samples=counted
        )

    return estimate


def _refuse_without_way_back(name: str, case: Case) -> None:
    """Gradients beyond the logits are measured where the logits are a multiple of q·k."""
    design = case.design
    context = Context(dk=design.dk, keys=design.keys or 2, d_model=case.d_model)
    scalar = pipeline_of(pipeline_text(case)).multiplier(context) is not None
    if name in _BEYOND_LOGITS and not scalar:
        want = "a pipeline of scalar factors, for a gradient beyond the logits"
        raise InputError("pipeline", pipeline_text(case), want)


def _burstiness(name: str) -> Callable[..., Estimate]:
    """RMS over median; the relative errors of the two are added, whatever their dependence."""

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        rms, median = (_norm(name, s)(case, samples) for s in ("rms", "median"))
        blocks, counted = rms.blocks, rms.samples
        value = rms.value / median.value if median.value else math.inf
        if not rms.se or not median.se or not median.value:
            reason = rms.withheld or median.withheld or "not available (the median is 0)"
            return estimates.bare(value, blocks, counted, reason)
        error = value * (rms.se / rms.value + median.se / median.value)
        return estimates.with_error(value, error, blocks, counted)

    return estimate


@lru_cache(maxsize=1024)
def _account(text: str, design: Design, d_model: int | None) -> Account:
    return account(pipeline_of(text).steps, design, d_model)


def _predicted(name: str, statistic: str | None = None) -> Callable[[Case], Prediction]:
    """A field of the account of theory; for a norm, of one statistic only."""

    def predict(case: Case) -> Prediction:
        if statistic is not None and (case.statistic or "rms") != statistic:
            source = "measured only: no closed form is known"
            return Prediction(value=None, kind="none", source=source)
        return cast(
            "Prediction",
            getattr(_account(pipeline_text(case), case.design, case.d_model), name),
        )

    return predict


def _predicted_within_std(case: Case) -> Prediction:
    found = _predicted("within_variance")(case)
    if found.value is None:
        return found
    return replace(found, value=math.sqrt(found.value), source=f"√ of: {found.source}")


def _measured_only(case: Case) -> Prediction:
    del case
    return Prediction(value=None, kind="none", source="measured only: no closed form is known")


def _spread_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """A mean is held to `tolerance` standard deviations of the logits: it may well be 0."""
    std = _account(pipeline_text(case), case.design, case.d_model).std.value
    return tolerance * (std or abs(prediction.value or 0.0) or math.inf)


def _entropy_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """`tolerance` times the smaller of 2 (ln m − H) and 1.5 H.

    The information is in the distance from what H is for any nearly uniform or nearly one-hot row,
    ln m or 0; and it is about the std of the logits. Where rows are nearly uniform, ln m − H grows
    like the square of the std, so that an error of `tolerance` in the std moves it by twice that.
    Where they are nearly one-hot, H falls like the inverse of the std, or a little faster. A run
    that is planned for a band tells apart what is twice the band away: 1.5 is the most with which
    a multiplier that is wrong by three `tolerance` is still refuted there.
    """
    value, top = prediction.value or 0.0, math.log(case.design.keys or 2)
    return tolerance * min(2 * (top - value), 1.5 * value)


def _quantity(
    name: str,
    formula: str,
    estimate: Callable[..., Estimate],
    predict: Callable[[Case], Prediction] = _measured_only,
    band: Callable[[Case, Prediction, float], float] = relative,
    *,
    parts: tuple[str, ...],
    unit: str = "1",
    statistic: str | None = None,
    lead: bool = True,
) -> Quantity:
    return Quantity(
        name=name,
        formula=formula,
        unit=unit,
        sampling="pipeline",
        params=("pipeline", "statistic") if statistic else ("pipeline",),
        statistic=statistic,
        estimate=estimate,
        predict=predict,
        band=band,
        lead=lead,
        parts=parts,
    )


QUANTITIES = (
    _quantity(
        "ledger.mean",
        "E[x] of the logits of a pipeline",
        _logits(_mean, 1),
        _predicted("mean"),
        _spread_band,
        parts=("logits",),
    ),
    _quantity(
        "ledger.variance",
        "Var[x], over queries, keys and positions",
        _logits(_variance, 2),
        _predicted("variance"),
        parts=("logits",),
    ),
    _quantity(
        "ledger.std",
        "√Var[x]",
        _logits(lambda m: np.sqrt(_variance(m)), 2),
        _predicted("std"),
        parts=("logits",),
    ),
    _quantity(
        "ledger.within_variance",
        "E of the variance of x within a row: what the softmax sees",
        _logits(lambda m: m["within"] / m["rows"], 2),
        _predicted("within_variance"),
        parts=("logits",),
    ),
    _quantity(
        "ledger.within_std",
        "its square root",
        _logits(lambda m: np.sqrt(m["within"] / m["rows"]), 2),
        _predicted_within_std,
        parts=("logits",),
    ),
    _quantity(
        "ledger.overflow",
        "share of rows with a logit that is not finite",
        _overflow,
        lead=False,
        parts=("logits",),
    ),
    _quantity(
        "ledger.entropy",
        "E[H] of the rows of a pipeline",
        _average("entropy"),
        _predicted("entropy"),
        _entropy_band,
        unit="nats",
        lead=False,
        parts=("entropy",),
    ),
    _quantity(
        "ledger.effective_keys",
        "E[1/Σp²]",
        _average("effective_keys"),
        lead=False,
        parts=("effective_keys",),
    ),
    _quantity(
        "ledger.max_weight", "E[max p]", _average("max_weight"), lead=False, parts=("max_weight",)
    ),
    _quantity(
        "ledger.frobenius",
        "‖J‖_F",
        _norm("frobenius"),
        _predicted("frobenius_rms", "rms"),
        statistic="rms",
        lead=False,
        parts=("frobenius",),
    ),
    _quantity(
        "gradient.logits",
        "‖∂L/∂s‖ = ‖J g‖, g = ∂L/∂p of independent N(0, 1) entries",
        _norm("gradient_logits"),
        _predicted("frobenius_rms", "rms"),
        statistic="rms",
        lead=False,
        parts=("gradient_logits",),
    ),
    _quantity(
        "gradient.query",
        "‖∂L/∂q‖ = |c| ‖Kᵀ J g‖",
        _norm("gradient_query"),
        _predicted("gradient_query_rms", "rms"),
        statistic="rms",
        lead=False,
        parts=("gradient_query",),
    ),
    _quantity(
        "gradient.w_q",
        "‖∂L/∂W_Q‖ = ‖∂L/∂q‖ ‖x‖, x of d_model independent N(0, 1) entries",
        _norm("gradient_w_q"),
        statistic="rms",
        lead=False,
        parts=("gradient_w_q",),
    ),
    _quantity(
        "gradient.burstiness",
        "RMS over median of ‖∂L/∂s‖",
        _burstiness("gradient_logits"),
        lead=False,
        parts=("gradient_logits", "histogram.gradient_logits"),
    ),
    _quantity(
        "gradient.query_burstiness",
        "RMS over median of ‖∂L/∂q‖",
        _burstiness("gradient_query"),
        lead=False,
        parts=("gradient_query", "histogram.gradient_query"),
    ),
)
