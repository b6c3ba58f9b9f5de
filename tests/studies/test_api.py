"""The Python API returns the records that the commands print."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import sdpa_check
from sdpa_check.cli import run as command
from sdpa_check.errors import InputError
from sdpa_check.records import SCHEMA, Run
from sdpa_check.report.record import to_dict
from sdpa_check.rng import GENERATOR

QUICK = {"dk": 4, "dist": "rademacher", "samples": 4096}


def numbers(run: Run):
    """The record without the block that may differ between equal runs."""
    return {key: value for key, value in to_dict(run).items() if key != "environment"}


class TestNames:
    def test_every_public_name_is_there(self):
        for name in sdpa_check.__all__:
            assert getattr(sdpa_check, name) is not None

    def test_an_unknown_name_is_an_attribute_error(self):
        with pytest.raises(AttributeError, match="'sdpa_check' has no attribute 'variances'"):
            sdpa_check.variances  # noqa: B018
        with pytest.raises(ImportError, match="variances"):
            exec("from sdpa_check import variances")  # noqa: S102, an import that fails

    def test_importing_the_package_loads_nothing(self):
        code = (
            "import sys, sdpa_check; "
            "print(sorted(name for name in sys.modules if name.startswith('sdpa_check')), "
            "'numpy' in sys.modules); sdpa_check.variance; print('numpy' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        assert done.stdout.decode().splitlines() == ["['sdpa_check'] False", "True"]


class TestRun:
    @pytest.mark.parametrize("study", [sdpa_check.variance, sdpa_check.saturation])
    def test_a_study_returns_a_run(self, study):
        run = study(**QUICK, seed=11)
        assert isinstance(run, Run)
        assert run.command == study.__name__
        assert run.version == sdpa_check.__version__
        assert (run.seed, run.generator) == (11, GENERATOR)
        assert run.rows
        assert {"python", "numpy", "platform", "started", "seconds"} <= set(run.environment)
        assert to_dict(run)["schema"] == SCHEMA

    @pytest.mark.parametrize(
        ("study", "options", "line"),
        [
            (
                sdpa_check.variance,
                {"dk": [4, 8], "dist": "t", "df": 9, "sigma_k": 2.0, "tolerance": 0.05},
                "variance --dk 4,8 --dist t --df 9 --sigma-k 2 --tolerance 5%",
            ),
            (
                sdpa_check.saturation,
                {"dk": 4, "keys": [2, 8], "scale": ["none", 0.25], "corr": "equi:0.5"},
                "saturation --dk 4 --keys 2 --keys 8 --scale none,0.25 --corr equi:0.5",
            ),
        ],
    )
    def test_it_is_the_record_that_the_command_prints(self, capsys, study, options, line):
        line += " --samples 2048 --seed 5 --no-save --format json"
        command(line.split())
        printed = json.loads(capsys.readouterr().out)
        printed.pop("environment")
        assert numbers(study(samples=2048, seed=5, **options)) == printed

    def test_the_executor_does_not_change_the_numbers(self):
        with ThreadPoolExecutor(2) as executor:
            there = sdpa_check.variance(**QUICK, executor=executor)
        assert numbers(there) == numbers(sdpa_check.variance(**QUICK))

    def test_progress_is_reported(self):
        seen = []
        sdpa_check.variance(**QUICK, progress=lambda *step: seen.append(step))
        assert {label for label, *_ in seen} == {"d_k=4"}
        assert seen[-1][1] == seen[-1][2]

    def test_a_precision_is_reached(self, row):
        run = sdpa_check.variance(dk=64, precision=0.004)
        found = row(run, "dot.variance")
        # planned with two standard errors to spare: short of it with probability about 0.02, and
        # never by more than the tenth that the pilot's own error amounts to
        assert found.estimate.se / found.prediction.value < 1.1 * 0.004


class TestInputs:
    """What Python code may pass, and what it may not."""

    @pytest.mark.parametrize("dk", [4, [4], (4, 4), np.int64(4), np.array([4]), range(4, 5)])
    def test_integers_of_every_kind(self, dk):
        run = sdpa_check.variance(**QUICK | {"dk": dk})
        assert run.design["dk"] == [4]
        assert type(run.design["dk"][0]) is int

    @pytest.mark.parametrize("dk", [0, 16385, 4.0, "4", True, None, [], [4, 0], [4.5]])
    def test_what_is_no_d_is_refused(self, dk):
        with pytest.raises(InputError, match="--dk"):
            sdpa_check.variance(**QUICK | {"dk": dk})

    @pytest.mark.parametrize("scale", ["dk", ["dk"], ("dk", "dk")])
    def test_scales(self, scale):
        assert sdpa_check.variance(**QUICK, scale=scale).design["scale"] == ["dk"]

    def test_a_number_is_a_scale(self, row):
        run = sdpa_check.variance(**QUICK, scale=[0.5, 2])
        assert row(run, "logit.std", scale="0.5").params["multiplier"] == 0.5
        assert row(run, "logit.std", scale="2.0").params["multiplier"] == 2.0

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("scale", []),
            ("scale", "sqrt_dmodel"),
            ("dmodel", 0),
            ("seed", -1),
            ("seed", 1.0),
            ("jobs", 0),
            ("samples", 63),
            ("samples", 1e4),
            ("precision", 0.0),
            ("precision", 2.0),
            ("tolerance", float("nan")),
            ("sigma", 0.0),
            ("sigma", 1e7),
            ("sigma_k", float("inf")),
            ("mean", float("nan")),
            ("dist", "normal"),
            ("df", 3.0),
            ("corr", "ar1"),
        ],
    )
    def test_what_cannot_be_used_is_refused(self, option, value):
        with pytest.raises(InputError):
            sdpa_check.variance(**QUICK | {option: value})

    def test_a_misspelt_option_is_not_ignored(self):
        with pytest.raises(InputError, match="did you mean 'sigma'"):
            sdpa_check.variance(**QUICK, sigme=2.0)

    def test_the_limits_themselves_are_fine(self):
        run = sdpa_check.variance(dk=[1, 16384], dist="rademacher", samples=64, seed=2**63 - 1)
        assert run.design["dk"] == [1, 16384]

    def test_numbers_that_are_equal_give_equal_runs(self):
        whole = sdpa_check.variance(dk=4, samples=4096, dist="t", df=9, sigma=2, mean_k=-0.0)
        broken = sdpa_check.variance(dk=4, samples=4096, dist="t", df=9.0, sigma=2.0, mean_k=0)
        assert numbers(whole) == numbers(broken)

    def test_at_most_64_designs(self):
        with pytest.raises(InputError, match="at most 64 designs"):
            sdpa_check.variance(dk=range(1, 66), samples=64)
