"""The figures of `variance`: histograms of q·k, its scale against d_k, and its tails."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.quantities import Case
from sdpa_check.quantities.sweeps import slope_weights
from sdpa_check.records import Component, Design
from sdpa_check.report.figures import Figure, Panel, Series, values
from sdpa_check.studies.sweep import added, has, others, reading, series, sweep
from sdpa_check.theory import moments
from sdpa_check.theory.law import DotLaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sdpa_check.experiment import Samples
    from sdpa_check.measures.dot import DotWork
    from sdpa_check.quantities import Sample
    from sdpa_check.records import Row
    from sdpa_check.studies.study import Study

SHOWN = (8, 64, 512)
"""The d_k whose histograms are always drawn, beside those that were asked for."""

REFERENCES = (
    Component(),
    Component(distribution="t", df=3.0),
    Component(distribution="cauchy"),
)
"""Laws that are always drawn beside the one that was asked for."""

_SWEEP = (1, 4, 16, 64, 256, 1024)
_SAMPLES = 1 << 21
_BINS = 81
_MOST_PANELS = 6


def figures(study: Study) -> dict[str, Figure]:
    """Name → figure; what the table does not have is sampled at 2 million products per design."""
    asked = (row.params["dk"] for row in study.run.rows)
    dks = list(dict.fromkeys(dk for dk in asked if isinstance(dk, int)))  # a sweep has a list
    shown = sorted({*SHOWN, *dks}) if len(dks) <= _MOST_PANELS - len(SHOWN) else sorted(dks)
    seen = study.inputs.designs(shown[:_MOST_PANELS])
    own = study.inputs.designs(dks[0])[0]
    plain = own.corr == "none" and not own.query.mean and not own.key.mean
    laws = _laws(study, dks[0]) if plain else []
    cases = [("dot.iqr", Case(designs=(design,))) for design in dict.fromkeys((*seen, *laws))]
    _, samples = sweep(study.inputs, cases, _SAMPLES, study.samples)
    other = others("d_k", (design.dk for design in seen), dks)
    found = {"histogram": _histograms(seen, samples, other), "scale": _scale(study, dks)}
    if plain:
        found["tails"] = _tails(laws, samples)
    return found


def law_text(design: Design) -> str:
    """The laws of a design in words, for titles and legends."""

    def one(component: Component) -> str:
        text = component.distribution
        if component.df is not None:
            text += f"({component.df:g})" + (", unit variance" if component.standardize else "")
        text += f", σ = {component.sigma:g}" if component.sigma != 1 else ""
        return text + (f", mean {component.mean:g}" if component.mean else "")

    q, k = one(design.query), one(design.key)
    law = q if q == k else f"q {q}; k {k}"
    return law + ("" if design.corr == "none" else f", {design.corr}")


def _histograms(designs: Sequence[Design], samples: Samples, other: str) -> Figure:
    panels = tuple(_histogram(design, samples["dot", design]) for design in designs)
    exact = "Curve: exact density." if has(panels, "curve") else ""
    return Figure(
        title=f"Distribution of q·k, {law_text(designs[0])} components",
        panels=panels,
        columns=3,
        caption=" ".join(filter(None, ("Steps: measured density.", exact, added(other)))),
    )


def _histogram(design: Design, sample: Sample) -> Panel:
    law = _exact(design)
    centre, half = _window(design, sample, law)
    edges = centre + np.linspace(-half, half, _BINS + 1)
    fine, cdf = _cdf(sample)
    density = np.diff(np.interp(edges, fine, cdf)) / np.diff(edges)
    drawn = [Series(label="measured", kind="steps", x=values(edges), y=values(density))]
    if law is not None:
        # an even number of points, so that none is the centre, where a density may be infinite
        x = centre + np.linspace(-half, half, 4 * _BINS + 2)
        drawn.append(Series(label="exact", kind="curve", x=values(x), y=values(law.density(x))))
    std = moments.dot_std(design)
    spread = f", std = {std.value:.4g}" if std.value is not None else ""
    return Panel(
        title=f"d_k = {design.dk}" + (", std = ∞" if std.kind == "infinite" else spread),
        xlabel="q·k",
        ylabel="density",
        ylim=(0.0, 1.15 * float(density.max()) or 1.0),
        series=tuple(drawn),
    )


def _window(design: Design, sample: Sample, law: DotLaw | None) -> tuple[float, float]:
    """Centre and half the width of a histogram: from theory, where it knows them, or the sample."""
    mean, std = moments.dot_mean(design).value, moments.dot_std(design).value
    if mean is not None and std is not None:
        return mean, 4.5 * std
    if law is not None:
        return law.quantile(0.5), 6 * law.iqr()
    fine, cdf = _cdf(sample)
    low, median, high = np.interp((0.25, 0.5, 0.75), cdf, fine).tolist()
    return median, 6 * (high - low) or abs(median)  # all beyond the bins: still a width


def _cdf(sample: Sample) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The edges of the fine bins in which q·k was counted, and the measured P(q·k < edge)."""
    work = cast("DotWork", sample.work)
    counts = sample.replicates.sums["histogram"].sum(axis=0)
    return work.pivot + work.grid.edges()[1:-1], np.cumsum(counts)[:-1] / counts.sum()


