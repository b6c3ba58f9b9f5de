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

_TILE_SCORES = 1 << 16
"""Scores of a block that are looked at one by one, for the fourth moment and the histogram."""


@dataclass(frozen=True, slots=True)
class DotWork:
    """Blocks of `vectors` queries × `vectors` keys, all n·n pairs used.

    Sums of a block, with s counted from `pivot` and t a tile of up to 65,536 of the block's scores:
    ``pairs`` n², ``power1`` Σs, ``power2`` Σs²; ``tile`` the number of tile scores, ``tile1`` …
    ``tile4`` Σt … Σt⁴; ``histogram`` counts of t on `grid`.

    Σs² over all pairs costs no n×n matrix: it is ⟨QQᵀ, KKᵀ⟩ (performance: shared pairs).
    """

    design: Design
    vectors: int
    fault: Fault = dataclasses.field(default_factory=Fault)
    stream: str = "main"

    @property
    def experiment(self) -> str:
        """The design, the block shape and the stream, as canonical JSON."""
        key = {"dot": dataclasses.asdict(self.design), "n": self.vectors, "stream": self.stream}
        return json.dumps(key, sort_keys=True)

    @property
    def size(self) -> int:
        """Dot products in a block."""
        return self.vectors * self.vectors

    @property
    def cost(self) -> float:
        """Elementary operations of a block, roughly: what one drawn normal costs counts as 32."""
        n, d = self.vectors, self.design.dk
        products = 2 * n * d * d if self._gram else n * n * d
        return 64.0 * n * d + products + 64.0 * min(n * n, _TILE_SCORES)

    @property
    def grid(self) -> LogGrid:
        """Histogram bins for s, around the scale σ_q σ_k of one product."""
        unit = round(math.log2(self.design.query.sigma * self.design.key.sigma))
        return LogGrid.octaves(unit - 14, unit + 60)

    @property
    def pivot(self) -> float:
        """The location from which powers and bins of s are counted."""
        return scores.pivot(self.design)

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw one block and return its sums."""
        design, n = self.design, self.vectors
        q = scores.vectors(generator, design, design.query, n, self.fault)
        k = scores.vectors(generator, design, design.key, n, self.fault)
        if self._gram:
            tile = _tile(q, k)
            sums = _gram_sums(q, k)
        else:
            tile = scores.products(design, q, k, self.fault)
            tile -= tile.dtype.type(self.pivot)
            sums = {}
        sums |= _tile_sums(tile)
        if not self._gram:
            sums |= {"power1": sums["tile1"], "power2": sums["tile2"], "pairs": sums["tile"]}
        with np.errstate(over="ignore"):  # beyond float32 is beyond the grid: the open last bin
            sums["histogram"] = self.grid.counts(tile.astype(np.float32, copy=False))
        return sums

    @property
    def _gram(self) -> bool:
        return _by_gram(self.design)


def block_vectors(design: Design, pairs: int | None = None) -> int:
    """How many queries (and as many keys) a block holds, a power of two.

    The variance of a block's Σs² is about (4/n)/d + 2/n² of its square, so n·d is held near 2^16
    where Gram matrices are used; elsewhere n = 256 balances drawing against multiplying, and all
    n² scores are looked at one by one. With `pairs`, the wanted number of pairs in a block, the
    block is no larger than that.
    """
    n = max((1 << 16) // design.dk, 1024) if _by_gram(design) else 256
    n = 1 << (n.bit_length() - 1)
    if pairs is not None:
        n = min(n, 1 << max(1, math.isqrt(pairs).bit_length() - 1))
    return n


def _by_gram(design: Design) -> bool:
    """Whether Σs² comes from Gram matrices: small d_k, s centred, q and k independent."""
    centred = not design.query.mean and not design.key.mean
    return centred and design.dk <= _GRAM_LIMIT and not parse_dependence(design.corr).qk_rho


def _gram_sums(q: NDArray[Any], k: NDArray[Any]) -> Sums:
    gram_q, gram_k = (q @ q.T).astype(np.float64), (k @ k.T).astype(np.float64)
    ones = np.ones(q.shape[1], q.dtype)
    total_q, total_k = (q @ ones).astype(np.float64), (k @ ones).astype(np.float64)
    return {
        "pairs": np.float64(q.shape[1] * k.shape[1]),
        "power1": np.vdot(total_q, total_k),
        "power2": np.vdot(gram_q, gram_k),
    }


def _tile(q: NDArray[Any], k: NDArray[Any]) -> NDArray[Any]:
    """Up to 65,536 scores in square groups of r×r pairs, r ≈ 2d.

    Up to r ≈ 2d pairs that share vectors are worth as much as independent ones for the fourth
    moment; larger groups would spend scores without gaining precision.
    """
    d, n = q.shape
    r = min(n, 256, max(8, 1 << (2 * d - 1).bit_length()))
    groups = max(1, min(n // r, _TILE_SCORES // (r * r)))
    shape = (d, groups, r)
    queries = q[:, : groups * r].reshape(shape).transpose(1, 2, 0)
    keys = k[:, : groups * r].reshape(shape).transpose(1, 0, 2)
    return queries @ keys


def _tile_sums(tile: NDArray[Any]) -> Sums:
    t = tile.astype(np.float64).reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):  # heavy tails: judged by quantiles instead
        square = t * t
        return {
            "tile": np.float64(t.size),
            "tile1": t.sum(),
            "tile2": square.sum(),
            "tile3": np.vdot(square, t),
            "tile4": np.vdot(square, square),
        }
