"""Rounding to the floating-point types of accelerators, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self

import numpy as np

from sdpa_check.logits.transforms.base import OnLogits, OnVectors

if TYPE_CHECKING:
    from sdpa_check.logits.transforms.arguments import Arguments
    from sdpa_check.logits.transforms.base import Context, FloatArray

_BF16_FRACTION: Final = 7
_BF16_OVERFLOW: Final = 2.0**128
_BF16_NORMAL: Final = 2.0**-126
_BF16_STEP: Final = 2.0**-133
"""The spacing of bfloat16 below 2^-126, where numbers are subnormal."""


def to_float16(x: FloatArray) -> FloatArray:
    """Round to the nearest float16, ties to even, in the dtype of x; ±∞ from 65520 on."""
    with np.errstate(over="ignore", under="ignore"):
        return x.astype(np.float16).astype(x.dtype)


def to_bfloat16(x: FloatArray) -> FloatArray:
    """Round float32 or float64 to the nearest bfloat16, ties to even, in the dtype of x.

    Of the fraction bits of x the first 7 are kept. Adding just below half of the last kept bit,
    or exactly half where that bit is odd, carries into it when and only when the number must be
    rounded up; a carry out of the fraction raises the exponent, as it should. float64 goes
    directly, since rounding to float32 in between could make or break a tie.
    """
    whole = np.dtype(f"u{x.dtype.itemsize}").type
    drop = whole(np.finfo(x.dtype).nmant - _BF16_FRACTION)
    half, one = whole(1) << (drop - whole(1)), whole(1)
    bits = x.view(whole)
    bits = (bits + (half - one + (bits >> drop & one))) >> drop << drop
    rounded: FloatArray = bits.view(x.dtype)
    if x.dtype == np.float64:  # which has exponents that bfloat16 lacks
        rounded[np.abs(rounded) >= _BF16_OVERFLOW] *= np.inf
        small = np.abs(x) < _BF16_NORMAL
        rounded[small] = np.rint(x[small] / _BF16_STEP) * _BF16_STEP
    rounded[np.isnan(x)] = np.nan
    return rounded


@dataclass(frozen=True, slots=True)
class Round(OnVectors, OnLogits):
    """Rounds to float16 or bfloat16 and back: q and k before the score, the logits after it.

    What overflows becomes ±∞, as in hardware.
    """

    name: ClassVar[str] = "dtype"
    usage: ClassVar[str] = "dtype:float16 or dtype:bfloat16"
    kind: str

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read the name of the type."""
        return cls(given.choice(("float16", "bfloat16")))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The name of the type."""
        return (self.kind,)

    def rounded(self, x: FloatArray) -> FloatArray:
        """Round x."""
        return to_float16(x) if self.kind == "float16" else to_bfloat16(x)

    def octaves(self, _context: Context) -> float:
        """∞: of float32 the result would be rounded twice."""
        return math.inf

    def on_vectors(
        self, q: FloatArray, k: FloatArray, _context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """Round q and k."""
        return self.rounded(q), self.rounded(k)

    def on_logits(self, x: FloatArray, _context: Context) -> FloatArray:
        """Round the logits."""
        return self.rounded(x)
