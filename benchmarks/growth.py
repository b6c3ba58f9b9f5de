"""Cost against size: seconds against d, m and the number of dot products n."""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

import sdpa_check
from benchmarks import baselines, dots, rows
from benchmarks.figures import Curve
from benchmarks.timing import interleaved
from sdpa_check import engine, power

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.sizes import Sizes

    Timed = tuple[str, Callable[[], object], float]
    """A label, a call, and how many calls give the result."""

ROUNDS = 3
MEASURED_BLOCKS = 8
LEAST_ROWS = 8
"""Rows that share their keys, at least: as many as a block of the largest rows holds."""

MOST_PAIRS = 1 << 20
"""No more independent pairs than this are drawn for one point; beyond, time is scaled."""


def growth(sizes: Sizes) -> list[Curve]:
    """All curves."""
    return [*_against_d(sizes), *_against_m(sizes), *_against_n(sizes)]


def _curves(
    plot: Literal["d", "m", "n"], points: Iterable[tuple[float, list[Timed]]]
) -> list[Curve]:
    """Median times at every size, one curve per label."""
    found: dict[str, list[tuple[float, float]]] = {}
    for x, timed in points:
        times = interleaved([call for _, call, _ in timed], ROUNDS)
        for (label, _, factor), taken in zip(timed, times, strict=True):
            found.setdefault(label, []).append((x, factor * statistics.median(taken)))
    return [
        Curve(plot=plot, label=label, x=tuple(x for x, _ in at), seconds=tuple(t for _, t in at))
        for label, at in found.items()
    ]


def _against_d(sizes: Sizes) -> list[Curve]:
    """Time to a variance with a standard error of 0.1 %, against d."""

    def at(dk: int) -> list[Timed]:
        work = dots.work_of("dot.variance", dk)
        blocks = dots.block_variance(work) / sizes.relative**2
        pairs = dots.pair_variance(dk) / sizes.relative**2
        some = min(MEASURED_BLOCKS, sizes.least_blocks)
        few = max(1, sizes.components // 4 // dk)
        return [
            (
                "sdpa-check",
                partial(dots.measured, "dot.variance", dk, some),
                blocks / some,
            ),
            (
                "NumPy in chunks",
                partial(baselines.variance, baselines.make_generator(0), dk, few),
                pairs / few,
            ),
        ]

    return _curves("d", ((dk, at(dk)) for dk in sizes.curve_dks))


def _against_m(sizes: Sizes) -> list[Curve]:
    """Time per row of m keys under three scalings, against m."""

    def at(keys: int) -> list[Timed]:
        count = max(LEAST_ROWS, sizes.logits // keys)
        q, k = rows.vectors(count, 1), rows.vectors(keys, 2)
        single = q.astype(np.float32), k.astype(np.float32)
        tool = partial(rows.statistics_of, *single, rows.MULTIPLIERS)
        timed: list[Timed] = [
            ("sdpa-check, closed forms", tool, 1 / count),
            ("sdpa-check, ‖J‖₂ too", partial(tool, spectral=True), 1 / count),
            ("naive closed forms", partial(rows.naive, q, k, rows.MULTIPLIERS), 1 / count),
            ("q kᵀ and exp alone", partial(rows.product_and_exp, *single), 1 / count),
        ]
        if keys <= sizes.explicit_keys:
            few = max(1, min(count, 64, sizes.logits // keys**2))

            def explicit() -> None:
                for c in rows.MULTIPLIERS:
                    baselines.explicit_frobenius(q[:few] @ k.T, c)

            timed.append(("explicit J, Frobenius", explicit, 1 / few))
        return timed

    return _curves("m", ((keys, at(keys)) for keys in sizes.curve_keys))


def _against_n(sizes: Sizes) -> list[Curve]:
    """Time to the error that n independent pairs have, against n, at the first d_k."""
    dk = sizes.dks[0]
    work = dots.work_of("dot.variance", dk)

    def at(pairs: int) -> list[Timed]:
        drawn = min(pairs, MOST_PAIRS)
        alone = partial(baselines.variance, baselines.make_generator(0), dk, drawn)
        timed: list[Timed] = [("NumPy in chunks", alone, pairs / drawn)]
        blocks = round(dots.block_variance(work) * pairs / dots.pair_variance(dk))
        if blocks >= 2:
            own = partial(dots.measured, "dot.variance", dk, engine.whole(blocks))
            timed.append(("sdpa-check, sampling and estimate", own, 1.0))
        if blocks >= power.MIN_BLOCKS:
            samples = blocks * work.size
            call = partial(sdpa_check.variance, dk=dk, samples=samples, jobs=1)
            timed.append(("sdpa-check, whole call", call, 1.0))
        return timed

    return _curves("n", ((pairs, at(pairs)) for pairs in sizes.curve_pairs))
