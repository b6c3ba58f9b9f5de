"""The figures of `train`: loss curves, at every rate and at the best; losses by rate."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sdpa_check.logits import scaling
from sdpa_check.report.figures import Figure, Panel, Series, Span, values
from sdpa_check.report.rows import number
from sdpa_check.training.measures import FINAL
from sdpa_check.training.trial import middles

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sdpa_check.records import Estimate
    from sdpa_check.studies.train import TrainStudy
    from sdpa_check.training.measures import Results, Setting

MOST_PANELS: Final = 24
"""More loss curves than this cannot be read; rates are then left out evenly."""

_INTERVALS = "95 % intervals of the mean over seeds"

_SPREAD: Final = 0.2
"""The share of the way from one d_k to the next that the scalings at one d_k take up."""


def figures(study: TrainStudy) -> dict[str, Figure]:
    """Name → figure; nothing is trained for them.

    Loss curves are those of the first warmup; the figure ``rates`` has them all. A scaling has the
    same colour in all of them, as all name the scalings alone and in one order.
    """
    design, results = study.run.design, study.results
    keys, warmups = design["keys"], design["warmup"]
    shown = [s for s in results.settings if s.warmup == warmups[0]]
    best = [s for s in results.best_settings() if s.warmup == warmups[0]]
    task = f"{keys} keys, {design['optimiser']}, {design['seeds']} seeds"
    first = f"{task}, warmup {warmups[0]}" if any(warmups) else task
    by_rate = [
        [s for s in shown if (s.dk, s.lr) == (dk, lr)]
        for dk in design["dk"]
        for lr in _evenly(design["lr"], MOST_PANELS // len(design["dk"]))
    ]
    by_dk = [[s for s in best if s.dk == dk] for dk in design["dk"]]
    return {
        "curves": _figure("Prediction loss at every learning rate", first, by_rate, study, 3),
        "best": _figure("Prediction loss at the best learning rate", first, by_dk, study, 2),
        "rates": _rates(results, keys, task if len(warmups) > 1 else first),
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
    more = len(study.run.design["warmup"]) > 1
    others = " The other warmups are in the figure of the learning rates." if more else ""
    return Figure(
        title=f"{title}, {task}",
        panels=tuple(_loss_curves(study.results, settings, keys, steps) for settings in panels),
        columns=min(columns, len(panels)),
        caption=f"Bands: {_INTERVALS}.{others}",
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
    """Final loss against the rate, for each d_k and warmup, and the best rates against d_k."""
    dks = dict.fromkeys(s.dk for s in results.settings)
    warmups = list(dict.fromkeys(s.warmup for s in results.settings))
    names = [f", warmup {warmup}" if len(warmups) > 1 else "" for warmup in warmups]
    named = list(zip(warmups, names, strict=True))
    panels = [
        *(_rate_panel(results, dk, warmup, name, keys) for dk in dks for warmup, name in named),
        *(_best_panel(results, warmup, name) for warmup, name in named),
    ]
    return Figure(
        title=f"Final prediction loss by learning rate, {task}",
        panels=tuple(panels),
        columns=min(3, len(warmups) if len(warmups) > 1 else len(panels)),
        caption=f"Bars: {_INTERVALS}; about a best rate, the rates that cannot be told from it. "
        "Best rates at one d_k stand side by side.",
    )


def _rate_panel(results: Results, dk: int, warmup: int, name: str, keys: int) -> Panel:
    drawn: list[Series] = []
    some = [s for s in results.settings if (s.dk, s.warmup) == (dk, warmup)]
    for scale, settings in _by_scale(some).items():
        found = [results.estimate(FINAL, s) for s in settings]
        drawn += _points(scale, [s.lr for s in settings], found)
    return Panel(
        title=f"d_k = {dk}{name}",
        xlabel="learning rate",
        ylabel="final loss (nats)",
        xscale="log",
        yscale="log",
        series=tuple(drawn),
        spans=(_uniform(keys),),
    )


def _best_panel(results: Results, warmup: int, name: str) -> Panel:
    """The best rates, on an axis of all rates that were tried."""
    drawn: list[Series] = []
    lines = _by_scale([s for s in results.best_settings() if s.warmup == warmup])
    tried, dks = {s.lr for s in results.settings}, {s.dk for s in results.settings}
    step = _nearest(dks)
    for i, (scale, settings) in enumerate(lines.items()):
        side = i / (len(lines) - 1) - 0.5 if len(lines) > 1 else 0.0
        aside = step ** (_SPREAD * side)
        found = [results.best_lr_set(s) for s in settings]
        drawn += _points(scale, [s.dk * aside for s in settings], found)
    return Panel(
        title=f"best rate{name}",
        xlabel="d_k (components)",
        ylabel="learning rate",
        xscale="log2",
        yscale="log",
        xlim=(min(dks) / step**0.5, max(dks) * step**0.5),
        ylim=(min(tried) / 1.5, max(tried) * 1.5),
        series=tuple(drawn),
    )


def _nearest(dks: Collection[int]) -> float:
    """The least ratio of one d_k to the next below; 2 where there is but one."""
    return min((high / low for low, high in pairwise(sorted(dks))), default=2.0)


def _by_scale(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """Settings by their scaling."""
    found: dict[str, list[Setting]] = {}
    for s in settings:
        found.setdefault(s.scale, []).append(s)
    return found


def _points(scale: str, x: Sequence[float], found: Sequence[Estimate]) -> list[Series]:
    """Points of a scaling with their intervals, and a line to lead the eye."""
    label, at, bars = scaling.parse(scale).formula, values(x), _with_interval(found)
    return [
        Series(label=label, kind="curve", x=at, y=bars["y"]),
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
