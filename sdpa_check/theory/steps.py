"""The steps of a pipeline as theory reads them: stages, arguments and multipliers.

The sampler has a reading and a table of scaling rules of its own. Neither is derived from the
other, so that a slip in one of them shows as a disagreement.
"""

from __future__ import annotations

import math
from math import log, sqrt
from typing import TYPE_CHECKING, NamedTuple

from sdpa_check.errors import InputError, unknown_name

if TYPE_CHECKING:
    from sdpa_check.records import Design, Step

_STAGES = {
    **dict.fromkeys(("proj",), 0),
    **dict.fromkeys(("scale_q", "scale_qk", "qk_norm", "rope", "user_q", "user_k"), 1),
    **dict.fromkeys(("dot", "additive"), 2),
    **dict.fromkeys(("scale", "temperature", "softcap", "alibi", "logn", "yarn", "user"), 3),
}
_STAGE_NAMES = ("source", "vectors", "score", "logits")
_SINGLE = (0, 2)
"""Stages that have one step at most: the source of the vectors, and the score."""

_RULES = {
    "none": (1.0, 0.0, 0.0),
    "sqrt": (1.0, -0.5, 0.0),
    "dk": (1.0, -1.0, 0.0),
    "sqrt2": (sqrt(0.5), -0.5, 0.0),
    "sqrt_dmodel": (1.0, 0.0, -0.5),
}
"""Scaling rules: coefficient, power of d_k, power of d_model."""

_LARGEST = 1e12
"""Bound on the size of an argument, and on that of the inverse of a positive one, so that chains of
steps stay far from the limits of double precision."""

_LARGEST_POWER = 10.0
"""Bound on |a| in ``pow:a``, for the same reason."""


class Stages(NamedTuple):
    """The steps of a pipeline by stage; `rounding` holds the types of the ``dtype`` steps."""

    source: Step | None
    vectors: tuple[Step, ...]
    score: Step | None
    logits: tuple[Step, ...]
    rounding: tuple[str, ...]


def stages(steps: tuple[Step, ...]) -> Stages:
    """Sort steps by stage, source → vectors → score → logits, in the order written.

    Raises:
        InputError: an unknown step, one that comes after a later stage, a second source or score,
            or an unusable ``dtype``.
    """
    found: tuple[list[Step], ...] = ([], [], [], [])
    rounding, reached = [], 0
    for step in steps:
        if step.name == "dtype":
            (kind,) = arguments(step, 1)
            if kind not in {"float16", "bfloat16"}:
                raise unknown_name("pipeline: dtype", kind, ("float16", "bfloat16"))
            rounding.append(kind)
            continue
        if step.name not in _STAGES:
            raise unknown_name("pipeline", step.name, (*_STAGES, "dtype"))
        stage = _STAGES[step.name]
        if stage < reached:
            want = f"steps on the {_STAGE_NAMES[stage]} before those on the {_STAGE_NAMES[reached]}"
            raise InputError("pipeline", str(step), want, "move it forward")
        if stage in _SINGLE and found[stage]:
            raise InputError("pipeline", str(step), f"one step on the {_STAGE_NAMES[stage]}")
        reached = stage
        found[stage].append(step)
    source, vectors, score, logits = found
    return Stages(
        source[0] if source else None,
        tuple(vectors),
        score[0] if score else None,
        tuple(logits),
        tuple(rounding),
    )


def arguments(step: Step, least: int, most: int | None = None) -> tuple[str, ...]:
    """The arguments of a step, whose number must lie between `least` and `most`.

    Raises:
        InputError: for another number of arguments.
    """
    most = least if most is None else most
    if not least <= len(step.arguments) <= most:
        counts = str(least) if least == most else f"{least} to {most}"
        raise InputError("pipeline", str(step), f"{step.name} with {counts} argument(s)")
    return step.arguments


def number(
    step: Step, text: str, *, above: float | None = None, least: float | None = None
) -> float:
    """One argument as a number, if wanted greater than `above` or not less than `least`.

    Raises:
        InputError: for anything else.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    low = (above is not None and value <= above) or (least is not None and value < least)
    tiny = above == 0 and value < 1 / _LARGEST
    if not abs(value) <= _LARGEST or low or tiny:
        bound = "" if above is None else f" above {above:g}"
        bound += "" if least is None else f" of at least {least:g}"
        hint = f"theory goes from {1 / _LARGEST:g} to {_LARGEST:g} in size"
        raise InputError("pipeline", str(step), f"{step.name} with a number{bound}", hint)
    return value


def row_length(step: Step, design: Design, least: int = 1) -> int:
    """The number m of keys in a row, at least `least`, for a step that depends on it.

    Raises:
        InputError: the design has no rows, or too short ones.
    """
    if design.keys is None or design.keys < least:
        want = f"{least} keys or more: {step.name} depends on the length of a row"
        raise InputError("keys", design.keys, want)
    return design.keys


def scale_multiplier(step: Step, design: Design, d_model: int | None) -> float:
    """The factor of a scaling rule: c = coefficient · d_k^a · d_model^b.

    Raises:
        InputError: an unknown rule, a multiplier that is not positive, or a missing d_model.
    """
    (rule,) = arguments(step, 1)
    if rule.startswith("pow:"):
        power = number(step, rule.removeprefix("pow:"))
        if abs(power) > _LARGEST_POWER:
            want = f"pow:a with |a| ≤ {_LARGEST_POWER:g}"
            raise InputError("pipeline", str(step), want)
        return math.pow(design.dk, power)
    if rule not in _RULES:
        if rule.isidentifier() and rule not in {"inf", "infinity", "nan"}:
            raise unknown_name(f"pipeline: {step.name}", rule, (*_RULES, "pow:a"))
        return number(step, rule, above=0.0)
    coefficient, own_power, model_power = _RULES[rule]
    if model_power and (d_model is None or d_model < 1):
        raise InputError("d_model", d_model, f"an integer ≥ 1: {step} needs it")
    return coefficient * math.pow(design.dk, own_power) * math.pow(d_model or 1, model_power)


def logit_multiplier(step: Step, design: Design, d_model: int | None) -> float | None:
    """The factor by which a step multiplies every logit; None if it does something else.

    ``scale``: its rule. ``temperature:T``: 1/T; with ``clamp`` the divisor is
    min(max(T, √d_k/2), 2√d_k). ``logn:n``: ln m/ln n. ``yarn:s``: (0.1 ln s + 1)².

    Raises:
        InputError: for arguments that cannot be used.
    """
    if step.name == "scale":
        return scale_multiplier(step, design, d_model)
    if step.name == "temperature":
        first, *rest = arguments(step, 1, 2)
        divisor = number(step, first, above=0.0)
        if rest not in ([], ["clamp"]):
            raise InputError("pipeline", str(step), "temperature:T or temperature:T,clamp")
        root = sqrt(design.dk)
        return 1 / (min(max(divisor, root / 2), 2 * root) if rest else divisor)
    if step.name == "logn":
        (text,) = arguments(step, 1)
        trained = number(step, text, above=1.0)
        return log(row_length(step, design, least=2)) / log(trained)
    if step.name == "yarn":
        (text,) = arguments(step, 1)
        return (0.1 * log(number(step, text, least=1.0)) + 1) ** 2
    return None
