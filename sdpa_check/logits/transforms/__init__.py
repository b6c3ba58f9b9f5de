"""Changes of attention, each a small class: from the making of q and k to the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sdpa_check.logits.transforms.arguments import Arguments
from sdpa_check.logits.transforms.base import Context, Transform
from sdpa_check.logits.transforms.floats import Round
from sdpa_check.logits.transforms.logits import Alibi, SoftCap
from sdpa_check.logits.transforms.projection import Projection
from sdpa_check.logits.transforms.scalars import LogN, Scale, ScaleQ, ScaleQK, Temperature, Yarn
from sdpa_check.logits.transforms.scores import Additive, Dot
from sdpa_check.logits.transforms.user import User, UserK, UserQ
from sdpa_check.logits.transforms.vectors import QKNorm, RoPE

if TYPE_CHECKING:
    from sdpa_check.records import Step

__all__ = ["TRANSFORMS", "Context", "Transform", "read"]

TRANSFORMS: Final[dict[str, type[Transform]]] = {
    each.name: each
    for each in (
        Projection,
        ScaleQ,
        ScaleQK,
        QKNorm,
        RoPE,
        UserQ,
        UserK,
        Round,
        Dot,
        Additive,
        Scale,
        Temperature,
        LogN,
        Yarn,
        SoftCap,
        Alibi,
        User,
    )
}
"""Every transform, by the name of its step."""


def read(step: Step) -> Transform:
    """The transform of a step whose name is one of `TRANSFORMS`.

    Raises:
        ValueError: its arguments are wrong; the text says how, in a few words.
    """
    given = Arguments(step.arguments)
    made = TRANSFORMS[step.name].read(given)
    given.end()
    return made