def _exact(design: Design) -> DotLaw | None:
    """The exact law where it has a density: not for a lattice, and not outside theory's reach."""
    if {design.query.distribution, design.key.distribution} == {"rademacher"}:
        return None
    try:
        return DotLaw(design)
    except InputError:
        return None


def _laws(study: Study, dk: int) -> list[Design]:
    """The design that was asked for, and those of the reference laws that differ from it."""
    own = study.inputs.designs(dk)[0]
    others = [Design(dk=dk, query=law, key=law) for law in REFERENCES]
    return [own, *(design for design in others if design != own)]


def _scale(study: Study, dks: list[int]) -> Figure:
    """Std, where there is one, and IQR against d_k; the IQR by law, its exponent in the legend."""
    xs = sorted({*_SWEEP, *dks})
    drawn: dict[str, list[Series]] = {"dot.std": [], "dot.iqr": []}
    laws = _laws(study, xs[0])
    for number, law in enumerate(laws):
        finite = moments.dot_std(law).value is not None
        names = ["dot.iqr", "dot.std"] if number == 0 and finite else ["dot.iqr"]
        cases = [(name, Case(designs=(replace(law, dk=dk),))) for dk in xs for name in names]
        rows, _ = sweep(study.inputs, cases, _SAMPLES // 8, study.samples)
        label = f"{law_text(law)}: {_exponents([r for r in rows if r.quantity == 'dot.iqr'])}"
        for name in names:
            drawn[name] += series(label, [row for row in rows if row.quantity == name], "dk")
    titles = {"dot.std": "std of q·k", "dot.iqr": "interquartile range of q·k"}
    panels = tuple(
        Panel(
            xlabel="d_k (components)",
            ylabel=titles[name],
            xscale="log2",
            yscale="log",
            series=(*found, *_guide(found[0])),
        )
        for name, found in drawn.items()
        if found
    )
    return Figure(
        title="Scale of q·k against d_k",
        panels=panels,
        columns=2,
        caption=reading(
            panels,
            f"Dotted: √d_k through the last point of {law_text(laws[0])}."
            if has(panels, "guide")
            else "",
            f"Exponents: slope of ln IQR on ln d_k from {xs[0]} to {xs[-1]}.",
            added(others("d_k", xs, dks), ", ".join(map(law_text, laws[1:]))),
        ),
    )


def _guide(first: Series) -> list[Series]:
    """The line ∝ √d_k through the last point of a series, where there is one."""
    points = [(x, y) for x, y in zip(first.x, first.y, strict=True) if x and y]
    if not points:
        return []
    x, y = points[-1]
    line = [y * math.sqrt((at or 1.0) / x) for at in first.x]
    return [Series(label="∝ √d_k", kind="guide", x=first.x, y=values(line))]


def _exponents(rows: Sequence[Row]) -> str:
    weights = slope_weights(tuple(math.log(row.params["dk"]) for row in rows))

    def slope(numbers: Sequence[float]) -> float:
        return math.fsum(w * math.log(v) for w, v in zip(weights, numbers, strict=True))

    fitted = slope([row.estimate.value for row in rows if row.estimate])
    exact = [row.prediction.value for row in rows if row.prediction.value]
    text = "exponent not measured" if math.isnan(fitted) else f"exponent {fitted:.3f}"
    return text + (f", exact {slope(exact):.3f}" if len(exact) > 1 else "")


def _tails(designs: Sequence[Design], samples: Samples) -> Figure:
    """P(|q·k| > z), measured and exact, on two log axes."""
    drawn: list[Series] = []
    for design in designs:
        drawn += _survival(design, samples["dot", design])
    panel = Panel(
        xlabel="z",
        ylabel="P(|q·k| > z)",
        xscale="log",
        yscale="log",
        ylim=(1e-6, 1.5),
        series=tuple(drawn),
    )
    return Figure(
        title=f"Tails of q·k at d_k = {designs[0].dk}",
        panels=(panel,),
        caption=reading(
            (panel,),
            "The points of a law share samples: neighbours go astray together.",
            added(", ".join(map(law_text, designs[1:]))),
        ),
    )


def _survival(design: Design, sample: Sample) -> list[Series]:
    """Measured P(|s| > z) at one z per half octave, on its exact curve."""
    grid = cast("DotWork", sample.work).grid
    counts = sample.replicates.sums["histogram"]
    sizes = counts[:, grid.magnitudes :] + counts[:, : grid.magnitudes][:, ::-1]
    above = np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1] / sizes.sum(axis=1, keepdims=True)
    edges = grid.edges()[grid.magnitudes :]
    step = 1 << (grid.bits - 1)
    chosen = np.arange(1, grid.inner + 1, step)
    mean, error = above[:, chosen].mean(axis=0), above[:, chosen].std(axis=0, ddof=1)
    half = 2 * error / math.sqrt(len(above))
    z = edges[chosen]
    kept = (mean > 2e-6) & (mean < 0.95)
    label = law_text(design)
    points = Series(
        label=label,
        kind="points",
        x=values(z[kept]),
        y=values(mean[kept]),
        lo=values((mean - half)[kept]),
        hi=values((mean + half)[kept]),
    )
    law = _exact(design)
    if law is None or not kept.any():
        return [points]
    x = np.geomspace(z[kept][0], z[kept][-1], 200)
    return [
        Series(label=label, kind="curve", x=values(x), y=values(2 * law.survival(x))),
        points,
    ]
