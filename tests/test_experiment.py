"""From checks to rows: one sampling per design, a planned size, and faults that are found."""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor

import pytest

import sdpa_check
from sdpa_check import checkpoint, engine, experiment, planning, power, sampling, works
from sdpa_check.checks import Check, Settings
from sdpa_check.claims import registry
from sdpa_check.errors import InputError
from sdpa_check.logits import scaling
from sdpa_check.quantities import Case, Sample
from sdpa_check.records import Component, Design, Fault, Outcome
from sdpa_check.studies.verify import _checks

DOT, ROWS = Design(dk=16), Design(dk=16, keys=8)
SQRT, NONE = scaling.parse("sqrt"), scaling.parse("none")


def check(name, design=DOT, id_="", **kwargs):
    """A check whose keywords that a case knows go to the case."""
    fields = {f.name for f in dataclasses.fields(Case)}
    asked = {k: kwargs.pop(k) for k in list(kwargs) if k in fields}
    designs = asked.pop("designs", (design,))
    return Check(id=id_ or name, quantity=name, case=Case(designs=designs, **asked), **kwargs)


def small(**kwargs):
    return Settings(jobs=1, samples=5000, **kwargs)


DOT_CHECKS = [
    *(check(n) for n in ("dot.mean", "dot.variance", "dot.std", "dot.excess_kurtosis", "dot.iqr")),
    check("dot.quantile", level=0.9),
    check("logit.variance", scale=SQRT),
    check("logit.std", scale=NONE),
]
ROW_CHECKS = [
    check("softmax.entropy", ROWS, scale=SQRT),
    check("softmax.entropy", ROWS, "entropy, none", scale=NONE),
    check("jacobian.frobenius", ROWS, scale=SQRT),
    check("jacobian.trace", ROWS, scale=NONE, statistic="median"),
]
SWEEP = check("dot.variance_exponent", designs=(DOT, Design(dk=64)))


@pytest.fixture
def samplings(monkeypatch):
    """The work of every call of the engine."""
    made, run = [], engine.run

    def spy(work, **kwargs):
        made.append(work)
        return run(work, **kwargs)

    monkeypatch.setattr(engine, "run", spy)
    return made


def test_one_sampling_serves_every_check_of_a_design(samplings):
    rows, samples = experiment.run([*DOT_CHECKS, *ROW_CHECKS, SWEEP], small())
    assert len(samplings) == 3
    assert len({work.experiment for work in samplings}) == 3
    assert set(samples) == {("dot", DOT), ("dot", Design(dk=64)), ("rows", ROWS)}
    assert [row.id for row in rows] == [c.id for c in (*DOT_CHECKS, *ROW_CHECKS, SWEEP)]
    (rows_work,) = (work for work in samplings if work.design == ROWS)
    assert rows_work.multipliers == (0.25, 1.0)


def test_a_planned_run_draws_a_pilot_of_its_own(samplings):
    experiment.run([check("dot.variance")], Settings(jobs=1, tolerance=0.1))
    pilot, main = samplings
    assert (pilot.stream, main.stream) == ("pilot", "main")
    assert pilot.experiment != main.experiment


@pytest.mark.parametrize("checks", [DOT_CHECKS, ROW_CHECKS, [*DOT_CHECKS, *ROW_CHECKS, SWEEP]])
def test_selecting_fewer_checks_changes_nothing(checks):
    """With the same population every row is the same alone and among others."""
    settings = small(seed=4)
    together, _ = experiment.run(checks, settings)
    for chosen, row in list(zip(checks, together, strict=True))[::3]:
        (alone,), samples = experiment.run([chosen], settings, population=checks)
        assert alone == row
        assert set(samples) == works.keys(chosen)  # and nothing else was drawn


