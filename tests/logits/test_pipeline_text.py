"""The text of pipelines: its canonical form, its TOML, and what is refused."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdpa_check.errors import InputError
from sdpa_check.logits.pipeline import Pipeline, build, from_table, parse
from sdpa_check.logits.transforms import Context
from sdpa_check.records import Step

CONTEXT = Context(dk=16, keys=12, queries=5, d_model=64)


# --- text ------------------------------------------------------------------------------------

positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False).map(repr)
finite = st.floats(allow_nan=False, allow_infinity=False).map(repr)
rules = st.sampled_from(["none", "sqrt", "dk", "sqrt2", "sqrt_dmodel", " SQRT"])
rules = rules | positive | st.floats(-10, 10).map(lambda a: f"pow:{a!r}")


def step(name, *arguments):
    """Texts of a step with these arguments."""
    return st.tuples(*arguments).map(lambda given: f"{name}:{','.join(given)}" if given else name)


source = st.one_of(
    step("proj", st.sampled_from(["xavier", "kaiming", "torch_linear", "packed", "orthogonal"])),
    step("proj", st.sampled_from(["Xavier", "normal=0.02"]), st.integers(2, 9).map(str)),
    step("proj", st.just("normal = 2e-2"), st.integers(2, 9).map(str), finite),
)
vectors = st.one_of(
    step("scale_q", rules),
    step("scale_qk", rules),
    step("qk_norm", st.sampled_from(["rms", "layer", "L2"])),
    step("qk_norm", st.sampled_from(["rms", "layer", "l2"]), positive),
    step("rope"),
    step("rope", positive),
    step("rope", positive | st.just("10000"), finite | st.just("-0.0")),
    step("dtype", st.sampled_from(["float16", "bfloat16"])),
    step("user_q", st.just("numpy:tanh")),
    step("user_k", st.just("a.b_1:Function")),
)
score = st.one_of(step("dot"), step("additive"), step("additive", st.sampled_from(["inv", "unit"])))
on_logits = st.one_of(
    step("scale", rules),
    step("temperature", positive),
    step("temperature", positive, st.just("clamp")),
    step("logn", st.floats(1, 1e9, exclude_min=True).map(repr)),
    step("yarn", st.floats(1, 1e9).map(repr)),
    step("softcap", positive),
    step("alibi", st.floats(0, 1e9).map(repr)),
    step("user", st.just("numpy:tanh")),
)
after_score = on_logits | step("dtype", st.sampled_from(["float16", "bfloat16"]))


@st.composite
def texts(draw):
    """Valid pipelines in any spelling."""
    steps = draw(st.lists(source, max_size=1)) + draw(st.lists(vectors, max_size=3))
    scored = draw(st.lists(score, max_size=1))
    late = draw(st.lists(after_score, max_size=3))
    if late and not scored and late[0].startswith("dtype"):
        scored = ["dot"]
    steps = [*steps, *scored, *late] or ["dot"]
    bar = draw(st.sampled_from(["|", " | ", "  |", "|\t"]))
    return bar.join(steps)


def normals(rng):
    return rng.standard_normal((16, 5)), rng.standard_normal((16, 12))


@given(texts())
def test_every_valid_pipeline_runs(text):
    pipeline = parse(text)
    if any(step.arguments == ("a.b_1:Function",) for step in pipeline.steps):
        with pytest.raises(InputError, match=r"importing a\.b_1 failed"):
            pipeline.check(CONTEXT)
        return
    applied = pipeline.run(np.random.default_rng(0), normals, CONTEXT)
    assert applied.logits.shape == (5, 12)
    assert applied.logits.dtype == np.float64
    assert all(isinstance(note, str) for note in pipeline.notes())


@given(texts())
def test_canonical_text_round_trips(text):
    pipeline = parse(text)
    assert parse(str(pipeline)) == pipeline
    assert str(parse(str(pipeline))) == str(pipeline)
    if pipeline.steps:
        assert build(pipeline.steps) == pipeline
    assert " | ".join(map(str, pipeline.steps)) in {str(pipeline), ""}


@given(texts(), texts())
def test_equal_pipelines_have_equal_texts_and_no_others(one, other):
    a, b = parse(one), parse(other)
    assert (a == b) == (str(a) == str(b))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("qk_norm:rms | rope | scale:sqrt | softcap:50", None),
        (
            "QK_Norm: RMS|rope|scale : sqrt|softcap:50.0",
            "qk_norm:rms | rope | scale:sqrt | softcap:50",
        ),
        ("dot", None),
        ("dot | scale:sqrt", "scale:sqrt"),
        ("rope | dot", "rope"),
        ("dot | dtype:float16", None),
        ("dot | scale:sqrt | dtype:float16", "scale:sqrt | dtype:float16"),
        ("dtype:float16 | dot", "dtype:float16"),
        ("dtype:float16 | additive", None),
        ("additive | dtype:float16", None),
        ("additive:inv", "additive"),
        ("additive:unit", None),
        ("qk_norm:l2,1.0", "qk_norm:l2"),
        ("qk_norm:l2,1.50", "qk_norm:l2,1.5"),
        ("rope:1e4", "rope"),
        ("rope:1e4,-0", "rope"),
        ("rope:10000,5", "rope:10000,5"),
        ("rope:5e5,0", "rope:500000"),
        ("temperature:2,CLAMP", "temperature:2,clamp"),
        ("scale:pow:-.250", "scale:pow:-0.25"),
        ("scale:2", "scale:2.0"),
        ("alibi:0.00390625", None),
        ("logn:512 | yarn:16", None),
        ("proj:xavier,512.0,0", "proj:xavier,512"),
        ("proj:Normal=.02,512,1", "proj:normal=0.02,512,1"),
        ("softcap:1e300", "softcap:1e+300"),
        ("softcap:0.1", None),
        ("user_q:a.b:C | user:d:E", None),
    ],
)
def test_canonical_text(text, canonical):
    assert str(parse(text)) == (canonical or text)


def test_steps_are_records():
    assert parse("qk_norm:rms|rope|scale:pow:-0.5|softcap:50").steps == (
        Step("qk_norm", ("rms",)),
        Step("rope"),
        Step("scale", ("pow:-0.5",)),
        Step("softcap", ("50",)),
    )
    assert build([Step("softcap", ("50.0",))]) == parse("softcap:50")
    assert parse("dot").steps == ()
    assert parse("dot") == Pipeline()


# --- TOML ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "toml",
    [
        'pipeline = "qk_norm:rms | rope:500000,3 | scale:sqrt | softcap:50"',
        'pipeline = ["qk_norm:rms", "rope:500000,3", "scale:sqrt", "softcap:50"]',
        '[pipeline]\nqk_norm = "rms"\nrope = [500000, 3]\nscale = "sqrt"\nsoftcap = 50',
        'pipeline = ["qk_norm:rms | rope:500000,3", {scale = "sqrt"}, {softcap = 50.0}]',
        """[[pipeline]]
        qk_norm = ["rms"]
        [[pipeline]]
        rope = [5e5, "3"]
        scale = "sqrt"
        [[pipeline]]
        softcap = 50""",
    ],
)
def test_tables_say_the_same(toml):
    right = parse("qk_norm:rms | rope:500000,3 | scale:sqrt | softcap:50")
    assert from_table(tomllib.loads(toml)["pipeline"]) == right


def test_true_stands_for_no_argument():
    assert from_table({"rope": True, "additive": []}) == parse("rope | additive")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (3, "claims.toml: got 3, want a string, a table, or an array of these"),
        ([["rope"], None], "got None, want a string, a table"),
        ({"rope": False}, "got {'rope': False}, want true, a string, a number"),
        ({"rope": {"base": 1}}, "want true, a string, a number, or an array"),
        ({"rope": [1, [2]]}, "want true, a string, a number, or an array"),
        ({"rope": [True]}, "want true, a string, a number, or an array"),
        ({"softcap": "x"}, "claims.toml: got 'softcap:x', want softcap:C"),
        ({"softcap": float("nan")}, "step 1 of 1: nan is out of range"),
        ([], "claims.toml: got '', want at least one step"),
        ({}, "claims.toml: got '', want at least one step"),
        (["scale:sqrt", {"rope": True}], "got 'rope', want it before step 1, scale:sqrt"),
    ],
)
def test_tables_that_are_refused(table, message):
    with pytest.raises(InputError) as caught:
        from_table(table, where="claims.toml")
    assert message in str(caught.value)
    assert caught.value.where == "claims.toml"


# --- what is refused -------------------------------------------------------------------------

LATE = "it acts on q and k, and from there on only scores are left"


@pytest.mark.parametrize(
    ("text", "got", "message"),
    [
        ("", "", "want at least one step; dot alone is the plain dot product"),
        ("   ", "", "want at least one step"),
        ("qk_nrom:rms", "qk_nrom:rms", "step 1 of 1, did you mean 'qk_norm'?"),
        ("rope | sofcap:50", "sofcap:50", "step 2 of 2, did you mean 'softcap'?"),
        (
            "rope | zzzz",
            "zzzz",
            "want one of additive, alibi, dot, dtype, logn, proj, qk_norm, rope",
        ),
        ("rope || scale:sqrt", "", "want one of additive, alibi"),
        ("rope |", "", "step 2 of 2"),
        # wrong arguments
        ("scale", "scale", "want scale:RULE with RULE none, sqrt"),
        ("scale:sqt", "scale:sqt", "step 1 of 1: 'sqt' is none of them; did you mean 'sqrt'?"),
        ("scale:-1", "scale:-1", "'-1' is none of them"),
        ("scale:pow:11", "scale:pow:11", "'pow:11' is none of them; for example pow:-0.25"),
        ("scale:iqr", "scale:iqr", "iqr needs the law of q·k, which a pipeline may change"),
        ("scale_q:all", "scale_q:all", "want scale_q:RULE"),
        ("scale_qk:", "scale_qk:", "want scale_qk:RULE"),
        ("scale:sqrt,2", "scale:sqrt,2", "'2' is one argument too many"),
        ("temperature", "temperature", "want temperature:T[,clamp] with T > 0"),
        ("temperature:0", "temperature:0", "0 is out of range"),
        ("temperature:1,clam", "temperature:1,clam", "did you mean 'clamp'?"),
        ("temperature:1,", "temperature:1,", "'' is none of them"),
        ("temperature:1,clamp,2", "temperature:1,clamp,2", "'2' is one argument too many"),
        ("qk_norm", "qk_norm", "want qk_norm:KIND[,gain] with KIND rms, layer or l2"),
        ("qk_norm:rsm", "qk_norm:rsm", "did you mean 'rms'?"),
        ("qk_norm:rms,-1", "qk_norm:rms,-1", "-1 is out of range"),
        ("rope:x", "rope:x", "want rope[:base[,offset]] with a base > 0 and an even d_k"),
        ("rope:0", "rope:0", "0 is out of range"),
        ("rope:1e4,inf", "rope:1e4,inf", "inf is out of range"),
        ("rope:", "rope:", "'' is no number"),
        ("rope:1,2,3", "rope:1,2,3", "'3' is one argument too many"),
        ("softcap", "softcap", "want softcap:C with C > 0; for example softcap:50"),
        ("softcap:abc", "softcap:abc", "step 1 of 1: 'abc' is no number"),
        ("softcap:0", "softcap:0", "0 is out of range"),
        ("softcap:nan", "softcap:nan", "nan is out of range"),
        (
            "alibi",
            "alibi",
            "want alibi:SLOPE with SLOPE ≥ 0; for example alibi:0.5; step 1 of 1: an ",
        ),
        ("alibi:-0.5", "alibi:-0.5", "-0.5 is out of range"),
        ("logn:1", "logn:1", "want logn:N with N > 1"),
        ("yarn:0.5", "yarn:0.5", "want yarn:FACTOR with FACTOR ≥ 1"),
        ("additive:one", "additive:one", "want additive[:KIND] with KIND inv"),
        (
            "dot:1",
            "dot:1",
            "want dot, without arguments; step 1 of 1: '1' is one argument too many",
        ),
        ("dtype", "dtype", "want dtype:float16 or dtype:bfloat16"),
        ("dtype:fp16", "dtype:fp16", "want dtype:float16 or dtype:bfloat16"),
        ("dtype:bfloat", "dtype:bfloat", "did you mean 'bfloat16'?"),
        ("proj", "proj", "want proj:INIT[,width[,common]]"),
        ("proj:xavir", "proj:xavir", "did you mean 'xavier'?"),
        ("proj:normal", "proj:normal", "normal, and only normal, has a standard deviation"),
        ("proj:xavier=1", "proj:xavier=1", "normal, and only normal, has a standard deviation"),
        ("proj:normal=x", "proj:normal=x", "'x' is no number"),
        ("proj:normal=0", "proj:normal=0", "0 is out of range"),
        ("proj:normal=", "proj:normal=", "'' is no number"),
        ("proj:xavier,1", "proj:xavier,1", "1 is out of range"),
        ("proj:xavier,2.5", "proj:xavier,2.5", "2.5 is no integer"),
        ("proj:xavier,2,x", "proj:xavier,2,x", "'x' is no number"),
        # wrong order
        ("scale:sqrt | rope", "rope", f"want it before step 1, scale:sqrt: {LATE}; step 2 of 2"),
        (
            "rope | scale:sqrt | rope",
            "rope",
            f"want it before step 2, scale:sqrt: {LATE}; step 3 of 3",
        ),
        ("dot | qk_norm:rms", "qk_norm:rms", f"want it before step 1, dot: {LATE}"),
        ("additive | scale_q:sqrt", "scale_q:sqrt", "want it before step 1, additive"),
        ("rope | dtype:float16 | alibi:1 | user_k:a:b", "user_k:a:b", "before step 3, alibi:1: it"),
        (
            "scale:sqrt | additive",
            "additive",
            "before step 1, scale:sqrt: it makes the scores out of q",
        ),
        ("rope | proj:xavier", "proj:xavier", "before step 1, rope: it makes q and k; step 2 of 2"),
        ("dtype:float16 | proj:xavier", "proj:xavier", "before step 1, dtype:float16: it makes q"),
        ("additive | dot", "dot", "want one score at most; step 2 of 2; step 1 is additive"),
        ("dot | scale:dk | dot", "dot", "want one score at most; step 3 of 3; step 1 is dot"),
        (
            "proj:xavier | rope | proj:packed",
            "proj:packed",
            "want one source of q and k at most; step 3",
        ),
    ],
)
def test_pipelines_that_are_refused(text, got, message):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert caught.value.where == "--pipeline"
    assert caught.value.got == got
    assert message in str(caught.value)
