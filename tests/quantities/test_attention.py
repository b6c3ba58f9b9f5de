"""Identities of a small attention head: on the worked example, and on heads that break them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check.errors import InputError
from sdpa_check.quantities import Case, attention, quantity

Q = [1, 0.5, -0.5, 1]
K = [[0.5, 1, 0, -1], [1, 0.5, 0.5, 0], [-1, 0, 1, 0.5]]

ZERO = (
    "attention.chain_rule_error",
    "attention.bilinear_error",
    "attention.identical_keys_gradient",
    "attention.sharp_recovery_error",
)
IDENTITIES = (*ZERO, "attention.missing_v_error", "attention.homogeneity_error")


def evaluate(name, q=Q, k=K):
    return quantity(name).evaluate(Case(inputs={"q": q, "k": k}))


def softmax(x):
    e = np.exp(np.asarray(x) - np.max(x))
    return e / e.sum()


def test_scores_of_the_worked_example():
    assert evaluate("dot.scores") == [0.0, 1.0, -1.0]
    assert evaluate("dot.scores_scaled") == [0.0, 0.5, -0.5]


@pytest.mark.parametrize("name", ZERO)
def test_identities_hold_within_their_bounds(name):
    g = np.random.default_rng(0)
    bound = quantity(name).bound
    assert max(evaluate(name)) <= bound
    for keys, d, size in ((1, 1, 1.0), (2, 5, 0.1), (7, 3, 2.0), (5, 16, 5.0), (64, 64, 1.0)):
        if name == "attention.identical_keys_gradient" and d == 64:
            continue  # d² evaluations for each of two matrices
        q, k = size * g.standard_normal(d), size * g.standard_normal((keys, d))
        assert all(0 <= error <= bound for error in evaluate(name, q.tolist(), k.tolist()))


def test_what_is_not_zero_is_as_computed_by_differences():
    """∂L/∂s by central differences, an error of order h² = 1e-10."""
    q, k = np.array(Q), np.array(K)
    v = k[:, :3] / np.abs(k).max()

    def loss(s):
        return np.square(softmax(s) @ v).sum() / 6

    s, h = k @ q, 1e-5
    true = np.array([(loss(s + h * e) - loss(s - h * e)) / (2 * h) for e in np.eye(3)])
    p = softmax(s)
    without_v = (np.diag(p) - np.outer(p, p)) @ (p @ v) / 3
    (found,) = evaluate("attention.missing_v_error")
    assert found == pytest.approx(np.abs(without_v - true).max(), abs=1e-9)
    assert found > 1e6 * quantity("attention.missing_v_error").bound


def test_the_output_is_not_homogeneous():
    q, k = np.array(Q), np.array(K)
    v = k / np.abs(k).max()
    once, twice = (softmax(c * k @ q / 2) @ v for c in (1, 2))
    (found,) = evaluate("attention.homogeneity_error")
    assert found == pytest.approx(np.abs(twice - 2 * once).max(), rel=1e-12)
    assert found > 1e6 * quantity("attention.homogeneity_error").bound
    assert evaluate("attention.homogeneity_error", [0.0], [[2.0]]) == pytest.approx([1.0])


def test_different_keys_have_a_gradient():
    """The control of identical keys: the same loss through W_Q where the keys differ."""
    q, k = np.array(Q), np.array(K)
    v = k / np.abs(k).max()

    def loss(w):
        out = softmax(k @ (w @ q) / 2) @ v
        return out @ out / 8

    unit, h = np.eye(4), 1e-5
    entries = [
        (loss(unit + h * np.outer(unit[i], unit[j])) - loss(unit - h * np.outer(unit[i], unit[j])))
        / (2 * h)
        for i in range(4)
        for j in range(4)
    ]
    assert np.linalg.norm(entries) > 0.01
    gradient = (
        k.T @ attention._logit_gradient(k @ q / 2, v) / 2
    )  # ∂L/∂q, so that ∂L/∂W_Q = ∂L/∂q qᵀ
    np.testing.assert_allclose(np.outer(gradient, q).reshape(-1), entries, atol=1e-9)


@pytest.mark.parametrize("factor", [1.001, 2.0])
def test_a_wrong_gradient_breaks_the_chain_rule(factor, monkeypatch):
    """The control: J at another temperature than that of the loss."""
    monkeypatch.setattr(attention, "softmax", lambda x: softmax(factor * x))
    (error,) = evaluate("attention.chain_rule_error")
    assert error > 1000 * quantity("attention.chain_rule_error").bound


@pytest.mark.parametrize(
    ("name", "q", "k", "where"),
    [
        ("dot.scores", [1.0], K, "q"),
        ("dot.scores", Q, [[1.0], [1.0, 2.0]], "k"),
        ("dot.scores", Q, [], "k"),
        ("dot.scores", "1", K, "q"),
        ("attention.missing_v_error", [1.0], [[1.0], [2.0]], "k"),
        *((name, [40.0] * 4, [[40.0] * 4], "k") for name in IDENTITIES),
        *((name, [1.0], [[1.0]] * 65, "k") for name in IDENTITIES),
    ],
)
def test_inputs_that_cannot_be_used(name, q, k, where):
    with pytest.raises(InputError, match=f"^{where}: got"):
        evaluate(name, q, k)


def test_zero_keys_are_no_division_by_zero():
    for name in IDENTITIES:
        found = evaluate(name, [0.0, 0.0], [[0.0, 0.0]] * 2)
        assert all(math.isfinite(x) for x in found)
        assert max(found) <= quantity(name).bound
