"""`train`: honest rows, the same numbers however they come about, errors that name the input."""

from __future__ import annotations

import itertools
import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from sdpa_check.cli import run as command_line
from sdpa_check.errors import InputError
from sdpa_check.records import Outcome
from sdpa_check.report import record
from sdpa_check.report.figures import from_json, to_json
from sdpa_check.report.rows import cells
from sdpa_check.studies import train as study_
from sdpa_check.studies.train import train
from sdpa_check.studies.train_figures import MOST_PANELS, figures
from sdpa_check.studies.train_notes import notes
from sdpa_check.studies.train_rows import training_rows
from sdpa_check.theory.saturation import gaussian_rows
from sdpa_check.training.measures import Results
from sdpa_check.training.model import Task
from sdpa_check.training.trial import Curve, Trial

DK, SCALE = (4, 16), ("none", "sqrt")
SMALL = {"lr": (0.3, 3.0), "warmup": (0, 8), "seeds": 3, "steps": 40, "keys": 32, "jobs": 1}


def numbers(run):
    """The record without the block that may differ between equal runs."""
    return {k: v for k, v in record.to_dict(run).items() if k != "environment"}


@pytest.fixture(scope="module")
def finished():
    """48 small trials with what their figures need."""
    return study_.study(DK, SCALE, SMALL)


def test_the_losses_at_the_start_are_judged(finished, row):
    """The family of 8 checks errs with probability 1e-6 (`power.ALPHA`)."""
    for dk, scale in itertools.product(DK, SCALE):
        first = row(finished.run, "train.start_loss", dk=dk, scale=scale)
        assert first.prediction.value == math.log(32)
        own = row(finished.run, "train.start_row_loss", dk=dk, scale=scale)
        multiplier = 1.0 if scale == "none" else dk**-0.5
        exact = gaussian_rows(dk=dk, keys=32, multiplier=multiplier).log_partition
        assert own.prediction.value == exact
        assert {first.verdict, own.verdict} == {Outcome.CONFIRMED}
    assert (finished.run.outcome, finished.run.exit_code) == ("as expected", 0)


def test_a_wrong_start_is_refuted(monkeypatch):
    """Keys 5 % too long: the loss of the row begins elsewhere."""
    initial = study_.trial.model.initial

    def wide(generator, task):
        weights = initial(generator, task)
        return weights._replace(key=weights.key * 1.05)

    monkeypatch.setattr(study_.trial.model, "initial", wide)
    run = train(dk=64, scale="none", lr=1.0, warmup=0, seeds=2, steps=1, jobs=1)
    (own,) = [each for each in run.rows if each.quantity == "train.start_row_loss"]
    assert own.verdict is Outcome.REFUTED
    assert run.exit_code == 3


def test_every_setting_and_every_difference_has_its_row(finished, row):
    run = finished.run
    assert len({each.id for each in run.rows}) == len(run.rows)
    for dk, warmup, lr in itertools.product(DK, (0, 8), (0.3, 3.0, "best")):
        case = {"dk": dk, "warmup": warmup, "lr": lr}
        pair = [
            row(run, "train.final_loss", scale=scale, versus=None, **case).estimate
            for scale in SCALE
        ]
        less = row(run, "train.final_loss", scale="sqrt", versus={"scale": "none"}, **case)
        assert less.estimate.value == pytest.approx(pair[1].value - pair[0].value, abs=1e-12)
        assert less.estimate.blocks == 3
        assert less.verdict is less.expected is Outcome.UNDEFINED
        for scale in SCALE:
            row(run, "train.half_steps", scale=scale, versus=None, **case)


