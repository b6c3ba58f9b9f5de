"""Work → blocks → executor → ordered merge. No statistics and no printing happen here."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sdpa_check import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from numpy.typing import NDArray

Sums = dict[str, "NDArray[Any]"]
"""Named additive arrays: what one block contributes. Merging two blocks adds them name by name."""

Span = tuple[int, int]
"""The first block of a task, and the one after its last."""

MAX_REPLICATES = 128
"""Blocks beyond this many are merged in runs of equal length, so memory does not grow with them."""

SPAN = 8
"""The most blocks that one task runs; it bounds the time between two signs of progress."""


class Work(Protocol):
    """One experiment, cut into blocks that are independent and identically distributed."""

    @property
    def experiment(self) -> str:
        """The text that names the experiment; it selects the random streams of its blocks."""

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw and measure one block."""


@dataclass(frozen=True, slots=True)
class Replicates:
    """Merged sums of an experiment: every array has a leading axis of independent replicates.

    A replicate is one block, or a run of `blocks // replicates` consecutive blocks.
    """

    sums: Mapping[str, NDArray[Any]]
    blocks: int

    @property
    def count(self) -> int:
        """The number of independent replicates."""
        return len(next(iter(self.sums.values())))


def whole(blocks: int) -> int:
    """The smallest number of blocks ≥ `blocks` that splits into equal replicates."""
    per_replicate = -(-blocks // MAX_REPLICATES)
    return -(-blocks // per_replicate) * per_replicate


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(
    work: Work,
    *,
    seed: int,
    blocks: int,
    jobs: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int], None] | None = None,
) -> Replicates:
    """Run `blocks` blocks (rounded up to equal replicates) and merge them in block order.

    The result depends on `work`, `seed` and `blocks` only. Tasks go through the standard
    executor interface: threads by default, or any `concurrent.futures.Executor`. At most a few
    tasks per worker are under way at once, so memory is bounded whatever the number of blocks.

    Args:
        work: the experiment; it must be picklable if `executor` leaves the process.
        seed: root seed.
        blocks: how many independent blocks.
        jobs: number of threads; None for the cores present. With `executor` it only bounds the
            tasks under way, to four per job.
        executor: where tasks run instead.
        progress: called with the number of blocks finished since its last call.
    """
    blocks = whole(blocks)
    per_replicate = -(-blocks // MAX_REPLICATES)
    spans = (
        (start, min(start + SPAN, first + per_replicate))
        for first in range(0, blocks, per_replicate)
        for start in range(first, first + per_replicate, SPAN)
    )
    merged: Sums = {}
    ordered = _in_order(work, seed, spans, jobs or available_cores(), executor)
    # Closing cancels what is under way as soon as merging or `progress` raises.
    with single_threaded_blas(), contextlib.closing(ordered) as parts:
        for (start, stop), part in parts:
            _add(merged, part, start // per_replicate, blocks // per_replicate)
            if progress is not None:
                progress(stop - start)
    return Replicates(merged, blocks)


def _add(merged: Sums, part: Sums, replicate: int, replicates: int) -> None:
    for name, value in part.items():
        array = np.asarray(value)
        if name not in merged:
            merged[name] = np.zeros((replicates, *array.shape), array.dtype)
        merged[name][replicate] += array


def _run_span(work: Work, seed: int, start: int, stop: int) -> Sums:
    """Run the blocks start … stop−1 and add them up in that order."""
    total: Sums = {}
    for block in range(start, stop):
        for name, value in work.block(rng.generator(seed, work.experiment, block)).items():
            total[name] = total[name] + value if name in total else np.asarray(value)
    return total


def _in_order(
    work: Work, seed: int, spans: Iterator[Span], jobs: int, executor: Executor | None
) -> Generator[tuple[Span, Sums]]:
    """Every span with its result, in order, with a bounded number under way."""
    if executor is None and jobs == 1:
        yield from ((span, _run_span(work, seed, *span)) for span in spans)
        return
    pool = executor or ThreadPoolExecutor(jobs, thread_name_prefix="sdpa-check")
    under_way = deque(
        (span, pool.submit(_run_span, work, seed, *span)) for span in islice(spans, 4 * jobs)
    )
    try:
        while under_way:
            span, future = under_way.popleft()
            yield span, future.result()
            for later in islice(spans, 1):
                under_way.append((later, pool.submit(_run_span, work, seed, *later)))
    finally:
        for _, future in under_way:
            future.cancel()
        if executor is None:
            pool.shutdown(wait=True, cancel_futures=True)


def single_threaded_blas() -> contextlib.AbstractContextManager[object]:
    """Limit BLAS to one thread: parallelism belongs to the blocks, and one thread is bit-stable.

    The command line sets the limit in the environment before numpy is loaded. A program that uses
    the Python API gets it from threadpoolctl where that is installed (extra ``blas``).
    """
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        return contextlib.nullcontext()
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return contextlib.nullcontext()
    return threadpool_limits(limits=1, user_api="blas")  # type: ignore[no-any-return]
