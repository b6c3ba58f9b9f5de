"""Counts on fixed grids: quantiles of samples too many to keep."""

from __future__ import annotations

from dataclasses import dataclass, field
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

    They are the leading bits of the floating-point format itself: finding the bin of a number is a
    shift, and the grid needs no look at the data.

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
        sign = (x.reshape(-1) + x.dtype.type(0)).view(integer)  # a copy, in which −0 is 0
        code = sign & np.iinfo(integer).max
        code >>= integer(mantissa - self.bits)
        code -= integer(self.first + (bias << self.bits) - 1)
        np.clip(code, 0, self.magnitudes - 1, out=code)
        if not self.signed:
            return np.bincount(code, minlength=self.magnitudes)
        sign >>= integer(8 * sign.itemsize - 1)  # 0 or −1, and c ^ −1 is −1 − c
        code ^= sign
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


@dataclass(frozen=True, slots=True)
class SampleGrid:
    """Bins for x ≥ 0 that follow a first sample, so that each holds about as much of the law.

    Equal bins would blur the quantiles of a law with a pole, such as that of ‖J‖ at its upper end,
    or of one that is narrower than a bin. The first bin starts at 0, the last is open.
    """

    inner: tuple[float, ...]
    _inner: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_inner", np.array(self.inner))

    @classmethod
    def of(cls, x: NDArray[np.float64], bins: int = 2048) -> SampleGrid:
        """Edges at `bins` quantiles of a sample, interpolated in ln x where it is smaller.

        A small sample does not show the tails of its law: one bin in sixteen lies beyond it, over
        its own width to either side.
        """
        logs = np.sort(np.log(np.maximum(x, 2.0**-1000)), axis=None)
        width = max(float(logs[-1] - logs[0]), 1e-9)  # of a constant, up to rounding
        ranks = np.linspace(0, len(logs) - 1, bins)
        inside = np.interp(ranks, np.arange(len(logs)), logs)
        outside = np.linspace(0, width, bins // 32 + 1)[1:]
        edges = np.concatenate([logs[0] - outside, inside, logs[-1] + outside])
        return cls(tuple(np.unique(np.exp(np.clip(edges, -700, 700))).tolist()))

    def counts(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """How many entries of `x` (≥ 0, any shape, no NaN) fall into each bin."""
        bins = np.searchsorted(self._inner, np.sort(x, axis=None), side="right")
        return np.bincount(bins, minlength=len(self.inner) + 1)

    def edges(self) -> NDArray[np.float64]:
        """The edges of the bins, one more than there are bins, from 0 to ∞."""
        return np.array([0.0, *self.inner, np.inf])
