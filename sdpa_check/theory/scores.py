"""From vectors to the scores of a row: their moments, and the law of a row given its query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check.errors import unknown_name
from sdpa_check.records import Prediction
from sdpa_check.theory.charfun import BOUNDED
from sdpa_check.theory.moments import (
    component_variance,
    correlation_eigenvalues,
    dependence,
    dot_mean,
    dot_variance,
    within_row_variance,
)
from sdpa_check.theory.quadrature import chi_square_rule, quadratic_form_rule
from sdpa_check.theory.row_law import NormalRows, SphereRows
from sdpa_check.theory.squash import tanh_mean_square, tanh_row_variance
from sdpa_check.theory.steps import arguments
from sdpa_check.theory.vectors import Drawn, Normalised, Projected, Unknown, Vectors

if TYPE_CHECKING:
    from sdpa_check.records import Component, Design, PredictionKind, Step
    from sdpa_check.theory.row_law import Rows

MEASURED_ONLY = "measured only"
"""How the source of every prediction of kind ``none`` begins."""

_WIDEST = 1000.0
"""Components wider than this are not integrated under a tanh."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What is known of the scores of a row before any step on the logits.

    Attributes:
        mean: over everything that is drawn.
        variance: likewise.
        within: the variance among the keys of one query, averaged over queries.
        rows: the law of a row given its query, or None.
        kind: how good `rows` is, ``exact``, ``limit`` or ``none``.
        source: what `rows` rests on, or why there is none.
        law: a design of whose dot product the scores have the symmetric, continuous law.
    """

    mean: Prediction
    variance: Prediction
    within: Prediction
    rows: Rows | None
    kind: PredictionKind
    source: str
    law: Design | None = None


def absent(reason: str) -> Prediction:
    """No prediction, and why."""
    return Prediction(value=None, kind="none", source=f"{MEASURED_ONLY}: {reason}")


def exact(value: float, formula: str) -> Prediction:
    """An exact prediction and its formula."""
    return Prediction(value=value, kind="exact", source=f"theory: {formula}")


def limit(value: float, formula: str) -> Prediction:
    """A prediction for a limit, its formula and the limit."""
    return Prediction(value=value, kind="limit", source=f"theory: {formula}")


def nothing(reason: str) -> Scores:
    """Scores of which theory knows nothing, and why."""
    none = absent(reason)
    return Scores(none, none, none, None, "none", none.source)


def scores(vectors: Vectors, step: Step | None) -> Scores:
    """The scores of vectors: their dot product, or additive attention.

    Args:
        vectors: the state after the last step on q and k.
        step: ``additive[:inv|unit]``, or ``dot`` or None for the dot product.

    Raises:
        InputError: for arguments that cannot be used.
    """
    if step is not None and step.name == "additive":
        return _additive(vectors, step)
    if isinstance(vectors, Drawn):
        return _drawn(vectors)
    if isinstance(vectors, Projected):
        return _projected(vectors)
    if isinstance(vectors, Normalised):
        return _normalised(vectors)
    return nothing(vectors.reason)


def _drawn(vectors: Drawn) -> Scores:
    design = vectors.design
    found = (dot_mean(design), dot_variance(design), within_row_variance(design))
    mean, variance, within = (absent(p.source) if p.kind == "none" else p for p in found)
    rows, kind, source = _drawn_rows(design)
    names = {design.query.distribution, design.key.distribution}
    symmetric = dependence(design)[0] == "none" and not (design.query.mean or design.key.mean)
    kept = names == {"gaussian"} or not vectors.rotated
    law = design if symmetric and kept and not names <= set(BOUNDED) else None
    return Scores(mean, variance, within, rows, kind, source, law)


def _drawn_rows(design: Design) -> tuple[NormalRows | None, PredictionKind, str]:
    """Given q the scores are iid N(·, qᵀΣ_k q) for Gaussian keys; else a limit of that variance."""
    q, k = design.query, design.key
    vq, vk = component_variance(q), component_variance(k)
    if not (isfinite(vq) and isfinite(vk)):
        return None, "none", f"{MEASURED_ONLY}: a component has no variance"
    if q.mean:
        return None, "none", f"{MEASURED_ONLY}: rows of queries with a mean other than 0"
    kind, rho = dependence(design)
    if kind in {"ar1", "equi"}:
        eigenvalues, counts = correlation_eigenvalues(design)
        squares, weights = quadratic_form_rule(np.repeat(eigenvalues**2, counts.astype(int)))
    else:
        squares, weights = chi_square_rule(design.dk)
    own = 1 - rho**2 if kind == "qk" else 1.0
    shifts = None if k.mean else np.zeros_like(squares)
    if kind == "qk" and shifts is not None:
        shifts = rho * sqrt(vq * vk) * squares
    rows = NormalRows(np.sqrt(own * vq * vk * squares), weights, shifts)
    if {q.distribution, k.distribution} == {"gaussian"}:
        return rows, "exact", "theory: given q the logits of a row are iid normal; mixed over ‖q‖"
    return rows, "limit", "Gaussian rows of the same variance, the limit for many components"


def _projected(vectors: Projected) -> Scores:
    """W is drawn anew for every block, so that averages are over W too."""
    d, product = vectors.dk, (vectors.sigma_q * vectors.sigma_k) ** 2
    own = 1 - vectors.shared
    formula = "d σ_q² σ_k²"
    mean = exact(0.0, "E(q·k) = 0 over W_q and W_k")
    variance = exact(d * product, f"Var(q·k) = {formula} over W, σ² = D·Var(W_ab)")
    if vectors.shared:
        mean = exact(0.0, "E(q·k) = 0 over W_q and W_k; for one W it is (W_q E x)·(W_k E y), not 0")
        formula += " (1 − ‖E y‖²/D)"
    within = exact(d * product * own, f"E Var(q·k | q) = {formula} over W, σ² = D·Var(W_ab)")
    squares, weights = chi_square_rule(d)
    shifts = None if vectors.shared else np.zeros_like(squares)
    rows = NormalRows(np.sqrt(product * own * squares), weights, shifts)
    source = "Gaussian q and k of the same variance, the limit for a large width"
    return Scores(mean, variance, within, rows, "limit", source)


def _normalised(vectors: Normalised) -> Scores:
    formula = "r_q² r_k²/d"
    if vectors.centred:
        formula = "r_q² r_k²/(d−1)"
    if vectors.cosine_square != 1:
        formula = "r_q² r_k² (d−2 + mean of (1ᵀR1/d)²)/(d−1)²"
    variance = exact(vectors.variance, f"Var(q·k) = {formula}, r the lengths after the norm")
    within = replace(variance, source=variance.source.replace("Var(q·k)", "E Var(q·k | q)"))
    mean = exact(0.0, "E(q·k) = 0 after a norm")
    if vectors.uniform:
        sphere = SphereRows(sqrt(vectors.variance * vectors.dimension), vectors.dimension)
        source = "theory: given q the logits are iid, r_q r_k cos θ of a uniform direction"
        if vectors.cosine_square == 1:
            return Scores(mean, variance, within, sphere, "exact", source)
        source = "an unrotated row of the same variance, the limit for many components"
        return Scores(mean, variance, within, sphere, "limit", source)
    if not vectors.normal_limit:
        source = f"{MEASURED_ONLY}: a few large components dominate the norm"
        return Scores(mean, variance, within, None, "none", source)
    rows = one_normal(vectors.variance)
    source = "a normal row of the same variance, the limit for many components"
    return Scores(mean, variance, within, rows, "limit", source)


def one_normal(variance: float, *, centred: bool = True) -> NormalRows:
    """Rows of iid N(·, variance) logits, with mean 0 or with one that varies from row to row."""
    return NormalRows(np.array([sqrt(variance)]), np.ones(1), np.zeros(1) if centred else None)


def _additive(vectors: Vectors, step: Step) -> Scores:
    """Scores Σ_a v_a tanh(q_a + k_a), v_a of mean 0 and variance 1/d (``inv``) or 1 (``unit``).

    Var(s) = d Var(v) E[tanh²(q_a + k_a)]: products of different a vanish on average over v, so the
    components may be correlated. Among keys only k varies: d Var(v) E_q[Var_k tanh(q_a + k_a)].
    """
    (kind,) = arguments(step, 0, 1) or ("inv",)
    if kind not in {"inv", "unit"}:
        raise unknown_name("pipeline: additive", kind, ("inv", "unit"))
    found = _additive_sigmas(vectors)
    if isinstance(found, str):
        return nothing(found)
    sigma_q, sigma_k, d, alike = found
    size = 1.0 if kind == "inv" else float(d)
    make, tail = (exact, "") if isinstance(vectors, Drawn) else (limit, ", width → ∞")
    law = "d Var(v) E tanh²(q_a + k_a)"
    variance = make(size * tanh_mean_square(sqrt(sigma_q**2 + sigma_k**2)), f"Var = {law}{tail}")
    inside = size * tanh_row_variance(sigma_q, sigma_k)
    within = make(inside, f"E Var(·|q) = d Var(v) E Var_k tanh(q_a + k_a){tail}")
    mean = exact(0.0, "E = 0 over v")
    if not alike:
        inputs = "additive attention on inputs with a common direction"
        return replace(nothing(inputs), mean=mean, variance=variance)
    rows = one_normal(inside, centred=False)
    source = "a normal row of the same variance, the limit for many components"
    return Scores(mean, variance, within, rows, "limit", source)


def _additive_sigmas(vectors: Vectors) -> tuple[float, float, int, bool] | str:
    """σ_q, σ_k, d and whether inputs have mean 0, for (nearly) Gaussian components; or why not."""
    if isinstance(vectors, Unknown):
        return vectors.reason
    if isinstance(vectors, Normalised):
        return "additive attention after QK-norm"
    if isinstance(vectors, Projected):
        sigmas = vectors.sigma_q, vectors.sigma_k
        found = (*sigmas, vectors.dk, not vectors.shared)
    else:
        q, k = vectors.design.query, vectors.design.key
        if not (_plain(q) and _plain(k)) or dependence(vectors.design)[0] == "qk":
            return "additive attention needs Gaussian q and k of mean 0, independent of each other"
        sigmas = q.sigma, k.sigma
        found = (*sigmas, vectors.design.dk, True)
    if max(sigmas) > _WIDEST:
        return f"components wider than {_WIDEST:g} under a tanh"
    return found


def _plain(component: Component) -> bool:
    return component.distribution == "gaussian" and component.mean == 0
