"""Draw a `Figure` of plain data with matplotlib: the same figure gives the same bytes."""

from __future__ import annotations

import io
import math
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas
    from numpy.typing import NDArray

    from sdpa_check.report.figures import Figure, HeatMap, Panel, Scale, Series, Span, Values

# The palette of Okabe and Ito (2008), told apart by every common kind of colour vision; without
# its yellow, which is too pale for lines on white.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
# None of the patterns is dotted: dots are for guides.
_DASHES: Final = ("solid", (0, (6, 2)), (0, (6, 2, 1.5, 2)), (0, (3, 1.5)))
_GREY: Final = "#666666"
_SCALES: Final[dict[Scale, dict[str, Any]]] = {
    "linear": {"value": "linear"},
    "log": {"value": "log"},
    "log2": {"value": "log", "base": 2},
}
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_WIDTH: Final = 9.0  # inches, of every figure, so that a page shows all text at one size
_EFFORT: Final = 3  # of zlib: half the time of its default, for files about a tenth larger
_RC: Final[dict[Any, Any]] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 9.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.dpi": 160,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "font.size": 9,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "legend.borderaxespad": 0,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "legend.title_fontsize": 8.5,
    "svg.fonttype": "none",  # text stays text, which can be searched and read aloud
    "svg.hashsalt": "sdpa-check",
    "text.parse_math": False,  # a $ in a label is a $
}


class _Style(NamedTuple):
    colour: str
    marker: str
    dashes: Any


_PLAIN: Final = _Style(_GREY, "o", "solid")  # of what has no label, and of guides by themselves


class _Marks(NamedTuple):
    """A series as arrays, NaN where its panel shows nothing; `sideways` intervals lie along x."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    sideways: bool
    style: _Style


def load() -> None:
    """Import matplotlib: processes that are forked from now on need not."""
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401


def draw(figure: Figure) -> Canvas:
    """The figure as a matplotlib figure, for the caller to restyle or save.

    The minor ticks of a log axis are drawn for the limits that it has now.
    """
    with _settings():
        return _draw(figure)


def render(figure: Figure) -> dict[str, bytes]:
    """The figure as a PNG, 1440 pixels wide, and as an SVG, under the keys ``png`` and ``svg``."""
    with _settings():
        canvas = _draw(figure)
        # One layout for both files; with an engine left, savefig would draw each file twice.
        engine: Any = canvas.get_layout_engine()
        engine.execute(canvas)
        canvas.set_layout_engine(None)
        png, svg = io.BytesIO(), io.BytesIO()
        title = {"Title": figure.title}
        canvas.savefig(png, format="png", metadata=title, pil_kwargs={"compress_level": _EFFORT})
        canvas.savefig(svg, format="svg", metadata={**title, "Date": None})
    return {"png": png.getvalue(), "svg": svg.getvalue()}


@contextmanager
def _settings() -> Iterator[None]:
    """The settings of every figure, whatever the user's matplotlibrc says."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


