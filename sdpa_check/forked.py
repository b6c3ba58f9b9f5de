"""Worker processes forked from this one: they get calls, and send back what these return.

Threads hand the interpreter's lock over some hundred times a block, which costs what they gain
where blocks are many short array operations. A forked process has a lock of its own, and knows all
that this one knew when it was forked. Forking is safe in a process of one thread only.
"""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import selectors
import signal
import struct
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from sdpa_check.errors import LostWorkersError
from sdpa_check.packing import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

_T = TypeVar("_T")
_Args = TypeVar("_Args", bound=tuple[Any, ...])

AHEAD: Final = 2
"""Calls of one series that a worker has at once, so that it need not wait for the next."""

WAITING: Final = 4
"""Results per worker that may wait for an earlier one of their series, at most."""

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


class Pool:
    """Processes that are forked when there is something to do, and end with the pool.

    A series of calls comes first: what is to be done `later` is given to a worker for which the
    series under way has nothing left. All results are the same as if they were made here.

    Example:
        >>> with Pool(2) as pool:  # doctest: +SKIP
        ...     for args, result in pool.in_order(divmod, iter([(7, 2), (9, 4)])):
        ...         print(args, result)
        (7, 2) (3, 1)
        (9, 4) (2, 1)
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._workers: list[_Worker] = []
        self._functions: dict[int, Callable[..., Any]] = {}
        self._numbers = itertools.count()
        self._later: deque[_Call] = deque()
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether the processes are there already."""
        return bool(self._workers)

    def in_order(
        self, function: Callable[..., _T], series: Iterator[_Args]
    ) -> Generator[tuple[_Args, _T]]:
        """Every tuple of arguments with what the function returns for it, in order.

        Args:
            function: what to call. What it returns must be picklable, and so must the function
                where the processes are there already; it is sent to each of them once.
            series: its arguments; they are taken as workers become free.

        Raises:
            LostWorkersError: if a worker process is lost.
            Exception: what the function raised.
        """
        number, order = self._numbered(function), deque[_Call]()
        self._start()
        ended = False
        try:
            while True:
                ended = ended or self._supply(number, series, order)
                self._supply_later()
                if ended and not order:
                    return
                self._collect()
                while order and order[0].done:
                    call = order.popleft()
                    yield cast("_Args", call.args), call.result
        finally:
            del self._functions[number]

    def later(self, function: Callable[..., _T], *args: Any) -> Callable[[], _T]:
        """Have a call made some time, and return what waits for its result.

        The function is not sent, and so the processes must not be there yet.

        Raises:
            RuntimeError: they are.
        """
        if self.running:
            raise RuntimeError("work for later must be known before processes are forked")
        call = _Call(self._numbered(function), args)
        self._later.append(call)
        return partial(self._awaited, call)

    def close(self) -> None:
        """End all processes; they hold nothing that would be lost when they are killed."""
        for worker in self._workers:
            os.close(worker.calls)
            os.close(worker.results)
            if worker.pid:
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
        self._workers = []
        self._selector.close()

    def _awaited(self, call: _Call) -> Any:
        self._start()
        if call in self._later:
            self._later.remove(call)
            self._later.appendleft(call)
        while not call.done:
            self._supply_later()
            self._collect()
        self._supply_later()
        return call.result

    def _numbered(self, function: Callable[..., Any]) -> int:
        """A number by which workers know a function."""
        number = next(self._numbers)
        self._functions[number] = function
        return number

    def _start(self) -> None:
        if self._workers:
            return
        # Signals wait until every worker stands in the list and takes none itself.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            for _ in range(self.count):
                worker = _fork(self._functions, self._workers, before)
                self._workers.append(worker)
                self._selector.register(worker.results, selectors.EVENT_READ, worker)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _supply(self, number: int, series: Iterator[_Args], order: deque[_Call]) -> bool:
        """Give workers the next calls of a series, and return whether it has ended."""
        ended = False
        for worker in self._workers:
            while not ended and worker.has_room(number) and len(order) < WAITING * self.count:
                args = next(series, None)
                ended = args is None
                if args is not None:
                    order.append(_Call(number, args))
                    worker.give(order[-1], self._functions)
        return ended

    def _supply_later(self) -> None:
        """Give workers that have nothing to do what is for later."""
        for worker in self._workers:
            if self._later and not worker.given:
                worker.give(self._later.popleft(), self._functions)

    def _collect(self) -> None:
        """Wait until there are results, and take them."""
        for key, _ in self._selector.select():
            key.data.take()


