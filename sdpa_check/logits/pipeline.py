"""Chains of attention changes: ``qk_norm:rms | rope | scale:sqrt | softcap:50``.

Steps act in the order written, from left to right: on q and k until a step makes or needs logits,
on the logits from there on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from sdpa_check.errors import InputError, unknown_name
from sdpa_check.logits.transforms import TRANSFORMS, read
from sdpa_check.logits.transforms.base import OnLogits, OnVectors, Score, Source
from sdpa_check.logits.transforms.floats import Round
from sdpa_check.logits.transforms.notes import notes
from sdpa_check.logits.transforms.scores import Dot
from sdpa_check.records import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.random import Generator

    from sdpa_check.logits.transforms.base import Context, FloatArray, Transform

OPTION: Final = "--pipeline"
_DOT: Final = Dot()
_STAGES: Final = (Source, OnVectors, Score, OnLogits)
_SOURCE, _VECTORS, _SCORE, _LOGITS = range(len(_STAGES))
_ROLES: Final = (
    "it makes q and k",
    "it acts on q and k, and from there on only scores are left",
    "it makes the scores out of q and k",
)
_ONCE: Final = {_SOURCE: "one source of q and k", _SCORE: "one score"}


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
    """Transforms by stage; `parse`, `from_table` and `build` make one and see that they fit.

    `str` gives the canonical text: equal pipelines have equal texts, and `parse` reads them.
    """

    source: Source | None = None
    vectors: tuple[OnVectors, ...] = ()
    score: Score = _DOT
    logits: tuple[OnLogits, ...] = ()

    def __str__(self) -> str:
        return " | ".join(map(str, self.steps)) or str(self.score)

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """All transforms in their order; the dot product only where it must be written."""
        source = () if self.source is None else (self.source,)
        # Without a written dot product, a rounding that follows would act on q and k.
        rounded = bool(self.logits) and isinstance(self.logits[0], Round)
        score = () if isinstance(self.score, Dot) and not rounded else (self.score,)
        return (*source, *self.vectors, *score, *self.logits)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The records of the transforms: the canonical form."""
        return tuple(transform.step for transform in self.transforms)

    @property
    def tame(self) -> bool:
        """Whether the logits have all moments, however heavy the tails of q and k are.

        Of a function of the user's own nothing is known; it is taken to change no tail.
        """
        return any(transform.tames for transform in self.transforms)

    def check(self, context: Context, *, where: str = OPTION) -> None:
        """See that every step can act on such blocks, and that users' functions can be loaded.

        Raises:
            InputError: ``rope`` with an odd d_k, a d_model that is needed and missing, a module
                of a user that cannot be imported, and the like.
        """
        for position, transform in enumerate(self.transforms, 1):
            objection = transform.objection(context)
            if objection:
                hint = f"step {position} of {len(self.transforms)}: {objection}"
                raise InputError(where, str(transform), transform.usage, hint)
        self.multiplier(context)

    def run(
        self,
        rng: Generator,
        draw: Callable[[Generator], tuple[FloatArray, FloatArray]],
        context: Context,
    ) -> Applied:
        """Make q and k, and turn them into logits.

        An overflow is a finding here and no error: it leaves ±∞ or NaN in the logits.

        Args:
            rng: all randomness: first that of q and k, then that of the score.
            draw: draws q (d, n) and k (d, m), component-major; a source takes its place.
            context: d, m and what else the steps depend on.

        Raises:
            InputError: as `check`, or a function of a user that breaks its contract.
            ValueError: vectors that are not those of `context`.
        """
        self.check(context)
        with np.errstate(all="ignore"):
            q, k = draw(rng) if self.source is None else self.source.on_source(rng, context)
            if len(q) != context.dk or k.shape != (context.dk, context.keys):
                raise ValueError(f"q of shape {q.shape} and k of {k.shape} do not fit {context}")
        return Applied(q, k, self.logits_of(q, k, rng, context))

    def logits_of(
        self, q: FloatArray, k: FloatArray, rng: Generator, context: Context
    ) -> FloatArray:
        """The logits (…, n, m) of q (…, d, n) and k (…, d, m), of one set or of a stack of sets.

        All that `run` does after the source, in a context that has passed `check`.

        Raises:
            InputError: a function of a user that breaks its contract.
        """
        with np.errstate(all="ignore"):
            for change in self.vectors:
                q, k = change.on_vectors(q, k, context)
            logits = self.score.score(q, k, rng, context)
            for step in self.logits:
                logits = step.on_logits(logits, context)
        return logits

    def multiplier(self, context: Context) -> float | None:
        """The c with logits = c · qᵀk, or None where a step is more than a scalar.

        Raises:
            InputError: a scaling rule needs the d_model that `context` lacks.
        """
        changes = (*self.vectors, self.score, *self.logits)
        factors = [change.multiplier(context) for change in changes]
        known = [factor for factor in factors if factor is not None]
        return math.prod(known) if len(known) == len(factors) else None

    def notes(self) -> tuple[str, ...]:
        """What a reader may not expect of these steps in this order, a sentence each."""
        return tuple(notes(self.source, self.vectors, self.score, self.logits))


