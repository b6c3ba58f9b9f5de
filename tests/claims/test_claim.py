"""A claim becomes a check, and its control changes what it says."""

from __future__ import annotations

import dataclasses

import pytest

from sdpa_check.claims.claim import OPTIONAL, Claim
from sdpa_check.errors import InputError
from sdpa_check.quantities import QUANTITIES, ExactQuantity
from sdpa_check.records import Outcome

VARIANCE = Claim(
    id="var",
    statement="the variance is 64",
    quantity="dot.variance",
    params={"dk": 64},
    stated=(64.0,),
    control={"sigma": 1.03},
)
ENTROPY = Claim(
    id="flatter",
    statement="scaled rows are flatter",
    quantity="softmax.entropy",
    params={"dk": 64, "keys": 8, "scale": "sqrt"},
    versus={"scale": "none"},
    stated=(0.0,),
    relation="at least",
    expected=Outcome.CONFIRMED,
    control={"relation": "at most", "stated": 1, "keys": 16},
)
WEIGHTS = Claim(
    id="row",
    statement="softmax([0, 0]) is [0.5, 0.5]",
    quantity="softmax.weights",
    params={"logits": [0, 0]},
    stated=(0.5, 0.5),
    band=0.01,
    control={"stated": [0.4, 0.6], "band": 0},
)


def test_the_check_of_a_sampled_claim():
    check = dataclasses.replace(VARIANCE, band=0.5, tolerance=0.02).check()
    assert (check.id, check.quantity, check.stated) == ("var", "dot.variance", (64.0,))
    assert (check.band, check.tolerance, check.relation) == (0.5, 0.02, "equal")
    assert (check.case.design.dk, check.case.design.keys) == (64, None)
    assert (check.case.scale, check.versus, check.expected) == (None, None, Outcome.CONFIRMED)


def test_parameters_reach_the_design():
    params = {"dk": 16, "keys": 8, "dist": "t", "df": 5, "sigma": 0.5, "sigma_k": 2, "mean": 1}
    params |= {"mean_k": 0.25, "corr": "qk:0.3", "dmodel": 128, "scale": "sqrt_dmodel"}
    case = dataclasses.replace(ENTROPY, params=params, versus=None).check().case
    q, k = case.design.query, case.design.key
    assert (q.distribution, q.df, q.sigma, q.mean) == ("t", 5, 0.5, 1)
    assert (k.distribution, k.df, k.sigma, k.mean) == ("t", 5, 2, 0.25)
    assert (case.design.dk, case.design.keys, case.design.corr) == (16, 8, "qk:0.3")
    assert (case.scale.name, case.d_model) == ("sqrt_dmodel", 128)


def test_the_parameters_of_a_quantity_reach_its_case():
    case = dataclasses.replace(
        ENTROPY,
        quantity="jacobian.frobenius",
        params={**ENTROPY.params, "statistic": "median"},
        versus=None,
    ).check()
    assert case.case.statistic == "median"
    level = dataclasses.replace(VARIANCE, quantity="dot.quantile", params={"dk": 8, "level": 0.9})
    assert level.check().case.level == 0.9
    bound = dataclasses.replace(
        VARIANCE, quantity="dot.exceedance", params={"dk": 8, "threshold": 3}
    )
    assert bound.check().case.inputs == {"threshold": 3}


def test_a_sweep_has_a_design_for_every_d_k():
    sweep = dataclasses.replace(
        VARIANCE, quantity="dot.variance_exponent", params={"dk": [8, 16, 64]}
    )
    assert [design.dk for design in sweep.check().case.designs] == [8, 16, 64]


def test_versus_replaces_parameters():
    check = ENTROPY.check()
    assert (check.case.scale.name, check.versus.scale.name) == ("sqrt", "none")
    assert check.case.designs == check.versus.designs


def test_the_check_of_a_computed_claim():
    check = WEIGHTS.check()
    assert check.case.designs == ()
    assert check.case.inputs == {"logits": [0, 0]}
    assert (check.stated, check.band) == ((0.5, 0.5), 0.01)


@pytest.mark.parametrize(
    ("params", "place", "want"),
    [
        ({}, "var: params.dk", "d_k"),
        ({"dk": 64, "dist": "gausian"}, "var: ", "gaussian"),
        ({"dk": 64, "corr": "equi:2"}, "var: params.corr", "equi"),
        ({"dk": 64, "dist": "t"}, "var: ", "df"),
        ({"dk": [8, 64]}, "var: params.dk", "one design"),
        ({"dk": 99999}, "var: params.dk", "16384"),
    ],
)
def test_an_unusable_value_names_the_claim(params, place, want):
    with pytest.raises(InputError) as caught:
        dataclasses.replace(VARIANCE, params=params).check()
    assert caught.value.where.startswith(place)
    assert want in str(caught.value)


def test_a_scale_may_need_another_parameter():
    claim = dataclasses.replace(ENTROPY, params={**ENTROPY.params, "scale": "sqrt_dmodel"})
    with pytest.raises(InputError, match=r"flatter: params\.dmodel"):
        claim.check()


def test_a_documentary_claim_has_no_check():
    with pytest.raises(InputError, match="a claim with a quantity"):
        Claim(id="word", statement="everyone does").check()


@pytest.mark.parametrize("name", QUANTITIES)
def test_every_parameter_is_given_or_may_be_left_out(name):
    """Without parameters the first one that is needed is named, or there is none."""
    asked = QUANTITIES[name]
    needed = [p for p in asked.params if p not in OPTIONAL]
    if not isinstance(asked, ExactQuantity):
        needed += ["dk"]
    claim = dataclasses.replace(VARIANCE, quantity=name, params={})
    if not needed:
        claim.check()
        return
    with pytest.raises(InputError) as caught:
        claim.check()
    assert caught.value.where == f"var: params.{needed[0]}"
    assert caught.value.got is None


def test_a_control_changes_parameters():
    changed = VARIANCE.controlled()
    assert changed.params == {"dk": 64, "sigma": 1.03}
    assert (changed.id, changed.stated, changed.expected) == ("var", (64.0,), Outcome.CONFIRMED)


def test_a_control_changes_what_is_stated():
    changed = ENTROPY.controlled()
    assert (changed.relation, changed.stated) == ("at most", (1.0,))
    assert changed.params["keys"] == 16
    assert changed.check().versus.design.keys == 16
    assert WEIGHTS.controlled().stated == (0.4, 0.6)
    assert WEIGHTS.controlled().band == 0


def test_without_a_control_nothing_changes():
    assert dataclasses.replace(VARIANCE, control={}).controlled().params == VARIANCE.params
