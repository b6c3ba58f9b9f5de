"""The engine: the same numbers however and wherever the blocks run."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import threading
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)

import numpy as np
import pytest

from sdpa_check import engine, rng
from sdpa_check.engine import MAX_REPLICATES, SPAN
from sdpa_check.measures.dot import DotWork
from sdpa_check.records import Design

DOT = DotWork(Design(dk=8), vectors=32)

# Runs that are merged: replicates of two and three blocks, of one span each, and of nine blocks,
# which are spans of 8 and 1.
TWOS, THREES, NINES = MAX_REPLICATES + 2, 3 * (MAX_REPLICATES - 1), (SPAN + 1) * MAX_REPLICATES


@dataclasses.dataclass(frozen=True)
class Draws:
    """Two normals of very different size, whose float sums show the order of addition."""

    experiment: str = "draws"

    def block(self, generator):
        x = generator.standard_normal(2)
        return {"x": x * [1.0, 1e8], "n": np.int64(1)}


@dataclasses.dataclass
class Failing:
    """Raises in the block whose number is `at`."""

    at: int
    started: int = 0
    experiment: str = "failing"

    def block(self, generator):
        self.started += 1
        if self.started > self.at:
            raise ZeroDivisionError("planted")
        return {"n": np.float64(1)}


class LazyFuture(Future):
    """A task that runs when its executor says so."""

    def __init__(self, executor, task):
        super().__init__()
        self.executor, self.task = executor, task

    def run(self):
        if not self.set_running_or_notify_cancel():
            return
        try:
            self.set_result(self.task())
        except BaseException as error:  # noqa: BLE001 - a future carries every error
            self.set_exception(error)

    def result(self, timeout=None):
        self.executor.work_off()
        self.executor.open.discard(self)
        return super().result(0)


class Backwards(Executor):
    """Runs what is waiting in reverse order, and only when a result is asked for."""

    def __init__(self):
        self.open, self.waiting, self.submitted, self.peak = set(), [], [], 0

    def submit(self, fn, /, *args, **kwargs):
        future = LazyFuture(self, lambda: fn(*args, **kwargs))
        self.waiting.append(future)
        self.submitted.append(future)
        self.open.add(future)
        self.peak = max(self.peak, len(self.open))
        return future

    def work_off(self):
        while self.waiting:
            self.waiting.pop().run()


def same(a, b):
    assert a.blocks == b.blocks
    assert set(a.sums) == set(b.sums)
    for name in a.sums:
        np.testing.assert_array_equal(a.sums[name], b.sums[name], strict=True)


def by_hand(work, seed, blocks):
    """The merge as documented: blocks in order within a span, spans in order in a replicate."""
    per = -(-blocks // MAX_REPLICATES)
    out = []
    for first in range(0, blocks, per):
        total = 0.0
        for start in range(first, first + per, SPAN):
            span = [
                work.block(rng.generator(seed, work.experiment, b))["x"]
                for b in range(start, min(start + SPAN, first + per))
            ]
            total = total + sum(span[1:], start=span[0])
        out.append(total)
    return np.array(out)


SIZES = [
    *(1, 2, SPAN - 1, SPAN, SPAN + 1, MAX_REPLICATES - 1),
    *(times * MAX_REPLICATES for times in (1, 2, SPAN, SPAN + 1)),
]


@pytest.mark.parametrize("blocks", SIZES)
def test_merge_is_in_block_order(blocks):
    found = engine.run(Draws(), seed=3, blocks=blocks, jobs=1)
    assert found.blocks == blocks
    assert found.count == min(blocks, MAX_REPLICATES)
    np.testing.assert_array_equal(found.sums["x"], by_hand(Draws(), 3, blocks))
    assert found.sums["n"].dtype == np.int64
    assert found.sums["n"].sum() == blocks
    assert len(set(found.sums["n"].tolist())) == 1


@pytest.mark.parametrize("blocks", [1, 5, 64, TWOS, NINES])
@pytest.mark.parametrize("jobs", [2, 4, None])
def test_jobs_do_not_change_the_numbers(blocks, jobs):
    alone = engine.run(Draws(), seed=0, blocks=blocks, jobs=1)
    same(engine.run(Draws(), seed=0, blocks=blocks, jobs=jobs), alone)


@pytest.mark.parametrize("jobs", [2, 4])
def test_jobs_do_not_change_measured_sums(jobs):
    alone = engine.run(DOT, seed=1, blocks=40, jobs=1)
    same(engine.run(DOT, seed=1, blocks=40, jobs=jobs), alone)


def test_executors_do_not_change_the_numbers():
    alone = engine.run(Draws(), seed=5, blocks=THREES, jobs=1)
    same(engine.run(Draws(), seed=5, blocks=THREES, executor=Backwards()), alone)
    with ThreadPoolExecutor(3) as pool:
        same(engine.run(Draws(), seed=5, blocks=THREES, executor=pool), alone)


def test_processes_do_not_change_the_numbers():
    alone = engine.run(DOT, seed=2, blocks=6, jobs=1)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        same(engine.run(DOT, seed=2, blocks=6, executor=pool), alone)


def test_a_given_executor_is_left_open():
    with ThreadPoolExecutor(2) as pool:
        engine.run(Draws(), seed=0, blocks=4, executor=pool)
        assert pool.submit(int, 3).result() == 3


def test_own_threads_are_gone_afterwards():
    engine.run(Draws(), seed=0, blocks=40, jobs=3)
    assert not [t for t in threading.enumerate() if t.name.startswith("sdpa-check")]


def test_seed_experiment_and_stream_select_the_numbers():
    def value(work, seed):
        return tuple(engine.run(work, seed=seed, blocks=3, jobs=1).sums["power2"])

    works = [dataclasses.replace(DOT, stream=s) for s in ("main", "pilot")]
    works.append(dataclasses.replace(DOT, design=Design(dk=8, corr="ar1:0.0")))
    values = {value(work, seed) for work in works for seed in (0, 1)}
    assert len(values) == 6


def test_more_blocks_extend_the_run():
    """Block i is the same however many there are: below MAX_REPLICATES every one is a replicate."""
    few = engine.run(Draws(), seed=0, blocks=10, jobs=1).sums["x"]
    many = engine.run(Draws(), seed=0, blocks=50, jobs=1).sums["x"]
    np.testing.assert_array_equal(many[:10], few)


def test_whole_is_the_smallest_equal_split():
    def splits(n):
        return n % -(-n // MAX_REPLICATES) == 0

    for blocks in range(1, 12 * MAX_REPLICATES):
        assert engine.whole(blocks) == next(n for n in range(blocks, 2 * blocks + 1) if splits(n))


def test_a_run_has_enough_replicates():
    least = engine.LEAST_REPLICATES
    for blocks in range(1, 12 * MAX_REPLICATES):
        count = engine.State(engine.whole(blocks)).count
        assert min(blocks, least) <= count <= MAX_REPLICATES


@pytest.mark.parametrize("blocks", [MAX_REPLICATES + 1, THREES - 1, NINES - 100])
def test_blocks_are_rounded_up_to_equal_replicates(blocks):
    found = engine.run(Draws(), seed=0, blocks=blocks, jobs=1)
    assert found.blocks == engine.whole(blocks) >= blocks
    assert found.count * found.sums["n"][0] == found.blocks
    assert engine.LEAST_REPLICATES <= found.count <= MAX_REPLICATES


@pytest.mark.parametrize("blocks", [1, 8, 9, MAX_REPLICATES + 1, NINES])
@pytest.mark.parametrize("jobs", [1, 3])
def test_progress_adds_up(blocks, jobs):
    states = []
    found = engine.run(Draws(), seed=0, blocks=blocks, jobs=jobs, progress=states.append)
    merged = [0, *(state.merged for state in states)]
    assert merged[-1] == found.blocks
    assert all(1 <= b - a <= SPAN for a, b in itertools.pairwise(merged))
    assert {state.blocks for state in states} == {found.blocks}


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_few_tasks_are_under_way(jobs):
    pool = Backwards()
    engine.run(Draws(), seed=0, blocks=NINES, jobs=jobs, executor=pool)
    assert len(pool.submitted) == 2 * MAX_REPLICATES
    assert pool.peak == 4 * jobs


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_in_a_block_reaches_the_caller(jobs):
    work = Failing(at=5)
    with pytest.raises(ZeroDivisionError, match="planted"):
        engine.run(work, seed=0, blocks=10_000, jobs=jobs)
    assert work.started < 10_000
    assert not [t for t in threading.enumerate() if t.name.startswith("sdpa-check")]


def test_an_error_cancels_what_waits():
    pool = Backwards()
    pool.work_off = lambda: pool.waiting.pop(0).run() if pool.waiting else None  # one at a time
    with pytest.raises(ZeroDivisionError):
        engine.run(Failing(at=3), seed=0, blocks=100, jobs=2, executor=pool)
    done = [f for f in pool.submitted if f.done() and not f.cancelled()]
    assert len(done) == 4  # three blocks and the one that raised
    assert all(f.cancelled() for f in pool.submitted if f not in done)


def test_an_error_in_progress_cancels_what_waits():
    pool = Backwards()
    pool.work_off = lambda: pool.waiting.pop(0).run() if pool.waiting else None

    def interrupt(_):
        raise KeyboardInterrupt

    # Keeping the exception keeps the frames of the run: cancelling must not wait for their end.
    with pytest.raises(KeyboardInterrupt) as caught:
        engine.run(Draws(), seed=0, blocks=100, jobs=2, executor=pool, progress=interrupt)
    assert [f.cancelled() for f in pool.submitted] == [False] + [True] * 7
    assert caught.value is not None


class Watched:
    """Progress that keeps every state, and raises after a number of them."""

    def __init__(self, at=None, error=KeyboardInterrupt):
        self.states, self.at, self.error = [], at, error

    def __call__(self, state):
        self.states.append(state)
        if len(self.states) == self.at:
            raise self.error


class Brittle(dict):
    """Sums that an interrupt finds half-written, when they are looked at for the n-th time."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def __getitem__(self, name):
        self.at -= 1
        if self.at == 0:
            raise KeyboardInterrupt
        return super().__getitem__(name)


