"""Softmax weights one by one, in plain float64, and the order of the scores in a row."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check import rowsums
from sdpa_check.histogram import LogGrid
from sdpa_check.measures.row_scores import RowsShape, raw_scores, row_length
from sdpa_check.records import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.engine import Sums
    from sdpa_check.records import Design

EXTREMES = ("max", "top_gap", "max_minus_median", "max_abs")
"""What is taken from the raw scores of a row: the largest, its lead over the second, its lead over
the median (for even m the mean of the two middle scores), and the largest |s|.
"""

PARTS = (
    *(f"total.{name}" for name in EXTREMES),
    *(f"histogram.{name}" for name in EXTREMES),
    *("weights", "runner_up"),
)
"""What a block can return; see `WeightsWork`."""

WEIGHT_GRID = LogGrid.octaves(-30, 0, signed=False)
"""Bins for weights p: from 2^−30 to 1, 128 to an octave; smaller ones fall into the first."""

_SLICE_SCORES = 1 << 17
"""Scores that are worked on together; a block of many keys would not fit into memory."""


@dataclass(frozen=True, slots=True)
class WeightsWork:
    """Blocks of softmax rows p = softmax(c·s) of a design, under several multipliers c > 0.

    Sums of a block, besides ``rows`` those of `PARTS` that are wanted: from the raw scores s, for
    all multipliers, ``total.{name}`` (Σ over rows of one of `EXTREMES`) and ``histogram.{name}``
    (its counts on `grid`); and for the i-th multiplier ``weights{i}`` (counts of all m weights of
    every row on `WEIGHT_GRID`) and ``runner_up{i}`` (counts of the second largest).
    """

    design: Design
    multipliers: tuple[float, ...]
    shape: RowsShape
    fault: Fault = dataclasses.field(default_factory=Fault)
    stream: str = "main"
    parts: tuple[str, ...] = PARTS

    @property
    def experiment(self) -> str:
        """The design, the block shape and the stream; multipliers and parts share draws."""
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
        looks = 64.0 * len(self.multipliers) if self._weighed else 0.0
        return 32.0 * drawn + self.size * keys * (d + 16.0 + looks)

    @property
    def _weighed(self) -> bool:
        return not {"weights", "runner_up"}.isdisjoint(self.parts)

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
            part = raw[start : start + height]
            for name, value in (self._of_scores(part) | self._of_weights(part)).items():
                sums[name] = sums[name] + value if name in sums else value
        return sums

    def _of_scores(self, raw: NDArray[Any]) -> Sums:
        wanted = {name for name in EXTREMES if self._reads(name)}
        sums: Sums = {}
        for name, values in (_extremes(raw, wanted) if wanted else {}).items():
            if f"total.{name}" in self.parts:
                sums[f"total.{name}"] = values.sum()
            if f"histogram.{name}" in self.parts:
                sums[f"histogram.{name}"] = self.grid.counts(values)
        return sums

    def _reads(self, name: str) -> bool:
        return not {f"total.{name}", f"histogram.{name}"}.isdisjoint(self.parts)

    def _of_weights(self, raw: NDArray[Any]) -> Sums:
        sums: dict[str, NDArray[Any]] = {}
        if not self._weighed:
            return sums
        top, second, _ = _top_two_and_least(raw)
        below_top = raw - top[:, None]
        for i, multiplier in enumerate(self.multipliers):
            p = np.exp(multiplier * below_top)
            total = p.sum(axis=1)
            if "weights" in self.parts:
                p /= total[:, None]
                sums[f"weights{i}"] = WEIGHT_GRID.counts(p)
            if "runner_up" in self.parts:
                runner_up = np.exp(multiplier * (second - top)) / total
                sums[f"runner_up{i}"] = WEIGHT_GRID.counts(runner_up)
        return sums


def _extremes(raw: NDArray[Any], wanted: set[str]) -> dict[str, NDArray[np.float64]]:
    """Those of `EXTREMES` that are wanted, of every row. Only a median takes sorted rows."""
    if "max_minus_median" in wanted:
        m, ordered = raw.shape[1], np.sort(np.ascontiguousarray(raw), axis=1)
        columns = ordered[:, [-1, -2, 0, (m - 1) // 2, m // 2]].T.astype(np.float64)
        top, second, least, low, high = columns
        median = (low + high) / 2
    else:
        top, second, least = _top_two_and_least(raw)
        median = np.nan
    found = zip(EXTREMES, (top, top - second, top - median, np.maximum(top, -least)), strict=True)
    return {name: values for name, values in found if name in wanted}


def _top_two_and_least(raw: NDArray[Any]) -> tuple[NDArray[np.float64], ...]:
    """The largest, the second largest and the smallest score of every row."""
    key_major = raw.shape[1] < rowsums.FEW_KEYS
    found = rowsums.extremes(raw.T if key_major else raw, 0 if key_major else 1)
    return tuple(x.astype(np.float64) for x in found)
