"""Tails of data of unknown law: which sample moments, and which error bars, may be believed.

E|x|^p is finite for p below the tail index ν and infinite above it. A sample moment is a number
whether or not it estimates anything, so the tail is looked at first. Everything here is a
statement about the part of the law that n data can show.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check import student
from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike, NDArray

_CHUNK = 1 << 17
"""Elements that are promoted to float64 at a time."""

_LEAST = 100
"""With fewer data nothing is judged: a tail of 0.2 n would hold fewer than 20 of them."""

_LEAST_TAIL, _LEAST_DEEPER = 10, 30
"""The fewest exceedances that show a shape, and the fewest for a second look deeper in the tail."""

_GROUPS, _LEAST_BLOCKS = 16, 8
"""Groups behind an error bar that does not assume independence, and the fewest they may be."""

_GROWTH_LIMIT = 1 << 18
"""The most data of a group that the growth of S² looks at."""

_REFUSED, _ADMITTED = 0.025, 0.005
"""Upper tail probabilities of the bounds that must stay below the limit of a moment."""

_FEW, _ENOUGH = 10, 30
"""Effective numbers of data in a moment: its relative error is about 1/√ of them."""


class Trust(StrEnum):
    """How far a sample moment may be believed."""

    TRUSTED = "trusted"
    DOUBTFUL = "doubtful"
    NOT_TRUSTED = "not trusted"


_SEVERITY = (Trust.TRUSTED, Trust.DOUBTFUL, Trust.NOT_TRUSTED)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A degree of trust with the sentence that explains it; true only where trusted."""

    trust: Trust
    reason: str

    def __bool__(self) -> bool:
        return self.trust is Trust.TRUSTED


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


@dataclass(frozen=True, slots=True)
class Growth:
    """How the sample variance S²_m grows with m, from disjoint sub-samples of `sizes` data.

    `slope` is that of the mean of ln S²_m (`log_variances`) on ln m, `se` its standard error from
    the spread between `groups`. `boundary` is the slope at infinite variance: S²_m ~ m^(2/ν−1) for
    ν < 2, and ~ ln m at ν = 2, whose slope is 1/ln m, here at the geometric mean of the sizes.
    """

    slope: float
    se: float
    boundary: float
    groups: int
    sizes: tuple[int, ...]
    log_variances: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TailReport:
    """What `diagnose` found; tails are those of |x − median|.

    `variance` divides by n − 1, `skewness` and `excess_kurtosis` are m₃/m₂^(3/2) and m₄/m₂² − 3
    with divisor n, None where not trusted or where all data are equal. `hill` goes from few order
    statistics to many, `pareto` is None where fewer than 10 data exceed the threshold, `growth`
    below 256 data or where sub-samples do not vary. `blocks` counts the independent slices.
    """

    n: int
    blocks: int | None
    mean: float
    variance: float
    std: float
    skewness: float | None
    excess_kurtosis: float | None
    median: float
    iqr: float
    hill: tuple[Hill, ...]
    pareto: Pareto | None
    growth: Growth | None
    mean_trustworthy: Judgement
    variance_trustworthy: Judgement
    variance_error_trustworthy: Judgement
    skewness_trustworthy: Judgement
    kurtosis_trustworthy: Judgement


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
    flat, _ = _checked(x)
    k = _whole(k, 1, flat.size - 1)
    top, _ = _largest(flat, _ORIGIN, k + 1)
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
    flat, _ = _checked(x)
    wanted = math.ceil(min(flat.size / 5, 3 * math.sqrt(flat.size))) if k is None else k
    wanted = _whole(wanted, 5, flat.size - 1)
    top, _ = _largest(flat, _ORIGIN, wanted + 1)
    excess, threshold = _exceedances(top)
    if 0 < excess.size < 5:
        got = f"{excess.size} data above {threshold:.6g}"
        raise InputError("x", got, "at least 5", "use a larger k, or judge such data as discrete")
    return _pareto(excess, threshold)


