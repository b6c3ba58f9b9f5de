"""Messages that name what was got, what was wanted and what to do."""

from __future__ import annotations

import pickle

from sdpa_check.errors import InputError, MissingExtraError, unknown_name


def test_few_names_are_listed_and_many_counted():
    few = unknown_name("--dist", "gausian", ["gaussian", "t"])
    assert str(few) == "--dist: got 'gausian', want one of gaussian, t; did you mean 'gaussian'?"
    many = unknown_name("--select", "claim-01x", [f"claim-{i:03}" for i in range(41)])
    assert str(many).startswith("--select: got 'claim-01x', want one of 41 names; did you mean")
    assert "claim-000" not in str(many)
    assert "claim-000" in str(unknown_name("--select", "x", [f"claim-{i:03}" for i in range(40)]))


def test_a_long_value_is_cut():
    assert len(str(InputError("--dk", "8" * 1000, "an integer"))) < 150


def test_errors_travel_between_processes():
    for error in (InputError("--dk", "x", "an integer", "e.g. 8"), MissingExtraError("a", "b")):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - what it holds was made here
        assert type(copy) is type(error)
        assert str(copy) == str(error)
