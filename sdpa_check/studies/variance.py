"""`variance`: the moments and quantiles of q·k and of the scaled logit, over a sweep of d_k."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Unpack

from sdpa_check.experiment import law_parameters
from sdpa_check.quantities import Case
from sdpa_check.quantities.dot import tail_index
from sdpa_check.studies.inputs import Inputs, Integers, Options, resolve
from sdpa_check.studies.study import Study, conduct, find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.records import Design, Row, Run

DOT = ("dot.mean", "dot.variance", "dot.std", "dot.excess_kurtosis", "dot.iqr")
LOGIT = ("logit.mean", "logit.variance", "logit.std")


def variance(
    dk: Integers = 64, scale: str | float | Sequence[str] = "sqrt", **options: Unpack[Options]
) -> Run:
    """Measure the moments of s = q·k and of the logit c·s, and judge them against exact theory.

    Args:
        dk: one d_k or several; with several the growth exponent is measured too.
        scale: scaling rules for the logit rows: ``none``, ``sqrt``, ``dk``, ``sqrt2``,
            ``sqrt_dmodel``, ``pow:a`` or a positive number.
        options: see `Options`.

    Raises:
        InputError: for an input that cannot be used.

    Example:
        >>> import sdpa_check
        >>> sdpa_check.variance(dk=64).exit_code
        0
    """
    return study(dk, scale, options).run


def study(dk: Integers, scale: str | float | Sequence[str], options: Options) -> Study:
    """As `variance`, with what the figures need beside the run."""
    inputs = resolve(options)
    designs, rules = inputs.designs(dk), inputs.scalings(scale)
    cases = [(name, Case(designs=(d,))) for d in designs for name in DOT]
    cases += [
        (name, Case(designs=(d,), scale=rule, d_model=inputs.dmodel))
        for d in designs
        for rule in rules
        for name in LOGIT
    ]
    if len(designs) > 1:
        exponents = ("dot.variance_exponent", "dot.scale_exponent")
        finite = math.isfinite(_variance_of(inputs))
        cases += [(name, Case(designs=designs)) for name in exponents[0 if finite else 1 :]]
    record = {
        "dk": [d.dk for d in designs],
        **law_parameters(designs[0]),
        "scale": [rule.name for rule in rules],
        "dmodel": inputs.dmodel,
    }
    return conduct("variance", cases, inputs, record, lambda rows: _notes(rows, designs))


def _variance_of(inputs: Inputs) -> float:
    from sdpa_check.distributions import component_law

    return component_law(inputs.query).variance * component_law(inputs.key).variance


def _notes(rows: Sequence[Row], designs: Sequence[Design]) -> list[str]:
    notes = []
    nu = tail_index(designs[0])
    if nu <= 2:
        notes.append(
            f"The components have tail index {nu:g}: their variance is infinite, so q·k has none "
            "to be predicted and a sample variance only grows with the sample. The interquartile "
            "range exists and is judged against the exact law."
        )
    elif nu <= 4:
        notes.append(
            f"The components have tail index {nu:g}: the variance of q·k exists but the fourth "
            "moment does not, so a sample variance has no normal error bar. Its value is shown "
            "without one and the interquartile range is judged instead."
        )
    shared = _shared_note(rows, designs[0])
    return notes + ([shared] if shared else [])


def _shared_note(rows: Sequence[Row], design: Design) -> str | None:
    """What the number of dot products means: they share vectors and are not independent."""
    variance_row = find(rows, "dot.variance", dk=design.dk)
    kurtosis_row = find(rows, "dot.excess_kurtosis", dk=design.dk)
    if variance_row is None or kurtosis_row is None:
        return None
    found, kurtosis = variance_row.estimate, kurtosis_row.prediction.value
    if found is None or not found.se or kurtosis is None:
        return None
    alone = (2 + kurtosis) * (found.value / found.se) ** 2
    if alone > found.samples / 2:
        return None
    return (
        f"At d_k={design.dk} the {found.samples:.2g} dot products come from queries and keys that "
        f"they share; the error bar of the variance is that of about {alone:.1g} independent ones."
    )