def test_selecting_fewer_checks_plans_for_all_of_them():
    """The kurtosis asks for more blocks than the variance: so does the variance beside it."""
    variance, kurtosis = check("dot.variance"), check("dot.excess_kurtosis")
    (alone,), _ = experiment.run([variance], Settings(), population=[variance, kurtosis])
    together, _ = experiment.run([variance, kurtosis], Settings())
    (other,), _ = experiment.run([variance], Settings())
    assert alone == together[0]
    assert alone.estimate.samples > other.estimate.samples


def test_the_order_of_checks_does_not_matter():
    forwards, _ = experiment.run(ROW_CHECKS, small())
    backwards, _ = experiment.run(ROW_CHECKS[::-1], small())
    assert forwards == backwards[::-1]


def test_more_checks_make_every_interval_wider():
    asked = check("dot.variance")
    (one,), _ = experiment.run([asked], small())
    (many,), _ = experiment.run([asked], small(), population=[asked] * 1000)
    assert one.estimate == many.estimate
    assert many.detectable > one.detectable


@pytest.mark.parametrize("checks", [DOT_CHECKS, ROW_CHECKS])
def test_jobs_and_executors_change_nothing(checks):
    one, _ = experiment.run(checks, small())
    two, _ = experiment.run(checks, dataclasses.replace(small(), jobs=2))
    with ThreadPoolExecutor(3) as pool:
        three, _ = experiment.run(checks, dataclasses.replace(small(), executor=pool))
    assert one == two == three


def test_seeds_change_the_numbers():
    values = {
        experiment.run([check("dot.variance")], small(seed=seed))[0][0].estimate.value
        for seed in range(5)
    }
    assert len(values) == 5


@pytest.mark.parametrize("samples", [64, 1000, 10**5])
def test_samples_are_drawn_as_asked(samples):
    for asked in (check("dot.variance"), check("softmax.entropy", ROWS, scale=SQRT)):
        (row,), _ = experiment.run([asked], Settings(jobs=1, samples=samples))
        assert samples <= row.estimate.samples < 4 * max(samples, 256)
        assert row.estimate.blocks >= power.MIN_BLOCKS


@pytest.mark.parametrize("design", [DOT, Design(dk=16, key=Component(mean=1.0)), ROWS])
def test_a_planned_run_confirms_what_is_true(design):
    """The plan leaves a check inconclusive with probability β = 1e-3; fixed seed."""
    if design.keys is None:
        names = ("dot.mean", "dot.variance", "dot.std", "dot.iqr")
        checks = [check(name, design) for name in names]
    else:
        checks = ROW_CHECKS[:3]
    rows, _ = experiment.run(checks, Settings(seed=2, tolerance=0.03))
    assert {row.verdict for row in rows} == {Outcome.CONFIRMED}


@pytest.mark.parametrize("precision", [0.01, 0.003])
def test_a_wanted_precision_is_reached(precision):
    """The pilot adds half again as many blocks; the error of the error over 64 blocks is 9 %."""
    for seed in range(3):
        rows, _ = experiment.run(
            [check("dot.variance"), check("dot.mean")], Settings(seed=seed, precision=precision)
        )
        assert rows[0].estimate.se / rows[0].prediction.value < 1.3 * precision
        assert rows[1].estimate.se / 4 < 1.3 * precision  # of a mean: relative to the std of s


def test_a_plan_is_bounded(monkeypatch):
    """What would cost too much is cut short, ends inconclusive and says what it needs."""
    monkeypatch.setattr(planning, "WORK_LIMIT", 1.0)
    (row,), _ = experiment.run([check("dot.variance")], Settings(jobs=1, tolerance=1e-4))
    assert row.estimate.blocks == power.MIN_BLOCKS
    assert row.verdict is Outcome.INCONCLUSIVE
    assert "times the samples" in row.reason


