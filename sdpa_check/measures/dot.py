"""Dot products: power sums and a histogram of s = q·k from blocks of shared pairs."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.distributions import parse_dependence
from sdpa_check.histogram import LogGrid
from sdpa_check.measures import scores
from sdpa_check.records import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.engine import Sums
    from sdpa_check.records import Design

_GRAM_LIMIT = 256
"""Up to this d_k two d×d Gram matrices cost less than the n×n scores of the block shape below."""

_TILE_SCORES = 1 << 17
"""Scores of a block that are looked at one by one, for the fourth moment and the histogram."""


PARTS = ("powers", "tile", "histogram", "growth")
"""What a block can return: Σs and Σs²; power sums up to the fourth; counts; see `DotWork`."""


@dataclass(frozen=True, slots=True)
class DotWork:
    """Blocks of `vectors` queries and as many keys.

    Sums of a block, with s counted from `pivot` and t a tile of up to 131,072 of the scores, for
    those of `PARTS` that are wanted: ``pairs`` the number of s, ``power1`` Σs, ``power2`` Σs²;
    ``tile1`` … ``tile4`` Σt … Σt⁴; ``histogram`` counts of t on `grid`; ``growth`` the logarithms
    of the mean square of N/16, N/4 and N independent dot products, and 1 for the block. Where
    there is a tile, ``tile`` is the number of t.

    Where they can, Σs and Σs² run over all vectors² pairs at the cost of no n×n matrix:
    Σs² = ⟨QQᵀ, KKᵀ⟩ (performance: shared pairs). Elsewhere they are those of the tile.
    """

    design: Design
    vectors: int
    fault: Fault = dataclasses.field(default_factory=Fault)
    stream: str = "main"
    parts: tuple[str, ...] = PARTS

    @property
    def experiment(self) -> str:
        """The design, the block shape and the stream, as canonical JSON; parts share draws."""
        key = {"dot": dataclasses.asdict(self.design), "n": self.vectors, "stream": self.stream}
        return json.dumps(key, sort_keys=True)

    @property
    def size(self) -> int:
        """Dot products in a block."""
        side, groups = self.tiling
        return self.vectors**2 if by_gram(self.design, self.parts) else side * side * groups

    @property
    def cost(self) -> float:
        """Elementary operations of a block, roughly: what one drawn normal costs counts as 32."""
        n, d, (side, groups) = self.vectors, self.design.dk, self.tiling
        gram = 2 * n * d * d if by_gram(self.design, self.parts) else 0
        looks = 16.0 * len(self.parts) + d if self._tiled else 0.0
        return 64.0 * n * d + gram + looks * side * side * groups

    @property
    def _tiled(self) -> bool:
        return self.parts != ("powers",) or not by_gram(self.design, self.parts)

    @property
    def tiling(self) -> tuple[int, int]:
        """(r, groups): the tile is `groups` squares of r × r pairs, no two of which share a vector.

        r is that of `tile_side`, or all vectors where they are fewer.
        """
        side = min(self.vectors, tile_side(self.design, self.parts))
        return side, max(1, min(self.vectors // side, _TILE_SCORES // (side * side)))

    @property
    def grid(self) -> LogGrid:
        """Histogram bins for s, around the scale σ_q σ_k of one product."""
        unit = round(math.log2(self.design.query.sigma * self.design.key.sigma))
        return LogGrid.octaves(unit - 14, unit + 60)

    @property
    def pivot(self) -> float:
        """The location from which powers and bins of s are counted."""
        return scores.pivot(self.design)

    def split(self, parts: int) -> DotWork:
        """The same work: there are no groups in a block that could be left out."""
        del parts
        return self

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw one block and return its sums."""
        design, n = self.design, self.vectors
        q = scores.vectors(generator, design, design.query, n, self.fault)
        k = scores.vectors(generator, design, design.key, n, self.fault)
        sums = self._of_tile(self._tile(q, k)) if self._tiled else {}
        if by_gram(design, self.parts):
            sums |= _gram_sums(q, k)
        elif "powers" in self.parts:
            sums |= {"power1": sums["tile1"], "power2": sums["tile2"], "pairs": sums["tile"]}
        return sums

    def _of_tile(self, tile: NDArray[Any]) -> Sums:
        sums: Sums = {"tile": np.array(float(tile.size))}
        if "tile" in self.parts or not by_gram(self.design, self.parts):
            sums |= _tile_sums(tile, 4 if "tile" in self.parts else 2)
        if "growth" in self.parts:
            sums["growth"] = _growth(np.diagonal(tile, axis1=1, axis2=2).reshape(-1))
        if "histogram" in self.parts:
            with np.errstate(over="ignore"):  # beyond float32 is beyond the grid: its last bin
                sums["histogram"] = self.grid.counts(tile.astype(np.float32, copy=False))
        return sums

    def _tile(self, q: NDArray[Any], k: NDArray[Any]) -> NDArray[Any]:
        """The scores of the tile, shape (groups, r, r), counted from the pivot."""
        (d, _), (side, groups) = q.shape, self.tiling
        shape = (d, groups, side)
        queries = q[:, : groups * side].reshape(shape).transpose(1, 0, 2)
        keys = k[:, : groups * side].reshape(shape).transpose(1, 0, 2)
        tile = scores.products(self.design, queries, keys, self.fault)
        if self.pivot:
            tile -= tile.dtype.type(self.pivot)
        return np.asarray(tile)


