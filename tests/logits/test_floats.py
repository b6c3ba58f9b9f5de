"""Rounding to float16 and bfloat16, exact to the bit."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sdpa_check.logits.pipeline import parse
from sdpa_check.logits.transforms.floats import to_bfloat16, to_float16


def slow_rounding(x, *, digits, lowest, overflow):
    """Round to `digits` significant bits with exponent ≥ `lowest`, ties to even; exact fractions.

    `overflow` is the power of two at which the format ends.
    """
    if math.isnan(x) or math.isinf(x) or x == 0:
        return x
    exponent = max(math.frexp(x)[1] - 1, lowest)
    step = Fraction(2) ** (exponent - digits + 1)
    rounded = round(Fraction(x) / step) * step  # Python's round takes ties to even
    size = math.inf if abs(rounded) >= overflow else float(abs(rounded))
    return math.copysign(size, x)


BFLOAT16 = {"digits": 8, "lowest": -126, "overflow": Fraction(2) ** 128}
FLOAT16 = {"digits": 11, "lowest": -14, "overflow": Fraction(2) ** 16}


def same(got, right):
    return np.array_equal(np.float64(got).view(np.uint64), np.float64(right).view(np.uint64)) or (
        math.isnan(got) and math.isnan(right)
    )


@pytest.mark.parametrize(
    ("fast", "rules"), [(to_bfloat16, BFLOAT16), (to_float16, FLOAT16)], ids=["bfloat16", "float16"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_is_the_slow_one(fast, rules, dtype):
    width = 32 if dtype == np.float32 else 64
    tie = 1 + 2.0**-8  # halfway between 1 and the next bfloat16

    @given(st.floats(width=width) | st.floats(-70000, 70000, width=width))
    @example(tie)
    @example(tie + 2.0**-7)
    @example(-tie)
    @example(0.0)
    @example(-0.0)
    @example(2.0**-126 - 2.0**-134)
    @example(2.0**-134)
    @example(3 * 2.0**-134)
    @example(-(2.0**-140))
    @example(65519.0)
    @example(65520.0)
    @example(2.0**127 * (2 - 2.0**-8))
    @example(2.0**127 * (2 - 2.0**-7))
    @example(math.inf)
    @example(-math.inf)
    @example(math.nan)
    def check(x):
        got = fast(np.array([x], dtype))
        assert got.dtype == dtype
        assert same(got[0], slow_rounding(x, **rules))

    check()


@given(st.integers(0, 2**32 - 1))
@example(0x7FFFFFFF)  # a NaN whose bits a careless addition carries into −0
@example(0xFFFFFFFF)
@example(0x7F800001)
def test_every_pattern_of_bits_rounds(bits):
    x = np.array([bits], np.uint32).view(np.float32)
    assert same(to_bfloat16(x)[0], slow_rounding(float(x[0]), **BFLOAT16))


@given(st.integers(0, 2**32 - 1))
def test_bfloat16_is_that_of_ml_dtypes(bits):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([bits], np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        right = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert same(to_bfloat16(x)[0], right[0])


def test_float64_is_not_rounded_twice():
    """1 + 2^−8 + 2^−40 is above the tie, but its float32 is the tie, which goes to 1."""
    x = np.array([1 + 2.0**-8 + 2.0**-40])
    assert to_bfloat16(x)[0] == 1 + 2.0**-7
    assert to_bfloat16(x.astype(np.float32))[0] == 1.0


def test_strided_input_and_shape():
    x = np.arange(24, dtype=np.float32).reshape(4, 6).T[::2] * 1.37
    assert to_bfloat16(x).shape == (3, 4)
    right = [[slow_rounding(float(v), **BFLOAT16) for v in row] for row in x]
    assert to_bfloat16(x).tolist() == right


def test_bfloat16_has_steps_of_one_half_near_90():
    x = np.linspace(80, 100, 20 * 64 + 1)
    y = to_bfloat16(x)
    assert np.unique(y).tolist() == [80 + i / 2 for i in range(41)]
    assert np.abs(y - x).max() == 0.25


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_where_the_scale_stands_decides_about_overflow(block, dtype):
    """d = 64, all entries 32: the raw product is 65536, which float16 does not hold."""
    made = block(64, 1, 1, dtype=dtype)
    made.q = made.k = np.full((64, 1), 32, dtype)

    def logit(text):
        return made.run(parse(text)).logits.item()

    assert logit("dtype:float16 | scale:sqrt") == 8192
    assert logit("dtype:float16 | dot | dtype:float16 | scale:sqrt") == math.inf
    assert logit("scale_q:sqrt | dtype:float16 | dot | dtype:float16") == 8192
    assert logit("scale_qk:pow:-0.25 | dot | dtype:float16") == 8192
    assert logit("dot | dtype:bfloat16 | scale:sqrt") == 8192
    made.k = -made.k
    assert logit("dot | dtype:float16") == -math.inf


def test_rounding_acts_on_vectors_before_the_score_and_on_logits_after_it(block):
    made = block(3, 2, 1)
    made.k = np.ones((3, 2))
    made.q = np.full((3, 1), 1 + 2.0**-7)  # a bfloat16; three of them are not
    assert made.run(parse("dtype:bfloat16")).logits.tolist() == [[3 + 3 * 2.0**-7] * 2]
    assert made.run(parse("dot | dtype:bfloat16")).logits.tolist() == [[3 + 2.0**-5] * 2]
    made.q = np.full((3, 1), 1 + 2.0**-9)  # no bfloat16, and three of them round to 3 as well
    assert made.run(parse("dtype:bfloat16")).logits.tolist() == [[3, 3]]
    assert made.run(parse("dot")).logits.tolist() == [[3 + 3 * 2.0**-9] * 2]
