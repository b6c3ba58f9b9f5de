"""How the sample variance of data grows with their number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.tails.data import Centre

_GROWTH_LIMIT = 1 << 18
"""The most data of a group that the growth of S² looks at."""


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


def growth_of(flat: NDArray[Any], centre: Centre, edges: NDArray[np.int64]) -> Growth | None:
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
