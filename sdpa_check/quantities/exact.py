"""Numbers of softmax rows that are computed from given logits and not sampled.

An identity is claimed as an error that equals 0; its `bound` is what rounding alone can make of it,
derived for rows of at most `LARGEST_ROW` logits of at most `LARGEST_LOGIT` in size. In units of
u = 2^−53, a weight p_i = e_i/Σe, e = exp(y), y = x − max x, is computed with a relative error of at
most |y_i| (rounding of y) + 4 (exp), as much again for the mean of the e_j in Σe, m − 1 for the sum
and 1 for the division. As p_i|y_i| ≤ 1/e and Σ p_j|y_j| ≤ ln m its absolute error stays below
m + ln m + 10 ≤ 2m + 10: this is `WEIGHT_ERROR`. An error δ of the logits moves a weight by δ/2 at
most, as ‖J‖_∞→∞ ≤ ½.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.quantities.base import Case, ExactQuantity
from sdpa_check.quantities.params import required
from sdpa_check.softmax import RowStatistics, jacobian, row_statistics, softmax

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Complex = NDArray[np.complex128]

UNIT = 2.0**-53
"""Rounding unit of float64."""

LARGEST_ROW, LARGEST_LOGIT = 64, 1000.0
"""Sizes for which the bounds are derived: numbers in a row (and in a vector), and |x|."""

WEIGHT_ERROR = (2 * LARGEST_ROW + 10) * UNIT
"""Largest error of a softmax weight for logits that are given exactly."""


def logits(case: Case) -> Floats:
    """The row of logits of a case."""
    return np.array(required(case.inputs, "logits"), dtype=np.float64)


def bounded(where: str, x: Floats) -> Floats:
    """Logits for which the bounds on rounding hold.

    Raises:
        InputError: for too many or too large ones.
    """
    if len(x) > LARGEST_ROW or np.abs(x).max() > LARGEST_LOGIT:
        want = f"at most {LARGEST_ROW} logits of at most {LARGEST_LOGIT:g} in size"
        raise InputError(where, x.tolist(), want, "the bound on rounding is derived for those")
    return x


def complex_softmax(x: Complex) -> Complex:
    """Softmax of complex logits, the analytic continuation."""
    e = np.exp(x - x.real.max())
    return np.asarray(e / e.sum())


def complex_step(function: Callable[[Complex], Any], at: Floats) -> Floats:
    """Derivatives of an analytic function by complex steps, ∂f/∂a = Im f(a + ih)/h.

    No difference is taken, so nothing cancels and h can be so small that the error of order h²
    vanishes (Squire and Trapp 1998).

    Returns:
        Shape (*shape of f, *shape of `at`).
    """
    step = 1e-30
    found = []
    for index in np.ndindex(at.shape):
        moved = at.astype(np.complex128)
        moved[index] += 1j * step
        found.append(np.imag(function(moved)) / step)
    stacked = np.stack(found, axis=-1)
    return np.asarray(stacked.reshape(*stacked.shape[:-1], *at.shape))


def _weights(case: Case) -> list[float]:
    temperature = required({"temperature": 1.0} | dict(case.inputs), "temperature")
    return [float(p) for p in softmax(logits(case) / temperature)]


def _statistics(x: Floats, multipliers: tuple[float, ...] = (1.0,)) -> tuple[RowStatistics, ...]:
    return row_statistics(x[None, :], multipliers, spectral=False)


def _complement(case: Case) -> list[float]:
    return [float(_statistics(logits(case))[0].one_minus_max[0])]


def _ratio(case: Case) -> list[float]:
    first, second = softmax([float(required(case.inputs, "x")), 0.0]).tolist()
    return [first / second if second else math.inf]


def _row_sum_error(case: Case) -> list[float]:
    p = softmax(bounded("logits", logits(case)))
    return [max(abs(float(p.sum()) - 1), -float(p.min()))]


def _shift_error(case: Case) -> list[float]:
    x, shift = bounded("logits", logits(case)), float(required(case.inputs, "shift"))
    bounded("shift", np.array([shift]))
    return [float(np.abs(softmax(x + shift) - softmax(x)).max())]


def _temperature_error(case: Case) -> list[float]:
    """softmax(x·(1/T)) against exp(x_i/T)/Σ exp(x_j/T), written out from x − max x."""
    x, temperature = logits(case), float(required(case.inputs, "temperature"))
    bounded("logits", x / temperature)
    terms = [math.exp((value - max(x)) / temperature) for value in x]
    written_out = np.array(terms) / math.fsum(terms)
    return [float(np.abs(softmax(x * (1 / temperature)) - written_out).max())]


def _entropy_rise(case: Case) -> list[float]:
    temperatures = np.exp2(np.arange(-8, 9) / 2)
    found = _statistics(logits(case), tuple((1 / temperatures).tolist()))
    return [float(np.diff([s.entropy[0] for s in found]).min())]


def _jacobian(case: Case) -> list[float]:
    return [float(entry) for entry in jacobian(softmax(logits(case))).reshape(-1)]


def _jacobian_frobenius(case: Case) -> list[float]:
    return [float(_statistics(logits(case))[0].frobenius[0])]


def _jacobian_error(case: Case) -> list[float]:
    x = bounded("logits", logits(case))
    return [float(np.abs(jacobian(softmax(x)) - complex_step(complex_softmax, x)).max())]


def _slope_maximiser(case: Case) -> list[float]:
    """The logit of two that maximises ∂p/∂x = p(1 − p), looked for from an uneven start."""
    from scipy.optimize import minimize_scalar

    del case

    def slope(x: float) -> float:
        return float(jacobian(softmax([x, 0.0]))[0, 0])

    found = minimize_scalar(lambda x: -slope(x), bounds=(-3, 8), options={"xatol": 1e-12})
    return [float(softmax([found.x, 0.0])[0])]


def _lipschitz(norm: Callable[[Floats], float]) -> Callable[[Case], list[float]]:
    """The largest norm of J over all logits of 2, 3 and 4 keys, by Nelder and Mead's search."""

    def evaluate(case: Case) -> list[float]:
        from scipy.optimize import minimize

        del case
        options = {"xatol": 1e-6, "fatol": 1e-12, "maxiter": 2000}
        found = [
            minimize(
                lambda x: -norm(jacobian(softmax(x))),
                np.linspace(1.0, -2.0, keys),
                method="Nelder-Mead",
                options=options,
            )
            for keys in (2, 3, 4)
        ]
        return [max(-float(result.fun) for result in found)]

    return evaluate


