"""Draw a `Figure` of plain data with matplotlib: the same figure gives the same bytes."""

from __future__ import annotations

import io
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sdpa_check.report.marks import GREY, Style, draw_heatmap, draw_series, draw_spans, styles_of
from sdpa_check.report.scales import SCALES, floor_of, set_limits, set_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from sdpa_check.report.figures import Figure, Panel

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
    styles = styles_of(figure)
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
    box.get_title().set(color=GREY, multialignment="center")


def _draw_panel(axes: Axes, panel: Panel, styles: dict[str, Style]) -> list[Artist]:
    """Draw one panel; the artists stand for its series in the legend."""
    axes.set_xlabel(panel.xlabel)
    axes.set_ylabel(panel.ylabel)
    axes.set_xscale(**SCALES[panel.xscale])
    axes.set_yscale(**SCALES[panel.yscale])
    if panel.heatmap:
        draw_heatmap(axes, panel, panel.heatmap)
    floor = floor_of(panel)
    artists = draw_series(axes, panel, floor, styles)
    set_limits(axes, panel, floor)
    draw_spans(axes, panel.spans)
    set_ticks(axes.xaxis, panel.xscale)
    set_ticks(axes.yaxis, panel.yscale)
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
