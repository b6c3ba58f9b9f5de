"""Forked workers: the same numbers, errors that arrive, and no process that outlives its run.

Every case runs in a Python of its own, as only a process of one thread is forked.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")

SECONDS = 60  # until a case counts as hanging
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
SQUARES = """
    import os, signal, sys, time
    from sdpa_check import forked

    def square(first, stop):
        return {"square": first * first}

    spans = [(i, i + 1) for i in range(50)]

    def in_order(function, spans, workers):
        with forked.Pool(workers) as pool:
            yield from pool.in_order(function, spans)
"""


def script(code):
    return [sys.executable, "-c", textwrap.dedent(SQUARES) + textwrap.dedent(code)]


def alone(code):
    """What a script prints, without the last line end."""
    done = subprocess.run(
        script(code), capture_output=True, text=True, timeout=SECONDS, env=ENVIRONMENT, check=False
    )
    assert not done.stderr, done.stderr
    assert done.returncode == 0
    return done.stdout.rstrip("\n")


def exists(pid):
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def gone(pids):
    deadline = time.monotonic() + SECONDS
    while any(map(exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(exists, pids))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_order_from_other_processes(workers):
    found = alone(f"""
        def slow(first, stop):
            time.sleep(0.01 * (first % 3 == 0))
            return (first * first, os.getpid())
        results = list(in_order(slow, iter(spans), {workers}))
        assert [span for span, _ in results] == spans
        assert [square for _, (square, _) in results] == [i * i for i in range(50)]
        pids = {{pid for _, (_, pid) in results}}
        assert os.getpid() not in pids
        print(len(pids))
    """)
    assert int(found) == workers


def test_the_numbers_are_those_of_one_process():
    """Bit for bit, for sums of every kind and type, and whatever was merged before."""
    assert (
        alone("""
        import numpy as np
        from sdpa_check import engine
        from sdpa_check.measures.dot import DotWork
        from sdpa_check.measures.row_scores import RowsShape
        from sdpa_check.measures.rows import RowsWork
        from sdpa_check.records import Design
        assert forked.possible()
        engine.LONG = 0
        rows = RowsWork(Design(dk=8, keys=8), (0.3, 1.0), RowsShape(2, 4, 1))
        rows = rows.with_grids(np.random.default_rng(1))
        for work in (DotWork(Design(dk=8), 64), rows):
            for blocks in (3, 70, 600):
                one = engine.run(work, seed=1, blocks=blocks, jobs=1)
                with forked.Pool(2) as pool:
                    two = engine.run(work, seed=1, blocks=blocks, executor=pool)
                    assert pool.running
                    sent = engine.run(work, seed=1, blocks=blocks, executor=pool)
                assert one.sums.keys() == two.sums.keys()
                for name, each in one.sums.items():
                    assert each.dtype == two.sums[name].dtype, name
                    assert np.array_equal(each, two.sums[name]), name
                    assert np.array_equal(each, sent.sums[name]), name
        print(True)
    """)
        == "True"
    )


def test_a_short_run_is_not_forked():
    assert (
        alone("""
        from sdpa_check import engine
        from sdpa_check.measures.dot import DotWork
        from sdpa_check.records import Design
        with forked.Pool(2) as pool:
            engine.run(DotWork(Design(dk=4), 8), seed=1, blocks=4, executor=pool)
            before = pool.running
            engine.run(DotWork(Design(dk=64), 1024), seed=1, blocks=64, executor=pool)
            print(before, pool.running)
    """)
        == "False True"
    )


def test_no_more_processes_than_cores():
    assert (
        alone("""
        from sdpa_check import engine
        found = []
        for cores, jobs in ((3, None), (3, 1), (3, 2), (3, 1000), (1, None), (1, 2)):
            engine.available_cores = lambda: cores
            with engine.workers(jobs) as pool:
                found.append(pool and pool.count)
        print(found)
    """)
        == "[3, None, 2, 3, None, None]"
    )


def test_a_process_with_a_thread_is_not_forked():
    assert (
        alone("""
        import threading
        before, event = forked.possible(), threading.Event()
        thread = threading.Thread(target=event.wait)
        thread.start()
        during = forked.possible()
        from sdpa_check import engine
        with engine.workers(2) as pool:
            during |= pool is not None
        event.set()
        print(before, during)
    """)
        == "True False"
    )


def test_spans_are_taken_as_they_are_needed():
    """No more than a few results per worker wait for an earlier one."""
    found = alone("""
        taken = []
        def counted():
            for i in range(200):
                taken.append(i)
                yield (i, i + 1)
        def first_is_slow(first, stop):
            time.sleep(0.5 * (first == 0))
            return first
        results = in_order(first_is_slow, counted(), 2)
        next(results)
        print(len(taken))
        assert [r for _, r in results] == list(range(1, 200))
    """)
    assert int(found) <= 8  # 2 workers × forked.WAITING


def test_later_calls_are_made_when_a_series_leaves_room():
    """By the worker that has nothing left to do, and not before the series is given away."""
    assert (
        alone("""
        def plan(i):
            return i, os.getpid(), time.monotonic()
        def slow(first, stop):
            time.sleep(0.3 if first == 5 else 0.01)
            return os.getpid(), time.monotonic()
        with forked.Pool(2) as pool:
            plans = [pool.later(plan, i) for i in range(3)]
            found = [result for _, result in pool.in_order(slow, iter(spans[:6]))]
            planned = [plan() for plan in plans]
        assert [i for i, *_ in planned] == [0, 1, 2]
        (last, end), pids = found[5], {pid for pid, _ in found}
        assert {pid for _, pid, _ in planned} <= pids
        print(all(pid != last and at < end for _, pid, at in planned))
    """)
        == "True"
    )


def test_what_is_waited_for_comes_first():
    assert (
        alone("""
        def plan(i):
            time.sleep(0.05)
            return i, time.monotonic()
        with forked.Pool(1) as pool:
            plans = [pool.later(plan, i) for i in range(4)]
            third = plans[3]()
            others = [plan() for plan in plans]
        print(third[0], others[3] == third, all(third[1] < at for _, at in others[:3]))
    """)
        == "3 True True"
    )


def test_a_series_waits_for_workers_that_are_busy():
    assert (
        alone("""
        def plan():
            time.sleep(0.3)
        with forked.Pool(2) as pool:
            plans = [pool.later(plan) for _ in range(2)]
            pool._start()
            pool._supply_later()
            print([result["square"] for _, result in pool.in_order(square, iter(spans[:4]))])
    """)
        == "[0, 1, 4, 9]"
    )


def test_a_series_does_not_wait_for_what_is_for_later():
    assert (
        alone("""
        def plan():
            time.sleep(600)
        with forked.Pool(2) as pool:
            plan = pool.later(plan)
            for _ in range(2):  # in the second a worker is at the plan
                print(len(list(pool.in_order(square, iter(spans)))), len(pool._functions))
    """)
        == "50 1\n50 1"
    )


def test_a_series_that_is_left_early_leaves_the_pool_in_order():
    assert alone("""
        with forked.Pool(2) as pool:
            first = pool.in_order(square, iter(spans))
            assert next(first)[1] == {"square": 0}
            first.close()
            print(sum(result["square"] for _, result in pool.in_order(square, iter(spans))))
    """) == str(sum(i * i for i in range(50)))


def test_an_error_of_a_later_call_arrives_where_it_is_waited_for():
    assert alone("""
        from sdpa_check.errors import InputError
        def broken():
            raise InputError("--dk", 3, "another one", "try")
        with forked.Pool(2) as pool:
            plan = pool.later(broken)
            print(len(list(pool.in_order(square, iter(spans)))))
            try:
                plan()
            except InputError as error:
                print(error)
    """).splitlines() == ["50", "--dk: got 3, want another one; try"]


def test_what_cannot_be_sent_must_be_known_before():
    assert (
        alone("""
        with forked.Pool(1) as pool:
            list(pool.in_order(lambda first, stop: first, iter(spans)))
            try:
                pool.later(square, 1, 2)
            except RuntimeError as error:
                print(error)
    """)
        == "work for later must be known before processes are forked"
    )


def test_functions_and_results_of_any_size_travel():
    """Larger than a pipe holds, both ways at once: nobody waits for ever to write."""
    assert alone("""
        import numpy as np
        from functools import partial
        big = np.arange(1_000_000.0)
        with forked.Pool(2) as pool:
            list(pool.in_order(square, iter(spans)))
            total = 0.0
            for shift in (1, 2):
                add = partial(np.add, big + shift)
                for _, result in pool.in_order(add, iter([(i,) for i in range(12)])):
                    total += result[-1]
            print(total)
    """) == str(sum(999_999.0 + shift + i for shift in (1, 2) for i in range(12)))


def test_an_error_arrives_as_it_is():
    assert (
        alone("""
        from sdpa_check.errors import InputError
        def broken(first, stop):
            if first == 7:
                raise InputError("--dk", 3, "another one", "try")
            return first
        got = []
        try:
            for _, result in in_order(broken, iter(spans), 2):
                got.append(result)
        except InputError as error:
            print(got == list(range(len(got))) and len(got) <= 7, error)
    """)
        == "True --dk: got 3, want another one; try"
    )


def test_an_error_says_where_in_the_worker_it_was_raised():
    """``--debug`` shows the notes of an error below its traceback."""
    assert (
        alone("""
        from sdpa_check.errors import InputError
        class Odd(Exception):
            def __init__(self, a, b): super().__init__(a + b)
        for error in (ValueError("x"), InputError("x", "y", "z"), Odd("x", "y")):
            def broken_there(first, stop):
                raise error
            try:
                list(in_order(broken_there, iter(spans), 2))
            except Exception as error:
                (note,) = error.__notes__
                print(note.startswith("In a worker process") and "in broken_there" in note)
    """)
        == "True\nTrue\nTrue"
    )


def test_an_error_that_cannot_travel_is_told():
    assert (
        alone("""
        class Odd(Exception):
            def __init__(self, a, b): super().__init__(a + b)
        def broken(first, stop):
            raise Odd("so ", "odd")
        try:
            list(in_order(broken, iter(spans), 2))
        except RuntimeError as error:
            print(error)
    """)
        == "Odd: so odd"
    )


def test_a_killed_worker_ends_the_run():
    assert alone("""
        from sdpa_check.errors import LostWorkersError
        def killed(first, stop):
            if first == 9:
                os.kill(os.getpid(), signal.SIGKILL)
            return first
        try:
            list(in_order(killed, iter(spans), 2))
        except LostWorkersError as error:
            print(error)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("none left")
    """).splitlines() == [
        "a worker process was killed by signal 9; fewer --jobs take less memory",
        "none left",
    ]


def test_workers_end_with_the_generator():
    """Whether it is left early or an error comes from outside, though they sleep."""
    assert alone("""
        def sleepy(first, stop):
            time.sleep(60 * (first > 4))
            return first
        results = in_order(sleepy, iter(spans), 2)
        assert [next(results)[1] for _ in range(3)] == [0, 1, 2]
        results.close()
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("none left")
        print(len(os.listdir("/proc/self/fd")))
        forked_again = list(in_order(square, iter(spans), 2))
        print(len(os.listdir("/proc/self/fd")), len(forked_again))
    """).split() == ["none", "left", "4", "4", "50"]


def started(code):
    """A script that sleeps in two workers, and their process numbers."""
    process = subprocess.Popen(
        script(code),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    pids = [int(process.stdout.readline()) for _ in range(2)]
    assert all(map(exists, pids))
    return process, pids


SLEEPING = """
    def sleepy(first, stop):
        os.write(1, b"%d\\n" % os.getpid())
        time.sleep({seconds})
        return first
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        list(in_order(sleepy, iter(spans), 2))
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_workers_end_when_this_process_is_killed():
    process, pids = started(SLEEPING.format(seconds=1))
    process.kill()
    process.communicate(timeout=SECONDS)
    assert gone(pids)


def test_an_interrupt_of_the_whole_terminal_is_for_the_parent():
    process, pids = started(SLEEPING.format(seconds=600))
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (0, "interrupted\n", "")
    assert gone(pids)


def test_workers_plan_designs_and_the_rows_are_the_same():
    """Of several designs and a growth over them; a single design is planned by the parent."""
    assert (
        alone("""
        import sdpa_check
        from sdpa_check import engine, sampling
        engine.available_cores, engine.LONG = lambda: 2, 0
        planned = sampling.planned
        def told(*args):
            os.write(1, b"%d " % (os.getpid() == parent))
            return planned(*args)
        parent, sampling.planned = os.getpid(), told
        for dk in ([4, 8, 16], 8):
            two, one = (sdpa_check.variance(dk=dk, jobs=jobs) for jobs in (2, 1))
            os.write(1, b"%d | " % (two.rows == one.rows))
    """)
        == "0 0 0 1 1 1 1 | 1 1 1 | "
    )
