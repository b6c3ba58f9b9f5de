"""Every pass of the softmax statistics over the keys: from raw scores to a few sums per row.

The logits of a row are x_i = c·s_i, the largest of them x_(1), the second largest x_(2), their mean
x̄. Two families of sums serve all rows without cancellation:

* about the second largest: f_i = exp(x_i − x_(2)) over all keys but the largest. Σf, Σf² and Σf³
  lie between 1 and m, so they neither overflow nor underflow, however concentrated the row is;
* about the mean: u_i = exp(y_i) − 1 with y_i = x_i − x̄, for flat rows, the nearly uniform ones.

A block of scores lies row-major, (rows, m), or key-major, (m, rows), where rows are so short that
numpy would spend its time on the loop over them; `axis` is always the axis of the keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Scores = NDArray[np.floating[Any]]

FEW_KEYS = 96
"""Shorter rows are worked on key-major."""

BLOCK = 2**17
"""Elements of one scratch array (five are used): small enough to stay near the core."""

_PIECE = 2048  # no float32 sum runs over more terms

# By item size of the scores:
_FLAT = {4: 0.25, 8: 0.5}  # a row is flat when no logit is farther from the mean
_TERMS = {4: 6, 8: 14}  # terms of Σ y^k/(k+2)! that reach rounding at |y| = _FLAT
_LOWEST = {4: -43.0, 8: -230.0}  # exp(2x) is still no subnormal, and m·exp(x) is nothing beside 1
_CLOSEST = {4: 1e-15, 8: 1e-100}  # least t at which 1/t² and its sums stay finite


class Want(NamedTuple):
    """Which sums are wanted under one multiplier, at a pass over the scores or two for each.

    Attributes:
        rows: of how many of the first rows.
        powers: the highest k of Σf^k and Σu^k, from 1 to 3.
        logs: whether Σf·ln f and Σu·y are wanted.
        roots: of how many of the first rows the secular root is wanted; if of any, `powers` must
            be 2 or more.
    """

    rows: int
    powers: int
    logs: bool
    roots: int


@dataclass(frozen=True, slots=True)
class RowSums:
    """What the closed forms need of each row, for one multiplier c; NaN what was not wanted.

    Attributes:
        keys: m.
        gap: x_(1) − x_(2), shape (rows,).
        rise: x_(1) − x̄, shape (rows,).
        flat: whether the sums about the mean apply, shape (rows,).
        second: Σf, Σf², Σf³ and Σf·ln f over all keys but the largest, shape (4, rows); zero where
            the row is flat and no root was asked for.
        mean: Σ(u − y), Σu², Σu³ and Σu·y over all keys, shape (4, rows); zero where not flat.
        root: t with λ_max(diag p − ppᵀ) = p_(2)·(1 + t), shape (rows,).
    """

    keys: int
    gap: Floats
    rise: Floats
    flat: NDArray[np.bool_]
    second: Floats
    mean: Floats
    root: Floats

    def first(self, rows: int) -> RowSums:
        """The sums of the first rows."""
        return RowSums(
            self.keys,
            self.gap[:rows],
            self.rise[:rows],
            self.flat[:rows],
            self.second[:, :rows],
            self.mean[:, :rows],
            self.root[:rows],
        )


def row_sums(scores: Scores, multipliers: Sequence[float], wanted: Sequence[Want]) -> list[RowSums]:
    """The sums of every row for every multiplier; raw scores are searched once per sign.

    Args:
        scores: finite raw scores, float32 or float64, shape (rows, m) with m ≥ 2; not modified.
            Short rows are taken fastest where the scores lie key-major, as the transpose of an
            array (m, rows).
        multipliers: the c of each result, of any sign.
        wanted: what to sum for each multiplier.

    Raises:
        InputError: score differences overflow.
    """
    rows, keys = scores.shape
    axis = 0 if keys < FEW_KEYS <= rows else 1
    height = max(1, BLOCK // keys)
    # Of full size even for few rows: pages never touched cost nothing, and a large block, once
    # freed, keeps malloc from handing memory back and faulting it in again at every call.
    work = np.empty((5, max(BLOCK, keys)), scores.dtype)
    results = [_empty(want.rows, keys) for want in wanted]
    for start in range(0, rows, height):
        block = scores[start : start + height]
        block = block if axis == 1 else block.T
        below = work[0, : block.size].reshape(block.shape)
        for negative in sorted({c < 0 for c in multipliers}):
            centred = _centre(block, axis, below, negative=negative)
            for c, want, result in zip(multipliers, wanted, results, strict=True):
                if (c < 0) == negative and want.rows > start:
                    left = want._replace(rows=want.rows - start, roots=want.roots - start)
                    _fill(result, start, centred.first(left.rows), abs(c), work[1:], want=left)
    return results


def _empty(rows: int, keys: int) -> RowSums:
    gap, rise, root = np.zeros((3, rows))
    second, mean = np.zeros((2, 4, rows))
    root[:] = np.nan
    return RowSums(keys, gap, rise, np.zeros(rows, np.bool_), second, mean, root)


@dataclass(frozen=True, slots=True)
class _Centred:
    """A block of raw scores measured from the second largest of each row, s_i − s_(2).

    `gap` is s_(1) − s_(2); `mean` the mean of `below`, rounded to its precision; `reach` the
    largest distance of a score from the mean.
    """

    below: Scores
    gap: Floats
    mean: Floats
    reach: Floats
    axis: int

    def select(self, index: NDArray[np.intp]) -> _Centred:
        """The rows with these indices, copied unless they are all."""
        if len(index) == len(self.gap):
            return self
        below = np.take(self.below, index, axis=1 - self.axis)
        return _Centred(below, self.gap[index], self.mean[index], self.reach[index], self.axis)

    def first(self, rows: int) -> _Centred:
        """The first rows, or all if there are no more."""
        if rows >= len(self.gap):
            return self
        below = _first(self.below, rows, self.axis)
        return _Centred(below, self.gap[:rows], self.mean[:rows], self.reach[:rows], self.axis)


def _centre(scores: Scores, axis: int, below: Scores, *, negative: bool) -> _Centred:
    """Centre a block of scores, or of −scores, into `below`."""
    # The search over rows marks the largest in place; over keys it needs contiguous rows.
    if negative or axis == 1 or scores.strides[1] != scores.itemsize:
        scores = np.multiply(scores, -1.0 if negative else 1.0, out=below)
    top, second, least = extremes(scores, axis)
    np.subtract(scores, np.expand_dims(second, axis), out=below)
    gap = top.astype(np.float64) - second
    mean = (_total(below, axis) / below.shape[axis]).astype(below.dtype).astype(np.float64)
    if not np.isfinite(mean).all():
        raise InputError("scores", float(top.max()), f"differences that {below.dtype} can hold")
    reach = np.maximum(gap - mean, mean - (least - second))
    return _Centred(below, gap, mean, reach, axis)


def _fill(
    target: RowSums, start: int, rows: _Centred, c: float, work: Scores, *, want: Want
) -> None:
    """Sum what is wanted of a block, whose first row is row `start` of the target."""
    stop = start + len(rows.gap)
    flat = c * rows.reach <= _FLAT[rows.below.itemsize]
    target.gap[start:stop] = c * rows.gap
    target.rise[start:stop] = c * (rows.gap - rows.mean)
    target.flat[start:stop] = flat
    index = np.flatnonzero(flat)
    if len(index):
        at = slice(start, stop) if len(index) == len(flat) else start + index
        target.mean[:, at] = _about_mean(rows.select(index), c, work, want)
    needed = ~flat
    needed[: max(0, want.roots)] = True
    index = np.flatnonzero(needed)
    if len(index):
        chosen = rows.select(index)
        at = slice(start, stop) if len(index) == len(flat) else start + index
        sums, f = _about_second(chosen, c, work, want)
        target.second[:, at] = sums
        if want.roots > 0:  # of rows that are all among those chosen, and come first there
            n = min(want.roots, len(flat))
            gap, f = c * rows.gap[:n], _first(f, n, rows.axis)
            target.root[start : start + n] = _secular_root(
                f, gap, sums[:2, :n], work[1:], rows.axis
            )


def _about_second(rows: _Centred, c: float, work: Scores, want: Want) -> tuple[Floats, Scores]:
    """Σf, Σf², Σf³ and Σf·ln f, and f itself, which lies in the first scratch array."""
    f, x = _views(work, rows.below, 2)
    sums = np.full((4, len(rows.gap)), np.nan)
    np.multiply(rows.below, c, out=x)
    # The largest becomes one more f = 1, which is exact and subtracted from the sums.
    np.clip(x, _LOWEST[x.itemsize], 0.0, out=x)
    np.exp(x, out=f)
    sums[0] = _total(f, rows.axis)
    if want.logs:
        sums[3] = _dot(f, x, rows.axis, out=x)
    if want.powers >= 2:
        np.multiply(f, f, out=x)
        sums[1] = _total(x, rows.axis)
    if want.powers >= 3:
        sums[2] = _dot(f, x, rows.axis, out=x)
    sums[:3] -= 1.0
    return sums, f


def _about_mean(rows: _Centred, c: float, work: Scores, want: Want) -> Floats:
    """Σ(u − y), Σu², Σu³ and Σu·y.

    The series u − y = y²·Σ_k y^k/(k+2)! keeps its relative accuracy however small y is. (expm1
    would lose it to the subtraction, and is slow where numpy has no vector form of it.)
    """
    axis = rows.axis
    u, y = _views(work, rows.below, 2)
    sums = np.full((4, len(rows.gap)), np.nan)
    np.subtract(rows.below, np.expand_dims(rows.mean, axis).astype(y.dtype), out=y)
    y *= c
    terms = _TERMS[y.itemsize]
    np.multiply(y, 1.0 / math.factorial(terms + 1), out=u)
    for k in range(terms, 1, -1):
        u += 1.0 / math.factorial(k)
        u *= y
    u *= y
    sums[0] = _total(u, axis)
    u += y
    if want.logs:
        sums[3] = _dot(u, y, axis, out=work[2, : y.size].reshape(y.shape))
    if want.powers >= 2:
        np.multiply(u, u, out=y)
        sums[1] = _total(y, axis)
    if want.powers >= 3:
        sums[2] = _dot(u, y, axis, out=y)
    return sums


def _secular_root(f: Scores, gap: Floats, sums: Floats, work: Scores, axis: int) -> Floats:
    """The root t ≥ 0 of the secular equation, where λ_max(diag p − ppᵀ) = p_(2)·(1 + t).

    With h = p_(2)/p_(1), g = 1 − h and ψ(t) = Σ f²/(t + 1 − f) over all keys but the largest,
    Σ_i p_i²/(p_i − λ) = 1 reads (1 + t)/(g − h·t) = Σf + ψ(t). In place of ψ stands the κ + s/t
    that touches it at the last iterate. It is nowhere below ψ, so the iterates fall to the root,
    and quadratically: 2 or 3 of them suffice, and no bracket is kept.

    Args:
        f: as above, and 1 for the largest.
        gap: x_(1) − x_(2).
        sums: Σf and Σf².
        work: three scratch arrays.
        axis: that of the keys.
    """
    q, w, product = _views(work, f, 3)
    np.subtract(1.0, f, out=w)
    h, g = np.exp(-gap), -np.expm1(-gap)
    root = _model_root(h, g, sums[0], sums[1])
    for _ in range(20):
        at = np.maximum(root, _CLOSEST[f.itemsize]).astype(f.dtype)
        np.add(w, np.expand_dims(at, axis), out=q)
        np.divide(f, q, out=q)
        t = at.astype(np.float64)
        value = _dot(f, q, axis, out=product) - 1.0 / t
        slope = _dot(q, q, axis, out=product) - 1.0 / t**2
        last, root = root, _model_root(h, g, sums[0] + value - t * slope, t * t * slope)
        # The next step would be about (this step)²/t, to be held against 1 + t.
        if ((last - root) ** 2 <= np.finfo(f.dtype).eps * root * (1.0 + root)).all():
            break
    return root


def _model_root(h: Floats, g: Floats, k: Floats, s: Floats) -> Floats:
    """The root t ≥ 0 of (1 + t)/(g − h·t) = k + s/t, by the formula that does not cancel."""
    a, b = 1.0 + h * k, 1.0 + h * s - g * k
    c = g * s
    d = np.abs(b) + np.sqrt(b * b + 4.0 * a * c)
    return np.where(b > 0.0, 2.0 * c / d, d / (2.0 * a))


def extremes(block: Scores, axis: int) -> tuple[Scores, Scores, Scores]:
    """The largest, the second largest and the smallest along an axis, each of shape (rows,).

    Along the last axis the block is written to, and restored.
    """
    if axis == 0:
        return _knock_out(block)
    row = np.arange(len(block))
    least = block[row, block.argmin(axis=1)]
    first = block.argmax(axis=1)  # argmax is faster than max, partition twenty times slower
    top = block[row, first]
    block[row, first] = -np.inf
    second = block[row, block.argmax(axis=1)]
    block[row, first] = top
    return top, second, least


def _knock_out(block: Scores) -> tuple[Scores, Scores, Scores]:
    """The extremes along axis 0: the second largest is the best of all that lost a match."""
    lost: list[Scores] = []
    least = block[-1]  # the only one that may have no match in the first round
    while len(block) > 1:
        half = len(block) // 2
        one, other = block[:half], block[half : 2 * half]
        losers = np.minimum(one, other)
        if not lost:
            least = np.minimum(least, losers.min(axis=0))
        lost.append(losers.max(axis=0))
        winners = np.empty((len(block) - half, *block.shape[1:]), block.dtype)
        np.maximum(one, other, out=winners[:half])
        winners[half:] = block[2 * half :]
        block = winners
    return block[0], np.max(lost, axis=0), least


def _first(x: Scores, rows: int, axis: int) -> Scores:
    """The first rows of a block whose keys lie along `axis`."""
    return x[:rows] if axis == 1 else x[:, :rows]


def _views(work: Scores, like: Scores, count: int) -> list[Scores]:
    return [buffer[: like.size].reshape(like.shape) for buffer in work[:count]]


@lru_cache(maxsize=64)
def _ones(keys: int, dtype: np.dtype[np.floating[Any]]) -> Scores:
    return np.ones(keys, dtype)


def _total(x: Scores, axis: int) -> Scores:
    """Σ over the keys; a product with ones is several times faster than sum()."""
    keys = x.shape[axis]
    ones = _ones(min(keys, _PIECE), x.dtype)
    if axis == 0:
        return ones @ x
    if keys <= _PIECE:
        return x @ ones
    whole, rest = _pieces(x)
    return np.asarray((whole @ ones).sum(axis=1, dtype=np.float64) + rest @ ones[: rest.shape[1]])


def _dot(x: Scores, y: Scores, axis: int, out: Scores) -> Scores:
    """Σ x·y over the keys; `out` may be overwritten with the products."""
    if axis == 0:
        return _total(np.multiply(x, y, out=out), axis)
    if x.shape[1] <= _PIECE:
        return np.asarray(np.vecdot(x, y))
    (whole_x, rest_x), (whole_y, rest_y) = _pieces(x), _pieces(y)
    total = np.vecdot(whole_x, whole_y).sum(axis=1, dtype=np.float64)
    return np.asarray(total + np.vecdot(rest_x, rest_y))


def _pieces(x: Scores) -> tuple[Scores, Scores]:
    """Views of a row-major block: its pieces, (rows, count, _PIECE), and what is left over."""
    whole = x.shape[1] // _PIECE * _PIECE
    return x[:, :whole].reshape(len(x), -1, _PIECE), x[:, whole:]