def test_the_best_rate_is_the_one_with_the_least_loss(finished, row):
    for dk, scale, warmup in itertools.product(DK, SCALE, (0, 8)):
        case = {"dk": dk, "scale": scale, "warmup": warmup}
        losses = {
            lr: row(finished.run, "train.final_loss", lr=lr, versus=None, **case).estimate.value
            for lr in (0.3, 3.0)
        }
        best, low, high = (
            row(finished.run, "train.best_lr", **case, statistic=name).estimate
            for name in ("best", "lowest alike", "highest alike")
        )
        assert best.value == min(losses, key=losses.get)
        assert low.value <= best.value <= high.value
        own = row(finished.run, "train.final_loss", lr="best", versus=None, **case)
        assert own.estimate.value == losses[best.value]
        if dk == 16:
            home = case | {"dk": 4, "statistic": "best"}
            first = row(finished.run, "train.best_lr", **home).estimate.value
            kept = row(finished.run, "train.final_loss", lr="best of d_k=4", **case)
            assert kept.estimate.value == pytest.approx(
                losses[first] - losses[best.value], abs=1e-12
            )
            assert kept.estimate.value >= 0


def made(losses, **fields):
    """Trials of one step with given losses, one for each seed: (d_k, warmup, rate) → losses."""
    given = {"scale": "sqrt", "multiplier": 1.0, "steps": 1, "optimiser": "sgd"} | fields
    return {
        Trial(
            task=Task(dk=dk, dmodel=64, keys=32), warmup=warmup, lr=lr, seed=seed, **given
        ): Curve((loss,), (loss,))
        for (dk, warmup, lr), each in losses.items()
        for seed, loss in enumerate(each)
    }


def test_differences_at_the_best_rates_have_their_signs():
    """Hand-made final losses with a best rate of its own for every d_k and warmup."""
    losses = {
        (4, 0, 1.0): 1.0,
        (4, 0, 3.0): 2.0,
        (16, 0, 1.0): 4.0,
        (16, 0, 3.0): 3.0,
        (4, 8, 1.0): 6.0,
        (4, 8, 3.0): 5.5,
        (16, 8, 1.0): 0.25,
        (16, 8, 3.0): 0.75,
    }
    curves = made({case: (loss, loss) for case, loss in losses.items()})
    found = {each.id: each.estimate.value for each in training_rows(Results(curves))}
    assert found["train.final_loss[dk=16,scale=sqrt,warmup=0,lr=best of d_k=4−own best]"] == 1.0
    assert found["train.final_loss[dk=16,scale=sqrt,warmup=8,lr=best of d_k=4−own best]"] == 0.5
    assert found["train.final_loss[dk=4,scale=sqrt,warmup=8−0,lr=best]"] == 4.5
    assert found["train.final_loss[dk=16,scale=sqrt,warmup=8−0,lr=best]"] == -2.75
    assert found["train.best_lr[dk=16,scale=sqrt,warmup=8,lr=best,statistic=best]"] == 1.0


def test_rates_are_shown_as_they_were_given():
    """Rates from 0.1 to 30 that cannot be told from each other, with 0.3 the best."""
    curves = made({(4, 0, lr): (1.0, 1.0) if lr == 0.3 else (1.5, 0.9) for lr in (0.1, 0.3, 30)})
    found = [each for each in training_rows(Results(curves)) if each.quantity == "train.best_lr"]
    assert [cells(each)["measured"] for each in found] == ["0.3", "0.1", "30"]


def test_the_same_rate_has_no_cost_and_no_error():
    same = {(dk, 0, lr): (lr, 2 * lr) for dk in (4, 16) for lr in (1.0, 3.0)}
    (kept,) = [each for each in training_rows(Results(made(same))) if "best of d_k=4" in each.id]
    assert cells(kept)["measured"] == "0"


@pytest.mark.parametrize(
    ("scaled", "says"),
    [
        ((0.5, 0.5), "without it, after 0 ± 0 steps with it"),
        ((0.5, 2.0), "without it, by only 1 of 2 seeds within 1 steps with it"),
        ((2.0, 2.0), "without it, by no seed within 1 steps with it"),
        ((2.0, math.inf), "no finite loss (1 of 2 seeds diverged) (with − without: no number)"),
    ],
)
def test_notes_say_in_words_what_was_not_reached(scaled, says):
    """½ ln 32 is 1.73."""
    curves = made({(4, 0, 1.0): (1.0, 1.0)}, scale="none") | made({(4, 0, 1.0): scaled})
    results = Results(curves)
    told = notes(training_rows(results), results, 32)
    (curve,) = [note for note in told if "(B-6.1-curve)" in note]
    assert says in curve
    assert not {"∞", "nan", "n/a"} & set(curve.split())