def diagnose(x: ArrayLike, *, block_axis: int | None = None) -> TailReport:
    """Moments of data of unknown law, with a verdict on each of them.

    A moment is trusted only if the data exclude that it is infinite; the burden of proof lies with
    the moment. E|x|^p is finite iff the generalised Pareto shape ξ of the tail is below 1/p, and
    the error bar of a moment needs the moment of twice the order:

    ================================  ==============  ====================================
    field                             needs           that is
    ================================  ==============  ====================================
    ``mean_trustworthy``              ξ < 1           the mean exists (its error: variance)
    ``variance_trustworthy``          ξ < 1/2         the variance exists
    ``variance_error_trustworthy``    ξ < 1/4         the error bar of the variance exists
    ``skewness_trustworthy``          ξ < 1/6         the error bar of the skewness exists
    ``kurtosis_trustworthy``          ξ < 1/8         the error bar of the kurtosis exists
    ================================  ==============  ====================================

    Each is judged by up to three pieces of evidence, of which the worst counts, and is never
    trusted more than the one before it:

    - Shape: k̂ + z·se must lie below the limit. *Not trusted* where the end of the two-sided 95 %
      interval does not, *doubtful* where only that of the 99 % interval does not. k̂ is that of the
      ⌈min(n/5, 5√n)⌉ largest |x − median|, or of a half, a quarter, … of them where that differs
      by more than three standard errors: the threshold then lay in the bulk, beside a separate
      group of outliers.
    - Effective number of data (Σ|x − median|^p)²/Σ|x − median|^2p in the moment itself, p = 1, 2,
      4, 3, 4: *not trusted* below 10, *doubtful* below 30. This is what sees a few outliers.
    - Growth (the variance only): the slope of ln S²_m on ln m plus its error must stay below that
      of infinite variance, at the same two levels with Student's t.

    Fewer than 100 data are always doubtful. Error bars take the data as independent, unless
    `block_axis` names the axis along which slices are: the standard errors of k̂ and of Hill's
    estimate then come from the jackknife over up to 16 groups of slices, with Student's t.

    How often that comes out trusted/not trusted, in per cent of samples (2000 of n = 10³ and 10⁴,
    400 of 10⁵; the rest is doubtful). The mean of Cauchy data is trusted in 2/1/1 %; "1 % × 10" is
    a normal law with one in a hundred data ten times as wide. At a limit itself, t(2) and t(4), the
    shape alone would be trusted in 0.5 % if it were that of an exact power law; it is in up to 4 %:

    ==========  ======  ======  ======  ======  ======  ======  ======  ======  ======
    law         variance                its error bar           kurtosis
                10³     10⁴     10⁵     10³     10⁴     10⁵     10³     10⁴     10⁵
    ==========  ======  ======  ======  ======  ======  ======  ======  ======  ======
    Gaussian    100/0   100/0   100/0   98/0    100/0   100/0   59/17   100/0   100/0
    uniform     100/0   100/0   100/0   98/1    99/0    100/0   95/2    96/2    100/0
    Laplace     100/0   100/0   100/0   35/28   99/0    100/0   8/80    48/32   98/0
    t(30)       100/0   100/0   100/0   90/2    100/0   100/0   37/36   92/2    100/0
    t(8)        100/0   100/0   100/0   37/38   86/4    100/0   6/85    12/76   18/62
    t(5)        89/4    100/0   100/0   9/76    21/58   44/33   1/97    0/99    0/100
    t(4)        70/12   98/0    100/0   4/89    3/91    2/92    0/99    0/100   0/100
    t(3)        34/46   71/15   98/1    0/98    0/100   0/100   0/100   0/100   0/100
    t(2.5)      11/75   25/55   57/24   0/100   0/100   0/100   0/100   0/100   0/100
    t(2)        1/95    1/96    0/97    0/100   0/100   0/100   0/100   0/100   0/100
    t(1.5)      0/100   0/100   0/100   0/100   0/100   0/100   0/100   0/100   0/100
    Cauchy      0/100   0/100   0/100   0/100   0/100   0/100   0/100   0/100   0/100
    log-normal  4/89    86/5    100/0   0/99    1/97    2/90    0/100   0/100   0/100
    1 % × 10    3/91    85/8    100/0   0/100   0/39    100/0   0/100   0/59    100/0
    ==========  ======  ======  ======  ======  ======  ======  ======  ======  ======

    It cannot see a heavy tail that begins beyond the largest datum, or one in the differences
    between slices when these are few. It is too strict with log-normal data and with a few tens of
    outliers, whose moments all exist, though the sample's say little about them.

    Args:
        x: at least two finite real numbers of any shape; each is one datum.
        block_axis: the axis whose slices are independent of each other (at least 8), such as
            sequences or heads; None takes every entry as independent.

    Raises:
        InputError: if x holds anything but finite real numbers (NaN and infinities are counted), or
            `block_axis` is no axis of it or has too few slices.
    """
    flat, blocks = _checked(x, block_axis)
    n, rows, groups = flat.size, blocks or flat.size, min(_GROUPS, blocks or _GROUPS)
    low, median, high = _quartiles(flat)
    centre = _Centre(median, _unit(flat))
    edges = np.array([(g * rows // groups) * (n // rows) for g in range(groups + 1)])
    hills, pareto = _tail(flat, centre, edges if blocks else None)
    growth = _growth(flat, centre, edges)
    moments = _Moments.of(flat, centre)
    mean, variance, error, skewness, kurtosis = _verdicts(
        moments, pareto, growth, dof=groups - 1 if blocks else math.inf
    )
    return TailReport(
        n=n,
        blocks=blocks,
        mean=moments.mean,
        variance=moments.std * moments.std,
        std=moments.std,
        skewness=None if skewness.trust is Trust.NOT_TRUSTED else moments.skewness,
        excess_kurtosis=None if kurtosis.trust is Trust.NOT_TRUSTED else moments.excess_kurtosis,
        median=median,
        iqr=high - low,
        hill=hills,
        pareto=pareto,
        growth=growth,
        mean_trustworthy=mean,
        variance_trustworthy=variance,
        variance_error_trustworthy=error,
        skewness_trustworthy=skewness,
        kurtosis_trustworthy=kurtosis,
    )


@dataclass(frozen=True, slots=True)
class _Centre:
    """Data as (x − median)/unit in float64, `unit` a power of two: exact but for the difference."""

    median: float
    unit: float

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return x.astype(np.float64) / self.unit - self.median / self.unit


_ORIGIN = _Centre(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class _Moments:
    """Sums of y = (x − median)/unit: Σ|y|^p in `absolute`, Σy and Σy³ in `signed`."""

    n: int
    centre: _Centre
    absolute: dict[int, float]
    signed: tuple[float, float]

    @classmethod
    def of(cls, flat: NDArray[Any], centre: _Centre) -> _Moments:
        total = np.zeros(8)
        for x in _chunks(flat):
            y = centre(x)
            size, square = np.abs(y), y * y
            fourth = square * square
            powers = (size, square, fourth, y, square * size, square * fourth, fourth * fourth)
            total += [*(power.sum() for power in powers), (square * y).sum()]
        one, two, four, signed, three, six, eight, cube = total.tolist()
        absolute = {1: one, 2: two, 3: three, 4: four, 6: six, 8: eight}
        return cls(flat.size, centre, absolute, (signed, cube))

    @property
    def mean(self) -> float:
        return self.centre.median + self.signed[0] / self.n * self.centre.unit

    @property
    def central(self) -> tuple[float, float, float]:
        """m₂, m₃, m₄ of y. Nothing cancels: mean and median differ by one σ at most."""
        first, third = (s / self.n for s in self.signed)
        second, fourth = self.absolute[2] / self.n, self.absolute[4] / self.n
        m3 = third - 3 * first * second + 2 * first**3
        m4 = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
        return second - first**2, m3, m4

    @property
    def std(self) -> float:
        return math.sqrt(self.central[0] * self.n / (self.n - 1)) * self.centre.unit

    @property
    def skewness(self) -> float | None:
        m2, m3, _ = self.central
        return m3 / m2**1.5 if m2 else None

    @property
    def excess_kurtosis(self) -> float | None:
        m2, _, m4 = self.central
        return m4 / m2**2 - 3 if m2 else None

    def carriers(self, order: int) -> float:
        """The effective number of data in Σ|y|^p: all n where they are equal, 1 where one rules."""
        return self.absolute[order] ** 2 / self.absolute[2 * order]


def _verdicts(
    moments: _Moments, pareto: Pareto | None, growth: Growth | None, dof: float
) -> list[Judgement]:
    """Mean, variance, its error, skewness and kurtosis, none trusted more than the one before."""
    if moments.n < _LEAST:
        return [Judgement(Trust.DOUBTFUL, f"{moments.n} data are too few to show a tail")] * 5
    if not moments.absolute[2]:
        equal = Judgement(Trust.TRUSTED, "all data are equal")
        return [equal] * 3 + [Judgement(Trust.NOT_TRUSTED, "undefined: all data are equal")] * 2
    verdicts: list[Judgement] = []
    for finite, carried in ((1, 1), (2, 2), (4, 4), (6, 3), (8, 4)):
        found = [_by_shape(pareto, finite, dof), _by_carriers(moments, carried)]
        if finite == 2 and growth:
            slope = f"slope {growth.slope:.2g} ± {growth.se:.1g} of ln S² on ln m"
            found.append(
                _bounded(slope, growth.slope, growth.se, growth.boundary, growth.groups - 1)
            )
        found += verdicts[-1:]
        verdicts.append(max(found, key=lambda judgement: _SEVERITY.index(judgement.trust)))
    return verdicts


def _by_shape(pareto: Pareto | None, order: int, dof: float) -> Judgement:
    if pareto is None:
        return Judgement(Trust.DOUBTFUL, f"fewer than {_LEAST_TAIL} data lie in the tail")
    if not pareto.k:
        return Judgement(Trust.TRUSTED, "the largest |x − median| is attained many times")
    shape = f"tail shape {pareto.shape:.3f} ± {pareto.se:.3f} from {pareto.k} exceedances"
    return _bounded(shape, pareto.shape, pareto.se, 1 / order, dof)


def _bounded(what: str, value: float, se: float, limit: float, dof: float) -> Judgement:
    for trust, tail in ((Trust.NOT_TRUSTED, _REFUSED), (Trust.DOUBTFUL, _ADMITTED)):
        bound = value + student.quantile(tail, dof) * se
        if not bound < limit:
            reason = f"its {1 - tail:.1%} upper bound {bound:.3g} reaches {limit:.3g}"
            return Judgement(trust, f"{what}: {reason}, where the moment is infinite")
    reason = f"its {1 - _ADMITTED:.1%} upper bound {bound:.3g} stays below {limit:.3g}"
    return Judgement(Trust.TRUSTED, f"{what}: {reason}")


def _by_carriers(moments: _Moments, order: int) -> Judgement:
    count = moments.carriers(order)
    trust = Trust.NOT_TRUSTED if count < _FEW else Trust.DOUBTFUL
    reason = f"the mean of |x − median|^{order} is carried by about {count:.0f} of {moments.n} data"
    return Judgement(trust if count < _ENOUGH else Trust.TRUSTED, reason)


def _tail(
    flat: NDArray[Any], centre: _Centre, edges: NDArray[np.int64] | None
) -> tuple[tuple[Hill, ...], Pareto | None]:
    """Hill's estimates at halving k, and the Pareto fit where the tail has begun."""
    k = math.ceil(min(flat.size / 5, 5 * math.sqrt(flat.size)))
    top, where = _largest(flat, centre, k + 1)
    kept = None
    if edges is not None:
        labels = np.searchsorted(edges[1:-1], where, side="right")
        kept = np.arange(edges.size - 1)[:, np.newaxis] != labels
    sizes = [k >> j for j in range(k.bit_length()) if k >> j >= _LEAST_TAIL]
    hills = [
        _hill(top[-size - 1 :], centre.unit, kept) for size in reversed(sizes) if top[-size - 1] > 0
    ]
    chosen: Pareto | None = None
    for size in sizes:
        excess, threshold = _exceedances(top[-size - 1 :])
        if 0 < excess.size < _LEAST_TAIL or (chosen and size < _LEAST_DEEPER):
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


def _growth(flat: NDArray[Any], centre: _Centre, edges: NDArray[np.int64]) -> Growth | None:
    """Growth of S² within each group of neighbours, over sizes that double up to the group's.

    Neighbours may be alike, and few of them would vary less for that reason alone. Sub-samples are
    therefore scattered over their group in steps of the golden section.
    """
    groups, length = edges.size - 1, min(int(np.diff(edges).min()), _GROWTH_LIMIT)
    levels = min(2, (length // 8).bit_length() - 1)
    if levels < 1:
        return None
    small = length >> levels
    order = np.arange(small << levels)
    first, second = np.empty((groups, order.size // small)), np.empty((groups, order.size // small))
    for g, (start, stop) in enumerate(pairwise(edges.tolist())):
        y = centre(flat[start + order * _golden(stop - start) % (stop - start)]).reshape(-1, small)
        first[g], second[g] = y.sum(axis=1), np.square(y).sum(axis=1)
    sizes, logs = [], []
    for size in (small << level for level in range(levels + 1)):
        squares = second - first * first / size
        if (squares > 1e-12 * second).all():  # else some of these sub-samples do not vary at all
            sizes.append(size)
            logs.append(np.log(squares / (size - 1)).mean(axis=1) + 2 * math.log(centre.unit))
        if size < order.size:
            first, second = (sums.reshape(groups, -1, 2).sum(axis=2) for sums in (first, second))
    if len(sizes) < 2:
        return None
    abscissa = np.log(sizes)
    weights = abscissa - abscissa.mean()
    slopes = weights @ np.array(logs) / (weights @ weights)
    return Growth(
        slope=float(slopes.mean()),
        se=float(slopes.std(ddof=1)) / math.sqrt(groups),
        boundary=1 / float(abscissa.mean()),
        groups=groups,
        sizes=tuple(sizes),
        log_variances=tuple(np.mean(logs, axis=1).tolist()),
    )


def _golden(length: int) -> int:
    """A step near the golden section of `length` that visits every place before it returns."""
    step = max(1, round(length * 0.6180339887498949))
    while math.gcd(step, length) > 1:
        step += 1
    return step


def _checked(x: ArrayLike, block_axis: int | None = None) -> tuple[NDArray[Any], int | None]:
    """The data as a vector, slices along the block axis one after the other, and their number."""
    array, blocks = np.asarray(x), None
    if array.dtype.kind not in "iuf":
        raise InputError("x", str(array.dtype), "real numbers", "convert it to float32 first")
    if array.size < 2:
        raise InputError("x", f"{array.size} data", "at least 2")
    if block_axis is not None:
        axis = _whole(block_axis, -array.ndim, array.ndim - 1, "block_axis")
        array = np.moveaxis(array, axis, 0)
        blocks = len(array)
        if blocks < _LEAST_BLOCKS:
            want = f"an axis with at least {_LEAST_BLOCKS} independent slices, not {blocks}"
            raise InputError("block_axis", block_axis, want)
    flat = array.reshape(-1)
    nan = sum(int(np.count_nonzero(np.isnan(part))) for part in _chunks(flat))
    infinite = sum(int(np.count_nonzero(np.isinf(part))) for part in _chunks(flat))
    if nan or infinite:
        got = f"{nan} NaN and {infinite} infinite among {flat.size} data"
        raise InputError("x", got, "finite numbers", "find out where they come from")
    return flat, blocks


def _whole(value: int, low: int, high: int, where: str = "k") -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise InputError(where, value, f"a whole number from {low} to {high}")
    return number


def _chunks(flat: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))


def _unit(flat: NDArray[Any]) -> float:
    """A power of two near the largest |x|, so that powers of x/unit neither overflow nor vanish."""
    largest = max(max(abs(float(part.min())), abs(float(part.max()))) for part in _chunks(flat))
    return 2.0 ** min(max(math.frexp(largest)[1], -1000), 1023)


def _quartiles(flat: NDArray[Any]) -> tuple[float, float, float]:
    """The quartiles, linear between order statistics, without sorting."""
    parted = flat.astype(np.result_type(flat.dtype, np.float32))
    places = [(flat.size - 1) * quarter / 4 for quarter in (1, 2, 3)]
    around = [(math.floor(place), math.ceil(place)) for place in places]
    parted.partition(sorted({index for pair in around for index in pair}))
    low, median, high = (
        (1 - place % 1) * float(parted[a]) + place % 1 * float(parted[b])
        for place, (a, b) in zip(places, around, strict=True)
    )
    return low, median, high


def _largest(
    flat: NDArray[Any], centre: _Centre, count: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The `count` largest |x − median|/unit in ascending order, and where they stand."""
    top, where = np.empty(0), np.empty(0, np.int64)
    for number, part in enumerate(_chunks(flat)):
        size = np.abs(centre(part))
        new = np.flatnonzero(size > (top.min() if top.size == count else -1.0))
        top = np.concatenate([top, size[new]])
        where = np.concatenate([where, new + number * _CHUNK])
        if top.size > count:
            best = np.argpartition(top, -count)[-count:]
            top, where = top[best], where[best]
    order = np.argsort(top)
    return top[order], where[order]
