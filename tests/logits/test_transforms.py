"""Every transform against a slow twin, and what is special to each."""

from __future__ import annotations

import cmath
import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sdpa_check.logits.pipeline import parse
from sdpa_check.logits.transforms import TRANSFORMS, Context
from sdpa_check.logits.transforms.scores import Additive
from sdpa_check.logits.transforms.vectors import QKNorm, RoPE

EPS = 2.0**-52
EXAMPLES = (
    "proj:xavier",
    "proj:normal=0.02,32,0.5",
    "scale_q:sqrt",
    "scale_qk:pow:-0.25",
    "qk_norm:rms",
    "qk_norm:layer,2",
    "qk_norm:l2",
    "rope",
    "rope:500,3",
    "user_q:numpy:sin",
    "user_k:numpy:sin",
    "dtype:float16",
    "dot | dtype:float16",
    "dtype:bfloat16",
    "dot | dtype:bfloat16",
    "dot",
    "additive",
    "additive:unit",
    "scale:sqrt",
    "scale:dk",
    "scale:sqrt_dmodel",
    "scale:0.3",
    "temperature:2",
    "temperature:2,clamp",
    "logn:512",
    "yarn:16",
    "softcap:5",
    "alibi:0.5",
    "user:numpy:tanh",
)
"""Every transform at least once."""


# --- slow twins: lists of queries and keys in, rows of logits out ------------------------------


def columns(x):
    return [[float(v) for v in column] for column in x.T]


def dot(a, b):
    return math.fsum(u * v for u, v in zip(a, b, strict=True))


def slow_rotation(x, position, base=10000.0):
    d, out = len(x), []
    for i in range(d // 2):
        turned = complex(x[2 * i], x[2 * i + 1]) * cmath.exp(1j * position * base ** (-2 * i / d))
        out += [turned.real, turned.imag]
    return out


def slow_norm(x, kind):
    d = len(x)
    if kind == "layer":
        mean = math.fsum(x) / d
        x = [v - mean for v in x]
    size = math.sqrt(math.fsum(v * v for v in x))
    return [v / size if kind == "l2" else v / (size / math.sqrt(d)) for v in x]


def slow_vectors(text, q, k, context):
    """What the steps on vectors make of lists of queries and keys."""
    d, m = context.dk, context.keys
    name, _, arguments = text.partition(":")
    if name == "qk_norm":
        kind, _, gain = arguments.partition(",")
        q, k = ([[v * float(gain or 1) for v in slow_norm(x, kind)] for x in s] for s in (q, k))
    elif name == "rope":
        base, offset = (500.0, 3) if arguments else (10000.0, 0)
        q = [slow_rotation(x, m - 1 + offset, base) for x in q]
        k = [slow_rotation(x, j, base) for j, x in enumerate(k)]
    elif name == "scale_qk":
        q, k = ([[v * d**-0.25 for v in x] for x in s] for s in (q, k))
    elif name == "scale_q":
        q = [[v / math.sqrt(d) for v in x] for x in q]
    elif name == "user_q":
        q = [[math.sin(v) for v in x] for x in q]
    elif name == "user_k":
        k = [[math.sin(v) for v in x] for x in k]
    return q, k


def slow_logits(text, x, context):
    """The logits of one row."""
    d, m = context.dk, context.keys
    changes = {
        "scale:sqrt": lambda v, j: v / math.sqrt(d),
        "scale:dk": lambda v, j: v / d,
        "scale:sqrt_dmodel": lambda v, j: v / math.sqrt(context.d_model),
        "scale:0.3": lambda v, j: v * 0.3,
        "temperature:2": lambda v, j: v / 2,
        "temperature:2,clamp": lambda v, j: v / min(max(2.0, math.sqrt(d) / 2), 2 * math.sqrt(d)),
        "logn:512": lambda v, j: v * math.log(m) / math.log(512),
        "yarn:16": lambda v, j: v * (0.1 * math.log(16) + 1) * (0.1 * math.log(16) + 1),
        "softcap:5": lambda v, j: 5 * math.tanh(v / 5),
        "alibi:0.5": lambda v, j: v - 0.5 * (m - 1 - j),
        "user:numpy:tanh": lambda v, j: math.tanh(v),
    }
    change = changes.get(text, lambda v, j: v)
    return [change(v, j) for j, v in enumerate(x)]


TWINS = [text for text in EXAMPLES if text.partition(":")[0] not in {"proj", "additive", "dtype"}]
TWINS = [text for text in TWINS if "dtype" not in text]


@pytest.mark.parametrize("shape", [(2, 1, 1), (16, 9, 5), (64, 33, 3)])
@pytest.mark.parametrize("text", TWINS)
def test_slow_twin(block, text, shape):
    made = block(*shape, d_model=96)
    q, k = slow_vectors(text, columns(made.q), columns(made.k), made.context)
    right = [slow_logits(text, [dot(a, b) for b in k], made.context) for a in q]
    got = made.run(parse(text)).logits
    assert got.shape == (shape[2], shape[1])
    # Scores of size up to 64·σ²; a dozen roundings, and d of them in the product.
    np.testing.assert_allclose(got, right, rtol=1e-12, atol=1e-12)


def test_every_transform_has_an_example():
    assert {part.strip().partition(":")[0] for t in EXAMPLES for part in t.split("|")} == set(
        TRANSFORMS
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("text", EXAMPLES)
def test_dtype_is_kept_and_inputs_are_left_alone(block, text, dtype):
    """`Block` hands out read-only vectors, so writing to them would raise."""
    made = block(8, 6, 4, dtype=dtype, d_model=32)
    applied = made.run(parse(text))
    assert [a.dtype for a in (applied.q, applied.k, applied.logits)] == [dtype] * 3
    assert applied.logits.shape == (4, 6)
    assert np.isfinite(applied.logits).all()
    if not text.startswith("proj"):
        assert applied.q is made.q
        assert applied.k is made.k


@pytest.mark.parametrize("text", EXAMPLES)
def test_logits_are_left_alone(text):
    context = Context(dk=4, keys=5, d_model=8)
    x = np.linspace(-3, 3, 10).reshape(2, 5)
    x.flags.writeable = False
    for change in parse(text).logits:
        assert change.on_logits(x, context) is not x


@pytest.mark.parametrize("text", [*TWINS, "additive", "additive:unit"])
def test_float32_is_float64_to_rounding(block, text):
    single, double = (block(8, 6, 4, dtype=t, d_model=32) for t in (np.float32, np.float64))
    got, right = (made.run(parse(text)).logits for made in (single, double))
    assert np.abs(right).max() < 128
    # The terms of a score add up to less than 128; d + 10 roundings of eps/2 each.
    np.testing.assert_allclose(got, right, rtol=0, atol=18 / 2 * 128 * 2.0**-23)


# --- scales ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("scale_qk:pow:-0.25", "scale:sqrt"),
        ("scale_q:sqrt", "scale:sqrt"),
        ("temperature:8", "scale:sqrt"),
        ("scale_qk:sqrt", "scale:dk"),
    ],
)
def test_scales_that_are_one_scale(block, one, other):
    made = block(64, 40, 30)
    a, b = (made.run(parse(text)).logits for text in (one, other))
    # Either side has at most d + 4 roundings, each relative to Σ|q_a k_a| · c.
    bound = 2 * (64 + 4) * EPS / 2 * (np.abs(made.q).T @ np.abs(made.k)) / 8
    assert (np.abs(a - b) <= bound).all()