class TestResume:
    """A run that was stopped goes on to the bits of one that was not."""

    @pytest.mark.parametrize(
        ("blocks", "stops"),
        [
            (40, (1, 39)),  # a replicate is a block
            (THREES, (1, THREES // 3 - 1)),
            (NINES, (1, 2, 101, 102, 2 * MAX_REPLICATES - 1)),
        ],
    )
    @pytest.mark.parametrize("jobs", [1, 2])
    def test_the_numbers_are_the_same(self, blocks, stops, jobs):
        whole = engine.run(Draws(), seed=4, blocks=blocks, jobs=1)
        for at in stops:
            watched = Watched(at)
            with pytest.raises(KeyboardInterrupt):
                engine.run(Draws(), seed=4, blocks=blocks, jobs=jobs, progress=watched)
            start, rest = watched.states[-1], Watched()
            found = engine.run(
                Draws(), seed=4, blocks=blocks, jobs=jobs, start=start, progress=rest
            )
            same(found, whole)
            assert start.merged < rest.states[0].merged <= start.merged + SPAN
            assert rest.states[-1].merged == blocks

    def test_again_and_again(self):
        state = None
        for _ in range(255):
            watched = Watched(1)
            with pytest.raises(KeyboardInterrupt):
                engine.run(DOT, seed=1, blocks=NINES, jobs=1, start=state, progress=watched)
            state = watched.states[-1]
            if state.merged > 40:
                break
        parts = Watched(30)
        with pytest.raises(KeyboardInterrupt):
            engine.run(DOT, seed=1, blocks=NINES, jobs=1, progress=parts)
        straight = next(each for each in parts.states if each.merged == state.merged)
        same(state.replicates(), straight.replicates())
        assert state.begun.keys() == straight.begun.keys()
        for name, each in state.begun.items():
            np.testing.assert_array_equal(each, straight.begun[name], strict=True)

    def test_a_finished_run_has_nothing_left_to_do(self):
        watched = Watched()
        whole = engine.run(Draws(), seed=0, blocks=20, jobs=2, progress=watched)
        last = watched.states[-1]
        same(engine.run(Failing(at=0), seed=0, blocks=20, jobs=2, start=last), whole)

    def test_earlier_states_stay_what_they_were(self):
        watched = Watched()
        whole = engine.run(Draws(), seed=0, blocks=NINES, jobs=1, progress=watched)
        for state in watched.states:
            assert state.complete == state.merged // 9
            assert bool(state.begun) == bool(state.merged % 9)
            if state.complete:
                found = state.replicates()
                assert (found.count, found.blocks) == (state.complete, 9 * state.complete)
                np.testing.assert_array_equal(found.sums["x"], whole.sums["x"][: state.complete])

    @pytest.mark.parametrize("at", range(1, 9))
    def test_an_interrupt_within_a_merge_leaves_a_state(self, at):
        """Two names, two looks for each: whichever it is that fails, the state before is whole."""
        whole = engine.run(Draws(), seed=0, blocks=20, jobs=1)
        watched = Watched()
        first = engine.State(20, 0, Brittle(at))
        with pytest.raises(KeyboardInterrupt):
            engine.run(Draws(), seed=0, blocks=20, jobs=1, start=first, progress=watched)
        state = watched.states[-1] if watched.states else engine.State(20)
        kept = dataclasses.replace(state, sums=dict(state.sums))
        same(engine.run(Draws(), seed=0, blocks=20, jobs=1, start=kept), whole)

    def test_a_lost_executor_leaves_a_state(self):
        whole = engine.run(Draws(), seed=0, blocks=THREES, jobs=1)
        pool, watched = Backwards(), Watched()
        submit = pool.submit

        def lost(*args, **kwargs):
            if len(pool.submitted) == 60:
                raise BrokenExecutor
            return submit(*args, **kwargs)

        pool.submit = lost
        with pytest.raises(BrokenExecutor):
            engine.run(Draws(), seed=0, blocks=THREES, jobs=2, executor=pool, progress=watched)
        state = watched.states[-1]
        assert 0 < state.merged < THREES
        same(engine.run(Draws(), seed=0, blocks=THREES, jobs=2, start=state), whole)


class TestLonger:
    """A run that goes on past its end comes to the bits of one that was that long at once."""

    @pytest.mark.parametrize("jobs", [1, 2])
    @pytest.mark.parametrize(
        "work", [Draws(), DOT, dataclasses.replace(DOT, stream="pilot")], ids=["x", "dot", "pilot"]
    )
    def test_the_numbers_are_the_same(self, work, jobs):
        found = engine.run(work, seed=6, blocks=SPAN, jobs=jobs)
        for blocks in (SPAN, SPAN + 1, 4 * SPAN, 5 * SPAN - 3, MAX_REPLICATES):
            before = {name: each.copy() for name, each in found.sums.items()}
            start = engine.State.longer(found, blocks)
            longer = engine.run(work, seed=6, blocks=blocks, jobs=jobs, start=start)
            same(longer, engine.run(work, seed=6, blocks=blocks, jobs=1))
            for name, each in before.items():  # the shorter run stays what it was
                np.testing.assert_array_equal(found.sums[name], each, strict=True)
            found = longer

    def test_no_block_is_run_twice(self):
        work = Failing(at=40)  # raises in its block number 41
        found = engine.run(work, seed=0, blocks=16, jobs=1)
        start, watched = engine.State.longer(found, 40), Watched()
        assert start.replicates().count == start.merged == 16
        engine.run(work, seed=0, blocks=40, jobs=1, start=start, progress=watched)
        assert work.started == 40
        assert [state.merged for state in watched.states] == list(range(17, 41))

    def test_what_is_merged_already_is_refused(self):
        """The first blocks of a longer run would have to be taken apart again."""
        merged = engine.run(Draws(), seed=0, blocks=TWOS, jobs=1)
        for blocks in (TWOS, 2 * TWOS):
            with pytest.raises(ValueError, match=f"{TWOS} blocks in {TWOS // 2} replicates"):
                engine.State.longer(merged, blocks)
        part = engine.Replicates({"x": merged.sums["x"][:16]}, 32)
        with pytest.raises(ValueError, match="32 blocks in 16 replicates"):
            engine.State.longer(part, 64)

    @pytest.mark.parametrize("blocks", [15, 1, 0, MAX_REPLICATES + 1, 2 * MAX_REPLICATES])
    def test_a_shorter_run_and_one_that_merges_are_refused(self, blocks):
        done = engine.run(Draws(), seed=0, blocks=16, jobs=1)
        with pytest.raises(ValueError, match=f"then {blocks}$"):
            engine.State.longer(done, blocks)


def test_available_cores():
    assert engine.available_cores() >= 1


def test_blas_is_limited_during_a_run_only(monkeypatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)

    def threads():
        return [
            p["num_threads"] for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"
        ]

    class Looks:
        experiment = "looks"

        def block(self, generator):
            return {"threads": np.array(threads())}

    before = threads()
    found = engine.run(Looks(), seed=0, blocks=1, jobs=1).sums["threads"]
    assert (found == 1).all()
    assert threads() == before


def test_the_blas_limit_outlasts_the_first_thread_that_leaves(monkeypatch):
    """Two tasks that overlap in one process: neither lifts the limit under the other."""
    threadpoolctl = pytest.importorskip("threadpoolctl")
    if engine.available_cores() < 2:
        pytest.skip("needs a BLAS with two threads")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)

    def threads():
        found = threadpoolctl.threadpool_info()
        return {each["num_threads"] for each in found if each["user_api"] == "blas"}

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        first, second = engine.single_threaded_blas(), engine.single_threaded_blas()
        with first:
            second.__enter__()
        try:
            assert threads() == {1}
        finally:
            second.__exit__(None, None, None)
        assert threads() == {2}


@pytest.mark.parametrize(
    ("blocks", "spans"),
    [(TWOS, TWOS // 2), (2 * SPAN * (MAX_REPLICATES - 3), 2 * (MAX_REPLICATES - 3))],
)
def test_a_cluster_gets_larger_tasks_and_the_numbers_stay(blocks, spans):
    class Cluster(Backwards):
        threads = 2

    pool = Cluster()
    alone = engine.run(Draws(), seed=5, blocks=blocks, jobs=1)
    same(engine.run(Draws(), seed=5, blocks=blocks, executor=pool), alone)
    assert pool.peak == 4 * Cluster.threads
    assert len(pool.submitted) <= spans / 2


def test_tasks_do_not_grow_where_they_take_long(monkeypatch):
    class Cluster(Backwards):
        threads = 2

    pool = Cluster()
    monkeypatch.setattr(engine, "TASK_SECONDS", 0.0)
    engine.run(Draws(), seed=5, blocks=TWOS, executor=pool)
    assert len(pool.submitted) == TWOS // 2
