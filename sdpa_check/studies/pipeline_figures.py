"""The figures of `ledger` and `gradient`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sdpa_check.logits import scaling
from sdpa_check.quantities import Case
from sdpa_check.report.figures import Figure, Panel, Series, Span, values
from sdpa_check.studies.sweep import added, others, reading, series, sweep

if TYPE_CHECKING:
    from sdpa_check.records import Row
    from sdpa_check.studies.study import Study

_DKS = (4, 16, 64, 256, 1024)
_ROWS = 1 << 14
"""Rows behind a point of a figure that the table does not have."""

_FLAT = 0.1
"""A logit std below this is called flat: the weights of a row differ by about 10 %."""


def ledger_figures(study: Study) -> dict[str, Figure]:
    """All changes on one axis of logit std, at the first d_k and m of the run."""
    rows = [row for row in study.run.rows if row.quantity == "ledger.std"]
    first = (rows[0].params["dk"], rows[0].params["keys"])
    alone = all((row.params["dk"], row.params["keys"]) == first for row in rows)
    rows = [row for row in rows if (row.params["dk"], row.params["keys"]) == first]
    at = tuple(float(i) for i in range(len(rows)))
    estimates = [row.estimate for row in rows]
    measured = Series(
        label="measured, 95 % interval",
        kind="points",
        x=values([e.value if e else math.nan for e in estimates]),
        y=at,
        lo=tuple(e.lo if e else None for e in estimates),
        hi=tuple(e.hi if e else None for e in estimates),
    )
    predicted = Series(
        label="predicted",
        kind="rings",
        x=tuple(row.prediction.value for row in rows),
        y=at,
    )
    dk, keys = first
    frozen = math.sqrt(2 * math.log(keys))
    panel = Panel(
        xlabel="std of the logits (dimensionless)",
        xscale="log",
        series=(predicted, measured),
        spans=(
            Span(axis="x", lo=frozen, hi=None, label="frozen: std > √(2 ln m)"),
            Span(axis="x", lo=None, hi=_FLAT, label=f"flat: std < {_FLAT:g}"),
        ),
        rows=tuple(row.params["pipeline"] for row in rows),
    )
    title = f"What each change makes of the logit std, d_k = {dk}, m = {keys}"
    caption = "" if alone else "Of the designs of this run the first."
    return {"ledger": Figure(title=title, panels=(panel,), caption=caption)}


def gradient_figures(study: Study) -> dict[str, Figure]:
    """RMS and median of ‖∂L/∂s‖ and ‖∂L/∂q‖ against d_k, per scaling."""
    inputs, keys = study.inputs, study.run.rows[0].params["keys"]
    names, asked = [str(name) for name in study.run.design["scale"]], study.run.design["dk"]
    cases = [
        (
            quantity,
            Case(
                designs=(design,),
                d_model=inputs.dmodel,
                statistic=statistic,
                inputs={"pipeline": f"scale:{name}"},
            ),
        )
        for design in inputs.designs(_DKS, keys)
        for name in names
        for quantity in ("gradient.logits", "gradient.query")
        for statistic in ("rms", "median")
    ]
    rows, _ = sweep(inputs, cases, _ROWS, study.samples)
    panels = tuple(
        Panel(
            title=f"{statistic.upper() if statistic == 'rms' else statistic} of {symbol}",
            xlabel="d_k (components)",
            ylabel=symbol,
            xscale="log2",
            yscale="log",
            series=tuple(
                line
                for name in names
                for line in series(
                    scaling.parse(name).formula, _chosen(rows, quantity, statistic, name), "dk"
                )
            ),
        )
        for quantity, symbol in (("gradient.logits", "‖∂L/∂s‖"), ("gradient.query", "‖∂L/∂q‖"))
        for statistic in ("rms", "median")
    )
    figure = Figure(
        title=f"Gradient behind the softmax by multiplier of q·k, m = {keys}",
        panels=panels,
        columns=2,
        caption=reading(panels, added(others("d_k", _DKS, asked))),
    )
    return {"gradient": figure}


def _chosen(rows: list[Row], quantity: str, statistic: str, scale: str) -> list[Row]:
    return [
        row
        for row in rows
        if row.quantity == quantity
        and row.params["statistic"] == statistic
        and row.params["pipeline"] == f"scale:{scale}"
    ]
