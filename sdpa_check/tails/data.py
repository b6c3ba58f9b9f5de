"""Data of any shape → a vector, its median and unit, its quartiles and its largest."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

_CHUNK = 1 << 17
"""Elements that are promoted to float64 at a time."""

_LEAST_BLOCKS = 8
"""The fewest groups behind an error bar that does not assume independence."""


@dataclass(frozen=True, slots=True)
class Centre:
    """Data as (x − median)/unit in float64, `unit` a power of two: exact but for the difference."""

    median: float
    unit: float

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """The data x as counted from here."""
        return x.astype(np.float64) / self.unit - self.median / self.unit


ORIGIN = Centre(0.0, 1.0)


def checked(x: ArrayLike, block_axis: int | None = None) -> tuple[NDArray[Any], int | None]:
    """The data as a vector, slices along the block axis one after the other, and their number."""
    array, blocks = _array(x), None
    if array.size < 2:
        raise InputError("x", f"{array.size} data", "at least 2")
    if block_axis is not None:
        axis = whole(block_axis, -array.ndim, array.ndim - 1, "block_axis")
        array = np.moveaxis(array, axis, 0)
        blocks = len(array)
        if blocks < _LEAST_BLOCKS:
            want = f"an axis with at least {_LEAST_BLOCKS} independent slices, not {blocks}"
            raise InputError("block_axis", block_axis, want)
    flat = array.reshape(-1)
    nan = sum(int(np.count_nonzero(np.isnan(part))) for part in chunks(flat))
    infinite = sum(int(np.count_nonzero(np.isinf(part))) for part in chunks(flat))
    if nan or infinite:
        got = f"{nan} NaN and {infinite} infinite among {flat.size} data"
        raise InputError("x", got, "finite numbers", "find out where they come from")
    return flat, blocks


def _array(x: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:  # rows of unequal length; tensors
        want = "an array of real numbers, or what numpy makes one of"
        raise InputError("x", type(x).__name__, want, f"numpy: {error}") from error
    if isinstance(x, np.ma.MaskedArray):
        hint = "compressed() gives those that are not masked"
        raise InputError("x", "a masked array", "plain numbers", hint)
    if array.dtype.kind not in "iuf":
        got = f"{type(x).__name__} of {array.dtype}"
        hint = "convert it to float32 first" if array.dtype.kind in "bV" else ""  # V: bfloat16
        raise InputError("x", got, "real numbers", hint)
    return array


def whole(value: int, low: int, high: int, where: str = "k") -> int:
    """A whole number from `low` to `high`, or an `InputError` about `where`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise InputError(where, value, f"a whole number from {low} to {high}")
    return number


def chunks(flat: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The data in pieces that are small in float64."""
    return (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))


def unit_of(flat: NDArray[Any]) -> float:
    """A power of two near the largest |x|, so that powers of x/unit neither overflow nor vanish."""
    largest = max(max(abs(float(part.min())), abs(float(part.max()))) for part in chunks(flat))
    return 2.0 ** min(max(math.frexp(largest)[1], -1000), 1023)


def quartiles(flat: NDArray[Any]) -> tuple[float, float, float]:
    """The quartiles, linear between order statistics, without sorting."""
    parted = flat.astype(np.result_type(flat.dtype, np.float32))
    places = [(flat.size - 1) * quarter / 4 for quarter in (1, 2, 3)]
    around = [(math.floor(place), math.ceil(place)) for place in places]
    parted.partition(sorted({index for pair in around for index in pair}))
    low, median, high = (
        (1 - place % 1) * float(parted[a]) + place % 1 * float(parted[b])
        for place, (a, b) in zip(places, around, strict=True)
    )
    return low, median, high


def largest(
    flat: NDArray[Any], centre: Centre, count: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The `count` largest |x − median|/unit in ascending order, and where they stand."""
    top, where = np.empty(0), np.empty(0, np.int64)
    for number, part in enumerate(chunks(flat)):
        size = np.abs(centre(part))
        new = np.flatnonzero(size > (top.min() if top.size == count else -1.0))
        top = np.concatenate([top, size[new]])
        where = np.concatenate([where, new + number * _CHUNK])
        if top.size > count:
            best = np.argpartition(top, -count)[-count:]
            top, where = top[best], where[best]
    order = np.argsort(top)
    return top[order], where[order]
