"""What moved between two runs, and which runs cannot be compared."""

from __future__ import annotations

import dataclasses
import math

import pytest

from sdpa_check import estimates
from sdpa_check.errors import InputError
from sdpa_check.records import Outcome, Prediction, Row, Run
from sdpa_check.report import record
from sdpa_check.studies.compare import compare

NAN, INF = math.nan, math.inf
PREDICTED = Prediction(value=64.0, kind="exact", source="d_k")


def sampled(value, se=0.05):
    return estimates.with_error(value, se, 64, 4096)


def row(estimate=None, id_="a", prediction=PREDICTED, **params):
    return Row(
        id=id_,
        quantity="dot.variance",
        params={"dk": 64, **params},
        estimate=estimate or sampled(64.0),
        prediction=prediction,
        verdict=Outcome.CONFIRMED,
        expected=Outcome.CONFIRMED,
        reason="inside the band",
    )


def run(*rows, command="verify", outcome="as expected", **design):
    return Run(
        command=command,
        version="1",
        outcome=outcome,
        exit_code=130 if outcome == "stopped" else 0,
        design={"file": "a.toml", "samples": 4096, **design},
        seed=0,
        generator="SFC64",
        rows=rows or (row(),),
        notes=(),
        environment={},
    )


def moved(old, new):
    """The reason why the only number of two runs moved; empty where it did not."""
    found = compare(run(old), run(new))
    (only,) = found.rows
    assert found.exit_code == (0 if only.verdict is Outcome.CONFIRMED else 3)
    assert record.loads(record.dumps(found), "run.json").exit_code == found.exit_code
    return "" if only.verdict is Outcome.CONFIRMED else only.reason


def test_a_number_moves_by_more_than_the_error_of_the_difference():
    assert not moved(row(sampled(64.0)), row(sampled(64.2)))
    assert moved(row(sampled(64.0)), row(sampled(65.0))) == (
        "moved by 1, more than 0.38; measured 65.000 ± 0.050, before 64.000 ± 0.050"
    )


@pytest.mark.parametrize("make", [sampled, estimates.computed])
@pytest.mark.parametrize("other", [NAN, INF, -INF])
def test_a_number_that_is_finite_in_one_run_only_has_moved(make, other):
    finite, lost = row(make(64.0)), row(make(other))
    assert moved(finite, lost).startswith("no longer a finite number; measured ")
    assert moved(lost, finite).startswith("now a finite number; measured 64")
    assert not moved(lost, lost)


def test_a_run_that_was_saved_is_equal_to_itself():
    """Where a file has null the run itself has ∞."""
    stated = Prediction(value=INF, kind="stated", source="stated")
    for each in (row(estimates.computed(INF), prediction=stated), row(stated=[INF, 0.0])):
        new = run(each)
        assert compare(record.loads(record.dumps(new), "run.json"), new).exit_code == 0


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (dataclasses.replace(PREDICTED, value=65.0), "was 64 (exact), is 65 (exact)"),
        (dataclasses.replace(PREDICTED, value=None, kind="none"), "was 64 (exact), is none"),
        (dataclasses.replace(PREDICTED, value=None, kind="infinite"), "is ∞ (infinite)"),
        (dataclasses.replace(PREDICTED, relation="at least"), "is ≥ 64 (exact)"),
    ],
)
def test_a_prediction_that_changed_at_all_has_moved(now, text):
    assert text in moved(row(), row(prediction=now))
    assert moved(row(prediction=now), row())
    assert not moved(row(prediction=now), row(prediction=now))


def test_another_list_of_stated_numbers_has_moved():
    assert "the stated numbers" in moved(row(stated=[1, 2]), row(stated=[1, 3]))


@pytest.mark.parametrize("other", [{"file": "b.toml"}, {"select": ["a*"]}, {"full": True}])
def test_what_the_file_is_called_does_not_matter(other):
    assert compare(run(), run(**other)).exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            run(row(), row(id_="b"), row(id_="c")),
            run(),
            "NEW: row b: got 'missing', want that row and 1 more, as in OLD",
        ),
        (run(), run(row(), row(id_="b")), "OLD: row b: got 'missing', want that row, as in NEW"),
        (
            run(row(sigma=2)),
            run(row(sigma=1), row(id_="b")),
            "OLD: row a: sigma: got 2, want 1, as in NEW",
        ),
        (run(), run(row(dk=32)), "OLD: row a: dk: got 64, want 32, as in NEW"),
        (run(samples=64), run(), "OLD: design.samples: got 64, want 4096, as in NEW"),
        (run(command="variance"), run(), "OLD: command: got 'variance', want 'verify', as in NEW"),
        (
            run(outcome="stopped"),
            run(),
            "OLD: outcome: got 'stopped', want a run that was not stopped",
        ),
    ],
)
def test_runs_that_cannot_be_compared(old, new, message):
    with pytest.raises(InputError) as caught:
        compare(old, new)
    assert str(caught.value) == message


def test_the_file_matters_elsewhere():
    with pytest.raises(InputError, match=r"design\.file"):
        compare(run(command="variance"), run(command="variance", file="b.toml"))