def _max_row_sum(matrix: Floats) -> float:
    return float(np.abs(matrix).sum(axis=1).max())


def _largest_eigenvalue(matrix: Floats) -> float:
    return float(np.linalg.eigvalsh(matrix).max())


def _inf_to_1(matrix: Floats) -> float:
    """The largest ‖Av‖₁ with ‖v‖_∞ ≤ 1, attained at a corner: all vectors of signs are tried."""
    signs = 1.0 - 2.0 * np.array(list(np.ndindex(*(2,) * len(matrix))))
    return float(np.abs(signs @ matrix.T).sum(axis=1).max())


def _exp(case: Case) -> list[float]:
    kind = np.dtype(required(case.inputs, "dtype")).type
    with np.errstate(over="ignore", under="ignore"):
        return [float(np.exp(kind(required(case.inputs, "x"))))]


def _exp_log10(case: Case) -> list[float]:
    return [float(required(case.inputs, "x")) / math.log(10)]


def exact(
    name: str,
    formula: str,
    evaluate: Callable[[Case], list[float]],
    *params: str,
    bound: float = 0.0,
    unit: str = "1",
) -> ExactQuantity:
    """An exact quantity, its parameters listed."""
    return ExactQuantity(
        name=name, formula=formula, unit=unit, params=params, evaluate=evaluate, bound=bound
    )


