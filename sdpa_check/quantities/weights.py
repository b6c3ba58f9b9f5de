"""Extremes of a row of logits, and the law of the softmax weights."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from sdpa_check import estimates
from sdpa_check.distributions import component_law, parse_dependence
from sdpa_check.errors import InputError
from sdpa_check.measures.weights import WEIGHT_GRID, WeightsWork
from sdpa_check.quantities.base import Case, Quantity, Sample, relative
from sdpa_check.quantities.moments import without_moment
from sdpa_check.quantities.params import required
from sdpa_check.quantities.rows import LEVELS, spectrum
from sdpa_check.quantities.shares import lattice, share, share_band
from sdpa_check.records import Design, Estimate, Prediction, PredictionKind
from sdpa_check.theory import extremes
from sdpa_check.theory.quadrature import chi_square_rule, quadratic_form_rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_STATISTICS = ("mean", *LEVELS)


def reads(asked: Quantity, case: Case) -> tuple[str, ...]:
    """Which parts of a block of weights a quantity reads, see `measures.weights.PARTS`."""
    if asked.statistic is None or _statistic(case) == "mean":
        return asked.parts
    return tuple(part.replace("total.", "histogram.") for part in asked.parts)


def _work(sample: Sample) -> WeightsWork:
    return cast("WeightsWork", sample.work)


def _rows(sample: Sample) -> int:
    return int(sample.replicates.sums["rows"].sum())


def _extreme(name: str) -> Callable[[Case, tuple[Sample, ...]], Estimate]:
    """|c| times the mean, or a quantile, over rows of one of `EXTREMES`."""

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        statistic, factor = _statistic(case), abs(sample.multiplier)
        if statistic == "mean":
            return estimates.function_of_means(
                sample.replicates,
                lambda m: factor * m[f"total.{name}"] / m["rows"],
                samples=_rows(sample),
                withheld=without_moment(2, case.design),
            )
        counts, level = sample.replicates.sums[f"histogram.{name}"], LEVELS[statistic]
        found = estimates.quantile_combination(
            counts, _work(sample).grid, (level,), (1.0,), samples=_rows(sample)
        )
        if reason := lattice(case.design):
            found = estimates.bare(found.value, found.blocks, found.samples, reason)
        return estimates.scaled(found, factor)

    return estimate


def _statistic(case: Case) -> str:
    statistic = case.statistic or "mean"
    if statistic not in _STATISTICS:
        raise InputError("statistic", statistic, "one of " + ", ".join(_STATISTICS))
    return statistic


def _beyond(name: str) -> Callable[[Case, tuple[Sample, ...]], Estimate]:
    """Share of rows in which |c| times one of `EXTREMES` exceeds the threshold."""

    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        return share(
            sample.replicates,
            f"histogram.{name}",
            _work(sample).grid,
            {_threshold(case) / abs(sample.multiplier): 1.0},
            samples=_rows(sample),
            independent=_work(sample).shape.disjoint,
            design=case.design,
        )

    return estimate


def _threshold(case: Case) -> float:
    return float(required(case.inputs, "threshold"))


def _weight_share(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    (sample,) = samples
    low, high = (float(required(case.inputs, name)) for name in ("low", "high"))
    if low >= high:
        raise InputError("high", high, f"a number above low = {low:g}")
    return _of_weights("weights", {low: 1.0, high: -1.0}, case, sample)


def _runner_up(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    (sample,) = samples
    return _of_weights("runner_up", {_threshold(case): 1.0}, case, sample)


def _of_weights(name: str, above: dict[float, float], case: Case, sample: Sample) -> Estimate:
    key = f"{name}{_work(sample).multipliers.index(sample.multiplier)}"
    return share(
        sample.replicates,
        key,
        WEIGHT_GRID,
        above,
        samples=int(sample.replicates.sums[key].sum()),
        independent=_work(sample).shape.disjoint,
        design=case.design,
    )


class _RowLaw(NamedTuple):
    """Given q the logits of a row are iid N(shift, τ²): the law of τ as nodes with weights.

    `shift` is the mean over rows of what all logits of a row have in common, and `centred` says
    that it is 0 in every row. `nodes` is None where theory has nothing; `source` says why.
    """

    nodes: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None
    shift: float
    centred: bool
    kind: PredictionKind
    source: str


def _row_law(case: Case) -> _RowLaw:
    """Exact for Gaussian q and k with E q = 0; for other laws of finite variance a limit."""
    design, c = case.design, abs(case.multiplier)
    q, k = component_law(design.query), component_law(design.key)
    if not (math.isfinite(q.variance) and math.isfinite(k.variance)):
        reason = "no exact prediction: the variance of the components is infinite"
        return _RowLaw(None, None, 0.0, False, "none", reason)
    if q.mean:
        reason = "no exact prediction for queries with a mean other than 0"
        return _RowLaw(None, None, 0.0, False, "none", reason)
    rho, product = parse_dependence(design.corr).qk_rho, math.sqrt(q.variance * k.variance)
    forms, weights = _squared_norms(design)
    nodes = c * math.sqrt(1 - rho * rho) * product * np.sqrt(forms)
    shift, centred = c * design.dk * rho * product, not (rho or k.mean)
    if {design.query.distribution, design.key.distribution} == {"gaussian"}:
        source = "Gaussian q, k: iid normal logits given q, averaged over ‖q‖"
        return _RowLaw(nodes, weights, shift, centred, "exact", source)
    source = "Gaussian limit of the same logit variance"
    return _RowLaw(nodes, weights, shift, centred, "limit", source)


@lru_cache(maxsize=256)
def _squared_norms(design: Design) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The rule for qᵀΣ_k q with unit variances."""
    if parse_dependence(design.corr).kind in {"ar1", "equi"}:
        return quadratic_form_rule(spectrum(design, 1.0, 1.0))
    return chi_square_rule(design.dk)


