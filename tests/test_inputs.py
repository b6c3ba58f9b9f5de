"""What the Python API refuses: each value of another type with a message that names its option."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pytest

import sdpa_check
from sdpa_check.checkpoint import Checkpoint
from sdpa_check.errors import InputError
from sdpa_check.inputs import Options, resolve
from sdpa_check.records import Fault

NOTHING = [None, [], {}, object(), b"1"]

KINDS = {
    ("dist", "--dist", "a text"): [3, *NOTHING],
    ("corr", "--corr", "a text"): [5, ["none"], *NOTHING],
    ("cluster", "--cluster", "tcp://host:port"): [5, *NOTHING[1:]],
    ("df", "--df", "a number"): ["5", 5j, True, 10**400, *NOTHING[1:]],
    ("standardize", "--standardize", "True or False"): ["yes", 1, *NOTHING],
    ("sigma", "--sigma", "a number from"): ["a", 1j, True, 10**400, Decimal(1), *NOTHING],
    ("sigma_k", "--sigma-k", "a number from"): ["1", 1j, *NOTHING[1:]],
    ("mean", "--mean", "a number from"): ["1", 1j, *NOTHING],
    ("mean_k", "--mean-k", "a number from"): ["1", 1j, *NOTHING[1:]],
    ("dmodel", "--dmodel", "an integer from 1"): ["8", [8], 8.5, True, *NOTHING[1:]],
    ("precision", "--precision", "a fraction from"): ["1%", 1j, *NOTHING[1:]],
    ("tolerance", "--tolerance", "a fraction from"): ["1%", 1, True, *NOTHING],
    ("samples", "--samples", "an integer from 64"): ["1e6", 1e30, 100.5, *NOTHING[1:]],
    ("seed", "--seed", "an integer from 0"): ["0", 0.5, *NOTHING],
    ("jobs", "--jobs", "an integer from 1"): ["2", 1.5, *NOTHING[1:]],
    ("fault", "fault", "a sdpa_check.Fault"): [3, "dk", *NOTHING[1:]],
    ("progress", "progress", "a function of"): [5, "bar", *NOTHING[1:]],
    ("executor", "executor", "a concurrent.futures.Executor"): [3, *NOTHING[1:]],
    ("checkpoint", "checkpoint", "a sdpa_check.checkpoint"): [3, *NOTHING[1:]],
}
"""(option, where its error is, the beginning of what it wants): values of another type."""


@pytest.mark.parametrize(
    ("kind", "value"), [(kind, value) for kind, values in KINDS.items() for value in values]
)
def test_values_of_another_type(kind, value):
    option, where, want = kind
    with pytest.raises(InputError) as raised:
        resolve({option: value})
    assert (raised.value.where, raised.value.got) == (where, value)
    assert raised.value.want.startswith(want)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sdpa_check.ledger(3), "--pipeline: got 3, want a text of steps"),
        (lambda: sdpa_check.ledger(["scale:sqrt", None]), "--pipeline: got None, want a text"),
        (lambda: sdpa_check.verify(3), "FILE: got 3, want the path of a TOML file"),
        (lambda: sdpa_check.verify(select=5), "--select: got 5, want a claim's id"),
        (lambda: sdpa_check.verify(ignore=[5]), "--ignore: got 5, want a claim's id"),
        (lambda: sdpa_check.verify(select="B-99"), "--select: got 'B-99', want"),  # not a letter
        (lambda: sdpa_check.compare("a", "b"), "OLD: got 'a', want a run"),
        (
            lambda: sdpa_check.diagnose(np.ma.array([1.0, 2.0], mask=[0, 1])),
            "x: got 'a masked array', want plain numbers; compressed()",
        ),
    ],
)
def test_arguments_of_another_type(call, said):
    with pytest.raises(InputError) as raised:
        call()
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(scale=3), "fault: scale: got 3, want a text"),
        (Fault(scale="foo"), "fault: scale: got 'foo', want one of"),
        (Fault(sample_scale="x"), "fault: sample_scale: got 'x', want a number"),
        (Fault(sample_scale=float("nan")), "fault: sample_scale: got nan, want a number"),
    ],
)
def test_what_a_fault_holds(fault, said):
    with pytest.raises(InputError, match=said):
        resolve({"fault": fault})


def test_t_without_its_degrees_of_freedom():
    with pytest.raises(InputError, match="--df is missing, for example --df 5"):
        resolve({"dist": "t"})


@pytest.mark.parametrize("value", ["64", b"64", None, 4.5, [64, "8"], np.array(64), object()])
def test_a_dk_of_another_type(value):
    with pytest.raises(InputError, match=r"--dk: got .*, want an integer from 1") as raised:
        resolve({}).designs(value)
    assert raised.value.got == ("8" if isinstance(value, list) else value)


@pytest.mark.parametrize("value", [None, 3 + 2j, True, b"sqrt", object()])
def test_a_scale_of_another_type(value):
    for given in (value, ["sqrt", value]):
        with pytest.raises(InputError, match=r"--scale: got .*, want the name of a rule") as raised:
            resolve({}).scalings(given)
        assert raised.value.got == value


def test_a_float_for_an_integer_is_told_how_to_write_it():
    with pytest.raises(InputError, match=r"--samples: got 1000000\.0, .*; write 1000000$"):
        resolve({"samples": 1e6})
    with pytest.raises(InputError, match=r"want an integer from 64 to 10*$"):
        resolve({"samples": 1e30})


def test_a_fraction_is_below_1():
    with pytest.raises(InputError, match="a fraction from 1e-7 to below 1"):
        resolve({"tolerance": 1.0})
    assert resolve({"tolerance": 0.999, "precision": 1e-7}).settings.tolerance == 0.999


def test_numbers_of_numpy_become_those_of_python():
    options: Options = {
        "dist": "t",
        "df": np.int64(5),
        "sigma": np.float32(0.5),
        "mean": np.int16(1),
        "dmodel": np.int64(8),
        "tolerance": np.float32(0.5),
        "samples": np.uint32(64),
    }
    found = resolve(options)
    component = found.query
    numbers = (component.df, component.sigma, component.mean, found.settings.tolerance)
    assert numbers == (5.0, 0.5, 1.0, 0.5)
    assert {type(number) for number in numbers} == {float}
    assert {type(found.dmodel), type(found.settings.samples)} == {int}
    rules = found.scalings(np.array([0.5, 2])) + found.scalings(np.float32(0.25))
    assert [rule.coefficient for rule in rules] == [0.5, 2, 0.25]


def test_what_is_of_the_right_type_is_kept():
    def progress(*_: object) -> None:
        raise AssertionError

    checkpoint, fault = Checkpoint(), Fault(sample_scale=-1.5, scale="dk")
    with ThreadPoolExecutor(1) as executor:
        options: Options = {
            "progress": progress,
            "executor": executor,
            "checkpoint": checkpoint,
            "fault": fault,
        }
        found = resolve(options).settings
        assert found.progress is progress
        assert (found.executor, found.checkpoint, found.fault) == (executor, checkpoint, fault)
