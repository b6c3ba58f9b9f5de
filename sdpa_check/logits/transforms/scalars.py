"""Transforms that multiply: scales on the logits, on q, or on both; temperature, log-n, YaRN."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from sdpa_check.errors import InputError
from sdpa_check.logits import scaling
from sdpa_check.logits.transforms.arguments import shown, trimmed
from sdpa_check.logits.transforms.base import OnLogits, OnVectors, Transform

if TYPE_CHECKING:
    from sdpa_check.logits.transforms.arguments import Arguments
    from sdpa_check.logits.transforms.base import Context, FloatArray

_RULES = (
    "none, sqrt, dk, sqrt2, sqrt_dmodel, pow:a with "
    f"|a| ≤ {scaling.LARGEST_EXPONENT:g}, or a finite multiplier > 0"
)


def _rule(given: Arguments) -> scaling.Scaling:
    text = given.text()
    try:
        rule = scaling.parse(text)
    except InputError as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise ValueError(f"{text!r} is none of them{hint}") from None
    if rule.needs_iqr:
        raise ValueError(f"{rule} needs the law of q·k, which a pipeline may change")
    return rule


class LogitFactor(OnLogits):
    """Multiplies all logits by one number."""

    __slots__ = ()

    @abstractmethod
    def factor(self, context: Context) -> float:
        """The number by which the logits are multiplied."""

    def on_logits(self, x: FloatArray, context: Context) -> FloatArray:
        """Multiply x by the factor."""
        return x * self.factor(context)

    def multiplier(self, context: Context) -> float:
        """The factor itself."""
        return self.factor(context)


@dataclass(frozen=True, slots=True)
class _ByRule(Transform):
    rule: scaling.Scaling

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read the rule."""
        return cls(_rule(given))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The name of the rule."""
        return (self.rule.name,)

    def constant(self, context: Context) -> float:
        """The c of the rule: 1/√d for ``sqrt``."""
        return self.rule.multiplier(context.dk, context.d_model)


@dataclass(frozen=True, slots=True)
class Scale(_ByRule, LogitFactor):
    """x · c, with c the multiplier of a scaling rule: 1/√d for ``sqrt`` (Vaswani et al. 2017)."""

    name: ClassVar[str] = "scale"
    usage: ClassVar[str] = f"scale:RULE with RULE {_RULES}; for example scale:sqrt"

    def factor(self, context: Context) -> float:
        """The constant of the rule."""
        return self.constant(context)


@dataclass(frozen=True, slots=True)
class ScaleQ(_ByRule, OnVectors):
    """q · c, with c the multiplier of a scaling rule."""

    name: ClassVar[str] = "scale_q"
    usage: ClassVar[str] = f"scale_q:RULE with RULE {_RULES}; for example scale_q:sqrt"

    def on_vectors(
        self, q: FloatArray, k: FloatArray, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """(q · c, k)."""
        return q * self.constant(context), k

    def multiplier(self, context: Context) -> float:
        """The constant of the rule."""
        return self.constant(context)


@dataclass(frozen=True, slots=True)
class ScaleQK(_ByRule, OnVectors):
    """q · c and k · c: with ``pow:-0.25`` the scale 1/√d, split evenly over both."""

    name: ClassVar[str] = "scale_qk"
    usage: ClassVar[str] = f"scale_qk:RULE with RULE {_RULES}; for example scale_qk:pow:-0.25"

    def on_vectors(
        self, q: FloatArray, k: FloatArray, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """(q · c, k · c)."""
        each = self.constant(context)
        return q * each, k * each

    def multiplier(self, context: Context) -> float:
        """The square of the constant of the rule."""
        each = self.constant(context)
        return each * each  # overflows to ∞, where ** would raise


@dataclass(frozen=True, slots=True)
class Temperature(LogitFactor):
    """x / T; with clamp x / min(max(T, √d/2), 2√d), which keeps the divisor near √d."""

    name: ClassVar[str] = "temperature"
    usage: ClassVar[str] = "temperature:T[,clamp] with T > 0; for example temperature:2"
    temperature: float
    clamp: bool = False

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read T, and ``clamp`` if it is there."""
        return cls(given.number(above=0), given.flag("clamp"))

    @property
    def arguments(self) -> tuple[str, ...]:
        """T, and ``clamp`` where the divisor is clamped."""
        return trimmed((self.temperature, None), ("clamp" if self.clamp else "", ""))

    def factor(self, context: Context) -> float:
        """1 / divisor."""
        if not self.clamp:
            return 1 / self.temperature
        root = math.sqrt(context.dk)
        return 1 / min(max(self.temperature, root / 2), 2 * root)


@dataclass(frozen=True, slots=True)
class LogN(LogitFactor):
    """x · ln m / ln n_train, for rows of m keys after training on rows of n_train."""

    name: ClassVar[str] = "logn"
    usage: ClassVar[str] = "logn:N with N > 1 keys in training; for example logn:512"
    trained: float

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read the number of keys in training."""
        return cls(given.number(above=1))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The number of keys in training."""
        return (shown(self.trained),)

    def factor(self, context: Context) -> float:
        """The ratio ln m / ln n_train."""
        return math.log(context.keys) / math.log(self.trained)


@dataclass(frozen=True, slots=True)
class Yarn(LogitFactor):
    """x · (0.1 ln s + 1)², s the extension factor: YaRN multiplies q and k by 0.1 ln s + 1 each.

    Source: Peng et al. 2023 (arXiv 2309.00071), whose √(1/t) is 0.1 ln s + 1.
    """

    name: ClassVar[str] = "yarn"
    usage: ClassVar[str] = "yarn:FACTOR with FACTOR ≥ 1; for example yarn:16"
    extension: float

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read the extension factor."""
        return cls(given.number(at_least=1))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The extension factor."""
        return (shown(self.extension),)

    def factor(self, _context: Context) -> float:
        """The square of what q and k are each multiplied by."""
        return (0.1 * math.log(self.extension) + 1) ** 2
