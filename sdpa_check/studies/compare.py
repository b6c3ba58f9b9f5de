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
from sdpa_check.report import record
from sdpa_check.report.rows import cells, claimed

if TYPE_CHECKING:
    from sdpa_check.records import Estimate

_ROUNDING = 1e-12
"""Relative difference up to which two numbers without an error bar are the same."""

_CHOICE = {"verify": ("file", "full", "select", "ignore")}
"""Inputs that only decide which rows there are; the rows themselves are compared."""

_MACHINE = ("python", "numpy", "scipy", "blas", "platform", "cpu")


def compare(old: Run, new: Run) -> Run:
    """A run whose rows are the differences new − old: confirmed where equal, refuted where moved.

    A difference counts as moved when it exceeds t · √(se_old² + se_new²), at a false-alarm
    probability of 1e-6 for the whole comparison; a computed number, when it differs by more than
    rounding; a prediction, likewise; and any of them, when it is finite in one run only.

    Raises:
        InputError: where the runs do not match: another command, design, list of rows or parameters
            of a row.
    """
    for name, run in (("OLD", old), ("NEW", new)):
        if not isinstance(run, Run):
            raise InputError(name, run, "a run, as `sdpa_check.variance` and the others return it")
    started, clock = datetime.now(UTC), time.perf_counter()
    found = tuple(rows(old, new))
    outcome, code = verdict.conclude(found)
    return Run(
        command="compare",
        version=sdpa_check.__version__,
        outcome=outcome,
        exit_code=code,
        design={"old": _name(old), "new": _name(new), **new.design},
        seed=new.seed,
        generator=new.generator,
        rows=found,
        notes=tuple(_warnings(old, new)),
        environment=environment(started, time.perf_counter() - clock),
    )


def rows(old: Run, new: Run, names: tuple[str, str] = ("OLD", "NEW")) -> list[Row]:
    """The differences, row by row.

    Args:
        old: the earlier run.
        new: the later one.
        names: what errors call the two.

    Raises:
        InputError: as `compare`.
    """
    # As they come back from their files: there, what is not finite is null.
    old, new = (record.loads(record.dumps(run), "run") for run in (old, new))
    _refuse_mismatch(old, new, names)
    before = {row.id: row for row in old.rows}
    return [_row(before[row.id], row, len(new.rows)) for row in new.rows]


def _refuse_mismatch(old: Run, new: Run, names: tuple[str, str]) -> None:
    first, second = names
    for name, run in zip(names, (old, new), strict=True):
        if run.stopped:
            raise InputError(f"{name}: outcome", run.outcome, "a run that was not stopped")
    if old.command != new.command:
        raise InputError(f"{first}: command", old.command, f"{new.command!r}, as in {second}")
    for name in sorted({*old.design, *new.design}.difference(_CHOICE.get(new.command, ()))):
        was, now = old.design.get(name), new.design.get(name)
        if was != now:
            raise InputError(f"{first}: design.{name}", was, f"{now!r}, as in {second}")
    _refuse_rows(old, new, names)


def _refuse_rows(old: Run, new: Run, names: tuple[str, str]) -> None:
    """Refuse runs of which one lacks a row, or in which rows of one id are about other numbers."""
    first, second = names
    before, after = ({row.id: row for row in run.rows} for run in (old, new))
    for each, row in after.items():
        was, now = _asked(before.get(each, row)), _asked(row)
        for name in dict.fromkeys((*now, *was)):
            if was.get(name) != now.get(name):
                want = f"{now.get(name)!r}, as in {second}"
                raise InputError(f"{first}: row {each}: {name}", was.get(name), want)
    for here, there, name, other in (
        (after, before, first, second),
        (before, after, second, first),
    ):
        missing = [each for each in here if each not in there]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            want = f"that row{more}, as in {other}"
            raise InputError(f"{name}: row {missing[0]}", "missing", want)


def _asked(row: Row) -> dict[str, Any]:
    """What a row is about; what a claim states is part of its prediction."""
    params = {name: value for name, value in row.params.items() if name != "stated"}
    return {"quantity": row.quantity, **params}


def _row(old: Row, new: Row, checks: int) -> Row:
    difference = _difference(old.estimate, new.estimate)
    reasons = [_moved(difference, old.estimate, new.estimate, checks), _predicted(old, new)]
    moved = [reason for reason in reasons if reason]
    numbers = f"measured {cells(new)['measured']}, before {cells(old)['measured']}"
    return Row(
        id=f"{MOVED}{new.id}",
        quantity=new.quantity,
        params=new.params,
        estimate=difference,
        prediction=Prediction(value=0.0, kind="stated", source="no change"),
        verdict=Outcome.REFUTED if moved else Outcome.CONFIRMED,
        expected=Outcome.CONFIRMED,
        reason="; ".join([*(moved or ["same"]), numbers]),
    )


def _difference(old: Estimate | None, new: Estimate | None) -> Estimate | None:
    if old is None or new is None:
        return None
    value = new.value - old.value
    if old.se is None or new.se is None:
        withheld = new.withheld or old.withheld if math.isfinite(value) else ""
        return estimates.bare(value, new.blocks, new.samples, withheld)
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
    finite = [math.isfinite(each.value) for each in (old, new)]
    if not all(finite):
        return "" if not any(finite) else f"{'now' if finite[1] else 'no longer'} a finite number"
    if difference.se is None:  # no error bar: nothing can be said of a sample value
        return ""
    if not difference.blocks:
        reach = _ROUNDING * max(abs(old.value), abs(new.value))
    else:
        reach = power.threshold(power.ALPHA, checks, difference.blocks) * difference.se
    if abs(difference.value) <= reach:
        return ""
    return f"moved by {difference.value:.4g}, more than {reach:.2g}"


def _predicted(old: Row, new: Row) -> str:
    if old.params.get("stated") != new.params.get("stated"):
        return "the stated numbers are others"
    was, now = old.prediction, new.prediction
    same = (was.kind, was.relation) == (now.kind, now.relation)
    if was.value is None or now.value is None:
        same = same and was.value is now.value
    else:
        same = same and math.isclose(was.value, now.value, rel_tol=_ROUNDING, abs_tol=0.0)
    return "" if same else f"the prediction was {_told(was)}, is {_told(now)}"


def _told(prediction: Prediction) -> str:
    if prediction.kind == "none":
        return "none"
    value = math.inf if prediction.value is None else prediction.value
    return f"{claimed((value,), prediction.relation)} ({prediction.kind})"


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
