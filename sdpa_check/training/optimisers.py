"""Gradient → new weights: plain gradient descent and Adam, every trial with a rate of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from sdpa_check.errors import unknown_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.training.model import Weights


class Optimiser(Protocol):
    """A rule for one step; it may remember earlier gradients of the trials that it serves."""

    def step(self, weights: Weights, gradient: Weights, lr: NDArray[Any]) -> Weights:
        """The weights after a step at the learning rates `lr`, shape (S, 1, 1)."""


class Sgd:
    """w ← w − lr · g."""

    def step(self, weights: Weights, gradient: Weights, lr: NDArray[Any]) -> Weights:
        """See `Optimiser`."""
        return weights.map(lambda w, g: w - lr * g, gradient)


class Adam:
    """w ← w − lr · m̂ / (√v̂ + ε) with running means m of g and v of g², freed of their start at 0.

    Source: Kingma & Ba 2015, algorithm 1, with its β₁ = 0.9, β₂ = 0.999, ε = 1e-8.
    """

    BETA1: Final = 0.9
    BETA2: Final = 0.999
    EPSILON: Final = 1e-8

    def __init__(self) -> None:
        self._steps = 0
        self._mean: Weights | None = None
        self._square: Weights | None = None

    def step(self, weights: Weights, gradient: Weights, lr: NDArray[Any]) -> Weights:
        """See `Optimiser`."""
        self._steps += 1
        mean = self._mean or gradient.map(np.zeros_like)
        square = self._square or gradient.map(np.zeros_like)
        self._mean = mean.map(lambda m, g: self.BETA1 * m + (1 - self.BETA1) * g, gradient)
        self._square = square.map(lambda v, g: self.BETA2 * v + (1 - self.BETA2) * g * g, gradient)
        free1, free2 = 1 - self.BETA1**self._steps, 1 - self.BETA2**self._steps
        return weights.map(
            lambda w, m, v: w - lr * (m / free1) / (np.sqrt(v / free2) + self.EPSILON),
            self._mean,
            self._square,
        )


OPTIMISERS: Final[dict[str, type[Sgd | Adam]]] = {"sgd": Sgd, "adam": Adam}
"""The optimisers by the names of the option."""

RATES: Final = {
    "sgd": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    "adam": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
}
"""The learning rates that are tried where none are given: from too small to too large."""


def optimiser(name: str) -> Optimiser:
    """A new optimiser, without memory.

    Raises:
        InputError: for an unknown name.
    """
    if name not in OPTIMISERS:
        raise unknown_name("--optimiser", name, OPTIMISERS)
    return OPTIMISERS[name]()