def test_a_follower_asks_for_a_multiple_at_most(monkeypatch):
    """The kurtosis at d = 1 would need thousands of blocks where the variance needs few.

    Planned by pilots of one length and at one false-alarm probability of each check.
    """
    design = Design(dk=1)
    monkeypatch.setattr(planning, "PILOT_BLOCKS", 64)

    def blocks(*names, alpha):
        checks = [check(name, design) for name in names]
        _, samples = experiment.run(checks, Settings(tolerance=0.01, alpha=alpha))
        return samples["dot", design].replicates.blocks

    lead = blocks("dot.variance", alpha=0.5e-6)
    assert power.MIN_BLOCKS < lead < engine.MAX_REPLICATES
    both = blocks("dot.variance", "dot.excess_kurtosis", alpha=1e-6)
    assert both == engine.whole(8 * lead)


def test_progress_is_reported_per_design():
    seen = []
    settings = small(progress=lambda label, done, total, _: seen.append((label, done, total)))
    experiment.run([check("dot.variance"), ROW_CHECKS[0]], settings)
    labels = [label for label, _, _ in seen]
    assert list(dict.fromkeys(labels)) == ["d_k=16", "d_k=16, m=8"]
    for label in set(labels):
        counts = [(done, total) for name, done, total in seen if name == label]
        assert counts == sorted(counts)
        assert counts[-1][0] == counts[-1][1]


def test_a_stated_number_replaces_the_prediction():
    wrong = check("dot.variance", stated=(20.0,), expected=Outcome.REFUTED)
    right = check("dot.variance", stated=(20.0,), band=10.0)
    rows, _ = experiment.run([wrong, right], Settings(jobs=1, samples=10**6))
    assert [row.verdict for row in rows] == [Outcome.REFUTED, Outcome.CONFIRMED]
    assert [row.expected for row in rows] == [Outcome.REFUTED, Outcome.CONFIRMED]
    assert [row.tolerance for row in rows] == pytest.approx([0.2, 10.0])
    assert {(row.prediction.value, row.prediction.kind) for row in rows} == {(20.0, "stated")}


@pytest.mark.parametrize(
    ("stated", "relation", "outcome"),
    [
        (14.0, "at least", Outcome.CONFIRMED),
        (18.0, "at least", Outcome.REFUTED),
        (18.0, "at most", Outcome.CONFIRMED),
        (14.0, "at most", Outcome.REFUTED),
    ],
)
def test_one_sided_claims(stated, relation, outcome):
    """The variance is 16."""
    asked = check("dot.variance", stated=(stated,), relation=relation)
    (row,), _ = experiment.run([asked], Settings(jobs=1, samples=10**6))
    assert row.verdict is outcome


def test_a_comparison_is_a_difference():
    """At d = 16, m = 8 the RMS ‖J‖_F is 0.365 scaled and 0.301 unscaled."""
    scaled, plain = (Case(designs=(ROWS,), scale=rule) for rule in (SQRT, NONE))
    name = "jacobian.frobenius"
    alone = [Check(id=case.scale.name, quantity=name, case=case) for case in (scaled, plain)]
    both = dataclasses.replace(
        alone[0], id="both", versus=plain, stated=(0.0,), relation="at least"
    )
    rows, _ = experiment.run([*alone, both], Settings(jobs=1, samples=20_000))
    first, second, difference = (row.estimate for row in rows)
    assert difference.value == first.value - second.value
    assert difference.se == first.se + second.se  # they share their draws: no less is known
    assert rows[2].verdict is Outcome.CONFIRMED


def test_tolerances_come_from_the_check_or_from_the_settings():
    rows, _ = experiment.run(
        [check("dot.variance"), check("dot.variance", tolerance=0.5)], small(tolerance=0.02)
    )
    assert [row.tolerance for row in rows] == pytest.approx([0.32, 8.0])


@pytest.mark.parametrize(
    ("name", "law", "expected"),
    [
        ("dot.variance", Component(), Outcome.CONFIRMED),
        ("dot.variance", Component(distribution="t", df=3), Outcome.INCONCLUSIVE),
        ("dot.variance", Component(distribution="cauchy"), Outcome.UNDEFINED),
        ("dot.iqr", Component(distribution="cauchy"), Outcome.CONFIRMED),
    ],
)
def test_what_theory_expects(name, law, expected):
    design = Design(dk=4, query=law, key=law)
    (row,), _ = experiment.run([check(name, design)], small())
    assert row.expected is expected
    if expected is not Outcome.CONFIRMED:
        assert row.verdict is expected