@pytest.mark.parametrize(("temperature", "divisor"), [(0.1, 4), (4, 4), (5, 5), (16, 16), (99, 16)])
def test_clamped_temperature_at_64(temperature, divisor):
    pipeline = parse(f"temperature:{temperature},clamp")
    assert pipeline.multiplier(Context(dk=64, keys=2)) == 1 / divisor


def test_logn_and_yarn_factors():
    context = Context(dk=64, keys=1024)
    assert parse("logn:512").multiplier(context) == pytest.approx(10 / 9, rel=4 * EPS)
    assert parse("logn:1024").multiplier(context) == 1.0
    # The published factors: Yarn-Llama-2-7b-64k (16), Qwen3's card (4), gpt-oss (32).
    factors = [parse(f"yarn:{f}").multiplier(context) for f in (1, 4, 16, 32)]
    assert factors == pytest.approx([1, 1.296, 1.631, 1.813], abs=5e-4)


@pytest.mark.parametrize(
    ("text", "octaves"),
    [
        ("dot", 0),
        ("additive", 0),
        ("rope", 0),
        ("scale:8", 3),
        ("scale:sqrt", 3),
        ("scale_qk:0.5", 2),
        ("temperature:1024", 10),
        ("softcap:0.125", 3),
        ("qk_norm:rms,2", 4),
        ("qk_norm:l2,2", 1),
        ("alibi:0", 0),
        ("alibi:0.125", 0),
        ("alibi:4", 5),
        ("proj:xavier,16", 0),
        ("proj:normal=2,16", 3),
        ("proj:xavier,16,256", math.inf),
        ("dtype:float16", math.inf),
        ("user:numpy:sin", math.inf),
        ("user_k:numpy:sin", math.inf),
        ("scale_qk:1e200", math.inf),
    ],
)
def test_by_how_much_a_step_may_change_sizes(text, octaves):
    (step,) = parse(text).transforms or (parse(text).score,)
    assert step.octaves(Context(dk=64, keys=8)) == octaves