def block_vectors(design: Design, pairs: int | None = None, parts: tuple[str, ...] = PARTS) -> int:
    """How many queries (and as many keys) a block holds, a power of two.

    The variance of a block's Σs² is about (4/n)/d + 2/n² of its square, d being the effective
    dimension, so n·d is held near 2^16 where Gram matrices are used; elsewhere n = 256 balances
    drawing against multiplying, and n = 512 where nothing but scores is wanted. Blocks of dependent
    components hold no more vectors than their tile. With `pairs`, the wanted number of pairs in a
    block, the block is no larger than that.
    """
    n = 256 if "powers" in parts else 512
    if by_gram(design, parts):
        d = scores.effective_dimension(design)
        n = max((1 << 16) // d, 1024)
        n = min(n, max(1024, (1 << 19) // design.dk))
        if d < design.dk:
            n = min(n, _TILE_SCORES // tile_side(design, parts))
    elif _heavy(design):
        n = max(256, min(1024, (1 << 18) // design.dk))
    n = 1 << (n.bit_length() - 1)
    if pairs is not None:
        n = min(n, 1 << max(1, math.isqrt(pairs).bit_length() - 1))
    return n


def tile_side(design: Design, parts: tuple[str, ...] = PARTS) -> int:
    """How many queries, and as many keys, share their pairs in a tile, a power of two.

    Up to about 2d pairs that share vectors are worth as much as independent ones for the fourth
    moment, d being the effective dimension; much larger squares would spend scores without gaining
    precision. Where components depend on each other, drawing d_k of them tells of few: then a side
    of 8√d_k is best (at d_k = 64 it beats 8 by a factor of 2 to 3), as the best side grows with the
    root of what drawing a vector costs beside a score. Where keys depend on their query all scores
    of a query have much in common, and 64 keys are enough. Where nothing but scores is wanted a
    square of 8d still gains more than it costs, for drawing is most of the work. Under heavy tails
    the vectors differ more from each other, and smaller squares bring in more of them.
    """
    d = scores.effective_dimension(design)
    alone, heavy = "powers" not in parts, _heavy(design)
    least = 8 if d == design.dk else math.isqrt(64 * design.dk)
    side = max(least, (8 if alone and not heavy else 2) * d)
    few = heavy or parse_dependence(design.corr).qk_rho
    return min(1 << (side - 1).bit_length(), 64 if few else 512 if alone else 256)


def _heavy(design: Design) -> bool:
    """Whether the fourth moment is infinite, so that quantiles are judged and not moments."""
    return scores.tail_index(design) <= 4


def by_gram(design: Design, parts: tuple[str, ...] = PARTS) -> bool:
    """Whether Σs² comes from Gram matrices: small d_k, light tails, s centred, q ⟂ k."""
    if "powers" not in parts:
        return False
    centred = not design.query.mean and not design.key.mean
    independent = not parse_dependence(design.corr).qk_rho
    return centred and independent and design.dk <= _GRAM_LIMIT and not _heavy(design)


def _gram_sums(q: NDArray[Any], k: NDArray[Any]) -> Sums:
    gram_q, gram_k = (q @ q.T).astype(np.float64), (k @ k.T).astype(np.float64)
    ones = np.ones(q.shape[1], q.dtype)
    total_q, total_k = (q @ ones).astype(np.float64), (k @ ones).astype(np.float64)
    return {
        "pairs": np.float64(q.shape[1] * k.shape[1]),
        "power1": np.vdot(total_q, total_k),
        "power2": np.vdot(gram_q, gram_k),
    }


def _growth(pairs: NDArray[Any]) -> NDArray[np.float64]:
    """Ln of the mean square of the first n/16, n/4 and n numbers; and 1, which counts blocks.

    Where the variance is infinite the mean square of n numbers grows with n. Its logarithm has
    all moments whatever the tail, so that this growth has an honest error bar.
    """
    n = len(pairs)
    sizes = [max(1, n // 16), max(1, n // 4), n]
    with np.errstate(over="ignore", divide="ignore"):  # all of a few lattice numbers may be 0
        squares = np.cumsum(np.square(pairs, dtype=np.float64))
        return np.array([*(np.log(squares[size - 1] / size) for size in sizes), 1.0])


def _tile_sums(tile: NDArray[Any], highest: int) -> Sums:
    """Σt … Σt^`highest`, which is 2 or 4."""
    t = tile.astype(np.float64).reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):  # heavy tails: judged by quantiles instead
        if highest == 2:
            return {"tile1": t.sum(), "tile2": np.vdot(t, t)}
        square = t * t
        return {
            "tile1": t.sum(),
            "tile2": square.sum(),
            "tile3": np.vdot(square, t),
            "tile4": np.vdot(square, square),
        }
