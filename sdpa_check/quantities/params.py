"""The parameters that quantities take, by name: what they are and which values they allow.

A claim in a file is checked against these before anything is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: what it means, what it wants, and whether a value is of that kind."""

    meaning: str
    want: str
    valid: Callable[[Any], bool]

    def check(self, where: str, value: object) -> None:
        """Refuse a value of the wrong kind.

        Raises:
            InputError: naming `where`.
        """
        if not self.valid(value):
            raise InputError(where, value, self.want)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _positive(value: object) -> bool:
    return _number(value) and value > 0  # type: ignore[operator]


def _fraction(value: object) -> bool:
    return _number(value) and 0 < value < 1  # type: ignore[operator]


def _numbers(value: object) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_number, value))


def _count(value: object) -> bool:
    return _integer(value) and 0 < value <= MOST_STEPS  # type: ignore[operator]


def _count_or_0(value: object) -> bool:
    return value == 0 or _count(value)


def _rate(value: object) -> bool:
    return _positive(value) and value <= LARGEST_RATE  # type: ignore[operator]


def _vectors(value: object) -> bool:
    rows = isinstance(value, list) and len(value) > 0 and all(map(_numbers, value))
    return rows and len({len(row) for row in value}) == 1  # type: ignore[attr-defined]


def _integers(value: object) -> bool:
    many = isinstance(value, list) and len(value) > 0 and all(map(_integer, value))
    return many or _integer(value)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _scale(value: object) -> bool:
    return _text(value) or _positive(value)


def _one_of(*names: object) -> Callable[[object], bool]:
    return lambda value: value in names


MOST_STEPS, LARGEST_RATE = 1_000_000, 1e6
"""Bounds on steps and learning rates of training."""

_NUMBER, _POSITIVE, _TEXT = "a finite number", "a number > 0", "a text"

DESIGN = {
    "dk": Param("d_k, components of q and of k; a list for a sweep", "an integer", _integers),
    "dist": Param("law of the components", _TEXT, _text),
    "df": Param("degrees of freedom of t", _POSITIVE, _positive),
    "standardize": Param("give a raw t unit variance", "true or false", _one_of(True, False)),
    "sigma": Param("scale of q, and of k", _POSITIVE, _positive),
    "sigma_k": Param("scale of k, if another", _POSITIVE, _positive),
    "mean": Param("mean of q, and of k", _NUMBER, _number),
    "mean_k": Param("mean of k, if another", _NUMBER, _number),
    "corr": Param("dependence: none, ar1:ρ, equi:ρ, qk:ρ", _TEXT, _text),
    "dmodel": Param("d_model, for the rule sqrt_dmodel and for training", "an integer", _integer),
}
"""Parameters of the draws, which every sampled quantity takes."""

ROW = {"keys": Param("m, keys in a row; a list for a sweep", "an integer", _integers)}
"""The parameter that quantities of softmax rows take beside those of the draws."""

PARAMS = {
    "scale": Param("scaling rule, as for --scale", "the name of a rule or a number > 0", _scale),
    "statistic": Param(
        "how rows are summarised",
        "mean, rms, median, q05 or q95",
        _one_of("mean", "rms", "median", "q05", "q95"),
    ),
    "level": Param("level of a quantile", "a number between 0 and 1", _fraction),
    "pipeline": Param("steps from q and k to logits, as for --pipeline", _TEXT, _text),
    "lr": Param("learning rate", f"a number > 0, at most {LARGEST_RATE:g}", _rate),
    "steps": Param("steps of training", f"an integer from 1 to {MOST_STEPS}", _count),
    "warmup": Param(
        "steps over which the learning rate rises; 0 if not given",
        f"an integer from 0 to {MOST_STEPS}",
        _count_or_0,
    ),
    "versus_scale": Param(
        "scaling rule of the other training, if another",
        "the name of a rule or a number > 0",
        _scale,
    ),
    "versus_lr": Param(
        "learning rate of the other training, if another",
        f"a number > 0, at most {LARGEST_RATE:g}",
        _rate,
    ),
    "versus_warmup": Param(
        "warmup of the other training, if another",
        f"an integer from 0 to {MOST_STEPS}",
        _count_or_0,
    ),
    "threshold": Param("the bound of an exceedance", _POSITIVE, _positive),
    "low": Param("lower end of an interval", "a number between 0 and 1", _fraction),
    "high": Param("upper end of an interval", "a number between 0 and 1", _fraction),
    "logits": Param("a row of logits", "a list of numbers", _numbers),
    "q": Param("a query", "a list of numbers", _numbers),
    "k": Param("keys", "a list of equally long lists of numbers", _vectors),
    "x": Param("an argument", _NUMBER, _number),
    "temperature": Param("softmax temperature T", _POSITIVE, _positive),
    "shift": Param("a constant added to every logit", _NUMBER, _number),
    "dtype": Param(
        "floating-point type",
        "float16, float32 or float64",
        _one_of("float16", "float32", "float64"),
    ),
}
"""Parameters that quantities name in `Quantity.params`."""


def required(inputs: Mapping[str, Any], name: str) -> Any:
    """The parameter `name` of a case, which must be there and of its kind.

    Raises:
        InputError: if it is missing or of another kind, naming it.
    """
    PARAMS[name].check(name, inputs.get(name))
    return inputs[name]
