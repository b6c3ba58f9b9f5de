"""Identities of one small attention head, checked on a given query and given keys.

s_j = q·k_j, s′ = s/√d, p = softmax(s′), out = Σ p_j v_j. Where values are needed they are the keys,
divided by their largest entry, and the loss is L = ‖out‖²/(2 d_v): ∂L/∂out = out/d_v, and no
entry of V ∂L/∂out exceeds 1. Derivatives are taken by complex steps, so that nothing is assumed
about the chain rule that is under test.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.quantities.exact import (
    LARGEST_LOGIT,
    LARGEST_ROW,
    UNIT,
    WEIGHT_ERROR,
    complex_softmax,
    complex_step,
    exact,
)
from sdpa_check.quantities.params import required
from sdpa_check.softmax import jacobian, softmax

if TYPE_CHECKING:
    from sdpa_check.quantities.base import Case
    from sdpa_check.quantities.exact import Complex, Floats


def vectors(case: Case) -> tuple[Floats, Floats]:
    """The query, shape (d,), and the keys, shape (m, d).

    Raises:
        InputError: for lengths that differ.
    """
    q = np.array(required(case.inputs, "q"), dtype=np.float64)
    k = np.array(required(case.inputs, "k"), dtype=np.float64)
    if k.shape[1] != len(q):
        raise InputError("q", q.tolist(), f"{k.shape[1]} numbers, as many as a key has")
    return q, k


def bounded_vectors(case: Case) -> tuple[Floats, Floats]:
    """As `vectors`, of sizes for which the bounds on rounding hold."""
    q, k = vectors(case)
    if max(k.shape) > LARGEST_ROW or (np.abs(k) @ np.abs(q)).max() > LARGEST_LOGIT:
        want = f"at most {LARGEST_ROW} keys and components, and Σ|q_a k_a| ≤ {LARGEST_LOGIT:g}"
        raise InputError("k", k.tolist(), want, "the bound on rounding is derived for those")
    return q, k


def values(k: Floats) -> Floats:
    """The values V = K/max|K| that the attention quantities take."""
    return k / (np.abs(k).max() or 1.0)


def _loss(x: Complex, v: Floats) -> Any:
    """‖Σ p_j v_j‖²/(2 d_v), without conjugation, so that it is analytic in the logits x."""
    out = complex_softmax(x) @ v
    return out @ out / (2 * len(out))


def _logit_gradient(x: Floats, v: Floats) -> Floats:
    """∂L/∂x = J V ∂L/∂out."""
    p = softmax(x)
    return np.asarray(jacobian(p) @ (v @ (p @ v)) / v.shape[1])


def _scores(case: Case) -> list[float]:
    q, k = vectors(case)
    return [float(s) for s in k @ q]


def _scores_scaled(case: Case) -> list[float]:
    q, k = vectors(case)
    return [float(s) for s in k @ q / math.sqrt(len(q))]


def _chain_rule_error(case: Case) -> list[float]:
    q, k = bounded_vectors(case)
    s, v, root = k @ q, values(k), math.sqrt(len(q))
    true = complex_step(lambda x: _loss(x / root, v), s)
    return [float(np.abs(true - _logit_gradient(s / root, v) / root).max())]


def _missing_v_error(case: Case) -> list[float]:
    q, k = bounded_vectors(case)
    if len(k) > len(q):
        want = "no more keys than components: J ∂L/∂out must exist"
        raise InputError("k", k.tolist(), want)
    s, v = k @ q, values(k)[:, : len(k)]
    p = softmax(s)
    without = jacobian(p) @ (p @ v) / v.shape[1]
    return [float(np.abs(without - complex_step(lambda x: _loss(x, v), s)).max())]


def _bilinear_error(case: Case) -> list[float]:
    q, k = bounded_vectors(case)
    other = k[0]
    in_q = k @ (2 * q + 3 * other) - (2 * (k @ q) + 3 * (k @ other))
    in_k = (2 * k + 3 * other) @ q - (2 * (k @ q) + 3 * (other @ q))
    terms_q = np.abs(k) @ (2 * np.abs(q) + 3 * np.abs(other))
    terms_k = (2 * np.abs(k) + 3 * np.abs(other)) @ np.abs(q)
    error, size = np.abs([in_q, in_k]), np.array([terms_q, terms_k])
    return [float(np.divide(error, size, out=np.zeros_like(size), where=size > 0).max())]


def _homogeneity_error(case: Case) -> list[float]:
    q, k = bounded_vectors(case)
    x, v = k @ q / math.sqrt(len(q)), values(k)
    return [float(np.abs(softmax(2 * x) @ v - 2 * (softmax(x) @ v)).max())]


def _identical_keys_gradient(case: Case) -> list[float]:
    """At W_Q = W_K = 1: the query is W_Q q, every key W_K k₁, so that k₁ is the token of all."""
    q, k = bounded_vectors(case)
    token, v, root = k[0], values(k), math.sqrt(len(q))
    unit = np.eye(len(q))
    size = float(np.linalg.norm(q) * np.linalg.norm(token)) / root

    def through_q(w: Complex) -> Any:
        return _loss(np.full(len(k), token @ (w @ q) / root), v)

    def through_k(w: Complex) -> Any:
        return _loss(np.full(len(k), (w @ token) @ q / root), v)

    gradients = [complex_step(function, unit) for function in (through_q, through_k)]
    return [float(np.linalg.norm(g)) / size if size else 0.0 for g in gradients]


def _sharp_recovery_error(case: Case) -> list[float]:
    q, k = bounded_vectors(case)
    root = math.sqrt(len(q))
    return [float(np.abs(softmax(k @ (root * q) / root) - softmax(k @ q)).max())]


WEIGHTS = WEIGHT_ERROR + (LARGEST_ROW + 2) * UNIT * LARGEST_LOGIT / 2
"""Error of a weight when the logits are computed too: d + 2 units of Σ|q_a k_a| ≤ 1000, halved."""

_GRADIENT = 2 * (3 * LARGEST_ROW + 2) * (WEIGHTS + 2 * LARGEST_ROW * UNIT)
"""Difference of two computed ∂L/∂x. With g = V ∂L/∂out, |g| ≤ 1, and p_i(g_i − p·g): an error η of
the weights moves p_i by η, p·g by mη, and g itself, of which p·g takes a mean, by mη; the sums over
m keys and d components add 2(m + d) units at most.
"""

QUANTITIES = (
    exact("dot.scores", "s_j = q·k_j", _scores, "q", "k"),
    exact("dot.scores_scaled", "s_j = q·k_j/√d", _scores_scaled, "q", "k"),
    exact(
        "attention.chain_rule_error",
        "max |∂L/∂s − (1/√d) ∂L/∂s′|, s′ = s/√d; V = K/max|K|, L = ½‖out‖²/d_v",
        _chain_rule_error,
        "q",
        "k",
        bound=_GRADIENT,
    ),
    exact(
        "attention.missing_v_error",
        "max |J ∂L/∂out − ∂L/∂s|, s not scaled; V the first m columns of K/max|K|",
        _missing_v_error,
        "q",
        "k",
        bound=_GRADIENT,
    ),
    exact(
        "attention.bilinear_error",
        "scores of 2q + 3k₁, and with keys 2k + 3k₁, against sums of scores, over Σ|q_a||k_a|",
        _bilinear_error,
        "q",
        "k",
        bound=2 * (LARGEST_ROW + 3) * UNIT,  # either side: d products, their sum, 2·, 3· and +
    ),
    exact(
        "attention.homogeneity_error",
        "max |out(2q) − 2 out(q)|, V = K/max|K|",
        _homogeneity_error,
        "q",
        "k",
        bound=4 * LARGEST_ROW * WEIGHTS,  # three outputs of m weights each, and their sums
    ),
    exact(
        "attention.identical_keys_gradient",
        "‖∂L/∂W_Q‖_F and ‖∂L/∂W_K‖_F over ‖q‖‖k₁‖/√d, all keys equal to k₁, V = K/max|K|",
        _identical_keys_gradient,
        "q",
        "k",
        # all e are equal; only their sum of m and the complex division by it round
        bound=2 * (LARGEST_ROW + 8) * UNIT,
    ),
    exact(
        "attention.sharp_recovery_error",
        "max |softmax(K(√d q)/√d) − softmax(Kq)|",
        _sharp_recovery_error,
        "q",
        "k",
        bound=2 * WEIGHTS,
    ),
)
