"""Quantities of training: estimates from sums made by hand, and the sampling that feeds them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_check import engine, experiment, sampling
from sdpa_check.checks import Check, Settings
from sdpa_check.engine import Replicates
from sdpa_check.errors import InputError
from sdpa_check.logits import scaling
from sdpa_check.quantities import Case, Sample, quantity, training
from sdpa_check.records import Design, Fault
from sdpa_check.theory.saturation import gaussian_rows
from sdpa_check.training.measures import FINAL, TrainWork
from sdpa_check.training.model import Task
from sdpa_check.training.start import StartWork

SEEDS = 12
DESIGN = Design(dk=4, keys=16)
DIFFERENCE, START, START_ROW = training.DIFFERENCE, training.START, training.START_ROW


def case(scale="none", design=DESIGN, d_model=8, **inputs):
    return Case(
        designs=(design,),
        scale=scaling.parse(scale),
        d_model=d_model,
        inputs={"lr": 1.0, "steps": 3} | inputs,
    )


def check(name, asked, id_="", **fields):
    return Check(id=id_ or name, quantity=name, case=asked, **fields)


@pytest.fixture
def sample():
    """Three settings on `SEEDS` seeds, whose losses share most of their spread."""
    trials = tuple(
        training.trial(each, c)
        for each, c in ((case(), 1.0), (case("sqrt"), 0.5), (case("sqrt", warmup=2), 0.5))
    )
    random = np.random.default_rng(0)
    common = random.standard_normal((SEEDS, 1))
    losses = common + [3.0, 2.0, 1.0] + 0.01 * random.standard_normal((SEEDS, 3))
    return Sample(work=TrainWork(trials), replicates=Replicates({FINAL: losses}, SEEDS))


def losses_of(sample):
    return sample.replicates.sums[FINAL]


@pytest.mark.parametrize(
    ("asked", "index"), [(case(), 0), (case("sqrt"), 1), (case("sqrt", warmup=2), 2)]
)
def test_a_final_loss_is_the_mean_over_the_seeds_of_its_setting(sample, asked, index):
    found = quantity(FINAL).estimate(asked, (sample,))
    own = losses_of(sample)[:, index]
    assert found.value == pytest.approx(own.mean(), rel=1e-12)
    assert found.se == pytest.approx(own.std(ddof=1) / math.sqrt(SEEDS), rel=1e-12)
    assert (found.blocks, found.samples) == (SEEDS, SEEDS)


@pytest.mark.parametrize(
    ("asked", "first", "other"),
    [
        (case(versus_scale="sqrt"), 0, 1),
        (case(versus_scale="sqrt", versus_warmup=2), 0, 2),
        (case("sqrt", warmup=2, versus_warmup=0), 2, 1),
    ],
)
def test_a_difference_has_the_error_of_its_pairs(sample, asked, first, other):
    found = quantity(DIFFERENCE).estimate(asked, (sample,))
    pairs = losses_of(sample)[:, first] - losses_of(sample)[:, other]
    assert found.value == pytest.approx(pairs.mean(), rel=1e-12)
    assert found.se == pytest.approx(pairs.std(ddof=1) / math.sqrt(SEEDS), rel=1e-9)
    assert found.se < 0.1 * quantity(FINAL).estimate(case(), (sample,)).se


def test_a_seed_that_diverged_withholds_the_error_of_what_reads_it(sample):
    losses_of(sample)[3, 1] = math.inf
    found = quantity(DIFFERENCE).estimate(case(versus_scale="sqrt"), (sample,))
    assert found.se is None
    assert found.withheld == f"not available (1 of {SEEDS} seeds diverged)"
    assert quantity(FINAL).estimate(case(), (sample,)).se is not None


def test_the_other_training_is_what_versus_says():
    asked = case("none", warmup=5, versus_scale=0.25, versus_lr=2.0)
    first, other = training.pair(asked)
    assert first == case("none", warmup=5)
    assert other == case("0.25", warmup=5, lr=2.0)
    with pytest.raises(InputError, match="versus_scale"):
        training.pair(case(versus_scale="sqtr"))


def test_start_losses_are_means_over_layers():
    """Blocks hold means: two blocks in every replicate must be divided by their number."""
    work = StartWork(Task(dk=4, dmodel=8, keys=16), (0.5, 1.0))
    blocks = 2 * engine.MAX_REPLICATES
    found = engine.run(work, seed=2, blocks=blocks, jobs=1)
    assert found.count == blocks // 2
    for name, key in ((START, "prediction"), (START_ROW, "row")):
        for index, multiplier in enumerate(work.multipliers):
            one = Sample(work=work, replicates=found, multiplier=multiplier)
            estimate = quantity(name).estimate(case(), (one,))
            mean = found.sums[key][:, index].mean() / 2
            assert estimate.value == pytest.approx(mean, rel=1e-12)
            assert estimate.samples == blocks * 16


def test_predictions_are_those_of_a_new_layer_and_none_of_a_trained_one():
    exact = quantity(START_ROW).predict(case("sqrt"))
    row = gaussian_rows(dk=4, keys=16, multiplier=0.5)
    assert (exact.kind, exact.value) == ("exact", row.log_partition)
    limit = quantity(START).predict(case("sqrt"))
    assert (limit.kind, limit.value) == ("limit", math.log(16))
    for name in (FINAL, DIFFERENCE):
        assert quantity(name).predict(case()).kind == "none"
        assert quantity(name).predict(case()).source.startswith("measured only: ")


def test_a_layer_is_64_wide_or_as_wide_as_d_k():
    widths = [
        training.task(case(design=Design(dk=d, keys=16), d_model=None)).dmodel for d in (4, 99)
    ]
    assert widths == [64, 99]
    with pytest.raises(InputError, match="a width of at least d_k = 9"):
        training.task(case(design=Design(dk=9, keys=16)))


def test_settings_of_one_task_are_trained_together_on_a_fixed_number_of_seeds():
    """Neither a wanted number of samples nor the company of a check changes its number."""
    checks = [
        check(FINAL, case()),
        check(DIFFERENCE, case(versus_scale="sqrt")),
        check(FINAL, case(steps=2), "short"),
    ]
    rows, samples = experiment.run(checks, Settings(jobs=1))
    kinds = {"train d_model=8 steps=3", "train d_model=8 steps=2"}
    assert {key[0] for key in samples} == kinds
    assert {s.replicates.blocks for s in samples.values()} == {sampling.SEEDS}
    assert len(samples["train d_model=8 steps=3", DESIGN].work.trials) == 2
    (alone,), _ = experiment.run(checks[:1], Settings(jobs=1, samples=10**6))
    assert alone.estimate == rows[0].estimate
    assert alone.params == {
        "dk": 4,
        "keys": 16,
        "scale": "none",
        "multiplier": 1.0,
        "lr": 1.0,
        "steps": 3,
    }


def test_a_planted_scale_reaches_both_trainings():
    """With the fault every layer is scaled alike, so that nothing is left of the difference."""
    asked = check(DIFFERENCE, case(versus_scale="sqrt"))
    rows, _ = experiment.run([asked], Settings(jobs=1))
    assert rows[0].estimate.value != 0
    rows, samples = experiment.run([asked], Settings(jobs=1, fault=Fault(scale="dk")))
    (sample,) = samples.values()
    assert {each.multiplier for each in sample.work.trials} == {0.25}
    assert rows[0].estimate.value == 0


def test_the_row_starts_at_the_log_partition_and_a_planted_scale_is_refuted():
    """N · d_model is large enough here for the target's key to be lost in a band of 2 %.

    A false verdict has a probability of 1e-6, an open one of 1e-3; the seed is fixed.
    """
    asked = case("none", Design(dk=16, keys=64), d_model=None)
    one = check(START_ROW, asked, tolerance=0.02)
    (row,), _ = experiment.run([one], Settings(jobs=1))
    assert str(row.verdict) == "confirmed", row.reason
    (row,), _ = experiment.run([one], Settings(jobs=1, fault=Fault(scale="sqrt")))
    assert str(row.verdict) == "refuted", row.reason
