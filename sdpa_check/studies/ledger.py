"""`ledger`: the variance account of attention changes, one pipeline a line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Unpack

from sdpa_check.checks import Check, law_parameters
from sdpa_check.errors import InputError
from sdpa_check.inputs import Integers, Options, resolve, texts
from sdpa_check.logits import pipeline as pipelines
from sdpa_check.logits.transforms import Context
from sdpa_check.quantities import Case
from sdpa_check.studies.study import Study, conduct, find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.logits.pipeline import Pipeline
    from sdpa_check.records import Design, Row, Run

CHANGES = (
    "dot",
    "scale:sqrt",
    "scale:dk",
    "scale:sqrt2",
    "scale_qk:pow:-0.25",
    "scale:sqrt | temperature:2",
    "temperature:100,clamp",
    "qk_norm:rms",
    "qk_norm:rms | scale:sqrt",
    "qk_norm:layer",
    "qk_norm:l2",
    "rope | scale:sqrt",
    "scale:sqrt | softcap:5",
    "scale:sqrt | softcap:50",
    "softcap:50",
    "scale:sqrt | alibi:0.5",
    "scale:sqrt | logn:512",
    "scale:sqrt | yarn:4",
    "additive",
    "proj:xavier | scale:sqrt",
    "proj:kaiming | scale:sqrt",
    "proj:torch_linear | scale:sqrt",
    "proj:packed | scale:sqrt",
    "proj:orthogonal | scale:sqrt",
    "proj:normal=0.02 | scale:sqrt",
)
"""The changes that are accounted for where none is named (theory, section 7)."""

ASKED = (
    ("ledger.mean", None),
    ("ledger.std", None),
    ("ledger.within_std", None),
    ("ledger.entropy", None),
    ("ledger.effective_keys", None),
    ("ledger.frobenius", "rms"),
    ("ledger.frobenius", "median"),
    ("gradient.burstiness", None),
)

SORTS = ("none", "std", "entropy", "frobenius", "burstiness")


def ledger(
    pipeline: str | Sequence[str] = CHANGES,
    dk: Integers = 64,
    keys: Integers = 64,
    sort: str = "none",
    **options: Unpack[Options],
) -> Run:
    """Account for attention changes: what each makes of the logit mean and std, and of the softmax.

    Args:
        pipeline: one pipeline or several, e.g. ``"qk_norm:rms | scale:sqrt | softcap:50"``.
        dk: one d_k or several.
        keys: one number of keys per row, or several.
        sort: order the pipelines by ``std``, ``entropy``, ``frobenius`` or ``burstiness``.
        options: see `Options`.

    Raises:
        InputError: for an input that cannot be used; the message names the step.

    Example:
        >>> import sdpa_check
        >>> sdpa_check.ledger("qk_norm:rms").rows[1].prediction.value
        8.0
    """
    return study(pipeline, dk, keys, sort, options).run


def study(
    pipeline: str | Sequence[str], dk: Integers, keys: Integers, sort: str, options: Options
) -> Study:
    """As `ledger`, with what the figures need beside the run."""
    inputs = resolve(options)
    if sort not in SORTS:
        raise InputError("--sort", sort, "one of " + ", ".join(SORTS))
    designs = inputs.designs(dk, keys)
    chains = parsed(pipeline, designs, inputs.dmodel)
    checks = [
        Check(
            id=f"{design.dk},{design.keys}: {chain}/{name}" + (f".{s}" if s else ""),
            quantity=name,
            case=Case(
                designs=(design,),
                d_model=inputs.dmodel,
                statistic=s,
                inputs={"pipeline": str(chain)},
            ),
        )
        for design in designs
        for chain in chains
        for name, s in asked(chain)
    ]
    record = {
        "dk": list(dict.fromkeys(d.dk for d in designs)),
        "keys": list(dict.fromkeys(d.keys for d in designs)),
        **law_parameters(designs[0]),
        "pipeline": [str(chain) for chain in chains],
        "dmodel": inputs.dmodel,
        "sort": sort,
    }
    return conduct(
        "ledger",
        checks,
        inputs,
        record,
        lambda rows: _notes(rows, designs, chains),
        finish=lambda rows: _sorted(rows, sort),
    )


def asked(chain: Pipeline) -> tuple[tuple[str, str | None], ...]:
    """The quantities that are asked of a pipeline: overflow too where it rounds."""
    rounds = any(step.name == "dtype" for step in chain.steps)
    return (*ASKED, ("ledger.overflow", None)) if rounds else ASKED


def parsed(
    pipeline: str | Sequence[str], designs: Sequence[Design], d_model: int | None
) -> list[Pipeline]:
    """The pipelines of some texts, each seen to fit every design.

    Raises:
        InputError: naming the step.
    """
    given = texts("--pipeline", pipeline, "a text of steps, for example scale:sqrt")
    found = {str(chain): chain for chain in map(pipelines.parse, given)}
    for chain in found.values():
        for design in designs:
            chain.check(Context(dk=design.dk, keys=design.keys or 2, d_model=d_model))
    return list(found.values())


def _sorted(rows: list[Row], sort: str) -> list[Row]:
    """The rows, pipeline by pipeline, in the order of one measured number, NaN last."""
    if sort == "none":
        return rows
    wanted = {
        "std": ("ledger.std", None),
        "entropy": ("ledger.entropy", None),
        "frobenius": ("ledger.frobenius", "rms"),
        "burstiness": ("gradient.burstiness", None),
    }[sort]
    keys = {
        _group(row): row.estimate.value
        for row in rows
        if (row.quantity, row.params.get("statistic")) == wanted and row.estimate
    }
    found = {group: keys.get(group, math.nan) for group in map(_group, rows)}
    return sorted(rows, key=lambda row: (math.isnan(found[_group(row)]), found[_group(row)]))


def _group(row: Row) -> tuple[int, int, str]:
    return row.params["dk"], row.params["keys"], row.params["pipeline"]


def _notes(rows: Sequence[Row], designs: Sequence[Design], chains: Sequence[Pipeline]) -> list[str]:
    notes = [f"{chain}: {note}." for chain in chains for note in chain.notes() if len(chains) < 10]
    dk, keys = designs[0].dk, designs[0].keys

    def std(text: str) -> float | None:
        row = find(rows, "ledger.std", pipeline=text, dk=dk, keys=keys)
        return row.estimate.value if row is not None and row.estimate is not None else None

    norm, layer, unit = std("qk_norm:rms"), std("qk_norm:layer"), std("qk_norm:l2")
    if norm is not None and layer is not None and unit is not None:
        notes.append(
            f"QK-norm does not replace the scale: at d_k={dk} the logit std is {norm:.4g} after "
            f"RMSNorm, {layer:.4g} after LayerNorm and {unit:.3g} after the ℓ₂ norm, not 1."
        )
    bias = std("scale:sqrt | alibi:0.5")
    if bias is not None:
        notes.append(
            "The std counts what differs within a row and between rows alike; the softmax sees the "
            f"first only. ALiBi of slope 0.5 over {keys} keys brings a std of {bias:.3g} by itself."
        )
    return notes
