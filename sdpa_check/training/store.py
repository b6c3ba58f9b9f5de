"""Finished trials in a file, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import sdpa_check
from sdpa_check.errors import InputError
from sdpa_check.report.save import save
from sdpa_check.training.model import NOISE, Task
from sdpa_check.training.trial import POINTS, Curve, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA: Final = "sdpa-check/trials/1"
"""Name and version of the format of the file."""

_WANT = "a trials.json that sdpa-check wrote; remove it to start afresh"


def load(path: Path, root_seed: int) -> dict[Trial, Curve]:
    """The trials in a file, by what they depend on; none where there is no file.

    A file of another root seed, version or noise holds nothing that is of use.

    Raises:
        InputError: the file cannot be read or is something else.
    """
    if not path.exists():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise InputError(f"{path}: schema", document["schema"], SCHEMA)
        if document["made"] != _made(root_seed):
            return {}
        return dict(_read(entry) for entry in document["trials"])
    except OSError as error:
        raise InputError("--out", str(path), f"a readable file ({error.strerror})") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(str(path), f"{type(error).__name__}: {error}", _WANT) from error


def dump(path: Path, curves: Mapping[Trial, Curve], root_seed: int) -> None:
    """Write trials, whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    document = {
        "schema": SCHEMA,
        "made": _made(root_seed),
        "trials": [_entry(trial, curve) for trial, curve in curves.items()],
    }
    save(path.parent, {path.name: json.dumps(document, allow_nan=False) + "\n"})


def _made(root_seed: int) -> dict[str, Any]:
    return {"version": sdpa_check.__version__, "seed": root_seed, "noise": NOISE}


def _entry(trial: Trial, curve: Curve) -> dict[str, Any]:
    losses = {
        name: [loss if math.isfinite(loss) else None for loss in each]
        for name, each in curve._asdict().items()
    }
    return asdict(trial) | losses


def _read(entry: dict[str, Any]) -> tuple[Trial, Curve]:
    fields = dict(entry)
    losses = [
        tuple(math.inf if loss is None else float(loss) for loss in fields.pop(name))
        for name in Curve._fields
    ]
    trial = Trial(**fields | {"task": Task(**fields["task"])})
    points = min(trial.steps, POINTS)
    if any(len(each) != points for each in losses):
        raise ValueError(f"a curve without its {points} points")
    return trial, Curve(*losses)