def _expected(
    standard: Callable[[int], float], what: str, *, shifted: bool = False
) -> Callable[[Case], Prediction]:
    """E[τ] times the expectation for m standard normals, plus the shift if it does not cancel."""

    def predict(case: Case) -> Prediction:
        if _statistic(case) != "mean":
            return Prediction(value=None, kind="none", source="no closed form for a quantile")
        law = _row_law(case)
        if law.nodes is None or law.weights is None:
            return Prediction(value=None, kind="none", source=law.source)
        value = float(law.weights @ law.nodes) * standard(case.design.keys or 2)
        value += law.shift * shifted
        return Prediction(value=value, kind=law.kind, source=f"{what}; {law.source}")

    return predict


def _predict_row_exceedance(case: Case) -> Prediction:
    """1 − E[P(|z| ≤ threshold/τ)^m], z standard normal, where no row has a shift of its own."""
    law, bound = _row_law(case), _threshold(case)
    if law.nodes is None or law.weights is None:
        return Prediction(value=None, kind="none", source=law.source)
    if not law.centred:
        source = "no exact prediction where the logits of a row have a mean"
        return Prediction(value=None, kind="none", source=source)
    outside = np.array([math.erfc(bound / (math.sqrt(2) * tau)) for tau in law.nodes.tolist()])
    with np.errstate(divide="ignore"):  # ln 0: surely outside
        each = -np.expm1((case.design.keys or 2) * np.log1p(-outside))
    source = f"1 − E[P(|x| ≤ threshold)^m]; {law.source}"
    return Prediction(value=float(law.weights @ each), kind=law.kind, source=source)


def _none(case: Case) -> Prediction:
    del case
    return Prediction(value=None, kind="none", source="measured only: no closed form is known")


def _row_extreme(name: str, formula: str, predict: Callable[[Case], Prediction]) -> Quantity:
    return Quantity(
        name=f"logit.{name}",
        formula=formula,
        unit="1",
        sampling="weights",
        params=("scale", "statistic"),
        parts=(f"total.{name}",),
        statistic="mean",
        estimate=_extreme(name),
        predict=predict,
        band=relative,
    )


def _share(
    name: str,
    formula: str,
    part: str,
    estimate: Callable[[Case, tuple[Sample, ...]], Estimate],
    predict: Callable[[Case], Prediction] = _none,
    *,
    params: tuple[str, ...] = ("threshold",),
    lead: bool = True,
) -> Quantity:
    return Quantity(
        name=name,
        formula=formula,
        unit="1",
        sampling="weights",
        params=("scale", *params),
        parts=(part,),
        estimate=estimate,
        predict=predict,
        band=share_band,
        lead=lead,
    )


QUANTITIES = (
    _row_extreme(
        "max",
        "largest logit of a row",
        _expected(extremes.expected_max, "E[τ] E[max of m normals]", shifted=True),
    ),
    _row_extreme(
        "top_gap",
        "largest logit of a row − second largest",
        _expected(extremes.expected_gap, "E[τ] E[gap of m normals]"),
    ),
    _row_extreme(
        "max_minus_median",
        "largest logit of a row − median logit",
        _expected(extremes.expected_max_minus_median, "E[τ] E[max of m normals]"),
    ),
    _share(
        "logit.row_exceedance",
        "share of rows with max|x| > threshold",
        "histogram.max_abs",
        _beyond("max_abs"),
        _predict_row_exceedance,
    ),
    _share(
        "logit.top_gap_exceedance",
        "share of rows whose largest logit leads the second by more than threshold",
        "histogram.top_gap",
        _beyond("top_gap"),
    ),
    _share(
        "softmax.weight_share",
        "share of the weights p with low ≤ p ≤ high",
        "weights",
        _weight_share,
        params=("low", "high"),
        lead=False,  # in a long row large weights are so rare that they would ask for anything
    ),
    _share(
        "softmax.runner_up_exceeds",
        "share of rows whose second largest weight exceeds threshold",
        "runner_up",
        _runner_up,
    ),
)
