"""Scaling rules: what each multiplies by, and what text means it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdpa_check.errors import InputError
from sdpa_check.logits.scaling import ALL, RULES, Scaling, parse, parse_all

EPS = 2.0**-52
dimensions = st.integers(1, 10**7)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("none", 1.0),
        ("sqrt", 1 / 8),
        ("dk", 1 / 64),
        ("sqrt2", 1 / math.sqrt(128)),
        ("sqrt_dmodel", 1 / math.sqrt(512)),
        ("pow:-0.25", 1 / math.sqrt(8)),
        ("pow:1", 64.0),
        ("pow:0", 1.0),
        ("0.3", 0.3),
        ("1e-3", 0.001),
    ],
)
def test_multiplier_at_64_of_512(text, right):
    assert parse(text).multiplier(64, 512) == pytest.approx(right, rel=4 * EPS)


@given(dimensions, dimensions, st.floats(1e-3, 1e6))
def test_rules_are_their_formulas(dk, d_model, iqr):
    right = {
        "none": 1.0,
        "sqrt": 1 / math.sqrt(dk),
        "dk": 1 / dk,
        "sqrt2": 1 / math.sqrt(2 * dk),
        "sqrt_dmodel": 1 / math.sqrt(d_model),
        "iqr": 1.3489795003921634 / iqr,  # 2 Φ⁻¹(¾), from scipy.stats.norm.ppf
    }
    got = {name: rule.multiplier(dk, d_model, iqr) for name, rule in RULES.items()}
    assert got == pytest.approx(right, rel=4 * EPS)


@given(dimensions, st.floats(-10, 10))
def test_power_is_the_exponential_of_the_logarithm(dk, a):
    # exp multiplies the relative error of its argument, at most 2 eps, by the argument.
    argument = a * math.log(dk)
    got = parse(f"pow:{a!r}").multiplier(dk)
    assert got == pytest.approx(math.exp(argument), rel=4 * EPS * (1 + abs(argument)))


def test_the_iqr_rule_needs_an_iqr():
    assert [name for name, rule in RULES.items() if rule.needs_iqr] == ["iqr"]
    with pytest.raises(InputError, match="iqr"):
        parse("iqr").multiplier(64)


def test_only_sqrt_dmodel_needs_dmodel():
    assert [name for name, rule in RULES.items() if rule.needs_dmodel] == ["sqrt_dmodel"]
    assert not parse("pow:-0.5").needs_dmodel
    assert parse("sqrt").multiplier(64) == parse("sqrt").multiplier(64, 4096)


# --- text ------------------------------------------------------------------------------------


@given(st.floats(-10, 10))
def test_powers_round_trip(a):
    rule = parse(f"pow:{a!r}")
    assert rule.dk_exponent == a
    assert parse(str(rule)) == rule
    assert str(parse(str(rule))) == str(rule)


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_constants_round_trip(value):
    rule = parse(repr(value))
    assert rule.multiplier(64) == value
    assert parse(str(rule)) == rule


@pytest.mark.parametrize("name", list(RULES))
def test_names_round_trip(name):
    assert parse(name) is RULES[name]
    assert str(RULES[name]) == name


@pytest.mark.parametrize(
    ("text", "name", "formula"),
    [
        ("none", "none", "1 (none)"),
        (" SQRT ", "sqrt", "1/√d"),
        ("dk", "dk", "1/d"),
        ("sqrt2", "sqrt2", "1/√(2d)"),
        ("sqrt_dmodel", "sqrt_dmodel", "1/√d_model"),
        ("pow:-.250", "pow:-0.25", "d^-0.25"),
        ("pow:-0", "pow:0.0", "d^0.0"),
        (".5", "0.5", "0.5"),
        ("2", "2.0", "2.0"),
    ],
)
def test_canonical_text_and_formula(text, name, formula):
    rule = parse(text)
    assert (rule.name, rule.formula) == (name, formula)


def test_all_is_the_three_that_are_compared():
    assert ALL == ("none", "sqrt", "dk")
    assert [str(rule) for rule in parse_all(["all"])] == ["none", "sqrt", "dk"]


def test_repetitions_count_once_and_order_is_kept():
    rules = parse_all(["dk", "0.50", "ALL", "0.5", "sqrt2", "dk"])
    assert [str(rule) for rule in rules] == ["dk", "0.5", "none", "sqrt", "sqrt2"]


def test_nothing_asked_nothing_found():
    assert parse_all([]) == ()


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "foo",
            "--scale: got 'foo', want one of <number>, dk, iqr, none, pow:a, sqrt, sqrt2, sqrt_d",
        ),
        ("sqt", "did you mean 'sqrt'"),
        ("sqrt_model", "did you mean 'sqrt_dmodel'"),
        ("", "--scale: got '', want one of"),
        ("all", "--scale: got 'all', want one of <number>"),
        ("0", "got '0', want a finite multiplier > 0"),
        ("-0.5", "got '-0.5', want a finite multiplier > 0"),
        ("nan", "want a finite multiplier > 0"),
        ("inf", "want a finite multiplier > 0"),
        ("pow", "got 'pow', want pow:a with −10 ≤ a ≤ 10; for example pow:-0.25"),
        ("pow:", "want pow:a with"),
        ("pow:half", "got 'pow:half', want pow:a with"),
        ("pow:nan", "want pow:a with"),
        ("pow:10.5", "want pow:a with"),
        ("pow:-inf", "want pow:a with"),
    ],
)
def test_text_that_is_refused(text, message):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_parse_all_knows_all():
    with pytest.raises(InputError, match="want one of <number>, all, dk"):
        parse_all(["sqrt", "foo"])
    with pytest.raises(InputError, match="did you mean 'all'"):
        parse_all(["al"])


def test_error_names_the_place_it_is_told():
    with pytest.raises(InputError, match=r"^--pipeline: "):
        parse("foo", where="--pipeline")
    with pytest.raises(InputError, match=r"^--pipeline: "):
        parse_all(["pow:x"], where="--pipeline")
    with pytest.raises(InputError, match=r"^--pipeline: "):
        parse_all(["-1"], where="--pipeline")


@pytest.mark.parametrize("d_model", [None, 0, -512])
def test_missing_dmodel_is_named(d_model):
    with pytest.raises(InputError, match=rf"--dmodel: got {d_model}, want an integer ≥ 1; .*sqrt"):
        parse("sqrt_dmodel").multiplier(64, d_model)


@pytest.mark.parametrize("dk", [0, -1])
def test_empty_queries_are_refused(dk):
    with pytest.raises(InputError, match=rf"--dk: got {dk}, want an integer ≥ 1"):
        parse("sqrt").multiplier(dk)


def test_a_rule_is_three_numbers():
    own = Scaling("own", "2·d^-1·√D", coefficient=2.0, dk_exponent=-1.0, dmodel_exponent=0.5)
    assert own.multiplier(4, 9) == 1.5
