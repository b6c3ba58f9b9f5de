"""What `train` says about the claims of the training sections: one sentence each, with numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sdpa_check.report.rows import number, rounded
from sdpa_check.studies.study import find
from sdpa_check.training.measures import FINAL, HALF, MEASURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.records import Estimate, Row
    from sdpa_check.training.measures import Results, Setting

UNSCALED, SCALED = "none", "sqrt"

SMALL: Final = 16
"""The d_k of which a source says that it trains without the scale."""

LIMITS: Final = (
    "These are trials of one layer on one synthetic task: they can refute a sentence that says "
    "always, and say nothing of what large models do. Intervals are 95 %, over seeds; [ ] beside a "
    "best rate is the range of the rates tried that cannot be told from it."
)


def notes(rows: Sequence[Row], results: Results, keys: int) -> list[str]:
    """The answers that these trials allow, and how far they carry."""
    if not {UNSCALED, SCALED} <= {s.scale for s in results.settings}:
        return []
    told = _Told(results, math.log(keys))
    plain = [text for answer in (told.curve, told.tenth) for text in map(answer, told.dks)]
    return [
        _start(rows, told),
        *plain,
        *(told.small(dk) for dk in told.dks if dk <= SMALL),
        *(told.elsewhere(dk) for dk in told.dks[1:]),
        *(told.warm(dk, warmup) for dk in told.dks for warmup in told.warmups[1:]),
        LIMITS,
    ]


def _start(rows: Sequence[Row], told: _Told) -> str:
    """B-6.1-start, at the largest d_k."""

    def losses(quantity: str) -> str:
        found = [
            find(rows, quantity, dk=max(told.dks), scale=scale) for scale in (UNSCALED, SCALED)
        ]
        return " and ".join(_text(row.estimate) for row in found if row and row.estimate)

    return (
        f"The start (B-6.1-start), d_k={max(told.dks)}: without and with 1/√d the prediction loss "
        f"begins at {losses('train.start_loss')}, both about ln N = {told.uniform:.4f}; the loss "
        f"of the attention row itself at {losses('train.start_row_loss')}, which is E[ln Z] and "
        "not ln N."
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """The results, asked for one sentence at a time; `uniform` is ln N."""

    results: Results
    uniform: float

    @property
    def dks(self) -> list[int]:
        """All d_k, in the order of the trials."""
        return list(dict.fromkeys(s.dk for s in self.results.settings))

    @property
    def warmups(self) -> list[int]:
        """All warmups; the first is that of every sentence that is not about warmup."""
        return list(dict.fromkeys(s.warmup for s in self.results.settings))

    def best(self, dk: int, scale: str, warmup: int | None = None) -> Setting:
        """A scaling at its best rate."""
        return self.results.best(dk, scale, self.warmups[0] if warmup is None else warmup)

    def rate(self, setting: Setting) -> str:
        """A best rate with its like, and whether a better one may lie beyond those tried."""
        rates = {s.lr for s in self.results.settings}
        if len(rates) == 1:
            return f"{number(setting.lr)} (the only one tried)"
        ends = {min(rates): " (the smallest tried)", max(rates): " (the largest tried)"}
        alike = self.results.best_lr_set(setting)
        like = "" if alike.lo == alike.hi else f" [{number(alike.lo)}, {number(alike.hi)}]"
        return number(setting.lr) + like + ends.get(setting.lr, "")

    def final(self, setting: Setting) -> str:
        """Its final loss."""
        lost, count = self.lost(FINAL, setting)
        if lost:
            return f"no finite loss ({lost} of {count} seeds {MEASURES[FINAL].missing})"
        return _text(self.results.estimate(FINAL, setting))

    def half(self, setting: Setting) -> str:
        """When it reaches ½ ln N, after the words "is reached"."""
        lost, count = self.lost(HALF, setting)
        if lost:
            some = f"only {count - lost} of {count} seeds" if lost < count else "no seed"
            return f"by {some} within {self.results.steps(setting)} steps"
        return f"after {_text(self.results.estimate(HALF, setting))} steps"

    def lost(self, name: str, setting: Setting) -> tuple[int, int]:
        """How many of its seeds do not have the number, and how many there are."""
        return self.results.lost(name, setting), len(self.results.values(name, setting))

    def less(self, setting: Setting, other: Setting) -> str:
        """The difference of two final losses, seed by seed."""
        found = self.results.difference(FINAL, setting, other)
        return "no number" if found.se is None else _text(found)

    def curve(self, dk: int) -> str:
        """B-6.1-curve: rate by rate, and each at its best."""
        unscaled, scaled = self.best(dk, UNSCALED), self.best(dk, SCALED)
        rates: dict[str, list[str]] = {"lower": [], "higher": [], "no different": []}
        for s in self.results.settings:
            if s == unscaled._replace(lr=s.lr):
                found = self.results.difference(FINAL, s, s._replace(scale=SCALED))
                rates[_side(found)].append(number(s.lr))
        sides = "; ".join(f"{word} at lr {', '.join(lrs)}" for word, lrs in rates.items() if lrs)
        return (
            f"The curve (B-6.1-curve), d_k={dk}: held against the scaled layer at the same rate, "
            f"the unscaled one ends {sides}. Each at its best rate, {self.rate(unscaled)} without "
            f"and {self.rate(scaled)} with the scale, they end at {self.final(unscaled)} and "
            f"{self.final(scaled)} (with − without: {self.less(scaled, unscaled)}). ½ ln N is "
            f"reached {self.half(unscaled)} without it, {self.half(scaled)} with it."
        )

    def tenth(self, dk: int) -> str:
        """B-6.2-lr: the rate that suits the scaled layer, and a tenth of it, without the scale."""
        scaled = self.best(dk, SCALED)
        same = scaled._replace(scale=UNSCALED)
        text = (
            f"A tenth of the rate (B-6.2-lr), d_k={dk}: at the rate that is best with the scale, "
            f"{number(scaled.lr)}, the layer without it ends at {self.final(same)}"
        )
        near = [s for s in self.results.settings if s == same._replace(lr=s.lr)]
        tenth = next((s for s in near if math.isclose(10 * s.lr, same.lr)), None)
        if tenth is None:
            return f"{text}; a tenth of it is not among the rates that were tried."
        side = _side(self.results.difference(FINAL, tenth, scaled))
        return (
            f"{text}, at {number(tenth.lr)} at {self.final(tenth)}: {side} than with the scale "
            f"(difference {self.less(tenth, scaled)})."
        )

    def small(self, dk: int) -> str:
        """B-6.3-train: a small d_k without the scale."""
        unscaled, scaled = self.best(dk, UNSCALED), self.best(dk, SCALED)
        return (
            f"A small d_k (B-6.3-train): at d_k={dk} without the scale the loss goes from about "
            f"{self.uniform:.3f} to {self.final(unscaled)} at the best rate, with it to "
            f"{self.final(scaled)}."
        )

    def elsewhere(self, dk: int) -> str:
        """B-5.2-lr: the best rate of the first d_k at another."""
        parts = []
        for word, scale in (("with 1/√d", SCALED), ("without", UNSCALED)):
            home, away = self.best(self.dks[0], scale), self.best(dk, scale)
            moved = away._replace(lr=home.lr)
            cost = f"keeping the first costs {self.less(moved, away)} at d_k={dk}"
            same = "one rate serves both"
            parts.append(
                f"{word} the best rates are {self.rate(home)} and {self.rate(away)}: "
                + (same if moved == away else cost)
            )
        return f"One rate for every d_k (B-5.2-lr), {self.dks[0]} and {dk}: {'; '.join(parts)}."

    def warm(self, dk: int, warmup: int) -> str:
        """B-7.4: what a warmup changes, each at its best rate."""
        parts = []
        for word, scale in (("with 1/√d", SCALED), ("without", UNSCALED)):
            cold, warm = self.best(dk, scale), self.best(dk, scale, warmup)
            parts.append(
                f"{word} the final loss is {self.final(cold)} and {self.final(warm)}, "
                f"{_side(self.results.difference(FINAL, warm, cold))} with the second"
            )
        return (
            f"Warmup (B-7.4), d_k={dk}, {self.warmups[0]} and {warmup} steps, each at its best "
            f"rate: {'; '.join(parts)}."
        )


def _side(difference: Estimate) -> str:
    """What a difference says at the level of its interval."""
    low, high = difference.lo, difference.hi
    if low is None or high is None:  # one of the two diverged, or both
        low = high = 0.0 if math.isnan(difference.value) else difference.value
    if low <= 0 <= high:
        return "no different"
    return "higher" if low > 0 else "lower"


def _text(estimate: Estimate) -> str:
    return rounded(estimate.value, estimate.se)
