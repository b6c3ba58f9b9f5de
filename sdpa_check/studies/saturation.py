"""`saturation`: entropy, weights and Jacobian norms of softmax rows under every scaling."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from sdpa_check.checks import checks_of, law_parameters
from sdpa_check.inputs import Integers, Options, Scales, resolve
from sdpa_check.quantities import Case
from sdpa_check.quantities.rows import STATISTICS
from sdpa_check.studies.study import Study, conduct, find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.records import Design, Row, Run

WEIGHTS = (
    "softmax.entropy",
    "softmax.entropy_ratio",
    "softmax.sum_squares",
    "softmax.max_weight",
    "softmax.effective_keys",
    "softmax.saturated_fraction",
)
NORMS = ("jacobian.frobenius", "jacobian.spectral", "jacobian.inf_norm", "jacobian.trace")


def saturation(
    dk: Integers = 64,
    keys: Integers = 64,
    scale: Scales = "all",
    **options: Unpack[Options],
) -> Run:
    """Measure softmax rows of m keys and their Jacobian, and judge them against exact theory.

    Args:
        dk: one d_k or several.
        keys: one number of keys per row, m, or several.
        scale: scaling rules; ``all`` stands for none, sqrt and dk.
        options: see `Options`.

    Raises:
        InputError: for an input that cannot be used.

    Example:
        >>> import sdpa_check
        >>> sdpa_check.saturation(dk=64, keys=64, scale="none").exit_code
        0
    """
    return study(dk, keys, scale, options).run


def study(dk: Integers, keys: Integers, scale: Scales, options: Options) -> Study:
    """As `saturation`, with what the figures need beside the run."""
    inputs = resolve(options)
    designs, rules = inputs.designs(dk, keys), inputs.scalings(scale)
    cases = []
    for design in designs:
        for rule in rules:
            case = Case(designs=(design,), scale=rule, d_model=inputs.dmodel)
            cases += [(name, case) for name in WEIGHTS]
            cases += [(name, replace(case, statistic=s)) for name in NORMS for s in STATISTICS]
    record = {
        "dk": list(dict.fromkeys(d.dk for d in designs)),
        "keys": list(dict.fromkeys(d.keys for d in designs)),
        **law_parameters(designs[0]),
        "scale": [rule.name for rule in rules],
        "dmodel": inputs.dmodel,
    }
    return conduct(
        "saturation", checks_of(cases), inputs, record, lambda rows: _notes(rows, designs)
    )


def _notes(rows: Sequence[Row], designs: Sequence[Design]) -> list[str]:
    """Of each kind of note the first: a sweep would say the same of every design."""
    found = [_gradient_note(rows, design) for design in designs]
    return list(dict(reversed([note for note in found if note])).values())[::-1]


def _gradient_note(rows: Sequence[Row], design: Design) -> tuple[str, str] | None:
    """Where the sentence "without the scale the gradient vanishes" fails, and how far.

    The kind of note comes before its text.
    """

    def norm(scale: str, statistic: str) -> float | None:
        row = find(
            rows,
            "jacobian.frobenius",
            dk=design.dk,
            keys=design.keys,
            scale=scale,
            statistic=statistic,
        )
        return row.estimate.value if row is not None and row.estimate is not None else None

    rms, median = norm("none", "rms"), norm("none", "median")
    scaled, scaled_median = norm("sqrt", "rms"), norm("sqrt", "median")
    if rms is None or median is None or scaled is None or scaled_median is None:
        return None
    if math.isnan(median) or math.isnan(scaled_median):  # too small for their bins
        return None
    where = f"d_k={design.dk}, m={design.keys}"
    if rms > scaled:
        compared = f"({median:.3g} against {scaled_median:.3g})"
        typical = f"larger too {compared}: nothing vanishes here."
        if median <= scaled_median:
            typical = (
                f"smaller {compared}: what vanishes, if anything, is the gradient of the typical "
                "row, not the RMS."
            )
        note = (
            f"{where}: the RMS ‖J‖_F is larger without the scale ({rms:.3g}) than with 1/√d "
            f"({scaled:.3g}). Unscaled, a few keys share a row, and a row split between two keys "
            f"has the largest Jacobian there is; scaled, the weight is spread over all "
            f"{design.keys} keys and no entry of J can be large. The median row is {typical}"
        )
        return f"larger, {median > scaled_median}", note
    if median < scaled_median / 10:
        note = (
            f"{where}: unscaled, the typical row has almost no Jacobian (median ‖J‖_F "
            f"{median:.3g} against {scaled_median:.3g} with 1/√d) while the RMS is still "
            f"{rms:.3g}: what is left comes in rare bursts."
        )
        return "bursts", note
    return None
