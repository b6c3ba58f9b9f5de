"""TOML → claims: what a file may say, and how a file that says something else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdpa_check.claims import registry, selection
from sdpa_check.claims.registry import load, parse
from sdpa_check.claims.selection import select
from sdpa_check.errors import InputError
from sdpa_check.records import Outcome

GOOD = """
[[claim]]
id = "my-var"
statement = "the variance of q·k is 64"
quantity = "dot.variance"
params = { dk = 64 }
stated = 64
"""
EXACT = """
[[claim]]
id = "my-row"
statement = "softmax([0, 0]) is [0.5, 0.5]"
quantity = "softmax.weights"
params = { logits = [0, 0] }
stated = [0.5, 0.5]
"""
PIPELINE = """
[[claim]]
id = "my-std"
statement = "the logits have standard deviation 1"
quantity = "ledger.std"
params = { dk = 64, keys = 8, pipeline = "scale:sqrt" }
stated = 1
"""
SCALED = """
[[claim]]
id = "my-std"
statement = "the logits have standard deviation 1"
quantity = "logit.std"
params = { dk = 64, scale = "sqrt" }
stated = 1
"""
DOCUMENTARY = """
[[claim]]
id = "my-word"
statement = "everyone uses it"
reason = "a statement about usage"
"""


def more(text, *lines):
    return text + "\n".join(lines) + "\n"


def without(text, name):
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith(f"{name} =")
    )


def but(text, name, value):
    """The block with another value of one field."""
    return more(without(text, name), f"{name} = {value}")


def only(text):
    (claim,) = parse(text, "file.toml")
    return claim


def test_a_block_becomes_a_claim():
    claim = only(more(GOOD, 'source = "S"', 'section = "1"', "slow = true", 'note = "n"'))
    assert (claim.id, claim.quantity, claim.stated) == ("my-var", "dot.variance", (64.0,))
    assert (claim.source, claim.section, claim.note) == ("S", "1", "n")
    assert (claim.relation, claim.band, claim.tolerance) == ("equal", None, None)
    assert claim.expected is Outcome.CONFIRMED
    assert claim.slow


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("decimals = 1", "band", 0.1),
        ("decimals = 0", "band", 1.0),
        ("band = 2", "band", 2),
        ("tolerance = 0.03", "tolerance", 0.03),
        ('relation = "at most"', "relation", "at most"),
        ('expected = "refuted"', "expected", Outcome.REFUTED),
        ("control = { dk = 32, stated = 1 }", "control", {"dk": 32, "stated": 1}),
    ],
)
def test_the_other_fields(line, field, value):
    assert getattr(only(more(GOOD, line)), field) == value


def test_numbers_may_be_infinite_but_not_undefined():
    assert only(but(EXACT, "stated", '["inf", 0]')).stated == (float("inf"), 0.0)
    assert only(but(EXACT, "stated", "[inf, 0]")).stated == (float("inf"), 0.0)
    with pytest.raises(InputError, match="my-row: stated: got"):
        parse(but(EXACT, "stated", "[nan, 0]"), "file.toml")


def test_each_stands_for_a_list_of_claims():
    text = more(
        but(without(GOOD, "params"), "stated", "[8, 32]"),
        "each = { dk = [8, 8], sigma = [1, 1.41421356] }",
    )
    claims = parse(text, "file.toml")
    assert [c.id for c in claims] == ["my-var[dk=8,sigma=1]", "my-var[dk=8,sigma=1.41421356]"]
    assert [c.stated for c in claims] == [(8.0,), (32.0,)]
    assert [c.params for c in claims] == [{"dk": 8, "sigma": 1}, {"dk": 8, "sigma": 1.41421356}]


def test_each_may_share_one_stated_number():
    claims = parse(more(GOOD, 'each = { dist = ["uniform", "laplace"] }'), "file.toml")
    assert [c.stated for c in claims] == [(64.0,), (64.0,)]
    assert [c.params["dist"] for c in claims] == ["uniform", "laplace"]


def test_a_documentary_claim_is_not_run():
    claim = only(DOCUMENTARY)
    assert (claim.quantity, claim.expected) == (None, Outcome.NOT_RUN)
    assert claim.note == "a statement about usage"


def test_a_file_may_describe_its_document():
    claims = parse('[document]\ntitle = "Attention"\n' + GOOD + DOCUMENTARY, "file.toml")
    assert [c.id for c in claims] == ["my-var", "my-word"]


BAD = {
    "an unknown quantity": (but(GOOD, "quantity", '"dot.varianse"'), "my-var: quantity", "dot.va"),
    "a number for a quantity": (but(GOOD, "quantity", "3"), "my-var: quantity", "a text"),
    "no id": (without(GOOD, "id"), "claim 1", "'id'"),
    "an empty id": (but(GOOD, "id", '" "'), "claim 1: id", "a text"),
    "no statement": (without(GOOD, "statement"), "my-var", "'statement'"),
    "no stated number": (without(GOOD, "stated"), "my-var", "'stated'"),
    "neither quantity nor reason": (without(DOCUMENTARY, "reason"), "my-word", "'reason'"),
    "both of them": (more(GOOD, 'reason = "r"'), "my-var", "either"),
    "a text for a number": (but(GOOD, "stated", '"64"'), "my-var: stated", "a number"),
    "no number in a list": (but(EXACT, "stated", "[]"), "my-row: stated", "a number"),
    "true for a number": (but(GOOD, "stated", "true"), "my-var: stated", "a number"),
    "an unknown field": (more(GOOD, "statd = 3"), "my-var: field", "stated"),
    "a number for params": (but(GOOD, "params", "64"), "my-var: params", "a table"),
    "an unknown parameter": (
        but(GOOD, "params", "{ dk = 64, sgma = 2 }"),
        "my-var: params of dot.variance",
        "sigma",
    ),
    "keys of a dot product": (
        but(GOOD, "params", "{ dk = 64, keys = 8 }"),
        "my-var: params of dot.variance",
        "dk",
    ),
    "a parameter of the wrong type": (
        but(GOOD, "params", '{ dk = "64" }'),
        "my-var: params.dk",
        "an integer",
    ),
    "an unknown law": (
        but(GOOD, "params", '{ dk = 64, dist = "gausian" }'),
        "my-var: params.dist",
        "gaussian",
    ),
    "an unknown scale": (
        'params = { dk = 64, scale = "sqr" }\n'.join(
            but(GOOD, "quantity", '"logit.std"').split("params = { dk = 64 }\n")
        ),
        "my-var: params.scale",
        "sqrt",
    ),
    "d_k out of range": (but(GOOD, "params", "{ dk = 0 }"), "my-var: params.dk", "from 1"),
    "no d_k": (but(GOOD, "params", "{ }"), "my-var: params.dk", "d_k"),
    "several d_k at once": (
        but(GOOD, "params", "{ dk = [8, 64] }"),
        "my-var: params.dk",
        "one design",
    ),
    "no keys": (
        but(GOOD, "quantity", '"softmax.entropy"'),
        "my-var: params.keys",
        "number of keys",
    ),
    "no threshold": (
        but(GOOD, "quantity", '"dot.exceedance"'),
        "my-var: params.threshold",
        "number > 0",
    ),
    "no logits": (without(EXACT, "params"), "my-row: params.logits", "a list of numbers"),
    "a bad relation": (more(GOOD, 'relation = "less"'), "my-var: relation", "'at most'"),
    "a bad outcome": (more(GOOD, 'expected = "wrong"'), "my-var: expected", "'refuted'"),
    "a negative band": (more(GOOD, "band = -1"), "my-var: band", "≥ 0"),
    "an endless band": (more(GOOD, "band = inf"), "my-var: band", "≥ 0"),
    "half a decimal": (more(GOOD, "decimals = 1.5"), "my-var: decimals", "an integer"),
    "two bands": (more(GOOD, "decimals = 1", "band = 1"), "my-var", "only one"),
    "a band beside at most": (
        more(GOOD, 'relation = "at most"', "band = 1"),
        "my-var: band",
        "one-sided",
    ),
    "a tolerance of 1": (more(GOOD, "tolerance = 1"), "my-var: tolerance", "between 0 and 1"),
    "a text for slow": (more(GOOD, 'slow = "yes"'), "my-var: slow", "true or false"),
    "two numbers for one": (but(GOOD, "stated", "[64, 65]"), "my-var: stated", "one number"),
    "a comparison of what is computed": (
        more(EXACT, "versus = { logits = [0, 1] }"),
        "my-row: versus",
        "softmax.weights",
    ),
    "a relative band of what is computed": (
        more(EXACT, "tolerance = 0.1"),
        "my-row: tolerance",
        "softmax.weights",
    ),
    "an unknown parameter of a comparison": (
        more(GOOD, "versus = { scale = 2 }"),
        "my-var: versus of dot.variance",
        "sigma",
    ),
    "each without a list": (more(GOOD, "each = { dk = 8 }"), "my-var: each.dk", "a list"),
    "each with a bad entry": (
        more(GOOD, 'each = { dk = [8, "x"] }'),
        "my-var: each.dk",
        "an integer",
    ),
    "each of unequal lengths": (
        more(GOOD, "each = { dk = [8, 64], sigma = [1] }"),
        "my-var: each",
        "one length",
    ),
    "each with too few stated": (
        more(but(GOOD, "stated", "[1, 2, 3]"), "each = { dk = [8, 64] }"),
        "my-var: stated",
        "2 as in `each`",
    ),
    "each twice the same": (
        more(GOOD, "each = { dk = [8, 8] }"),
        "",
        "no other claim",
    ),
    "an unknown control": (more(GOOD, "control = { sgma = 2 }"), "my-var: control of", "sigma"),
    "a control of the wrong kind": (
        more(GOOD, 'control = { stated = "x" }'),
        "my-var: control.stated",
        "a number",
    ),
    "a control that cannot be used": (
        more(GOOD, 'control = { dist = "gausian" }'),
        "my-var: control.dist",
        "gaussian",
    ),
    "an empty control": (more(GOOD, "control = { }"), "my-var: control", "a change"),
    "a control that changes nothing": (
        more(GOOD, "control = { dk = 64, sigma = 1.0 }"),
        "my-var: control",
        "a change",
    ),
    "a control that changes nothing of one claim": (
        more(GOOD, "each = { dk = [8, 64] }", "control = { dk = 64 }"),
        "my-var[dk=64]: control",
        "a change",
    ),
    "a control with a bad pipeline": (
        more(PIPELINE, 'control = { pipeline = "scale:sqr" }'),
        "my-std: control.pipeline",
        "scale:RULE",
    ),
    "a bad pipeline": (
        but(PIPELINE, "params", '{ dk = 64, keys = 8, pipeline = "foo" }'),
        "my-std: params.pipeline",
        "softcap",
    ),
    "a pipeline that cannot act": (
        but(PIPELINE, "params", '{ dk = 63, keys = 8, pipeline = "rope" }'),
        "my-std: params.pipeline",
        "even",
    ),
    "a comparison with a bad scale": (
        more(SCALED, 'versus = { scale = "sqr" }'),
        "my-std: versus.scale",
        "sqrt",
    ),
    "a rule without its width": (
        but(SCALED, "params", '{ dk = 64, scale = "sqrt_dmodel" }'),
        "my-std: params.dmodel",
        "an integer",
    ),
    "a law without its parameter": (
        but(GOOD, "params", '{ dk = 64, dist = "t" }'),
        "my-var: params.d",
        "df = 5",
    ),
    "a single pair of brackets": ("[claim]\nid = 'x'\n", "", "[[claim]], in two pairs"),
    "a documentary claim with params": (
        more(DOCUMENTARY, "params = { dk = 8 }"),
        "my-word: params",
        "a quantity",
    ),
    "a documentary claim with a number": (
        more(DOCUMENTARY, "stated = 8"),
        "my-word: stated",
        "a quantity",
    ),
    "a documentary claim with a verdict": (
        more(DOCUMENTARY, 'expected = "refuted"'),
        "my-word: expected",
        "a quantity",
    ),
    "an id twice": (GOOD + GOOD, "", "no other claim"),
    "broken TOML": ("[[claim]\n", "", "valid TOML"),
    "no claim": ('[document]\ntitle = "x"\n', "", "at least one"),
    "claims that are no blocks": ("claim = 3\n", "", "at least one"),
    "claims that are no tables": ("claim = [1]\n", "claim 1", "a [[claim]] table"),
    "an unknown table": ("[[clam]]\nid = 'x'\n" + GOOD, "top level", "claim"),
}
"""What is wrong → the text, the place that the error must name, and a part of what it wants."""


@pytest.mark.parametrize(("text", "place", "want"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_by_name(text, place, want):
    with pytest.raises(InputError) as caught:
        parse(text, "file.toml")
    error = caught.value
    assert error.where.startswith(f"file.toml: {place}" if place else "file.toml")
    assert want in f"{error.want} {error.hint}"
    assert str(error).startswith(f"{error.where}: got ")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (but(GOOD, "quantity", '"dot.varianse"'), "'dot.variance'"),
        (more(GOOD, "statd = 3"), "'stated'"),
        (but(GOOD, "params", "{ dk = 64, sgma = 2 }"), "'sigma'"),
        ("[[clam]]\nid = 'x'\n" + GOOD, "'claim'"),
    ],
)
def test_a_slip_of_the_pen_is_met_with_the_nearest_name(text, hint):
    with pytest.raises(InputError, match=f"did you mean {hint}"):
        parse(text, "file.toml")


def test_what_was_got_is_shown():
    with pytest.raises(InputError) as caught:
        parse(but(GOOD, "params", "{ dk = 64, sigma = -2 }"), "file.toml")
    assert caught.value.got == -2
    with pytest.raises(InputError, match="'my-var'"):
        parse(GOOD + GOOD, "file.toml")


def test_a_file_is_loaded_by_its_path(tmp_path):
    path = tmp_path / "claims.toml"
    path.write_text(GOOD, encoding="utf-8")
    assert [claim.id for claim in load(path)] == ["my-var"]
    path.write_text(without(GOOD, "stated"), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(path)
    assert caught.value.where == f"{path}: my-var"


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a long path would be cut
    with pytest.raises(InputError, match=r"missing.toml.*a readable TOML file"):
        load(Path("missing.toml"))
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    with pytest.raises(InputError, match="a readable TOML file"):
        load(tmp_path / "latin.toml")


REFUSED = {
    "too few numbers": (
        but(EXACT, "stated", "[0.5]"),
        "my-row: stated: got [0.5], want 2 numbers for softmax.weights",
    ),
    "too many numbers in a control": (
        more(EXACT, "control = { stated = [0, 0, 0] }"),
        "my-row: control.stated: got [0.0, 0.0, 0.0], want 2 numbers for softmax.weights",
    ),
    "too many numbers for what is sampled": (
        more(GOOD, "control = { stated = [1, 2] }"),
        "my-var: control.stated: got [1.0, 2.0], want one number for dot.variance",
    ),
    "a statistic that a quantity does not have": (
        but(
            but(SCALED, "quantity", '"logit.max"'),
            "params",
            '{ dk = 8, keys = 8, scale = "dk", statistic = "rms" }',
        ),
        "my-std: params.statistic: got 'rms', want one of mean, median, q05, q95",
    ),
    "a row that is too long": (
        without(but(EXACT, "quantity", '"softmax.shift_error"'), "params").replace(
            "stated = [0.5, 0.5]", "params = { logits = [0, 2000], shift = 1 }\nstated = 0"
        ),
        "my-row: params.logits: got [0.0, 2000.0], want at most 64 logits",
    ),
    "nothing for d_k": (but(GOOD, "params", "{ }"), "my-var: params.dk: got missing, want d_k"),
    "true for d_k": (
        but(GOOD, "params", "{ dk = [8, true] }"),
        "my-var: params.dk: got [8, true], want an integer",
    ),
    "a table for a number": (
        but(GOOD, "stated", "{ a = true, b = 'c' }"),
        "my-var: stated: got { a = true, b = 'c' }, want a number",
    ),
    "nothing": ("", "got missing, want at least one [[claim]] block"),
}
"""What only a file as a whole is refused for → the text, and the error behind the file's name."""


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_a_bad_file_is_refused_before_anything_is_sampled(tmp_path, text, message):
    path = tmp_path / "claims.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "claims.toml"
    path.write_text(GOOD.lstrip(), encoding="utf-8-sig")
    assert [claim.id for claim in load(path)] == ["my-var"]


