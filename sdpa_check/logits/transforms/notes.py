"""What a reader may not expect of some transforms in their order, a sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdpa_check.logits.transforms.floats import Round
from sdpa_check.logits.transforms.logits import Alibi, SoftCap
from sdpa_check.logits.transforms.scalars import LogitFactor, Scale, ScaleQ, ScaleQK
from sdpa_check.logits.transforms.vectors import QKNorm, RoPE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sdpa_check.logits.transforms.base import OnLogits, OnVectors, Source


def notes(
    source: Source | None, vectors: Sequence[OnVectors], logits: Sequence[OnLogits]
) -> Iterator[str]:
    """Sentences about a source, what acts on vectors, and what acts on logits, in their order."""
    if source is not None:
        yield f"{source} makes q and k: the law asked for their components does not enter"
    undone = dict(_undone(vectors))
    for norm, scales in undone.items():
        yield f"{norm} undoes {_listed(scales)}, which stands before it"
    gone = [scale for scales in undone.values() for scale in scales]
    scales = [t for t in (*vectors, *logits) if _scales(t) and t not in gone]
    if len(scales) > 1:
        yield f"{_listed(scales)} multiply each other"
    if vectors and isinstance(vectors[-1], Round) and not isinstance(logits[:1], Round):
        yield f"{vectors[-1]} rounds q and k; dot | {vectors[-1]} rounds the raw scores"
    yield from _before_factors(logits)
