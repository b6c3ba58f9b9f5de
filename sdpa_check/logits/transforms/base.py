"""The contract of the transforms: four stages, from the making of q and k to the logits."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from sdpa_check.records import Step

if TYPE_CHECKING:
    from numpy.random import Generator

    from sdpa_check.logits.transforms.arguments import Arguments

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
Precision: TypeAlias = type[np.float32] | type[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The block on which a pipeline acts: rows of the query at the last of `keys` positions.

    `keys` is m: the keys stand at positions 0 … m−1 and every query at m−1. `d_model` is read by
    ``sqrt_dmodel`` and as the default width of ``proj``; `queries` and `dtype` only by a source,
    because elsewhere the arrays tell them. `weights` is how often weights are drawn for the same
    inputs, by what draws some.
    """

    dk: int
    keys: int
    queries: int = 1
    d_model: int | None = None
    dtype: Precision = np.float64
    weights: int = 1


def octaves(factor: float) -> float:
    """|log₂| of a factor: 3 for 8 and for 1/8; ∞ for 0 and for ∞."""
    return abs(math.log2(factor)) if 0 < factor < math.inf else math.inf


class Transform(ABC):
    """One change of attention.

    It has the stage of the subclass below that it implements, keeps the dtype of what it is given
    (float32 or float64), and never modifies it. Leading axes of an array, written …, hold sets of
    queries with their keys, of which none may have a part in what becomes of another.
    """

    __slots__ = ()

    name: ClassVar[str]
    """What stands before the colon in the text of the step."""

    usage: ClassVar[str]
    """What a step of this name must look like, with an example; errors show it."""

    tames: ClassVar[bool] = False
    """Whether what it makes has all moments, however heavy the tails of q and k are."""

    @classmethod
    @abstractmethod
    def read(cls, given: Arguments) -> Self:
        """Make the transform that a step asks for.

        Raises:
            ValueError: an argument that is missing, of the wrong kind, or out of range.
        """

    @property
    @abstractmethod
    def arguments(self) -> tuple[str, ...]:
        """The arguments in canonical form: equal transforms have equal texts, and no others."""

    @property
    def step(self) -> Step:
        """The record of this transform."""
        return Step(self.name, self.arguments)

    def __str__(self) -> str:
        return str(self.step)

    def objection(self, _context: Context) -> str:
        """Why it cannot act on such a block; empty where it can."""
        return ""

    def multiplier(self, _context: Context) -> float | None:
        """The c by which it multiplies the scores, or None where it is more than a scalar."""
        return None

    def octaves(self, context: Context) -> float:
        """By how many factors of 2 it may change the size of numbers, up or down.

        ∞ where it must be given float64, whatever the sizes. By default known of scalars only.
        """
        factor = self.multiplier(context)
        return math.inf if factor is None else octaves(factor)


class Source(Transform):
    """Makes q and k; without one they are drawn by the caller."""

    __slots__ = ()

    def on_source(self, rng: Generator, context: Context) -> tuple[FloatArray, FloatArray]:
        """Draw q (d, n) and k (d, m), component-major, of dtype `context.dtype`."""
        q, k = self.repeated(rng, dataclasses.replace(context, weights=1))
        return q[0], k[0]

    @abstractmethod
    def repeated(self, rng: Generator, context: Context) -> tuple[FloatArray, FloatArray]:
        """Draw inputs, and for them w = `context.weights` times weights: (w, d, n), (w, d, m)."""

    @abstractmethod
    def draws(self, context: Context) -> int:
        """How many numbers `repeated` draws."""


class OnVectors(Transform):
    """Acts on q and k before the score."""

    __slots__ = ()

    @abstractmethod
    def on_vectors(
        self, q: FloatArray, k: FloatArray, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """Turn q (…, d, n) and k (…, d, m) into others of the same shapes."""


class Score(Transform):
    """Makes raw scores out of q and k; without one they are the dot products."""

    __slots__ = ()

    draws_weights: ClassVar[bool] = False
    """Whether it draws weights of its own, which all scores of q and k share."""

    operations: ClassVar[int] = 0
    """Elementary operations per component of a pair, roughly, beside a product with weights."""

    @abstractmethod
    def score(self, q: FloatArray, k: FloatArray, rng: Generator, context: Context) -> FloatArray:
        """Compute the scores (…, n, m) of the queries q (…, d, n) with the keys k (…, d, m).

        Where it draws weights it does so `context.weights` times for every set, and gives the rows
        (n, m) under each of them one after the other.
        """


class OnLogits(Transform):
    """Acts on the scores, which from there on are called logits."""

    __slots__ = ()

    @abstractmethod
    def on_logits(self, x: FloatArray, context: Context) -> FloatArray:
        """Turn the logits x (…, n, m) into others of the same shape."""