def parse(text: str, *, where: str = OPTION) -> Pipeline:
    """Read steps ``name[:argument[,argument…]]`` with bars between them.

    The plain dot product is ``dot``.

    Raises:
        InputError: as `build`.
    """
    return build(_split(text), where=where)


def from_table(table: object, *, where: str = OPTION) -> Pipeline:
    """Read what stands in a TOML file in the place of the text.

    That is a string, as for `parse`; or a table from names to arguments, in the order written:
    ``true`` for none, a string or a number for one, an array for several; or an array of such
    strings and tables.

    Raises:
        InputError: as `build`, or a value that is none of these.
    """
    return build(_tabled(table, where), where=where)


def build(steps: Iterable[Step], *, where: str = OPTION) -> Pipeline:
    """Make the pipeline of some steps; their arguments need not be canonical.

    Args:
        steps: at least one.
        where: the option or file that an error names.

    Raises:
        InputError: no step, an unknown name, wrong arguments, a step that comes too late, or a
            second one of a kind that can stand but once; it names the step and its position.
    """
    given = tuple(steps)
    if not given:
        raise InputError(where, "", "at least one step", "dot alone is the plain dot product")
    placed: list[tuple[int, Transform]] = []
    for position, step in enumerate(given, 1):
        at = f"step {position} of {len(given)}"
        transform = _transform(step, at, where)
        placed.append((_stage(transform, placed, at, where), transform))
    return Pipeline(
        source=next((t for _, t in placed if isinstance(t, Source)), None),
        vectors=tuple(t for stage, t in placed if isinstance(t, OnVectors) and stage == _VECTORS),
        score=next((t for _, t in placed if isinstance(t, Score)), _DOT),
        logits=tuple(t for stage, t in placed if isinstance(t, OnLogits) and stage == _LOGITS),
    )


def _transform(step: Step, at: str, where: str) -> Transform:
    """Read one step; `at` tells its position."""
    if step.name not in TRANSFORMS:
        unknown = unknown_name(where, step.name, TRANSFORMS)
        hint = f"{at}, {unknown.hint}" if unknown.hint else at
        raise InputError(where, str(step), unknown.want, hint)
    try:
        return read(step)
    except ValueError as error:
        usage = TRANSFORMS[step.name].usage
        raise InputError(where, str(step), usage, f"{at}: {error}") from None


def _stage(transform: Transform, placed: list[tuple[int, Transform]], at: str, where: str) -> int:
    """Where in `_STAGES` a transform belongs that comes after those `placed`."""
    own = [i for i, stage in enumerate(_STAGES) if isinstance(transform, stage)]
    reached = placed[-1][0] if placed else 0
    for i, (held, other) in enumerate(placed, 1):
        if held in _ONCE and held in own:
            hint = f"{at}; step {i} is {other}"
            raise InputError(where, str(transform), f"{_ONCE[held]} at most", hint)
        if held > own[-1]:
            want = f"it before step {i}, {other}: {_ROLES[own[-1]]}"
            raise InputError(where, str(transform), want, at)
    return next(stage for stage in own if stage >= reached)


def _split(text: str) -> Iterator[Step]:
    for part in text.split("|") if text.strip() else ():
        name, colon, arguments = part.strip().partition(":")
        yield Step(name.strip().lower(), tuple(arguments.split(",")) if colon else ())


def _tabled(table: object, where: str) -> Iterator[Step]:
    if isinstance(table, str):
        yield from _split(table)
    elif isinstance(table, Mapping):
        for name, value in table.items():
            values = value if isinstance(value, list | tuple) else [] if value is True else [value]
            if not all(_is_argument(each) for each in values):
                want = "true, a string, a number, or an array of these two as arguments"
                raise InputError(where, {name: value}, want, "for example softcap = 50")
            yield Step(str(name).strip().lower(), tuple(map(str, values)))
    elif isinstance(table, list | tuple):
        for entry in table:
            yield from _tabled(entry, where)
    else:
        raise InputError(where, table, "a string, a table, or an array of these")


def _is_argument(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
