"""Variants of attention on given numbers: against what is known of them, and broken on purpose."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check.errors import InputError
from sdpa_check.quantities import Case, quantity, variants

Q = [1, 0.5, -0.5, 1]
K = [[0.5, 1, 0, -1], [1, 0.5, 0.5, 0], [-1, 0, 1, 0.5]]
ZERO = (
    "attention.scale_position_error",
    "attention.rope_scale_error",
    "attention.tiled_error",
)
IDENTITIES = (*ZERO, "attention.plain_multiplier")


def evaluate(name, **inputs):
    return quantity(name).evaluate(Case(inputs=inputs))


@pytest.mark.parametrize("name", ZERO)
def test_identities_hold_within_their_bounds(name):
    g = np.random.default_rng(0)
    bound = quantity(name).bound
    for keys, d, size in ((1, 2, 1.0), (2, 6, 0.1), (7, 4, 4.0), (5, 16, 5.0), (64, 64, 1.0)):
        q, k = size * g.standard_normal(d), size * g.standard_normal((keys, d))
        (error,) = evaluate(name, q=q.tolist(), k=k.tolist())
        assert 0 <= error <= bound


@pytest.mark.parametrize(("keys", "d", "size"), [(2, 5, 1.0), (7, 4, 3.0), (60, 64, 1.0)])
def test_the_multiplier_of_plain_attention(keys, d, size):
    g = np.random.default_rng(1)
    q, k = size * g.standard_normal(d), size * g.standard_normal((keys, d))
    (found,) = evaluate("attention.plain_multiplier", q=q.tolist(), k=k.tolist())
    assert found == pytest.approx(1, abs=quantity("attention.plain_multiplier").bound)


@pytest.mark.parametrize("power", [0.0, 0.25, 1.0])
def test_another_multiplier_is_read_off_too(power, monkeypatch):
    """The control: an implementation that divides by another power of d."""

    def other(q, k, v):
        e = np.exp(k @ q / len(q) ** power)
        return e @ v / e.sum(), e / e.sum()

    monkeypatch.setattr(variants, "_plain_attention", other)
    (found,) = evaluate("attention.plain_multiplier", q=Q, k=K)
    assert found == pytest.approx(2 * 4**-power, abs=1e-12)


def test_plain_attention_is_that_of_the_worked_example():
    """claims.md: softmax([0, 0.5, −0.5]) = [0.307, 0.506, 0.186]."""
    v = np.eye(3)
    output, weights = variants._plain_attention(np.array(Q), np.array(K), v)
    np.testing.assert_allclose(weights, [0.307, 0.506, 0.186], atol=5.1e-4)
    np.testing.assert_array_equal(output, weights)


def test_tiles_without_a_running_maximum_are_seen(monkeypatch):
    """The control: tiles that are put together with the maximum of the last of them only."""

    def careless(q, k, v):
        x = k @ q / math.sqrt(len(q))
        parts = [x[i : i + 2] - x[i : i + 2].max() for i in range(0, len(x), 2)]
        e = np.exp(np.concatenate(parts))
        return e @ v / e.sum()

    monkeypatch.setattr(variants, "_tiled_attention", careless)
    (error,) = evaluate("attention.tiled_error", q=Q, k=K)
    assert error > 1e6 * quantity("attention.tiled_error").bound


def test_a_rotation_of_scaled_vectors_only_would_be_seen(monkeypatch):
    """The control: an R whose angle depends on the size of what it turns."""

    class Off(variants.RoPE):
        def on_vectors(self, q, k, context):
            return super().on_vectors(q * (1 + 1e-6 * np.abs(q)), k, context)

    monkeypatch.setattr(variants, "RoPE", Off)
    (error,) = evaluate("attention.rope_scale_error", q=Q, k=K)
    assert error > 1000 * quantity("attention.rope_scale_error").bound


@pytest.mark.parametrize(
    ("q", "k", "right"),
    [
        ([150] * 4, [[150] * 4], math.inf),  # 90000 overflows, 45000 does not
        ([32] * 64, [[32] * 64], math.inf),  # theory.md, section 8
        ([100] * 4, [[100] * 4], 0),
        ([600] * 4, [[600] * 4], math.nan),  # both overflow
        (Q, K, 0),
    ],
)
def test_float16_overflows_where_the_scale_comes_late(q, k, right):
    (found,) = evaluate("attention.float16_scale_error", q=q, k=k)
    assert found == pytest.approx(right, nan_ok=True)


def test_costs_are_counted():
    assert evaluate("attention.scale_cost_ratio", k=K) == [4 / 3]
    assert evaluate("attention.scale_cost_ratio", k=[[1.0, 2.0]] * 8) == [0.25]


@pytest.mark.parametrize(("x", "right"), [(0, 2.5), (90, 1.5), (180, 2.5), (45, 2.0)])
def test_variances_of_a_rotated_pair(x, right):
    """theory.md, section 7: tr(Σ R Σ Rᵀ) with Σ = diag(1.5, 0.5)."""
    pair = [math.sqrt(1.5), math.sqrt(0.5)]
    angle = math.radians(x)
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    sigma = np.diag([1.5, 0.5])
    assert np.trace(sigma @ turn @ sigma @ turn.T) == pytest.approx(right)
    assert evaluate("rope.sign_variance", q=pair, k=[pair], x=x) == pytest.approx([right])
    assert evaluate("rope.sign_variance", q=[1, 1], k=[[1, 1]], x=x) == pytest.approx([2])


def test_additive_scores_reach_their_bound_and_no_more():
    (found,) = evaluate("attention.additive_bound_ratio", q=Q, k=K)
    # v = k₁ = [½, 1, 0, −1]; at t → ∞ the signs of q + k: [+, +, ·, 0], [+, +, ·, +], [0, +, ·, +]
    assert found == pytest.approx(1.5 / 2.5)
    assert evaluate("attention.additive_bound_ratio", q=[1, 1], k=[[1, 2]]) == [1.0]


@pytest.mark.parametrize("cap", [0.5, 50.0, 1e9])
def test_a_soft_cap_is_the_largest_logit(cap):
    (found,) = evaluate("softcap.largest", x=cap)
    assert found == pytest.approx(cap * math.tanh(1e8 / cap))
    assert found <= cap


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_a_layernorm_has_mean_0_and_std_1(scale):
    g = np.random.default_rng(2)
    bound = quantity("layernorm.moments").bound
    for d, shift in ((2, 0.0), (8, 30.0), (64, 900.0)):
        x = scale * (g.standard_normal(d) + shift)
        found = evaluate("layernorm.moments", q=x.tolist())
        assert found == pytest.approx([0, 1], abs=bound)
    heavy = np.tan(np.pi * (g.random(64) - 0.5))
    assert evaluate("layernorm.moments", q=heavy.tolist()) == pytest.approx([0, 1], abs=bound)


def test_means_of_projected_tokens():
    """LN([2, 0, 1, −3]) = [2, 0, 1, −3]/√3.5; its opposite takes the mean away."""
    token, row = [2, 0, 1, -3], [0.5, -1, 0.5, 1]
    (found,) = evaluate("layernorm.projected_mean", q=row, k=[token])
    assert found == pytest.approx((1 + 0.5 - 3) / math.sqrt(3.5))
    opposite = [-x for x in token]
    assert evaluate("layernorm.projected_mean", q=row, k=[token, opposite]) == [0.0]


@pytest.mark.parametrize("rho", [-0.6, 0.0, 0.3, 0.9])
def test_moments_of_aligned_queries_and_keys(rho):
    """40 000 pairs: 5 standard errors each, 6e-7 per number, the fourth moment from the sample."""
    g, n = np.random.default_rng(3), 40_000
    q = g.standard_normal((n, 64))
    k = rho * q + math.sqrt(1 - rho**2) * g.standard_normal((n, 64))
    x = 8 * (q * k).sum(axis=1) / np.linalg.norm(q, axis=1) / np.linalg.norm(k, axis=1)
    (mean,), (variance,) = (evaluate(f"qk_norm.aligned_{m}", x=rho) for m in ("mean", "variance"))
    assert mean == pytest.approx(x.mean(), abs=5 * x.std() / math.sqrt(n))
    squares = (x - x.mean()) ** 2
    assert variance == pytest.approx(x.var(), abs=5 * squares.std() / math.sqrt(n))


def test_moments_of_unaligned_queries_and_keys_are_exact():
    assert evaluate("qk_norm.aligned_mean", x=0) == [0.0]
    assert evaluate("qk_norm.aligned_variance", x=0) == pytest.approx([1], abs=1e-12)


def test_extremes():
    """theory.md, section 5; the growth from its figures at 10⁵ and 10⁶."""
    assert evaluate("extremes.expected_max", x=100000) == pytest.approx([4.38432], abs=1e-5)
    assert evaluate("extremes.expected_gap", x=1024) == pytest.approx([0.28677], abs=1e-5)
    leading = math.sqrt(2 * math.log(10**6)) - math.sqrt(2 * math.log(10**5))
    (growth,) = evaluate("extremes.max_growth", x=100000)
    assert growth == pytest.approx((4.86290 - 4.38432) / leading, abs=5e-5)
    assert growth < evaluate("extremes.max_growth", x=1000)[0]


@pytest.mark.parametrize(
    ("name", "inputs", "where"),
    [
        *((name, {"q": [1.0, 2.0], "k": [[1.0, 3.0]] * 65}, "k") for name in IDENTITIES),
        ("attention.plain_multiplier", {"q": [1.0], "k": [[1.0], [1.0]]}, "k"),
        ("attention.rope_scale_error", {"q": [1.0], "k": [[1.0]]}, "q"),
        ("attention.additive_bound_ratio", {"q": [1.0], "k": [[0.0]]}, "k"),
        ("rope.sign_variance", {"q": [1, 1], "k": [[1, 1], [1, 1]], "x": 0}, "k"),
        ("softcap.largest", {"x": 0}, "x"),
        ("layernorm.moments", {"q": [3, 3, 3]}, "q"),
        ("layernorm.moments", {"q": [1e6, 1e6 + 1]}, "q"),
        ("layernorm.projected_mean", {"q": [1, 1], "k": [[1, 2], [2, 2]]}, "k"),
        ("qk_norm.aligned_mean", {"x": 1}, "x"),
        ("qk_norm.aligned_variance", {"x": -1.5}, "x"),
        ("extremes.expected_max", {"x": 1}, "x"),
        ("extremes.expected_gap", {"x": 2.5}, "x"),
        ("extremes.max_growth", {"x": 1e9}, "x"),
    ],
)
def test_unusable_inputs_are_named(name, inputs, where):
    with pytest.raises(InputError) as caught:
        evaluate(name, **inputs)
    assert caught.value.where == where
