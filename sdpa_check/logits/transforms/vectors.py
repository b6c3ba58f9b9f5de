"""Transforms of q and k: the norms of QK-norm, and rotation by position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeAlias

import numpy as np
from numpy import typing as npt

from sdpa_check.logits.transforms.arguments import trimmed
from sdpa_check.logits.transforms.base import OnVectors, octaves

if TYPE_CHECKING:
    from sdpa_check.logits.transforms.arguments import Arguments
    from sdpa_check.logits.transforms.base import Context, FloatArray

_NORMS: Final = ("rms", "layer", "l2")
_BASE: Final = 10000.0


def normalised(x: FloatArray, size: float, *, centre: bool = False) -> FloatArray:
    """Give every column of x (…, d, n) the Euclidean norm `size`, less its mean if asked.

    There is no ε in the divisor: a column of zeros has no direction and becomes NaN.
    """
    directed = x - x.mean(axis=-2, keepdims=True) if centre else x
    out = np.asarray(np.square(directed))
    np.multiply(directed, size / np.sqrt(out.sum(axis=-2, keepdims=True)), out=out)
    return out


@dataclass(frozen=True, slots=True)
class QKNorm(OnVectors):
    """Normalises every query and key, then multiplies by a gain.

    Source: Henry et al. 2020 (``l2``), Dehghani et al. 2023 (``layer``).

    - ``rms``: q/√(mean q²), of norm √d.
    - ``layer``: (q − mean q)/std q with the biased std, of norm √d.
    - ``l2``: q/‖q‖, of norm 1.
    """

    name: ClassVar[str] = "qk_norm"
    tames: ClassVar[bool] = True
    usage: ClassVar[str] = (
        "qk_norm:KIND[,gain] with KIND rms, layer or l2 and a gain > 0; for example qk_norm:rms"
    )
    kind: str
    gain: float = 1.0

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read the kind of norm and the gain."""
        return cls(given.choice(_NORMS), given.number(1.0, above=0))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The kind, and the gain where it is not 1."""
        return trimmed((self.kind, None), (self.gain, 1.0))

    def objection(self, context: Context) -> str:
        """LayerNorm needs a second component."""
        alone = self.kind == "layer" and context.dk < 2
        return "with d_k = 1 nothing is left of q − mean q" if alone else ""

    def octaves(self, context: Context) -> float:
        """Those of the norm."""
        return octaves(self.size(context))

    def size(self, context: Context) -> float:
        """The norm that q and k get."""
        return self.gain * (1.0 if self.kind == "l2" else math.sqrt(context.dk))

    def on_vectors(
        self, q: FloatArray, k: FloatArray, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """Normalise q and k alike."""
        size, centre = self.size(context), self.kind == "layer"
        return normalised(q, size, centre=centre), normalised(k, size, centre=centre)


@dataclass(frozen=True, slots=True)
class RoPE(OnVectors):
    """Rotates the pair (2i, 2i+1) by position · base^(−2i/d) (Su et al. 2021, equation 15).

    The query stands at m−1+offset, the keys at 0 … m−1. Only differences of positions matter to
    the scores: an offset moves the query away from all of the keys.
    """

    name: ClassVar[str] = "rope"
    usage: ClassVar[str] = (
        "rope[:base[,offset]] with a base > 0 and an even d_k; for example rope:500000"
    )
    base: float = _BASE
    offset: float = 0.0

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read the base and the offset."""
        return cls(given.number(_BASE, above=0), given.number(0.0))

    @property
    def arguments(self) -> tuple[str, ...]:
        """Base and offset, as far as they are not 10000 and 0."""
        return trimmed((self.base, _BASE), (self.offset, 0.0))

    def objection(self, context: Context) -> str:
        """Pairs need an even number of components."""
        return f"d_k = {context.dk} is odd and cannot be split into pairs" * (context.dk % 2)

    def octaves(self, _context: Context) -> float:
        """None: it keeps norms."""
        return 0.0

    def on_vectors(
        self, q: FloatArray, k: FloatArray, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """Rotate q and k by their positions."""
        pairs, last = context.dk // 2, context.keys - 1 + self.offset
        turns = _turns if pairs * context.keys <= _KEPT else _turns.__wrapped__
        of_q = turns(self.base, pairs, last, 1)
        return _rotated(q, *of_q), _rotated(k, *turns(self.base, pairs, 0.0, context.keys))

    def rotated(self, x: FloatArray, positions: npt.NDArray[np.number]) -> FloatArray:
        """Rotate the columns of x (…, d, n) by their positions (n,), or by one position (1,)."""
        return _rotated(x, *_cos_sin(self.base, x.shape[-2] // 2, positions))


_KEPT: Final = 1 << 16
"""Angles that are kept for the next block."""

_Turns: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


@lru_cache(maxsize=8)
def _turns(base: float, pairs: int, first: float, count: int) -> _Turns:
    """`_cos_sin` at `count` positions from the first on."""
    return _cos_sin(base, pairs, first + np.arange(count))


def _cos_sin(base: float, pairs: int, positions: npt.NDArray[np.number]) -> _Turns:
    """The cosine and the sine of position · base^(−i/pairs), i being the row."""
    # Angles of thousands of turns need the digits of float64, whatever is rotated.
    angles = np.outer(base ** (-np.arange(pairs) / pairs), positions)
    return np.cos(angles), np.sin(angles)


def _rotated(
    x: FloatArray, cos: npt.NDArray[np.float64], sin: npt.NDArray[np.float64]
) -> FloatArray:
    cos, sin = cos.astype(x.dtype, copy=False), sin.astype(x.dtype, copy=False)
    even, odd = x[..., 0::2, :], x[..., 1::2, :]
    out = np.empty_like(x)
    out[..., 0::2, :] = even * cos - odd * sin
    out[..., 1::2, :] = even * sin + odd * cos
    return out
