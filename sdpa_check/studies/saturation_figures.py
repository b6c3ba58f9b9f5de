"""The figures of `saturation`: everything against d_k and against m, and the (d_k, m) map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check.engine import side_by_side
from sdpa_check.logits import scaling
from sdpa_check.quantities import Case
from sdpa_check.report.figures import Figure, HeatMap, Panel, Series, values
from sdpa_check.studies.sweep import added, has, others, reading, series, sweep
from sdpa_check.theory import saturation as theory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.records import Row
    from sdpa_check.studies.study import Study

_DKS = (2, 8, 32, 128, 512)
_KEYS = (2, 8, 64, 512, 4096)
_SAMPLES = 1 << 13

_PANELS = (
    ("softmax.entropy", None, "entropy (nats)"),
    ("jacobian.frobenius", "rms", "RMS ‖J‖_F"),
    ("jacobian.frobenius", "median", "median ‖J‖_F"),
    ("jacobian.spectral", "rms", "RMS ‖J‖₂"),
    ("jacobian.inf_norm", "rms", "RMS ‖J‖_∞"),
    ("jacobian.trace", "mean", "mean tr J"),
)


def figures(study: Study) -> dict[str, Figure]:
    """Name → figure, from sweeps of their own at about 8 thousand rows per design."""
    asked = [(row.params["dk"], row.params["keys"]) for row in study.run.rows]
    dk, keys = asked[0]
    names = list(dict.fromkeys(row.params["scale"] for row in study.run.rows))
    over_d = [(d, keys) for d in sorted({*_DKS, *(d for d, _ in asked)})]
    over_m = [(dk, m) for m in sorted({*_KEYS, *(m for _, m in asked)})]
    rows = _curves(study, list(dict.fromkeys(over_d + over_m)), names)
    against_d, against_m = (
        [row for row in rows if (row.params["dk"], row.params["keys"]) in pairs]
        for pairs in (over_d, over_m)
    )
    other_d = others("d_k", (d for d, _ in over_d), (d for d, _ in asked))
    other_m = others("m", (m for _, m in over_m), (m for _, m in asked))
    found = {
        "against_dk": _figure(against_d, "dk", "d_k (components)", f"m = {keys} keys", other_d),
        "against_keys": _figure(against_m, "keys", "m (keys)", f"d_k = {dk}", other_m),
    }
    if study.inputs.query.distribution == "gaussian" and not study.inputs.query.mean:
        found["map"] = _map(study)
    return found


def _curves(study: Study, pairs: list[tuple[int, int]], names: list[str]) -> list[Row]:
    inputs = study.inputs
    cases = [
        (quantity, Case(designs=design, scale=rule, d_model=inputs.dmodel, statistic=statistic))
        for d, m in pairs
        for design in [inputs.designs(d, m)]
        for rule in map(scaling.parse, names)
        for quantity, statistic, _ in _PANELS
    ]
    return sweep(inputs, cases, _SAMPLES)[0]


def _figure(rows: list[Row], x: str, xlabel: str, fixed: str, other: str) -> Figure:
    names = list(dict.fromkeys(row.params["scale"] for row in rows))
    panels = []
    for quantity, statistic, ylabel in _PANELS:
        drawn: list[Series] = []
        for name in names:
            chosen = [
                row
                for row in rows
                if row.quantity == quantity
                and row.params["scale"] == name
                and row.params.get("statistic") == statistic
            ]
            drawn += series(scaling.parse(name).formula, chosen, x)
        log = statistic == "median"
        panels.append(
            Panel(
                xlabel=xlabel,
                ylabel=ylabel,
                xscale="log2",
                yscale="log" if log else "linear",
                series=tuple(drawn),
            )
        )
    return Figure(
        title=f"Softmax rows by multiplier of q·k, {fixed}",
        panels=tuple(panels),
        columns=3,
        caption=reading(
            panels, "Dotted: Gaussian limit." if has(panels, "guide") else "", added(other)
        ),
    )


def _entropy_ratios(dk: float, keys: Sequence[float], scale: float) -> tuple[float, ...]:
    """E[H]/ln m of unscaled rows with m of `keys`."""
    rows = (theory.gaussian_rows(dk=int(dk), keys=int(m), multiplier=scale) for m in keys)
    return tuple(row.entropy / math.log(m) for row, m in zip(rows, keys, strict=True))


def _map(study: Study) -> Figure:
    scale = study.inputs.query.sigma * study.inputs.key.sigma
    dks = [2.0**i for i in range(11)]
    keys = [2.0**i for i in range(1, 18, 2)]
    lines = [(d, keys, scale) for d in dks]
    z = side_by_side(_entropy_ratios, lines, study.inputs.settings.jobs)
    ends = (keys[0], keys[-1])  # the outer halves of the outer cells are left out: m starts at 2
    line = np.geomspace(*ends, 65).tolist()
    freezing = Series(
        label="freezing line τ² = 2 ln m, which is d_k = 2 ln m for σ = 1: above it a few keys "
        "carry everything",
        kind="curve",
        x=values(line),
        y=values([2 * math.log(m) / scale**2 for m in line]),
    )
    marks = tuple(
        (float(row.params["keys"]), float(row.params["dk"]), row.estimate.value)
        for row in study.run.rows
        if row.quantity == "softmax.entropy_ratio"
        and row.params["scale"] == "none"
        and row.estimate
    )
    panel = Panel(
        xlabel="m (keys)",
        ylabel="d_k (components)",
        xscale="log2",
        yscale="log2",
        xlim=ends,
        heatmap=HeatMap(
            x=tuple(keys),
            y=tuple(dks),
            z=tuple(z),
            label="entropy / ln m (dimensionless)",
            limits=(0.0, 1.0),
            marks=marks,
        ),
        series=(freezing,),
    )
    return Figure(
        title="Entropy of unscaled attention, as a fraction of ln m",
        panels=(panel,),
        caption="Colour: exact."
        + (
            " Discs: measured, on the same colour scale; a disc agrees where it has the colour "
            "around it."
            if marks
            else ""
        ),
    )
