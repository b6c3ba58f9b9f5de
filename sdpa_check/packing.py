"""Sums of blocks as they travel between processes: histograms are mostly zeros, and get short."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHORT: Final = 512  # shorter vectors travel as they are


def packed(value: object) -> bytes:
    """A picklable value as bytes; the vectors in a dict of arrays without most of their zeros."""
    if isinstance(value, dict):
        value = {name: _sparse(each) for name, each in value.items()}
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes | bytearray) -> Any:
    """The value that `packed` made `data` of; only for data that our own code has sent."""
    value = pickle.loads(data)  # noqa: S301, see above
    if isinstance(value, dict):
        value = {name: _dense(each) for name, each in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class _Sparse:
    """A vector that is mostly zeros, by the places of its other entries."""

    size: int
    places: NDArray[np.int32]
    values: NDArray[Any]


def _sparse(value: object) -> object:
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.size < _SHORT:
        return value
    places = np.flatnonzero(value)
    if 4 * len(places) > value.size:
        return value
    return _Sparse(value.size, places.astype(np.int32), value[places])


def _dense(value: object) -> object:
    if not isinstance(value, _Sparse):
        return value
    full = np.zeros(value.size, value.values.dtype)
    full[value.places] = value.values
    return full