# --- vectors ---------------------------------------------------------------------------------

vectors = hnp.arrays(np.float64, (6, 4), elements=st.floats(0.125, 8) | st.floats(-8, -0.125))


@given(vectors, st.sampled_from(["rms", "layer", "l2"]), st.floats(0.1, 10))
def test_norms_are_exact(x, kind, gain):
    if kind == "layer":
        x = x + np.arange(6.0)[:, None] * 20  # a spread that centring cannot cancel
    y, z = QKNorm(kind, gain).on_vectors(x, 2 * x, Context(dk=6, keys=4))
    right = gain * (1 if kind == "l2" else math.sqrt(6))
    # d + 4 roundings under the root and 4 after it.
    tolerance = ((6 + 4) / 2 + 4) * EPS
    assert np.linalg.norm(y, axis=0) == pytest.approx(right, rel=tolerance)
    assert np.linalg.norm(z, axis=0) == pytest.approx(right, rel=tolerance)
    if kind == "layer":
        assert np.abs(y.sum(axis=0)).max() <= 6 * 6 * EPS * right


def test_a_zero_vector_has_no_direction(block):
    made = block(4, 3, 2)
    made.q = np.zeros((4, 2))
    assert np.isnan(made.run(parse("qk_norm:rms")).logits).all()


positions = st.integers(0, 2**17)


@given(vectors, st.lists(positions, min_size=4, max_size=4), st.sampled_from([10.0, 1e4, 5e5]))
def test_rotation_keeps_norms_and_is_the_slow_one(x, where, base):
    y = RoPE(base).rotated(x, np.array(where))
    right = np.array([slow_rotation(c, p, base) for c, p in zip(x.T, where, strict=True)]).T
    # A pair loses 3 roundings of its own length, plus the error of the angle, which is position ·
    # frequency: the frequency carries 3 roundings and no frequency exceeds 1.
    pair = np.repeat(np.hypot(x[0::2], x[1::2]), 2, axis=0)
    assert (np.abs(y - right) <= (8 + 4 * np.array(where)) * EPS * pair).all()
    assert np.linalg.norm(y, axis=0) == pytest.approx(np.linalg.norm(x, axis=0), rel=8 * EPS)


@given(vectors, vectors, positions, positions, st.integers(0, 2**17))
def test_scores_depend_on_the_distance_only(q, k, at, to, shift):
    rope = RoPE()
    here, there = (
        rope.rotated(q, np.array([at + s])).T @ rope.rotated(k, np.array([to + s]))
        for s in (0, shift)
    )
    norms = np.outer(np.linalg.norm(q, axis=0), np.linalg.norm(k, axis=0))
    # Angle errors as above, for both vectors and both places.
    assert (np.abs(here - there) <= (50 + 4 * 2 * (at + to + shift)) * EPS * norms).all()


@given(vectors, vectors, st.floats(-1, 1))
def test_rotation_commutes_with_a_scalar(q, k, exponent):
    context = Context(dk=6, keys=4)
    one, other = (
        parse(text).run(np.random.default_rng(0), lambda _: (q, k), context).logits
        for text in (f"scale_q:pow:{exponent!r} | rope", f"rope | scale_q:pow:{exponent!r}")
    )
    size = np.outer(np.linalg.norm(q, axis=0), np.linalg.norm(k, axis=0)) * 6**exponent
    # The rotation is the same; each side has 3 + 1 roundings per component and d in the product.
    assert (np.abs(one - other) <= 2 * (4 + 6) * EPS * size).all()


@pytest.mark.parametrize("keys", [5, 70_000])
def test_kept_angles_are_those_of_the_positions(keys):
    """Of a short row they are kept for the next block, of a long one not; and those of one base,
    offset or dtype are no other's.
    """
    rng = np.random.default_rng(3)
    for rope in (RoPE(), RoPE(500.0), RoPE(offset=2.5), RoPE()):
        for dtype in (np.float32, np.float64):
            q, k = (rng.standard_normal((4, n)).astype(dtype) for n in (3, keys))
            got_q, got_k = rope.on_vectors(q, k, Context(dk=4, keys=keys))
            assert got_q.dtype == got_k.dtype == dtype
            right = rope.rotated(q, np.array([keys - 1 + rope.offset]))
            np.testing.assert_array_equal(got_q, right)
            np.testing.assert_array_equal(got_k, rope.rotated(k, np.arange(keys)))


