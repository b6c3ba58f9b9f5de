"""The account of a pipeline: what its steps make of the logits (theory, section 7).

Exact wherever the law of the logits is known: for multiplications, and for soft caps as integrals
over the exact law of what they cap. The sampling code has no part in it: the steps are read here a
second time, by `steps`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import sqrt
from typing import TYPE_CHECKING

from sdpa_check.errors import InputError
from sdpa_check.records import Prediction
from sdpa_check.theory.arguments import check_count
from sdpa_check.theory.gradients import gradient_query_rms
from sdpa_check.theory.row_law import SphereRows, averages
from sdpa_check.theory.row_law import squashed_moments as moments_of_rows
from sdpa_check.theory.scores import Scores, absent, exact, nothing, one_normal, scores
from sdpa_check.theory.squash import Squash, squashed_mean_square
from sdpa_check.theory.steps import Stages, arguments, logit_multiplier, number, row_length, stages
from sdpa_check.theory.vectors import Drawn, Vectors, apply, source

if TYPE_CHECKING:
    from sdpa_check.records import Design, Step
    from sdpa_check.theory.row_law import Rows


_VARYING = "a soft cap on rows whose mean varies"
_FAR_BELOW = "a soft cap far below the scale of what it caps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What theory says about the logits x that a pipeline makes; entropies in nats.

    "Over everything" is over queries, keys, positions in the row, and the weights W or v that a
    step draws. A prediction without a value says so in a source that begins with "measured only".

    Attributes:
        mean: E x over everything.
        variance: Var x over everything.
        std: its square root.
        within_variance: what the softmax sees: Var(x | q) for keys drawn anew at the same query
            (and the same W or v), averaged over those, plus the sample variance over the m
            positions of a bias that depends on the position. That is E Σ_j (x_j − x̄)²/(m−1), the
            expected sample variance of a row, for every m ≥ 2; constants of a row do not enter.
        entropy: E[H] of p = softmax(x).
        sum_squares: E[Σp²].
        frobenius_rms: √E‖J‖_F², J = diag(p) − ppᵀ.
        gradient_query_rms: √E‖∂L/∂q‖² for g = ∂L/∂p ~ N(0, I), q as drawn and the keys fixed.
    """

    mean: Prediction
    variance: Prediction
    std: Prediction
    within_variance: Prediction
    entropy: Prediction
    sum_squares: Prediction
    frobenius_rms: Prediction
    gradient_query_rms: Prediction

    @property
    def gradient_logits_rms(self) -> Prediction:
        """√E‖∂L/∂x‖² for g = ∂L/∂p ~ N(0, I), which is √E‖J‖_F² as ∂L/∂x = J g."""
        found = self.frobenius_rms
        if found.value is None:
            return found
        return replace(found, source=f"E‖∂L/∂x‖² = E‖J‖_F²; {found.source}")


@dataclass(frozen=True, slots=True)
class _Chain:
    """The steps on the logits: a chain of factors and soft caps, then −slope·(m−1−j).

    `obstacle` is empty, or says what has no closed form.
    """

    squash: Squash
    slope: float = 0.0
    obstacle: str = ""


def account(steps: tuple[Step, ...], design: Design, d_model: int | None = None) -> Account:
    """The predicted effect of a pipeline on the logits of a row.

    Args:
        steps: the pipeline, in the order source, vectors, score, logits.
        design: laws of q and k, d_k, and the number m of keys where rows are asked for.
        d_model: width of the model: for the rule ``sqrt_dmodel``, and the width of projections.

    Returns:
        Predictions of the kinds ``exact``, ``limit`` (of a large number of components or width, or
        without rounding), ``infinite``, and ``none``.

    Raises:
        InputError: a step that is unknown, out of order or has arguments that cannot be used, or a
            design that lacks what a step needs.
    """
    return _account(steps, design, d_model)


