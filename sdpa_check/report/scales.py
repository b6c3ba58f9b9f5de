"""The axes of a panel: their scales, limits and ticks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from numpy.typing import NDArray

    from sdpa_check.report.figures import Panel, Scale, Values

SCALES: Final[dict[Scale, dict[str, Any]]] = {
    "linear": {"value": "linear"},
    "log": {"value": "log"},
    "log2": {"value": "log", "base": 2},
}
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def edges(centres: tuple[float, ...], scale: Scale) -> NDArray[np.float64]:
    """The edges of cells about their centres, half-way between them on the axis."""
    at = np.array(centres) if scale == "linear" else np.log(centres)
    step = np.diff(at) if len(at) > 1 else np.ones(1)
    edges = np.concatenate(([at[0] - step[0] / 2], at[:-1] + step / 2, [at[-1] + step[-1] / 2]))
    return edges if scale == "linear" else np.exp(edges)


def numbers(values: Values, scale: Scale) -> NDArray[np.float64]:
    """An array with NaN for None and, on a log axis, for numbers ≤ 0."""
    numbers = np.array(values, dtype=np.float64)
    if scale != "linear":
        numbers[numbers <= 0] = np.nan
    return numbers


def floor_of(panel: Panel) -> float:
    """Below every value that is shown: a band that reaches 0 on a log axis is cut here."""
    if (panel.xscale if panel.rows else panel.yscale) == "linear":
        return -np.inf
    shown = (value for series in panel.series for value in (series.x if panel.rows else series.y))
    return min((value for value in shown if value is not None and value > 0), default=1.0) / 2


def freeze_limits(axes: Axes) -> None:
    """Let nothing that is drawn from now on widen the axes."""
    axes.autoscale_view()
    axes.autoscale(enable=False)


def set_limits(axes: Axes, panel: Panel, floor: float) -> None:
    """The limits that a panel asks for; no band is shown below the floor."""
    bands = [series.lo for series in panel.series if series.kind == "curve"]
    if any(end is not None and end < floor for lo in bands for end in lo):
        (axes.set_xlim if panel.rows else axes.set_ylim)(floor, None)
    if panel.xlim:
        axes.set_xlim(panel.xlim)
    if panel.ylim:
        axes.set_ylim(panel.ylim)
    if panel.rows:
        axes.set_ylim(len(panel.rows) - 0.5, -0.5)


def set_ticks(axis: Axis, scale: Scale) -> None:
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
