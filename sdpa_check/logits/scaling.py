"""The multiplier that turns a dot product into a logit: coefficient · d^a · d_model^b · IQR^c."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from sdpa_check.errors import InputError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_OPTION: Final = "--scale"
LARGEST_EXPONENT: Final = 10.0
"""Bound on |a| of ``pow:a``: keeps d^a finite for every d that fits in memory."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """A scaling rule: its canonical text, its formula for tables, and the four numbers it is."""

    name: str
    formula: str
    coefficient: float = 1.0
    dk_exponent: float = 0.0
    dmodel_exponent: float = 0.0
    iqr_exponent: float = 0.0

    def __str__(self) -> str:
        return self.name

    @property
    def needs_dmodel(self) -> bool:
        """Whether the multiplier depends on d_model."""
        return self.dmodel_exponent != 0

    @property
    def needs_iqr(self) -> bool:
        """Whether the multiplier depends on the interquartile range of q·k."""
        return self.iqr_exponent != 0

    def multiplier(self, dk: int, d_model: int | None = None, iqr: float | None = None) -> float:
        """Compute c = coefficient · dk^a · d_model^b · IQR^c; the logit is c · (q·k).

        Args:
            dk: number of components of a query.
            d_model: width of the model; read only where `needs_dmodel`.
            iqr: interquartile range of q·k; read only where `needs_iqr`.

        Raises:
            InputError: `dk` < 1, a needed `d_model` that is missing or < 1, or no `iqr`.
        """
        if dk < 1:
            raise InputError("--dk", dk, "an integer ≥ 1")
        value = self.coefficient * math.pow(dk, self.dk_exponent)
        if self.needs_iqr:
            if iqr is None:
                raise InputError(_OPTION, self.name, "a law of q·k with an exact IQR")
            value *= math.pow(iqr, self.iqr_exponent)
        if not self.needs_dmodel:
            return value
        if d_model is None or d_model < 1:
            hint = f"the scaling {self.name} needs it"
            raise InputError("--dmodel", d_model, "an integer ≥ 1", hint)
        return value * math.pow(d_model, self.dmodel_exponent)


NORMAL_IQR: Final = 2 * NormalDist().inv_cdf(0.75)
"""Interquartile range of N(0, 1), which the rule ``iqr`` gives to the logits."""

RULES: Final = {
    rule.name: rule
    for rule in (
        Scaling("none", "1 (none)"),
        Scaling("sqrt", "1/√d", dk_exponent=-0.5),
        Scaling("dk", "1/d", dk_exponent=-1.0),
        Scaling("sqrt2", "1/√(2d)", coefficient=math.sqrt(0.5), dk_exponent=-0.5),
        Scaling("sqrt_dmodel", "1/√d_model", dmodel_exponent=-0.5),
        Scaling("iqr", "1.349/IQR", coefficient=NORMAL_IQR, iqr_exponent=-1.0),
    )
}
"""The rules that have a name of their own."""

ALL: Final = ("none", "sqrt", "dk")
"""What ``all`` stands for: the three scalings that every comparison is about."""

_FORMS: Final = (*RULES, "pow:a", "<number>")


def parse(text: str, *, where: str = _OPTION) -> Scaling:
    """Read a rule's name, ``pow:a`` for d^a, or a positive number for a constant multiplier.

    Args:
        text: what the user wrote.
        where: the option that an error names.

    Raises:
        InputError: none of these, a exceeding 10 in size, or a number that is not positive.
    """
    return _parse(text, where, _FORMS)


def parse_all(texts: Sequence[str], *, where: str = _OPTION) -> tuple[Scaling, ...]:
    """Read several scalings, ``all`` meaning none, sqrt and dk; repetitions count once.

    Raises:
        InputError: as `parse`.
    """
    found: dict[Scaling, None] = {}
    for text in texts:
        names = ALL if text.strip().lower() == "all" else (text,)
        found.update((_parse(name, where, (*_FORMS, "all")), None) for name in names)
    return tuple(found)


def _parse(text: str, where: str, forms: Iterable[str]) -> Scaling:
    cleaned = text.strip().lower()
    if cleaned in RULES:
        return RULES[cleaned]
    kind, _, exponent = cleaned.partition(":")
    if kind == "pow":
        return _power(_number(exponent), text, where)
    value = _number(cleaned)
    if value is None:
        raise unknown_name(where, text, forms)
    if not 0 < value < math.inf:
        raise InputError(where, text, "a finite multiplier > 0")
    return Scaling(repr(value), repr(value), coefficient=value)


def _power(exponent: float | None, text: str, where: str) -> Scaling:
    if exponent is None or not abs(exponent) <= LARGEST_EXPONENT:
        want = f"pow:a with −{LARGEST_EXPONENT:g} ≤ a ≤ {LARGEST_EXPONENT:g}"
        raise InputError(where, text, want, "for example pow:-0.25")
    exponent += 0.0  # −0 and 0 are one rule and need one name
    return Scaling(f"pow:{exponent!r}", f"d^{exponent!r}", dk_exponent=exponent)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
