"""A cluster of dask workers as an executor: its address, its versions, and how it may fail."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import platform
import subprocess
import sys
import time
import warnings
import zlib
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import numpy as np

import sdpa_check
from sdpa_check.environment import blas, processor
from sdpa_check.errors import ClusterWarning, InputError, LostWorkersError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    import distributed

OPTION: Final = "--cluster"
MAX_LOCAL: Final = 256

TIMEOUT: Final = 10.0
"""Seconds to reach the scheduler, and after that to find at least one worker there."""

STARTING: Final = 60.0
"""Seconds that the processes of ``local:N`` have to start in."""

PATIENCE: Final = 300.0
"""Seconds that a run without any worker left waits for a new one; for ``local:N`` it is `TIMEOUT`,
as nobody starts new ones there."""

_GLANCE: Final = 1.0
"""Seconds between two looks at the workers."""

_LOGGERS: Final = (
    *("distributed", "distributed.client", "distributed.gc"),
    *("tornado", "tornado.application", "asyncio"),
)
"""Loggers with levels or handlers of their own, on which dask tells about lost connections."""


def local_workers(address: object) -> int | None:
    """N of ``local:N``; None for ``tcp://host:port`` and ``tls://host:port``.

    Raises:
        InputError: for anything else.
    """
    text = address if isinstance(address, str) else ""
    scheme, _, rest = text.partition(":")
    if scheme == "local" and rest.isascii() and rest.isdigit() and 1 <= int(rest) <= MAX_LOCAL:
        return int(rest)
    if scheme in {"tcp", "tls"} and _host_and_port(text):
        return None
    want = f"tcp://host:port, tls://host:port, or local:N with N from 1 to {MAX_LOCAL}"
    raise InputError(OPTION, address, want)


def _host_and_port(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname and parts.port) and parts.geturl() == (
            f"{parts.scheme}://{parts.netloc}"
        )
    except ValueError:  # a port that is no number, or out of range
        return False


@contextmanager
def opened(address: str) -> Iterator[ClusterExecutor]:
    """An executor on the workers of a scheduler, or on local processes, until the context ends.

    Args:
        address: ``tcp://host:port`` or ``tls://host:port`` of a running scheduler, or ``local:N``
            for N worker processes of one thread each, which end with the context.

    Raises:
        InputError: for an address that is none, cannot be reached or has no workers, and for
            workers whose versions differ from those here.
        MissingExtraError: without dask.distributed.
        LostWorkersError: if local workers do not start.
    """
    count = local_workers(address)
    try:
        import distributed  # noqa: F401, whether it is there
    except ImportError:
        raise MissingExtraError(OPTION, "cluster") from None
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if count is None:
            client = stack.enter_context(_connected(address))
            patience = PATIENCE
        else:
            client = stack.enter_context(_started(count))
            patience = TIMEOUT
        _check_versions(client)
        _compare_processors(client)
        executor = ClusterExecutor(client, address, patience)
        stack.callback(executor.shutdown)
        yield executor


class ClusterExecutor(Executor):
    """The standard executor interface on the workers of a dask client.

    A worker that is lost costs its tasks' time: they run again elsewhere. One that comes later gets
    tasks too. An error that a task raises arrives as it is; whatever else goes wrong arrives as a
    `LostWorkersError`, and ends every task.

    Attributes:
        threads: how many threads the workers have in all, as of a moment ago.
    """

    def __init__(self, client: distributed.Client, address: str, patience: float) -> None:
        self.threads = sum(client.nthreads().values())
        self._client, self._address = client, address
        self._fault = "the connection to its scheduler broke"
        self._sent: tuple[object, distributed.Future | None] = (None, None)
        self._loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
        self._watch = asyncio.run_coroutine_threadsafe(self._watching(patience), self._loop)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``function(*args, **kwargs)`` on some worker.

        A `functools.partial` that is submitted several times in a row is sent once: what it holds
        may be large.

        Raises:
            LostWorkersError: if the cluster is known to be lost.
        """
        from distributed.client import ClosedClientError

        sent = self._once(function) if isinstance(function, partial) else function
        try:
            there = self._client.submit(_task, versions(), sent, args, kwargs, pure=False)
        except ClosedClientError as error:
            raise self._lost() from error
        return asyncio.run_coroutine_threadsafe(self._outcome(there), self._loop)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop watching the workers; connections are closed by who opened them."""
        del wait, cancel_futures
        self._watch.cancel()

    def _once(self, function: object) -> distributed.Future:
        """A function on its way to the workers; the scheduler can make it again if it gets lost."""
        known, there = self._sent
        if there is None or known is not function:
            there = self._client.submit(_same, function, pure=False)
            self._sent = (function, there)
        return there

    async def _outcome(self, there: distributed.Future) -> Any:
        """What a task returned, or its error. Dropping `there`, when cancelled, drops the task."""
        from distributed import KilledWorker

        try:
            packed = await there
        except KilledWorker as error:
            raise LostWorkersError(f"{self._address}: {error}") from None
        except Exception as error:
            if there.status == "error":
                raise
            raise self._lost() from error
        return unpacked(packed)

    async def _watching(self, patience: float) -> None:
        """Count the workers' threads now and then, and give up once there is none for too long."""
        seen = time.monotonic()
        while time.monotonic() - seen < patience:
            await asyncio.sleep(_GLANCE)
            try:
                self.threads = sum((await self._client.nthreads()).values())
            except OSError:  # the client sees by itself that the scheduler is lost
                continue
            if self.threads:
                seen = time.monotonic()
        self._fault = f"it has had no worker for {patience:g} s"
        await self._client.close()  # cancels every task

    def _lost(self) -> LostWorkersError:
        return LostWorkersError(f"the cluster {self._address} is lost: {self._fault}")