def test_notes_give_the_range_of_a_best_rate():
    losses = {(4, 0, lr): (1.0, 1.0) if lr == 0.3 else (1.5, 0.9) for lr in (0.1, 0.3, 30)}
    results = Results(made(losses, scale="none") | made(losses))
    told = " ".join(notes(training_rows(results), results, 32))
    assert "Each at its best rate, 0.3 [0.1, 30] without and 0.3 [0.1, 30] with" in told


def test_every_claim_is_answered_once_for_each_d_k_it_is_about(finished):
    told = finished.run.notes
    times = {
        "B-6.1-start": 1,
        "B-6.1-curve": 2,
        "B-6.2-lr": 2,
        "B-6.3-train": 2,  # d_k ≤ 16
        "B-5.2-lr": 1,
        "B-7.4": 2,
    }
    assert {name: sum(f"({name})" in note for note in told) for name in times} == times
    assert "one synthetic task" in told[-1]
    assert all("nan" not in note for note in told)


def test_notes_say_what_the_rows_say(finished, row):
    from sdpa_check.report.rows import rounded

    less = row(
        finished.run,
        "train.final_loss",
        dk=16,
        scale="sqrt",
        warmup=0,
        lr="best",
        versus={"scale": "none"},
    ).estimate
    (note,) = [n for n in finished.run.notes if "(B-6.1-curve), d_k=16" in n]
    assert rounded(less.value, less.se) in note


def test_without_both_scalings_nothing_is_answered():
    run = train(dk=4, scale=["sqrt", "dk"], lr=1.0, warmup=0, seeds=2, steps=2, keys=16, jobs=1)
    assert run.notes == ()
    assert any(each.params.get("versus") == {"scale": "sqrt"} for each in run.rows)


@pytest.mark.parametrize(
    ("lr", "steps", "says"),
    [
        (1.0, 2, "(the only one tried)"),
        ((1.0, 2.0), 2, "a tenth of it is not among the rates"),
        ((1e5, 1e6), 30, "tried) with the scale"),
    ],
)
def test_notes_of_odd_rates(lr, steps, says):
    options = {"warmup": 0, "seeds": 2, "keys": 16, "jobs": 1}
    assert says in " ".join(train(dk=4, lr=lr, steps=steps, **options).notes)


def test_workers_change_no_number(finished):
    for jobs in (2, None):
        assert numbers(train(DK, SCALE, **SMALL | {"jobs": jobs})) == numbers(finished.run)
    with ThreadPoolExecutor(2) as pool:
        run = train(DK, SCALE, **SMALL | {"executor": pool})
    assert numbers(run) == numbers(finished.run)


def test_the_seed_changes_the_numbers(finished):
    other = train(DK, SCALE, **SMALL | {"seed": 1})
    pairs = zip(finished.run.rows, other.rows, strict=True)
    moved = [a.estimate.value != b.estimate.value for a, b in pairs if "final" in a.quantity]
    assert sum(moved) > 0.9 * len(moved)


