"""Work → blocks → executor → ordered merge. No statistics and no printing happen here."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from sdpa_check import forked, rng

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

_T = TypeVar("_T")

Sums = dict[str, "NDArray[Any]"]
"""Named additive arrays: what one block contributes. Merging two blocks adds them name by name."""

Span = tuple[int, int]
"""The first block of a task, and the one after its last."""

Draws = Callable[[int], "np.random.Generator"]
"""The generator of each block."""

MAX_REPLICATES = 192
"""Blocks beyond this many are merged in runs of equal length, so memory does not grow with them."""

LEAST_REPLICATES = MAX_REPLICATES // 2
"""Replicates of any run that has at least as many blocks."""

SPAN = 8
"""The most blocks that one task runs; it bounds the time between two signs of progress."""

LONG = 2e8
"""Elementary operations of a run, by its `cost`, that are worth forking for: some 0.1 s."""

Runner = futures.Executor | forked.Pool
"""Where blocks run: a cluster, threads, or processes forked from this one."""

TASK_SPANS = 8
"""The most spans in one task on a cluster; it bounds the results that wait for an earlier one."""

TASK_SECONDS = 0.5
"""A task on a cluster should take about this long, many times what it costs to send it around."""


class Work(Protocol):
    """One experiment, cut into blocks that are independent and identically distributed.

    One that says what it costs, as `cost` in elementary operations of a block, lets processes be
    forked where that pays.
    """

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


@dataclass(frozen=True, slots=True)
class State:
    """How far a run has come, and all that it takes to go on from there.

    Attributes:
        blocks: how many blocks the run has in all, equal replicates.
        merged: how many of them are merged, from the first on.
        sums: as those of `Replicates`, valid up to the last complete replicate.
        begun: the sums so far of the replicate after it.
    """

    blocks: int
    merged: int = 0
    sums: Sums = field(default_factory=dict)
    begun: Sums = field(default_factory=dict)

    @classmethod
    def longer(cls, done: Replicates, blocks: int) -> State:
        """The state of a run of `blocks` blocks whose first ones are `done`, each a replicate.

        Raises:
            ValueError: a replicate of either run is more than a block, or `done` is the longer run.
        """
        if not done.count == done.blocks <= blocks <= MAX_REPLICATES:
            raise ValueError(f"{done.blocks} blocks in {done.count} replicates, then {blocks}")
        sums = {
            name: np.concatenate(
                [each, np.zeros((blocks - done.blocks, *each.shape[1:]), each.dtype)]
            )
            for name, each in done.sums.items()
        }
        return cls(blocks, done.blocks, sums)

    @property
    def count(self) -> int:
        """The number of replicates in all."""
        return self.blocks // _per_replicate(self.blocks)

    @property
    def complete(self) -> int:
        """The number of complete replicates."""
        return self.merged // _per_replicate(self.blocks)

    def replicates(self) -> Replicates:
        """The complete replicates, of which there must be one."""
        count = self.complete
        sums = {name: each[:count] for name, each in self.sums.items()}
        return Replicates(sums, count * _per_replicate(self.blocks))

    def after(self, part: Sums, blocks: int) -> State:
        """The state once the sums of the next `blocks` blocks are merged.

        This state stays valid, so that an interrupt finds either the one or the other: a row of
        `sums` is written when its replicate is complete, and no state reads it before.
        """
        merged, per_replicate = self.merged + blocks, _per_replicate(self.blocks)
        begun = {name: _plus(self.begun.get(name), value) for name, value in part.items()}
        if merged % per_replicate:
            return State(self.blocks, merged, self.sums, begun)
        for name, value in begun.items():
            if name not in self.sums:
                self.sums[name] = np.zeros((self.count, *value.shape), value.dtype)
            self.sums[name][merged // per_replicate - 1] = value
        return State(self.blocks, merged, self.sums)


def whole(blocks: int) -> int:
    """The smallest number of blocks ≥ `blocks` that splits into equal replicates."""
    per_replicate = _per_replicate(blocks)
    return -(-blocks // per_replicate) * per_replicate


def _per_replicate(blocks: int) -> int:
    return -(-blocks // MAX_REPLICATES)


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
    executor: Runner | None = None,
    start: State | None = None,
    progress: Callable[[State], None] | None = None,
) -> Replicates:
    """Run `blocks` blocks (rounded up to equal replicates) and merge them in block order.

    The result depends on `work`, `seed` and `blocks` only. Blocks run in forked processes where the
    run is long enough and this process can be forked, else in threads; or wherever the executor
    runs them that is given. At most a few tasks per worker are under way at once, so memory is
    bounded whatever the number of blocks.

    Args:
        work: the experiment; it must be picklable if `executor` leaves the process, unless that is
            a `forked.Pool` whose processes are not there yet.
        seed: root seed.
        blocks: how many independent blocks.
        jobs: number of workers; None for the cores present. With `executor` it only bounds the
            tasks under way, to four per job; None then means its attribute `threads`, if any.
        executor: where tasks run instead; `workers` makes one for several runs.
        start: where an earlier run of the same `work`, `seed` and `blocks` was stopped; this one
            goes on from there, to the same numbers as a run from the first block on.
        progress: called with the new state whenever blocks have been merged. The last one that it
            got is what a later run can start from if this one ends early, however it ends.
    """
    state = start or State(whole(blocks))
    per_replicate = _per_replicate(state.blocks)
    spans = (
        (first, min(first + SPAN, replicate + per_replicate))
        for replicate in range(0, state.blocks, per_replicate)
        for first in range(replicate, replicate + per_replicate, SPAN)
        if first >= state.merged
    )
    draws = partial(rng.generator, seed, work.experiment)
    with contextlib.ExitStack() as stack:
        stack.enter_context(single_threaded_blas())
        runner = executor or stack.enter_context(workers(jobs))
        if not isinstance(runner, forked.Pool):
            ordered = _in_order(partial(_run_spans, work, draws), spans, jobs, runner)
        elif runner.running or _is_long(work, state):
            ordered = runner.in_order(partial(_run_span, work, draws), spans)
        else:
            ordered = _in_order(partial(_run_spans, work, draws), spans, 1, None)
        # Closing cancels what is under way as soon as merging or `progress` raises.
        for (first, stop), part in stack.enter_context(contextlib.closing(ordered)):
            state = state.after(part, stop - first)
            if progress is not None:
                progress(state)
    return state.replicates()


def _is_long(work: Work, state: State) -> bool:
    return bool(getattr(work, "cost", 0.0) * (state.blocks - state.merged) >= LONG)


@contextlib.contextmanager
def workers(jobs: int | None) -> Iterator[forked.Pool | None]:
    """Processes to be forked from this one, or None where it cannot be or `jobs` asks for one.

    They are forked for the first run that is long enough, and end with the context.
    """
    count = min(jobs or available_cores(), available_cores())
    if count == 1 or not forked.possible():
        yield None
        return
    with single_threaded_blas(), forked.Pool(count) as pool:
        yield pool


def side_by_side(
    function: Callable[..., _T], calls: Sequence[tuple[Any, ...]], jobs: int | None
) -> list[_T]:
    """What a function returns for every tuple of arguments, by `workers` where there are any."""
    with workers(jobs if len(calls) > 1 else 1) as pool:
        if pool is None:
            return [function(*args) for args in calls]
        return [found for _, found in pool.in_order(function, iter(calls))]


def _plus(total: NDArray[Any] | None, value: NDArray[Any]) -> NDArray[Any]:
    value = np.asarray(value)
    return value if total is None else np.asarray(total + value)


def _run_span(work: Work, draws: Draws, start: int, stop: int) -> Sums:
    """Run the blocks start … stop−1 and add them up in that order."""
    _keep_freed_memory()
    total: Sums = {}
    for block in range(start, stop):
        for name, value in work.block(draws(block)).items():
            total[name] = total[name] + value if name in total else np.asarray(value)
    return total


def _run_spans(work: Work, draws: Draws, spans: Sequence[Span]) -> list[Sums]:
    """Run the blocks of several spans, each added up by itself as if it were alone."""
    return [_run_span(work, draws, *span) for span in spans]


@cache
def _keep_freed_memory() -> None:
    """Let the allocator keep the arrays of a block for the next one: fresh pages halve the speed.

    glibc keeps what is smaller than the largest mapped array that was ever freed (mallopt(3), on
    M_MMAP_THRESHOLD). No page of this one is touched; another allocator takes no notice of it.
    """
    np.empty(1 << 24, np.uint8)


def _in_order(
    run_spans: Callable[[Sequence[Span]], list[Sums]],
    spans: Iterator[Span],
    jobs: int | None,
    executor: futures.Executor | None,
) -> Generator[tuple[Span, Sums]]:
    """Every span with its result, in order, with a bounded number of tasks under way."""
    if executor is None and (jobs or available_cores()) == 1:
        yield from ((span, run_spans([span])[0]) for span in spans)
        return
    pool = executor or futures.ThreadPoolExecutor(jobs or available_cores(), "sdpa-check")
    pace = _Pace(jobs, executor)
    task = partial(single_threaded, run_spans)  # one object, which may be sent once
    under_way: deque[tuple[list[Span], futures.Future[list[Sums]]]] = deque()
    try:
        while True:
            while len(under_way) < pace.tasks and (some := list(islice(spans, pace.spans))):
                under_way.append((some, pool.submit(task, some)))
            if not under_way:
                return
            some, future = under_way.popleft()
            yield from zip(some, future.result(), strict=True)
            pace.note_return()
    finally:
        for _, future in under_way:
            future.cancel()
        if executor is None:
            pool.shutdown(wait=True, cancel_futures=True)


class _Pace:
    """How many tasks are under way, and how many spans each of them has.

    Four tasks for every thread. An executor with an attribute `threads` is a cluster, which may
    grow and shrink; there a task costs milliseconds on its way, and gets more spans while tasks
    come back sooner than that is worth.
    """

    def __init__(self, jobs: int | None, executor: futures.Executor | None) -> None:
        self._jobs, self._executor = jobs, executor
        self._returned, self._since = 0, time.monotonic()
        self.spans = 1

    @property
    def tasks(self) -> int:
        """The most tasks that may be under way."""
        return 4 * (self._jobs or getattr(self._executor, "threads", 0) or available_cores())

    def note_return(self) -> None:
        """Look at the clock whenever as many tasks have come back as are under way."""
        self._returned += 1
        if self._returned < self.tasks or not hasattr(self._executor, "threads"):
            return
        now = time.monotonic()
        if now - self._since < 4 * TASK_SECONDS:
            self.spans = min(2 * self.spans, TASK_SPANS)
        self._returned, self._since = 0, now


class _BlasLimit:
    """BLAS held to one thread from the first entry to the last exit, by whatever threads.

    A limit of its own for each of two threads would be lifted under one by the other.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._lift: Callable[[], None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._lift = _limited()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._lift is not None:
                self._lift()


def _limited() -> Callable[[], None] | None:
    """Limit BLAS where that is needed and can be done, and return what lifts the limit."""
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        return None
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return None
    return threadpool_limits(limits=1, user_api="blas").restore_original_limits  # type: ignore[no-any-return]


_BLAS_LIMIT = _BlasLimit()


def single_threaded_blas() -> contextlib.AbstractContextManager[None]:
    """Limit BLAS to one thread: parallelism belongs to the blocks, and one thread is bit-stable.

    The command line sets the limit in the environment before numpy is loaded. A program that uses
    the Python API gets it from threadpoolctl where that is installed (extra ``blas``).
    """
    return _BLAS_LIMIT


def single_threaded(function: Callable[..., _T], *args: Any) -> _T:
    """Call a function under `single_threaded_blas`: a task may run in a process of its own."""
    with single_threaded_blas():
        return function(*args)
