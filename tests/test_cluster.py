"""A real scheduler and real workers on loopback, in processes of their own, and what befalls them.

Nothing here waits for a fixed time: every wait is for a condition, and gives up after `PATIENCE`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

import sdpa_check
from sdpa_check import cluster, engine
from sdpa_check.cli import run as command
from sdpa_check.errors import ClusterWarning, InputError, LostWorkersError, MissingExtraError
from sdpa_check.measures.dot import DotWork
from sdpa_check.records import Design
from sdpa_check.report.record import to_dict
from sdpa_check.training import trial
from sdpa_check.training.model import Task
from sdpa_check.training.trial import Trial

distributed = pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")  # comes with distributed

PATIENCE = 90
QUICK = {"dk": 4, "dist": "rademacher", "samples": 4096}
DOT = DotWork(Design(dk=8), vectors=32)
LONG = "variance --dk 64 --samples 1e12 --no-plot"
COMMAND = [sys.executable, "-m", "sdpa_check"]


def wait_for(condition, what):
    """The first true value of `condition()`."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s"
        time.sleep(0.02)
    return found


class Dask:
    """Schedulers and workers as a user would start them."""

    def __init__(self, directory):
        self.directory, self.processes = directory, []

    def start(self, *arguments, **variables):
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments, "--no-dashboard", "--host=127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"DASK_TEMPORARY_DIRECTORY": str(self.directory)} | variables,
            cwd=self.directory,
        )
        self.processes.append(process)
        return process

    def scheduler(self, **variables):
        """A scheduler on a free port: its process and address."""
        file = self.directory / f"scheduler-{len(self.processes)}.json"
        process = self.start(
            "distributed.cli.dask_scheduler", "--port=0", f"--scheduler-file={file}", **variables
        )

        def address():
            try:
                return json.loads(file.read_text())["address"]
            except (OSError, ValueError):  # not there, or not whole
                return None

        return process, wait_for(address, "a scheduler")

    def worker(self, scheduler, **variables):
        """A worker of one thread, not yet connected."""
        return self.start(
            "distributed.cli.dask_worker",
            scheduler,
            *("--nthreads=1", "--memory-limit=0", "--no-nanny"),
            **variables,
        )

    def cluster(self, count, **variables):
        """A scheduler with connected workers: its process, theirs, and its address."""
        scheduler, address = self.scheduler(**variables)
        workers = [self.worker(address, **variables) for _ in range(count)]
        wait_for(lambda: connected(address) == count, f"{count} workers")
        return scheduler, workers, address

    def close(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def connected(address):
    """The number of workers of a scheduler."""

    async def ask():
        async with distributed.rpc(address) as scheduler:
            return len(await scheduler.ncores())

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def dask(tmp_path_factory):
    found = Dask(tmp_path_factory.mktemp("dask"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def address(dask):
    """The address of a scheduler with two workers, which nobody kills."""
    _, _, found = dask.cluster(2)
    return found


@pytest.fixture(scope="module")
def executor(address):
    with cluster.opened(address) as found:
        yield found


def numbers(run):
    """The record without the block that may differ between equal runs."""
    return {key: value for key, value in to_dict(run).items() if key != "environment"}


def same(a, b):
    assert a.blocks == b.blocks
    assert set(a.sums) == set(b.sums)
    for name in a.sums:
        np.testing.assert_array_equal(a.sums[name], b.sums[name], strict=True)


@contextmanager
def unused_port():
    """A loopback port that nobody listens on, and that nobody else gets meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class TestAddress:
    @pytest.mark.parametrize("text", ["tcp://host:8786", "tls://10.0.0.1:1", "tcp://[::1]:8786"])
    def test_of_a_scheduler(self, text):
        assert cluster.local_workers(text) is None

    def test_of_local_workers(self):
        assert cluster.local_workers("local:4") == 4

    @pytest.mark.parametrize(
        "text",
        [
            *("", "foo", "4", "local", "local:", "local:0", "local:-1", "local:2.5", "local:257"),
            *("local:²", "tcp:", "tcp://host", "tcp://host:", "tcp://:8786", "tcp://host:port"),
            *("tcp://host:99999", "tcp://host:8786/x", "host:8786", "http://host:8786", 4),
        ],
    )
    def test_that_is_none(self, text):
        with pytest.raises(InputError, match="want tcp://host:port, tls://host:port, or local:N"):
            sdpa_check.variance(**QUICK, cluster=text)

    def test_on_the_command_line(self, capsys, tmp_path):
        assert command(["variance", "--cluster", "local:0", "--out", str(tmp_path / "x")]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: --cluster: got 'local:0', want tcp://host:port")
        assert err.count("\n") == 1
        assert not (tmp_path / "x").exists()

    def test_an_executor_as_well(self):
        with ThreadPoolExecutor(1) as pool, pytest.raises(InputError, match="not both"):
            sdpa_check.variance(**QUICK, cluster="local:2", executor=pool)


class TestRefusals:
    """Before anything is computed: one line, exit code 2, nothing written."""

    @staticmethod
    def refused(address, directory):
        """The only line on stderr."""
        line = [*COMMAND, *LONG.split(), "--cluster", address, "--out", "here"]
        done = subprocess.run(
            line,
            check=False,
            capture_output=True,
            encoding="utf-8",
            cwd=directory,
            timeout=PATIENCE,
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert not (directory / "here").exists()
        return done.stderr

    def test_without_the_extra(self, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(MissingExtraError):
            sdpa_check.variance(**QUICK, cluster="local:2")
        assert command([*LONG.split(), "--cluster", "tcp://host:1", "--no-save"]) == 2
        assert capsys.readouterr().err == (
            "error: --cluster needs an optional package: pip install 'sdpa-check[cluster]'\n"
        )

    def test_nobody_there(self, monkeypatch, capsys, tmp_path):
        monkeypatch.setattr(cluster, "TIMEOUT", 1.0)
        with unused_port() as port:
            nowhere = f"tcp://127.0.0.1:{port}"
            code = command([*LONG.split(), "--cluster", nowhere, "--out", str(tmp_path / "here")])
        assert code == 2
        out, err = capsys.readouterr()
        want = "the address of a running scheduler; none answered there"
        assert (out, err) == ("", f"error: --cluster: got '{nowhere}', want {want}\n")
        assert not (tmp_path / "here").exists()

    def test_something_else_there(self, monkeypatch):
        monkeypatch.setattr(cluster, "TIMEOUT", 1.0)
        with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections, says nothing
            port = server.getsockname()[1]
            with (
                pytest.raises(InputError, match="none answered there"),
                cluster.opened(f"tcp://127.0.0.1:{port}"),
            ):
                pass

    def test_a_worker_there(self, executor):
        (worker, *_) = executor._client.nthreads()
        with pytest.raises(InputError, match="this is a Worker"), cluster.opened(worker):
            pass

    def test_no_workers(self, dask, monkeypatch):
        monkeypatch.setattr(cluster, "TIMEOUT", 3.0)
        _, lonely = dask.scheduler()
        with pytest.raises(InputError, match="none came within 3 s"), cluster.opened(lonely):
            pass

    def test_another_version_on_a_worker(self, dask, tmp_path):
        info = tmp_path / "other" / "sdpa_check-0.0.9.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sdpa-check\nVersion: 0.0.9\n")
        _, _, found = dask.cluster(1, PYTHONPATH=str(info.parent))
        told = self.refused(found, tmp_path)
        assert told.startswith("error: --cluster: worker tcp://127.0.0.1:")
        assert f"got 'sdpa-check 0.0.9', want sdpa-check {sdpa_check.__version__}" in told

    def test_another_version_on_a_worker_that_joins_later(self, executor):
        wanted = cluster.versions() | {"numpy": "1.0"}
        late = executor._client.submit(cluster._task, wanted, abs, (-3,), {}, pure=False)
        future = engine_future(executor, late)
        with pytest.raises(InputError, match=r"worker tcp://.*want numpy 1\.0"):
            future.result(PATIENCE)

    @pytest.mark.parametrize("name", cluster.versions())
    def test_every_difference_is_named(self, name):
        here = cluster.versions()
        cluster.refuse_difference("w", here, here)
        for found in (here | {name: "0"}, {k: v for k, v in here.items() if k != name}):
            with pytest.raises(InputError, match=f"worker w: got '{name} .*want {name} "):
                cluster.refuse_difference("w", found, here)

    def test_another_processor_is_a_warning(self, address, monkeypatch):
        monkeypatch.setattr(cluster, "processor", lambda: "Abacus")
        with pytest.warns(ClusterWarning, match="and 1 more; here: Abacus") as told:
            run = sdpa_check.variance(**QUICK, cluster=address)
        assert len(told) == 1
        assert run.rows

    @pytest.mark.parametrize("quiet", [False, True])
    def test_the_command_tells_a_warning_in_one_line(self, address, monkeypatch, capsys, quiet):
        monkeypatch.setattr(cluster, "processor", lambda: "Abacus")
        line = ["variance", "--dk=4", "--dist=rademacher", "--samples=4096", "--no-save"]
        assert command([*line, "--cluster", address, *(["--quiet"] if quiet else [])]) == 4
        told = capsys.readouterr().err
        assert (told.count("\n"), told[:15]) == ((0, "") if quiet else (1, "warning: worker"))


def engine_future(executor, there):
    """What the engine would get for a task of dask's."""
    return asyncio.run_coroutine_threadsafe(executor._outcome(there), executor._loop)


class TestNumbers:
    """A run on a cluster is the run on threads, to the bit."""

    def test_sums(self, executor):
        alone = engine.run(DOT, seed=1, blocks=300, jobs=1)
        same(engine.run(DOT, seed=1, blocks=300, executor=executor), alone)

    def test_variance_with_its_pilot(self, address):
        there = sdpa_check.variance(dk=4, tolerance=0.3, cluster=address)
        assert numbers(there) == numbers(sdpa_check.variance(dk=4, tolerance=0.3, jobs=2))

    def test_saturation_with_its_grids(self, executor):
        asked = {"dk": 4, "keys": 8, "samples": 4096}
        there = sdpa_check.saturation(**asked, executor=executor)
        assert numbers(there) == numbers(sdpa_check.saturation(**asked))

    def test_trials(self, executor):
        trials = [
            Trial(
                task=Task(dk=4, dmodel=8, keys=16),
                scale="sqrt",
                multiplier=0.5,
                lr=lr,
                warmup=0,
                steps=5,
                optimiser="sgd",
                seed=seed,
            )
            for lr in (0.1, 1.0)
            for seed in range(3)
        ]
        alone = trial.run(trials, root_seed=1, jobs=1)
        assert trial.run(trials, root_seed=1, executor=executor) == alone

    def test_the_command(self, address, capsys):
        line = ["variance", "--dk=4", "--dist=rademacher", "--samples=4096", "--no-save"]
        found = []
        for more in (["--jobs", "1"], ["--cluster", address]):
            assert command([*line, "--format=json", *more]) == 4
            out, err = capsys.readouterr()
            assert err == ""
            found.append({k: v for k, v in json.loads(out).items() if k != "environment"})
        assert found[0] == found[1]


class Counted:
    """A large value that knows how often it has been sent."""

    sent = 0

    def __reduce__(self):
        type(self).sent += 1
        return bytes, (100_000,)


class TestTasks:
    def test_a_partial_is_sent_once(self, executor):
        Counted.sent = 0
        task = functools.partial(pow_of_length, Counted())
        futures = [executor.submit(task, n) for n in range(10)]
        assert [f.result(PATIENCE) for f in futures] == [100_000**n for n in range(10)]
        assert Counted.sent < 5  # dask may pickle a thing twice, to see whether it can be

    def test_travelling_values(self):
        histogram = np.zeros(20_000, np.int64)
        histogram[9_000:10_000] = np.arange(1000)
        data = cluster.packed({"histogram": histogram})
        assert len(data) < histogram.nbytes / 20
        np.testing.assert_array_equal(cluster.unpacked(data)["histogram"], histogram, strict=True)

    def test_blas_has_one_thread_inside_a_task(self, dask):
        """Also where the worker's environment gives it more."""
        if engine.available_cores() < 2:
            pytest.skip("needs a BLAS with two threads")
        more = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "2")
        _, _, found = dask.cluster(1, **more)
        with cluster.opened(found) as executor:
            assert executor.submit(blas_threads).result(PATIENCE) == {2}
            sums = engine.run(Looks(), seed=0, blocks=3, executor=executor).sums
        np.testing.assert_array_equal(sums["threads"], np.ones_like(sums["threads"]))

    def test_an_error_of_a_block_arrives_as_itself(self, address, tmp_path, monkeypatch):
        (tmp_path / "only_here.py").write_text("def twice(x):\n    return 2 * x\n")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(InputError) as caught:
            sdpa_check.ledger(
                pipeline=["scale:sqrt | user:only_here:twice"], samples=4096, cluster=address
            )
        assert caught.value.got == "user:only_here:twice"
        assert "ModuleNotFoundError: No module named 'only_here'" in str(caught.value)

    @pytest.mark.parametrize(
        "error", [InputError("--dk", (1, "x"), "a number", "try 2"), MissingExtraError("x", "y")]
    )
    def test_errors_travel(self, error):
        there = pickle.loads(pickle.dumps(error))  # noqa: S301, our own
        assert (type(there), str(there)) == (type(error), str(error))
        assert vars(there) == vars(error)

    def test_the_log_is_quiet_for_as_long_as_the_cluster_is_open(self, address):
        logger = logging.getLogger("distributed")
        before = logger.level
        with cluster.opened(address):
            assert not logger.isEnabledFor(logging.CRITICAL)
        assert logger.level == before


def pow_of_length(value, n):
    return len(value) ** n


class Looks:
    """A block that looks at the threads of BLAS."""

    experiment = "looks"

    def block(self, generator):
        return {"threads": np.array(sorted(blas_threads()))}


def blas_threads():
    from threadpoolctl import threadpool_info

    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


class TestLosses:
    """Whatever is lost in the middle of a run, it ends, and with the right numbers or none."""

    def test_a_worker(self, dask):
        """One of two is killed when the first blocks are merged, and another one comes."""
        _, (victim, _), found = dask.cluster(2)
        with cluster.opened(found) as executor:
            assert executor.threads == 2

            def progress(_):
                if victim.poll() is None:
                    victim.kill()
                    victim.wait()
                    wait_for(lambda: executor.threads == 1, "the loss to be seen")
                    dask.worker(found)
                    wait_for(lambda: executor.threads == 2, "a new worker")

            there = engine.run(DOT, seed=4, blocks=2000, executor=executor, progress=progress)
        assert victim.returncode == -signal.SIGKILL
        same(there, engine.run(DOT, seed=4, blocks=2000, jobs=1))

    def test_the_scheduler(self, dask):
        scheduler, _, found = dask.cluster(1)
        with (
            cluster.opened(found) as executor,
            pytest.raises(LostWorkersError, match=r"is lost: the connection .* broke"),
        ):
            engine.run(
                DOT, seed=4, blocks=20_000, executor=executor, progress=lambda _: scheduler.kill()
            )

    def test_the_scheduler_of_a_command(self, dask, tmp_path):
        scheduler, _, found = dask.cluster(1)
        process = begun(tmp_path, "--cluster", found, "--out", "here")
        scheduler.kill()
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (1, "")
        lost = f"error: the cluster {found} is lost: the connection to its scheduler broke"
        assert err.startswith(lost)
        assert err.count("\n") == 1
        assert not (tmp_path / "here" / "run.json").exists()

    def test_a_task_that_kills_its_workers(self, dask):
        _, _, found = dask.cluster(1, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
        with cluster.opened(found) as executor, pytest.raises(LostWorkersError, match="died"):
            executor.submit(os._exit, 1).result(PATIENCE)

    def test_every_local_worker(self, monkeypatch):
        monkeypatch.setattr(cluster, "TIMEOUT", 2.0)
        with cluster.opened("local:1") as executor:
            (pid,) = executor._client.run(os.getpid).values()

            def progress(_):
                os.kill(pid, signal.SIGKILL)

            with pytest.raises(LostWorkersError, match="it has had no worker for 2 s"):
                engine.run(DOT, seed=0, blocks=20_000, executor=executor, progress=progress)
            with pytest.raises(LostWorkersError):
                executor.submit(abs, 3)


BEGUN = """
import pathlib, sys
from sdpa_check.cli import output, run
output.Progress.__call__ = lambda *_: pathlib.Path("begun").touch()
sys.exit(run(sys.argv[1:]))
"""


def begun(directory, *more):
    """A long command that has merged its first blocks."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGUN, *LONG.split(), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        cwd=directory,
        start_new_session=True,
    )
    wait_for((directory / "begun").exists, "the first blocks")
    return process


class TestLocal:
    """`local:N` starts processes, and leaves none behind."""

    def test_the_same_numbers_and_nobody_left(self):
        before = set(psutil.Process().children())
        there = sdpa_check.variance(**QUICK, cluster="local:2")
        assert numbers(there) == numbers(sdpa_check.variance(**QUICK, jobs=1))
        assert set(psutil.Process().children()) <= before

    def test_an_error_leaves_nobody(self):
        before = set(psutil.Process().children())

        def progress(*_):
            assert len(set(psutil.Process().children()) - before) == 2
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            sdpa_check.variance(**QUICK, cluster="local:2", progress=progress)
        assert set(psutil.Process().children()) <= before

    def test_an_interrupt_leaves_nobody(self, tmp_path):
        process = begun(tmp_path, "--cluster", "local:2", "--no-save")
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 2
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert "Traceback" not in err
        assert "distributed" not in err
        assert not psutil.wait_procs(workers, timeout=PATIENCE)[1]

    def test_a_killed_command_leaves_nobody(self, tmp_path):
        process = begun(tmp_path, "--cluster", "local:1", "--no-save")
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 1
        process.kill()
        process.communicate(timeout=PATIENCE)
        assert not psutil.wait_procs(workers, timeout=PATIENCE)[1]

    def test_workers_that_do_not_start(self, monkeypatch):
        monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__PRELOAD", "no_such_module_at_all")
        with (
            pytest.raises(LostWorkersError, match="local:1: a worker process ended with code 1"),
            cluster.opened("local:1"),
        ):
            pass
