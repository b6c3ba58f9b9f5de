"""What a reader may not expect of some transforms in their order, a sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdpa_check.logits.transforms.floats import Round
from sdpa_check.logits.transforms.logits import Alibi, SoftCap
from sdpa_check.logits.transforms.scalars import LogitFactor, Scale, ScaleQ, ScaleQK
from sdpa_check.logits.transforms.scores import Dot
from sdpa_check.logits.transforms.vectors import QKNorm, RoPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sdpa_check.logits.transforms.base import OnLogits, OnVectors, Score, Source, Transform


def notes(
    source: Source | None,
    vectors: Sequence[OnVectors],
    score: Score,
    logits: Sequence[OnLogits],
) -> Iterator[str]:
    """Sentences about the transforms of a pipeline, given by stage and in their order."""
    if source is not None:
        yield f"{source} makes q and k: the law asked for their components does not enter"
    standing, undone = _scales(vectors)
    for norm, scales in undone:
        yield f"{norm} undoes what stands before it: {_listed(scales)}"
    standing += [t for t in logits if isinstance(t, Scale) and t.rule.name != "none"]
    if len(standing) > 1:
        yield f"{_listed(standing)} multiply each other"
    last = vectors[-1] if vectors else None
    followed = bool(logits) and isinstance(logits[0], Round)
    if isinstance(last, Round) and isinstance(score, Dot) and not followed:
        yield f"{last} rounds q and k alone; dot | {last} would round the raw scores"
    yield from _before_factors(logits)


def _scales(
    vectors: Sequence[OnVectors],
) -> tuple[list[Transform], list[tuple[QKNorm, list[Transform]]]]:
    """The scales of q and k that reach the scores, and those that a norm takes off again."""
    standing: list[Transform] = []
    loose: list[Transform] = []  # those that a norm, if it came now, would undo
    undone = []
    for t in vectors:
        if isinstance(t, ScaleQ | ScaleQK):
            loose += [t] * (t.rule.name != "none")
        elif isinstance(t, QKNorm):
            undone += [(t, loose)] * bool(loose)
            loose = []
        elif not isinstance(t, RoPE):  # rounding, or a user's function: not homogeneous
            standing += loose
            loose = []
    return standing + loose, undone


def _before_factors(logits: Sequence[OnLogits]) -> Iterator[str]:
    """What stands before a factor sees other numbers than after it."""
    for i, t in enumerate(logits):
        later = next((f for f in logits[i + 1 :] if isinstance(f, LogitFactor)), None)
        if later is None or not isinstance(t, SoftCap | Alibi):
            continue
        if isinstance(t, Alibi):
            yield f"{t} stands before {later}: its penalty is multiplied too"
        elif any(isinstance(f, LogitFactor) for f in logits[:i]):
            yield f"{t} stands before {later}: it caps what is then multiplied"
        else:
            yield f"{t} stands before {later}: it caps the raw scores"


def _listed(transforms: Iterable[Transform]) -> str:
    return " and ".join(map(str, transforms))
