"""Companion sweeps for figures: the rows of a few checks over many designs, as series."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sdpa_check import experiment
from sdpa_check.checks import checks_of
from sdpa_check.report.figures import Series, values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.checks import Settings
    from sdpa_check.experiment import Samples
    from sdpa_check.inputs import Inputs
    from sdpa_check.quantities import Case
    from sdpa_check.records import Row


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
    alone.
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
        y=tuple(e.value if e else None for e in estimates),
        lo=tuple(e.lo if e else None for e in estimates),
        hi=tuple(e.hi if e else None for e in estimates),
    )
    return [*found, points]