@lru_cache(maxsize=256)
def _account(steps: tuple[Step, ...], design: Design, d_model: int | None) -> Account:
    check_count("dk", design.dk, 1)
    if design.keys is not None:
        check_count("keys", design.keys, 1)
    plan = stages(steps)
    vectors = source(plan.source, design, d_model)
    for step in plan.vectors:
        vectors = apply(vectors, step, design, d_model)
    chain = _chain(plan.logits, design, d_model)
    raw = scores(vectors, plan.score) if not chain.obstacle else nothing(chain.obstacle)
    mean, variance, within = _biased(_moments(raw, chain.squash), chain.slope, design.keys)
    entropy, sum_squares, frobenius = _rows(raw, chain, design.keys)
    found = Account(
        mean=mean,
        variance=variance,
        std=_root(variance),
        within_variance=within,
        entropy=entropy,
        sum_squares=sum_squares,
        frobenius_rms=frobenius,
        gradient_query_rms=_gradient(vectors, plan, chain, design),
    )
    return _rounded(found, plan.rounding) if plan.rounding else found


def _chain(steps: tuple[Step, ...], design: Design, d_model: int | None) -> _Chain:
    chain = _Chain(Squash())
    for step in steps:
        factor = logit_multiplier(step, design, d_model)
        if factor is not None:
            chain = replace(chain, squash=chain.squash.times(factor), slope=chain.slope * factor)
        elif step.name == "alibi":
            row_length(step, design)
            slope = chain.slope + number(step, *arguments(step, 1))
            chain = replace(chain, slope=slope)
        elif step.name == "softcap":
            cap = number(step, *arguments(step, 1), above=0.0)
            obstacle = "a soft cap after a bias by position" if chain.slope else ""
            obstacle = chain.obstacle or obstacle
            chain = replace(chain, squash=chain.squash.capped(cap), obstacle=obstacle)
        else:
            chain = replace(chain, obstacle="a transform of the user's own")
    return chain


_Moments = tuple[Prediction, Prediction, Prediction]


def _moments(raw: Scores, squash: Squash) -> _Moments:
    """Mean, variance and variance within a row after the chain."""
    if squash.caps:
        return _capped(raw, squash)
    c = squash.last
    squared = (raw.variance, raw.within)
    variance, within = (_times(p, c**2, "c²", c) for p in squared)
    return _times(raw.mean, c, "c", c), variance, within


def _times(prediction: Prediction, factor: float, name: str, c: float) -> Prediction:
    if prediction.value is None or c == 1:
        return prediction
    text = f"{prediction.source}, times {name}, c = {c:.6g}"
    return replace(prediction, value=prediction.value * factor, source=text)


def _capped(raw: Scores, squash: Squash) -> _Moments:
    """E f, Var f and E Var(f | q) of the capped chain f over the exact law of what it caps."""
    if raw.kind != "exact" and raw.law is not None:
        return _capped_law(raw.law, squash)
    if raw.rows is None or not _known_means(raw.rows):
        none = (
            absent(_VARYING)
            if raw.rows is not None
            else Prediction(value=None, kind="none", source=raw.source)
        )
        return none, none, none
    found = moments_of_rows(raw.rows, squash)
    if found is None:
        none = absent(_FAR_BELOW)
        return none, none, none
    mean, variance, within = (
        Prediction(value=value, kind=raw.kind, source=f"{name} of the soft cap; {raw.source}")
        for name, value in zip(("mean", "variance", "E Var(·|q)"), found, strict=True)
    )
    return mean, variance, within


def _known_means(rows: Rows) -> bool:
    return isinstance(rows, SphereRows) or rows.shifts is not None


def _capped_law(design: Design, squash: Squash) -> _Moments:
    """For independent symmetric components E[f | q] = 0, so that both variances are E f²."""
    from sdpa_check.theory.law import DotLaw

    try:
        value = squashed_mean_square(DotLaw(design), squash)
    except InputError as error:
        none = absent(f"an exact law needs {error.where} {error.want}")
        return none, none, none
    square = exact(value, "E f² = ∫ 4 f f′ P(q·k > z) dz, the exact law of q·k")
    return exact(0.0, "E f = 0 by symmetry"), square, square