def test_a_file_and_a_claim_may_have_one_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my-var").write_text(but(GOOD, "params", "{ }"), encoding="utf-8")
    with pytest.raises(InputError, match=r"^my-var: my-var: params\.dk: "):
        load(Path("my-var"))


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("nope", ""),
        ("a-var", "did you mean 'A-var'?"),
        ("a-VAR[dk=8]", "did you mean 'A-var[dk=8]'?"),
        ("A-varaint", "did you mean 'A-variant'?"),
        ("c-*", "did you mean 'C-var'?"),
        ("x*", ""),
    ],
)
def test_the_nearest_id(wanted, hint):
    assert selection.nearest(wanted, ["C-var", "A-var[dk=8]", "A-variant", "entropy"]) == hint


@pytest.fixture
def claims():
    each = but(more(GOOD, "each = { dk = [8, 64] }"), "id", '"A-var"')
    return parse(each + but(GOOD, "id", '"A-variant"') + DOCUMENTARY, "file.toml")


@pytest.mark.parametrize(
    ("chosen", "ignored", "found"),
    [
        ([], [], ["A-var[dk=8]", "A-var[dk=64]", "A-variant", "my-word"]),
        (["A-var"], [], ["A-var[dk=8]", "A-var[dk=64]"]),
        (["A-var[dk=8]"], [], ["A-var[dk=8]"]),
        (["A-var*"], [], ["A-var[dk=8]", "A-var[dk=64]", "A-variant"]),
        (["A-*"], ["A-var"], ["A-variant"]),
        ([], ["*[dk=8]"], ["A-var[dk=64]", "A-variant", "my-word"]),
        (["my-word", "A-variant"], [], ["A-variant", "my-word"]),
    ],
)
def test_select(claims, chosen, ignored, found):
    assert [c.id for c in select(claims, chosen, ignored)] == found


@pytest.mark.parametrize(("option", "args"), [("--select", ["x"]), ("--ignore", ["my-wort"])])
def test_a_pattern_that_matches_nothing_is_refused(claims, option, args):
    chosen, ignored = (args, ()) if option == "--select" else ((), args)
    with pytest.raises(InputError) as caught:
        select(claims, chosen, ignored)
    assert (caught.value.where, caught.value.got) == (option, args[0])


def test_every_field_has_a_kind_that_is_checked():
    for name in registry.FIELDS:
        block = more(without(GOOD, name), f"{name} = 1979-05-27")
        with pytest.raises(InputError) as caught:
            parse(block, "file.toml")
        assert caught.value.where.endswith(f": {name}")
        assert caught.value.want == registry.FIELDS[name]
