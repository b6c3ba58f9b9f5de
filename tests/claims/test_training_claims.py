"""The claims about training: what they share, and the verdicts of those that are quick to find."""

from __future__ import annotations

import math
from importlib import resources

import pytest

from sdpa_check import experiment
from sdpa_check.checks import Settings
from sdpa_check.claims import registry
from sdpa_check.claims.vocabulary import origin, predicted, to_dict
from sdpa_check.errors import InputError
from sdpa_check.quantities import quantity
from sdpa_check.records import Outcome

FILE = resources.files("sdpa_check.claims").joinpath("training.toml")
CLAIMS = registry.parse(FILE.read_text(encoding="utf-8"), "training.toml")
MEASURED = [claim for claim in CLAIMS if claim.quantity is not None]
QUICK = [c for c in MEASURED if "start" in c.id or c.params["dk"] == 16]

BLOCK = """
[[claim]]
id = "x"
statement = "trains"
quantity = "train.final_loss"
params = {{ dk = 16, keys = 64, {params} }}
stated = 2
relation = "at most"
"""


def test_every_claim_names_the_task_it_is_put_to():
    assert [c.id for c in MEASURED if "in this small task" not in c.note] == []


def test_all_trainings_are_of_one_task():
    shared = {(c.params["keys"], c.params.get("steps", 200)) for c in MEASURED}
    assert shared == {(64, 200)}


def test_guessing_is_ln_n_and_training_half_of_it():
    values = {c.stated[0] for c in MEASURED}
    assert values == {0.0, math.log(64), math.log(64) / 2}


def test_quick_claims_get_the_verdict_that_their_records_expect():
    """All share a probability of 1e-6 of a wrong verdict under correct code; the seed is fixed."""
    rows, _ = experiment.run([claim.check() for claim in QUICK], Settings(jobs=1))
    assert len(QUICK) == 6
    assert {row.id: row.verdict for row in rows} == {c.id: c.expected for c in QUICK}


def test_controls_of_the_losses_at_the_start_turn_the_verdict():
    """As above."""
    claims = [c for c in QUICK if "start" in c.id]
    rows, _ = experiment.run([c.controlled().check() for c in claims], Settings(jobs=1))
    for claim, row in zip(claims, rows, strict=True):
        assert {row.verdict, claim.expected} == {Outcome.CONFIRMED, Outcome.REFUTED}, row.reason


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("steps = 10", "lr"),
        ("lr = 0, steps = 10", "a number > 0"),
        ("lr = 1, steps = 0", "an integer from 1"),
        ("lr = 1, steps = 10, warmup = -1", "an integer from 0"),
        ("lr = 1, steps = 10, sigma = 2", "sigma"),
        ("lr = 1, steps = 10, versus_lr = 2", "versus_lr"),
    ],
)
def test_a_training_that_cannot_be_made_is_refused(params, message):
    with pytest.raises(InputError, match=message):
        registry.parse(BLOCK.format(params=params), "mine.toml")


def test_a_training_can_be_described():
    assert predicted(quantity("train.start_row_loss")) == "exact"
    assert predicted(quantity("train.start_loss")) == "in a limit"
    assert predicted(quantity("train.final_loss")) == "none: measured only"
    assert origin(quantity("train.final_loss")) == "sampled: layers trained on the task of train"
    params = to_dict(quantity("train.final_loss"))["params"]
    assert list(params) == ["dk", "dmodel", "keys", "scale", "lr", "steps", "warmup"]
