"""What a drawn figure shows: the right marks in the right place, legible, the same every time."""

from __future__ import annotations

import io
import itertools
import math
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.image import imread
from matplotlib.markers import TICKDOWN, TICKLEFT
from matplotlib.text import Text
from matplotlib.ticker import LogLocator

from sdpa_check.report.figures import (
    Figure,
    HeatMap,
    Panel,
    Series,
    Span,
    from_json,
    to_json,
    values,
)
from sdpa_check.report.plots import draw, render

_DK = (4.0, 16.0, 64.0, 256.0, 1024.0)
_SQRT = tuple(math.sqrt(d) for d in _DK)


def _series(label="a", kind="points", x=(1.0, 2.0, 3.0), y=(1.0, 2.0, 3.0), **fields):
    return Series(label=label, kind=kind, x=x, y=y, **fields)


def _figure(*panels, **fields):
    return Figure(**{"title": "title", "panels": panels} | fields)


def _axes(panel):
    return draw(_figure(panel)).axes[0]


def _lines(axes):
    """The points of each line, without those that are not drawn."""
    data = [line.get_xydata() for line in axes.lines]
    return [xy[np.isfinite(xy).all(axis=1)].tolist() for xy in data]


def _scale():
    """Several laws on log axes, points on curves, a guide, long entries in the legend."""
    series = []
    for name, power in (("Gaussian", 0.5), ("t(1.5)", 0.876), ("Cauchy", 1.216)):
        label = f"{name}: fitted {power:.3f} ± 0.012, exact {power:.3f}"
        y = np.array(_DK) ** power
        series.append(_series(label, "curve", _DK, values(y)))
        series.append(
            _series(label, "points", _DK, values(y), lo=values(y / 1.1), hi=values(y * 1.1))
        )
    series.append(_series("slope ½", "guide", _DK, _SQRT))
    panel = Panel(
        xlabel="dₖ",
        ylabel="interquartile range of q·k",
        xscale="log2",
        yscale="log",
        series=tuple(series),
    )
    return _figure(panel, title="Scale of q·k against dₖ", caption="points: measured; lines: exact")


