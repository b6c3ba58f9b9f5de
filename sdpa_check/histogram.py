"""Counts on a fixed logarithmic grid: quantiles of samples too many to keep.

The bins are the leading bits of the floating-point format itself, so finding the bin of a number
is a shift, every octave is cut into 2**bits equal parts, and the grid needs no look at the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FORMATS: dict[np.dtype[Any], tuple[type[np.int32 | np.int64], int, int]] = {
    np.dtype(np.float32): (np.int32, 23, 127),
    np.dtype(np.float64): (np.int64, 52, 1023),
}


@dataclass(frozen=True, slots=True)
class LogGrid:
    """Bins for |x| that cut every octave [2^e, 2^(e+1)) into 2**bits equal parts.

    The inner bins start at edge number `first` and there are `inner` of them; edge number c is
    2^e · (1 + r/2**bits) with e, r the quotient and the remainder of c by 2**bits. One bin takes
    everything from 0 up to the first edge, an open one everything from the last edge upwards. A
    signed grid mirrors all bins to negative numbers.
    """

    first: int
    inner: int
    bits: int
    signed: bool = False

    @classmethod
    def octaves(cls, low: int, high: int, bits: int = 7, *, signed: bool = True) -> LogGrid:
        """The grid from 2**low to 2**high."""
        return cls(low << bits, (high - low) << bits, bits, signed)

    @classmethod
    def around(cls, x: NDArray[np.float64], inner: int = 2048) -> LogGrid:
        """A grid of at most `inner` inner bins over the bulk, 0.5 % to 99.5 %, of a sample x ≥ 0.

        As fine as that allows, so a narrow sample gets narrow bins and one that spreads over
        many orders of magnitude wide ones.
        """
        positive = np.quantile(x, [0.005, 0.995], method="nearest")
        low, high = (float(v) for v in np.maximum(positive, 2.0**-1000))
        bits = 40
        while bits and _edge_number(high, bits) - _edge_number(low, bits) >= inner:
            bits -= 1
        first = _edge_number(low, bits)
        return cls(first, min(inner, _edge_number(high, bits) + 1 - first), bits)

    @property
    def magnitudes(self) -> int:
        """The number of bins for |x|."""
        return self.inner + 2

    def counts(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """How many entries of `x` (float32 or float64, any shape, no NaN) fall into each bin.

        Raises:
            InputError: if the dtype is neither float32 nor float64.
        """
        if x.dtype not in _FORMATS:
            raise InputError("x.dtype", str(x.dtype), "float32 or float64")
        integer, mantissa, bias = _FORMATS[x.dtype]
        flat = np.ascontiguousarray(x).reshape(-1)
        code = np.abs(flat).view(integer) >> (mantissa - self.bits)
        code -= integer(self.first + (bias << self.bits) - 1)
        np.clip(code, 0, self.magnitudes - 1, out=code)
        if not self.signed:
            return np.bincount(code, minlength=self.magnitudes)
        np.copyto(code, -1 - code, where=flat < 0)
        code += integer(self.magnitudes)
        return np.bincount(code, minlength=2 * self.magnitudes)

    def edges(self) -> NDArray[np.float64]:
        """The edges of the bins, one more than there are bins; the open ends are ±∞."""
        number = self.first + np.arange(self.inner + 1)
        octave, part = number >> self.bits, number & ((1 << self.bits) - 1)
        inner = np.ldexp(1 + part / (1 << self.bits), octave)
        positive = np.concatenate([inner, [np.inf]])
        if not self.signed:
            return np.concatenate([[0.0], positive])
        return np.concatenate([-positive[::-1], [0.0], positive])


def _edge_number(x: float, bits: int) -> int:
    """The number of the last edge at or below x > 0."""
    fraction, exponent = math.frexp(x)
    return ((exponent - 1) << bits) + int((2 * fraction - 1) * (1 << bits))
