"""How many blocks are planned, of which size, and with what share for every multiplier."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from sdpa_check import engine, experiment, planning, power, works
from sdpa_check.checks import Check, Settings
from sdpa_check.logits import scaling
from sdpa_check.quantities import Case, Sample, quantity
from sdpa_check.records import Design, Estimate, Outcome

ROWS = Design(dk=16, keys=8)
RULES = {name: scaling.parse(name) for name in ("none", "sqrt", "dk")}


def check(quantity, design=ROWS, scale="sqrt", id_="", **case):
    rule = None if scale is None else RULES[scale]
    return Check(
        id=id_ or f"{quantity} {scale}",
        quantity=quantity,
        case=Case(designs=(design,), scale=rule, **case),
    )


ASKED = [check("softmax.entropy", scale=name) for name in RULES]


def planned(checks, settings, monkeypatch=None, needs=None):
    """The work as asked for, and what `plan` makes of it; with needs of our own in place of it."""
    design = checks[0].case.designs[0]
    kind = next(iter(works.keys(checks[0])))[0]
    work = works.work_of(kind, design, checks, settings)
    if needs is not None:
        lead, rest, unplanned = needs
        found = Counter(lead), Counter(rest), set(unplanned)
        monkeypatch.setattr(planning._Asked, "by_pilot", lambda asked, _: asked.settled(*found))
    return work, *planning.plan(work, design, checks, settings, len(checks))


def test_a_number_of_samples_is_not_planned(monkeypatch):
    monkeypatch.setattr(planning, "_Asked", None)
    work, chosen, blocks = planned(ASKED, Settings(samples=10**6))
    assert chosen is work
    assert (blocks - 1) * work.size < 10**6 <= blocks * work.size


def test_where_few_rows_are_needed_blocks_are_smaller(monkeypatch):
    """A run of few full blocks would draw more rows than a run of as many small ones."""
    needs = dict.fromkeys((0.0625, 0.25, 1.0), 64)
    work, chosen, blocks = planned(ASKED, Settings(), monkeypatch, (needs, {}, ()))
    assert chosen == work.split(4)
    assert blocks == power.MIN_BLOCKS
    assert 4 * chosen.size == work.size


def test_where_many_are_needed_they_are_full(monkeypatch):
    needs = dict.fromkeys((0.0625, 0.25, 1.0), 4001)
    work, chosen, blocks = planned(ASKED, Settings(), monkeypatch, (needs, {}, ()))
    assert chosen == work
    assert blocks == 1001


def test_multipliers_get_the_share_that_they_need(monkeypatch):
    needs = {0.0625: 4800, 0.25: 1201, 1.0: 299}
    work, chosen, blocks = planned(ASKED, Settings(), monkeypatch, (needs, {}, ()))
    assert [depth.share for depth in chosen.depths] == [1, 2, 16]
    assert dataclasses.replace(chosen, depths=work.depths) == work
    assert blocks == 1200


def test_what_is_not_planned_gets_what_the_others_need(monkeypatch):
    needs = {0.0625: 4800, 0.25: 64}, {}, {1.0}
    _, chosen, _ = planned(ASKED, Settings(), monkeypatch, needs)
    assert [depth.share for depth in chosen.depths] == [1, 16, 1]


def test_a_follower_is_bounded_by_the_smallest_run_of_full_blocks(monkeypatch):
    needs = {}, dict.fromkeys((0.0625, 0.25, 1.0), 10**6), ()
    work, chosen, blocks = planned(ASKED, Settings(), monkeypatch, needs)
    assert blocks == 8 * power.MIN_BLOCKS
    assert chosen.shape == work.shape


def test_a_difference_of_designs_is_not_planned():
    either = [Case(designs=(Design(dk=dk, keys=8),), scale=RULES["dk"]) for dk in (16, 64)]
    asked = Check(id="d", quantity="softmax.entropy", case=either[0], versus=either[1])
    lead, rest, unplanned = counted([*ASKED[:2], asked], 3)
    assert not rest
    assert set(lead) == {0.25, 1.0}
    assert unplanned == {0.0625}


@pytest.mark.parametrize(
    ("name", "scale", "sampling"),
    [
        ("dot.variance_exponent", None, "dot"),
        ("dot.scale_exponent", None, "dot"),
        ("logit.std_exponent", "dk", "dot"),
        ("softmax.deficit_exponent", "dk", "rows"),
    ],
)
def test_a_growth_gets_blocks_that_confirm_it(name, scale, sampling):
    """Planned for each design by itself, at a false-alarm probability of 1e-6."""
    designs = tuple(Design(dk=dk, keys=8 if sampling == "rows" else None) for dk in (8, 16, 32))
    case = Case(designs=designs, scale=RULES[scale] if scale else None)
    growth = Check(id="g", quantity=name, case=case)
    (row,), _ = experiment.run([growth], Settings(jobs=1))
    assert row.verdict is Outcome.CONFIRMED
    assert row.estimate.se < 0.01 / 5


def test_the_error_of_a_growth_is_that_of_its_designs():
    """As many blocks of each as the slope needs where all are known equally well."""
    designs = tuple(Design(dk=dk) for dk in (8, 16, 32))
    growth = Check(id="g", quantity="dot.variance_exponent", case=Case(designs=designs))
    work = works.work_of("dot", designs[0], [growth], Settings())
    replicates = engine.run(work, seed=0, blocks=planning.PILOT_BLOCKS, jobs=1)
    sample, measure = Sample(work=work, replicates=replicates), quantity(growth.quantity)
    asked = planning._Asked(designs[0], [growth], Settings(jobs=1), 1, 4)
    found = asked.growth(growth, measure, sample)
    single = quantity("dot.variance").estimate(Case(designs=designs[:1]), (sample,))
    slope = 1 / (math.sqrt(2) * math.log(2))  # the error of (y_3 − y_1)/(2 ln 2), of y that of 1
    assert found.value == pytest.approx(1.0, rel=1e-15)
    assert found.se == pytest.approx(slope * single.se / single.value, rel=0.02)  # of the logarithm
    needed = asked.needed(growth, measure, found, planning.PILOT_BLOCKS)
    assert asked.needs(sample)[1][1.0] == needed


def counted(checks, total):
    """What leads, what follows and what is not planned, from a pilot of the first length."""
    work = works.work_of("rows", ROWS, checks, Settings())
    pilot = dataclasses.replace(work.split(4), stream="pilot")
    asked = planning._Asked(ROWS, checks, Settings(jobs=1), total, 4)
    replicates = engine.run(pilot, seed=0, blocks=planning.PILOT_BLOCKS, jobs=1)
    return asked.needs(Sample(work=pilot, replicates=replicates))


def test_needs_are_counted_per_multiplier_and_sweeps_follow():
    growth = Case(designs=(ROWS, Design(dk=64, keys=8)), scale=RULES["dk"])
    checks = [*ASKED[:2], Check(id="g", quantity="softmax.deficit_exponent", case=growth)]
    lead, rest, unplanned = counted(checks, 3)
    assert set(lead) == {0.25, 1.0}
    assert all(n > 0 for n in lead.values())
    assert set(rest) == {0.0625}
    assert not unplanned


def test_a_difference_of_two_multipliers_is_planned():
    """Either gets the blocks that the difference needs, which are those of no other check."""
    either = [Case(designs=(ROWS,), scale=RULES[name]) for name in ("none", "sqrt")]

    def needs(stated):
        asked = Check(
            id="d", quantity="softmax.entropy", case=either[0], versus=either[1], stated=(stated,)
        )
        return counted([dataclasses.replace(asked, band=0.001)], 1)

    lead, rest, unplanned = needs(0.0)
    assert not rest
    assert not unplanned
    assert lead[1.0] == lead[0.25] > 0
    found = experiment.run(ASKED[:2], Settings(jobs=1, samples=50_000))[0]
    close = found[0].estimate.value - found[1].estimate.value
    assert needs(close)[0][1.0] > 20 * lead[1.0]  # to tell so little apart takes more


def test_planned_shares_are_enough():
    """Every check is confirmed at the planned size; each fails with β = 1e-3 at most.

    Of 3 checks at most 0.3 % of seeds fail, and this is one seed.
    """
    checks = [
        check("softmax.sum_squares", scale="sqrt"),
        check("jacobian.frobenius", scale="none"),
        check("jacobian.frobenius", scale="dk"),
    ]
    rows, samples = experiment.run(checks, Settings(seed=3))
    assert {row.verdict for row in rows} == {Outcome.CONFIRMED}
    (sample,) = samples.values()
    shares = {depth.share for depth in sample.work.depths}
    assert len(shares) > 1, "the design has multipliers that need less than others"
    counts = sample.replicates.sums
    for i, depth in enumerate(sample.work.depths):
        full = sample.replicates.blocks * sample.work.size
        assert counts[f"rows{i}"][:, 0].sum() == full // depth.share


def test_spectra_are_computed_where_they_are_asked_for():
    spectral = check("jacobian.spectral", scale="none", statistic="mean")
    median = check("jacobian.trace", scale="dk", statistic="median")
    work = works.work_of("rows", ROWS, [*ASKED, spectral, median], Settings())
    assert work.multipliers == (0.0625, 0.25, 1.0)
    assert [depth.spectral for depth in work.depths] == [False, False, True]
    assert [depth.counted for depth in work.depths] == [("trace",), (), ()]
    assert [depth.closer for depth in work.depths] == [4, 1, 4]
    assert [len(grids) for grids in work.grids] == [1, 0, 0]


def test_what_is_judged_by_quantiles_is_looked_at_in_full():
    case = Case(designs=(ROWS,), scale=RULES["none"], statistic="median")
    stated = Check(id="c", quantity="jacobian.trace", case=case, stated=(0.4,))
    work = works.work_of("rows", ROWS, [stated], Settings())
    assert [depth.closer for depth in work.depths] == [1]


@pytest.fixture
def pilots(monkeypatch):
    """Every pilot: its stream, its blocks, those that it went on from, its replicates and needs."""
    seen, run, settled = [], engine.run, planning._Asked.settled

    def spy(work, **options):
        first = options["start"].merged if options["start"] else 0
        seen.append([work, options["blocks"], first, run(work, **options)])
        return seen[-1][3]

    def needs(asked, *found):
        seen[-1].append(max(settled(asked, *found).values(), default=0))
        return settled(asked, *found)

    monkeypatch.setattr(engine, "run", spy)
    monkeypatch.setattr(planning._Asked, "settled", needs)
    return seen


def test_the_pilot_has_a_stream_of_its_own(pilots):
    work, _, _ = planned(ASKED, Settings(jobs=1, tolerance=0.1))
    assert [(pilot.stream, blocks) for pilot, blocks, *_ in pilots] == [
        ("pilot", planning.PILOT_BLOCKS)
    ]
    assert work.stream == "main"


DOTS = [check("dot.variance", Design(dk=16), None)]
either = pytest.mark.parametrize("checks", [DOTS, ASKED[:2]], ids=["dot", "rows"])

LENGTHS = [length for length in (16, 32, 64, 128, 256, 512) if length <= engine.MAX_REPLICATES]
"""Of pilots whose blocks are replicates each."""


@either
@pytest.mark.parametrize("tolerance", [0.1, 0.02, 0.01, 0.005, 0.002])
def test_the_pilot_is_doubled_while_the_run_is_long(checks, tolerance, pilots):
    work, chosen, blocks = planned(checks, Settings(jobs=1, tolerance=tolerance))
    lengths = [length for _, length, *_ in pilots]
    assert lengths == [planning.PILOT_BLOCKS * 2**i for i in range(len(lengths))]
    assert [first for _, _, first, *_ in pilots] == [0, *lengths[:-1]]
    *short, last = ((length, need) for _, length, _, _, need in pilots)
    assert all(need > length**2 / 4 and 2 * length <= LENGTHS[-1] for length, need in short)
    assert last[1] <= last[0] ** 2 / 4 or last[0] == LENGTHS[-1]
    ratio = chosen.size // work.split(4).size
    assert blocks == math.ceil(last[1] / ratio)  # the last pilot alone says how long the run is


@either
def test_the_longer_the_run_the_longer_the_pilot(checks, pilots):
    longest = []
    for tolerance in (0.1, 0.01, 0.001):
        pilots.clear()
        planned(checks, Settings(jobs=1, tolerance=tolerance))
        longest.append(pilots[-1][1])
    assert longest[0] == planning.PILOT_BLOCKS < longest[1] < longest[2] == LENGTHS[-1]


@either
def test_a_doubled_pilot_is_one_that_was_as_long_at_once(checks, pilots, monkeypatch):
    settings = Settings(jobs=1, tolerance=0.002)
    plan = planned(checks, settings)
    assert len(pilots) > 2
    doubled = [(work, replicates) for work, _, _, replicates, _ in pilots]
    for work, found in doubled:
        at_once = engine.run(work, seed=0, blocks=found.blocks, start=None)
        assert found.blocks == found.count == at_once.blocks
        assert found.sums.keys() == at_once.sums.keys()
        for name, each in at_once.sums.items():
            np.testing.assert_array_equal(found.sums[name], each, strict=True)
    monkeypatch.setattr(planning, "PILOT_BLOCKS", doubled[-1][1].blocks)
    pilots.clear()
    assert planned(checks, settings) == plan
    assert len(pilots) == 1


def test_where_no_long_run_is_allowed_the_pilot_is_short(pilots, monkeypatch):
    """A wanted precision sets no limit to the cost."""
    (cost,) = {works.work_of("dot", Design(dk=16), DOTS, Settings()).cost}
    for most, lengths in ((0, [16]), (250, [16, 32]), (10**9, LENGTHS)):
        pilots.clear()
        monkeypatch.setattr(planning, "WORK_LIMIT", most * cost)
        _, _, blocks = planned(DOTS, Settings(jobs=1, tolerance=1e-3))
        assert [length for _, length, *_ in pilots] == lengths
        assert blocks == max(power.MIN_BLOCKS, min(most, pilots[-1][-1]))
    monkeypatch.setattr(planning, "WORK_LIMIT", 0)
    pilots.clear()
    planned(DOTS, Settings(jobs=1, precision=1e-4))
    assert pilots[-1][1] == LENGTHS[-1]


@pytest.mark.parametrize("pilot", [16, 32, 64, 128])
def test_a_doubled_pilot_saves_more_than_it_costs(pilot):
    """At the least length of the run for which it is doubled, by the blocks asked for on average.

    The pilot draws as many blocks again, and the run is shorter by more than that.
    """
    for alpha, checks in ((1e-6, 1), (1e-6, 100), (0.05, 1)):

        def asked(length, alpha=alpha, checks=checks):
            se = 1 / math.sqrt(length)
            return power.blocks_to_judge(
                se, length, 1e-3, alpha=alpha, checks=checks, blocks=engine.LEAST_REPLICATES
            )

        saved = 1 - asked(2 * pilot) / asked(pilot)
        assert saved * pilot**2 / planning._WORTH > pilot


@pytest.mark.parametrize("total", [1, 8, 100])
def test_doubling_keeps_the_promise(total):
    """A true prediction ends inconclusive with probability β at most, however long the run.

    A pilot that came out low is doubled less often: that selects, and must not cost more than the
    formula for one pilot has to spare. The rule of `by_pilot` for many pilots at once, on normal
    blocks of variance σ². Given pilot and run error, the value misses with an exact probability;
    the mean of N of them is compared at a false-alarm rate of 1e-6 (z = 4.75, one-sided), seed
    fixed.
    """
    g, n, beta = np.random.default_rng(6), 200_000, power.BETA
    lengths = [planning.PILOT_BLOCKS]
    while 2 * lengths[-1] <= engine.MAX_REPLICATES:
        lengths.append(2 * lengths[-1])
    squares = [g.chisquare(lengths[0] - 1, n)]
    for length in lengths[:-1]:  # the blocks of a pilot are in the next one, with as many others
        squares.append(squares[-1] + g.chisquare(length, n))

    def factor(pilot, replicates):
        asked = power.blocks_to_judge(
            1.0, pilot, 1e-6, alpha=power.ALPHA, checks=total, blocks=replicates
        )
        return 1e-12 * asked / pilot

    t = np.array(
        [power.threshold(power.ALPHA, total, max(2, r)) for r in range(engine.MAX_REPLICATES + 1)]
    )
    for variance in np.geomspace(0.25, 100, 25):  # σ²/δ², of one block
        need, open_ = np.zeros(n), np.ones(n, bool)
        for length, square in zip(lengths, squares, strict=True):
            error = variance * square / (length - 1)
            few, many = (
                np.ceil(error * factor(length, r))
                for r in (power.MIN_BLOCKS, engine.LEAST_REPLICATES)
            )
            now = np.minimum(few, np.maximum(engine.LEAST_REPLICATES, many))
            need[open_] = np.maximum(power.MIN_BLOCKS, now[open_])
            open_ &= need > length**2 / planning._WORTH
        each = np.ceil(need / engine.MAX_REPLICATES)
        count = np.ceil(need / each).astype(int)
        spread = np.sqrt(g.chisquare(count - 1) / (count - 1))
        room = np.sqrt(each * count / variance) - t[count] * spread
        miss = np.where(room > 0, 2 * stats.norm.sf(room), 1)
        assert miss.mean() <= beta + 4.75 * miss.std() / math.sqrt(n)


def of_error(se, blocks, value=16.0):
    return Estimate(
        value=value, se=se, lo=value - se, hi=value + se, level=0.95, blocks=blocks, samples=1000
    )


ERRORS = np.geomspace(1e-4, 1, 60).tolist()


@pytest.mark.parametrize("ratio", [1, 4])
@pytest.mark.parametrize("each", [1, 2])
def test_the_t_quantile_is_that_of_a_run_with_no_more_replicates(ratio, each):
    """A number may be made of several blocks each time; it then has fewer degrees of freedom.

    It needs the blocks that its error takes all the same: the error is that of the whole pilot.
    """
    pilot, (variance,) = 32, DOTS
    asked = planning._Asked(variance.case.designs[0], DOTS, Settings(), 5, ratio)
    needs = []
    for se in ERRORS:
        found = asked.needed(variance, quantity("dot.variance"), of_error(se, pilot // each), pilot)
        few, many = (
            power.blocks_to_judge(
                se, pilot, 0.16, alpha=power.ALPHA, checks=5, blocks=replicates // each
            )
            for replicates in (power.MIN_BLOCKS, engine.LEAST_REPLICATES)
        )
        assert many <= found <= few
        if found < few:  # full blocks, each worth `ratio` of the pilot's
            run = engine.State(engine.whole(math.ceil(found / ratio)))
            assert run.count >= engine.LEAST_REPLICATES
            assert found == max(many, ratio * engine.LEAST_REPLICATES)
        else:
            assert found <= ratio * engine.LEAST_REPLICATES
        needs.append(found)
    assert needs == sorted(needs)
    assert needs[0] < power.MIN_BLOCKS
    assert needs[-1] > 100 * engine.LEAST_REPLICATES


def test_a_wanted_precision_is_that_of_the_whole_pilot():
    (variance,) = DOTS
    settings = Settings(precision=0.001)
    asked = planning._Asked(variance.case.designs[0], DOTS, settings, 1, 1)
    whole, half = (
        asked.needed(variance, quantity("dot.variance"), of_error(0.1, blocks), 32)
        for blocks in (32, 16)
    )
    assert whole == half == power.blocks_needed(0.1, 32, 0.016)


def test_the_distance_from_normal_is_planned_by_all_blocks(pilots):
    """It is found on two halves of the blocks, whose error is that of all of them."""
    asked = dataclasses.replace(check("dot.normal_distance", Design(dk=4), None), band=0.001)
    _, _, blocks = planned([asked], Settings(jobs=1))
    work, length, _, replicates, _ = pilots[-1]
    distance = quantity("dot.normal_distance")
    found = distance.estimate(asked.case, (Sample(work=work, replicates=replicates),))
    assert (found.blocks, replicates.count) == (length // 2, length)
    halves = engine.LEAST_REPLICATES // 2
    right = power.blocks_to_judge(
        found.se, length, 0.001, alpha=power.ALPHA, checks=1, blocks=halves
    )
    assert blocks == right > engine.LEAST_REPLICATES
