"""The built-in claims: all there, explained, judged as their records expect, and controlled."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from sdpa_check import experiment
from sdpa_check.checks import Settings
from sdpa_check.claims import registry
from sdpa_check.records import Outcome

CLAIMS = registry.builtin()
MEASURED = [claim for claim in CLAIMS if claim.quantity is not None]
OPPOSITE = {Outcome.CONFIRMED: Outcome.REFUTED, Outcome.REFUTED: Outcome.CONFIRMED}

STATEMENTS = {
    "confirmed": """
        A-term-mean A-term-var A-var A-std A-growth A-scaled A-softmax-20 A-sat-8
        B-1.2 B-1.2-mean B-1.2-std B-1.2-range B-1.2-product B-1.3 B-1.3-e24 B-1.4-formula
        B-1.4-zero B-1.4-d64-8 B-2.2-cross B-2.4 B-2.5 B-2.5-flat B-2.5-power B-2.6 B-2.6-flatter
        B-2.7-68 B-2.7-e68 B-2.7-within3 B-3.3 B-3.3-half B-3.3-range-2 B-3.4 B-3.4-flatter B-4.2
        B-5.1 B-5.2 B-5.2-point B-6.3-gradient B-7.2-bounded B-7.2-inf1 B-8.4-scores B-8.4-V-mean
        B-11.1 B-11.2-init B-12.4 B-12.4-clt B-12.5 B-13.2-zero B-15.2-dots B-15.2-softmax
        B-15.4-factor B-15.5-chain B-16.5 B-17.14-prob B-17.14-uniform B-17.5
        C-term C-var C-std C-linear C-scaled C-corr C-typical-gap C-temp C-differences C-ratio
        C-flat C-sat-1024 C-argmax C-1024-median C-unique
    """,
    "refuted": """
        A-sat-64
        B-1.4-d64-64 B-2.7-rival B-2.7-always3 B-3.2 B-3.3-range-8 B-3.3-range-1024 B-6.3-peaked
        B-7.2 B-7.3 B-8.2 B-8.4-bilinear B-8.4-V-var B-11.2-aligned B-12.2-gauss B-12.4-clt-t5
        B-12.4-clt-rademacher B-12.4-clt-t3 B-12.5-scale B-13.1-flat B-15.3-softmax B-15.4-softmax
        B-15.5-J B-16.4-constant
        C-1024-runner
    """,
    "not run": """
        A-norm-factor
        B-4.1 B-4.2-palm B-4.2-xiong B-4.4 B-5.3 B-6.2 B-8.1 B-8.3 B-9.2 B-9.2-xiong B-9.3
        B-10.3-kernels B-10.4-kernels B-11.4-use B-12.3 B-12.5-spectrum B-13.2 B-14.1
        C-boltzmann C-audit
    """,
}
"""What the three documents say and the registry must hold, by the verdict that it gets."""

SIZES = {"A-var": 8, "A-std": 8, "A-scaled": 8, "B-2.4": 3, "B-5.1": 3, "C-term": 4, "C-var": 12}
"""How many claims stand for one statement, where it names a list of values."""


def name(claim):
    """The id without the part that tells the members of a list apart."""
    return claim.id.partition("[")[0]


def one_of_each():
    """A claim for every statement: the first of a list, which has the same control as the rest."""
    found = {}
    for claim in MEASURED:
        if not claim.slow:
            found.setdefault(name(claim), claim)
    return list(found.values())


def test_no_id_is_used_twice():
    assert [i for i, count in Counter(c.id for c in CLAIMS).items() if count > 1] == []


@pytest.mark.parametrize("verdict", STATEMENTS)
def test_every_statement_is_there_with_its_verdict(verdict):
    names = STATEMENTS[verdict].split()
    found = {n: {c.expected for c in CLAIMS if name(c) == n} for n in names}
    assert {n: v for n, v in found.items() if v != {Outcome(verdict)}} == {}


def test_lists_of_values_are_complete():
    counts = Counter(map(name, CLAIMS))
    assert {n: counts[n] for n in SIZES} == SIZES


def test_every_claim_says_where_it_stands_and_why():
    for claim in CLAIMS:
        assert claim.source in {"A", "B", "C"}, claim.id
        assert claim.id.startswith(f"{claim.source}-"), claim.id
        assert claim.section, claim.id
        assert claim.note, claim.id


def test_a_refuted_claim_says_what_is_right():
    wrong = [c.id for c in CLAIMS if (c.expected is Outcome.REFUTED) != bool(c.right)]
    assert wrong == []


def test_every_claim_that_is_judged_has_a_control():
    assert [claim.id for claim in MEASURED if not claim.control] == []
    assert {claim.expected for claim in MEASURED} == set(OPPOSITE)


def test_every_control_changes_the_check():
    same = [c.id for c in MEASURED if c.controlled().check() == c.check()]
    assert same == []


def test_no_band_is_looser_than_the_printed_decimals():
    """A number printed with decimals is held to one unit of the last of them."""
    bands = {c.id: c.band for c in MEASURED}
    assert bands["B-5.1[dk=8]"] == 0.01
    assert bands["B-5.1[dk=512]"] == pytest.approx(0.1)
    assert {bands[i] for i in bands if i.startswith("B-15.") and i.endswith("softmax")} == {1e-3}


@pytest.fixture(scope="module")
def verdicts():
    """Verdicts of one claim for every statement and of its control, at the planned sample sizes.

    Under correct code a wrong verdict among them has a probability of 1e-6, which they share out;
    one that stays open has 1e-3 each. The seed is fixed, so this is about a change of the streams.
    """
    claims = one_of_each()
    checks = [claim.check() for claim in claims]
    checks += [
        dataclasses.replace(claim.controlled().check(), id=f"control of {claim.id}")
        for claim in claims
    ]
    rows, _ = experiment.run(checks, Settings(jobs=1))
    return {row.id: row for row in rows}


@pytest.mark.parametrize("claim", one_of_each(), ids=lambda claim: claim.id)
def test_a_claim_gets_the_verdict_that_its_record_expects(verdicts, claim):
    row = verdicts[claim.id]
    assert row.verdict == claim.expected, row.reason


@pytest.mark.parametrize("claim", one_of_each(), ids=lambda claim: claim.id)
def test_a_control_turns_the_verdict(verdicts, claim):
    row = verdicts[f"control of {claim.id}"]
    assert row.verdict == OPPOSITE[claim.expected], row.reason


def test_the_softmax_rows_of_the_worked_example_are_wrong():
    """B 15.3 and 15.4 print rows that no softmax gives; 15.2 prints one that it does."""
    claims = [c for c in CLAIMS if c.id.startswith("B-15.") and c.quantity == "softmax.weights"]
    rows, _ = experiment.run([claim.check() for claim in claims], Settings(jobs=1))
    assert {row.id: str(row.verdict) for row in rows} == {
        "B-15.2-softmax": "confirmed",
        "B-15.3-softmax": "refuted",
        "B-15.4-softmax": "refuted",
    }
