"""Checks → run record: what every study does after it has made its checks."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

import sdpa_check
from sdpa_check import experiment, rng, verdict
from sdpa_check.environment import environment
from sdpa_check.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sdpa_check.checks import Check, Settings
    from sdpa_check.experiment import Samples
    from sdpa_check.inputs import Inputs
    from sdpa_check.records import Row


_STOPPED_NOTE = (
    "This is a partial run: it was stopped before its end. Designs that were finished are judged; "
    "of the one under way the number so far is shown without a verdict."
)


@dataclass(frozen=True, slots=True)
class Study:
    """A finished run with what its figures need: the inputs and the merged sums."""

    run: Run
    inputs: Inputs
    samples: Samples


def conduct(
    command: str,
    checks: Sequence[Check],
    inputs: Inputs,
    design: Mapping[str, Any],
    notes: Callable[[Sequence[Row]], Sequence[str]],
    *,
    population: Sequence[Check] = (),
    finish: Callable[[list[Row]], list[Row]] = list,
) -> Study:
    """Run the checks and put the record together.

    Args:
        command: the name of the command.
        checks: what to do.
        inputs: resolved inputs, of which the settings are used.
        design: the inputs, as the record shows them.
        notes: rows → sentences to show under the table.
        population: the checks that `checks` were selected from, see `experiment.run`.
        finish: rows → rows, to add to them before they are counted.
    """
    started, clock = datetime.now(UTC), time.perf_counter()
    record, checkpoint = {**design, **settings_record(inputs.settings)}, inputs.settings.checkpoint
    if checkpoint is not None:
        checkpoint.fit(_made(command, record, inputs.settings, (checks, population)))
    keep = not population  # a registry draws no figures and has many designs
    with running(inputs.settings) as settings:
        rows, samples = experiment.run(checks, settings, population, keep=keep)
    rows = finish(rows)
    stopped = checkpoint is not None and checkpoint.stopped
    outcome, code = verdict.conclude(rows, stopped=stopped)
    run = Run(
        command=command,
        version=sdpa_check.__version__,
        outcome=outcome,
        exit_code=code,
        design=record,
        seed=inputs.settings.seed,
        generator=rng.GENERATOR,
        rows=tuple(rows),
        notes=(*_fault_note(inputs.settings), *([_STOPPED_NOTE] if stopped else notes(rows))),
        environment=environment(started, time.perf_counter() - clock),
    )
    return Study(run, inputs, samples)


@contextmanager
def running(settings: Settings) -> Iterator[Settings]:
    """The settings with the executor that their cluster is, open as long as the context lasts."""
    if settings.cluster is None:
        yield settings
        return
    from sdpa_check import cluster

    with cluster.opened(settings.cluster) as executor:
        yield replace(settings, executor=executor)


def _made(
    command: str, record: Mapping[str, Any], settings: Settings, asked: object
) -> dict[str, Any]:
    """All that the numbers of a run depend on, as far as it is known before it begins."""
    return {
        "command": command,
        "version": sdpa_check.__version__,
        "numpy": np.__version__,
        "seed": settings.seed,
        **record,
        "checks": hashlib.sha256(repr(asked).encode()).hexdigest()[:12],
    }


def settings_record(settings: Settings) -> dict[str, Any]:
    """The settings that shape the numbers, as they stand in the record's design."""
    fault = settings.fault
    planted = {"sample_scale": fault.sample_scale, "scale": fault.scale}
    return {
        "precision": settings.precision,
        "samples": settings.samples,
        "tolerance": settings.tolerance,
        "alpha": settings.alpha,
        "fault": planted if fault != type(fault)() else None,
    }


def _fault_note(settings: Settings) -> list[str]:
    fault = settings.fault
    if fault == type(fault)():
        return []
    planted = f"sample_scale={fault.sample_scale:g}, scale={fault.scale or 'as asked'}"
    return [f"A fault was planted on purpose: {planted}."]


def find(rows: Sequence[Row], quantity: str, **params: Any) -> Row | None:
    """The first row of a quantity with these parameters."""
    for row in rows:
        if row.quantity == quantity and all(row.params.get(k) == v for k, v in params.items()):
            return row
    return None
