"""Numbers that are computed: by hand, by decimal arithmetic, and identities within their bounds."""

from __future__ import annotations

import decimal
import itertools
import math

import numpy as np
import pytest

from sdpa_check.errors import InputError
from sdpa_check.quantities import QUANTITIES, Case, ExactQuantity, exact, quantity
from sdpa_check.quantities.exact import LARGEST_LOGIT, LARGEST_ROW, WEIGHT_ERROR, complex_step


def evaluate(name, **inputs):
    return quantity(name).evaluate(Case(inputs=inputs))


def precise(logits, temperature=1):
    """Softmax in 50 decimals, as (weights, exponentials)."""
    with decimal.localcontext(prec=50):
        e = [(decimal.Decimal(x) / decimal.Decimal(temperature)).exp() for x in logits]
        return [term / sum(e) for term in e], e


EXACT = [q for q in QUANTITIES.values() if isinstance(q, ExactQuantity)]


def test_every_exact_quantity_is_described():
    assert len(EXACT) == 40
    for found in EXACT:
        assert found.formula
        assert found.unit in {"1", "nats"}
        assert 0 <= found.bound < 1e-7


@pytest.mark.parametrize(
    ("logits", "temperature", "right", "decimals"),
    [
        # claims.md: the worked example, with what it gets wrong put right
        ([0, 1, -1], None, [0.2447, 0.6652, 0.0900], 4),
        ([0, 0.5, -0.5], None, [0.307, 0.506, 0.186], 3),
        ([0, 1, -1], 2, [0.307, 0.506, 0.186], 3),
        ([0, 4, -4], None, [0.018, 0.982, 0.000], 3),
        ([20, 1, -3, 0], None, [1, 0, 0, 0], 3),
        ([0] * 8, None, [0.125] * 8, 15),
        ([7.5], None, [1.0], 15),
    ],
)
def test_weights(logits, temperature, right, decimals):
    given = {} if temperature is None else {"temperature": temperature}
    found = evaluate("softmax.weights", logits=logits, **given)
    assert found == pytest.approx(right, abs=0.51 * 10**-decimals)
    wanted, _ = precise(logits, temperature or 1)
    assert found == pytest.approx([float(p) for p in wanted], abs=WEIGHT_ERROR)


@pytest.mark.parametrize(
    ("logits", "shown"),
    [([20, 1, -3, 0], "7.767e-09"), ([24] + [0] * 7, "2.64e-10"), ([300, 0], "5.148e-131")],
)
def test_complements_of_the_largest_weight(logits, shown):
    (found,) = evaluate("softmax.max_weight_complement", logits=logits)
    assert found == pytest.approx(float(shown), rel=2e-3)
    weights, _ = precise(logits)
    assert found == pytest.approx(float(sum(weights) - max(weights)), rel=1e-13)


@pytest.mark.parametrize("x", [0.0, -3.0, 30.0, 700.0])
def test_ratios(x):
    assert evaluate("softmax.ratio", x=x) == pytest.approx([math.exp(x)], rel=1e-12)


def test_a_ratio_may_overflow():
    assert evaluate("softmax.ratio", x=800) == [math.inf]


IDENTITIES = {
    "softmax.row_sum_error": {},
    "softmax.shift_error": {"shift": -637.3},
    "softmax.temperature_error": {"temperature": 0.71},
    "softmax.jacobian_error": {},
}


@pytest.mark.parametrize("name", IDENTITIES)
@pytest.mark.parametrize("size", [0.01, 1.0, 30.0, 700.0])
def test_identities_hold_within_their_bounds(name, size):
    g = np.random.default_rng(0)
    for keys in (1, 2, 3, 17, LARGEST_ROW):
        logits = g.uniform(-size, size, keys).tolist()
        (error,) = evaluate(name, logits=logits, **IDENTITIES[name])
        assert 0 <= error <= quantity(name).bound


def test_weights_are_as_accurate_as_the_bounds_assume():
    g = np.random.default_rng(1)
    for size in (0.1, 3.0, 100.0, LARGEST_LOGIT):
        logits = g.uniform(-size, size, LARGEST_ROW).tolist()
        found, (wanted, _) = evaluate("softmax.weights", logits=logits), precise(logits)
        errors = [abs(p - float(w)) for p, w in zip(found, wanted, strict=True)]
        assert max(errors) <= WEIGHT_ERROR


@pytest.mark.parametrize("name", IDENTITIES)
def test_a_wrong_softmax_breaks_the_identities(name, monkeypatch):
    """The control: a softmax off by 1e-9 in one weight, which sees more than differences."""

    def off(x):
        p = np.exp(np.asarray(x) * 1.001 ** np.sign(x))
        return p / p.sum() + 1e-9 * (np.arange(len(p)) == 0)

    monkeypatch.setattr(exact, "softmax", off)
    (error,) = evaluate(name, logits=[0.3, 1.0, -1.0], **IDENTITIES[name])
    assert error > 100 * quantity(name).bound


@pytest.mark.parametrize("name", IDENTITIES)
@pytest.mark.parametrize("logits", [[0.0] * (LARGEST_ROW + 1), [0.0, 1001.0]])
def test_identities_are_asked_where_their_bounds_hold(name, logits):
    with pytest.raises(InputError, match=r"logits: .*at most 64 logits"):
        evaluate(name, logits=logits, **(IDENTITIES[name] | {"temperature": 0.9}))