_SEARCH = 1e-11
"""The search stops where points differ by less than 1e-6. Near their largest values the three norms
are 2a(1 − a) or 4a(1 − a) of a sum a of weights, so that 1e-6 in x costs less than 1e-11.
"""

QUANTITIES = (
    exact(
        "softmax.weights",
        "p = softmax(logits/T), T = 1 if not given",
        _weights,
        "logits",
        "temperature",
        # the quotient x/T: u|x|/T, half of it
        bound=WEIGHT_ERROR + UNIT * LARGEST_LOGIT / 2,
    ),
    exact(
        "softmax.max_weight_complement", "1 − max p, without cancellation", _complement, "logits"
    ),
    exact("softmax.ratio", "p₁/p₂ of logits x apart, e^x", _ratio, "x"),
    exact(
        "softmax.row_sum_error",
        "max(|Σp − 1|, −min p)",
        _row_sum_error,
        "logits",
        # Σe is off by m − 1 units, each division by 1, the sum of weights by m − 1
        bound=2 * LARGEST_ROW * UNIT,
    ),
    exact(
        "softmax.shift_error",
        "max |softmax(x + shift) − softmax(x)|",
        _shift_error,
        "logits",
        "shift",
        # each logit is rounded after the shift, to u(|x| + |shift|)
        bound=2 * WEIGHT_ERROR + UNIT * LARGEST_LOGIT,
    ),
    exact(
        "softmax.temperature_error",
        "max |softmax(x·(1/T)) − exp(x/T)/Σ exp(x/T)|",
        _temperature_error,
        "logits",
        "temperature",
        # 1/T and the product: 2u|x|/T; difference and quotient: 2u·2|x|/T; half of it all
        bound=2 * WEIGHT_ERROR + 3 * UNIT * LARGEST_LOGIT,
    ),
    exact(
        "softmax.entropy_rise",
        "least H(√2·T) − H(T) over T = 1/16 … 16/√2, H the entropy of softmax(x/T)",
        _entropy_rise,
        "logits",
        unit="nats",
    ),
    exact("softmax.jacobian", "diag(p) − ppᵀ, row by row", _jacobian, "logits"),
    exact("softmax.jacobian_frobenius", "‖diag(p) − ppᵀ‖_F", _jacobian_frobenius, "logits"),
    exact(
        "softmax.jacobian_error",
        "max |diag(p) − ppᵀ − ∂p/∂x|, the derivative by complex steps",
        _jacobian_error,
        "logits",
        # p(δ − p) has three factors that err by a weight's error; so has Im(e'/Σe)
        bound=8 * WEIGHT_ERROR,
    ),
    exact(
        "softmax.slope_maximiser",
        "the p at which ∂p/∂x = p(1 − p) is largest, by search",
        _slope_maximiser,
        # p off by δ changes p(1 − p) by δ², which is not seen below 4u
        bound=2 * math.sqrt(4 * UNIT),
    ),
    exact(
        "softmax.lipschitz_inf",
        "sup over logits of ‖J‖_∞→∞, by search",
        _lipschitz(_max_row_sum),
        bound=_SEARCH,
    ),
    exact(
        "softmax.lipschitz_2",
        "sup over logits of ‖J‖₂→₂, by search",
        _lipschitz(_largest_eigenvalue),
        bound=_SEARCH,
    ),
    exact(
        "softmax.lipschitz_inf_1",
        "sup over logits of ‖J‖_∞→1, by search",
        _lipschitz(_inf_to_1),
        bound=_SEARCH,
    ),
    exact("float.exp", "exp(x) in a floating-point type", _exp, "x", "dtype"),
    exact("float.exp_log10", "log₁₀ eˣ", _exp_log10, "x"),
)
