"""Rounds in which both sides take turns, quartiles of their ratios, and the two-thread spin."""

from __future__ import annotations

import hashlib
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SPIN_BYTES = 1 << 20
"""One step of the spin: a hash over this many bytes, for which Python gives up its lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Something that yields the same numbers otherwise.

    Attributes:
        name: what it is.
        call: one run of it, possibly of a part of the work.
        factor: how many of these runs give what one run of the tool gives. Costs of independent
            pairs and rows are proportional to their number, so a part may stand for the whole.
        target: the ratio of times that is aimed at, if any.
        missing: why it cannot be run here; empty if it can.
        note: what a reader must know.
    """

    name: str
    call: Callable[[], object]
    factor: float = 1.0
    target: float | None = None
    missing: str = ""
    note: str = ""


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interleaved(calls: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Wall times of every call, one list per call, over rounds in which all take turns.

    Every other round runs backwards, so that a machine that slows down or speeds up meanwhile
    favours nobody. One round before the first warms caches and allocators and is not counted.
    """
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    for index in range(rounds):
        order = range(len(calls)) if index % 2 == 0 else range(len(calls) - 1, -1, -1)
        for i in order:
            times[i].append(seconds(calls[i]))
    return times


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median and third quartile, interpolated."""
    lower, median, upper = np.percentile(values, (25, 50, 75)).tolist()
    return lower, median, upper


def compare(
    group: str, title: str, tool: Callable[[], object], rivals: Sequence[Rival], rounds: int
) -> list[Figure]:
    """How many times longer each rival takes than the tool, by the ratio within each round."""
    present = [rival for rival in rivals if not rival.missing]
    own, *others = interleaved([tool, *(rival.call for rival in present)], rounds)
    times = {rival.name: other for rival, other in zip(present, others, strict=True)}
    found = []
    for rival in rivals:
        blank = Figure(group=group, title=title, against=rival.name, target=rival.target)
        if rival.missing:
            found.append(replace(blank, note=f"not run: {rival.missing}"))
            continue
        scaled = [rival.factor * each for each in times[rival.name]]
        lower, median, upper = quartiles([b / a for a, b in zip(own, scaled, strict=True)])
        found.append(
            replace(
                blank,
                lower=lower,
                median=median,
                upper=upper,
                tool_seconds=statistics.median(own),
                other_seconds=statistics.median(scaled),
                rounds=rounds,
                note=rival.note,
            )
        )
    return found


def spin(steps: int) -> float:
    """How much faster two threads do two spins than one thread does: 2 where both have a core.

    Hashing keeps nothing but a core busy: neither memory nor Python's lock is shared.
    """
    data = bytes(SPIN_BYTES)

    def work(_: int = 0) -> None:
        for _ in range(steps):
            hashlib.sha256(data).digest()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))  # both threads exist before the clock runs
        alone = seconds(work)
        together = seconds(lambda: list(pool.map(work, range(2))))
    ended = time.perf_counter() + 1
    while threads() > 1 and time.perf_counter() < ended:
        time.sleep(0.001)  # joined, they take a moment to end; until then no process is forked
    return 2 * alone / together


def threads() -> int:
    """The threads of this process, as the system counts them; 1 where it does not tell."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else 1
