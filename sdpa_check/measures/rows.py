"""Softmax rows: statistics of p = softmax(c·s) and of its Jacobian, for several multipliers c."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdpa_check.histogram import SampleGrid
from sdpa_check.measures import scores
from sdpa_check.records import Fault
from sdpa_check.softmax import RowStatistics, row_statistics

if TYPE_CHECKING:
    from collections.abc import Callable

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
_TOGETHER_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class Depth:
    """How much of a block is done under one multiplier, at an exponential or more a score.

    The first 1/`share` of the block's rows are measured: a number that few rows settle need not
    cost what another one needs. Of them the first 1/`closer` are looked at more closely: for ‖J‖₂,
    which costs as much as all the rest, if `spectral`; and for the quantiles of the norms, which
    are counted on grids, if `histograms`.
    """

    share: int = 1
    closer: int = 1
    spectral: bool = True
    histograms: bool = True


Grids = tuple[tuple[SampleGrid, ...], ...]
"""Histogram bins for every multiplier, and every one of `NORMS` where it has histograms."""


@dataclass(frozen=True, slots=True)
class RowsShape:
    """What a block holds: `groups` times `queries` queries against `key_sets` sets of m keys each.

    Rows of one group share queries and key sets, which makes them cheap to draw. Sharing keys
    among more than about 4 d_k queries, or a query among more than about d_k/16 sets, would add
    rows that say little new: all rows of a query have its norm, which varies by √(2/d_k), and all
    rows of a key set its spread, which varies by √(2/(m d_k)).
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
        """A shape of about 2^18 scores, or of one group; of at most about `rows` rows if given.

        Where the components of a query depend on each other, `dk` is to be the number of
        independent ones that its norm is worth.
        """
        sets = max(1, min(1024 // keys, dk // 16))
        queries = min(256, max(32, 4 * dk), max(8, _GROUP_SCORES // (sets * keys)))
        groups = max(1, min(64, _BLOCK_SCORES // (queries * sets * keys)))
        if rows is not None and rows < groups * queries * sets:
            sets = max(1, min(sets, rows // 16))
            queries = max(1, min(queries, rows // sets))
            groups = max(1, rows // (queries * sets))
        return cls(groups, queries, sets)

    def split(self, parts: int) -> RowsShape:
        """A `parts`-th of the groups, but at least one."""
        return dataclasses.replace(self, groups=max(1, self.groups // parts))


@dataclass(frozen=True, slots=True)
class RowsWork:
    """Blocks of softmax rows of a design, under several multipliers.

    Sums of a block for the i-th multiplier: ``mean{i}`` (Σ over rows of every statistic of
    `AVERAGED`), ``square{i}`` (Σ of squares of every one of `NORMS`), ``rows{i}`` (the numbers of
    rows in them: of all that were measured, and of those that were looked at more closely, which is
    the number behind ‖J‖₂) and, for each of `NORMS` in turn, ``histogram{i}.{norm}`` (the counts of
    the latter on the given grids, if any). `depths` says for every multiplier how much of it is
    wanted; empty means all.
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
        shape, d, scores = self.shape, self.design.dk, self.size * self.keys
        drawn = shape.groups * (shape.queries + shape.key_sets * self.keys) * d
        looks = sum((1.0 + depth.spectral / depth.closer) / depth.share for depth in self._depths)
        return 32.0 * drawn + scores * (d + 32.0 * looks)

    @property
    def keys(self) -> int:
        """The number m of keys in a row."""
        return row_length(self.design)

    def split(self, parts: int) -> RowsWork:
        """The same work in blocks of a `parts`-th of the groups, but at least one."""
        return dataclasses.replace(self, shape=self.shape.split(parts))

    def with_grids(self, generator: np.random.Generator) -> RowsWork:
        """The same work with grids that fit its norms, found from one block of its own."""
        raw = self._scores(generator)
        grids = tuple(
            tuple(SampleGrid.of(getattr(found, norm)) for norm in self._counted(i))
            for i, (found, _) in enumerate(self._statistics(raw))
        )
        return dataclasses.replace(self, grids=grids)

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw one block and return its sums."""
        sums: Sums = {}
        for i, (closer, others) in enumerate(self._statistics(self._scores(generator))):
            sums |= _sums(closer, others, i)
            if self.grids:
                for norm in self._counted(i):
                    counts = self.grid(i, norm).counts(getattr(closer, norm))
                    sums[f"histogram{i}.{norm}"] = counts.astype(np.int32)
        return sums

    def grid(self, index: int, norm: str) -> SampleGrid:
        """The bins of one norm under the multiplier of that index."""
        return self.grids[index][self._counted(index).index(norm)]

    def _counted(self, index: int) -> tuple[str, ...]:
        """The norms that are counted on grids under one multiplier."""
        depth = self._depths[index]
        if not depth.histograms:
            return ()
        return tuple(norm for norm in NORMS if depth.spectral or norm != "spectral")

    @property
    def _depths(self) -> tuple[Depth, ...]:
        return self.depths or (Depth(),) * len(self.multipliers)

    def _statistics(self, raw: NDArray[Any]) -> list[tuple[RowStatistics, RowStatistics]]:
        """For every multiplier the statistics of the rows looked at more closely, and of others."""
        ends = [max(1, len(raw) // depth.share) for depth in self._depths]
        middles = [max(1, e // d.closer) for e, d in zip(ends, self._depths, strict=True)]
        spectral = [depth.spectral for depth in self._depths]
        closer = self._of_rows(raw, [(0, middle) for middle in middles], spectral)
        others = self._of_rows(raw, list(zip(middles, ends, strict=True)), [False] * len(ends))
        return list(zip(closer, others, strict=True))

    def _of_rows(
        self, raw: NDArray[Any], spans: list[tuple[int, int]], spectral: list[bool]
    ) -> list[RowStatistics]:
        """Statistics of a span of rows under every multiplier; equal spans are centred once."""
        found: dict[int, RowStatistics] = {}
        for span in sorted(set(spans)):
            indices = [i for i, each in enumerate(spans) if each == span]
            multipliers = [self.multipliers[i] for i in indices]
            roots = [spectral[i] for i in indices]
            statistics = row_statistics(raw[slice(*span)], multipliers, spectral=roots)
            found |= dict(zip(indices, statistics, strict=True))
        return [found[i] for i in range(len(spans))]

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

    Small groups are drawn several at once, and large ones in slices of keys, so that memory stays
    bounded however many keys there are.
    """
    keys = row_length(design)
    total = shape.key_sets * keys
    out = np.empty((shape.groups, shape.queries, total), scores.precision(design))
    together = _TOGETHER_ELEMENTS // (design.dk * (shape.queries + total))
    if together < 2:
        for group in out:
            _fill_group(generator, design, group, fault)
        return out.reshape(-1, keys)
    for first in range(0, shape.groups, together):
        part = out[first : first + together]
        q = scores.vectors(generator, design, design.query, len(part) * shape.queries, fault)
        k = scores.vectors(generator, design, design.key, len(part) * total, fault)
        of_groups = (x.reshape(design.dk, len(part), -1).transpose(1, 0, 2) for x in (q, k))
        for group, queries, own in zip(part, *of_groups, strict=True):
            group[:] = scores.products(design, queries, own, fault)
    return out.reshape(-1, keys)


def _fill_group(
    generator: np.random.Generator, design: Design, group: NDArray[Any], fault: Fault
) -> None:
    """The scores of one group, shape (queries, keys of all sets), its keys drawn in slices."""
    queries, total = group.shape
    width = max(64, _DRAW_ELEMENTS // design.dk)
    q = scores.vectors(generator, design, design.query, queries, fault)
    for start in range(0, total, width):
        n = min(width, total - start)
        k = scores.vectors(generator, design, design.key, n, fault)
        group[:, start : start + n] = scores.products(design, q, k, fault)


def _sums(closer: RowStatistics, others: RowStatistics, index: int) -> Sums:
    """The sums of one multiplier; ‖J‖₂ is known of the rows that were looked at more closely."""
    parts = [closer, others] if len(others.entropy) else [closer]
    counts = [float(len(part.entropy)) for part in parts]
    return {
        f"rows{index}": np.array([sum(counts), counts[0]]),
        f"mean{index}": np.array([_total(parts, name, _sum) for name in AVERAGED]),
        f"square{index}": np.array([_total(parts, name, _sum_of_squares) for name in NORMS]),
    }


def _total(
    parts: list[RowStatistics], name: str, of: Callable[[NDArray[np.float64]], float]
) -> float:
    return sum(of(_column(part, name)) for part in (parts[:1] if name == "spectral" else parts))


def _column(statistics: RowStatistics, name: str) -> NDArray[np.float64]:
    if name == "saturated":
        return (statistics.one_minus_max < 1 - SATURATED).astype(np.float64)
    return cast("NDArray[np.float64]", getattr(statistics, name))


def _sum(x: NDArray[np.float64]) -> float:
    return float(x.sum())


def _sum_of_squares(x: NDArray[np.float64]) -> float:
    return float(np.vdot(x, x))