def test_a_limit_is_shown_and_not_judged():
    law = Component(distribution="laplace")
    design = Design(dk=16, keys=8, query=law, key=law)
    (row,), _ = experiment.run([check("softmax.entropy", design, scale=SQRT)], small())
    assert (row.prediction.kind, row.verdict, row.expected) == (
        "limit",
        Outcome.UNDEFINED,
        Outcome.UNDEFINED,
    )
    assert row.prediction.value is not None


def test_unknown_quantities_are_refused():
    with pytest.raises(InputError, match="did you mean"):
        experiment.run([check("dot.varianse")], small())


def test_parameters_name_what_was_asked():
    rows, _ = experiment.run([ROW_CHECKS[3], SWEEP, DOT_CHECKS[5]], small())
    row, sweep, quantile = (r.params for r in rows)
    assert (row["dk"], row["keys"], row["scale"], row["statistic"]) == (16, 8, "none", "median")
    assert row["multiplier"] == 1.0
    assert sweep["dk"] == [16, 64]
    assert quantile["level"] == 0.9
    assert (quantile["distribution"], quantile["sigma"], quantile["corr"]) == (
        "gaussian",
        1,
        "none",
    )


def test_ids_tell_checks_apart():
    run = sdpa_check.variance(dk=[4, 16], scale=["all", "sqrt2", "pow:-0.25"], samples=64, jobs=1)
    ids = [row.id for row in run.rows]
    assert len(set(ids)) == len(ids)
    assert "dot.variance[dk=4]" in ids
    assert "logit.std[dk=16,scale=pow:-0.25]" in ids
    run = sdpa_check.saturation(dk=[4, 8], keys=[2, 3], samples=64, jobs=1)
    ids = [row.id for row in run.rows]
    assert len(set(ids)) == len(ids)
    assert "jacobian.frobenius[dk=8,keys=3,scale=none,statistic=q95]" in ids


# -- What the tool is for: the right thing passes, and every planted fault is found. --


def test_the_right_thing_passes_at_default_settings():
    run = sdpa_check.variance(dk=64)
    assert (run.outcome, run.exit_code) == ("as expected", 0)
    assert {row.verdict for row in run.rows} == {Outcome.CONFIRMED}