class TestResume:
    """What an interrupted run has finished is not done again, and the numbers are the same."""

    def test_after_an_interruption(self, finished, tmp_path):
        file, calls = tmp_path / "trials.json", []

        def interrupt(label, done, total, _):
            calls.append(done)
            if done > 20 and label == "trials":
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(DK, SCALE, **SMALL, trials=file, progress=interrupt)
        kept = len(json.loads(file.read_text())["trials"])
        assert kept == calls[-1]
        seen = []
        run = train(DK, SCALE, **SMALL, trials=file, progress=lambda *call: seen.append(call))
        assert run.environment["trials_resumed"] == kept
        assert seen[0][1] > kept
        assert seen[-1][:3] == ("trials", 48, 48)
        assert seen[-1][3]() is None
        assert numbers(run) == numbers(finished.run)

    def test_a_finished_run_is_read_and_left_alone(self, finished, tmp_path, monkeypatch):
        file = tmp_path / "trials.json"
        first = train(DK, SCALE, **SMALL, trials=str(file))
        text = file.read_bytes()
        monkeypatch.setattr(study_.trial, "train", lambda *_: pytest.fail("trained again"))
        again = train(DK, SCALE, **SMALL, trials=file)
        assert numbers(again) == numbers(first) == numbers(finished.run)
        assert file.read_bytes() == text

    def test_more_of_the_same_design_goes_on(self, tmp_path):
        file = tmp_path / "trials.json"
        train(4, SCALE, **SMALL | {"seeds": 2, "lr": 0.3}, trials=file)
        run = train(4, SCALE, **SMALL, trials=file)
        assert run.environment["trials_resumed"] == 8
        assert numbers(run) == numbers(train(4, SCALE, **SMALL))

    def test_a_failed_run_spares_what_another_design_left(self, tmp_path):
        file = tmp_path / "trials.json"
        train(4, "none", **SMALL, trials=file)

        def interrupt(label, done, total, _):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(4, "sqrt", **SMALL, trials=file, progress=interrupt)
        again = train(4, "none", **SMALL, trials=file)
        assert again.environment["trials_resumed"] == again.environment["trials"] == 12

    def test_a_new_run_trains_all_again_and_spares_the_file_until_its_end(self, tmp_path):
        file = tmp_path / "trials.json"
        train(4, SCALE, **SMALL, trials=file)

        def interrupt(label, done, total, _):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(4, "none", **SMALL, trials=file, resume=False, progress=interrupt)
        assert len(json.loads(file.read_text())["trials"]) == 24
        run = train(4, "none", **SMALL, trials=file, resume=False)
        assert run.environment["trials_resumed"] == 0
        assert len(json.loads(file.read_text())["trials"]) == 12

    def test_another_seed_starts_afresh(self, tmp_path):
        file = tmp_path / "trials.json"
        options = SMALL | {"seeds": 2, "lr": 0.3, "trials": file}
        train(4, "none", **options)
        assert train(4, "none", **options, seed=1).environment["trials_resumed"] == 0


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"lr": 0}, "--lr"),
        ({"lr": -1.0}, "--lr"),
        ({"lr": math.nan}, "--lr"),
        ({"lr": math.inf}, "--lr"),
        ({"lr": []}, "--lr"),
        ({"lr": "1"}, "--lr"),
        ({"lr": [1.0, True]}, "--lr"),
        ({"steps": 0}, "--steps"),
        ({"steps": 2.5}, "--steps"),
        ({"seeds": 1}, "--seeds"),
        ({"seeds": 1000, "lr": list(range(1, 40))}, "--seeds"),
        ({"keys": 8}, "--keys"),
        ({"keys": (64, 128)}, "--keys"),
        ({"warmup": -1}, "--warmup"),
        ({"warmup": []}, "--warmup"),
        ({"optimiser": "momentum"}, "--optimiser"),
        ({"scale": "sqr"}, "--scale"),
        ({"dk": 0}, "--dk"),
        ({"dk": 4096}, "--dk"),
        ({"jobs": 0}, "--jobs"),
        ({"seed": -1}, "--seed"),
        ({"dist": "gaussian"}, "option"),
    ],
    ids=str,
)
def test_an_input_that_cannot_be_used_is_named(options, names):
    with pytest.raises(InputError) as caught:
        train(**options)
    assert caught.value.where == names


def test_a_wide_head_widens_the_model():
    run = train(dk=[4, 80], lr=1.0, warmup=0, seeds=2, steps=1, keys=16, jobs=1)
    assert run.design["dmodel"] == 80