def _same(value: Any) -> Any:
    return value


def _task(wanted: Mapping[str, str], function: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
    """Run a task on a worker, which may have joined after the versions were compared."""
    from distributed import get_worker

    refuse_difference(get_worker().address, versions(), wanted)
    return packed(function(*args, **kwargs))


def packed(value: object) -> bytes:
    """A value as it travels. Histograms are mostly zeros: 150 kB become 7 kB."""
    return zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), 1)


def unpacked(data: bytes) -> Any:
    """The value that `packed` made data of."""
    return pickle.loads(zlib.decompress(data))  # noqa: S301, from a worker, which runs our code


def versions() -> dict[str, str]:
    """What has to be the same on both sides for numbers to be the same."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"sdpa-check": sdpa_check.__version__, "numpy": np.__version__, "Python": python}


def refuse_difference(worker: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Refuse a worker with other versions.

    Raises:
        InputError: naming the worker and the first difference.
    """
    for name, version in wanted.items():
        if found.get(name) != version:
            got = f"{name} {found.get(name) or 'missing'}"
            hint = "install the same versions on every worker"
            raise InputError(f"{OPTION}: worker {worker}", got, f"{name} {version}", hint)


def _check_versions(client: distributed.Client) -> None:
    """Compare the versions of every worker with those here, without running our code there."""
    packages = ["sdpa-check", "threadpoolctl"]
    found = client.get_versions(packages=packages)
    here = _told_versions(found["client"])
    for worker, told in sorted(found["workers"].items()):
        there = _told_versions(told)
        refuse_difference(worker, there, here)
        if not told["packages"]["threadpoolctl"]:
            refuse_difference(worker, {}, {"threadpoolctl": "of any version"})


def _told_versions(told: Mapping[str, Any]) -> dict[str, str]:
    packages = told["packages"]
    python = ".".join(told["host"]["python"].split(".")[:2])
    return {"sdpa-check": packages["sdpa-check"], "numpy": packages["numpy"], "Python": python}