FAULTS = {
    "a sampler 3 % too wide": Fault(sample_scale=1.03),
    "a sampler 3 % too narrow": Fault(sample_scale=0.97),
    "a missing square root": Fault(scale="dk"),
    "d_model for d_k": Fault(scale="sqrt_dmodel"),
    "a multiplier off by 3 %": Fault(scale=repr(1.03 / 8)),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_faults_of_a_variance_are_found_at_default_settings(fault):
    """The threshold of every check is met by chance with probability 1e-6 for the whole run."""
    run = sdpa_check.variance(dk=64, scale="sqrt", dmodel=512, fault=fault)
    assert run.exit_code == 3
    refuted = {row.quantity for row in run.rows if row.verdict is Outcome.REFUTED}
    assert {"logit.variance", "logit.std"} <= refuted
    if fault.scale is None:
        assert {"dot.variance", "dot.std", "dot.iqr"} <= refuted
    else:  # the scale does not reach the dot product itself
        assert not any(name.startswith("dot.") for name in refuted)
    assert any("fault was planted" in note for note in run.notes)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_faults_of_a_saturation_are_found_at_default_settings(fault):
    run = sdpa_check.saturation(dk=64, keys=16, scale="sqrt", dmodel=512, fault=fault)
    assert run.exit_code == 3
    refuted = {row.quantity for row in run.rows if row.verdict is Outcome.REFUTED}
    assert {"softmax.entropy", "softmax.sum_squares"} <= refuted


def test_a_fault_does_not_reach_the_prediction():
    right = sdpa_check.variance(dk=64, dmodel=512, samples=64, jobs=1)
    for fault in FAULTS.values():
        wrong = sdpa_check.variance(dk=64, dmodel=512, samples=64, jobs=1, fault=fault)
        assert [r.prediction for r in wrong.rows] == [r.prediction for r in right.rows]
        assert [r.params for r in wrong.rows] == [r.params for r in right.rows]


def test_a_fault_that_changes_nothing_is_not_found():
    """The rule that was asked for, planted as a fault: the same numbers, nothing refuted."""
    right = sdpa_check.variance(dk=64, samples=10**5, jobs=1)
    same = sdpa_check.variance(dk=64, samples=10**5, jobs=1, fault=Fault(scale="sqrt"))
    assert [row.estimate for row in right.rows] == [row.estimate for row in same.rows]


@pytest.mark.parametrize("seed", range(1000, 1020))
def test_no_false_alarm(seed):
    """Small runs of right code: some are inconclusive, none is refuted.

    False-alarm rate: α = 1e-6 for each of the 60 runs, seeds fixed.
    """
    runs = [
        sdpa_check.variance(dk=16, samples=20_000, seed=seed, jobs=1),
        sdpa_check.variance(dk=8, dist="t", df=3, samples=20_000, seed=seed, jobs=1),
        sdpa_check.saturation(dk=16, keys=8, scale="sqrt", samples=4_000, seed=seed, jobs=1),
    ]
    for run in runs:
        assert run.exit_code in {0, 4}
        assert not [row.id for row in run.rows if row.verdict is Outcome.REFUTED]
        for row in run.rows:
            found = row.estimate
            assert found.se is None or math.isfinite(found.se)


def test_samples_that_are_not_kept_change_no_row():
    """A sweep waits for its last design; nothing is left when every check is judged."""
    checks = [*DOT_CHECKS, SWEEP, *ROW_CHECKS]
    kept, samples = experiment.run(checks, small())
    rows, left = experiment.run(checks, small(), keep=False)
    assert rows == kept
    assert samples
    assert set(left) < set(samples)


# -- Runs that are stopped. --


def stopping(at):
    """A checkpoint, and settings whose progress stops the run at its n-th sign."""
    kept, calls = checkpoint.Checkpoint(), []

    def interrupt(*call):
        calls.append(call)
        if len(calls) == at:
            raise KeyboardInterrupt

    return kept, small(progress=interrupt, checkpoint=kept)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("at", [1, 50, 100, 150])
def test_a_stopped_run_goes_on_to_the_same_rows(keep, at, tmp_path):
    checks = [*DOT_CHECKS, SWEEP, *ROW_CHECKS]
    whole, _ = experiment.run(checks, small())
    kept, settings = stopping(at)
    rows, _ = experiment.run(checks, settings, keep=keep)
    assert kept.stopped
    for row, same in zip(rows, whole, strict=True):
        if row != same:
            assert row.verdict in (Outcome.INCONCLUSIVE, Outcome.NOT_RUN)
            assert row.reason.startswith("stopped ")
    assert any(row != same for row, same in zip(rows, whole, strict=True))
    (tmp_path / "partial.npz").write_bytes(kept.dumps())
    again = checkpoint.load(tmp_path / "partial.npz")
    rows, samples = experiment.run(checks, small(checkpoint=again), keep=keep)
    assert [row.estimate for row in rows] == [row.estimate for row in whole]
    assert [row.verdict for row in rows] == [row.verdict for row in whole]
    assert bool(samples) == keep


def test_what_is_not_kept_is_not_in_the_checkpoint_either():
    """A row takes the place of the sums that it was made from."""
    checks = [*DOT_CHECKS, *ROW_CHECKS]
    kept, settings = stopping(100)
    experiment.run(checks, settings, keep=False)
    assert len(kept.entries) == 1
    assert set(kept.rows) == {checks.index(each) for each in DOT_CHECKS}


@pytest.mark.parametrize("verdict", ["confirmed", "refuted"])
def test_no_design_under_way_is_judged(verdict):
    """Neither way: it may have been stopped because of what it showed."""
    asked = check("dot.variance", stated=(16.0 if verdict == "confirmed" else 1600.0,), band=15.0)
    (whole,), _ = experiment.run([asked], small())
    assert whole.verdict == verdict
    _, settings = stopping(50)
    (row,), _ = experiment.run([asked], settings)
    assert row.verdict is Outcome.INCONCLUSIVE
    assert row.estimate.blocks == 50
    assert row.estimate.se > 0


def test_an_interrupt_stays_one_without_a_checkpoint_or_before_the_first_block(monkeypatch):
    _, settings = stopping(50)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(DOT_CHECKS, dataclasses.replace(settings, checkpoint=None))

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sampling, "planned", interrupt)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(DOT_CHECKS, small(checkpoint=checkpoint.Checkpoint()))


