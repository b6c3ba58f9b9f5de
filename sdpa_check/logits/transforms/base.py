"""The contract of the transforms: four stages, from the making of q and k to the logits."""

from __future__ import annotations

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
    because elsewhere the arrays tell them.
    """

    dk: int
    keys: int
    queries: int = 1
    d_model: int | None = None
    dtype: Precision = np.float64


class Transform(ABC):
    """One change of attention.

    It has the stage of the subclass below that it implements, keeps the dtype of what it is given
    (float32 or float64), and never modifies it.
    """

    __slots__ = ()

    name: ClassVar[str]
    """What stands before the colon in the text of the step."""

    usage: ClassVar[str]
    """What a step of this name must look like, with an example; errors show it."""

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


class Source(Transform):
    """Makes q and k; without one they are drawn by the caller."""

    __slots__ = ()

    @abstractmethod
    def on_source(self, rng: Generator, context: Context) -> tuple[FloatArray, FloatArray]:
        """Draw q (d, n) and k (d, m), component-major, of dtype `context.dtype`."""


class OnVectors(Transform):
    """Acts on q and k before the score."""

    __slots__ = ()

    @abstractmethod
    def on_vectors(
        self, q: FloatArray, k: FloatArray, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """Turn q (d, n) and k (d, m) into others of the same shapes."""


class Score(Transform):
    """Makes raw scores out of q and k; without one they are the dot products."""

    __slots__ = ()

    draws_weights: ClassVar[bool] = False
    """Whether it draws weights of its own, which all scores of a block share."""

    operations: ClassVar[int] = 2
    """Elementary operations that a score costs per component, roughly."""

    @abstractmethod
    def score(self, q: FloatArray, k: FloatArray, rng: Generator, context: Context) -> FloatArray:
        """Compute the scores (n, m) of the queries q (d, n) with the keys k (d, m)."""


class OnLogits(Transform):
    """Acts on the scores, which from there on are called logits."""

    __slots__ = ()

    @abstractmethod
    def on_logits(self, x: FloatArray, context: Context) -> FloatArray:
        """Turn the logits x (n, m) into others of the same shape."""
