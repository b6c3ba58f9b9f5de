"""Chains of attention changes: ``qk_norm:rms | rope | scale:sqrt | softcap:50``.

Steps act in the order written, from left to right: on q and k until a step makes or needs logits,
on the logits from there on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from sdpa_check.errors import InputError, unknown_name
from sdpa_check.logits.transforms import (
    TRANSFORMS,
    Alibi,
    Dot,
    LogitFactor,
    OnLogits,
    OnVectors,
    QKNorm,
    RoPE,
    Round,
    Scale,
    ScaleQ,
    ScaleQK,
    Score,
    SoftCap,
    Source,
    Transform,
    read,
)
from sdpa_check.records import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.random import Generator

    from sdpa_check.logits.transforms import Context
    from sdpa_check.logits.transforms.base import FloatArray

OPTION: Final = "--pipeline"
_BAR: Final = "|"
_STAGES: Final = (Source, OnVectors, Score, OnLogits)
_ACTS: Final = (
    "it makes q and k",
    "it acts on q and k, and from there on there are only logits",
    "it makes the logits out of q and k",
)


@dataclass(frozen=True, slots=True)
class Applied:
    """What a pipeline made of a block: `logits` (n, m), from `q` (d, n) and `k` (d, m).

    The vectors are those that the source gave, before any step changed them. Where
    `Pipeline.multiplier` is not None, logits = multiplier · qᵀk up to rounding.
    """

    q: FloatArray
    k: FloatArray
    logits: FloatArray


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Transforms by stage; `parse`, `from_table` and `build` see that they fit together.

    `str` gives the canonical text: equal pipelines have equal texts, and `parse` reads them.
    """

    source: Source | None = None
    vectors: tuple[OnVectors, ...] = ()
    score: Score = Dot()
    logits: tuple[OnLogits, ...] = ()

    def __str__(self) -> str:
        return f" {_BAR} ".join(map(str, self.steps)) or str(Dot())

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """All transforms in their order; the dot product only where something hangs on it."""
        source = () if self.source is None else (self.source,)
        implied = self.score == Dot() and not isinstance(next(iter(self.logits), None), Round)
        return (*source, *self.vectors, *(() if implied else (self.score,)), *self.logits)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The records of the transforms: the canonical form."""
        return tuple(transform.step for transform in self.transforms)

    def check(self, context: Context, *, where: str = OPTION) -> None:
        """See that every step can act on such blocks, and load what users bring.

        Raises:
            InputError: ``rope`` with an odd d_k, a d_model that is needed and missing, a module
                of a user that cannot be imported, and the like.
        """
        for position, transform in enumerate(self.transforms, 1):
            objection = transform.objection(context)
            if objection:
                told = f"step {position} of {len(self.transforms)}: {objection}"
                raise InputError(where, str(transform), transform.usage, told)
        self.multiplier(context)

    def run(
        self,
        rng: Generator,
        draw: Callable[[Generator], tuple[FloatArray, FloatArray]],
        context: Context,
    ) -> Applied:
        """Make q and k, and turn them into logits.

        An overflow is a result here and no error: ±∞ and NaN stand in the logits.

        Args:
            rng: source of all randomness: first of q and k, then of the score.
            draw: draws q (d, n) and k (d, m), component-major; a source replaces it.
            context: d, m and what else the steps depend on.

        Raises:
            InputError: as `check`; a function of a user that breaks its contract.
            ValueError: shapes of q and k that are not those of `context`.
        """
        self.check(context)
        q, k = draw(rng) if self.source is None else self.source.on_source(rng, context)
        if len(q) != context.dk or k.shape != (context.dk, context.keys):
            raise ValueError(f"q {q.shape} and k {k.shape} do not fit {context}")
        a, b = q, k
        with np.errstate(all="ignore"):
            for change in self.vectors:
                a, b = change.on_vectors(a, b, context)
            x = self.score.score(a, b, rng, context)
            for step in self.logits:
                x = step.on_logits(x, context)
        return Applied(q, k, x)

    def multiplier(self, context: Context) -> float | None:
        """The c with logits = c · qᵀk, or None where a step is more than a scalar.

        Raises:
            InputError: a rule needs a d_model that `context` lacks.
        """
        changes = (*self.vectors, self.score, *self.logits)
        factors = [change.multiplier(context) for change in changes]
        known = [factor for factor in factors if factor is not None]
        return math.prod(known) if len(known) == len(factors) else None

    def notes(self) -> tuple[str, ...]:
        """What a reader may not expect of these steps in this order, a sentence each."""
        found = (_source_note(self), _vectors_notes(self), _scales_note(self), _logits_notes(self))
        return tuple(note for notes in found for note in notes)


def parse(text: str, *, where: str = OPTION) -> Pipeline:
    """Read steps ``name[:argument[,argument…]]`` that are separated by bars.

    ``dot`` alone is the plain dot product.

    Raises:
        InputError: as `build`, or a step that is empty.
    """
    return build(_steps(text), where=where)


def from_table(table: object, *, where: str = OPTION) -> Pipeline:
    """Read what a TOML file holds in the place of the text.

    Either a string, as `parse`; or a table whose keys are names and whose values are arguments, in
    the order written: ``true`` for none, a string or number for one, an array for several; or an
    array of such strings and tables, which may then repeat a name.

    Raises:
        InputError: as `build`, or a value that is none of these.
    """
    return build(_table_steps(table, where), where=where)


def build(steps: Iterable[Step], *, where: str = OPTION) -> Pipeline:
    """Make the pipeline of some steps, whose arguments need not be canonical.

    Raises:
        InputError: an unknown name, wrong arguments, a step that comes too late, or two that
            exclude each other; it names the step and its position.
    """
    given = tuple(steps)
    stages: list[list[Transform]] = [[], [], [], []]
    for position, step in enumerate(given, 1):
        at = f"step {position} of {len(given)}"
        transform = _transform(step, at, where)
        reached = max((i for i, held in enumerate(stages) if held), default=0)
        fitting = [i for i, kind in enumerate(_STAGES) if isinstance(transform, kind)]
        stage = max(fitting[0], min(reached, fitting[-1]))
        if stage < reached or (stages[stage] and _STAGES[stage] in {Source, Score}):
            raise _misplaced(step, at, where, stages, stage)
        stages[stage].append(transform)
    source, vectors, score, logits = stages
    return Pipeline(
        source=next((t for t in source if isinstance(t, Source)), None),
        vectors=tuple(t for t in vectors if isinstance(t, OnVectors)),
        score=next((t for t in score if isinstance(t, Score)), Dot()),
        logits=tuple(t for t in logits if isinstance(t, OnLogits)),
    )
