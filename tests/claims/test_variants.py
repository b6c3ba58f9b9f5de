"""The claims on variants and on the gradient: all there, judged as expected, and controlled.

What is sampled and has one id is judged, with its control, in `test_builtin`; here are the exact
ones and the members of lists.
"""

from __future__ import annotations

import dataclasses
from importlib import resources

import pytest

from sdpa_check import experiment
from sdpa_check.checks import Settings
from sdpa_check.claims import registry
from sdpa_check.quantities import ExactQuantity, quantity
from sdpa_check.records import Outcome

FOLDER = resources.files("sdpa_check.claims")
CLAIMS = [
    claim
    for name in ("gradient.toml", "variants.toml")
    for claim in registry.parse(FOLDER.joinpath(name).read_text(encoding="utf-8"), name)
]
MEASURED = [claim for claim in CLAIMS if claim.quantity is not None]
EXACT = [claim for claim in MEASURED if isinstance(quantity(claim.quantity), ExactQuantity)]
NORMS = [claim for claim in MEASURED if claim.id.startswith("B-3.5-qknorm")]
OPPOSITE = {Outcome.CONFIRMED: Outcome.REFUTED, Outcome.REFUTED: Outcome.CONFIRMED}

STATEMENTS = {
    "confirmed": """
        C-grad-median B-7.1 B-7.1-scaled
        B-3.5-clamp B-11.3 B-11.4 B-11.4-bound B-4.1-bound B-4.3-scaled B-4.4-token B-4.5-xavier
        B-12.2-norm B-12.5-ln B-13.1-growth B-13.3 B-13.4-iso B-14.2
        B-10.1 B-10.2-f32 B-10.2-shift B-10.2-overflow B-10.4 B-10.5-q B-10.5-cost-long B-11.5-same
    """,
    "refuted": """
        C-grad-rms
        B-3.5-qknorm B-4.3-unit B-4.5-others B-12.1-mean B-12.1-var B-12.2-qknorm
        B-12.2-qknorm-mean B-13.1-number B-13.1-gap B-13.3-std B-13.4-aniso
        B-10.2-f64 B-10.2-ten B-10.5-cost-short B-10.5-rope B-11.5-f16
    """,
    "not run": "B-3.5-all B-10.2-torch B-10.3 B-11.5-torch",
}


@pytest.mark.parametrize("verdict", STATEMENTS)
def test_every_statement_is_there_with_its_verdict(verdict):
    found = {c.id.partition("[")[0] for c in CLAIMS if c.expected == verdict}
    assert found == set(STATEMENTS[verdict].split())


@pytest.fixture(scope="module")
def verdicts():
    """Of exact claims and their controls; and of sampled ones, all of them far from their bands.

    Under correct code a wrong verdict has a probability of 1e-6, and one that stays open 1e-3 for
    each of the six sampled ones. The seed is fixed.
    """
    claims = EXACT + NORMS
    checks = [claim.check() for claim in claims]
    checks += [
        dataclasses.replace(claim.controlled().check(), id=f"control of {claim.id}")
        for claim in claims
    ]
    rows, _ = experiment.run(checks, Settings(jobs=1))
    return {row.id: row for row in rows}


@pytest.mark.parametrize("claim", EXACT + NORMS, ids=lambda claim: claim.id)
def test_a_claim_gets_the_verdict_that_its_record_expects(verdicts, claim):
    assert verdicts[claim.id].verdict == claim.expected, verdicts[claim.id].reason


@pytest.mark.parametrize("claim", EXACT + NORMS, ids=lambda claim: claim.id)
def test_a_control_turns_the_verdict(verdicts, claim):
    row = verdicts[f"control of {claim.id}"]
    assert row.verdict == OPPOSITE[claim.expected], row.reason
