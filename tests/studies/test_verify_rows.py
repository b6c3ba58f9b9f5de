"""What the rows of `verify` carry for their readers."""

from __future__ import annotations

import pytest

from sdpa_check.records import ClaimText, Outcome
from sdpa_check.studies.verify import verify

FILE = """
[[claim]]
id = "less"
source = "S"
section = "1"
statement = "it is smaller"
quantity = "jacobian.frobenius"
params = { dk = 8, keys = 8, scale = "sqrt" }
versus = { scale = "dk" }
stated = 0
relation = "at most"
expected = "refuted"
right = "larger"
note = "why"

[[claim]]
id = "row"
statement = "softmax([0, 0]) is [½, ½]"
quantity = "softmax.weights"
params = { logits = [0, 0] }
stated = [0.6, 0.6]
relation = "at most"

[[claim]]
id = "word"
source = "S"
statement = "everyone uses it"
reason = "about usage"
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("claims") / "mine.toml"
    path.write_text(FILE, encoding="utf-8")
    return {row.id: row for row in verify(path, samples=4096).rows}


def test_a_row_carries_what_the_document_says(rows):
    assert rows["less"].claim == ClaimText(
        statement="it is smaller", source="S", section="1", right="larger", note="why"
    )
    assert "it is smaller" not in rows["less"].reason
    assert rows["word"].claim == ClaimText(
        statement="everyone uses it", source="S", note="about usage"
    )
    assert (rows["word"].reason, rows["word"].verdict) == ("about usage", Outcome.NOT_RUN)


def test_theory_judges_no_document(rows):
    (theory,) = [row for name, row in rows.items() if name.startswith("theory/")]
    assert theory.claim is None
    assert theory.prediction.relation == "equal"


def test_a_difference_keeps_the_parameters_of_both_terms(rows):
    assert rows["less"].params["scale"] == "sqrt"
    assert rows["less"].params["versus"] == {"scale": "dk"}


def test_a_list_of_stated_numbers_is_kept_whole(rows):
    assert rows["row"].params == {"logits": [0, 0], "stated": [0.6, 0.6]}
    assert "stated" not in rows["less"].params


def test_a_stated_number_keeps_its_relation(rows):
    for name in ("less", "row"):
        assert rows[name].prediction.relation == "at most"
        assert rows[name].prediction.source == "stated"
