"""`variance`: the moments and quantiles of q·k and of the scaled logit, over a sweep of d_k."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from sdpa_check.checks import checks_of, law_parameters
from sdpa_check.inputs import Integers, Options, Scales, resolve
from sdpa_check.logits.scaling import NORMAL_IQR
from sdpa_check.measures.scores import tail_index
from sdpa_check.quantities import Case
from sdpa_check.studies.study import Study, conduct, find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.records import Design, Row, Run

_MOMENTS = ("dot.mean", "dot.variance", "dot.std", "dot.excess_kurtosis")
_LOGIT_MOMENTS = ("logit.mean", "logit.variance", "logit.std")
_TAIL = ("dot.tail_index",)


def variance(dk: Integers = 64, scale: Scales = "sqrt", **options: Unpack[Options]) -> Run:
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


def study(dk: Integers, scale: Scales, options: Options) -> Study:
    """As `variance`, with what the figures need beside the run."""
    inputs = resolve(options)
    designs, rules = inputs.designs(dk), inputs.scalings(scale)
    dot, logit, exponents = _asked(tail_index(designs[0]))
    cases = []
    for design in designs:
        case = Case(designs=(design,), d_model=inputs.dmodel)
        cases += [(name, case) for name in dot]
        cases += [(name, replace(case, scale=rule)) for rule in rules for name in logit]
    if len(designs) > 1:
        cases += [(name, Case(designs=designs)) for name in exponents]
    record = {
        "dk": [d.dk for d in designs],
        **law_parameters(designs[0]),
        "scale": [rule.name for rule in rules],
        "dmodel": inputs.dmodel,
    }
    return conduct("variance", checks_of(cases), inputs, record, lambda rows: _notes(rows, designs))


def _asked(nu: float) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What is asked of q·k, of the logit and of the sweep, for components of tail index `nu`."""
    both = ("dot.variance_exponent", "dot.scale_exponent")
    if nu > 4:
        return (*_MOMENTS, "dot.iqr", "dot.normal_distance"), _LOGIT_MOMENTS, both
    if nu > 2:
        return (*_MOMENTS, "dot.iqr", *_TAIL), (*_LOGIT_MOMENTS, "logit.iqr"), both
    infinite = ("dot.mean", "dot.variance", "dot.variance_growth", *_TAIL, "dot.iqr")
    return infinite, ("logit.iqr",), both[1:]


def _notes(rows: Sequence[Row], designs: Sequence[Design]) -> list[str]:
    notes = []
    nu, iqr = tail_index(designs[0]), find(rows, "dot.iqr", dk=designs[0].dk)
    known = iqr is not None and iqr.prediction.value is not None
    if nu <= 2:
        judged = "is judged against the exact law" if known else "has no exact prediction here"
        notes.append(
            f"q·k has tail index {nu:g}: its variance is infinite, so there is none to be "
            "predicted and a sample variance only grows with the sample (dot.variance_growth is "
            f"its exponent). The interquartile range exists and {judged}."
        )
    elif nu <= 4:
        judged = "judged instead" if known else "shown, but has no exact prediction here"
        notes.append(
            f"q·k has tail index {nu:g}: its variance exists but the fourth moment does not, so a "
            "sample variance has no normal error bar. Its value is shown without one and the "
            f"interquartile range is {judged}."
        )
    more = (_left_over_note(rows, designs), _shared_note(rows, designs[0]))
    return notes + [note for note in more if note]


def _left_over_note(rows: Sequence[Row], designs: Sequence[Design]) -> str | None:
    """What dividing by √d_k leaves over where the scale of q·k does not grow as √d_k."""
    row = find(rows, "dot.scale_exponent")
    if row is None or row.estimate is None or row.prediction.value is None:
        return None
    over = row.prediction.value - 0.5
    if abs(over) < 0.02:
        return None
    dks = sorted(design.dk for design in designs)
    found = (find(rows, "dot.iqr", dk=dk) for dk in dks)
    iqrs = [r.prediction.value for r in found if r is not None and r.prediction.value is not None]
    factor = iqrs[-1] / iqrs[0] / math.sqrt(dks[-1] / dks[0])
    std = ", though the standard deviation does" if tail_index(designs[0]) > 2 else ""
    divisors = ", ".join(f"{iqr / NORMAL_IQR:.4g}" for iqr in iqrs)
    return (
        f"The interquartile range of q·k grows as d_k^{row.estimate.value:.3f} here (exact "
        f"{row.prediction.value:.3f}), not as √d_k{std}: after dividing by √d_k that of the logits "
        f"still grows as d_k^{over:.2f}, by a factor of {factor:.3g} from d_k={dks[0]} to "
        f"{dks[-1]}. To give it that of N(0, 1) one would have to divide by "
        f"{divisors} at d_k={', '.join(map(str, dks))}: --scale iqr."
    )


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
    if not 1 <= alone <= found.samples / 2:
        return None
    return (
        f"At d_k={design.dk} the {found.samples:.2g} dot products come from queries and keys that "
        f"they share; the error bar of the variance is that of about {alone:.1g} independent ones."
    )