def test_figures_show_every_rate_and_say_so(finished):
    found = figures(finished)
    assert set(found) == {"curves", "best", "rates"}
    assert len(found["curves"].panels) == 4
    assert len(found["best"].panels) == 2
    assert len(found["rates"].panels) == 6  # a row of panels for each d_k, and the best rates
    assert found["rates"].columns == 2  # a column for each warmup
    assert from_json(to_json(found), "figures.json") == found
    for panel in (*found["curves"].panels, *found["best"].panels):
        assert [series.label for series in panel.series] == ["1 (none)", "1/√d"]
        for series in panel.series:
            assert len(series.x) == 40
            for y, lo, hi in zip(series.y, series.lo, series.hi, strict=True):
                assert lo <= y <= hi


def test_figures_say_which_warmup_they_show(finished):
    found = figures(finished)
    assert [found[name].title.endswith(", warmup 0") for name in found] == [True, True, False]
    assert [panel.title for panel in found["rates"].panels] == [
        "d_k = 4, warmup 0",
        "d_k = 4, warmup 8",
        "d_k = 16, warmup 0",
        "d_k = 16, warmup 8",
        "best rate, warmup 0",
        "best rate, warmup 8",
    ]


def test_a_scaling_looks_the_same_in_all_figures(finished):
    """Labels are those of the scalings alone, in one order: the drawing gives colours by these."""
    for figure in figures(finished).values():
        for panel in figure.panels:
            labels = dict.fromkeys(series.label for series in panel.series)
            assert list(labels) == ["1 (none)", "1/√d"]


def test_best_rates_do_not_cover_each_other(finished):
    for panel in figures(finished)["rates"].panels[-2:]:
        points = [series for series in panel.series if series.kind == "points"]
        places = [place for series in points for place in zip(series.x, series.y, strict=True)]
        assert len(places) == len(set(places)) == 4
        for series in points:
            assert series.x == pytest.approx(DK, rel=0.2)  # of steps by a factor of 4


def test_many_rates_are_thinned_out_and_a_diverged_curve_has_gaps():
    rates = [10.0 ** (i / 8) for i in range(30)] + [1e6]
    options = {"lr": rates, "warmup": 0, "seeds": 2, "steps": 3, "keys": 16, "jobs": 1}
    study = study_.study(4, "none", options)
    panels = figures(study)["curves"].panels
    assert len(panels) <= MOST_PANELS
    assert panels[0].title.endswith("lr = 1")
    assert panels[-1].title.endswith("lr = 1e6")


class TestCommand:
    """`sdpa-check train`."""

    LINE = ("train", "--dk=4", "--lr=0.3,3", "--warmup=0", "--steps=12", "--keys=16", "--seeds=2")

    def test_prints_and_saves_and_resumes(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        line = (*self.LINE, "--format=json", "--no-plot")
        assert command_line(line) == 0
        first = json.loads(capsys.readouterr().out)
        assert sorted(path.name for path in (tmp_path / "outputs" / "train").iterdir()) == [
            "run.json",
            "table.csv",
            "table.md",
            "trials.json",
        ]
        assert command_line((*line, "--resume")) == 0
        again = json.loads(capsys.readouterr().out)
        assert again["environment"]["trials_resumed"] == 8
        assert {**again, "environment": 0} == {**first, "environment": 0}

    def test_one_number_of_keys(self, capsys):
        assert command_line(("train", "--keys=16,32", "--no-save")) == 2
        assert "--keys: got '16,32', want one integer" in capsys.readouterr().err

    def test_saves_nothing_where_nothing_is_to_be_saved(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert command_line((*self.LINE, "--no-save")) == 0
        assert "measured only" in capsys.readouterr().out
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("option", "says"),
        [
            ("--lr=0", "--lr: got 0.0, want a learning rate > 0"),
            ("--lr=fast", "--lr: got 'fast', want a learning rate, e.g. 0.1"),
            ("--steps=0", "--steps: got 0, want an integer from 1"),
            ("--optimiser=adamw", "did you mean 'adam'?"),
            ("--seeds=few", "--seeds: got 'few', want an integer"),
        ],
    )
    def test_a_wrong_option_is_one_line(self, option, says, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert command_line((*self.LINE, option)) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert says in err
        assert err.count("\n") == 1
