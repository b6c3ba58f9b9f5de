"""Companion sweeps for figures: the rows of a few checks over many designs, as series."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from sdpa_check import experiment
from sdpa_check.checks import checks_of
from sdpa_check.report.figures import Series, values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sdpa_check.checks import Settings
    from sdpa_check.experiment import Samples
    from sdpa_check.inputs import Inputs
    from sdpa_check.quantities import Case
    from sdpa_check.records import Row
    from sdpa_check.report.figures import Kind, Panel


def sweep(
    inputs: Inputs,
    cases: Sequence[tuple[str, Case]],
    samples: int,
    known: Samples | None = None,
) -> tuple[list[Row], Samples]:
    """Run checks for a figure, at a fixed sample size per design and without progress.

    What a run has sampled already for its table, where that was planned, can be taken as `known`.
    """
    if inputs.settings.samples is not None:
        known = None
    return experiment.run(checks_of(cases), _fixed(inputs, samples), known=known)


def _fixed(inputs: Inputs, samples: int) -> Settings:
    """The settings of a run, for a figure: a sample size per design, no progress, no checkpoint."""
    return dataclasses.replace(inputs.settings, samples=samples, progress=None, checkpoint=None)


def series(label: str, rows: Sequence[Row], x: str) -> list[Series]:
    """Measured points with their intervals over the parameter `x`, on the curve that theory gives.

    An exact prediction becomes a curve, a limit a guide; where there is neither the points stand
    alone. An estimate that is NaN, as beyond the bins of a histogram, leaves a gap.
    """
    rows = sorted(rows, key=lambda row: row.params[x])
    at = values([row.params[x] for row in rows])
    found = []
    for kind, line in (("exact", "curve"), ("limit", "guide")):
        on = [row.prediction.value if row.prediction.kind == kind else None for row in rows]
        if any(value is not None for value in on):
            found.append(Series(label=label, kind=line, x=at, y=tuple(on)))  # type: ignore[arg-type]
    estimates = [row.estimate for row in rows]
    points = Series(
        label=label,
        kind="points",
        x=at,
        y=values([e.value if e else math.nan for e in estimates]),
        lo=tuple(e.lo if e else None for e in estimates),
        hi=tuple(e.hi if e else None for e in estimates),
    )
    return [*found, points]


def reading(panels: Sequence[Panel], *more: str) -> str:
    """A caption: how to read the measured points and the lines that are drawn; then `more`."""
    points = [
        (panel.yscale != "linear", y, lo)
        for panel in panels
        for each in panel.series
        if each.kind == "points"
        for y, lo in zip(each.y, each.lo, strict=True)
        if y is not None
    ]
    bare = any(lo is None for _, _, lo in points)
    halved = any(log and y > 0 and lo is not None and lo <= 0 for log, y, lo in points)
    found = (
        "Points: measured, with 95 % intervals" + (" where there are any." if bare else "."),
        "Lines: exact." if has(panels, "curve") else "",
        "An interval that reaches 0 is drawn upwards only." if halved else "",
    )
    return " ".join(text for text in (*found, *more) if text)


def has(panels: Sequence[Panel], kind: Kind) -> bool:
    """Whether a series of this kind is drawn in any of the panels."""
    return any(each.kind == kind for panel in panels for each in panel.series)


def added(*what: str) -> str:
    """A sentence for a caption: what is drawn although it was not asked for."""
    text = "; ".join(each for each in what if each)
    return f"Added for comparison: {text}." if text else ""


def others(name: str, drawn: Iterable[int], asked: Iterable[int]) -> str:
    """The numbers that are drawn and were not asked for, as in ``d_k = 8, 512``."""
    left = sorted(set(drawn) - set(asked))
    return f"{name} = {', '.join(map(str, left))}" if left else ""