def _draw(figure: Figure) -> Canvas:
    from matplotlib.figure import Figure as Canvas

    columns = min(figure.columns, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    canvas = Canvas(figsize=(_WIDTH, 0.9 + rows * _row_height(figure)), layout="constrained")
    canvas.suptitle(textwrap.fill(figure.title, 80))
    styles = _styles(figure)
    legend: dict[str, dict[str, Artist]] = {}
    for index, panel in enumerate(figure.panels):
        axes = canvas.add_subplot(rows, columns, index + 1)
        for series, artist in zip(panel.series, _draw_panel(axes, panel, styles), strict=True):
            if series.label:
                legend.setdefault(series.label, {}).setdefault(series.kind, artist)
    _draw_legend(canvas, legend, figure.caption)
    return canvas


def _row_height(figure: Figure) -> float:
    """Inches for one row of panels."""
    rows = max(len(panel.rows) for panel in figure.panels)
    if rows:
        return 0.8 + 0.27 * rows
    return 3.9 if len(figure.panels) == 1 else 2.8


def _draw_legend(canvas: Canvas, legend: dict[str, dict[str, Artist]], caption: str) -> None:
    """The caption and, below it, one entry a label, under all panels."""
    if not legend and not caption:
        return
    # As many columns as fit into the width, at about 0.07 inches a character.
    longest = max(map(len, legend), default=0)
    columns = max(1, min(len(legend), int(_WIDTH / (0.07 * longest + 0.6))))
    # A tuple draws its artists over each other: the point on its curve.
    handles: list[Any] = [tuple(artists.values()) for artists in legend.values()]
    box = canvas.legend(handles, list(legend), loc="outside lower center", ncols=columns)
    box.set_title(textwrap.fill(caption, 110))
    box.get_title().set(color=_GREY, multialignment="center")


def _styles(figure: Figure) -> dict[str, _Style]:
    """Colour, marker and dashes of each label, each taken in the order of first use."""

    def order(*kinds: str) -> dict[str, int]:
        series = [series for panel in figure.panels for series in panel.series]
        labels = dict.fromkeys(item.label for item in series if item.label and item.kind in kinds)
        return {label: index for index, label in enumerate(labels)}

    markers, dashes = order("points", "rings"), order("curve")
    return {
        label: _Style(
            _COLOURS[index % len(_COLOURS)],
            _MARKERS[markers.get(label, 0) % len(_MARKERS)],
            _DASHES[dashes.get(label, 0) % len(_DASHES)],
        )
        for label, index in order("points", "rings", "curve", "steps").items()
    }


def _draw_panel(axes: Axes, panel: Panel, styles: dict[str, _Style]) -> list[Artist]:
    """Draw one panel; the artists stand for its series in the legend."""
    axes.set_xlabel(panel.xlabel)
    axes.set_ylabel(panel.ylabel)
    axes.set_xscale(**_SCALES[panel.xscale])
    axes.set_yscale(**_SCALES[panel.yscale])
    if panel.heatmap:
        _draw_heatmap(axes, panel, panel.heatmap)
    floor = _floor(panel)
    artists = _draw_series(axes, panel, floor, styles)
    _set_limits(axes, panel, floor)
    _draw_spans(axes, panel.spans)
    _set_ticks(axes.xaxis, panel.xscale)
    _set_ticks(axes.yaxis, panel.yscale)
    if panel.rows:
        axes.set_yticks(range(len(panel.rows)), panel.rows)
        axes.tick_params(axis="y", length=0)
    _set_title(axes, panel)
    _spare_layout(axes, panel)
    return artists


def _set_title(axes: Axes, panel: Panel) -> None:
    """The title at its fixed height; only a common factor of the y axis may push it upwards.

    To place a title by itself, matplotlib lays out all ticks once more in every pass.
    """
    formatter = axes.yaxis.get_major_formatter()
    formatter.set_locs(axes.yaxis.get_majorticklocs().tolist())
    named = any(span.label and span.axis == "x" for span in panel.spans)
    y = None if formatter.get_offset() else 1.0
    axes.set_title(panel.title, y=y, pad=18 if named else 6)


def _spare_layout(axes: Axes, panel: Panel) -> None:
    """Leave out of the layout what takes time and no room."""
    axes.spines[:].set_in_layout(False)  # within the box of the axes and their ticks
    if not panel.ylabel:
        axes.yaxis.set_label_coords(0, 0.5)


def _draw_heatmap(axes: Axes, panel: Panel, field: HeatMap) -> None:
    canvas: Any = axes.get_figure()
    low, high = field.limits or (None, None)
    mesh = axes.pcolormesh(
        _edges(field.x, panel.xscale),
        _edges(field.y, panel.yscale),
        np.array(field.z, dtype=np.float64),
        cmap="cividis",  # made to look the same with and without red-green vision
        vmin=low,
        vmax=high,
        rasterized=True,  # a picture within the SVG: smaller, and without seams between cells
    )
    axes.grid(visible=False)
    axes.margins(0)
    _freeze_limits(axes)  # what is drawn on the map does not widen it
    canvas.colorbar(mesh, ax=axes, label=field.label, pad=0.02)
    if field.marks:
        x, y, z = zip(*field.marks, strict=True)
        low, high = mesh.get_clim()
        discs = axes.scatter(x, y, s=60, c=z, cmap=mesh.cmap, vmin=low, vmax=high, zorder=3)
        discs.set_edgecolor("white")


def _edges(centres: tuple[float, ...], scale: Scale) -> NDArray[np.float64]:
    """The edges of cells about their centres, half-way between them on the axis."""
    at = np.array(centres) if scale == "linear" else np.log(centres)
    step = np.diff(at) if len(at) > 1 else np.ones(1)
    edges = np.concatenate(([at[0] - step[0] / 2], at[:-1] + step / 2, [at[-1] + step[-1] / 2]))
    return edges if scale == "linear" else np.exp(edges)


def _draw_series(axes: Axes, panel: Panel, floor: float, styles: dict[str, _Style]) -> list[Artist]:
    from matplotlib.patheffects import withStroke

    artists = []
    for series in panel.series:
        marks = _marks(panel, series, floor, styles.get(series.label, _PLAIN))
        artist = _DRAW[series.kind](axes, marks)
        if panel.heatmap:  # to be seen on every colour of the map
            artist.set(color="white", path_effects=[withStroke(linewidth=3.5, foreground="black")])
        artists.append(artist)
    return artists


def _marks(panel: Panel, series: Series, floor: float, style: _Style) -> _Marks:
    sideways = bool(panel.rows)
    scale = panel.xscale if sideways else panel.yscale
    none = (None,) * len(series.y)
    x, y = _numbers(series.x, panel.xscale), _numbers(series.y, panel.yscale)
    lo = _numbers(series.lo or none, "linear")
    if series.kind == "curve":
        lo = np.maximum(lo, floor)
    elif scale != "linear":
        lo = np.where(lo <= 0, x if sideways else y, lo)
    return _Marks(x, y, lo, _numbers(series.hi or none, scale), sideways, style)


def _numbers(values: Values, scale: Scale) -> NDArray[np.float64]:
    """An array with NaN for None and, on a log axis, for numbers ≤ 0."""
    numbers = np.array(values, dtype=np.float64)
    if scale != "linear":
        numbers[numbers <= 0] = np.nan
    return numbers


def _floor(panel: Panel) -> float:
    """Below every value that is shown: a band that reaches 0 on a log axis is cut here."""
    if (panel.xscale if panel.rows else panel.yscale) == "linear":
        return -np.inf
    shown = (value for series in panel.series for value in (series.x if panel.rows else series.y))
    return min((value for value in shown if value is not None and value > 0), default=1.0) / 2


def _draw_points(axes: Axes, marks: _Marks) -> Artist:
    # All bars in one line with gaps: lo, hi, gap, lo, hi, gap, …
    bars = np.column_stack((marks.lo, marks.hi, np.full_like(marks.lo, np.nan))).ravel()
    at = np.repeat(marks.y if marks.sideways else marks.x, 3)
    ends = (bars, at) if marks.sideways else (at, bars)
    axes.plot(*ends, c=marks.style.colour, linewidth=1.3, solid_capstyle="butt")
    shape, colour = marks.style.marker, marks.style.colour
    return axes.plot(marks.x, marks.y, shape, c=colour, mec="white", mew=0.6, ms=5.5, zorder=3)[0]


def _draw_rings(axes: Axes, marks: _Marks) -> Artist:
    shape, colour = marks.style.marker, marks.style.colour
    return axes.plot(marks.x, marks.y, shape, c=colour, mfc="none", mew=1.4, ms=10)[0]


def _draw_curve(axes: Axes, marks: _Marks) -> Artist:
    colour = marks.style.colour
    if np.isfinite(marks.lo).any():
        axes.fill_between(marks.x, marks.lo, marks.hi, color=colour, alpha=0.2, linewidth=0)
    return axes.plot(marks.x, marks.y, c=colour, ls=marks.style.dashes, linewidth=1.5)[0]


def _draw_guide(axes: Axes, marks: _Marks) -> Artist:
    return axes.plot(marks.x, marks.y, c=marks.style.colour, ls=(0, (1, 1.6)), linewidth=1.3)[0]


def _draw_steps(axes: Axes, marks: _Marks) -> Artist:
    colour = marks.style.colour
    return axes.stairs(marks.y, marks.x, fill=True, fc=(colour, 0.3), ec=colour, linewidth=0.8)


_DRAW: Final = {
    "points": _draw_points,
    "rings": _draw_rings,
    "curve": _draw_curve,
    "guide": _draw_guide,
    "steps": _draw_steps,
}


def _draw_spans(axes: Axes, spans: tuple[Span, ...]) -> None:
    """Lines at the ends of all spans, which may widen the axes; then shades within the axes."""
    for span in spans:
        line = axes.axvline if span.axis == "x" else axes.axhline
        for end in (span.lo, span.hi):
            if end is not None:
                line(end, color=_GREY, linewidth=0.9, zorder=1.5)
    _freeze_limits(axes)
    for span in spans:
        _shade(axes, span)


def _shade(axes: Axes, span: Span) -> None:
    """Shade a region and write its label beside the axes."""
    along_x = span.axis == "x"
    axis = axes.xaxis if along_x else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    lo = low if span.lo is None else span.lo
    hi = high if span.hi is None else span.hi
    (axes.axvspan if along_x else axes.axhspan)(lo, hi, color=_GREY, alpha=0.13, linewidth=0)
    # Half-way as seen, whatever the scale.
    scale = axis.get_transform()
    middle = scale.inverted().transform(scale.transform(np.clip([lo, hi], low, high)).mean())
    axes.annotate(
        span.label,
        (middle, 1) if along_x else (1, middle),
        xycoords=axes.get_xaxis_transform() if along_x else axes.get_yaxis_transform(),
        xytext=(0, 3) if along_x else (3, 0),
        textcoords="offset points",
        ha="center" if along_x else "left",
        va="bottom" if along_x else "center",
        color=_GREY,
        fontsize=8.5,
    )


def _freeze_limits(axes: Axes) -> None:
    axes.autoscale_view()
    axes.autoscale(enable=False)


def _set_limits(axes: Axes, panel: Panel, floor: float) -> None:
    bands = [series.lo for series in panel.series if series.kind == "curve"]
    if any(end is not None and end < floor for lo in bands for end in lo):
        (axes.set_xlim if panel.rows else axes.set_ylim)(floor, None)
    if panel.xlim:
        axes.set_xlim(panel.xlim)
    if panel.ylim:
        axes.set_ylim(panel.ylim)
    if panel.rows:
        axes.set_ylim(len(panel.rows) - 0.5, -0.5)


def _set_ticks(axis: Axis, scale: Scale) -> None:
    """Round numbers over a short range, powers over a long one, with room between the ticks."""
    from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = sorted(axis.get_view_interval())
    base = 2 if scale == "log2" else 10
    major: Locator = LogLocator(base, numticks=7)
    if scale == "linear" or high < base * low:
        major = MaxNLocator(6, steps=(1, 2, 2.5, 5, 10))
    elif scale == "log" and high < 100 * low:
        major = LogLocator(subs=(1, 2, 5))
    axis.set_major_locator(major)
    if scale == "log" and high >= 100 * low:
        _draw_minor_ticks(axis, low, high)
    axis.set_minor_locator(NullLocator())
    if scale != "linear":
        plain = low > 1e-4 and high < 1e5
        axis.set_major_formatter(lambda tick, _: f"{tick:g}" if plain else _power(tick, base))
        axis.set_minor_formatter(NullFormatter())


def _draw_minor_ticks(axis: Axis, low: float, high: float) -> None:
    """All minor ticks as the markers of one line.

    They look like ticks proper, each of which is five artists, laid out anew in every pass.
    """
    from matplotlib.lines import Line2D
    from matplotlib.markers import TICKDOWN, TICKLEFT
    from matplotlib.ticker import LogLocator

    axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=7))
    ticks = np.asarray(axis.get_minorticklocs())
    ticks = ticks[(ticks > low * (1 - 1e-9)) & (ticks < high * (1 + 1e-9))]
    if not ticks.size:  # over very many decades there are none
        return
    axes, edge = axis.axes, np.zeros_like(ticks)
    where: Any
    if axis is axes.xaxis:
        where = {"marker": TICKDOWN, "transform": axes.get_xaxis_transform()}
        line = Line2D(ticks, edge, **where)
    else:
        where = {"marker": TICKLEFT, "transform": axes.get_yaxis_transform()}
        line = Line2D(edge, ticks, **where)
    line.set(linestyle="none", color="black", markersize=2, markeredgewidth=0.6)
    line.set(zorder=axis.get_zorder(), clip_on=False, in_layout=False)
    axes.add_artist(line)


def _power(number: float, base: int) -> str:
    """E.g. 10⁻³ or 2·10⁻³, in plain Unicode because the text of a figure is free of markup.

    A power that no float holds comes as 0, and gets no text.
    """
    if not number:
        return ""
    exponent = math.floor(math.log(number, base) + 1e-9)
    factor = f"{number / base**exponent:.3g}"
    return f"{'' if factor == '1' else factor + '·'}{base}{str(exponent).translate(_SUPERSCRIPTS)}"
