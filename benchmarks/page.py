"""Results → tables and plots of the pages; nothing is measured here."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from sdpa_check.errors import InputError
from sdpa_check.report import plots
from sdpa_check.report.figures import Figure as Plot
from sdpa_check.report.figures import Panel, Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.figures import Curve, Figure, Profile, Results

PAGES = ("docs/performance.md", "README.md")
"""Files with places for tables: from ``<!-- benchmarks: NAME -->`` to ``<!-- /benchmarks -->``."""

_PLACE = re.compile(r"(<!-- benchmarks: (\w+) -->\n).*?(<!-- /benchmarks -->)", re.DOTALL)

_AXES = {
    "d": ("d_k", "seconds to a variance of q·k ± 0.1 %"),
    "m": ("m, keys of a row", "seconds for a row, three scalings"),
    "n": ("n, independent dot products of the same error", "seconds"),
}
_TITLES = {
    "d": "What a variance costs, against d_k",
    "m": "What a softmax row costs, against its keys",
    "n": "What a variance costs, against the dot products behind it",
}


def summary(found: Results) -> str:
    """The figures that have a target, with machine and date: the table of the README."""
    return machine(found) + "\n\n" + figures_table(f for f in found.figures if f.target is not None)


def machine(found: Results) -> str:
    """One line: processor, vector instructions, versions, date."""
    e = found.environment
    load = "" if e.get("load") is None else f", load average {e['load']:.1f} at the end"
    return (
        f"{e['cpu']}, {e['cores']} cores, NumPy's best vector instructions here {e['simd']}; "
        f"Python {e['python']}, NumPy {e['numpy']}, BLAS {e['blas']}; {e['started'][:10]}, "
        f"{e['seconds']:.0f} s{load}."
    )


def figures_table(figures: Iterable[Figure]) -> str:
    """A Markdown table: median and quartiles, target with a mark where it is missed, times."""
    rows = [
        (
            figure.title,
            figure.against,
            _value(figure),
            _target(figure),
            _seconds(figure.tool_seconds),
            _seconds(figure.other_seconds),
        )
        for figure in figures
    ]
    head = ("sdpa-check does", "against", "median (quartiles)", "target", "its time", "the other's")
    return _table(head, rows, "llrlrr")


def notes(figures: Iterable[Figure]) -> str:
    """What the figures say beside their numbers, as a list."""
    with_note = [figure for figure in figures if figure.note and figure.median is not None]
    return "\n".join(f"- {f.title}, against {f.against}: {f.note}." for f in with_note)


def _value(figure: Figure) -> str:
    if figure.median is None or figure.lower is None or figure.upper is None:
        return figure.note
    inner = f"{_number(figure.lower)} to {_number(figure.upper)}"
    unit = figure.unit if figure.unit == "×" else f" {figure.unit}"
    return f"{_number(figure.median)}{unit} ({inner})"


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    sign = "≥" if figure.relation == "at least" else "≤"
    mark = {True: " ✓", False: " **missed**", None: ""}[figure.met]
    return f"{sign} {figure.target:,g}{mark}"


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{float(f'{value:.3g}'):,.{digits}f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{_number(value / size)} {unit}"
    return f"{_number(value / 1e-9)} ns"


def curves_table(curves: Sequence[Curve]) -> str:
    """A Markdown table of one plot: times, and behind each the slope from the last size to it."""
    sizes = sorted({x for curve in curves for x in curve.x})
    columns = [_with_slopes(curve) for curve in curves]
    rows = [(f"{size:,.0f}", *(column.get(size, "") for column in columns)) for size in sizes]
    head = (curves[0].plot, *(curve.label for curve in curves))
    return _table(head, rows, "r" * len(head))


def _with_slopes(curve: Curve) -> dict[float, str]:
    found = {curve.x[0]: _seconds(curve.seconds[0])}
    steps = zip(curve.x, curve.seconds, curve.x[1:], curve.seconds[1:], strict=False)
    for x0, t0, x1, t1 in steps:
        found[x1] = f"{_seconds(t1)} ({math.log(t1 / t0) / math.log(x1 / x0):+.1f})"
    return found


def profile_table(profile: Profile) -> str:
    """A Markdown table of one profile."""
    pairs = zip(profile.functions, profile.shares, strict=True)
    rows = [(f"`{name}`", f"{100 * share:.0f} %") for name, share in pairs]
    head = (f"{profile.title}: {_seconds(profile.seconds)}", "own time")
    return _table(head, rows, "lr")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    rule = ["---:" if side == "r" else "---" for side in align]
    lines = (head, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def parts(found: Results) -> dict[str, Callable[[], str]]:
    """What can stand in a place, by its name."""

    def of(*groups: str) -> str:
        chosen = [figure for figure in found.figures if figure.group in groups]
        listed = notes(chosen)
        return figures_table(chosen) + (f"\n\n{listed}" if listed else "")

    groups = dict.fromkeys(figure.group for figure in found.figures)
    tables = {group: (lambda group=group: of(group)) for group in groups}
    plotted = dict.fromkeys(curve.plot for curve in found.curves)
    grown = {
        f"against_{plot}": lambda plot=plot: curves_table(
            [curve for curve in found.curves if curve.plot == plot]
        )
        for plot in plotted
    }
    profiled = {"profiles": lambda: "\n\n".join(map(profile_table, found.profiles))}
    return {
        "summary": lambda: summary(found),
        "where": lambda: machine(found),
        **tables,
        **grown,
        **profiled,
    }


def fill(text: str, found: Results, where: str) -> str:
    """The page with every place filled anew.

    Raises:
        InputError: a place asks for what the results do not have.
    """
    known = parts(found)

    def put(match: re.Match[str]) -> str:
        name = match[2]
        if name not in known:
            raise InputError(f"{where}: benchmarks", name, "one of " + ", ".join(known))
        return f"{match[1]}{known[name]()}\n{match[3]}"

    return _PLACE.sub(put, text)


def pictures(found: Results) -> dict[str, bytes]:
    """The cost against each size as PNG and SVG, by file name."""
    files: dict[str, bytes] = {}
    for plot in dict.fromkeys(curve.plot for curve in found.curves):
        curves = [curve for curve in found.curves if curve.plot == plot]
        xlabel, ylabel = _AXES[plot]
        series = tuple(
            kind
            for curve in curves
            for kind in (
                Series(label=curve.label, kind="points", x=curve.x, y=curve.seconds),
                Series(label=curve.label, kind="curve", x=curve.x, y=curve.seconds),
            )
        )
        panel = Panel(xlabel=xlabel, ylabel=ylabel, xscale="log2", yscale="log", series=series)
        caption = f"One worker. {found.environment['cpu']}, {found.environment['started'][:10]}."
        drawn = plots.render(Plot(title=_TITLES[plot], panels=(panel,), caption=caption))
        files |= {f"performance-{plot}.{kind}": data for kind, data in drawn.items()}
    return files


def pages(found: Results, root: Path) -> Mapping[str, str]:
    """The pages below `root` that have places, filled."""
    filled: dict[str, Any] = {}
    for name in PAGES:
        path = root / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if _PLACE.search(text):
            filled[name] = fill(text, found, name)
    return filled
