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
from sdpa_check.measures.pipeline import AVERAGED, LOGITS, SPREAD, pipeline_of
from sdpa_check.quantities.base import Case, Quantity, Sample, relative
from sdpa_check.quantities.params import required
from sdpa_check.records import Design, Estimate, Prediction
from sdpa_check.theory.ledger import account

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from sdpa_check.measures.pipeline import PipelineWork
    from sdpa_check.theory.ledger import Account

    Means = Mapping[str, NDArray[Any]]

_LEVELS = {"median": 0.5, "q05": 0.05, "q95": 0.95}


def pipeline_text(case: Case) -> str:
    """The canonical text of a case's pipeline."""
    return str(pipeline_of(str(required(case.inputs, "pipeline"))))


def _logits(function: Callable[[dict[str, NDArray[Any]]], NDArray[Any]]) -> Callable[..., Estimate]:
    """A function of the sums of `LOGITS`."""

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        del case
        total = sample.replicates.sums["logits"].sum(axis=0)
        if total[LOGITS.index("count")] == 0:
            reason = "every row overflows"
            return estimates.bare(math.nan, sample.replicates.count, 0, reason)
        return estimates.function_of_means(
            sample.replicates,
            lambda m: function({name: m["logits"][:, i] for i, name in enumerate(LOGITS)}),
            samples=int(total[LOGITS.index("rows")]),
        )

    return estimate


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
    column, rows = AVERAGED.index(name), LOGITS.index("rows")

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        del case
        (sample,) = samples

        def mean(m: Means) -> NDArray[Any]:
            return np.asarray(m["mean"][:, column] / m["logits"][:, rows])

        counted = int(sample.replicates.sums["logits"][:, rows].sum())
        if counted == 0:
            return estimates.bare(math.nan, sample.replicates.count, 0, "every row overflows")
        return estimates.function_of_means(sample.replicates, mean, samples=counted)

    return estimate


def _norm(name: str, statistic: str | None = None) -> Callable[..., Estimate]:
    """The RMS or a quantile over rows of one norm."""
    column, rows = SPREAD.index(name), LOGITS.index("rows")

    def rms(m: Means) -> NDArray[Any]:
        return np.asarray(np.sqrt(m["square"][:, column] / m["logits"][:, rows]))

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        asked = statistic or case.statistic or "rms"
        counted = int(sample.replicates.sums["logits"][:, rows].sum())
        if counted == 0:
            return estimates.bare(math.nan, sample.replicates.count, 0, "every row overflows")
        _refuse_without_way_back(name, case)
        if asked == "rms":
            return estimates.function_of_means(sample.replicates, rms, samples=counted)
        if asked not in _LEVELS:
            raise InputError("statistic", asked, "rms, median, q05 or q95")
        counts = sample.replicates.sums[f"histogram.{name}"]
        grid = cast("PipelineWork", sample.work).grids[column]
        return estimates.quantile_combination(
            counts, grid, (_LEVELS[asked],), (1.0,), samples=counted
        )

    return estimate


def _refuse_without_way_back(name: str, case: Case) -> None:
    """Gradients beyond the logits are measured where the logits are a multiple of q·k."""
    design = case.design
    context = Context(dk=design.dk, keys=design.keys or 2, d_model=case.d_model)
    scalar = pipeline_of(pipeline_text(case)).multiplier(context) is not None
    if name in {"gradient_query", "gradient_w_q"} and not scalar:
        want = "a pipeline of scalar factors, for a gradient beyond the logits"
        raise InputError("pipeline", pipeline_text(case), want)


def _burstiness(name: str) -> Callable[..., Estimate]:
    """RMS over median; the relative errors of the two are added, whatever their dependence."""

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        rms, median = (_norm(name, s)(case, samples) for s in ("rms", "median"))
        blocks, counted = rms.blocks, rms.samples
        if not rms.se or not median.se or not median.value:
            return estimates.bare(math.inf, blocks, counted, rms.withheld or "the median is 0")
        value = rms.value / median.value
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


