"""The two ways to a score: the dot product, and the additive score that it replaced."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self

import numpy as np

from sdpa_check.logits.transforms.arguments import trimmed
from sdpa_check.logits.transforms.base import Score

if TYPE_CHECKING:
    from numpy.random import Generator

    from sdpa_check.logits.transforms.arguments import Arguments
    from sdpa_check.logits.transforms.base import Context, FloatArray


@dataclass(frozen=True, slots=True)
class Dot(Score):
    """qᵀk, the score of every pipeline that names no other.

    It is written only where a later step would otherwise act on q and k: ``dot | dtype:float16``.
    """

    name: ClassVar[str] = "dot"
    usage: ClassVar[str] = "dot, without arguments"

    @classmethod
    def read(cls, _given: Arguments) -> Self:
        """Nothing to read."""
        return cls()

    @property
    def arguments(self) -> tuple[str, ...]:
        """None."""
        return ()

    def multiplier(self, _context: Context) -> float:
        """1: it is what multipliers multiply."""
        return 1.0

    def score(self, q: FloatArray, k: FloatArray, _rng: Generator, _context: Context) -> FloatArray:
        """All dot products."""
        return np.asarray(q.swapaxes(-1, -2) @ k)


_AT_ONCE: Final = 1 << 15
"""Terms of an additive score that are worked on together, near the core."""


@dataclass(frozen=True, slots=True)
class Additive(Score):
    """Σ_a v_a tanh(q_a + k_a), with one v for all queries and keys (Bahdanau et al. 2015).

    v_a ~ N(0, 1/d) for ``inv``, N(0, 1) for ``unit``; q and k stand for W_q q and W_k k. No score
    exceeds ‖v‖₁ in size.
    """

    name: ClassVar[str] = "additive"
    tames: ClassVar[bool] = True
    usage: ClassVar[str] = "additive[:KIND] with KIND inv (v_a of variance 1/d) or unit"
    draws_weights: ClassVar[bool] = True
    operations: ClassVar[int] = 12
    kind: str = "inv"

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read the kind of v."""
        return cls(given.choice(("inv", "unit"), "inv"))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The kind of v where it is not ``inv``."""
        return trimmed((self.kind, "inv"))

    def octaves(self, _context: Context) -> float:
        """None: tanh is bounded, and so is the score."""
        return 0.0

    def score(self, q: FloatArray, k: FloatArray, rng: Generator, context: Context) -> FloatArray:
        """All additive scores, under every v drawn from `rng`.

        A tanh costs many times more than its product with a v, and all v share it.
        """
        if q.ndim > 2:
            sets = [self.score(*pair, rng, context) for pair in zip(q, k, strict=True)]
            return np.stack(sets)
        v = self.weights(rng, context).astype(q.dtype)
        n, m = q.shape[1], k.shape[1]
        step = max(1, _AT_ONCE // (n * m))  # components at a time: not all of (d, n, m)
        out = np.zeros((len(v), n * m), q.dtype)
        term = np.empty((min(step, len(q)), n, m), q.dtype)
        for start in range(0, len(q), step):
            some = slice(start, start + step)
            part = term[: len(q[some])]
            np.add(q[some, :, None], k[some, None, :], out=part)
            np.tanh(part, out=part)
            out += v[:, some] @ part.reshape(len(part), -1)
        return out.reshape(-1, m)

    def weights(self, rng: Generator, context: Context) -> FloatArray:
        """Draw every v, shape (`context.weights`, d), in float64."""
        v = rng.standard_normal((context.weights, context.dk))
        return v / math.sqrt(context.dk) if self.kind == "inv" else v
