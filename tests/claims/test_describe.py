"""A claim in words."""

from __future__ import annotations

import json
import math

import pytest

from sdpa_check.claims import describe, registry

FILE = """
[[claim]]
id = "std"
source = "S"
section = "10.1"
statement = "the std is √d_k"
quantity = "dot.std"
each = { dk = [4, 64] }
stated = [2, 8]
control = { sigma = 1.03 }
note = "a root"

[[claim]]
id = "flatter"
source = "S"
section = "2.7"
statement = "√(2d) is flatter"
quantity = "softmax.entropy"
params = { scale = "sqrt2", dk = 64, keys = 64 }
versus = { scale = "sqrt" }
stated = 0
relation = "at least"

[[claim]]
id = "weights"
source = "R"
section = "preface"
statement = "softmax([0, 0]) is [0.4, 0.6]"
quantity = "softmax.weights"
params = { logits = [0, 0] }
stated = [0.4, 0.6]
decimals = 1
expected = "refuted"
right = "[0.5, 0.5]"

[[claim]]
id = "mean"
statement = "the mean is infinite"
quantity = "dot.variance"
params = { dk = 4, dist = "cauchy" }
stated = "inf"
slow = true

[[claim]]
id = "max"
source = "S"
section = "2.7"
statement = "the largest weight is 0.3"
quantity = "softmax.max_weight"
params = { scale = "sqrt", dk = 64, keys = 64 }
stated = 0.3

[[claim]]
id = "word"
source = "S"
section = "introduction"
statement = "everyone uses it"
reason = "about usage"
"""


@pytest.fixture(scope="module")
def claims():
    return registry.parse(FILE, "file.toml")


@pytest.fixture(scope="module")
def one(claims):
    return {claim.id: claim for claim in claims}


def test_what_each_made_is_one_group(claims):
    groups = describe.groups(claims)
    assert [describe.name(group) for group in groups] == [
        *("std", "flatter", "weights", "mean", "max", "word")
    ]
    assert [describe.label(claim) for claim in groups[0]] == ["dk=4", "dk=64"]
    assert describe.stated(groups[0]) == "dk=4: 2; dk=64: 8"
    assert describe.stated(groups[1]) == "≥ 0"
    assert describe.name(groups[0][:1]) == "std[dk=4]"


def test_claims_of_one_name_that_say_different_things_are_no_group(claims):
    import dataclasses

    other = dataclasses.replace(claims[1], statement="another one")
    assert [len(group) for group in describe.groups([claims[0], other])] == [1, 1]


def test_the_order_is_that_of_the_documents(claims):
    ids = [claim.id for claim in describe.in_order(claims)]
    assert ids == ["mean", "weights", "word", "flatter", "max", "std[dk=4]", "std[dk=64]"]


def test_place_leaves_out_what_is_not_given(one):
    assert describe.place(one["flatter"]) == "S, 2.7"
    assert describe.place(one["mean"]) == ""


def test_facts_of_a_number_that_theory_knows(one):
    assert describe.facts(one["std[dk=64]"]) == {
        "source": "S, 10.1",
        "quantity": "dot.std: √Var[s]",
        "params": "dk=64",
        "stated": "8 ± 0.08",
        "theory": "8",
        "from": describe.facts(one["std[dk=64]"])["from"],
        "expected": "confirmed",
        "control": "the verdict turns under sigma=1.03",
        "note": "a root",
    }


def test_facts_of_a_difference(one):
    facts = describe.facts(one["flatter"])
    assert facts["quantity"] == "softmax.entropy: E[H], H = −Σ p ln p, in nats"
    assert facts["params"] == "scale=sqrt2 − sqrt dk=64 keys=64"
    assert facts["stated"] == "≥ 0"
    assert facts["theory"] == "0.230928 = 3.91663 − 3.68571"


def test_facts_of_numbers_that_are_computed(one):
    facts = describe.facts(one["weights"])
    assert (facts["stated"], facts["computed"]) == ("0.4, 0.6 ± 0.1", "0.5, 0.5")
    assert (facts["expected"], facts["right"]) == ("refuted", "[0.5, 0.5]")
    assert "theory" not in facts


def test_facts_where_theory_has_no_number(one):
    facts = describe.facts(one["mean"])
    assert (facts["stated"], facts["theory"], facts["slow"]) == (
        *("∞ ± ∞", "∞", "only with --full"),
    )
    assert describe.facts(one["max"])["theory"] == "none"


def test_facts_of_a_documentary_claim(one):
    assert describe.facts(one["word"]) == {
        "source": "S, introduction",
        "expected": "not run",
        "note": "about usage",
    }


def test_every_claim_is_strict_json(claims):
    for claim in claims:
        found = describe.to_dict(claim)
        assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["quantity"] is None
    assert math.inf in claims[4].stated
    assert describe.to_dict(claims[4])["stated"] == ["inf"]


def test_every_built_in_claim_has_facts():
    """That theory and exact quantities answer for all of them."""
    for claim in registry.builtin():
        facts = describe.facts(claim)
        assert facts["expected"] == claim.expected
        assert ("quantity" in facts) == (claim.quantity is not None)
