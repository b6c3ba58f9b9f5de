"""Raw scores of a block of rows: which queries see which sets of keys, and how these are drawn."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.distributions import parse_dependence, stratified_normals
from sdpa_check.measures import scores
from sdpa_check.rowsums import FEW_KEYS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.records import Design, Fault

_BLOCK_SCORES = 1 << 18
_BLOCK_ROWS = 1 << 14
_MOST_VECTORS = 512  # queries, or keys, of a group: a block should not be one group of many rows
_FEWEST_QUERIES = 16  # fewer would make products slow
_GROUP_SCORES = 1 << 20
_DRAW_ELEMENTS = 1 << 21
_TOGETHER_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class RowsShape:
    """What a block holds: `groups` times `queries` queries against `key_sets` sets of m keys each.

    Rows of one group share queries and key sets, which makes them cheap to draw, but then says
    less: all rows of a query have its norm, and all rows of a key set its spread.
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
    def fitting(
        cls, dk: int, keys: int, rows: int | None = None, *, free: int | None = None
    ) -> RowsShape:
        """The cheapest shape for a precision; of at most about `rows` rows if given.

        With n queries against s key sets a mean over rows has a variance in proportion to
        (d' + s·m + n)/(n·s): the variance of a logit within a row differs between queries by 2/d'
        of its square, between key sets by 2/(m·d'), and between rows by 2/m, d' being the number
        of independent components that a query is worth. Where drawing two components costs as
        much as measuring a score, the group costs n·s·m + d·(n + s·m)/2 scores. The product of
        both is least near s·m = √(d·d'/2) keys, but at least one set of them, and
        n = √(d·(d' + s·m)/2) queries, and changes slowly about that.

        Where few components are free, all queries look along much the same direction and find the
        same keys largest: rows of a key set then share more than its spread, and 16·(d' + 1)
        queries are enough.

        Args:
            dk: number of components d of a query.
            keys: number m of keys in a row.
            rows: the wanted number of rows in a block; None for about 2^18 scores.
            free: d'; None for `dk`, where all components are independent.
        """
        free = dk if free is None else free
        sets = _power_of_two(max(1.0, min(_MOST_VECTORS, math.sqrt(dk * free / 2)) / keys))
        most = min(_MOST_VECTORS, 16 * (free + 1), max(8, _GROUP_SCORES // (sets * keys)))
        wanted = _power_of_two(math.sqrt(dk * (free + sets * keys) / 2))
        queries = min(most, max(_FEWEST_QUERIES, wanted))
        room = min(_BLOCK_ROWS, _BLOCK_SCORES // keys)
        groups = max(1, room // (queries * sets))
        if rows is not None and rows < groups * queries * sets:
            sets = max(1, min(sets, rows // 16))
            queries = max(1, min(queries, rows // sets))
            groups = max(1, rows // (queries * sets))
        return cls(groups, queries, sets)

    def merged(self, most: int) -> RowsShape:
        """As many rows and key sets, where up to `most` groups have the queries of one."""
        together = math.gcd(self.groups, most)
        return RowsShape(self.groups // together, self.queries, self.key_sets * together)

    def split(self, parts: int) -> RowsShape:
        """A `parts`-th of the groups, but at least one."""
        return dataclasses.replace(self, groups=max(1, self.groups // parts))


def _power_of_two(x: float) -> int:
    """The one nearest to x in ratio."""
    return 1 << round(math.log2(x))


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

    Rows come group by group; within it query by query, but short ones key set by key set: those
    lie in memory key by key, as `rowsums` takes them fastest. Small groups are drawn several at
    once, and the keys of large ones in slices, so that memory stays bounded however many there are.
    """
    keys = row_length(design)
    short = keys < FEW_KEYS
    vectors = shape.queries + shape.key_sets * keys
    together = max(1, _TOGETHER_ELEMENTS // (design.dk * vectors))
    parts = [
        _group_scores(
            generator,
            design,
            dataclasses.replace(shape, groups=min(together, shape.groups - first)),
            fault,
            key_major=short,
        )
        for first in range(0, shape.groups, together)
    ]
    found = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if not short:
        return found.reshape(-1, keys)
    found = found.reshape(shape.groups, shape.key_sets, keys, shape.queries)
    return found.transpose(2, 0, 1, 3).reshape(keys, -1).T


def dealt_scores(
    generator: np.random.Generator, design: Design, shape: RowsShape, fault: Fault
) -> NDArray[Any]:
    """Scores as from `raw_scores`, for short rows of vectors with a strong common factor.

    A row depends on its vectors mostly through one number w of each. Drawn like others, means over
    rows would vary much between blocks, with the w of the queries and with the key sets.

    - The w of the queries of a block are stratified, and so are, for every place j = 1, …, m in a
      row, those of the keys that are at this place in the key sets of the block. Keys of different
      places are independent.
    - Key sets are dealt anew to every query of a group: at place j the row of query i and set s has
      the key of set s + t_ij modulo the number of sets. In t_·j, in random order, all sets are
      equally frequent, so that the first rows of a block, s by s, have all queries and all keys.

    So every row still is one of a query and m keys that are all independent, and a mean over rows
    keeps its expectation. Rows are less alike than where all queries see the same key sets, and
    what depends on one vector alone nearly cancels in a block. Rows of a block are as little
    independent as ever, and any two may share keys.

    Returns:
        (rows, m), set by set, then group by group, then query by query; one group is in memory at
        once.
    """
    keys, sets, queries = row_length(design), shape.key_sets, shape.queries
    of_queries = stratified_normals(generator, 1, shape.groups, queries)[0]
    of_keys = stratified_normals(generator, keys, shape.groups, sets)
    turns = np.broadcast_to(np.arange(queries) % sets, (keys, queries))
    turns = generator.permuted(turns, axis=1)
    places = np.arange(keys)[:, None, None]
    dealt = (np.arange(sets)[:, None] + turns[:, None]) % sets  # (m, sets, queries)
    taken = (dealt * keys + places) * queries + np.arange(queries)
    found = np.empty((keys, sets, shape.groups, queries), scores.precision(design))
    for group, common in enumerate(of_queries):
        own = of_keys[:, group].T.reshape(-1)
        q = scores.vectors(generator, design, design.query, queries, fault, common=common)
        k = scores.vectors(generator, design, design.key, sets * keys, fault, common=own)
        found[:, :, group] = np.take(scores.products(design, k, q, fault), taken)
    return found.reshape(keys, -1).T


def _group_scores(
    generator: np.random.Generator,
    design: Design,
    shape: RowsShape,
    fault: Fault,
    *,
    key_major: bool,
) -> NDArray[Any]:
    """The scores of some groups: (groups, queries, keys of all sets), or the last two exchanged."""
    d, groups, total = design.dk, shape.groups, shape.key_sets * row_length(design)
    drawn = scores.vectors(generator, design, design.query, groups * shape.queries, fault)
    q = drawn.reshape(d, groups, shape.queries).transpose(1, 0, 2)

    def products(n: int) -> NDArray[Any]:
        """The scores of the next n keys of every group."""
        drawn = scores.vectors(generator, design, design.key, groups * n, fault)
        k = drawn.reshape(d, groups, n).transpose(1, 0, 2)
        return _products(design, q, k, fault, key_major=key_major)

    width = max(64, _DRAW_ELEMENTS // d)
    if groups > 1 or total <= width:
        return products(total)
    found = np.empty((1, total, shape.queries) if key_major else (1, shape.queries, total), q.dtype)
    by_key = found if key_major else found.transpose(0, 2, 1)
    for start in range(0, total, width):
        piece = products(min(width, total - start))
        by_key[:, start : start + width] = piece if key_major else piece.transpose(0, 2, 1)
    return found


def _products(
    design: Design, q: NDArray[Any], k: NDArray[Any], fault: Fault, *, key_major: bool
) -> NDArray[Any]:
    """The scores (groups, n, m), or (groups, m, n): q·k is k·q, unless k depends on q."""
    if not key_major:
        return scores.products(design, q, k, fault)
    if parse_dependence(design.corr).qk_rho:
        return scores.products(design, q, k, fault).transpose(0, 2, 1)
    return scores.products(design, k, q, fault)
