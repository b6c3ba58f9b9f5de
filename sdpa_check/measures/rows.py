"""Softmax rows: statistics of p = softmax(c·s) and of its Jacobian, for several multipliers c."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdpa_check.histogram import SampleGrid
from sdpa_check.measures import scores
from sdpa_check.measures.row_scores import RowsShape, dealt_scores, raw_scores, row_length
from sdpa_check.records import Fault
from sdpa_check.rowsums import FEW_KEYS
from sdpa_check.softmax import RowStatistics, chosen_statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.engine import Sums
    from sdpa_check.records import Design

AVERAGED = (
    "entropy",
    "entropy_deficit",
    "max_weight",
    "effective_keys",
    "saturated",
    "sum_squares",
    "sum_squares_excess",
    "trace",
    "frobenius",
    "spectral",
    "inf_norm",
)
"""Row statistics whose sum a block can return, in this order."""

NORMS = ("frobenius", "spectral", "inf_norm", "trace")
"""Row statistics whose squares a block can return, in this order, and whose histograms."""

SATURATED = 0.99
"""A row counts as saturated when its largest weight exceeds this."""

_DEALT_GROUPS = 8  # more would leave too few queries, fewer too few sets to deal from


@dataclass(frozen=True, slots=True)
class Depth:
    """What is measured under one multiplier, and of how many rows, at an exponential a score.

    The first 1/`share` of the block's rows are measured: a number that few rows settle need not
    cost what another one needs. Of them the first 1/`closer` are looked at more closely: for ‖J‖₂,
    which costs as much as all the rest, and for the quantiles of the norms, which are counted.

    Attributes:
        share: one in how many rows is measured.
        closer: one in how many of those is looked at more closely.
        averaged: those of `AVERAGED` that are wanted.
        squared: those of `NORMS` whose squares are wanted.
        counted: those of `NORMS` whose histograms are wanted.
    """

    share: int = 1
    closer: int = 1
    averaged: tuple[str, ...] = AVERAGED
    squared: tuple[str, ...] = NORMS
    counted: tuple[str, ...] = NORMS

    @property
    def spectral(self) -> bool:
        """Whether ‖J‖₂ is found."""
        return "spectral" in {*self.averaged, *self.squared, *self.counted}

    def spans(self, rows: int) -> tuple[int, int]:
        """How many of so many rows are measured, and how many of those are looked at closely."""
        measured = max(1, rows // self.share)
        return measured, max(1, measured // self.closer)

    def wanted(self, rows: int) -> dict[str, int]:
        """The row statistics behind all that is wanted, and of how many of so many rows."""
        measured, closely = self.spans(rows)
        found = dict.fromkeys(self.counted, closely)
        found |= dict.fromkeys((*self.averaged, *self.squared), measured)
        if self.spectral:
            found["spectral"] = closely
        if "saturated" in found:
            found["one_minus_max"] = found.pop("saturated")
        return found


Grids = tuple[tuple[SampleGrid, ...], ...]
"""Histogram bins for every multiplier, and every norm that is counted under it."""


@dataclass(frozen=True, slots=True)
class RowsWork:
    """Blocks of softmax rows of a design, under several multipliers.

    Sums of a block for the i-th multiplier, of what its depth asks for: ``mean{i}`` (Σ over rows of
    every statistic that is averaged), ``square{i}`` (Σ of squares of every norm), ``rows{i}`` (the
    numbers of rows in them: of all that were measured, and of those that were looked at more
    closely, which is the number behind ‖J‖₂) and, for each norm that is counted,
    ``histogram{i}.{norm}`` (the counts of the latter on the given grids, if any). Without `depths`
    all is measured.

    Where a common factor rules the scores, a block is drawn as `dealt_scores` has it.
    """

    design: Design
    multipliers: tuple[float, ...]
    shape: RowsShape
    grids: Grids = ()
    fault: Fault = dataclasses.field(default_factory=Fault)
    stream: str = "main"
    depths: tuple[Depth, ...] = ()

    @property
    def experiment(self) -> str:
        """The design, the block shape and the stream; multipliers share draws and do not enter."""
        shape = dataclasses.astuple(self.shape)
        key = {"rows": dataclasses.asdict(self.design), "shape": shape, "stream": self.stream}
        return json.dumps(key, sort_keys=True)

    @property
    def size(self) -> int:
        """Rows in a block."""
        return self.shape.rows

    @property
    def cost(self) -> float:
        """Elementary operations of a block, roughly: what one drawn normal costs counts as 32."""
        shape, d, scores = self._drawn, self.design.dk, self.size * self.keys
        drawn = shape.groups * (shape.queries + shape.key_sets * self.keys) * d
        looks = sum((1.0 + each.spectral / each.closer) / each.share for each in self.all_depths)
        return 32.0 * drawn + scores * (d + 32.0 * looks)

    @property
    def keys(self) -> int:
        """The number m of keys in a row."""
        return row_length(self.design)

    def split(self, parts: int) -> RowsWork:
        """The same work in blocks of a `parts`-th of the groups, but at least one.

        Where key sets are dealt, it stays whole: with fewer strata, parts are worth far less.
        """
        if self._drawn is not self.shape:
            return self
        return dataclasses.replace(self, shape=self.shape.split(parts))

    @property
    def all_depths(self) -> tuple[Depth, ...]:
        """The depth for every multiplier."""
        return self.depths or (Depth(),) * len(self.multipliers)

    def with_grids(self, generator: np.random.Generator) -> RowsWork:
        """The same work with grids that fit its norms, found from one block of its own."""
        grids = tuple(
            tuple(SampleGrid.of(getattr(found, norm)[:closely]) for norm in depth.counted)
            for depth, (_, closely), found in self._statistics(generator)
        )
        return dataclasses.replace(self, grids=grids)

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw one block and return its sums."""
        sums: Sums = {}
        for i, (depth, (measured, closely), found) in enumerate(self._statistics(generator)):
            columns = {
                name: _column(found, name)[: closely if name == "spectral" else measured]
                for name in {*depth.averaged, *depth.squared}
            }
            sums[f"rows{i}"] = np.array([float(measured), float(closely)])
            sums[f"mean{i}"] = np.array([columns[name].sum() for name in depth.averaged])
            squares = [np.vdot(columns[name], columns[name]) for name in depth.squared]
            sums[f"square{i}"] = np.array(squares)
            for norm in depth.counted if self.grids else ():
                counts = self.grid(i, norm).counts(getattr(found, norm)[:closely])
                sums[f"histogram{i}.{norm}"] = counts.astype(np.int32)
        return sums

    def grid(self, index: int, norm: str) -> SampleGrid:
        """The bins of one norm under the multiplier of that index."""
        return self.grids[index][self.all_depths[index].counted.index(norm)]

    def _statistics(
        self, generator: np.random.Generator
    ) -> list[tuple[Depth, tuple[int, int], RowStatistics]]:
        """For every multiplier its depth, its numbers of rows, and the statistics of a block."""
        raw = self._scores(generator)
        depths, rows = self.all_depths, len(raw)
        wanted = [depth.wanted(rows) for depth in depths]
        found = chosen_statistics(raw, self.multipliers, wanted)
        return [(d, d.spans(rows), each) for d, each in zip(depths, found, strict=True)]

    def _scores(self, generator: np.random.Generator) -> NDArray[Any]:
        shape = self._drawn
        if shape is self.shape:
            return raw_scores(generator, self.design, shape, self.fault)
        return dealt_scores(generator, self.design, shape, self.fault)

    @property
    def _drawn(self) -> RowsShape:
        """The shape as it is drawn: with other groups where key sets are dealt."""
        if self.keys >= FEW_KEYS or not scores.has_common_factor(self.design):
            return self.shape
        merged = self.shape.merged(_DEALT_GROUPS)
        return self.shape if merged == self.shape else merged


def _column(statistics: RowStatistics, name: str) -> NDArray[np.float64]:
    if name == "saturated":
        return (statistics.one_minus_max < 1 - SATURATED).astype(np.float64)
    return cast("NDArray[np.float64]", getattr(statistics, name))
