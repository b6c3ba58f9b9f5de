"""What pipelines make of a block, and what they say about themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdpa_check.errors import InputError
from sdpa_check.logits.pipeline import Applied, parse
from sdpa_check.logits.transforms import Context

EPS = 2.0**-52
CONTEXT = Context(dk=16, keys=12, queries=5, d_model=64)


# --- running ---------------------------------------------------------------------------------


def draw(context):
    def vectors(rng):
        shapes = ((context.dk, context.queries), (context.dk, context.keys))
        q, k = (rng.standard_normal(shape, dtype=context.dtype) for shape in shapes)
        return q, k

    return vectors


def run(text, context=CONTEXT, seed=0):
    return parse(text).run(np.random.default_rng(seed), draw(context), context)


def test_steps_act_in_their_order():
    plain = run("dot").logits
    np.testing.assert_allclose(
        run("scale:sqrt | softcap:2 | alibi:0.5 | temperature:3").logits,
        (2 * np.tanh(plain / 4 / 2) - 0.5 * np.arange(11, -1, -1)) / 3,
        rtol=0,
        atol=8 * EPS * 8,
    )
    np.testing.assert_allclose(
        run("alibi:0.5 | softcap:2 | scale:sqrt").logits,
        2 * np.tanh((plain - 0.5 * np.arange(11, -1, -1)) / 2) / 4,
        rtol=0,
        atol=64 * EPS,
    )


def test_a_run_is_its_seed():
    for text in ("additive", "proj:kaiming | additive | softcap:1", "rope | scale:sqrt"):
        one, again, other = run(text), run(text), run(text, seed=1)
        assert np.array_equal(one.logits, again.logits)
        assert not np.array_equal(one.logits, other.logits)


def test_pipelines_share_the_draws_of_q_and_k():
    """The score draws after q and k, so all pipelines without a source see the same vectors."""
    one, other = run("scale:sqrt"), run("rope | additive | softcap:1")
    assert np.array_equal(one.q, other.q)
    assert np.array_equal(one.k, other.k)


def test_overflow_is_a_finding_and_no_warning():
    context = Context(dk=4, keys=3, dtype=np.float32)
    big = np.full((4, 1), 1e38, np.float32), np.full((4, 3), 1e38, np.float32)
    applied = parse("scale:pow:10 | softcap:3").run(
        np.random.default_rng(0), lambda _: big, context
    )
    assert isinstance(applied, Applied)
    assert applied.logits.tolist() == [[3.0] * 3]
    mixed = np.array([[1e38], [-1e38], [1.0], [1.0]], np.float32), big[1]
    applied = parse("scale:1e300").run(np.random.default_rng(0), lambda _: mixed, context)
    assert not np.isfinite(applied.logits).any()


STACKED = (
    *("dot", "scale_qk:pow:-0.25 | scale:sqrt | softcap:2", "qk_norm:layer,2 | alibi:0.5"),
    *("qk_norm:rms | rope:500,3 | scale:sqrt", "dtype:bfloat16 | dot | dtype:float16"),
    *("additive | scale:2", "user_q:own_transforms:seen | user_k:own_transforms:seen"),
    "rope | scale:sqrt | user:own_transforms:seen",
)


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize("text", STACKED)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)], ids=["set by set", "interleaved"])
@pytest.mark.parametrize("sets", [1, 3])
def test_a_stack_of_sets_is_each_of_them_alone(text, order, sets):
    """However the stack lies in memory; weights of a score are drawn set after set."""
    pipeline, shapes = parse(text), ((sets, 16, 5), (sets, 16, 12))
    made = [np.random.default_rng(2).standard_normal(shape) for shape in shapes]
    stacks = [np.ascontiguousarray(x.transpose(order)).transpose(order) for x in made]
    whole = pipeline.logits_of(*stacks, np.random.default_rng(3), CONTEXT)
    rng = np.random.default_rng(3)
    alone = [
        pipeline.run(rng, lambda _, pair=pair: pair, CONTEXT).logits
        for pair in zip(*made, strict=True)
    ]
    # Sums of 16 products of size at most 16 are added up in another order, and rounded.
    near = 2.0**-10 if "float16" in text else 64 * EPS
    np.testing.assert_allclose(whole, alone, rtol=near, atol=16 * 64 * EPS)


# --- the multiplier --------------------------------------------------------------------------

scalars = (
    st.lists(
        st.sampled_from(["scale_q:sqrt", "scale_qk:pow:-0.25", "scale_q:0.3", "scale_qk:sqrt2"]),
        max_size=3,
    ),
    st.lists(
        st.sampled_from(
            [
                "scale:dk",
                "scale:sqrt_dmodel",
                "temperature:0.7",
                "temperature:9,clamp",
                "logn:7",
                "yarn:8",
            ]
        ),
        max_size=3,
    ),
)


@given(*scalars, st.booleans())
def test_logits_are_the_multiplier_times_the_dot_product(before, after, projected):
    steps = [*["proj:xavier"] * projected, *before, "dot", *after]
    pipeline = parse("|".join(steps))
    c = pipeline.multiplier(CONTEXT)
    applied = pipeline.run(np.random.default_rng(0), draw(CONTEXT), CONTEXT)
    # At most 9 roundings per component, 16 in the product, on both sides.
    bound = 2 * (16 + 9) * EPS * c * (np.abs(applied.q).T @ np.abs(applied.k))
    assert (np.abs(applied.logits - c * (applied.q.T @ applied.k)) <= bound).all()


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("dot", 1.0),
        ("scale:sqrt", 1 / 4),
        ("scale_q:sqrt", 1 / 4),
        ("scale_qk:sqrt", 1 / 16),
        ("scale_qk:pow:-0.25", 1 / 4),
        ("scale:sqrt_dmodel", 1 / 8),
        ("temperature:4", 1 / 4),
        ("temperature:1,clamp", 1 / 2),
        ("logn:144", 1 / 2),
        ("yarn:1", 1.0),
        ("scale_qk:1e200", math.inf),
        ("proj:xavier | scale:sqrt | temperature:2", 1 / 8),
    ],
)
def test_multiplier(text, right):
    assert parse(text).multiplier(CONTEXT) == pytest.approx(right, rel=4 * EPS)


@pytest.mark.parametrize(
    "text",
    [
        "qk_norm:rms",
        "rope",
        "softcap:5",
        "alibi:0",
        "additive",
        "dtype:bfloat16",
        "dot | dtype:float16",
        "user:a:b",
        "user_q:a:b",
        "user_k:a:b",
        "scale:sqrt | softcap:50 | temperature:2",
    ],
)
def test_no_multiplier(text):
    assert parse(text).multiplier(CONTEXT) is None


def test_the_multiplier_needs_what_its_rules_need():
    with pytest.raises(InputError, match="--dmodel"):
        parse("scale:sqrt_dmodel").multiplier(Context(dk=4, keys=2))


# --- notes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("qk_norm:rms | rope | scale:sqrt | softcap:50", ()),
        ("scale:sqrt | alibi:0.5", ()),
        ("scale:none | scale:sqrt", ()),
        ("qk_norm:rms | scale_q:sqrt", ()),
        ("dot", ()),
        (
            "softcap:50 | scale:sqrt",
            ("softcap:50 stands before scale:sqrt: it caps the raw scores",),
        ),
        (
            "scale:sqrt | softcap:50 | alibi:1 | temperature:2",
            (
                "softcap:50 stands before temperature:2: it caps what is then multiplied",
                "alibi:1 stands before temperature:2: its penalty is multiplied too",
            ),
        ),
        (
            "alibi:1 | user:a:b | yarn:4",
            ("alibi:1 stands before yarn:4: its penalty is multiplied too",),
        ),
        (
            "proj:xavier",
            ("proj:xavier makes q and k: the law asked for their components does not enter",),
        ),
        (
            "scale_q:sqrt | rope | qk_norm:l2",
            ("qk_norm:l2 undoes what stands before it: scale_q:sqrt",),
        ),
        (
            "scale_q:sqrt | scale_qk:dk | qk_norm:l2 | scale_q:sqrt | scale:dk",
            (
                "qk_norm:l2 undoes what stands before it: scale_q:sqrt and scale_qk:dk",
                "scale_q:sqrt and scale:dk multiply each other",
            ),
        ),
        (
            "scale_q:sqrt | user_q:a:b | qk_norm:l2 | scale:sqrt",
            ("scale_q:sqrt and scale:sqrt multiply each other",),
        ),
        (
            "scale_qk:pow:-0.25 | rope | scale:sqrt",
            ("scale_qk:pow:-0.25 and scale:sqrt multiply each other",),
        ),
        (
            "dtype:float16 | scale:sqrt",
            ("dtype:float16 rounds q and k alone; dot | dtype:float16 would round the raw scores",),
        ),
        ("dtype:float16 | dot | dtype:float16 | scale:sqrt", ()),
        ("dtype:float16 | rope", ()),
        ("dtype:float16 | additive", ()),
        ("scale:sqrt | dtype:bfloat16", ()),
    ],
)
def test_notes(text, notes):
    assert parse(text).notes() == notes


# --- blocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "context", "message"),
    [
        (
            "scale:sqrt",
            Context(dk=0, keys=4),
            "--dk: got 0, want an integer ≥ 1",
        ),
        (
            "scale_q:sqrt | rope",
            Context(dk=7, keys=4),
            "and an even d_k; for example rope:500000; step 2 of 2: d_k = 7 is odd and cannot be",
        ),
        ("qk_norm:layer", Context(dk=1, keys=4), "step 1 of 1: with d_k = 1 nothing is left"),
        ("scale:sqrt_dmodel", Context(dk=4, keys=4), "--dmodel: got None, want an integer ≥ 1"),
        ("scale_qk:sqrt_dmodel", Context(dk=4, keys=4), "the scaling sqrt_dmodel needs it"),
        (
            "proj:orthogonal,8",
            Context(dk=9, keys=4),
            "9 rows cannot be orthonormal in 8 dimensions",
        ),
        ("proj:orthogonal", Context(dk=9, keys=4, d_model=8), "step 1 of 1: 9 rows"),
        ("proj:xavier", Context(dk=9, keys=4, d_model=1), "LayerNorm needs a width ≥ 2"),
    ],
)
def test_blocks_that_are_refused(text, context, message):
    pipeline = parse(text)
    with pytest.raises(InputError) as caught:
        pipeline.check(context)
    assert message in str(caught.value)
    with pytest.raises(InputError):
        pipeline.run(np.random.default_rng(0), draw(context), context)


def test_blocks_that_are_welcome():
    for text in ("rope", "qk_norm:layer", "proj:orthogonal,8", "scale:sqrt_dmodel", "dot"):
        parse(text).check(Context(dk=8, keys=4, d_model=2))
    for text in ("qk_norm:rms", "qk_norm:l2", "scale:sqrt", "additive"):
        parse(text).check(Context(dk=1, keys=1))


@pytest.mark.parametrize("shapes", [((15, 5), (16, 12)), ((16, 5), (16, 11)), ((16, 5), (15, 12))])
def test_vectors_of_another_block_are_refused(shapes):
    q, k = map(np.ones, shapes)
    with pytest.raises(ValueError, match="do not fit Context"):
        parse("dot").run(np.random.default_rng(0), lambda _: (q, k), CONTEXT)
