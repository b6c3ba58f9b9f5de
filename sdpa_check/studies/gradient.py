"""`gradient`: what goes back through the softmax, per scaling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Unpack

from sdpa_check.checks import Check, law_parameters
from sdpa_check.inputs import Integers, Options, Scales, resolve
from sdpa_check.quantities import Case
from sdpa_check.studies.ledger import parsed
from sdpa_check.studies.study import Study, conduct, find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.records import Design, Row, Run

NORMS = ("gradient.logits", "gradient.query", "gradient.w_q")
STATISTICS = ("rms", "median", "q05", "q95")
BURSTS = ("gradient.burstiness", "gradient.query_burstiness")


def gradient(
    dk: Integers = 64, keys: Integers = 64, scale: Scales = "all", **options: Unpack[Options]
) -> Run:
    """Measure ∂L/∂s, ∂L/∂q and ∂L/∂W_Q for a loss gradient ∂L/∂p of independent N(0, 1) entries.

    ∂L/∂s = J g with J = diag(p) − ppᵀ, ∂L/∂q = c Kᵀ J g, ∂L/∂W_Q = (∂L/∂q) xᵀ with an input x of
    d_model independent N(0, 1) entries (d_k of them where no d_model is given).

    Args:
        dk: one d_k or several.
        keys: one number of keys per row, m, or several.
        scale: scaling rules; ``all`` stands for none, sqrt and dk.
        options: see `Options`.

    Raises:
        InputError: for an input that cannot be used.

    Example:
        >>> import sdpa_check
        >>> sdpa_check.gradient(dk=64, keys=128, scale="sqrt").exit_code
        0
    """
    return study(dk, keys, scale, options).run


def study(dk: Integers, keys: Integers, scale: Scales, options: Options) -> Study:
    """As `gradient`, with what the figures need beside the run."""
    inputs = resolve(options)
    designs, rules = inputs.designs(dk, keys), inputs.scalings(scale)
    chains = {rule.name: parsed(f"scale:{rule.name}", designs, inputs.dmodel)[0] for rule in rules}
    checks = []
    for design in designs:
        for name, chain in chains.items():
            case = Case(designs=(design,), d_model=inputs.dmodel, inputs={"pipeline": str(chain)})
            where = f"[dk={design.dk},keys={design.keys},scale={name}"
            checks += [
                Check(
                    id=f"{norm}{where},statistic={s}]",
                    quantity=norm,
                    case=Case(
                        designs=case.designs,
                        d_model=case.d_model,
                        statistic=s,
                        inputs=case.inputs,
                    ),
                )
                for norm in NORMS
                for s in STATISTICS
            ]
            checks += [Check(id=f"{name_}{where}]", quantity=name_, case=case) for name_ in BURSTS]
    record = {
        "dk": list(dict.fromkeys(d.dk for d in designs)),
        "keys": list(dict.fromkeys(d.keys for d in designs)),
        **law_parameters(designs[0]),
        "scale": [rule.name for rule in rules],
        "dmodel": inputs.dmodel,
    }
    return conduct("gradient", checks, inputs, record, lambda rows: _notes(rows, designs))


def _notes(rows: Sequence[Row], designs: Sequence[Design]) -> list[str]:
    found = (_note(rows, design) for design in designs)
    return [note for note in found if note][:3]


def _note(rows: Sequence[Row], design: Design) -> str | None:
    """How the RMS and the typical row part without the scale."""

    def value(quantity: str, scale: str, statistic: str | None) -> float | None:
        asked = {"dk": design.dk, "keys": design.keys, "pipeline": f"scale:{scale}"}
        if statistic:
            asked["statistic"] = statistic
        row = find(rows, quantity, **asked)
        return row.estimate.value if row is not None and row.estimate is not None else None

    numbers = [
        value("gradient.query", scale, statistic)
        for scale in ("none", "sqrt")
        for statistic in ("rms", "median")
    ]
    bursts = [value("gradient.query_burstiness", scale, None) for scale in ("none", "sqrt")]
    if any(number is None or not math.isfinite(number) for number in (*numbers, *bursts)):
        return None
    rms, median, scaled_rms, scaled_median = numbers
    buys = ""
    if bursts[0] > 2 > bursts[1]:  # type: ignore[operator]
        buys = ": what the scale buys is a gradient that is not made of bursts"
    return (
        f"d_k={design.dk}, m={design.keys}: without the scale the RMS of ‖∂L/∂q‖ is {rms:.3g}, "
        f"with 1/√d {scaled_rms:.3g}; the median row has {median:.3g} against "
        f"{scaled_median:.3g}. The RMS is {bursts[0]:.3g} times the median unscaled, "
        f"{bursts[1]:.3g} times scaled{buys}."
    )
