"""The figures of `train`: loss curves, at every rate and at the best; losses by rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sdpa_check.logits import scaling
from sdpa_check.report.figures import Figure, Panel, Series, Span, values
from sdpa_check.report.rows import number
from sdpa_check.training.measures import FINAL
from sdpa_check.training.trial import middles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.records import Estimate
    from sdpa_check.studies.train import TrainStudy
    from sdpa_check.training.measures import Results, Setting

MOST_PANELS: Final = 24
"""More loss curves than this cannot be read; rates are then left out evenly."""

_INTERVALS = "95 % intervals of the mean over seeds"


def figures(study: TrainStudy) -> dict[str, Figure]:
    """Name → figure; nothing is trained for them.

    Loss curves are those of the first warmup; the figure ``rates`` has them all.
    """
    design, results = study.run.design, study.results
    keys, warmup = design["keys"], design["warmup"][0]
    shown = [s for s in results.settings if s.warmup == warmup]
    best = [s for s in results.best_settings() if s.warmup == warmup]
    task = f"{keys} keys, {design['optimiser']}, {design['seeds']} seeds"
    if warmup:
        task += f", warmup {warmup}"
    by_rate = [
        [s for s in shown if (s.dk, s.lr) == (dk, lr)]
        for dk in design["dk"]
        for lr in _evenly(design["lr"], MOST_PANELS // len(design["dk"]))
    ]
    by_dk = [[s for s in best if s.dk == dk] for dk in design["dk"]]
    return {
        "curves": _figure("Prediction loss at every learning rate", task, by_rate, study, 3),
        "best": _figure("Prediction loss at the best learning rate", task, by_dk, study, 2),
        "rates": _rates(results, keys, task),
    }


def _evenly(rates: Sequence[float], most: int) -> list[float]:
    """At most `most` of the rates, the first and the last among them."""
    if len(rates) <= max(most, 1):
        return list(rates)
    last = max(most - 1, 1)
    return [rates[i * (len(rates) - 1) // last] for i in range(max(most, 1))]


def _figure(
    title: str, task: str, panels: Sequence[Sequence[Setting]], study: TrainStudy, columns: int
) -> Figure:
    keys, steps = study.run.design["keys"], study.run.design["steps"]
    return Figure(
        title=f"{title}, {task}",
        panels=tuple(_loss_curves(study.results, settings, keys, steps) for settings in panels),
        columns=min(columns, len(panels)),
        caption=f"Bands: {_INTERVALS}.",
    )


def _loss_curves(results: Results, settings: Sequence[Setting], keys: int, steps: int) -> Panel:
    """One panel: the curve of each scaling with its band."""
    drawn = []
    for s in settings:
        points = results.curve(s)
        drawn.append(
            Series(
                label=scaling.parse(s.scale).formula,
                kind="curve",
                x=values(middles(steps)),
                **_with_interval(points),
            )
        )
    rates = [number(s.lr) for s in settings]
    if len(set(rates)) > 1:
        rates = [f"{rate} ({s.scale})" for rate, s in zip(rates, settings, strict=True)]
    return Panel(
        title=f"d_k = {settings[0].dk}, lr = {', '.join(dict.fromkeys(rates))}",
        xlabel="steps",
        ylabel="loss (nats)",
        yscale="log",
        series=tuple(drawn),
        spans=(_uniform(keys),),
    )


def _rates(results: Results, keys: int, task: str) -> Figure:
    """Final loss against the rate, for each d_k, and the best rate against d_k."""
    dks = dict.fromkeys(s.dk for s in results.settings)
    panels = [_rate_panel(results, dk, keys) for dk in dks]
    return Figure(
        title=f"Final prediction loss by learning rate, {task}",
        panels=(*panels, _best_panel(results)),
        columns=min(3, len(panels) + 1),
        caption=f"Bars: {_INTERVALS}; about a best rate, the rates that cannot be told from it.",
    )


def _rate_panel(results: Results, dk: int, keys: int) -> Panel:
    drawn: list[Series] = []
    for label, settings in _lines([s for s in results.settings if s.dk == dk]).items():
        found = [results.estimate(FINAL, s) for s in settings]
        drawn += _points(label, [s.lr for s in settings], found)
    return Panel(
        title=f"d_k = {dk}",
        xlabel="learning rate",
        ylabel="final loss (nats)",
        xscale="log",
        yscale="log",
        series=tuple(drawn),
        spans=(_uniform(keys),),
    )


def _best_panel(results: Results) -> Panel:
    drawn: list[Series] = []
    for label, settings in _lines(results.best_settings()).items():
        found = [results.best_lr_set(s) for s in settings]
        drawn += _points(label, [s.dk for s in settings], found)
    return Panel(
        title="best rate",
        xlabel="d_k (components)",
        ylabel="learning rate",
        xscale="log2",
        yscale="log",
        series=tuple(drawn),
    )


def _lines(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """Settings by scaling and warmup, under the label of both."""
    found: dict[str, list[Setting]] = {}
    for s in settings:
        label = scaling.parse(s.scale).formula + (f", warmup {s.warmup}" if s.warmup else "")
        found.setdefault(label, []).append(s)
    return found


def _points(label: str, x: Sequence[float], found: Sequence[Estimate]) -> list[Series]:
    """Points with their intervals, and a thin line to lead the eye."""
    at, bars = values(x), _with_interval(found)
    return [
        Series(label=label, kind="guide", x=at, y=bars["y"]),
        Series(label=label, kind="points", x=at, **bars),
    ]


def _with_interval(found: Sequence[Estimate]) -> dict[str, tuple[float | None, ...]]:
    return {
        "y": values([each.value for each in found]),
        "lo": tuple(each.lo for each in found),
        "hi": tuple(each.hi for each in found),
    }


def _uniform(keys: int) -> Span:
    return Span(axis="y", lo=math.log(keys), hi=math.log(keys), label="ln N")
