"""Softmax weights one by one, and the order of the scores in a row, in plain float64."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.histogram import LogGrid
from sdpa_check.measures.rows import RowsShape, raw_scores, row_length
from sdpa_check.records import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.engine import Sums
    from sdpa_check.records import Design

EXTREMES = ("max", "top_gap", "max_minus_median", "max_abs")
"""What is taken from the raw scores of a row, in this order: the largest, its lead over the second,
its lead over the median (for even m the mean of the two middle scores), and the largest |s|.
"""

WEIGHT_GRID = LogGrid.octaves(-30, 0, signed=False)
"""Bins for weights p: from 2^−30 to 1, 128 to an octave; smaller ones fall into the first."""

_SLICE_SCORES = 1 << 17
"""Scores that are worked on together; a block of many keys would not fit into memory."""


@dataclass(frozen=True, slots=True)
class WeightsWork:
    """Blocks of softmax rows p = softmax(c·s) of a design, under several multipliers c > 0.

    Sums of a block: ``rows``; from the raw scores s, for all multipliers, ``total`` (Σ over rows of
    every one of `EXTREMES`) and ``histogram.{name}`` for each of them (counts on `grid`); and for
    the i-th multiplier ``weights{i}`` (counts of all m weights of every row on `WEIGHT_GRID`) and
    ``runner_up{i}`` (counts of the second largest).
    """

    design: Design
    multipliers: tuple[float, ...]
    shape: RowsShape
    fault: Fault = dataclasses.field(default_factory=Fault)
    stream: str = "main"

    @property
    def experiment(self) -> str:
        """The design, the block shape and the stream; multipliers share draws and do not enter."""
        shape = dataclasses.astuple(self.shape)
        key = {"weights": dataclasses.asdict(self.design), "shape": shape, "stream": self.stream}
        return json.dumps(key, sort_keys=True)

    @property
    def size(self) -> int:
        """Rows in a block."""
        return self.shape.rows

    @property
    def cost(self) -> float:
        """Elementary operations of a block, roughly: what one drawn normal costs counts as 32."""
        shape, d, keys = self.shape, self.design.dk, row_length(self.design)
        drawn = shape.groups * (shape.queries + shape.key_sets * keys) * d
        return 32.0 * drawn + self.size * keys * (d + 64.0 + 64.0 * len(self.multipliers))

    @property
    def grid(self) -> LogGrid:
        """Bins for what is taken from raw scores, around the scale σ_q σ_k of one product."""
        unit = round(math.log2(self.design.query.sigma * self.design.key.sigma))
        return LogGrid.octaves(unit - 14, unit + 60)

    def split(self, parts: int) -> WeightsWork:
        """The same work in blocks of a `parts`-th of the groups, but at least one."""
        return dataclasses.replace(self, shape=self.shape.split(parts))

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw one block and return its sums."""
        raw = raw_scores(generator, self.design, self.shape, self.fault)
        height = max(1, _SLICE_SCORES // raw.shape[1])
        sums: Sums = {"rows": np.array(float(len(raw)))}
        for start in range(0, len(raw), height):
            ordered = np.sort(raw[start : start + height].astype(np.float64), axis=1)
            for name, value in (self._extremes(ordered) | self._weights(ordered)).items():
                sums[name] = sums[name] + value if name in sums else value
        return sums

    def _extremes(self, ordered: NDArray[np.float64]) -> Sums:
        m = ordered.shape[1]
        top = ordered[:, -1]
        median = (ordered[:, (m - 1) // 2] + ordered[:, m // 2]) / 2
        found = (top, top - ordered[:, -2], top - median, np.maximum(top, -ordered[:, 0]))
        counts = zip(EXTREMES, map(self.grid.counts, found), strict=True)
        sums: Sums = {f"histogram.{name}": count for name, count in counts}
        return sums | {"total": np.array([column.sum() for column in found])}

    def _weights(self, ordered: NDArray[np.float64]) -> Sums:
        below_top = ordered - ordered[:, -1:]
        sums: dict[str, NDArray[Any]] = {}
        for i, multiplier in enumerate(self.multipliers):
            p = np.exp(multiplier * below_top)
            p /= p.sum(axis=1, keepdims=True)
            sums[f"weights{i}"] = WEIGHT_GRID.counts(p)
            sums[f"runner_up{i}"] = WEIGHT_GRID.counts(p[:, -2])
        return sums
