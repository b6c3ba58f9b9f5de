"""The figures of `variance`: the histogram of q·k, and its scale against d_k."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.quantities import Case
from sdpa_check.report.figures import Figure, Panel, Series, values
from sdpa_check.studies.sweep import series, sweep
from sdpa_check.theory import moments
from sdpa_check.theory.law import DotLaw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.measures.dot import DotWork
    from sdpa_check.quantities import Sample
    from sdpa_check.records import Component, Design, Row
    from sdpa_check.studies.study import Study

SHOWN = (8, 64, 512)
"""The d_k whose histograms are always drawn, beside those that were asked for."""

_SWEEP = (1, 4, 16, 64, 256, 1024)
_SAMPLES = 1 << 22
_BINS = 81
_MOST_PANELS = 6


def figures(study: Study) -> dict[str, Figure]:
    """Name → figure. Both come from a sweep of their own, at 4 million dot products per d_k."""
    asked = [row.params["dk"] for row in study.run.rows if isinstance(row.params["dk"], int)]
    shown = sorted({*SHOWN, *asked}) if len(set(asked)) <= _MOST_PANELS - 3 else sorted(set(asked))
    shown = shown[:_MOST_PANELS]
    designs = study.inputs.designs(sorted({*_SWEEP, *shown, *asked}))
    finite = moments.dot_std(designs[0]).value is not None
    name = "dot.std" if finite else "dot.iqr"
    cases = [(name, Case(designs=(design,))) for design in designs]
    rows, samples = sweep(study.inputs, cases, _SAMPLES)
    panels = [
        _histogram(design, samples["dot", design]) for design in designs if design.dk in shown
    ]
    law = _law_text(designs[0])
    return {
        "histogram": Figure(
            title=f"Distribution of q·k, {law}",
            panels=tuple(panels),
            columns=3,
            caption="Steps: measured density. Curve: exact density.",
        ),
        "scale": _scale(rows, designs[0], law, "std" if finite else "IQR"),
    }


def _histogram(design: Design, sample: Sample) -> Panel:
    std = moments.dot_std(design).value
    work = cast("DotWork", sample.work)
    law = _exact(design)
    half = 4.5 * std if std is not None else 6 * (law.iqr() if law else 1.0)
    edges = np.linspace(-half, half, _BINS + 1)
    density = _density(work, sample, edges)
    drawn = [
        Series(
            label="measured",
            kind="steps",
            x=values(edges + work.pivot),
            y=values(density),
        )
    ]
    if law is not None:
        # an even number of points, so that none is the centre, where a density may be infinite
        x = work.pivot + np.linspace(-half, half, 4 * _BINS + 2)
        drawn.append(Series(label="exact", kind="curve", x=values(x), y=values(law.density(x))))
    spread = f"σ = {std:.4g}" if std is not None else "σ = ∞"
    return Panel(
        title=f"d_k = {design.dk}, {spread}",
        xlabel="q·k",
        ylabel="density",
        ylim=(0.0, 1.15 * float(density.max())),
        series=tuple(drawn),
    )


def _density(work: DotWork, sample: Sample, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """The measured density in each bin, from the counts on the finer logarithmic grid."""
    counts = sample.replicates.sums["histogram"].sum(axis=0)
    fine = work.grid.edges()[1:-1]
    cdf = np.cumsum(counts)[:-1] / counts.sum()
    return np.asarray(np.diff(np.interp(edges, fine, cdf)) / np.diff(edges))


def _exact(design: Design) -> DotLaw | None:
    """The exact law where it has a density: not for a lattice, and not outside theory's reach."""
    if {design.query.distribution, design.key.distribution} == {"rademacher"}:
        return None
    try:
        return DotLaw(design)
    except InputError:
        return None


def _scale(rows: list[Row], design: Design, law: str, what: str) -> Figure:
    xs = sorted(row.params["dk"] for row in rows)
    unit = design.query.sigma * design.key.sigma
    guide = Series(
        label="σ_q σ_k √d_k",
        kind="guide",
        x=values(xs),
        y=values([unit * math.sqrt(x) for x in xs]),
    )
    panel = Panel(
        xlabel="d_k (components)",
        ylabel=f"{what} of q·k",
        xscale="log2",
        yscale="log",
        series=(*series("measured, on the exact curve", rows, "dk"), guide),
    )
    return Figure(
        title=f"Scale of q·k against d_k, {law}",
        panels=(panel,),
        caption="Points: measured, with 95 % intervals. Line: exact.",
    )


def _law_text(design: Design) -> str:
    def one(component: Component) -> str:
        text = component.distribution
        if component.df is not None:
            text += f"({component.df:g}{', standardized' if component.standardize else ''})"
        text += f", σ = {component.sigma:g}"
        return text + (f", mean {component.mean:g}" if component.mean else "")

    q, k = one(design.query), one(design.key)
    law = f"{q} components" if q == k else f"q {q}; k {k}"
    return law + ("" if design.corr == "none" else f", correlation {design.corr}")
