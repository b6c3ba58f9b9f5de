"""What is drawn in a panel: series of every kind, maps and regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from sdpa_check.report.scales import edges, freeze_limits, numbers

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from sdpa_check.report.figures import Figure, HeatMap, Panel, Series, Span

# The palette of Okabe and Ito (2008), told apart by every common kind of colour vision; without
# its yellow, which is too pale for lines on white.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
# None of the patterns is dotted: dots are for guides.
_DASHES: Final = ("solid", (0, (6, 2)), (0, (6, 2, 1.5, 2)), (0, (3, 1.5)))
GREY: Final = "#666666"


class Style(NamedTuple):
    """How the series of a label look in every panel."""

    colour: str
    marker: str
    dashes: Any


_PLAIN: Final = Style(GREY, "o", "solid")  # of what has no label, and of guides by themselves


class _Marks(NamedTuple):
    """A series as arrays, NaN where its panel shows nothing; `sideways` intervals lie along x."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    sideways: bool
    style: Style


def styles_of(figure: Figure) -> dict[str, Style]:
    """Colour, marker and dashes of each label, each taken in the order of first use."""

    def order(*kinds: str) -> dict[str, int]:
        series = [series for panel in figure.panels for series in panel.series]
        labels = dict.fromkeys(item.label for item in series if item.label and item.kind in kinds)
        return {label: index for index, label in enumerate(labels)}

    markers, dashes = order("points", "rings"), order("curve")
    return {
        label: Style(
            _COLOURS[index % len(_COLOURS)],
            _MARKERS[markers.get(label, 0) % len(_MARKERS)],
            _DASHES[dashes.get(label, 0) % len(_DASHES)],
        )
        for label, index in order("points", "rings", "curve", "steps").items()
    }


def draw_heatmap(axes: Axes, panel: Panel, field: HeatMap) -> None:
    """A coloured map with its colour bar, and discs of the same colours for what was measured."""
    canvas: Any = axes.get_figure()
    low, high = field.limits or (None, None)
    mesh = axes.pcolormesh(
        edges(field.x, panel.xscale),
        edges(field.y, panel.yscale),
        np.array(field.z, dtype=np.float64),
        cmap="cividis",  # made to look the same with and without red-green vision
        vmin=low,
        vmax=high,
        rasterized=True,  # a picture within the SVG: smaller, and without seams between cells
    )
    axes.grid(visible=False)
    axes.margins(0)
    freeze_limits(axes)  # what is drawn on the map does not widen it
    canvas.colorbar(mesh, ax=axes, label=field.label, pad=0.02)
    if field.marks:
        x, y, z = zip(*field.marks, strict=True)
        low, high = mesh.get_clim()
        discs = axes.scatter(x, y, s=60, c=z, cmap=mesh.cmap, vmin=low, vmax=high, zorder=3)
        discs.set_edgecolor("white")


def draw_series(axes: Axes, panel: Panel, floor: float, styles: dict[str, Style]) -> list[Artist]:
    """Draw all series of a panel; the artists stand for them in the legend."""
    from matplotlib.patheffects import withStroke

    artists = []
    for series in panel.series:
        marks = _marks(panel, series, floor, styles.get(series.label, _PLAIN))
        artist = _DRAW[series.kind](axes, marks)
        if panel.heatmap:  # to be seen on every colour of the map
            artist.set(color="white", path_effects=[withStroke(linewidth=3.5, foreground="black")])
        artists.append(artist)
    return artists


def _marks(panel: Panel, series: Series, floor: float, style: Style) -> _Marks:
    sideways = bool(panel.rows)
    scale = panel.xscale if sideways else panel.yscale
    none = (None,) * len(series.y)
    x, y = numbers(series.x, panel.xscale), numbers(series.y, panel.yscale)
    lo = numbers(series.lo or none, "linear")
    if series.kind == "curve":
        lo = np.maximum(lo, floor)
    elif scale != "linear":
        lo = np.where(lo <= 0, x if sideways else y, lo)
    return _Marks(x, y, lo, numbers(series.hi or none, scale), sideways, style)


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


def draw_spans(axes: Axes, spans: tuple[Span, ...]) -> None:
    """Lines at the ends of all spans, which may widen the axes; then shades within the axes."""
    for span in spans:
        line = axes.axvline if span.axis == "x" else axes.axhline
        for end in (span.lo, span.hi):
            if end is not None:
                line(end, color=GREY, linewidth=0.9, zorder=1.5)
    freeze_limits(axes)
    for span in spans:
        _shade(axes, span)


def _shade(axes: Axes, span: Span) -> None:
    """Shade a region and write its label beside the axes."""
    along_x = span.axis == "x"
    axis = axes.xaxis if along_x else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    lo = low if span.lo is None else span.lo
    hi = high if span.hi is None else span.hi
    (axes.axvspan if along_x else axes.axhspan)(lo, hi, color=GREY, alpha=0.13, linewidth=0)
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
        color=GREY,
        fontsize=8.5,
    )
