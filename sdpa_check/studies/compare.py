"""`compare`: which numbers of two saved runs differ by more than their error bars."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sdpa_check
from sdpa_check import estimates, power, verdict
from sdpa_check.environment import environment
from sdpa_check.errors import InputError
from sdpa_check.records import MOVED, Outcome, Prediction, Row, Run

if TYPE_CHECKING:
    from sdpa_check.records import Estimate

_ROUNDING = 1e-12
"""Relative difference up to which two numbers without an error bar are the same."""

_MACHINE = ("python", "numpy", "scipy", "blas", "platform", "cpu")


def compare(old: Run, new: Run) -> Run:
    """A run whose rows are the differences new − old: confirmed where equal, refuted where moved.

    A difference counts as moved when it exceeds t · √(se_old² + se_new²), at a false-alarm
    probability of 1e-6 for the whole comparison; a number without an error bar, when it differs by
    more than rounding; a prediction, likewise.

    Raises:
        InputError: where the runs do not match: another command, design or list of rows.
    """
    started, clock = datetime.now(UTC), time.perf_counter()
    found = tuple(rows(old, new))
    outcome, code = verdict.conclude(found)
    return Run(
        command="compare",
        version=sdpa_check.__version__,
        outcome=outcome,
        exit_code=code,
        design={"old": _name(old), "new": _name(new), **_plain(new.design)},
        seed=new.seed,
        generator=new.generator,
        rows=found,
        notes=tuple(_warnings(old, new)),
        environment=environment(started, time.perf_counter() - clock),
    )


def rows(old: Run, new: Run) -> list[Row]:
    """The differences, row by row.

    Raises:
        InputError: as `compare`.
    """
    _refuse_mismatch(old, new)
    before = {row.id: row for row in old.rows}
    return [_row(before[row.id], row, len(new.rows)) for row in new.rows]


def _refuse_mismatch(old: Run, new: Run) -> None:
    for where, run in (("OLD", old), ("NEW", new)):
        if run.stopped:
            raise InputError(f"{where}: outcome", run.outcome, "a run that was not stopped")
    if old.command != new.command:
        raise InputError("NEW: command", new.command, f"{old.command}, as in OLD")
    for name in sorted({*old.design, *new.design}):
        was, now = old.design.get(name), new.design.get(name)
        if _plain(was) != _plain(now):
            raise InputError(f"NEW: design.{name}", now, f"{was!r}, as in OLD")
    only = sorted({row.id for row in old.rows} ^ {row.id for row in new.rows})
    if only:
        raise InputError("NEW: rows", only[0], "the same rows in both runs")


def _plain(value: Any) -> Any:
    """Lists in the place of tuples, as a record that was read from a file has them."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def _row(old: Row, new: Row, checks: int) -> Row:
    difference = _difference(old.estimate, new.estimate)
    reasons = [_moved(difference, old.estimate, new.estimate, checks), _predicted(old, new)]
    moved = [reason for reason in reasons if reason]
    return Row(
        id=f"{MOVED}{new.id}",
        quantity=new.quantity,
        params=new.params,
        estimate=difference,
        prediction=Prediction(value=0.0, kind="stated", source="no change"),
        verdict=Outcome.REFUTED if moved else Outcome.CONFIRMED,
        expected=Outcome.CONFIRMED,
        reason="; ".join(moved) if moved else "same: within the error of the difference",
    )


def _difference(old: Estimate | None, new: Estimate | None) -> Estimate | None:
    if old is None or new is None:
        return None
    value = new.value - old.value
    if old.se is None or new.se is None:
        return estimates.bare(value, new.blocks, new.samples, new.withheld or old.withheld)
    if not (old.blocks and new.blocks):
        return estimates.computed(value)
    se = math.hypot(old.se, new.se)
    return estimates.with_error(value, se, min(old.blocks, new.blocks), new.samples)


def _moved(
    difference: Estimate | None, old: Estimate | None, new: Estimate | None, checks: int
) -> str:
    """Why a number counts as moved; empty where it does not."""
    if difference is None or old is None or new is None:
        return "" if old is new else "measured in one run only"
    if difference.se is None:  # no error bar: nothing can be said of a sample value
        return ""
    if not difference.blocks:
        allowed = _ROUNDING * max(abs(old.value), abs(new.value))
        same = abs(difference.value) <= allowed or old.value == new.value
        return "" if same else f"moved by {difference.value:.6g}"
    reach = power.threshold(power.ALPHA, checks, difference.blocks) * difference.se
    if abs(difference.value) <= reach:
        return ""
    return f"moved by {difference.value:.4g}, more than {reach:.2g}"


def _predicted(old: Row, new: Row) -> str:
    was, now = old.prediction.value, new.prediction.value
    if was is None or now is None:
        return "" if was is now else f"the prediction was {was}, is {now}"
    if math.isclose(was, now, rel_tol=_ROUNDING, abs_tol=0.0) or was == now:
        return ""
    return f"the prediction was {was:.6g}, is {now:.6g}"


def _warnings(old: Run, new: Run) -> list[str]:
    was, now = old.environment, new.environment
    machine = [f"{n}: {was.get(n)} → {now.get(n)}" for n in _MACHINE if was.get(n) != now.get(n)]
    found = []
    if machine:
        found.append(
            f"The environments differ ({', '.join(machine)}); bits may differ, statistics may not."
        )
    if old.version != new.version:
        found.append(f"The versions differ: {old.version} → {new.version}.")
    if old.seed == new.seed:
        found.append("Both runs have the same seed: their samples are not independent.")
    return found


def _name(run: Run) -> str:
    return f"{run.command} of {run.environment.get('started')}, seed {run.seed}"
