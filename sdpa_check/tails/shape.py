"""The shape of a tail: Hill's estimate and the generalised Pareto law of the largest data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.tails.data import ORIGIN, Centre, checked, largest, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

LEAST_TAIL, _LEAST_DEEPER = 10, 30
"""The fewest exceedances that show a shape, and the fewest for a second look deeper in the tail."""


@dataclass(frozen=True, slots=True)
class Hill:
    """Hill's estimate of the tail index ν from the `k` largest |x|.

    They lie between `threshold` = x_(k+1), not included, and `largest` = x_(1). `index` and `se`
    are ∞ where all k + 1 are equal.
    """

    index: float
    se: float
    k: int
    threshold: float
    largest: float


@dataclass(frozen=True, slots=True)
class Pareto:
    """A generalised Pareto law fitted to the `k` exceedances of |x| over `threshold`.

    P(|x| − threshold > z) = (1 + shape·z/scale)^(−1/shape) given that it is positive; the tail
    index is 1/shape where that is positive. `shape` is −∞ and `k` 0 where nothing exceeds the
    threshold because the largest |x| is attained too often.
    """

    shape: float
    se: float
    scale: float
    k: int
    threshold: float


def hill(x: ArrayLike, k: int) -> Hill:
    """Hill's estimate of the tail index of |x|: 1/mean(ln(x_(i)/x_(k+1)), i = 1 … k).

    x_(1) ≥ x_(2) ≥ … are the sorted |x|. The standard error ν/√k is that of independent data with
    an exact power law beyond x_(k+1); it knows nothing of the bias where the law is only
    approached. For Student's t the estimate lies below ν, for lighter tails it grows with n.

    Source: B. M. Hill, "A simple general approach to inference about the tail of a distribution",
    Annals of Statistics 3 (1975) 1163; standard error: P. Hall, J. R. Stat. Soc. B 44 (1982) 37.

    Args:
        x: finite real numbers of any shape; each is one datum.
        k: how many order statistics to use, 1 ≤ k < n.

    Raises:
        InputError: if x holds anything but finite real numbers, k is out of range, or fewer than
            k + 1 of the data differ from zero.
    """
    flat, _ = checked(x)
    k = whole(k, 1, flat.size - 1)
    top, _ = largest(flat, ORIGIN, k + 1)
    if top[0] == 0:
        raise InputError("k", k, f"at most {np.count_nonzero(top) - 1}, as few data are not zero")
    return _hill(top)


def pareto_k(x: ArrayLike, k: int | None = None) -> Pareto:
    """The generalised Pareto law of the `k` largest |x|, as exceedances over the next one.

    The shape k̂ is the profile-posterior mean of Zhang & Stephens, shrunk towards 1/2 by the weight
    of ten exceedances as in Pareto-smoothed importance sampling. E|x|^p is finite iff the shape of
    the law is below 1/p. The standard error (1 + k̂)/√k is the asymptotic one of maximum likelihood
    for independent data; for k̂ < 0, where that limit is slow or absent, 1/√k, which is up to 1.4
    times too large.

    Data on a lattice are counted from the middle between the threshold and the next value.

    Sources: J. Zhang & M. A. Stephens, "A new and efficient estimation method for the generalized
    Pareto distribution", Technometrics 51 (2009) 316; A. Vehtari, D. Simpson, A. Gelman, Y. Yao &
    J. Gabry, "Pareto smoothed importance sampling", JMLR 25 (2024) no. 72, appendix on the prior;
    standard error: R. L. Smith, Annals of Statistics 15 (1987) 1174.

    Args:
        x: finite real numbers of any shape; each is one datum.
        k: size of the tail, 5 ≤ k < n; by default ⌈min(n/5, 3√n)⌉, which needs n > 20.

    Raises:
        InputError: if x holds anything but finite real numbers, k is out of range, or between one
            and four data exceed the threshold.
    """
    flat, _ = checked(x)
    wanted = math.ceil(min(flat.size / 5, 3 * math.sqrt(flat.size))) if k is None else k
    wanted = whole(wanted, 5, flat.size - 1)
    top, _ = largest(flat, ORIGIN, wanted + 1)
    excess, threshold = _exceedances(top)
    if 0 < excess.size < 5:
        got = f"{excess.size} data above {threshold:.6g}"
        raise InputError("x", got, "at least 5", "use a larger k, or judge such data as discrete")
    return _pareto(excess, threshold)


def tail_of(
    flat: NDArray[Any], centre: Centre, edges: NDArray[np.int64] | None
) -> tuple[tuple[Hill, ...], Pareto | None]:
    """Hill's estimates at halving k, and the Pareto fit where the tail has begun."""
    k = math.ceil(min(flat.size / 5, 5 * math.sqrt(flat.size)))
    top, where = largest(flat, centre, k + 1)
    kept = None
    if edges is not None:
        labels = np.searchsorted(edges[1:-1], where, side="right")
        kept = np.arange(edges.size - 1)[:, np.newaxis] != labels
    sizes = [k >> j for j in range(k.bit_length()) if k >> j >= LEAST_TAIL]
    hills = [
        _hill(top[-size - 1 :], centre.unit, kept) for size in reversed(sizes) if top[-size - 1] > 0
    ]
    chosen: Pareto | None = None
    for size in sizes:
        excess, threshold = _exceedances(top[-size - 1 :])
        if 0 < excess.size < LEAST_TAIL or (chosen and size < _LEAST_DEEPER):
            break
        fit = _pareto(excess, threshold, centre.unit, kept)
        if chosen is None or _differ(fit, chosen):
            chosen = fit
    return tuple(hills), chosen