def test_an_offset_moves_the_query_away_from_all_keys():
    context = Context(dk=2, keys=3)
    ones = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    for offset in (0, 1, 2.5):
        q, k = RoPE(offset=offset).on_vectors(ones[:, :1], ones, context)
        right = [math.cos(2 + offset - j) for j in range(3)]
        assert (q.T @ k)[0].tolist() == pytest.approx(right, abs=8 * EPS)


# --- scores ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["inv", "unit"])
def test_additive_score_is_the_slow_one_and_bounded(block, kind):
    made = block(16, 9, 5)
    (v,) = Additive(kind).weights(np.random.default_rng(1), made.context)
    got = made.run(parse(f"additive:{kind}"), seed=1).logits
    right = [
        [
            math.fsum(w * math.tanh(a + b) for w, a, b in zip(v, q, k, strict=True))
            for k in columns(made.k)
        ]
        for q in columns(made.q)
    ]
    np.testing.assert_allclose(got, right, rtol=0, atol=1e-12)
    assert np.abs(got).max() <= np.abs(v).sum()
    made.q, made.k = (100.0 * np.ones_like(x) for x in (made.q, made.k))
    largest = made.run(parse(f"additive:{kind}"), seed=1).logits
    assert largest == pytest.approx(np.full((5, 9), v.sum()), abs=16 * EPS * np.abs(v).sum())


@pytest.mark.parametrize("shape", [(16, 9, 5), (3, 300, 70), (1, 200, 200)])
def test_additive_scores_under_several_weights(block, shape):
    """Rows under the first v, then under the second, and so on; however the terms are cut up."""
    made = block(*shape)
    made.context = dataclasses.replace(made.context, weights=3)
    weights = Additive().weights(np.random.default_rng(1), made.context)
    got = made.run(parse("additive"), seed=1).logits
    tanh = np.tanh(made.q[:, :, None] + made.k[:, None, :])
    right = [(v[:, None, None] * tanh).sum(axis=0) for v in weights]
    assert len(weights) == 3
    np.testing.assert_allclose(got, np.concatenate(right), rtol=0, atol=1e-12)


def test_weights_of_the_additive_score():
    # d = 10⁵: the sample variance has relative SE √(2/d) = 0.45 %; 5 SE: false alarm 6e-7 each.
    context = Context(dk=10**5, keys=2)
    for kind, right in (("inv", 1e-5), ("unit", 1.0)):
        v = Additive(kind).weights(np.random.default_rng(5), context)
        assert v.var() == pytest.approx(right, rel=5 * math.sqrt(2 / 10**5))


# --- logits ----------------------------------------------------------------------------------

logits = hnp.arrays(np.float64, (2, 5), elements=st.floats(-1e6, 1e6))


@given(logits, st.floats(1e-3, 1e3))
def test_the_cap_is_a_bound_and_the_slow_one(x, cap):
    pipeline = parse(f"softcap:{cap!r}")
    y = pipeline.logits[0].on_logits(x, Context(dk=4, keys=5))
    assert np.abs(y).max() <= cap
    right = [[cap * math.tanh(v / cap) for v in row] for row in x]
    np.testing.assert_allclose(y, right, rtol=1e-12, atol=1e-300)
    smallest = 2 * cap * 2.0**-1074  # what x/C may lose where it is subnormal
    near = np.abs(x) ** 3 / (3 * cap**2) + 8 * EPS * np.abs(x) + smallest
    assert (np.abs(y - x) <= near).all()


def test_alibi_penalises_distance():
    zeros = np.zeros((2, 4), np.float32)
    got = parse("alibi:0.5").logits[0].on_logits(zeros, Context(dk=4, keys=4))
    assert got.tolist() == [[-1.5, -1.0, -0.5, 0.0]] * 2


def test_alibi_spreads_the_last_row():
    """Standard deviation r √((N²−1)/12): 147.8 at slope ½, 1.155 at 2^−8, for 1024 keys."""
    for slope, right in ((0.5, 147.8), (2**-8, 1.155)):
        zeros = np.zeros((1, 1024))
        got = parse(f"alibi:{slope}").logits[0].on_logits(zeros, Context(dk=4, keys=1024))
        assert got.std() == pytest.approx(slope * math.sqrt((1024**2 - 1) / 12), rel=1e-12)
        assert got.std() == pytest.approx(right, rel=5e-4)
