"""How many blocks are planned, of which size, and with what share for every multiplier."""

from __future__ import annotations

import dataclasses
from collections import Counter

from sdpa_check import engine, experiment, planning, power, works
from sdpa_check.checks import Check, Settings
from sdpa_check.logits import scaling
from sdpa_check.quantities import Case
from sdpa_check.records import Design, Outcome

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
        monkeypatch.setattr(planning, "_needs", lambda *_: found)
    return work, *planning.plan(work, design, checks, settings, len(checks))


def test_a_number_of_samples_is_not_planned(monkeypatch):
    monkeypatch.setattr(planning, "_needs", None)
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


def test_only_sweeps_and_nothing_to_plan():
    design = Design(dk=16)
    sweep = Check(
        id="s", quantity="dot.variance_exponent", case=Case(designs=(design, Design(dk=64)))
    )
    _, _, blocks = planned([sweep], Settings(jobs=1))
    assert blocks == power.MIN_BLOCKS


def test_needs_are_counted_per_multiplier_and_sweeps_left_out():
    growth = Case(designs=(ROWS, Design(dk=64, keys=8)), scale=RULES["dk"])
    checks = [*ASKED[:2], Check(id="g", quantity="softmax.deficit_exponent", case=growth)]
    work = works.work_of("rows", ROWS, checks, Settings())
    lead, rest, unplanned = planning._needs(work.split(4), ROWS, checks, Settings(jobs=1), 3)
    assert set(lead) == {0.25, 1.0}
    assert all(n > 0 for n in lead.values())
    assert not rest
    assert unplanned == {0.0625}


def test_a_difference_of_two_multipliers_is_planned():
    """Either gets the blocks that the difference needs, which are those of no other check."""
    either = [Case(designs=(ROWS,), scale=RULES[name]) for name in ("none", "sqrt")]

    def needs(stated):
        asked = Check(
            id="d", quantity="softmax.entropy", case=either[0], versus=either[1], stated=(stated,)
        )
        asked = dataclasses.replace(asked, band=0.001)
        work = works.work_of("rows", ROWS, [asked], Settings())
        return planning._needs(work.split(4), ROWS, [asked], Settings(jobs=1), 1)

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
    assert [depth.histograms for depth in work.depths] == [True, False, False]
    assert [depth.closer for depth in work.depths] == [4, 4, 4]
    assert [len(grids) for grids in work.grids] == [3, 0, 0]


def test_what_is_judged_by_quantiles_is_looked_at_in_full():
    case = Case(designs=(ROWS,), scale=RULES["none"], statistic="median")
    stated = Check(id="c", quantity="jacobian.trace", case=case, stated=(0.4,))
    work = works.work_of("rows", ROWS, [stated], Settings())
    assert [depth.closer for depth in work.depths] == [1]


def test_the_pilot_has_a_stream_of_its_own(monkeypatch):
    seen, run = [], engine.run

    def spy(work, **options):
        seen.append((work.stream, options["blocks"]))
        return run(work, **options)

    monkeypatch.setattr(engine, "run", spy)
    work, _, _ = planned(ASKED, Settings(jobs=1, tolerance=0.1))
    assert seen == [("pilot", planning.PILOT_BLOCKS)]
    assert work.stream == "main"
