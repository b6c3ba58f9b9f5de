"""Softmax rows: statistics of p = softmax(c·s) and of its Jacobian, for several multipliers c."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.histogram import SampleGrid
from sdpa_check.measures import scores
from sdpa_check.records import Fault
from sdpa_check.softmax import RowStatistics, row_statistics

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
"""Row statistics whose sum a block returns, in this order."""

NORMS = ("frobenius", "spectral", "inf_norm", "trace")
"""Row statistics whose squares a block returns, in this order, and whose histograms it makes."""

SATURATED = 0.99
"""A row counts as saturated when its largest weight exceeds this."""

_BLOCK_SCORES = 1 << 18
_GROUP_SCORES = 1 << 20
_DRAW_ELEMENTS = 1 << 21


Grids = tuple[tuple[SampleGrid, ...], ...]
"""Histogram bins for every multiplier and every one of `NORMS`."""


@dataclass(frozen=True, slots=True)
class RowsShape:
    """What a block holds: `groups` times `queries` queries against `key_sets` sets of m keys each.

    Rows of one group share queries and key sets, which makes them cheap to draw. Sharing keys
    among more than about 256 queries, or a query among more than about d_k/16 sets, would add
    rows that say little new: all rows of a query have its norm, which varies by √(2/d_k).
    """

    groups: int
    queries: int
    key_sets: int

    @property
    def rows(self) -> int:
        """Rows in a block."""
        return self.groups * self.queries * self.key_sets

    @property
    def disjoint(self) -> int:
        """The most rows of a block no two of which share a query or keys."""
        return self.groups * min(self.queries, self.key_sets)

    @classmethod
    def fitting(cls, dk: int, keys: int, rows: int | None = None) -> RowsShape:
        """A shape of about 2^18 scores, or of one group; of at most about `rows` rows if given."""
        sets = max(1, min(1024 // keys, dk // 16))
        queries = min(256, max(8, _GROUP_SCORES // (sets * keys)))
        groups = max(1, min(64, _BLOCK_SCORES // (queries * sets * keys)))
        if rows is not None and rows < groups * queries * sets:
            sets = max(1, min(sets, rows // 16))
            queries = max(1, min(queries, rows // sets))
            groups = max(1, rows // (queries * sets))
        return cls(groups, queries, sets)


@dataclass(frozen=True, slots=True)
class RowsWork:
    """Blocks of softmax rows of a design, under several multipliers.

    Sums of a block: ``rows``; and for the i-th multiplier ``mean{i}`` (Σ over rows of every
    statistic of `AVERAGED`), ``square{i}`` (Σ of squares of every one of `NORMS`) and, for each of
    `NORMS` in turn, ``histogram{i}.{norm}`` (their counts on the given grids, if any).
    """

    design: Design
    multipliers: tuple[float, ...]
    shape: RowsShape
    grids: Grids = ()
    fault: Fault = dataclasses.field(default_factory=Fault)
    stream: str = "main"

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
        shape, d, scores = self.shape, self.design.dk, self.size * self.keys
        drawn = shape.groups * (shape.queries + shape.key_sets * self.keys) * d
        return 32.0 * drawn + scores * (d + 64.0 * len(self.multipliers))

    @property
    def keys(self) -> int:
        """The number m of keys in a row."""
        return row_length(self.design)

    def with_grids(self, generator: np.random.Generator) -> RowsWork:
        """The same work with grids that fit its norms, found from one block of its own."""
        found = row_statistics(self._scores(generator), self.multipliers)
        grids = tuple(tuple(SampleGrid.of(getattr(s, norm)) for norm in NORMS) for s in found)
        return dataclasses.replace(self, grids=grids)

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw one block and return its sums."""
        raw = self._scores(generator)
        sums: Sums = {"rows": np.array(float(len(raw)))}
        for i, statistics in enumerate(row_statistics(raw, self.multipliers)):
            sums |= _sums(statistics, i)
            for norm, grid in zip(NORMS, self.grids[i] if self.grids else (), strict=False):
                counts = grid.counts(getattr(statistics, norm))
                sums[f"histogram{i}.{norm}"] = counts.astype(np.int32)
        return sums

    def _scores(self, generator: np.random.Generator) -> NDArray[Any]:
        return raw_scores(generator, self.design, self.shape, self.fault)


def row_length(design: Design) -> int:
    """The number m of keys in a row.

    Raises:
        TypeError: if the design is one of dot products only.
    """
    if design.keys is None:
        raise TypeError("softmax rows need a design with keys")
    return design.keys


def raw_scores(
    generator: np.random.Generator, design: Design, shape: RowsShape, fault: Fault
) -> NDArray[Any]:
    """Raw scores of a block, shape (rows, m): a row for every pair of a query and a key set.

    Keys are drawn in slices, so that memory stays bounded however many there are.
    """
    keys = row_length(design)
    total = shape.key_sets * keys
    width = max(64, _DRAW_ELEMENTS // design.dk)
    out = np.empty((shape.groups, shape.queries, total), scores.precision(design))
    for group in out:
        q = scores.vectors(generator, design, design.query, shape.queries, fault)
        for start in range(0, total, width):
            n = min(width, total - start)
            k = scores.vectors(generator, design, design.key, n, fault)
            group[:, start : start + n] = scores.products(design, q, k, fault)
    return out.reshape(-1, keys)


def _sums(statistics: RowStatistics, index: int) -> Sums:
    saturated = (statistics.one_minus_max < 1 - SATURATED).astype(np.float64)
    columns = [saturated if name == "saturated" else getattr(statistics, name) for name in AVERAGED]
    norms = [getattr(statistics, name) for name in NORMS]
    return {
        f"mean{index}": np.array([column.sum() for column in columns]),
        f"square{index}": np.array([np.vdot(norm, norm) for norm in norms]),
    }
