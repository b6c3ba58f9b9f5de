"""A quantity in words."""

from __future__ import annotations

import json

import pytest

from sdpa_check.claims import vocabulary
from sdpa_check.quantities import QUANTITIES, quantity


@pytest.mark.parametrize("name", QUANTITIES)
def test_every_quantity_can_be_described(name):
    found = vocabulary.to_dict(quantity(name))
    assert json.loads(json.dumps(found)) == found
    assert all(found[key] for key in ("formula", "unit", "origin", "prediction"))
    assert set(vocabulary.own(quantity(name))) <= set(found["params"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dot.variance", "exact for every law but cauchy; ∞ for cauchy"),
        ("dot.iqr", "exact for every law but rademacher"),
        ("dot.variance_growth", "in a limit for every law"),
        ("softmax.max_weight", "none: measured only"),
        ("logit.mean_exponent", "exact for every law but cauchy"),
        (
            "jacobian.frobenius",
            "rms: exact for gaussian; in a limit for every law but gaussian and cauchy",
        ),
        ("dot.scores", "the number itself, exactly"),
    ],
)
def test_it_is_said_where_theory_has_the_number(name, text):
    assert vocabulary.predicted(quantity(name)) == text


def test_rounding_of_what_is_computed_is_told():
    assert vocabulary.predicted(quantity("softmax.weights")).startswith(
        "the number itself, up to a rounding of "
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dot.variance", "sampled: dot products"),
        ("logit.std_exponent", "sampled: dot products, over a sweep of d_k"),
        ("jacobian.frobenius", "sampled: softmax rows"),
        ("softmax.weights", "computed"),
    ],
)
def test_it_is_said_where_the_number_comes_from(name, text):
    assert vocabulary.origin(quantity(name)) == text


def test_parameters_are_those_of_the_draws_and_its_own():
    params = vocabulary.to_dict(quantity("softmax.entropy"))["params"]
    assert next(iter(params)) == "dk"
    assert {"keys", "scale", "sigma"} <= set(params)
    assert set(vocabulary.to_dict(quantity("softmax.weights"))["params"]) == {
        "logits",
        "temperature",
    }