def _std_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """Relative; twice `tolerance` where a score draws weights of its own, v with them Σv²."""
    return relative(case, prediction, _widened(case, tolerance))


def _widened(case: Case, tolerance: float) -> float:
    return (2.0 if pipeline_of(pipeline_text(case)).score.draws_weights else 1.0) * tolerance


def _spread_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """A mean is held to `tolerance` standard deviations of the logits."""
    std = _account(pipeline_text(case), case.design, case.d_model).std.value
    return _widened(case, tolerance) * (std or abs(prediction.value or 0.0) or math.inf)


def _entropy_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """Twice `tolerance` times the distance from the nearer of 0 and ln m: an account, no census."""
    value, top = prediction.value or 0.0, math.log(case.design.keys or 2)
    return 2 * tolerance * min(value, top - value)


def _norm_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """Twice `tolerance`, relative."""
    return relative(case, prediction, 2 * tolerance)


def _quantity(
    name: str,
    formula: str,
    estimate: Callable[..., Estimate],
    predict: Callable[[Case], Prediction] = _measured_only,
    band: Callable[[Case, Prediction, float], float] = relative,
    *,
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
    )


QUANTITIES = (
    _quantity(
        "ledger.mean",
        "E[x] of the logits of a pipeline",
        _logits(_mean),
        _predicted("mean"),
        _spread_band,
    ),
    _quantity(
        "ledger.variance",
        "Var[x], over queries, keys and positions",
        _logits(_variance),
        _predicted("variance"),
    ),
    _quantity(
        "ledger.std",
        "√Var[x]",
        _logits(lambda m: np.sqrt(_variance(m))),
        _predicted("std"),
        _std_band,
    ),
    _quantity(
        "ledger.within_variance",
        "E of the variance of x within a row: what the softmax sees",
        _logits(lambda m: m["within"] / m["rows"]),
        _predicted("within_variance"),
    ),
    _quantity(
        "ledger.within_std",
        "its square root",
        _logits(lambda m: np.sqrt(m["within"] / m["rows"])),
        _predicted_within_std,
        _std_band,
    ),
    _quantity(
        "ledger.overflow",
        "share of rows with a logit that is not finite",
        _overflow,
        lead=False,
    ),
    _quantity(
        "ledger.entropy",
        "E[H] of the rows of a pipeline",
        _average("entropy"),
        _predicted("entropy"),
        _entropy_band,
        unit="nats",
        lead=False,
    ),
    _quantity("ledger.effective_keys", "E[1/Σp²]", _average("effective_keys"), lead=False),
    _quantity("ledger.max_weight", "E[max p]", _average("max_weight"), lead=False),
    _quantity(
        "ledger.frobenius",
        "‖J‖_F",
        _norm("frobenius"),
        _predicted("frobenius_rms", "rms"),
        _norm_band,
        statistic="rms",
        lead=False,
    ),
    _quantity(
        "gradient.logits",
        "‖∂L/∂s‖ = ‖J g‖, g = ∂L/∂p of independent N(0, 1) entries",
        _norm("gradient_logits"),
        _predicted("frobenius_rms", "rms"),
        _norm_band,
        statistic="rms",
        lead=False,
    ),
    _quantity(
        "gradient.query",
        "‖∂L/∂q‖ = |c| ‖Kᵀ J g‖",
        _norm("gradient_query"),
        _predicted("gradient_query_rms", "rms"),
        _norm_band,
        statistic="rms",
        lead=False,
    ),
    _quantity(
        "gradient.w_q",
        "‖∂L/∂W_Q‖ = ‖∂L/∂q‖ ‖x‖, x of d_model independent N(0, 1) entries",
        _norm("gradient_w_q"),
        statistic="rms",
        lead=False,
    ),
    _quantity(
        "gradient.burstiness",
        "RMS over median of ‖∂L/∂s‖",
        _burstiness("gradient_logits"),
        lead=False,
    ),
    _quantity(
        "gradient.query_burstiness",
        "RMS over median of ‖∂L/∂q‖",
        _burstiness("gradient_query"),
        lead=False,
    ),
)