def _compare_processors(client: distributed.Client) -> None:
    """Warn, once, where a worker's processor or BLAS is of another kind than the one here."""
    here = kind_of_processor()
    others = {
        f"{worker}: {kind}"
        for worker, kind in client.run(kind_of_processor).items()
        if kind != here
    }
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        warnings.warn(
            f"worker {min(others)}{more}; here: {here}. Numbers of different kinds of processor "
            "agree to rounding only",
            ClusterWarning,
            stacklevel=2,
        )


def kind_of_processor() -> str:
    """The processor, the BLAS of numpy, and the kernels that it picked for the processor."""
    from threadpoolctl import threadpool_info

    kernels = {str(each["architecture"]) for each in threadpool_info() if "architecture" in each}
    return ", ".join((processor(), blas(), *sorted(kernels)))


@contextmanager
def _connected(address: str) -> Iterator[distributed.Client]:
    """A client of a running scheduler that has workers."""
    import distributed

    _greet(address)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on versions, which are compared in our own words
        client = distributed.Client(address, timeout=TIMEOUT, set_as_default=False)
    with client:
        try:
            client.wait_for_workers(1, timeout=TIMEOUT)
        except TimeoutError as error:
            want = f"a scheduler with workers; none came within {TIMEOUT:g} s"
            raise InputError(OPTION, address, want) from error
        yield client


def _greet(address: str) -> None:
    """Refuse an address where no scheduler answers. A client would wait for ever at some."""
    want = "the address of a running scheduler; none answered there"
    try:
        with ThreadPoolExecutor(1) as pool:  # an event loop of its own: notebooks have one running
            kind = pool.submit(asyncio.run, _kind(address)).result()
    except Exception as error:  # what is no scheduler can answer anything
        raise InputError(OPTION, address, want) from error
    if kind != "Scheduler":
        raise InputError(OPTION, address, "the address of a scheduler", f"this is a {kind}")


async def _kind(address: str) -> str:
    """What answers at an address: Scheduler, Worker or Nanny."""
    import distributed

    arguments = distributed.Security().get_connection_args("client")
    async with (
        asyncio.timeout(TIMEOUT),
        distributed.rpc(address, timeout=TIMEOUT, connection_args=arguments) as there,
    ):
        return str((await there.identity())["type"])


@contextmanager
def _started(count: int) -> Iterator[distributed.Client]:
    """A client of a scheduler in this process with workers in processes of their own.

    The workers are plain commands: they need no importable main module, a Ctrl-C in the terminal
    does not reach them, and they end by themselves when this process is killed.
    """
    import distributed

    with ExitStack() as stack:
        cluster = stack.enter_context(
            distributed.LocalCluster(
                n_workers=0,
                host="127.0.0.1",
                protocol="tcp://",
                dashboard_address="127.0.0.1:0",  # a free port: the usual one may be taken
                silence_logs=False,  # `_quiet` does it, and this would undo that
            )
        )
        client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
        scratch = stack.enter_context(TemporaryDirectory(prefix="sdpa-check-"))
        workers = [_worker(stack, cluster.scheduler_address, scratch) for _ in range(count)]
        deadline = time.monotonic() + STARTING
        while len(client.nthreads()) < count:
            ended = [each.returncode for each in workers if each.poll() is not None]
            if ended or time.monotonic() > deadline:
                what = f"with code {ended[0]}" if ended else f"or did not start in {STARTING:g} s"
                raise LostWorkersError(f"{OPTION} local:{count}: a worker process ended {what}")
            time.sleep(0.05)
        yield client


def _worker(stack: ExitStack, scheduler: str, scratch: str) -> subprocess.Popen[bytes]:
    """Start a worker of one thread, which ends with the stack."""
    process = subprocess.Popen(  # noqa: S603, this Python with arguments of our own
        [
            *(sys.executable, "-m", "distributed.cli.dask_worker", scheduler),
            *("--nthreads=1", "--no-nanny", "--no-dashboard", "--memory-limit=0"),
            *("--host=127.0.0.1", f"--local-directory={scratch}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        },
    )
    stack.callback(process.wait)
    stack.callback(process.kill)  # it holds nothing that would be lost
    return process


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep dask's log off the screen: what matters of it arrives as an error."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
