"""Shares of a law beyond thresholds, counted from histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check import estimates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sdpa_check.engine import Replicates
    from sdpa_check.histogram import LogGrid
    from sdpa_check.quantities.base import Case
    from sdpa_check.records import Design, Estimate, Prediction

FEWEST = 100
"""With fewer events than this, or fewer of the opposite, their spread says too little."""

_RARE = 3.0
"""The error of a share of few events, times the number n of them that share no vector. Those are
independent, so that a share of p leaves no event with a probability of at most (1 − p)^n. At 1e-8
that allows p = 18/n, which is 3/n times the 6 or more standard errors that a verdict then takes.
"""


def share(
    replicates: Replicates,
    name: str,
    grid: LogGrid,
    above: Mapping[float, float],
    *,
    samples: int,
    independent: int,
    design: Design,
    base: float = 0.0,
) -> Estimate:
    """Estimate base + Σ w P(X > x) over the points x and weights w of `above`.

    Between the edges of a bin its counts are taken as evenly spread, which for a smooth law costs
    second order in the width of the bin, 1/128 of an octave. There is no error bar where that would
    be wrong: for a lattice law, or a point beyond the bins.

    Args:
        replicates: the merged sums.
        name: which of them is the histogram, counts of shape (replicates, bins).
        grid: its bins.
        above: the points and their weights.
        samples: how many X there are.
        independent: how many X of a block share no vector with each other.
        design: what was drawn.
        base: a constant.
    """
    edges = np.clip(grid.edges(), -1e300, 1e300)

    def function(m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        counts = m[name]
        parts = [weight * _above(counts, edges, x) for x, weight in above.items()]
        return np.asarray(base + np.sum(parts, axis=0) / counts.sum(axis=1))

    withheld = lattice(design)
    if not all(edges[1] <= x <= edges[-2] for x in above):
        withheld = "not available (a threshold lies beyond the bins)"
    found = estimates.function_of_means(replicates, function, samples=samples, withheld=withheld)
    events = min(found.value, 1 - found.value) * samples
    if found.se is None or events >= FEWEST:
        return found
    se = max(found.se, _RARE / (independent * replicates.blocks))
    return estimates.with_error(found.value, se, found.blocks, samples)


def _above(counts: NDArray[Any], edges: NDArray[np.float64], x: float) -> NDArray[Any]:
    """Counts above x, shape (replicates,)."""
    i = int(np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2))
    part = (edges[i + 1] - x) / (edges[i + 1] - edges[i])
    return np.asarray(counts[:, i + 1 :].sum(axis=1) + part * counts[:, i])


def lattice(design: Design) -> str:
    """Why nothing can be read between the points of a lattice, where the law of s is one."""
    if {design.query.distribution, design.key.distribution} != {"rademacher"}:
        return ""
    return "not available (a lattice law: its points are not spread over their bins)"


def share_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """A share p is held to `tolerance` times the smaller of p and 1 − p."""
    del case
    p = prediction.value or 0.0
    return tolerance * max(0.0, min(p, 1 - p))
