"""Entropy, weights and Jacobian norms of softmax rows."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdpa_check import estimates
from sdpa_check.distributions import component_law, parse_dependence
from sdpa_check.measures.rows import AVERAGED, NORMS, Depth, RowsWork
from sdpa_check.quantities.base import Case, Quantity, Sample
from sdpa_check.records import Design, Estimate, Prediction
from sdpa_check.theory import saturation
from sdpa_check.theory.moments import correlation_eigenvalues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from sdpa_check.theory.saturation import RowExpectations

STATISTICS = ("mean", "rms", "median", "q05", "q95")
"""How a Jacobian norm is summarised over rows."""

LEVELS = {"median": 0.5, "q05": 0.05, "q95": 0.95}
"""The statistics that are quantiles, and their levels."""


def _index(sample: Sample) -> int:
    return cast("RowsWork", sample.work).multipliers.index(sample.multiplier)


_ALL, _CLOSER = 0, 1  # the columns of the sums ``rows{i}``


def _rows(sample: Sample, column: int) -> int:
    return int(sample.replicates.sums[f"rows{_index(sample)}"][:, column].sum())


def _which(name: str) -> int:
    """Which rows are behind a statistic."""
    return _CLOSER if name == "spectral" else _ALL


def _depth_of(sample: Sample) -> Depth:
    return cast("RowsWork", sample.work).all_depths[_index(sample)]


def _is_quantile(asked: Quantity, case: Case) -> bool:
    return (case.statistic or asked.statistic) in LEVELS


def looks_closer(asked: Quantity, case: Case) -> bool:
    """Whether a number comes from the rows of a block that are looked at more closely."""
    return "spectral" in asked.parts or _is_quantile(asked, case)


def depth(asked: Iterable[tuple[Quantity, Case]], *, judged: bool) -> Depth:
    """What must be measured under one multiplier for these to be estimated.

    Args:
        asked: quantities and cases.
        judged: whether anything is to be judged by those that look closer. Where they are only
            shown, a fourth of the rows is enough.
    """
    read: dict[str, set[str]] = {"averaged": set(), "squared": set(), "counted": set()}
    closer = False
    for each, case in asked:
        squared = (case.statistic or each.statistic) == "rms"
        how = "counted" if _is_quantile(each, case) else "squared" if squared else "averaged"
        read[how].update(each.parts)
        closer |= looks_closer(each, case)
    return Depth(
        closer=4 if closer and not judged else 1,
        averaged=tuple(name for name in AVERAGED if name in read["averaged"]),
        squared=tuple(name for name in NORMS if name in read["squared"]),
        counted=tuple(name for name in NORMS if name in read["counted"]),
    )


def _average(
    name: str, transform: Callable[[float, int], float] = lambda factor, _: factor
) -> Callable[[Case, tuple[Sample, ...]], Estimate]:
    """The mean over rows of one statistic, times transform(1, m)."""
    which = _which(name)

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        i, column = _index(sample), _depth_of(sample).averaged.index(name)
        key, rows = f"mean{i}", f"rows{i}"
        found = estimates.function_of_means(
            sample.replicates,
            lambda m: m[key][:, column] / m[rows][:, which],
            samples=_rows(sample, which),
        )
        return estimates.scaled(found, transform(1.0, case.design.keys or 2))

    return estimate


def _norm(name: str) -> Callable[[Case, tuple[Sample, ...]], Estimate]:
    """One Jacobian norm over rows, by the statistic that the case asks for."""
    which = _which(name)

    def rms(i: int, column: int, m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        return cast("NDArray[Any]", np.sqrt(m[f"square{i}"][:, column] / m[f"rows{i}"][:, which]))

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        i, statistic = _index(sample), case.statistic or "rms"
        if statistic == "mean":
            return _average(name)(case, samples)
        if statistic == "rms":
            column = _depth_of(sample).squared.index(name)
            function, rows = partial(rms, i, column), _rows(sample, which)
            return estimates.function_of_means(sample.replicates, function, samples=rows)
        counts = sample.replicates.sums[f"histogram{i}.{name}"]
        grid = cast("RowsWork", sample.work).grid(i, name)
        return estimates.quantile_combination(
            counts, grid, (LEVELS[statistic],), (1.0,), samples=_rows(sample, _CLOSER)
        )

    return estimate


def _argmax_distance(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    """Mean square distance, per component, of the output from the value with the largest weight.

    Values are independent with unit variance: of Σ (p_j − δ_j1) v_j every component has the
    variance Σ (p_j − δ_j1)² = 1 − 2 max p + Σp², whatever the mean and the law of the values.
    """
    del case
    (sample,) = samples
    i = _index(sample)
    key, rows = f"mean{i}", f"rows{i}"
    top, squares = map(_depth_of(sample).averaged.index, ("max_weight", "sum_squares"))
    return estimates.function_of_means(
        sample.replicates,
        lambda m: 1 + (m[key][:, squares] - 2 * m[key][:, top]) / m[rows][:, _ALL],
        samples=_rows(sample, _ALL),
    )


def expectations(case: Case) -> tuple[RowExpectations | None, str, str]:
    """Exact row expectations for a case: (them or None, kind of prediction, source).

    Given q the logits of a row are iid normal whenever the keys are Gaussian and independent of
    each other, so theory is exact for Gaussian q and k of every covariance. A mean of the keys
    shifts whole rows and a softmax does not see it. For other laws with a finite variance the
    Gaussian row of the same logit variance is shown, as a limit and under that name.
    """
    design = case.design
    q, k = component_law(design.query), component_law(design.key)
    if not (math.isfinite(q.variance) and math.isfinite(k.variance)):
        return None, "none", "no exact prediction: the variance of the components is infinite"
    if design.query.mean:
        return None, "none", "no exact prediction for queries with a mean other than 0"
    found = _expectations(design, q.variance**0.5, k.variance**0.5, case.multiplier)
    if {design.query.distribution, design.key.distribution} <= {"gaussian"}:
        return found, "exact", "Gaussian q, k: quadrature over the law of a row's logit variance"
    return found, "limit", "Gaussian limit of the same logit variance"


@lru_cache(maxsize=1024)
def _expectations(
    design: Design, sigma_q: float, sigma_k: float, multiplier: float
) -> RowExpectations:
    corr, keys = parse_dependence(design.corr), design.keys or 2
    if corr.kind in {"ar1", "equi"}:
        forms = spectrum(design, sigma_q, sigma_k)
        return saturation.dependent_rows(keys=keys, multiplier=multiplier, spectrum=forms)
    return saturation.gaussian_rows(
        dk=design.dk,
        keys=keys,
        multiplier=multiplier * math.sqrt(1 - corr.qk_rho**2),
        sigma_q=sigma_q,
        sigma_k=sigma_k,
    )


def spectrum(design: Design, sigma_q: float, sigma_k: float) -> NDArray[np.float64]:
    """Eigenvalues of Σ_q^½ Σ_k Σ_q^½, shape (d_k,), for the correlation within the vectors."""
    eigenvalues, counts = correlation_eigenvalues(design)
    return np.repeat((sigma_q * sigma_k * eigenvalues) ** 2, counts.astype(int))


def _exact(
    value: Callable[[RowExpectations, int], float], what: str
) -> Callable[[Case], Prediction]:
    def predict(case: Case) -> Prediction:
        found, kind, source = expectations(case)
        if found is None:
            return Prediction(value=None, kind="none", source=source)
        number = value(found, case.design.keys or 2)
        return Prediction(value=number, kind=cast("Any", kind), source=f"{what}; {source}")

    return predict


def _none(case: Case) -> Prediction:
    del case
    return Prediction(value=None, kind="none", source="measured only: no closed form is known")


def _norm_prediction(
    statistic: str, predict: Callable[[Case], Prediction]
) -> Callable[[Case], Prediction]:
    """A prediction that exists for one statistic of a norm only."""
    return lambda case: predict(case) if (case.statistic or "rms") == statistic else _none(case)


def _information(
    smaller: Callable[[RowExpectations, int], float],
) -> Callable[[Case, Prediction, float], float]:
    """A band of `tolerance` times the distance of the number from the nearer trivial value."""

    def band(case: Case, prediction: Prediction, tolerance: float) -> float:
        found, _, _ = expectations(case)
        if found is None:
            return tolerance * abs(prediction.value or 0.0)
        return tolerance * smaller(found, case.design.keys or 2)

    return band


def _relative(case: Case, prediction: Prediction, tolerance: float) -> float:
    del case
    return tolerance * abs(prediction.value or 0.0)


_entropy_band = _information(lambda e, _: min(e.entropy, e.entropy_deficit))
_weights_band = _information(lambda e, m: min(e.trace, e.sum_squares_excess / m))


def _row_quantity(
    name: str,
    formula: str,
    parts: tuple[str, ...],
    estimate: Callable[[Case, tuple[Sample, ...]], Estimate],
    predict: Callable[[Case], Prediction] = _none,
    *,
    band: Callable[[Case, Prediction, float], float] = _relative,
    unit: str = "1",
    statistic: bool = False,
) -> Quantity:
    return Quantity(
        name=name,
        formula=formula,
        unit=unit,
        sampling="rows",
        params=("scale", "statistic") if statistic else ("scale",),
        parts=parts,
        statistic="rms" if statistic else None,
        estimate=estimate,
        predict=predict,
        band=band,
    )


DEFICIT = _row_quantity(
    "softmax.entropy_deficit",
    "ln m − E[H]",
    ("entropy_deficit",),
    _average("entropy_deficit"),
    _exact(lambda e, _: e.entropy_deficit, "ln m − E[H]"),
    band=_entropy_band,
    unit="nats",
)
"""How far the rows are from uniform; its growth with d_k is a quantity of its own."""

QUANTITIES = (
    _row_quantity(
        "softmax.entropy",
        "E[H], H = −Σ p ln p",
        ("entropy",),
        _average("entropy"),
        _exact(lambda e, _: e.entropy, "E[H] = E[ln Z] − E[τ²(1 − Σp²)]"),
        band=_entropy_band,
        unit="nats",
    ),
    DEFICIT,
    _row_quantity(
        "softmax.entropy_ratio",
        "E[H]/ln m",
        ("entropy",),
        _average("entropy", lambda one, m: one / math.log(m)),
        _exact(lambda e, m: e.entropy / math.log(m), "E[H]/ln m"),
        band=_information(lambda e, m: min(e.entropy, e.entropy_deficit) / math.log(m)),
    ),
    _row_quantity("softmax.max_weight", "E[max p]", ("max_weight",), _average("max_weight")),
    _row_quantity(
        "softmax.sum_squares",
        "E[Σp²]",
        ("sum_squares",),
        _average("sum_squares"),
        _exact(lambda e, _: e.sum_squares, "E[Σp²]"),
        band=_weights_band,
    ),
    _row_quantity(
        "softmax.sum_squares_excess",
        "m E[Σp²] − 1",
        ("sum_squares_excess",),
        _average("sum_squares_excess"),
        _exact(lambda e, _: e.sum_squares_excess, "m E[Σp²] − 1"),
        band=_information(lambda e, m: min(m * e.trace, e.sum_squares_excess)),
    ),
    _row_quantity(
        "softmax.effective_keys", "E[1/Σp²]", ("effective_keys",), _average("effective_keys")
    ),
    _row_quantity(
        "softmax.saturated_fraction", "P(max p > 0.99)", ("saturated",), _average("saturated")
    ),
    _row_quantity(
        "softmax.argmax_distance",
        "E‖o − v*‖²/d_v = 1 − 2E[max p] + E[Σp²]: output o = Σ p v, v* the likeliest value",
        ("max_weight", "sum_squares"),
        _argmax_distance,
    ),
    _row_quantity(
        "jacobian.frobenius",
        "‖J‖_F of J = diag(p) − ppᵀ",
        ("frobenius",),
        _norm("frobenius"),
        _norm_prediction("rms", _exact(lambda e, _: e.frobenius_rms, "RMS ‖J‖_F")),
        statistic=True,
    ),
    _row_quantity("jacobian.spectral", "‖J‖₂", ("spectral",), _norm("spectral"), statistic=True),
    _row_quantity(
        "jacobian.inf_norm",
        "‖J‖_∞ = 2p₁(1 − p₁)",
        ("inf_norm",),
        _norm("inf_norm"),
        statistic=True,
    ),
    _row_quantity(
        "jacobian.trace",
        "tr J = 1 − Σp²",
        ("trace",),
        _norm("trace"),
        _norm_prediction("mean", _exact(lambda e, _: e.trace, "E[tr J] = 1 − E[Σp²]")),
        band=_weights_band,
        statistic=True,
    ),
)
