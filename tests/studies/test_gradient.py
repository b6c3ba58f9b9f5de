"""`gradient`: what goes back through the softmax, per scaling."""

from __future__ import annotations

import pytest

import sdpa_check
from sdpa_check.errors import InputError
from sdpa_check.records import Run
from sdpa_check.studies import gradient as command
from sdpa_check.studies import pipeline_figures
from sdpa_check.studies.gradient import BURSTS, NORMS, STATISTICS

QUICK = {"samples": 2048, "seed": 1}


def gradient(dk=8, keys=6, scale="all", **options):
    return sdpa_check.gradient(dk, keys, scale, **{**QUICK, **options})


def value(row, run, quantity, rule, statistic=None, **params):
    if statistic:
        params["statistic"] = statistic
    return row(run, quantity, pipeline=f"scale:{rule}", **params).estimate.value


def test_rows_in_their_order(within_error):
    run = gradient(dk=[8, 4], keys=[6, 2], scale=["dk", "none"])
    assert isinstance(run, Run)
    assert run.command == "gradient"
    each = [(norm, s) for norm in NORMS for s in STATISTICS] + [(name, None) for name in BURSTS]
    got = [(r.quantity, r.params.get("statistic")) for r in run.rows]
    assert got == each * 8
    where = [(r.params["dk"], r.params["keys"], r.params["pipeline"]) for r in run.rows]
    designs = [(8, 6), (8, 2), (4, 6), (4, 2)]
    rules = ("scale:dk", "scale:none")
    assert where == [(*design, rule) for design in designs for rule in rules for _ in each]
    assert run.design["scale"] == ["dk", "none"]
    within_error(run)


def test_all_stands_for_three_scalings(row):
    run = gradient(dk=64, keys=16)
    assert run.design["scale"] == ["none", "sqrt", "dk"]
    (note,) = run.notes
    for rule in ("none", "sqrt"):
        for statistic in ("rms", "median"):
            assert f"{value(row, run, 'gradient.query', rule, statistic):.3g}" in note
        assert f"{value(row, run, 'gradient.query_burstiness', rule):.3g}" in note
    assert gradient(scale="sqrt").notes == ()


def test_quantiles_are_ordered_and_bursts_are_their_ratio(row):
    run = gradient(dk=64, keys=16)
    for rule in ("none", "sqrt", "dk"):
        for norm, burst in zip(NORMS, BURSTS, strict=False):
            low, mid, high, rms = (
                value(row, run, norm, rule, s) for s in ("q05", "median", "q95", "rms")
            )
            assert 0 < low < mid < high
            assert value(row, run, burst, rule) == pytest.approx(rms / mid, rel=1e-12)
    # Unscaled bursts: the RMS is above the median by a factor that no error bar of 2048 rows hides.
    bursts = [value(row, run, BURSTS[1], rule) for rule in ("none", "sqrt", "dk")]
    assert bursts[0] > 2 > bursts[1] > bursts[2] > 0.99


def test_d_model_is_the_norm_of_the_input(row):
    """‖x‖ has d_model components: the RMS of ∂L/∂W_Q is √d_model times that of ∂L/∂q."""
    for d_model, size in ((None, 8), (128, 128)):
        run = gradient(scale="sqrt", dmodel=d_model, samples=8192)
        ratio = value(row, run, "gradient.w_q", "sqrt", "rms") / value(
            row, run, "gradient.query", "sqrt", "rms"
        )
        # A ratio on the same rows; its relative error is below √(2/size)/√8192/2 · (a few).
        assert ratio**2 == pytest.approx(size, rel=6 * 2 * (2 / size) ** 0.5 / 8192**0.5)


def test_sqrt_dmodel_is_a_scaling(row):
    run = gradient(scale=["sqrt_dmodel", "sqrt"], dk=8, dmodel=8)
    one, other = (value(row, run, "gradient.query", r, "rms") for r in ("sqrt_dmodel", "sqrt"))
    assert one == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"corr": "qk:0.5"}, "--corr: got 'qk:0.5'"),
        ({"scale": "sqr"}, "--scale"),
        ({"scale": "sqrt_dmodel"}, "--dmodel"),
        ({"scale": "iqr"}, "needs the law of q·k"),
        ({"keys": 1}, "--keys: got 1"),
    ],
)
def test_refused(options, said):
    with pytest.raises(InputError) as caught:
        gradient(**options)
    assert said in str(caught.value)


def test_figures(monkeypatch):
    monkeypatch.setattr(pipeline_figures, "_DKS", (4, 8))
    monkeypatch.setattr(pipeline_figures, "_ROWS", 1024)
    study = command.study(8, 6, ["none", "sqrt"], QUICK)
    figure = pipeline_figures.gradient_figures(study)["gradient"]
    assert [panel.title for panel in figure.panels] == [
        f"{statistic} of {symbol}"
        for symbol in ("‖∂L/∂s‖", "‖∂L/∂q‖")
        for statistic in ("RMS", "median")
    ]
    for panel in figure.panels:
        points = [series for series in panel.series if series.kind == "points"]
        curves = [series for series in panel.series if series.kind == "curve"]
        assert [series.label for series in points] == ["1 (none)", "1/√d"]
        assert all(tuple(series.x) == (4, 8) for series in points)
        assert len(curves) == (2 if panel.title.startswith("RMS") else 0)


@pytest.mark.parametrize(("options", "reused"), [({"tolerance": 0.1}, True), (QUICK, False)])
def test_a_figure_takes_what_the_table_has_sampled_where_that_was_planned(
    monkeypatch, options, reused
):
    monkeypatch.setattr(pipeline_figures, "_DKS", (8,))
    monkeypatch.setattr(pipeline_figures, "_ROWS", 1024)
    study = command.study(8, 6, ["none"], options)
    panel = pipeline_figures.gradient_figures(study)["gradient"].panels[0]
    (shown,) = (series for series in panel.series if series.kind == "points")
    (row,) = (
        row
        for row in study.run.rows
        if row.quantity == "gradient.logits" and row.params["statistic"] == "rms"
    )
    assert (row.estimate.value in shown.y) == reused


def test_notes_say_what_the_scale_buys_only_where_it_does():
    (note,) = sdpa_check.gradient(64, 16, ["none", "sqrt"], samples=4096).notes
    assert note.endswith("what the scale buys is a gradient that is not made of bursts.")
    (note,) = sdpa_check.gradient(4, 64, ["none", "sqrt"], samples=4096).notes
    assert note.endswith("times scaled.")
    assert sdpa_check.gradient(64, 16, ["none", "sqrt"], dist="cauchy", samples=2048).notes == ()
