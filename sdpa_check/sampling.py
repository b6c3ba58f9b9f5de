"""Designs → merged sums: which work is done for a design, and how many blocks of it."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, cast

from sdpa_check import engine
from sdpa_check.planning import plan
from sdpa_check.quantities import ExactQuantity, Quantity, Sample, quantity
from sdpa_check.works import Key, applied, kind, training_work, work_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sdpa_check.checks import Check, Settings
    from sdpa_check.records import Design, Estimate, Prediction
    from sdpa_check.training.measures import TrainWork
    from sdpa_check.works import PlannedWork

    SizedWork = PlannedWork | TrainWork

SEEDS = 32
"""Blocks of a training, each a seed of every setting: neither planned nor changed by settings."""

LEAST = 2
"""Replicates behind a number that is shown of a design under way; one has no error bar."""


class Plan(NamedTuple):
    """How a design is measured, and what theory says of it.

    Attributes:
        work: what is drawn and measured.
        blocks: how many blocks.
        predictions: those of the checks that read the design; None where it is not sampled.
    """

    work: SizedWork
    blocks: int
    predictions: tuple[Prediction | None, ...]


def planned(kind_: str, design: Design, group: list[Check], settings: Settings, total: int) -> Plan:
    """What the checks of a design's `group` need.

    Args:
        kind_: the kind of block, as from `kind`.
        design: what is drawn.
        group: the checks that read the design.
        settings: how checks are run.
        total: how many checks share the false-alarm probability.
    """
    predictions = tuple(_predicted(check) for check in group)
    if kind_.startswith("train "):
        return Plan(training_work(kind_, design, group, settings), SEEDS, predictions)
    work, blocks = plan(work_of(kind_, design, group, settings), design, group, settings, total)
    return Plan(work, engine.whole(blocks), predictions)


def _predicted(check: Check) -> Prediction | None:
    asked = quantity(check.quantity)
    return None if isinstance(asked, ExactQuantity) else check.prediction(asked)


def sample(key: Key, group: list[Check], plan: Plan, settings: Settings) -> Sample:
    """Draw and merge the blocks of one design.

    Args:
        key: the kind of block and the design.
        group: the checks that read it.
        plan: what is drawn and measured, and how many blocks.
        settings: how checks are run.
    """
    (kind_, design), (work, blocks, _) = key, plan
    label = f"d_k={design.dk}" + (f", m={design.keys}" if design.keys else "")
    name, checkpoint = text_of(key), settings.checkpoint
    start = None if checkpoint is None else checkpoint.start(name, work, blocks)
    leader = cache(lambda: _leader(kind_, design, group))

    def advance(state: engine.State) -> None:
        if checkpoint is not None:
            checkpoint.note(name, state)
        if settings.progress is not None:
            current = partial(_current, leader, work, state, settings)
            settings.progress(label, state.merged, blocks, current)

    replicates = engine.run(
        work,
        seed=settings.seed,
        blocks=blocks,
        jobs=settings.jobs,
        executor=settings.runner,
        start=start,
        progress=advance,
    )
    return Sample(work=work, replicates=replicates)


def text_of(key: Key) -> str:
    """The name of a sampling in a checkpoint."""
    return repr(key)


def _leader(kind_: str, design: Design, group: list[Check]) -> Check | None:
    """The check of a design whose number is shown while it is sampled: the first that is not 0."""
    for check in group:
        asked = quantity(check.quantity)
        if isinstance(asked, ExactQuantity) or asked.sweep or check.versus is not None:
            continue
        own = asked.lead and (kind(asked, check.case), check.case.design) == (kind_, design)
        if own and check.prediction(asked).value:
            return check
    return None


def _current(
    leader: Callable[[], Check | None], work: SizedWork, state: engine.State, settings: Settings
) -> tuple[str, Estimate] | None:
    """The number of the leading check so far, from complete replicates."""
    check = leader()
    if check is None or state.complete < LEAST:
        return None
    factor = applied(check.case, check.case.design, settings)
    sample = Sample(work=work, replicates=state.replicates(), multiplier=factor)
    scale = f" {check.case.scale.name}" if check.case.scale else ""
    asked = cast("Quantity", quantity(check.quantity))
    return f"{asked.name}{scale}", asked.estimate(check.case, (sample,))
