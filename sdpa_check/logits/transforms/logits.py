"""Transforms of the logits that are more than a factor: the soft cap and the bias of ALiBi."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from sdpa_check.logits.transforms.arguments import shown
from sdpa_check.logits.transforms.base import OnLogits, octaves

if TYPE_CHECKING:
    from sdpa_check.logits.transforms.arguments import Arguments
    from sdpa_check.logits.transforms.base import Context, FloatArray


@dataclass(frozen=True, slots=True)
class SoftCap(OnLogits):
    """C tanh(x/C): nearly x while |x| is far below C, never beyond ±C (Gemma 2: C = 50)."""

    name: ClassVar[str] = "softcap"
    tames: ClassVar[bool] = True
    usage: ClassVar[str] = "softcap:C with C > 0; for example softcap:50"
    cap: float

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read C."""
        return cls(given.number(above=0))

    @property
    def arguments(self) -> tuple[str, ...]:
        """C."""
        return (shown(self.cap),)

    def octaves(self, _context: Context) -> float:
        """Those of C, by which it divides and multiplies."""
        return octaves(self.cap)

    def on_logits(self, x: FloatArray, _context: Context) -> FloatArray:
        """C tanh(x/C)."""
        return np.asarray(np.tanh(x / self.cap) * self.cap)


@dataclass(frozen=True, slots=True)
class Alibi(OnLogits):
    """x_j − slope · (m−1−j): a penalty on the distance to key j (Press et al. 2022)."""

    name: ClassVar[str] = "alibi"
    usage: ClassVar[str] = "alibi:SLOPE with SLOPE ≥ 0; for example alibi:0.5"
    slope: float

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read the slope."""
        return cls(given.number(at_least=0))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The slope."""
        return (shown(self.slope),)

    def octaves(self, context: Context) -> float:
        """Those of the largest penalty, if it is large."""
        return octaves(max(1.0, self.slope * context.keys))

    def on_logits(self, x: FloatArray, context: Context) -> FloatArray:
        """Subtract the penalty of every key from its column."""
        penalty = self.slope * np.arange(context.keys - 1, -1, -1.0)
        return x - penalty.astype(x.dtype)