def _differ(deeper: Pareto, fit: Pareto) -> bool:
    """Whether two fits see different tails: by more than three of the larger standard errors."""
    error = _error(max(deeper.shape, fit.shape), max(deeper.k, 1))
    return abs(deeper.shape - fit.shape) > 3 * max(error, deeper.se, fit.se)


def _hill(top: NDArray[Any], unit: float = 1.0, kept: NDArray[np.bool_] | None = None) -> Hill:
    """Hill's estimate from ascending magnitudes, the first of which is the threshold."""
    k, logs = top.size - 1, np.log(top[1:] / top[0])
    mean = float(logs.mean())
    index = 1 / mean if mean else math.inf
    se = index / math.sqrt(k)
    if kept is not None and mean:  # d(1/mean) = −ν² d(mean)
        se = index * index * _jackknife(lambda row: float(logs[row].mean()), kept[:, -k:])
    return Hill(index, se, k, float(top[0]) * unit, float(top[-1]) * unit)


def _pareto(
    excess: NDArray[Any], threshold: float, unit: float = 1.0, kept: NDArray[np.bool_] | None = None
) -> Pareto:
    """The law of ascending exceedances; `excess` may be empty."""
    if not excess.size:
        return Pareto(-math.inf, 0.0, 0.0, 0, threshold * unit)
    shape, scale = _fit(excess)
    se = _error(shape, excess.size)
    if kept is not None:
        se = _jackknife(lambda row: _fit(excess[row])[0], kept[:, -excess.size :])
    return Pareto(shape, se, scale * unit, excess.size, threshold * unit)


def _error(shape: float, k: int) -> float:
    return max(1 + shape, 1.0) / math.sqrt(k)


def _fit(excess: NDArray[Any]) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto law, from ascending exceedances > 0.

    The likelihood is profiled on a grid of b = −shape/scale, and b is averaged over the posterior
    that a weak prior from the largest datum and the first quartile gives (Zhang & Stephens 2009).
    """
    n, largest = excess.size, float(excess[-1])
    z = np.maximum(excess / largest, 1e-290)  # 300 orders of magnitude are bulk and outlier anyway
    count = 30 + math.isqrt(n)
    grid = 1 + (1 - np.sqrt(count / (np.arange(count) + 0.5))) / (3 * z[int(n / 4 + 0.5) - 1])
    grid[grid == 0] = 1e-9  # the exponential law, as its own limit
    shapes = np.array([np.log1p(-b * z).mean() for b in grid])
    profile = n * (np.log(-grid / shapes) - shapes - 1)
    weights = np.exp(profile - profile.max())
    b = float(grid @ weights / weights.sum())
    shape = float(np.log1p(-b * z).mean())
    return (n * shape + 5) / (n + 10), -shape / b * largest


def _exceedances(top: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Excesses of ascending magnitudes over the first, which is the threshold, and the threshold.

    Ties show a lattice, whose points stand for the cells around them: there the threshold is the
    middle between two points.
    """
    above = top[top > top[0]]
    threshold = float(top[0])
    if 0 < above.size < top.size - 1 or (above.size > 1 and above[0] == above[1]):
        threshold += (float(above[0]) - threshold) / 2
    return above - threshold, threshold


def _jackknife(statistic: Callable[[NDArray[np.bool_]], float], kept: NDArray[np.bool_]) -> float:
    """Standard error from leaving out one group at a time; ∞ where one of them holds all.

    √((G − 1)/G · Σ_g (θ_(g) − θ̄)²), row g of `kept` tells which data remain without group g.
    """
    if kept.sum(axis=1).min() < 5:
        return math.inf
    values = np.array([statistic(row) for row in kept])
    return float(values.std() * math.sqrt(len(kept) - 1))