def _biased(moments: _Moments, slope: float, keys: int | None) -> _Moments:
    """With −r(m−1−j) on key j: mean − r(m−1)/2, variance + r²(m²−1)/12.

    The variance within a row is the expected sample variance, of divisor m − 1: + r²m(m+1)/12.
    """
    if slope == 0 or keys is None:
        return moments
    shift, spread = -slope * (keys - 1) / 2, slope**2 * (keys**2 - 1) / 12
    sample = slope**2 * keys * (keys + 1) / 12 if keys > 1 else 0.0
    mean, variance, within = moments
    return (
        _plus(mean, shift, "− r(m−1)/2"),
        _plus(variance, spread, "+ r²(m²−1)/12"),
        _plus(within, sample, "+ r²m(m+1)/12"),
    )


def _plus(prediction: Prediction, term: float, name: str) -> Prediction:
    if prediction.value is None:
        return prediction
    text = f"{prediction.source}; {name}"
    return replace(prediction, value=prediction.value + term, source=text)


def _root(variance: Prediction) -> Prediction:
    if variance.value is None:
        return variance
    return replace(variance, value=sqrt(variance.value), source=f"root of: {variance.source}")


def _rows(raw: Scores, chain: _Chain, keys: int | None) -> _Moments:
    """Entropy, Σp² and RMS ‖J‖_F of the rows."""
    rows, squash, kind, text = raw.rows, chain.squash, raw.kind, raw.source
    reason = _without_rows(raw, chain, keys)
    row = None
    if rows is not None and keys is not None and not reason:
        row = averages(rows, squash, keys)
        reason = "" if row else absent(_FAR_BELOW).source
        if row is None and isinstance(rows, SphereRows) and not squash.caps:
            row, kind = averages(one_normal(rows.variance), squash, keys), "limit"
            text = "a normal row of the same variance, the limit for many components"
    if row is None:
        none = Prediction(value=None, kind="none", source=reason)
        return none, none, none
    values = (row.entropy, row.sum_squares, sqrt(row.frobenius_ms))
    text += "; soft-capped" if squash.caps else ""
    first, second, third = (Prediction(value=v, kind=kind, source=text) for v in values)
    return first, second, third


def _without_rows(raw: Scores, chain: _Chain, keys: int | None) -> str:
    """Why there are no row statistics; empty where there are some."""
    if keys is None or keys < 2:
        return absent("a row needs two keys or more").source
    if chain.slope:
        return absent("rows with a bias by position").source
    if raw.rows is None:
        return raw.source
    known = not chain.squash.caps or _known_means(raw.rows)
    return "" if known else absent(_VARYING).source


def _gradient(vectors: Vectors, plan: Stages, chain: _Chain, design: Design) -> Prediction:
    """Of pipelines that multiply only: ∂L/∂q = c K w, with every factor of q, k and logits in c."""
    multiplied = not (chain.squash.caps or chain.slope or chain.obstacle)
    dot = plan.score is None or plan.score.name == "dot"
    if not (isinstance(vectors, Drawn) and multiplied and dot):
        return absent("∂L/∂q through steps that do more than multiply")
    found = gradient_query_rms(vectors.design, chain.squash.last)
    factor = vectors.design.query.sigma / design.query.sigma
    return found if found.value is None else replace(found, value=found.value * factor)


def _rounded(found: Account, kinds: tuple[str, ...]) -> Account:
    """Predictions without the rounding, which is measured: limits at best."""

    def weaker(prediction: Prediction) -> Prediction:
        if prediction.value is None:
            return prediction
        text = f"rounding to {', '.join(kinds)} left out; {prediction.source}"
        return replace(prediction, kind="limit", source=text)

    names = Account.__dataclass_fields__
    return Account(**{name: weaker(getattr(found, name)) for name in names})
