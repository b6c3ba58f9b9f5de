"""Worker processes forked for one run: they hold its work, get spans of blocks, and send sums back.

Threads hand the interpreter's lock over some hundred times a block, which costs what they gain
where blocks are many short array operations. A forked process has the work without being sent it,
and a lock of its own. Forking is safe in a process of one thread only.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import signal
import struct
import sys
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from sdpa_check.errors import LostWorkersError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

Span = tuple[int, int]
_T = TypeVar("_T")

AHEAD: Final = 2
"""Spans that a worker has at once, so that it need not wait while results are merged."""

WAITING: Final = 4
"""Results per worker that may wait for an earlier one, at most."""

_SPAN: Final = struct.Struct("=qq")
_LENGTH: Final = struct.Struct("=Q")
_PIPE_BYTES: Final = 1 << 20
_TASKS: Final = Path("/proc/self/task")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def possible() -> bool:
    """Whether this process can be forked: Linux, and no thread but this one.

    A lock that another thread holds while the process is forked would stay locked for ever.
    """
    try:
        return sys.platform == "linux" and len(list(_TASKS.iterdir())) == 1
    except OSError:
        return False


def in_order(
    run_span: Callable[[int, int], _T], spans: Iterator[Span], workers: int
) -> Generator[tuple[Span, _T]]:
    """Every span with its result, in order, computed by forked processes.

    They end with the generator, however it ends, and by themselves if this process is killed.

    Args:
        run_span: first block, the one after the last → what is sent back; it must be picklable.
        spans: what to run; it is taken from as workers become free.
        workers: how many processes.

    Raises:
        LostWorkersError: if a worker process is lost.
        Exception: what `run_span` raised.
    """
    with _forked(run_span, workers) as pool, selectors.DefaultSelector() as selector:
        for worker in pool:
            selector.register(worker.results, selectors.EVENT_READ, worker)
        waiting: dict[Span, _T] = {}
        order: deque[Span] = deque()

        def supply(worker: _Worker) -> None:
            while len(worker.given) < AHEAD and len(order) < WAITING * workers:
                span = next(spans, None)
                if span is None:
                    return
                order.append(span)
                worker.give(span)

        for worker in pool:
            supply(worker)
        while order:
            for key, _ in selector.select():
                waiting.update([key.data.take()])
            while order and order[0] in waiting:
                span = order.popleft()
                yield span, waiting.pop(span)
            for worker in pool:
                supply(worker)


@dataclass(slots=True)
class _Worker:
    """A forked process, the pipe that it reads spans from and the one that it writes results to."""

    pid: int
    spans: int
    results: int
    given: list[Span] = field(default_factory=list)

    def give(self, span: Span) -> None:
        self.given.append(span)
        try:
            os.write(self.spans, _SPAN.pack(*span))
        except BrokenPipeError:
            raise self._lost() from None

    def take(self) -> tuple[Span, Any]:
        """The result of the span that was given first, or the error that it raised."""
        try:
            (length,) = _LENGTH.unpack(_read(self.results, _LENGTH.size))
            answer = pickle.loads(_read(self.results, length))  # noqa: S301, from our own code
        except EOFError:
            raise self._lost() from None
        if isinstance(answer, BaseException):
            raise answer
        return self.given.pop(0), _whole(answer)

    def _lost(self) -> LostWorkersError:
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.pid = 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return LostWorkersError(f"a worker process {how}; fewer --jobs take less memory")


@contextmanager
def _forked(run_span: Callable[[int, int], Any], count: int) -> Iterator[list[_Worker]]:
    """Workers until the context ends; they hold nothing that would be lost when they are killed."""
    pool: list[_Worker] = []
    try:
        # Signals wait until every worker stands in the list and takes none itself.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            for _ in range(count):
                pool.append(_fork(run_span, pool, before))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield pool
    finally:
        for worker in pool:
            os.close(worker.spans)
            os.close(worker.results)
            if worker.pid:
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)


def _fork(
    run_span: Callable[[int, int], Any], earlier: list[_Worker], mask: set[signal.Signals | int]
) -> _Worker:
    spans, give = os.pipe()
    take, results = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            # Ctrl-C reaches every process of a terminal; this one ends with its parent.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            # A pipe ends when nobody holds its other end: not this process, nor a sibling.
            for each in (give, take, *(end for w in earlier for end in (w.spans, w.results))):
                os.close(each)
            gc.freeze()  # a collection would touch, and so copy, every page of the parent
            _serve(run_span, spans, results)
        finally:
            os._exit(0)
    os.close(spans)
    os.close(results)
    _widen(take)
    return _Worker(pid, give, take)


def _widen(pipe: int) -> None:
    """Let a pipe hold a whole result, if the system allows: a writer need not wait then."""
    import fcntl

    with suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _serve(run_span: Callable[[int, int], Any], spans: int, results: int) -> None:
    """Run spans in a worker until there are no more, or nobody wants their results."""
    while True:
        try:
            span = _SPAN.unpack(_read(spans, _SPAN.size))
        except EOFError:
            return
        try:
            answer = _thin(run_span(*span))
            data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # noqa: BLE001, the parent raises it
            data = _pickled(error)
        try:
            _write(results, _LENGTH.pack(len(data)) + data)
        except BrokenPipeError:
            return


def _pickled(error: BaseException) -> bytes:
    """An error as it travels; one that cannot travel is told of in words."""
    try:
        data = pickle.dumps(error, pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)  # noqa: S301, made here
    except Exception:  # noqa: BLE001, whatever the classes of other people do
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


@dataclass(frozen=True, slots=True)
class _Sparse:
    """A vector that is mostly zeros, as histograms are: 150 kB become a few."""

    size: int
    places: Any
    values: Any


def _thin(sums: Any) -> Any:
    if not isinstance(sums, dict):
        return sums
    return {name: _sparse(value) for name, value in sums.items()}


def _sparse(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.size < 512:
        return value
    places = np.flatnonzero(value)
    if 4 * len(places) > value.size:
        return value
    return _Sparse(value.size, places.astype(np.int32), value[places])


def _whole(sums: Any) -> Any:
    if not isinstance(sums, dict):
        return sums
    return {name: _dense(value) for name, value in sums.items()}


def _dense(value: Any) -> Any:
    if not isinstance(value, _Sparse):
        return value
    full = np.zeros(value.size, value.values.dtype)
    full[value.places] = value.values
    return full


def _read(pipe: int, size: int) -> bytearray:
    """Exactly `size` bytes.

    Raises:
        EOFError: if the other end is closed before.
    """
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = os.readv(pipe, [view])
        if not count:
            raise EOFError
        view = view[count:]
    return data


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]
