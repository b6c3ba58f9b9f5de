"""Softmax, its entropy, and the norms of its Jacobian diag(p) − ppᵀ, without forming the Jacobian.

The naive closed forms cancel: at d = 1024 without a scale they are wrong by 100 % in float64. Here
all figures come from sums that do not cancel (see `rowsums`), whether a row is nearly one-hot or
nearly uniform, for any number of multipliers at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check import rowsums
from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from sdpa_check.rowsums import Floats, RowSums, Scores

_ROWS = 2**13  # rows whose closed forms are evaluated together, near the core


def softmax(x: ArrayLike) -> Floats:
    """p_i = exp(x_i) / Σ_j exp(x_j) along the last axis, in float64.

    Computed as softmax(x − max x), which is the same in real arithmetic and cannot overflow. An
    entry −∞ is a masked key and gets weight 0.

    Args:
        x: logits, shape (..., m).

    Raises:
        InputError: an entry is NaN or +∞, or a row has no finite entry.
    """
    logits = np.asarray(x, dtype=np.float64)
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise InputError("x", logits.shape, "at least one logit per row")
    top = logits.max(axis=-1, keepdims=True)
    if not np.isfinite(top).all():
        raise InputError(
            "x", float(top[~np.isfinite(top)][0]), "a finite largest logit in every row"
        )
    e = np.exp(logits - top)
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def entropy(p: ArrayLike) -> Floats:
    """H = −Σ p_i ln p_i along the last axis, in nats, with 0·ln 0 = 0.

    Raises:
        InputError: an entry is negative or NaN.
    """
    weights = np.asarray(p, dtype=np.float64)
    if not (weights >= 0.0).all():
        raise InputError("p", float(weights[~(weights >= 0.0)][0]), "weights of at least 0")
    logs = np.log(weights, where=weights > 0.0, out=np.zeros_like(weights))
    return np.asarray(-np.sum(weights * logs, axis=-1) + 0.0)


def jacobian(p: ArrayLike) -> Floats:
    """J = diag(p) − p pᵀ, the derivative of softmax with respect to its logits, shape (m, m).

    For single vectors; `row_statistics` has its norms without the m² entries.

    Raises:
        InputError: p is not a vector.
    """
    weights = np.asarray(p, dtype=np.float64)
    if weights.ndim != 1:
        raise InputError("p", weights.shape, "a single vector, shape (m,)")
    return np.diag(weights) - np.outer(weights, weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStatistics:
    """Statistics of p = softmax(x) and J = diag(p) − ppᵀ, one float64 per row, shape (rows,).

    m is the number of keys that a row sees, masked ones not counted.

    Attributes:
        entropy: H = −Σ p ln p, nats; accurate when tiny.
        entropy_deficit: ln m − H, nats; accurate when the row is nearly uniform.
        max_weight: p₁, the largest weight.
        one_minus_max: 1 − p₁, accurate when tiny.
        sum_squares: Σp².
        sum_squares_excess: mΣp² − 1, accurate when the row is nearly uniform.
        effective_keys: 1/Σp².
        trace: 1 − Σp² = tr J, the nuclear norm; accurate when tiny.
        frobenius: ‖J‖_F, accurate when tiny.
        inf_norm: ‖J‖_∞ = 2p₁(1 − p₁), accurate when tiny.
        spectral: ‖J‖₂, the largest eigenvalue, accurate when tiny; NaN where it was not asked for.
    """

    entropy: Floats
    entropy_deficit: Floats
    max_weight: Floats
    one_minus_max: Floats
    sum_squares: Floats
    sum_squares_excess: Floats
    effective_keys: Floats
    trace: Floats
    frobenius: Floats
    inf_norm: Floats
    spectral: Floats


_NAMES = tuple(field.name for field in fields(RowStatistics))


def row_statistics(
    scores: Scores, multipliers: Sequence[float], *, spectral: bool | Sequence[bool] = True
) -> tuple[RowStatistics, ...]:
    """Statistics of softmax(c·scores) for every row and every multiplier c.

    What depends on the raw scores alone is computed once for all multipliers of one sign. float32
    scores are worked on in float32, the sums of a row finished in float64; any other type in
    float64. Nothing underflows in a saturated row, so float32 is sound at every logit scale: with
    eps the rounding unit of the scores and x the gap between the two largest logits, relative
    errors are about eps·(a few + x), beside what rounding did to the scores themselves. The two
    differences from the uniform row, `entropy_deficit` and `sum_squares_excess`, keep that relative
    accuracy where all logits lie within ¼ (float32) or ½ (float64) of their mean, and have absolute
    errors of a few eps elsewhere.

    Scratch memory is a few MiB, or five times a row of more than 2¹⁷ keys. Safe to call from
    several threads at once.

    Args:
        scores: raw scores, shape (rows, m); not modified. −∞ marks a masked key, whatever the sign
            of the multiplier.
        multipliers: the c of each result: any sign; zero gives the uniform row.
        spectral: whether to compute the spectral norms, which cost about as much as all the rest;
            for all multipliers or for each.

    Returns:
        One `RowStatistics` per multiplier, in the same order.

    Raises:
        InputError: scores are not two-dimensional, hold NaN or +∞, differ by more than their type
            can hold, or mask a whole row; a multiplier is not finite in the type of the scores.
    """
    raw = np.asarray(scores)
    raw = raw if raw.dtype == np.float32 else raw.astype(np.float64, copy=False)
    if raw.ndim != 2 or raw.shape[1] == 0:
        raise InputError("scores", raw.shape, "shape (rows, m) with at least one key")
    constants = [float(c) for c in multipliers]
    for c in constants:
        if not abs(c) <= float(np.finfo(raw.dtype).max):
            raise InputError("multipliers", c, f"a number that is finite in {raw.dtype}")
    roots = [spectral] * len(constants) if isinstance(spectral, bool) else list(spectral)
    if len(roots) != len(constants):
        raise InputError("spectral", roots, f"one bool, or {len(constants)}: one per multiplier")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        seen = _visible_keys(raw)
        if (seen < raw.shape[1]).any():
            return _masked(raw, seen, constants, roots)
        return _unmasked(raw, constants, roots)


def _visible_keys(raw: Scores) -> NDArray[np.intp]:
    """How many keys of each row are not masked; complains about what is neither finite nor −∞."""
    seen = np.full(len(raw), raw.shape[1])
    ones = np.ones(raw.shape[1], raw.dtype)
    for part in _blocks(raw):
        block = raw[part]
        if np.isfinite(block @ ones).all():
            continue
        wrong = ~(block < np.inf)
        if wrong.any():
            raise InputError("scores", float(block[wrong][0]), "finite numbers, -inf where masked")
        seen[part] = np.count_nonzero(block > -np.inf, axis=1)
    if not seen.all():
        row = int(seen.argmin())
        raise InputError("scores", f"only masked keys in row {row}", "a key left in every row")
    return seen


def _masked(
    raw: Scores, seen: NDArray[np.intp], constants: list[float], roots: list[bool]
) -> tuple[RowStatistics, ...]:
    """Rows that see equally many keys are taken together, without what is masked."""
    results = tuple(_blank(len(raw)) for _ in constants)
    for count in np.unique(seen):
        rows = np.flatnonzero(seen == count)
        height = max(1, rowsums.BLOCK // raw.shape[1])
        for start in range(0, len(rows), height):
            index = rows[start : start + height]
            block = raw[index]
            compact = block[block > -np.inf].reshape(len(index), count)
            parts = _unmasked(compact, constants, roots)
            for result, part in zip(results, parts, strict=True):
                _place(result, index, part)
    return results


def _unmasked(raw: Scores, constants: list[float], roots: list[bool]) -> tuple[RowStatistics, ...]:
    results = tuple(_blank(len(raw)) for _ in constants)
    for start in range(0, len(raw), _ROWS):
        part = slice(start, start + _ROWS)
        if raw.shape[1] == 1:
            parts = [_one_key(len(raw[part]), spectral=root) for root in roots]
        else:
            sums = rowsums.row_sums(raw[part], constants, roots)
            parts = [_statistics(s) for s in sums]
        for result, statistics in zip(results, parts, strict=True):
            _place(result, part, statistics)
    return results


def _statistics(sums: RowSums) -> RowStatistics:
    if sums.flat.all():
        return _flat(sums)
    concentrated = _concentrated(sums)
    if not sums.flat.any():
        return concentrated
    flat = _flat(sums)
    chosen = {
        name: np.where(sums.flat, getattr(flat, name), getattr(concentrated, name))
        for name in _NAMES
    }
    return RowStatistics(**chosen)


def _concentrated(s: RowSums) -> RowStatistics:
    """The closed forms in f = p/p_(2), which is summed over all keys but the largest.

    With h = p_(2)/p_(1), R = hΣf and Z = 1 + R: p_(1) = 1/Z, 1 − p_(1) = R/Z,
    H = ln Z − hΣf(x − x_(1))/Z, 1 − Σp² = (2R + h²((Σf)² − Σf²))/Z² and, with a = Σf²/Z²,
    ‖J‖_F² = h²·[(p_(1)Σf/Z)² + a − 2hΣf³/Z³ + 2p_(1)²a + h²a²]. Nothing cancels; h is outside the
    root so that its square cannot underflow.
    """
    sum_1, sum_2, sum_3, sum_log = s.second
    gap = np.minimum(s.gap, 800.0)  # exp(−800) is 0, and 0·∞ would not be
    h = np.exp(-gap)
    r = h * sum_1
    z = 1.0 + r
    top = 1.0 / z
    rest = r * top
    below_top = h * (sum_log - gap * sum_1) * top  # Σ p (x − x_(1))
    a = sum_2 * top**2
    ha = h * a
    square = (top**2 * sum_1) ** 2 + a - 2.0 * h * sum_3 * top**3 + 2.0 * top**2 * a + ha**2
    squares = top**2 + h * ha
    return RowStatistics(
        entropy=np.log1p(r) - below_top,
        entropy_deficit=below_top - np.log(z / s.keys),
        max_weight=top,
        one_minus_max=rest,
        sum_squares=squares,
        sum_squares_excess=s.keys * squares - 1.0,
        effective_keys=1.0 / squares,
        trace=(2.0 * r + h**2 * (sum_1**2 - sum_2)) * top**2,
        frobenius=h * np.sqrt(square),
        inf_norm=2.0 * top * rest,
        spectral=h * top * (1.0 + s.root),
    )


def _flat(s: RowSums) -> RowStatistics:
    """The closed forms in u = exp(x − x̄) − 1, for nearly uniform rows.

    With ū the mean of u: ln m − H = Σu(x − x̄)/(m(1 + ū)) − ln(1 + ū) and
    mΣp² − 1 = (Σu²/m − ū²)/(1 + ū)². All terms are of second order in x, as the results are.
    """
    keys = s.keys
    sum_rest, sum_2, sum_3, sum_ux = s.mean
    u = sum_rest / keys  # Σ(x − x̄) is rounding error: nothing is gained by adding it
    w = 1.0 + u
    deficit = sum_ux / (keys * w) - np.log1p(u)
    excess = (sum_2 / keys - u**2) / w**2
    squares = (1.0 + excess) / keys
    cubes = (keys + 3.0 * (sum_rest + sum_2) + sum_3) / (keys * w) ** 3
    top = np.exp(s.rise) / (keys * w)
    rest = 1.0 - top
    return RowStatistics(
        entropy=math.log(keys) - deficit,
        entropy_deficit=deficit,
        max_weight=top,
        one_minus_max=rest,
        sum_squares=squares,
        sum_squares_excess=excess,
        effective_keys=1.0 / squares,
        trace=1.0 - squares,
        frobenius=np.sqrt(squares - 2.0 * cubes + squares**2),
        inf_norm=2.0 * top * rest,
        spectral=top * np.exp(-s.gap) * (1.0 + s.root),
    )


def _one_key(rows: int, *, spectral: bool) -> RowStatistics:
    """A row that sees a single key: p = 1, J = 0."""
    one, zero = np.ones(rows), np.zeros(rows)
    values = dict.fromkeys(_NAMES, zero)
    values |= {"max_weight": one, "sum_squares": one, "effective_keys": one}
    return RowStatistics(**values | {"spectral": zero if spectral else np.full(rows, np.nan)})


def _blocks(raw: Scores) -> Iterator[slice]:
    height = max(1, rowsums.BLOCK // raw.shape[1])
    return (slice(start, start + height) for start in range(0, len(raw), height))


def _blank(rows: int) -> RowStatistics:
    return RowStatistics(**{name: np.empty(rows) for name in _NAMES})


def _place(target: RowStatistics, rows: slice | NDArray[np.intp], part: RowStatistics) -> None:
    for name in _NAMES:
        getattr(target, name)[rows] = getattr(part, name)
