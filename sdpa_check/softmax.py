"""Softmax, its entropy, and the norms of its Jacobian diag(p) − ppᵀ, without forming the Jacobian.

The naive closed forms cancel: at d = 1024 without a scale they are wrong by 100 % in float64. Here
all figures come from sums that do not cancel (see `rowsums`), whether a row is nearly one-hot or
nearly uniform, for any number of multipliers at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check import closedforms, rowsums
from sdpa_check.errors import InputError
from sdpa_check.rowsums import Want

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from sdpa_check.rowsums import Floats, RowSums, Scores

    _Columns = dict[str, Floats]

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

    m is the number of keys that a row sees, masked ones not counted. NaN is what was not asked for.

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
        spectral: ‖J‖₂, the largest eigenvalue, accurate when tiny.
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


NAMES = tuple(field.name for field in fields(RowStatistics))
"""The names of all row statistics."""

_OF_LOGS = frozenset({"entropy", "entropy_deficit"})
_OF_FIRST_POWERS = _OF_LOGS | {"max_weight", "one_minus_max", "inf_norm"}


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
            for all multipliers or for each. (`chosen_statistics` computes what is named.)

    Returns:
        One `RowStatistics` per multiplier, in the same order.

    Raises:
        InputError: scores are not two-dimensional, hold NaN or +∞, differ by more than their type
            can hold, or mask a whole row; a multiplier is not finite in the type of the scores.
    """
    roots = [spectral] * len(multipliers) if isinstance(spectral, bool) else list(spectral)
    if len(roots) != len(multipliers):
        raise InputError("spectral", roots, f"one bool, or {len(multipliers)}: one per multiplier")
    rows = len(scores) if np.ndim(scores) else 0
    every = dict.fromkeys(NAMES, rows)
    plain = dict.fromkeys([name for name in NAMES if name != "spectral"], rows)
    return chosen_statistics(scores, multipliers, [every if root else plain for root in roots])


def chosen_statistics(
    scores: Scores, multipliers: Sequence[float], wanted: Sequence[Mapping[str, int]]
) -> tuple[RowStatistics, ...]:
    """As `row_statistics`, but only what is wanted: other statistics and other rows are NaN.

    A statistic less may save a pass over the scores, and saves its closed form.

    Args:
        scores: as for `row_statistics`.
        multipliers: as for `row_statistics`.
        wanted: for each multiplier the wanted statistics, and of how many of the first rows.

    Raises:
        InputError: as `row_statistics`.
    """
    raw = np.asarray(scores)
    raw = raw if raw.dtype == np.float32 else raw.astype(np.float64, copy=False)
    if raw.ndim != 2 or raw.shape[1] == 0:
        raise InputError("scores", raw.shape, "shape (rows, m) with at least one key")
    constants = [float(c) for c in multipliers]
    for c in constants:
        if not abs(c) <= float(np.finfo(raw.dtype).max):
            raise InputError("multipliers", c, f"a number that is finite in {raw.dtype}")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        seen = _visible_keys(raw)
        masked = (seen < raw.shape[1]).any()
        found = (
            _masked(raw, seen, constants, wanted) if masked else _unmasked(raw, constants, wanted)
        )
    unknown = np.broadcast_to(np.nan, len(raw))
    return tuple(RowStatistics(**dict.fromkeys(NAMES, unknown) | columns) for columns in found)


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
    raw: Scores, seen: NDArray[np.intp], constants: list[float], wanted: Sequence[Mapping[str, int]]
) -> list[_Columns]:
    """Rows that see equally many keys are taken together, without what is masked."""
    results = _blank(len(raw), wanted)
    for count in np.unique(seen):
        rows = np.flatnonzero(seen == count)
        height = max(1, rowsums.BLOCK // raw.shape[1])
        for start in range(0, len(rows), height):
            index = rows[start : start + height]
            block = raw[index]
            compact = block[block > -np.inf].reshape(len(index), count)
            within = [
                {name: int(np.searchsorted(index, limit)) for name, limit in each.items()}
                for each in wanted
            ]
            found = _unmasked(compact, constants, within)
            for result, columns in zip(results, found, strict=True):
                for name, column in columns.items():
                    result[name][index] = column
    return results


def _unmasked(
    raw: Scores, constants: list[float], wanted: Sequence[Mapping[str, int]]
) -> list[_Columns]:
    results = _blank(len(raw), wanted)
    for start in range(0, len(raw), _ROWS):
        part = raw[start : start + _ROWS]
        within = [
            {name: min(limit - start, len(part)) for name, limit in each.items() if limit > start}
            for each in wanted
        ]
        found = map(_one_key, within) if raw.shape[1] == 1 else _of_part(part, constants, within)
        for result, columns in zip(results, found, strict=True):
            for name, column in columns.items():
                result[name][start : start + len(column)] = column
    return results


def _of_part(
    raw: Scores, constants: list[float], wanted: Sequence[Mapping[str, int]]
) -> Iterator[_Columns]:
    sums = rowsums.row_sums(raw, constants, list(map(_want, wanted)))
    return map(_statistics, sums, wanted)


def _want(wanted: Mapping[str, int]) -> Want:
    """The sums behind these statistics."""
    powers = 1 if _OF_FIRST_POWERS.issuperset(wanted) else 3 if "frobenius" in wanted else 2
    logs = not _OF_LOGS.isdisjoint(wanted)
    return Want(max(wanted.values(), default=0), powers, logs, wanted.get("spectral", 0))


def _statistics(sums: RowSums, wanted: Mapping[str, int]) -> _Columns:
    found: _Columns = {}
    for rows in set(wanted.values()):
        names = [name for name, limit in wanted.items() if limit == rows]
        found |= closedforms.statistics(sums.first(rows), names)
    return found


def _one_key(wanted: Mapping[str, int]) -> _Columns:
    """Rows that see a single key: p = 1, J = 0."""
    ones = {"max_weight", "sum_squares", "effective_keys"}
    return {name: np.full(rows, float(name in ones)) for name, rows in wanted.items()}


def _blocks(raw: Scores) -> Iterator[slice]:
    height = max(1, rowsums.BLOCK // raw.shape[1])
    return (slice(start, start + height) for start in range(0, len(raw), height))


def _blank(rows: int, wanted: Sequence[Mapping[str, int]]) -> list[_Columns]:
    return [{name: np.full(rows, np.nan) for name in each} for each in wanted]
