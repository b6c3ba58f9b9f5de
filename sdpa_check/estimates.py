"""Sums per replicate → estimate with error bar; the only maker of error bars.

Dot products and rows inside a block share vectors and are not independent. Every standard error
here therefore comes from the spread between independent replicates and from nothing else.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check import student
from sdpa_check.records import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from sdpa_check.engine import Replicates
    from sdpa_check.histogram import LogGrid, SampleGrid

LEVEL = 0.95
"""The level of the interval that is shown; verdicts use their own, simultaneous one."""

BEYOND = "not available (a quantile lies beyond the bins)"
"""Why there is no number where a sample reaches beyond the grid on which it was counted."""


def function_of_means(
    replicates: Replicates,
    function: Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]],
    *,
    samples: int,
    withheld: str = "",
) -> Estimate:
    """Estimate θ = g(mean sums) with the delete-one jackknife over replicates.

    se² = (R−1)/R · Σ_r (θ_(r) − θ̄)², where θ_(r) leaves replicate r out (Efron & Stein 1981). For a
    plain mean this is the ordinary standard error; for ratios and other smooth functions it is
    right to first order, with Student's t at R − 1 degrees of freedom.

    Args:
        replicates: the merged sums, R ≥ 2 replicates.
        function: g; it gets each sum's means with a leading axis and returns one number per entry.
        samples: how many dot products or rows stand behind the estimate.
        withheld: a reason why there can be no error bar; the value is then given alone.
    """
    count, sums = replicates.count, replicates.sums
    pooled = _Lazy(lambda name: sums[name].mean(axis=0, keepdims=True))
    others = _Lazy(lambda name: (count * pooled[name] - sums[name]) / (count - 1))
    with np.errstate(over="ignore", invalid="ignore"):  # a heavy tail is reported, not warned of
        value = float(function(pooled)[0])
        if withheld:
            return bare(value, count, samples, withheld)
        left_out = function(others)
        se = _spread(left_out) * (count - 1) / math.sqrt(count)
    return with_error(value, se, count, samples)


class _Lazy(dict[str, "NDArray[Any]"]):
    """Arrays by name, made when they are first asked for: most estimates read two of many sums."""

    def __init__(self, make: Callable[[str], NDArray[Any]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> NDArray[Any]:
        self[name] = self._make(name)
        return self[name]


def quantile_combination(
    histogram: NDArray[Any],
    grid: LogGrid | SampleGrid,
    levels: Sequence[float],
    weights: Sequence[float],
    *,
    samples: int,
    log: bool = False,
) -> Estimate:
    """Estimate Σ_i w_i Q(level_i), or its logarithm, from histograms on a fixed grid.

    Quantiles come from the pooled counts, so they carry no per-block bias. By the Bahadur
    representation Q̂ − Q ≈ −(F̂(Q) − level)/f(Q), the error is that of a mean over replicates: each
    contributes −Σ w_i (F_r(Q_i) − level_i)/f(Q_i). The density f is the slope of the pooled F over
    a window of ±2 standard errors of F̂ (Woodruff 1952), at least one bin wide. A quantile in an
    outermost bin is beyond the grid, and there is no number then.

    Args:
        histogram: counts, shape (replicates, bins).
        grid: the bins.
        levels: quantile levels in (0, 1).
        weights: coefficient of each.
        samples: for the record.
        log: estimate the natural logarithm of the combination instead.
    """
    count = len(histogram)
    edges = _finite_edges(grid)
    totals = histogram.sum(axis=1)
    pooled = np.cumsum(histogram.sum(axis=0), dtype=np.float64)
    pooled /= pooled[-1]
    cdf = np.concatenate([[0.0], pooled])
    quantiles, influence, beyond = [], np.zeros(count), False
    for level, weight in zip(levels, weights, strict=True):
        at = float(np.interp(level, cdf, edges))
        own = _shares_below(at, histogram, edges, totals)
        spread = float(own.std(ddof=1)) / math.sqrt(count)
        half = max(2 * spread, 2.0 / float(totals.sum()))
        window = np.interp([level - half, level + half], cdf, edges)
        low, high = _at_least_a_bin(float(window[0]), float(window[1]), at, edges)
        slope = float(np.interp(high, edges, cdf) - np.interp(low, edges, cdf)) / (high - low)
        quantiles.append(weight * at)
        beyond = beyond or not edges[1] <= at <= edges[-2]
        influence -= weight * (own - level) / slope if slope > 0 else np.inf
    if beyond:
        return bare(math.nan, count, samples, BEYOND)
    value = math.fsum(quantiles)
    se = _spread(influence) / math.sqrt(count)
    if log:
        value, se = math.log(value), se / value
    return with_error(value, se, count, samples)


def _shares_below(
    x: float, histogram: NDArray[Any], edges: NDArray[np.float64], totals: NDArray[Any]
) -> NDArray[np.float64]:
    """F_r(x) of every replicate, linear within a bin: only the bin of x need be looked at."""
    i = int(np.clip(np.searchsorted(edges, x, side="right") - 2, 0, len(edges) - 3))
    lower = histogram[:, : i + 1].sum(axis=1)
    ends = np.stack([lower, lower + histogram[:, i + 1]], axis=1) / totals[:, None]
    return np.array([np.interp(x, edges[i + 1 : i + 3], pair) for pair in ends])


def combined(parts: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """Σ w_i v_i of independent estimates, with the degrees of freedom of the least of them."""
    value = math.fsum(w * p.value for w, p in zip(weights, parts, strict=True))
    blocks, samples = min(p.blocks for p in parts), sum(p.samples for p in parts)
    errors = [p.se for p in parts]
    if any(se is None for se in errors):
        reason = next(p.withheld for p in parts if p.se is None)
        return bare(value, blocks, samples, reason)
    squares = ((w * se) ** 2 for w, se in zip(weights, errors, strict=True) if se is not None)
    return with_error(value, math.sqrt(math.fsum(squares)), blocks, samples)


def difference(first: Estimate, second: Estimate) -> Estimate:
    """First − second, whatever the dependence between the two: the errors add up."""
    value = first.value - second.value
    blocks, samples = min(first.blocks, second.blocks), min(first.samples, second.samples)
    if first.se is None or second.se is None:
        return bare(value, blocks, samples, first.withheld or second.withheld)
    return with_error(value, first.se + second.se, blocks, samples)


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """The estimate of `factor` times the number."""
    if estimate.se is None:
        return bare(factor * estimate.value, estimate.blocks, estimate.samples, estimate.withheld)
    se = abs(factor) * estimate.se
    return with_error(factor * estimate.value, se, estimate.blocks, estimate.samples)


def with_error(value: float, se: float, blocks: int, samples: int) -> Estimate:
    """An estimate with its interval at `LEVEL`: value ± t · se, blocks − 1 degrees of freedom."""
    if not (math.isfinite(value) and math.isfinite(se)):
        return bare(value, blocks, samples, "not a finite number")
    half = student.quantile((1 - LEVEL) / 2, blocks - 1) * se
    return Estimate(
        value=value,
        se=se,
        lo=value - half,
        hi=value + half,
        level=LEVEL,
        blocks=blocks,
        samples=samples,
    )


def computed(value: float) -> Estimate:
    """A number that was computed and not sampled: no blocks, no error."""
    finite = math.isfinite(value)
    end = value if finite else None
    return Estimate(
        value=value, se=0.0 if finite else None, lo=end, hi=end, level=1.0, blocks=0, samples=0
    )


def bare(value: float, blocks: int, samples: int, withheld: str) -> Estimate:
    """An estimate without an error bar, and why."""
    return Estimate(
        value=value,
        se=None,
        lo=None,
        hi=None,
        level=LEVEL,
        blocks=blocks,
        samples=samples,
        withheld=withheld,
    )


def _spread(x: NDArray[Any]) -> float:
    """The standard deviation, in units of the largest deviation: squares of 1e-180 underflow."""
    deviation = x - x.mean()
    unit = float(np.abs(deviation).max())
    if not 0 < unit < math.inf:
        return unit
    return unit * math.sqrt(float(np.square(deviation / unit).sum()) / (len(x) - 1))


def _finite_edges(grid: LogGrid | SampleGrid) -> NDArray[np.float64]:
    """The edges of the bins with the open ends closed one octave further out."""
    edges = grid.edges()
    edges[-1] = 2 * edges[-2]
    if edges[0] < 0:
        edges[0] = 2 * edges[1]
    return edges


def _at_least_a_bin(
    low: float, high: float, at: float, edges: NDArray[np.float64]
) -> tuple[float, float]:
    i = int(np.clip(np.searchsorted(edges, at, side="right"), 1, len(edges) - 1))
    return min(low, float(edges[i - 1])), max(high, float(edges[i]))
