"""What goes back through a row: RMS of ∂L/∂x and of ∂L/∂q for g ~ N(0, I) (theory, section 6).

With g = ∂L/∂p and the logits x it is ∂L/∂x = J g, so E‖∂L/∂x‖² = E‖J‖_F². For x = c Kᵀq, keys as
the columns of K, it is ∂L/∂q = c K w, w = J g.
Given q a Gaussian key is σ_k (ζ q/‖q‖ + z) with z ⟂ q, and its logit is τζ, τ = c σ_k ‖q‖; so z is
independent of w, and E_g (ζ·w)² = ‖Jζ‖²:

    E‖∂L/∂q‖² = c² σ_k² E[(d−1) ‖J‖_F² + ‖Jx‖²/τ²].

A mean of the keys, or a part that all keys of a row share, drops out, as J 1 = 0.
"""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING

from sdpa_check.records import Prediction
from sdpa_check.theory.moments import component_variance, dependence
from sdpa_check.theory.row_law import MOST_NODES, SMOOTH, STEP, NormalRows, averages, law_row
from sdpa_check.theory.scores import absent, limit, scores
from sdpa_check.theory.squash import Squash
from sdpa_check.theory.vectors import Drawn

if TYPE_CHECKING:
    from sdpa_check.records import Design
    from sdpa_check.theory.scores import Scores


def gradient_logits_rms(design: Design, multiplier: float) -> Prediction:
    """√E‖∂L/∂x‖² = √E‖J‖_F² for the logits x = c q·k of a row.

    Args:
        design: laws of q and k, with the number of keys.
        multiplier: c > 0.

    Returns:
        Exact for Gaussian q and k with E q = 0; the limit of many components for other laws.
    """
    found = scores(Drawn(design), None)
    rms = _frobenius_rms(found, design, multiplier)
    if isinstance(rms, Prediction):
        return rms
    source = f"E‖∂L/∂x‖² = E‖J‖_F²; {found.source}"
    return Prediction(value=rms, kind=found.kind, source=source)


def gradient_query_rms(design: Design, multiplier: float) -> Prediction:
    """√E‖∂L/∂q‖² for the logits x = c q·k of a row, the keys held fixed.

    Args:
        design: laws of q and k, with the number of keys.
        multiplier: c > 0.

    Returns:
        Exact for Gaussian q and k with independent components (or q-k correlation) and E q = 0;
        c σ_k √d · RMS ‖J‖_F as the limit of many components for other independent ones.
    """
    kind, rho = dependence(design)
    if kind in {"ar1", "equi"}:
        return absent("∂L/∂q under dependence within a vector")
    found = scores(Drawn(design), None)
    rms = _frobenius_rms(found, design, multiplier)
    if isinstance(rms, Prediction):
        return rms
    own = multiplier * sqrt((1 - rho**2) * component_variance(design.key))
    rows = found.rows
    if found.kind == "exact" and isinstance(rows, NormalRows):
        square = _query_ms(rows, design, multiplier)
        if square is not None:
            formula = "theory: E‖∂L/∂q‖² = c² σ_k² E[(d−1) ‖J‖_F² + ‖Jx‖²/τ²]"
            return Prediction(value=own * sqrt(square), kind="exact", source=formula)
    return limit(own * sqrt(design.dk) * rms, "c σ_k √d · RMS ‖J‖_F, for many components")


def _frobenius_rms(found: Scores, design: Design, multiplier: float) -> float | Prediction:
    """RMS ‖J‖_F, or the prediction that says why there is none."""
    if design.keys is None or design.keys < 2:
        return absent("a row needs two keys or more")
    if found.rows is None:
        return Prediction(value=None, kind="none", source=found.source)
    row = averages(found.rows, Squash(last=multiplier), design.keys)
    return absent("rows too wide to integrate") if row is None else sqrt(row.frobenius_ms)


def _query_ms(rows: NormalRows, design: Design, multiplier: float) -> float | None:
    """E[(d−1)‖J‖_F² + ‖Jx‖²/τ²]; None if the rows are too wide to integrate."""
    keys = design.keys or 2
    scaled = NormalRows(rows.taus * multiplier, rows.weights, None)
    if scaled.size(SMOOTH) > MOST_NODES:
        return None
    total = 0.0
    for tau, (weight, x, density) in zip(scaled.taus, scaled.branches(SMOOTH), strict=True):
        # ln Σeˣ varies like the largest logit, by about τ/√(2 ln m).
        step = STEP * max(1.0, float(tau) / sqrt(2 * log(keys)))
        row = law_row(keys, x, density, step)
        total += weight * ((design.dk - 1) * row.frobenius_ms + row.response_ms / float(tau) ** 2)
    return total