@dataclass(slots=True, eq=False)
class _Call:
    """A call of the function of a number, and what came of it."""

    function: int
    args: tuple[Any, ...]
    done: bool = False
    _answer: Any = None

    def answer(self, answer: Any) -> None:
        self.done, self._answer = True, answer

    @property
    def result(self) -> Any:
        """What the function returned; what it raised is raised here."""
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


@dataclass(slots=True)
class _Worker:
    """A forked process, the pipe that it reads calls from and the one that it writes results to.

    Attributes:
        inherited: the numbers of the functions that it knew when it was forked.
        learned: that of the function that it was sent last.
    """

    pid: int
    calls: int
    results: int
    inherited: frozenset[int]
    learned: int = -1
    given: deque[_Call] = field(default_factory=deque)

    def has_room(self, number: int) -> bool:
        """Whether another call of a function may be given; none behind that of another one.

        A function travels to a worker that has nothing to do, and so reads it at once: else this
        process could wait to write to one that waits to write.
        """
        return not self.given or (len(self.given) < AHEAD and self.given[-1].function == number)

    def give(self, call: _Call, functions: dict[int, Callable[..., Any]]) -> None:
        self.given.append(call)
        known = call.function in self.inherited or call.function == self.learned
        function = None if known else functions[call.function]
        if not known:
            self.learned = call.function
        data = packed((call.function, function, call.args))
        try:
            _write(self.calls, _LENGTH.pack(len(data)) + data)
        except BrokenPipeError:
            raise self._lost() from None

    def take(self) -> None:
        """Hand the next result to the call that was given first."""
        try:
            answer = _received(self.results)
        except EOFError:
            raise self._lost() from None
        self.given.popleft().answer(answer)

    def _lost(self) -> LostWorkersError:
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.pid = 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return LostWorkersError(f"a worker process {how}; fewer --jobs take less memory")


def _fork(
    functions: dict[int, Callable[..., Any]],
    earlier: list[_Worker],
    mask: set[signal.Signals | int],
) -> _Worker:
    calls, give = os.pipe()
    take, results = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            # Ctrl-C reaches every process of a terminal; this one ends with its parent.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            # A pipe ends when nobody holds its other end: not this process, nor a sibling.
            for each in (give, take, *(end for w in earlier for end in (w.calls, w.results))):
                os.close(each)
            gc.freeze()  # a collection would touch, and so copy, every page of the parent
            _serve(functions, calls, results)
        finally:
            os._exit(0)
    os.close(calls)
    os.close(results)
    _widen(take)
    return _Worker(pid, give, take, frozenset(functions))


def _widen(pipe: int) -> None:
    """Let a pipe hold a whole result, if the system allows: a writer need not wait then."""
    import fcntl

    with suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _serve(functions: dict[int, Callable[..., Any]], calls: int, results: int) -> None:
    """Make calls in a worker until there are no more, or nobody wants their results."""
    learned: Callable[..., Any] | None = None
    while True:
        try:
            number, function, args = _received(calls)
        except EOFError:
            return
        learned = function or learned
        try:
            known = cast("Callable[..., Any]", functions.get(number, learned))
            data = packed(known(*args))
        except BaseException as error:  # noqa: BLE001, the parent raises it
            import traceback

            error.add_note(f"In a worker process:\n{traceback.format_exc()}")
            data = _pickled(error)
        try:
            _write(results, _LENGTH.pack(len(data)) + data)
        except BrokenPipeError:
            return


def _received(pipe: int) -> Any:
    """The next message.

    Raises:
        EOFError: there will be none.
    """
    (length,) = _LENGTH.unpack(_read(pipe, _LENGTH.size))
    return unpacked(_read(pipe, length))


def _pickled(error: BaseException) -> bytes:
    """An error as it travels, with its notes; one that cannot travel is told of in words."""
    try:
        data = pickle.dumps(error, pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)  # noqa: S301, made here
    except Exception:  # noqa: BLE001, whatever the classes of other people do
        told = RuntimeError(f"{type(error).__name__}: {error}")
        told.__notes__ = error.__notes__
        return pickle.dumps(told)
    return data


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
