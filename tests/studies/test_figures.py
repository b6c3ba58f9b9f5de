"""The figures of the studies, from sweeps that are small here."""

from __future__ import annotations

import dataclasses
import math

import pytest

from sdpa_check.estimates import BEYOND, bare
from sdpa_check.records import Component, Outcome, Prediction, Row
from sdpa_check.report.figures import Figure, Panel, Series, from_json, to_json
from sdpa_check.studies import saturation, saturation_figures, sweep, variance, variance_figures
from sdpa_check.theory import saturation as theory


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few samples, and few designs beside those that are asked for."""
    for module, sizes in (
        (
            variance_figures,
            {"_SAMPLES": 1 << 14, "_SWEEP": (1, 16), "SHOWN": (8,), "REFERENCES": ()},
        ),
        (saturation_figures, {"_SAMPLES": 1 << 11, "_DKS": (2, 8), "_KEYS": (2, 8)}),
    ):
        for name, value in sizes.items():
            monkeypatch.setattr(module, name, value)


def drawn(figures: dict[str, Figure]) -> dict[str, Figure]:
    """The figures, after a round trip that a file would be."""
    back = from_json(to_json(figures), "figures.json")
    assert back == figures
    return back


def variance_of(dk=4, scale="sqrt", **options):
    study = variance.study(dk, scale, {"samples": 4096, **options})
    return study, drawn(variance_figures.figures(study))


def saturation_of(dk=4, keys=4, scale="all", **options):
    study = saturation.study(dk, keys, scale, {"samples": 2048, **options})
    return study, drawn(saturation_figures.figures(study))


def lines(figure: Figure, kind: str):
    return [series for panel in figure.panels for series in panel.series if series.kind == kind]


def area(series) -> float:
    """The integral of a histogram."""
    widths = [b - a for a, b in zip(series.x, series.x[1:], strict=False)]
    return sum(w * y for w, y in zip(widths, series.y, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"dk": [4, 32]},
        {"dist": "cauchy", "samples": 300_000},
        {"dist": "t", "df": 3.0},
        {"dist": "rademacher"},
        {"mean": 0.5, "mean_k": 0.2},
        {"sigma": 2.0, "corr": "qk:0.3"},
        {"dist": "t", "df": 3.0, "corr": "qk:0.5", "dk": 64},
        {"dist": "t", "df": 5.0, "corr": "qk:0.5", "dk": 512},
        {"dist": "cauchy", "mean": 1.0, "samples": 300_000},
    ],
    ids=str,
)
def test_variance_has_a_histogram_and_a_scale(options):
    study, figures = variance_of(**options)
    assert {"histogram", "scale"} <= set(figures)
    asked = {row.params["dk"] for row in study.run.rows if "exponent" not in row.quantity}
    titles = [panel.title.partition(",")[0] for panel in figures["histogram"].panels]
    assert titles == [f"d_k = {d}" for d in sorted({*asked, 8})]
    for series in lines(figures["histogram"], "steps"):
        assert len(series.x) == len(series.y) + 1
        # the panels reach to 4.5 standard deviations, or to 6 interquartile ranges
        assert 0.8 < area(series) <= 1 + 1e-9
        assert max(series.y[0], series.y[-1]) < 0.05 * max(series.y)
    points = lines(figures["scale"], "points")
    assert points
    assert all(series.x == tuple(sorted({1, 16, *asked})) for series in points)


def test_a_sample_beyond_all_bins_is_drawn_empty():
    """t(0.1) under qk:ρ: no law and no quantile within the bins, so a width of its own."""
    _, figures = variance_of(dk=64, dist="t", df=0.1, corr="qk:0.5")
    for series in lines(figures["histogram"], "steps"):
        assert max(series.y) < 1e-9
    assert any("exponent not measured" in each.label for each in lines(figures["scale"], "points"))


def test_the_title_of_a_histogram_names_the_std_of_the_dot_product():
    for options, text in (
        ({"dist": "t", "df": 3.0, "corr": "qk:0.5"}, "std = ∞"),
        ({"dist": "cauchy"}, "std = ∞"),
        ({"sigma": 3.0, "sigma_k": 1.0}, "std = 6"),
    ):
        _, figures = variance_of(**options)
        assert figures["histogram"].panels[0].title == f"d_k = 4, {text}"


def test_captions_say_what_is_drawn_and_what_of_it_was_not_asked_for(monkeypatch):
    laws = (Component(), Component(distribution="t", df=3.0))
    monkeypatch.setattr(variance_figures, "REFERENCES", laws)
    _, figures = variance_of(dk=[4, 8])
    captions = {name: figure.caption for name, figure in figures.items()}
    assert captions["histogram"] == "Steps: measured density. Curve: exact density."
    assert captions["scale"].endswith("Added for comparison: d_k = 1, 16; t(3).")
    assert "Dotted: √d_k through the last point of gaussian." in captions["scale"]
    assert captions["tails"].endswith(
        "The points of a law share samples: neighbours go astray together. "
        "Added for comparison: t(3)."
    )
    _, figures = variance_of(dk=4, dist="rademacher")
    caption = figures["histogram"].caption
    assert caption == "Steps: measured density. Added for comparison: d_k = 8."


def test_captions_of_saturation():
    for options, line in (({"dist": "laplace"}, "Dotted: Gaussian limit."), ({}, "Lines: exact.")):
        _, figures = saturation_of(dk=[4, 16], keys=8, scale="sqrt", **options)
        found = {name: figures[name].caption for name in ("against_dk", "against_keys")}
        assert found == {
            name: f"Points: measured, with 95 % intervals. {line} Added for comparison: {added}."
            for name, added in (("against_dk", "d_k = 2, 8"), ("against_keys", "m = 2"))
        }
    assert figures["map"].caption == "Colour: exact."
    _, figures = saturation_of(dk=[2, 8], keys=[2, 8], scale="none")
    assert "Added" not in figures["against_dk"].caption + figures["against_keys"].caption
    assert "Discs: measured" in figures["map"].caption


def test_points_without_an_interval_or_half_of_one_are_explained():
    def caption(yscale, lo):
        points = Series(label="", kind="points", x=(1.0, 2.0), y=(1.0, 1.0), lo=lo, hi=(2.0, 2.0))
        return sweep.reading((Panel(yscale=yscale, series=(points,)),))

    plain = "Points: measured, with 95 % intervals."
    assert caption("log", (0.5, 0.5)) == caption("linear", (0.5, 0.0)) == plain
    assert caption("log", (0.5, None)) == f"{plain[:-1]} where there are any."
    assert (
        caption("log", (0.5, 0.0)) == f"{plain} An interval that reaches 0 is drawn upwards only."
    )


def test_an_estimate_beyond_the_bins_leaves_a_gap():
    estimates = (bare(1.0, 8, 64, ""), bare(math.nan, 8, 64, BEYOND))
    none = Prediction(value=None, kind="none", source="")
    row = Row(
        id="a",
        quantity="dot.iqr",
        params={"dk": 1},
        estimate=estimates[0],
        prediction=none,
        verdict=Outcome.UNDEFINED,
        expected=Outcome.UNDEFINED,
        reason="",
    )
    rows = [row, dataclasses.replace(row, params={"dk": 2}, estimate=estimates[1])]
    (points,) = sweep.series("", rows, "dk")
    assert points.y == (1.0, None)


def test_other_laws_are_drawn_beside_the_one_asked_for(monkeypatch):
    references = (Component(), Component(distribution="t", df=3.0))
    monkeypatch.setattr(variance_figures, "REFERENCES", references)
    _, figures = variance_of(sigma=2.0)
    for name in ("scale", "tails"):
        labels = " ".join(series.label for series in lines(figures[name], "points"))
        assert all(law in labels for law in ("gaussian", "gaussian, σ = 2", "t(3)"))


def test_the_histogram_lies_on_the_exact_density():
    _, figures = variance_of(dk=8)
    for panel in figures["histogram"].panels:
        by_kind = {series.kind: series for series in panel.series}
        steps, curve = by_kind["steps"], by_kind["curve"]
        assert max(curve.y) == pytest.approx(max(steps.y), rel=0.25)
        assert curve.y[0] < 0.01 * max(curve.y)


def test_a_lattice_law_has_no_exact_density():
    _, figures = variance_of(dist="rademacher")
    assert not lines(figures["histogram"], "curve")


def test_many_d_fill_six_panels_at_most():
    _, figures = variance_of(dk=[1, 2, 3, 4, 5, 6, 7], dist="rademacher")
    assert len(figures["histogram"].panels) == 6


def test_saturation_figures():
    study, figures = saturation_of(dk=[4, 16], keys=4, sigma=0.5, sigma_k=1.0)
    assert list(figures) == ["against_dk", "against_keys", "map"]
    (panel, second, *_) = figures["against_dk"].panels
    assert (panel.ylabel, second.ylabel) == ("entropy (nats)", "RMS ‖J‖_F")
    points = [series for series in panel.series if series.kind == "points"]
    assert [series.label for series in points] == ["1 (none)", "1/√d", "1/d"]
    assert points[0].x == (2, 4, 8, 16)
    (curve, *_) = [series for series in panel.series if series.kind == "curve"]
    exact = [theory.gaussian_rows(dk=d, keys=4, multiplier=0.5).entropy for d in (2, 4, 8, 16)]
    assert curve.y == pytest.approx(exact, rel=1e-9)
    for series in points:
        for lo, y, hi in zip(series.lo, series.y, series.hi, strict=True):
            assert lo <= y <= hi

    (panel,) = figures["map"].panels
    heatmap, (line,) = panel.heatmap, panel.series
    row, column = heatmap.y.index(16.0), heatmap.x.index(8.0)
    rows = theory.gaussian_rows(dk=16, keys=8, multiplier=0.5)
    assert heatmap.z[row][column] == pytest.approx(rows.entropy / math.log(8), rel=1e-12)
    assert panel.xlim == (line.x[0], line.x[-1])
    assert line.x[0] == heatmap.x[0] == 2
    for keys, dk in zip(line.x, line.y, strict=True):  # τ² = 2 ln m
        assert dk * 0.5**2 == pytest.approx(2 * math.log(keys), rel=1e-12)
    ratios = [each for each in study.run.rows if each.quantity == "softmax.entropy_ratio"]
    measured = [each.estimate.value for each in ratios if each.params["scale"] == "none"]
    assert heatmap.marks == ((4.0, 4.0, measured[0]), (4.0, 16.0, measured[1]))


@pytest.mark.parametrize("options", [{"dist": "laplace"}, {"mean": 1.0}, {"dist": "cauchy"}])
def test_no_map_where_theory_has_none(options):
    _, figures = saturation_of(scale="sqrt", **options)
    assert list(figures) == ["against_dk", "against_keys"]
    assert not lines(figures["against_dk"], "curve")
    assert bool(lines(figures["against_dk"], "guide")) == (options == {"dist": "laplace"})


def test_figures_depend_on_the_seed_and_not_on_jobs():
    one, again, other = (
        to_json(variance_of(dk=4, dist="rademacher", seed=seed, jobs=jobs)[1])
        for seed, jobs in ((1, 1), (1, 3), (2, 1))
    )
    assert one == again
    assert one != other
