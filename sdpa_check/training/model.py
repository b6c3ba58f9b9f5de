"""One attention layer that must find the key that matches its query: task, losses, gradients.

A sequence has N keys with features x_j ~ N(0, I_D) and N queries, of which the i-th is a noisy copy
of the i-th key's features, z_i = √(1 − ν²) x_i + ν ε_i. The layer computes::

    q = W_Qᵀ z    k = W_Kᵀ x    s_ij = c q_i·k_j    p_i = softmax(s_i)    y_i = W_Oᵀ p_i

and is asked for the label of the matching key, a cross-entropy over N labels. Every key carries a
label of its own; as features are exchangeable, key j may be given label j. The value of a label is
one-hot, so that W_O (N × N) is value and output matrix in one. The queries may be a rotated copy
R x_i as well: W_Q starts with a law that no rotation changes, so nothing else would.

W_Q and W_K start with orthonormal columns (Saxe et al. 2014), uniformly distributed. The components
of q and k are then independent N(0, 1) exactly, which is the assumption behind 1/√d_k. W_O starts
as the identity: labels are written and read in one embedding, as tied embeddings are. From a random
W_O half of the seeds would go down the mirrored valley first, in which a query seeks the least
similar key and the read-out speaks against it, and a mean over seeds would say little.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NOISE: Final = 0.1
"""ν: what a query shares with the features of its key is √(1 − ν²) of it."""

WIDTH: Final = 64
"""d_model where none is given; the largest d_k where that is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The sizes of the layer and of its sequences, d_k ≤ d_model.

    Attributes:
        dk: d, components of a query and of a key.
        dmodel: D, features of a token.
        keys: N, keys and queries of a sequence.
    """

    dk: int
    dmodel: int
    keys: int

    @property
    def experiment(self) -> str:
        """The text that selects the random streams: scaling and optimiser share the draws."""
        return json.dumps({"train": asdict(self), "noise": NOISE}, sort_keys=True)


class Weights(NamedTuple):
    """W_Q (D × d), W_K (D × d) and W_O (N × N), each with a leading axis of trials, or without."""

    query: NDArray[Any]
    key: NDArray[Any]
    readout: NDArray[Any]

    def map(self, function: Callable[..., NDArray[Any]], *others: Weights) -> Weights:
        """The function of each matrix and of its counterparts in `others`."""
        return Weights(*map(function, self, *others))


class Batch(NamedTuple):
    """The features of the queries and of the keys of one sequence, (N × D) each."""

    queries: NDArray[Any]
    keys: NDArray[Any]


class Losses(NamedTuple):
    """Mean cross-entropies over the queries of a sequence, in nats, one per trial.

    Attributes:
        prediction: −ln softmax(y_i)_i, the loss that is trained on.
        row: −ln p_ii, the loss of the attention row itself.
    """

    prediction: NDArray[Any]
    row: NDArray[Any]


def initial(generator: np.random.Generator, task: Task) -> Weights:
    """The weights at the start, float32, without an axis of trials."""
    return Weights(
        query=_orthonormal(generator, task.dmodel, task.dk),
        key=_orthonormal(generator, task.dmodel, task.dk),
        readout=np.eye(task.keys, dtype=np.float32),
    )


def _orthonormal(generator: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """A matrix with orthonormal columns from the uniform law: the Q of a normal matrix's QR.

    The sign of R's diagonal must be fixed for that (Mezzadri 2007).
    """
    q, r = np.linalg.qr(generator.standard_normal((rows, columns)))
    return np.asarray(q * np.sign(np.diag(r)), dtype=np.float32)


def draw(generator: np.random.Generator, task: Task) -> Batch:
    """A new sequence, float32."""
    shape = (task.keys, task.dmodel)
    keys = generator.standard_normal(shape, dtype=np.float32)
    noise = generator.standard_normal(shape, dtype=np.float32)
    kept = np.float32(math.sqrt(1 - NOISE**2))
    return Batch(queries=kept * keys + np.float32(NOISE) * noise, keys=keys)


def losses(weights: Weights, multiplier: NDArray[Any], batch: Batch) -> Losses:
    """The losses of every trial on a sequence.

    Args:
        weights: of S trials, shapes (S, D, d), (S, D, d) and (S, N, N).
        multiplier: c of each trial, shape (S,).
        batch: the sequence, shared by the trials.
    """
    return _forward(weights, multiplier, batch)[0]


def losses_and_gradients(
    weights: Weights, multiplier: NDArray[Any], batch: Batch
) -> tuple[Losses, Weights]:
    """The losses, and the gradient of the prediction loss by every weight, trial by trial.

    With G = ∂L/∂y = (softmax(y) − I)/N, backwards through the formulas of the module::

        ∂L/∂W_O = pᵀ G        ∂L/∂p = G W_Oᵀ        ∂L/∂s_i = J(p_i) ∂L/∂p_i
        ∂L/∂W_Q = c zᵀ (∂L/∂s k)        ∂L/∂W_K = c xᵀ (∂L/∂sᵀ q)

    where J(p) = diag(p) − ppᵀ. Arguments as `losses`.
    """
    found, (q, k, p, g) = _forward(weights, multiplier, batch)
    count = p.shape[-1]
    diagonal = np.arange(count)
    g[..., diagonal, diagonal] -= 1
    g /= count
    at_p = g @ weights.readout.swapaxes(-1, -2)
    at_s = p * (at_p - (p * at_p).sum(axis=-1, keepdims=True))
    at_s *= multiplier[:, None, None]
    return found, Weights(
        query=batch.queries.T @ (at_s @ k),
        key=batch.keys.T @ (at_s.swapaxes(-1, -2) @ q),
        readout=p.swapaxes(-1, -2) @ g,
    )


def _forward(
    weights: Weights, multiplier: NDArray[Any], batch: Batch
) -> tuple[Losses, tuple[NDArray[Any], ...]]:
    """The losses, and q, k, p and softmax(y)."""
    q, k = batch.queries @ weights.query, batch.keys @ weights.key
    p, row = _cross_entropy(multiplier[:, None, None] * (q @ k.swapaxes(-1, -2)))
    answer, prediction = _cross_entropy(p @ weights.readout)
    return Losses(prediction, row), (q, k, p, answer)


def _cross_entropy(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """softmax(x) along the last axis, in the memory of x, and the mean over i of −ln softmax_ii."""
    x -= x.max(axis=-1, keepdims=True)
    target = np.diagonal(x, axis1=-2, axis2=-1).copy()
    np.exp(x, out=x)
    z = x.sum(axis=-1, keepdims=True)
    x /= z
    return x, (np.log(z[..., 0]) - target).mean(axis=-1)