def test_progress_knows_the_number_so_far():
    """The first that is not 0, from the blocks that are done; at last that of the row."""
    seen = []
    settings = small(progress=lambda *call: seen.append((*call[:3], call[3]())))
    rows, _ = experiment.run([*DOT_CHECKS, SWEEP, *ROW_CHECKS], settings)
    assert seen[0][3] is None  # one block has no error bar
    last = {label: current for label, _, _, current in seen}
    assert last["d_k=16"] == ("dot.variance", rows[1].estimate)
    assert last["d_k=16, m=8"] == ("softmax.entropy sqrt", rows[len(DOT_CHECKS) + 1].estimate)
    assert last["d_k=64"] is None  # nothing but the sweep asks for it


def test_every_quantity_can_be_shown_after_two_blocks():
    """One check of each quantity that the package has a claim about; trainings are too slow."""
    asked = {each.quantity: each for each in _checks(registry.builtin())}
    checks = [c for c in asked.values() if {k.split()[0] for k, _ in works.keys(c)} - {"train"}]
    samples = {}
    for key in {key for each in checks for key in works.keys(each)}:
        group = [each for each in checks if key in works.keys(each)]
        work = works.work_of(*key, group, small())
        merged = engine.run(work, seed=0, blocks=2, jobs=1)
        samples[key] = Sample(work=work, replicates=merged)
    rows = [experiment._unjudged(each, samples, "stopped", small()) for each in checks]
    assert len(rows) > 30
    assert {row.verdict for row in rows} <= {Outcome.INCONCLUSIVE, Outcome.UNDEFINED}
    assert all(row.estimate is not None for row in rows)


def test_what_a_plan_knows_of_theory_is_not_found_again(monkeypatch):
    """By whatever worker it was made; also of checks that read several designs."""
    checks = [*DOT_CHECKS, *ROW_CHECKS, check("dot.variance", DOT, "last"), SWEEP]
    want, _ = experiment.run(checks, small())
    plans, planned = [], sampling.planned

    def counted(*args):
        before = len(asked)
        plans.append(planned(*args))
        del asked[before:]
        return plans[-1]

    asked, prediction = [], Check.prediction
    monkeypatch.setattr(sampling, "planned", counted)
    monkeypatch.setattr(Check, "prediction", lambda c, q: asked.append(c.id) or prediction(c, q))
    rows, _ = experiment.run(checks, small())
    assert rows == want
    assert not asked
    told = [each for plan in plans for each in plan.predictions]
    assert len(told) == len(checks) + 1


def test_what_is_sampled_already_is_not_sampled_again(monkeypatch):
    rows, samples = experiment.run([*DOT_CHECKS, *ROW_CHECKS], small())
    seen, sample = [], sampling.sample
    monkeypatch.setattr(
        sampling, "sample", lambda key, *args: seen.append(key) or sample(key, *args)
    )
    again, more = experiment.run([*DOT_CHECKS, *ROW_CHECKS, SWEEP], small(), known=samples)
    assert [row.estimate for row in again[:-1]] == [row.estimate for row in rows]
    assert seen == [("dot", Design(dk=64))]
    assert more.keys() == {*samples, *seen}
