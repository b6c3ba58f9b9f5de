"""Users' own functions in a pipeline."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from sdpa_check.errors import InputError
from sdpa_check.logits.pipeline import parse

pytestmark = pytest.mark.usefixtures("own_modules")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_act_where_they_are_told_to(block, dtype):
    made = block(4, 3, 2, dtype=dtype)
    plain = made.run(parse("dot")).logits
    for kind in ("user", "user_q", "user_k"):
        got = made.run(parse(f"{kind}:own_transforms:doubled")).logits
        assert got.dtype == dtype
        assert np.array_equal(got, 2 * plain)  # doubling is exact
    rounded = made.run(parse("user:own_transforms:as_integers")).logits
    assert rounded.dtype == dtype
    assert np.array_equal(rounded, np.rint(plain))
    both = made.run(parse("user_q:own_transforms:as_integers")).logits
    np.testing.assert_allclose(both, np.rint(made.q).T @ made.k, rtol=0, atol=1e-6)


def test_a_function_may_write_to_what_it_gets(block):
    made = block(4, 3, 2)
    before = made.q.copy()
    doubled = made.run(parse("user_q:own_transforms:in_place")).logits
    assert np.array_equal(doubled, 2 * (made.q.T @ made.k))
    assert np.array_equal(made.q, before)


def test_lists_and_infinities_are_numbers(block):
    made = block(4, 3, 2)
    plain = made.run(parse("dot")).logits
    assert np.array_equal(made.run(parse("user:own_transforms:as_lists")).logits, plain)
    infinite = made.run(parse("user:own_transforms:infinite")).logits
    assert np.array_equal(np.isinf(infinite), plain > 0)


def test_nan_that_was_there_before_is_not_the_functions_fault(block):
    made = block(4, 3, 2)
    made.q = np.zeros((4, 2))
    text = "qk_norm:rms | user_q:own_transforms:doubled"
    assert np.isnan(made.run(parse(text)).logits).all()


@pytest.mark.parametrize("kind", ["user", "user_q", "user_k"])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("first_row", r"of the shape that it gets; it returned shape \(1, \d\) of dtype float64"),
        ("complex_numbers", r"it returned shape \(\d, \d\) of dtype complex128"),
        ("words", "of dtype <U1"),
        ("ragged", "it raised ValueError"),
        ("nan", "it made NaN out of finite numbers"),
        ("raising", "it raised ZeroDivisionError: of its own"),
        ("leaving", "it raised SystemExit: 0"),
    ],
)
def test_a_function_that_breaks_its_contract(block, kind, function, message):
    pipeline = parse(f"{kind}:own_transforms:{function}")
    with pytest.raises(InputError, match=message) as caught:
        block(4, 3, 2).run(pipeline)
    assert caught.value.where == "--pipeline"
    assert caught.value.got == f"{kind}:own_transforms:{function}"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("own_transforms:dubled", "own_transforms has no 'dubled', did you mean 'doubled'?"),
        ("own_transforms:zzz", "own_transforms has no 'zzz'$"),
        ("own_transforms:NUMBER", "NUMBER of own_transforms is no function"),
        ("not_there_at_all:f", "importing not_there_at_all failed: ModuleNotFoundError"),
        ("own_broken:f", "importing own_broken failed: RuntimeError: no licence"),
        ("own_leaving:f", "importing own_leaving failed: SystemExit: bye"),
    ],
)
def test_a_function_that_cannot_be_loaded(block, target, message):
    pipeline = parse(f"scale:sqrt | user:{target}")
    with pytest.raises(InputError, match=f"want user:module:function .*; step 2 of 2: {message}"):
        pipeline.check(block(4, 3, 2).context)
    with pytest.raises(InputError, match=message):
        block(4, 3, 2).run(pipeline)


@pytest.mark.parametrize("text", ["user:f", "user:", "user:a b:f", "user_q:m:", "user_k:m:f:g"])
def test_a_target_that_is_none(text):
    with pytest.raises(InputError, match="is not module:function"):
        parse(text)


def test_what_a_function_prints_is_not_among_the_results(block, capsys):
    block(4, 3, 2).run(parse("user:own_transforms:talking"))
    assert capsys.readouterr() == ("", "hello\n")


def test_parsing_imports_nothing():
    assert str(parse("USER: not_there.At_all:F")) == "user:not_there.At_all:F"


def test_pipelines_travel_to_workers():
    pipeline = parse("proj:xavier | rope | user:own_transforms:doubled | softcap:5")
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline  # noqa: S301 (our own bytes)
