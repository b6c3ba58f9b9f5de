"""What a stopped run leaves: it comes back as it was, fits one run only, and is read with care."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import pytest

from sdpa_check import checkpoint, engine
from sdpa_check.checkpoint import FILE, Checkpoint, load
from sdpa_check.errors import InputError
from sdpa_check.measures.dot import DotWork
from sdpa_check.records import Design, Estimate, Fault, Outcome, Prediction, Row

WORK = DotWork(Design(dk=8), vectors=32)
LONG = 9 * engine.MAX_REPLICATES  # a replicate is nine blocks
MADE = {"command": "variance", "seed": 3, "dk": (8, 16), "alpha": 1e-6, "df": None}


@functools.cache
def states(blocks):
    """Every state of a run of `blocks` blocks."""
    found = [engine.State(blocks)]
    engine.run(WORK, seed=3, blocks=blocks, jobs=1, progress=found.append)
    return found


def sampled(blocks, merged):
    """The state of a run of `blocks` blocks after about `merged` of them."""
    return next(each for each in states(blocks) if each.merged >= merged)


def row(value=1.5):
    return Row(
        id="A-1",
        quantity="dot.variance",
        params={"dk": 8, "scale": None},
        estimate=Estimate(value=value, se=0.1, lo=1.3, hi=1.7, level=0.95, blocks=64, samples=4096),
        prediction=Prediction(value=1 / 3, kind="stated", source="stated", relation="at least"),
        verdict=Outcome.CONFIRMED,
        expected=Outcome.CONFIRMED,
        reason="‖J‖ is small",
    )


def filled():
    found = Checkpoint("--resume goes on")
    found.fit(MADE)
    for name, blocks, merged in (("done", 40, 40), ("begun", LONG, 300), ("untouched", 10, 0)):
        found.start(name, WORK, blocks)
        found.note(name, sampled(blocks, merged))
    found.rows = {4: row(), 7: dataclasses.replace(row(), estimate=None)}
    return found


@pytest.fixture
def file(tmp_path):
    path = tmp_path / FILE
    path.write_bytes(filled().dumps())
    return path


def same(a, b):
    assert (a.blocks, a.merged) == (b.blocks, b.merged)
    for one, other in ((a.begun, b.begun), (a.replicates().sums, b.replicates().sums)):
        assert one.keys() == other.keys()
        for name, each in one.items():
            np.testing.assert_array_equal(each, other[name], strict=True)


def test_there_and_back(file):
    found = load(file, "go on")
    assert (found.advice, found.stopped, found.empty) == ("go on", False, False)
    assert set(found.entries) == {"done", "begun"}  # of the third nothing was sampled
    assert found.rows == filled().rows
    same(found.entries["done"].state, sampled(40, 40))
    same(found.entries["begun"].state, sampled(LONG, 300))
    found.fit(MADE)
    assert found.start("begun", WORK, LONG).merged == 305  # eight blocks and one at a time


def test_what_comes_back_can_be_gone_on_from(file):
    start = load(file).start("begun", WORK, LONG)
    found = engine.run(WORK, seed=3, blocks=LONG, jobs=2, start=start)
    whole = engine.run(WORK, seed=3, blocks=LONG, jobs=1)
    for name, each in whole.sums.items():
        np.testing.assert_array_equal(found.sums[name], each, strict=True)


def test_equal_states_are_equal_bytes(file):
    assert file.read_bytes() == filled().dumps() == load(file).dumps()


def test_a_row_that_is_not_finite_is_made_again(tmp_path):
    found = filled()
    found.rows[9] = row(math.inf)
    path = tmp_path / FILE
    path.write_bytes(found.dumps())
    assert set(load(path).rows) == {4, 7}


def test_a_new_one_is_empty_until_a_block_is_merged():
    found = Checkpoint()
    assert found.empty
    found.start("a", WORK, 40)
    assert found.empty
    found.note("a", sampled(40, 1))
    assert not found.empty


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("seed", 4),
        ("dk", [8]),
        ("alpha", 1e-5),
        ("df", 3.0),
        ("command", "saturation"),
        ("numpy", "0.0"),  # unknown to the one that was stopped
    ],
)
def test_another_run_is_refused_by_name(file, name, now):
    with pytest.raises(InputError, match="as in the run that was stopped") as caught:
        load(file).fit(MADE | {name: now})
    assert caught.value.where == f"--resume: {name}"
    assert caught.value.got == now


def test_other_checks_are_refused_in_words():
    found = Checkpoint()
    found.fit(MADE | {"checks": "dd20dd54ba02"})
    with pytest.raises(InputError) as caught:
        found.fit(MADE | {"checks": "b65915f834e7"})
    assert str(caught.value) == (
        "--resume: checks: got 'other claims or parameters', want the same ones, as in the run "
        "that was stopped; without --resume a new run begins"
    )


@pytest.mark.parametrize(
    ("work", "blocks", "where"),
    [
        (WORK, LONG + 1, "blocks of begun"),
        (dataclasses.replace(WORK, vectors=64), LONG, "work of begun"),
        (dataclasses.replace(WORK, fault=Fault(sample_scale=1.03)), LONG, "work of begun"),
    ],
)
def test_another_sampling_is_refused(file, work, blocks, where):
    with pytest.raises(InputError) as caught:
        load(file).start("begun", work, blocks)
    assert caught.value.where == f"--resume: {where}"


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        load(tmp_path / FILE)


@pytest.mark.parametrize("content", [b"", b"PK", b"nonsense", b"\x93NUMPY\x01\x00"])
def test_another_file(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InputError, match="that sdpa-check wrote"):
        load(tmp_path / FILE)


def test_a_damaged_file_is_refused_or_means_the_same(file):
    """One byte of each hundredth of the file is turned over; a zip archive has check sums."""
    good, names = file.read_bytes(), set(load(file).entries)
    refused = 0
    for at in range(0, len(good), max(1, len(good) // 100)):
        bad = bytearray(good)
        bad[at] ^= 0xFF
        file.write_bytes(bad)
        try:
            assert set(load(file).entries) == names
        except InputError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    "change",
    [
        {"header": None},
        {"header": "[]"},
        {"header": '{"schema": "sdpa-check/partial/0"}'},
        {"0/sums/power2": np.zeros(3)},
        {"1/sums/power2": None, "1/sums/pairs": np.zeros(2)},
    ],
)
def test_parts_that_do_not_fit_are_refused(file, change):
    with np.load(file) as arrays:
        parts = dict(arrays)
    for name, value in change.items():
        parts.pop(name)
        if value is not None:
            parts[name] = np.asarray(value)
    np.savez(file, **parts)
    with pytest.raises(InputError):
        load(file)


def test_a_file_without_the_sums_of_a_sampling_is_refused(file):
    with np.load(file) as arrays:
        parts = {name: each for name, each in arrays.items() if not name.startswith("0/")}
    np.savez(file, **parts)
    with pytest.raises(InputError):
        checkpoint.load(file)