def test_entropy_rises_with_temperature():
    """The least rise over steps of √2 from T = 1/16 to 16, from entropies in 50 decimals."""
    logits = [0.0, 1.5, -1.0]

    def entropy(temperature):
        weights, _ = precise(logits, temperature)
        with decimal.localcontext(prec=50):
            return -sum(p * p.ln() for p in weights)

    steps = [entropy(2 ** (i / 2)) for i in range(-8, 9)]
    least = min(float(b - a) for a, b in itertools.pairwise(steps))
    assert evaluate("softmax.entropy_rise", logits=logits) == pytest.approx([least], rel=1e-9)
    assert least > 0
    assert evaluate("softmax.entropy_rise", logits=[2.0, 2.0]) == [0.0]


def test_jacobians():
    logits = [0.0, math.log(2), math.log(5)]  # p = 1/8, 2/8, 5/8
    right = [7, -2, -5, -2, 12, -10, -5, -10, 15]
    found = evaluate("softmax.jacobian", logits=logits)
    assert found == pytest.approx([x / 64 for x in right], abs=1e-15)
    frobenius = math.sqrt(sum(x * x for x in right)) / 64
    assert evaluate("softmax.jacobian_frobenius", logits=logits) == pytest.approx([frobenius])


def test_the_jacobian_of_a_nearly_one_hot_row():
    """B-1.4, from the 64 entries of J in 28 decimals."""
    e = decimal.Decimal(24).exp()
    p = [e / (e + 7)] + [1 / (e + 7)] * 7
    entries = [(p[i] * (i == j) - p[i] * p[j]) ** 2 for i in range(8) for j in range(8)]
    (found,) = evaluate("softmax.jacobian_frobenius", logits=[24] + [0] * 7)
    assert found == pytest.approx(float(sum(entries).sqrt()), rel=1e-12)
    assert found == pytest.approx(3.158e-10, rel=3e-4)


def test_complex_steps_are_derivatives():
    at = np.array([[0.5, -2.0], [1.0, 3.0]])
    found = complex_step(lambda w: w @ w, at)
    assert found.shape == (2, 2, 2, 2)
    unit = np.zeros((2, 2))
    unit[0, 1] = 1.0
    np.testing.assert_allclose(found[:, :, 0, 1], unit @ at + at @ unit, rtol=1e-14)
    np.testing.assert_allclose(complex_step(np.exp, np.array([0.0, 1.0])), np.diag([1, math.e]))


def test_the_slope_is_largest_at_one_half():
    assert evaluate("softmax.slope_maximiser") == pytest.approx(
        [0.5], abs=quantity("softmax.slope_maximiser").bound
    )


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("softmax.lipschitz_inf", 0.5),
        ("softmax.lipschitz_2", 0.5),
        ("softmax.lipschitz_inf_1", 1.0),
    ],
)
def test_lipschitz_constants(name, right):
    (found,) = evaluate(name)
    assert found == pytest.approx(right, abs=quantity(name).bound)


def test_norms_by_hand():
    matrix = np.array([[2.0, -1.0], [0.5, 3.0]])
    assert exact._max_row_sum(matrix) == 3.5
    assert exact._inf_to_1(matrix) == 5.5  # v = (1, −1): |3| + |−2.5|
    assert exact._largest_eigenvalue(np.array([[2.0, 1.0], [1.0, 2.0]])) == pytest.approx(3.0)


def test_no_row_exceeds_the_lipschitz_constants():
    g = np.random.default_rng(3)
    for keys in (2, 3, 5, 8):
        for _ in range(50):
            p = g.dirichlet(np.full(keys, 0.4))
            j = np.diag(p) - np.outer(p, p)
            assert exact._max_row_sum(j) <= 0.5 + 1e-15
            assert exact._largest_eigenvalue(j) <= 0.5 + 1e-15
            assert exact._inf_to_1(j) <= 1 + 1e-15


@pytest.mark.parametrize(
    ("x", "dtype", "right"),
    [
        (24, "float64", 2.649e10),
        (700, "float64", 1.0142e304),
        (710, "float64", math.inf),
        (700, "float32", math.inf),
        (10, "float16", 22026),
        (10, "float32", 22026.47),
        (12, "float16", math.inf),
        (1e6, "float16", math.inf),
        (-800, "float64", 0.0),
    ],
)
def test_exponentials_of_a_type(x, dtype, right):
    assert evaluate("float.exp", x=x, dtype=dtype) == pytest.approx([right], rel=5e-4)


def test_orders_of_magnitude():
    assert evaluate("float.exp_log10", x=68) == pytest.approx([29.53], abs=5e-3)
    assert evaluate("float.exp_log10", x=1000) == pytest.approx([434.294], abs=5e-4)


@pytest.mark.parametrize(
    ("name", "inputs", "where"),
    [
        ("softmax.weights", {}, "logits"),
        ("softmax.weights", {"logits": []}, "logits"),
        ("softmax.weights", {"logits": [math.inf]}, "logits"),
        ("softmax.shift_error", {"logits": [1.0]}, "shift"),
        ("softmax.shift_error", {"logits": [1.0], "shift": 1001}, "shift"),
        ("softmax.temperature_error", {"logits": [1.0], "temperature": 0}, "temperature"),
        ("softmax.weights", {"logits": [1.0], "temperature": 0}, "temperature"),
        ("float.exp", {"x": 1.0, "dtype": "float8"}, "dtype"),
        ("float.exp", {"dtype": "float64"}, "x"),
    ],
)
def test_inputs_that_cannot_be_used(name, inputs, where):
    with pytest.raises(InputError, match=f"^{where}: got"):
        evaluate(name, **inputs)