def _histograms():
    panels = []
    for d in (8, 64, 512):
        sigma = math.sqrt(d)
        edges = np.linspace(-4, 4, 41) * sigma
        middle = (edges[1:] + edges[:-1]) / 2
        density = np.exp(-((middle / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))
        panels.append(
            Panel(
                title=f"dₖ = {d}, σ = {sigma:.3g}",
                xlabel="q·k",
                ylabel="density",
                series=(
                    _series("measured", "steps", values(edges), values(density)),
                    _series("exact", "curve", values(middle), values(density)),
                ),
                spans=(Span(axis="x", lo=-sigma, hi=sigma, label="±σ"),),
            )
        )
    return _figure(*panels, title="The dot product", columns=3, caption="a million pairs each")


def _norms():
    names = ("entropy", "Frobenius, RMS", "Frobenius, median", "spectral", "∞-norm", "trace")
    panels = [
        Panel(
            title=name,
            xlabel="dₖ",
            ylabel="H (nats)",
            xscale="log2",
            yscale="log" if index % 2 else "linear",
            series=(
                _series("none", "curve", _DK, tuple(10.0 ** -(index * k) for k in range(5))),
                _series("1/√d", "points", _DK, (1.1,) * 5, lo=(1.0,) * 5, hi=(1.2,) * 5),
            ),
            spans=(Span(axis="y", lo=1.3, hi=1.3, label="ln m"),) if index == 0 else (),
        )
        for index, name in enumerate(names)
    ]
    return _figure(*panels, title="Softmax and Jacobian against dₖ", columns=3, caption="exact")


def _map():
    m, d = np.geomspace(2, 1e6, 12), np.geomspace(1, 1024, 11)
    z = 1 / (1 + d[:, None] / (2 * np.log(m)))
    panel = Panel(
        xlabel="keys m",
        ylabel="dₖ",
        xscale="log",
        yscale="log2",
        heatmap=HeatMap(
            x=tuple(m.tolist()),
            y=tuple(d.tolist()),
            z=tuple(values(row) for row in z),
            label="H / ln m (dimensionless)",
            limits=(0.0, 1.0),
            marks=((64.0, 16.0, 0.25), (1024.0, 4.0, 0.75)),
        ),
        series=(_series("frozen above: d > 2 ln m", "curve", values(m), values(2 * np.log(m))),),
    )
    return _figure(panel, title="Entropy of the unscaled softmax")


def _ledger():
    rows = ("no scale", "1/√d", "1/d", "QK-norm (RMS), no scale", "ALiBi slope ½, 1024 keys")
    std = (8.0, 1.0, 0.125, 8.0, 147.8)
    panel = Panel(
        xlabel="standard deviation of the logits (nats)",
        xscale="log",
        rows=rows,
        series=(
            _series("predicted", "rings", std, (0.0, 1.0, 2.0, 3.0, 4.0)),
            _series(
                "measured",
                "points",
                std,
                (0.0, 1.0, 2.0, 3.0, 4.0),
                lo=values(np.array(std) / 1.1),
                hi=values(np.array(std) * 1.1),
            ),
        ),
        spans=(
            Span(axis="x", lo=3.7, hi=None, label="frozen"),
            Span(axis="x", lo=None, hi=0.3, label="flat"),
        ),
    )
    return _figure(panel, title="What a change does to the logits")


_GALLERY = {
    "scale": _scale(),
    "histograms": _histograms(),
    "norms": _norms(),
    "map": _map(),
    "ledger": _ledger(),
}


def _boxes(canvas):
    """Name and box, in pixels, of every text that is seen."""
    canvas.draw_without_rendering()
    texts = [text for text in canvas.findobj(Text) if text.get_visible() and text.get_text()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    # Ticks beyond the ends of an axis exist, but are not drawn.
    hidden = set()
    for axes in canvas.axes:
        for axis in (axes.xaxis, axes.yaxis):
            shown = axis._update_ticks()
            ticks = axis.get_major_ticks() + axis.get_minor_ticks()
            hidden |= {id(tick.label1) for tick in ticks} - {id(tick.label1) for tick in shown}
            hidden |= {id(tick.label2) for tick in ticks}
    return [box for text, box in zip(texts, boxes, strict=True) if id(text) not in hidden]


@pytest.mark.parametrize("name", _GALLERY)
def test_no_text_overlaps_another_or_leaves_the_page(name):
    canvas = draw(_GALLERY[name])
    boxes = _boxes(canvas)
    assert len(boxes) > 10
    page = canvas.bbox
    for text, box in boxes:
        assert page.x0 <= box.x0, text
        assert box.x1 <= page.x1, text
        assert page.y0 <= box.y0, text
        assert box.y1 <= page.y1, text
    for (text, box), (other, its) in itertools.combinations(boxes, 2):
        assert not box.padded(-0.5).overlaps(its), f"{text!r} overlaps {other!r}"


@pytest.mark.parametrize("name", _GALLERY)
def test_the_legend_covers_no_axes(name):
    canvas = draw(_GALLERY[name])
    canvas.draw_without_rendering()
    (legend,) = canvas.legends
    for axes in canvas.axes:
        assert not axes.bbox.overlaps(legend.get_window_extent())


@pytest.mark.parametrize("name", ["scale", "map"])
def test_the_files_are_what_they_say_and_the_same_every_time(name):
    figure = _GALLERY[name]
    files = render(figure)
    assert files["png"].startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", files["png"][16:24])
    assert width == 1440
    assert 600 <= height <= 1000
    root = ET.fromstring(files["svg"])  # noqa: S314
    texts = {"".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")}
    panel = figure.panels[0]
    assert {figure.title, panel.xlabel, panel.ylabel} <= texts
    assert {series.label for series in panel.series} <= texts
    assert b"Date" not in files["svg"]
    assert render(from_json(to_json({"again": figure}), "file")["again"]) == files


def _pixels(png):
    return imread(io.BytesIO(png))


def _drawn_in_full(canvas):
    """The pixels of a figure that matplotlib lays out by itself as it saves it."""
    png = io.BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()
        canvas.savefig(png, format="png")
    return _pixels(png.getvalue())


@pytest.mark.parametrize("name", _GALLERY)
def test_the_picture_is_what_matplotlib_makes_by_itself(name):
    figure = _GALLERY[name]
    canvas = draw(figure)
    for panel, axes in zip(figure.panels, canvas.axes, strict=False):
        axes.spines[:].set_in_layout(True)
        axes._autotitlepos = None
        for axis in (axes.xaxis, axes.yaxis):
            axis._autolabelpos = True
        for line in list(axes.lines):
            if line.get_marker() in (TICKDOWN, TICKLEFT):
                axis = axes.xaxis if line.get_marker() == TICKDOWN else axes.yaxis
                axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=7))
                line.remove()
        assert axes.get_title() == panel.title
    assert np.array_equal(_pixels(render(figure)["png"]), _drawn_in_full(canvas))


@pytest.mark.parametrize(("low", "high"), [(0.02, 30), (3e-9, 5e-5), (7e-4, 1e3)])
@pytest.mark.parametrize("axis", ["x", "y"])
def test_minor_ticks_stand_where_a_locator_puts_them(axis, low, high):
    axes = _axes(Panel(**{f"{axis}scale": "log", f"{axis}lim": (low, high)}))
    (line,) = axes.lines
    along, across = line.get_xydata().T[:: 1 if axis == "x" else -1]
    assert (across == 0).all()
    at = getattr(axes, f"{axis}axis")
    at.set_minor_locator(LogLocator(subs=range(2, 10), numticks=7))
    ticks = [tick.get_loc() for tick in at._update_ticks()]
    majors = at.get_majorticklocs()
    assert along.tolist() == [tick for tick in ticks if tick not in majors]
    assert len(along) > 10
    assert low <= min(along) < max(along) <= high


def test_other_axes_have_no_minor_ticks():
    for scale, low, high in (
        ("log2", 1, 1000),
        ("linear", 1, 1000),
        ("log", 1, 50),
        ("log", 1e-30, 1e5),
    ):
        axes = _axes(Panel(xscale=scale, xlim=(low, high)))
        assert not axes.lines
        assert not len(axes.xaxis.get_minorticklocs())


def test_a_title_stands_above_the_common_factor_of_the_ticks():
    y = tuple(3e-7 * k for k in (1.0, 2.0, 3.0))
    canvas = draw(_figure(Panel(title="a long title " * 12, series=(_series(y=y),))))
    canvas.draw_without_rendering()
    (axes,) = canvas.axes
    factor = axes.yaxis.get_offset_text()
    assert factor.get_text()
    title = axes.title.get_window_extent()
    assert title.x0 < factor.get_window_extent().x1
    assert title.y0 >= factor.get_window_extent().y1


def test_the_settings_of_the_user_neither_count_nor_change():
    figure = _figure(Panel(series=(_series(),)))
    files = render(figure)
    with mpl.rc_context({"font.size": 20, "svg.fonttype": "path", "axes.edgecolor": "red"}):
        before = dict(mpl.rcParams)
        assert render(figure) == files
        assert dict(mpl.rcParams) == before


def test_matplotlib_comes_late_and_pyplot_never():
    code = """
import sys
from sdpa_check.report.figures import Figure, Panel
from sdpa_check.report import plots
assert "matplotlib" not in sys.modules
plots.render(Figure(title="", panels=(Panel(),)))
assert "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_log_axis_leaves_out_what_it_cannot_show():
    series = _series(x=(0.0, 1.0, 2.0, 3.0), y=(1.0, 0.0, None, 5.0))
    for scale in ("log", "log2"):
        axes = _axes(Panel(xscale=scale, yscale=scale, series=(series,)))
        assert _lines(axes)[1] == [[3.0, 5.0]]
    axes = _axes(Panel(series=(series,)))
    assert _lines(axes)[1] == [[0.0, 1.0], [1.0, 0.0], [3.0, 5.0]]


def test_a_missing_value_interrupts_a_curve():
    axes = _axes(Panel(series=(_series(kind="curve", y=(1.0, None, 3.0)),)))
    assert np.isnan(axes.lines[0].get_ydata()).tolist() == [False, True, False]


def test_error_bars_end_where_the_interval_ends():
    series = _series(lo=(0.5, None, 2.0), hi=(1.5, 3.0, 7.0))
    axes = _axes(Panel(yscale="log", series=(series,)))
    bars, points = axes.lines
    low, high, gap = bars.get_xydata().reshape(3, 3, 2).transpose(1, 0, 2)
    assert low[[0, 2]].tolist() == [[1.0, 0.5], [3.0, 2.0]]
    assert high[[0, 2]].tolist() == [[1.0, 1.5], [3.0, 7.0]]
    assert np.isnan(low[1, 1])
    assert np.isnan(gap[:, 1]).all()
    assert points.get_xydata().tolist() == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert axes.get_ylim()[0] < 0.5
    assert axes.get_ylim()[1] > 7.0


@pytest.mark.parametrize("lo", [0.0, -1.0])
@pytest.mark.parametrize("rows", [(), ("a", "b", "c")])
def test_of_an_interval_that_reaches_zero_a_log_axis_shows_the_upper_part(lo, rows):
    # The last value is 0: it has no point, and no bar either.
    value, at = (4.0, 2.0, 0.0), (0.0, 1.0, 2.0)
    x, y = (value, at) if rows else (at, value)
    series = _series(x=x, y=y, lo=(3.0, lo, lo), hi=(5.0, 3.0, 1.5))
    axes = _axes(Panel(**{"xscale" if rows else "yscale": "log"}, rows=rows, series=(series,)))
    bars, points = ([xy[:: -1 if rows else 1] for xy in line] for line in _lines(axes)[:2])
    assert bars[:4] == [[0.0, 3.0], [0.0, 5.0], [1.0, 2.0], [1.0, 3.0]]
    assert points == [[0.0, 4.0], [1.0, 2.0]]
    drawn = axes.lines[0].get_xydata()[6:8]
    assert not np.isfinite(drawn).all(axis=1).all()
    edge = axes.get_xlim()[0] if rows else axes.get_ylim()[0]
    assert edge > 1


def test_a_linear_axis_shows_intervals_below_zero():
    series = _series(y=(1.0, 2.0, 3.0), lo=(-1.0, 1.0, 2.0), hi=(3.0, 3.0, 4.0))
    assert _lines(_axes(Panel(series=(series,))))[0][:2] == [[1.0, -1.0], [1.0, 3.0]]


@pytest.mark.parametrize("lo", [0.0, -1.0, 1e-12])
def test_a_band_that_reaches_zero_runs_to_the_edge_of_a_log_axis(lo):
    series = _series(kind="curve", y=(4.0, 2.0, 2.0), lo=(3.0, lo, 1.0), hi=(5.0, 3.0, 3.0))
    axes = _axes(Panel(yscale="log", series=(series,)))
    corners = axes.collections[0].get_paths()[0].vertices
    assert axes.get_ylim()[0] == corners[:, 1].min() == 1.0


def test_the_interval_of_a_curve_is_a_band():
    series = _series(kind="curve", lo=(0.0, 1.0, 2.0), hi=(2.0, 3.0, 4.0))
    (band,) = _axes(Panel(series=(series,))).collections
    corners = {tuple(xy) for xy in band.get_paths()[0].vertices.tolist()}
    assert corners >= {(1.0, 0.0), (3.0, 2.0), (1.0, 2.0), (3.0, 4.0)}


def test_a_histogram_is_drawn_over_its_edges():
    series = _series(kind="steps", x=(0.0, 1.0, 3.0), y=(0.25, 0.5))
    (steps,) = _axes(Panel(series=(series,))).patches
    assert steps.get_data().values.tolist() == [0.25, 0.5]
    assert steps.get_data().edges.tolist() == [0.0, 1.0, 3.0]


def test_one_label_has_one_colour_and_one_legend_entry_in_all_panels():
    first = Panel(series=(_series("a", "curve"), _series("a"), _series("b")))
    second = Panel(
        series=(_series("b", "curve"), _series("b"), _series("a"), _series("g", "guide"))
    )
    canvas = draw(_figure(first, second))
    a_curve, _, a, _, b = canvas.axes[0].lines
    b_curve, _, b_again, _, a_again, guide = canvas.axes[1].lines
    assert a.get_color() == a_curve.get_color() == a_again.get_color()
    assert b.get_color() == b_curve.get_color() == b_again.get_color() != a.get_color()
    assert a.get_marker() == a_again.get_marker() != b.get_marker() == b_again.get_marker()
    assert a_curve.get_linestyle() != b_curve.get_linestyle()
    red, green, blue, _ = to_rgba(guide.get_color())
    assert red == green == blue
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == ["a", "b", "g"]


def test_what_has_no_label_is_grey_and_not_in_the_legend():
    canvas = draw(_figure(Panel(series=(_series("", "curve"),))))
    assert canvas.legends == []
    red, green, blue, _ = to_rgba(canvas.axes[0].lines[0].get_color())
    assert red == green == blue


def test_rows_run_from_the_top_with_intervals_along_x():
    panel = Panel(
        rows=("first", "second"),
        series=(_series(x=(5.0, 7.0), y=(0.0, 1.0), lo=(4.0, 6.0), hi=(6.0, 9.0)),),
    )
    axes = _axes(panel)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["first", "second"]
    assert axes.get_ylim() == (1.5, -0.5)
    assert _lines(axes)[0] == [[4.0, 0.0], [6.0, 0.0], [6.0, 1.0], [9.0, 1.0]]


def test_a_span_is_shaded_to_the_edge_where_it_is_open():
    spans = (
        Span(axis="x", lo=None, hi=2.0, label="low"),
        Span(axis="x", lo=50.0, hi=None, label="high"),
        Span(axis="y", lo=2.5, hi=2.5, label="line"),
    )
    axes = _axes(Panel(xscale="log", series=(_series(),), spans=spans))
    outlines = [
        patch.get_patch_transform().transform_path(patch.get_path()) for patch in axes.patches
    ]
    low, high, line = (outline.get_extents() for outline in outlines)
    left, right = axes.get_xlim()
    assert left < 1.0
    assert right > 50.0
    assert (low.xmin, low.xmax) == pytest.approx((left, 2.0))
    assert (high.xmin, high.xmax) == pytest.approx((50.0, right))
    assert (line.ymin, line.ymax) == (2.5, 2.5)
    labels = {text.get_text(): text.xy for text in axes.texts}
    assert labels["low"] == pytest.approx((math.sqrt(left * 2.0), 1))
    assert labels["line"] == (1, pytest.approx(2.5))


def test_the_cells_of_a_map_meet_half_way_on_its_axes():
    field = HeatMap(
        x=(1.0, 4.0, 16.0),
        y=(1.0, 3.0),
        z=((0.0, 1.0, None), (2.0, 3.0, 5.0)),
        label="z",
        marks=((4.0, 1.0, 4.0), (1.0, 3.0, 1.0)),
    )
    axes = _axes(Panel(xscale="log2", heatmap=field))
    mesh, discs = axes.collections
    corners = mesh.get_coordinates()
    assert corners[0, :, 0].tolist() == pytest.approx([0.5, 2.0, 8.0, 32.0])
    assert corners[:, 0, 1].tolist() == pytest.approx([0.0, 2.0, 4.0])
    assert mesh.get_array().filled(-1).ravel().tolist() == [0.0, 1.0, -1.0, 2.0, 3.0, 5.0]
    assert axes.get_xlim() == pytest.approx((0.5, 32.0))
    discs.update_scalarmappable()
    assert discs.get_facecolors().tolist() == [list(mesh.cmap(0.8)), list(mesh.cmap(0.2))]


def test_the_line_on_a_map_is_seen_and_leaves_its_limits():
    field = HeatMap(x=(1.0, 2.0), y=(1.0, 2.0), z=((0.0, 1.0), (1.0, 0.0)), label="z")
    line = _series("line", "curve", x=(-9.0, 9.0), y=(-9.0, 9.0))
    axes = _axes(Panel(heatmap=field, series=(line,)))
    assert axes.get_xlim() == (0.5, 2.5)
    assert axes.get_ylim() == (0.5, 2.5)
    assert to_rgba(axes.lines[0].get_color()) == (1, 1, 1, 1)
    assert axes.lines[0].get_path_effects()


def test_given_limits_hold():
    axes = _axes(Panel(yscale="log", series=(_series(),), xlim=(0.0, 9.0), ylim=(1e-3, 2.0)))
    assert axes.get_xlim() == (0.0, 9.0)
    assert axes.get_ylim() == (1e-3, 2.0)


def _ticks(scale, low, high):
    axes = _axes(Panel(xscale=scale, xlim=(low, high)))
    axes.get_figure().draw_without_rendering()
    ticks = axes.xaxis._update_ticks()
    return [tick.label1.get_text() for tick in ticks if tick.label1.get_text()]


@pytest.mark.parametrize(
    ("scale", "low", "high", "labels"),
    [
        ("log2", 7, 600, ["8", "16", "32", "64", "128", "256", "512"]),
        ("log2", 79, 97, ["80", "85", "90", "95"]),
        ("log2", 3e4, 6e5, ["2¹⁵", "2¹⁶", "2¹⁷", "2¹⁸", "2¹⁹"]),
        ("log", 0.5, 20, ["0.5", "1", "2", "5", "10", "20"]),
        ("log", 0.05, 2e3, ["0.1", "1", "10", "100", "1000"]),
        ("log", 1e-9, 5e-6, ["10⁻⁹", "10⁻⁸", "10⁻⁷", "10⁻⁶"]),
        ("log", 1e-9, 5e-8, ["10⁻⁹", "2·10⁻⁹", "5·10⁻⁹", "10⁻⁸", "2·10⁻⁸", "5·10⁻⁸"]),
        ("linear", 0, 2000, ["0", "500", "1000", "1500", "2000"]),
    ],
)
def test_ticks_are_few_and_short(scale, low, high, labels):
    assert _ticks(scale, low, high) == labels


def test_a_long_axis_labels_some_of_the_powers():
    labels = _ticks("log2", 3, 5000)
    assert 4 <= len(labels) <= 7
    assert all(float(label).hex().startswith("0x1.0000000000000p") for label in labels)


@pytest.mark.parametrize(("scale", "low", "high"), [("log2", 32, 128), ("log", 10, 100)])
def test_a_single_point_stands_inside_its_axes(scale, low, high):
    series = _series(x=(64.0,), y=(8.0,), lo=(0.0,), hi=(9.0,))
    left, right = _axes(Panel(xscale=scale, yscale="log", series=(series,))).get_xlim()
    assert left < low < 64.0 < high < right


@pytest.mark.parametrize(
    "panel",
    [
        Panel(),
        Panel(xscale="log", yscale="log2"),
        Panel(xscale="log", yscale="log", series=(_series(y=(None, 0.0, -1.0)),)),
        Panel(series=(_series(x=(), y=()), _series(kind="curve", y=(None,) * 3))),
        Panel(heatmap=HeatMap(x=(1.0,), y=(1.0,), z=((None,),), label="")),
    ],
)
def test_a_panel_without_data_is_drawn_empty(panel):
    render(_figure(panel))


def test_text_is_no_markup():
    text = r"cost $5_{ & $6 <b> \frac{ 50 % x_1"
    figure = _figure(Panel(title=text, series=(_series(text),)), title=text, caption=text)
    texts = [node.text for node in ET.fromstring(render(figure)["svg"]).iter()]  # noqa: S314
    # The title twice more: as the title of the document and in its metadata.
    assert texts.count(text) == 6


def test_numbers_at_the_lower_end_of_floats_can_be_drawn():
    """As the median of ‖J‖_F under Cauchy components; powers beyond that end are 0."""
    line = Series(label="a", kind="points", x=(1.0, 2.0, 3.0), y=(1e-320, 1e-200, 0.5))
    panel = Panel(xlabel="x", yscale="log", series=(line,))
    assert render(Figure(title="small", panels=(panel,)))["png"]
