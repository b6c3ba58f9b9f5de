"""Two workers against one, counted only where two threads really had two cores."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks import dots, rows
from benchmarks.figures import Figure
from benchmarks.timing import quartiles, seconds, spin
from sdpa_check.engine import available_cores

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.sizes import Sizes

CALIBRATED = 1.8
"""A round counts if the spin reads at least this before and after it."""

TARGET = 1.5


def workers(sizes: Sizes) -> list[Figure]:
    """Ratio of the times of one and of two workers on the same blocks."""
    work = rows.work_of(sizes.worker_keys)
    count = sizes.worker_blocks
    tasks: list[tuple[str, Callable[[int], object]]] = [
        (f"variance, d={dk}, {count} blocks", partial(_variance, dk, count))
        for dk in (sizes.dks[0], sizes.dks[-1])
    ]
    few = max(1, count // 8)
    title = f"{few} blocks of {work.size} rows of m={work.keys}"
    tasks.append((title, lambda jobs: rows.entropies(work, few, jobs)))
    return [_figure(title, task, sizes) for title, task in tasks]


def _variance(dk: int, blocks: int, jobs: int) -> object:
    return dots.measured("dot.variance", dk, blocks, jobs=jobs)


def _figure(title: str, task: Callable[[int], object], sizes: Sizes) -> Figure:
    blank = Figure(group="workers", title=title, against="one worker", target=TARGET)
    if available_cores() < 2:
        return replace(blank, note="not run: this process may use one core only")
    task(2)
    readings, rounds = [spin(sizes.spins)], []
    for _ in range(sizes.rounds):
        rounds.append((seconds(lambda: task(2)), seconds(lambda: task(1))))
        readings.append(spin(sizes.spins))
    around = zip(rounds, pairwise(readings), strict=True)
    good = [times for times, both in around if min(both) >= CALIBRATED]
    note = (
        f"calibration {min(readings):.2f} to {max(readings):.2f}; {len(good)} of {len(rounds)} "
        f"rounds with at least {CALIBRATED} before and after count"
    )
    if not good:
        return replace(blank, note=f"not counted: {note}")
    lower, median, upper = quartiles([one / two for two, one in good])
    return replace(
        blank,
        lower=lower,
        median=median,
        upper=upper,
        tool_seconds=statistics.median(two for two, _ in good),
        other_seconds=statistics.median(one for _, one in good),
        rounds=len(good),
        note=note,
    )
