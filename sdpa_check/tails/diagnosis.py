"""Which sample moments, and which error bars, may be believed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check import student
from sdpa_check.tails.data import Centre, checked, quartiles, unit_of
from sdpa_check.tails.growth import Growth, growth_of
from sdpa_check.tails.moments import Moments
from sdpa_check.tails.shape import LEAST_TAIL, Hill, Pareto, tail_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_LEAST = 100
"""With fewer data nothing is judged: a tail of 0.2 n would hold fewer than 20 of them."""

_GROUPS = 16
"""Groups behind an error bar that does not assume independence, where there are as many."""

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
    flat, blocks = checked(x, block_axis)
    n, rows, groups = flat.size, blocks or flat.size, min(_GROUPS, blocks or _GROUPS)
    low, median, high = quartiles(flat)
    centre = Centre(median, unit_of(flat))
    edges = np.array([(g * rows // groups) * (n // rows) for g in range(groups + 1)])
    hills, pareto = tail_of(flat, centre, edges if blocks else None)
    growth = growth_of(flat, centre, edges)
    moments = Moments.of(flat, centre)
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


def _verdicts(
    moments: Moments, pareto: Pareto | None, growth: Growth | None, dof: float
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
        return Judgement(Trust.DOUBTFUL, f"fewer than {LEAST_TAIL} data lie in the tail")
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


def _by_carriers(moments: Moments, order: int) -> Judgement:
    count = moments.carriers(order)
    trust = Trust.NOT_TRUSTED if count < _FEW else Trust.DOUBTFUL
    reason = f"the mean of |x − median|^{order} is carried by about {count:.0f} of {moments.n} data"
    return Judgement(trust if count < _ENOUGH else Trust.TRUSTED, reason)
