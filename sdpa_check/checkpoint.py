"""What a run has measured so far: kept when it is stopped, and where a resumed run starts from."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sdpa_check.engine import State
from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sdpa_check.engine import Sums, Work
    from sdpa_check.records import Row

SCHEMA: Final = "sdpa-check/partial/1"
"""Name and version of the format of the file."""

FILE: Final = "partial.npz"
"""The name of the file, beside run.json."""

_WANT = "a partial.npz that sdpa-check wrote; without --resume a new run begins"


@dataclass(frozen=True, slots=True)
class Entry:
    """A sampling that has begun: how far it has come, and with which work.

    `work` is None where a resumed run has not come to it yet; `digest` then stands for it.
    """

    digest: str
    state: State
    work: Work | None = None


class Checkpoint:
    """The samplings and rows that a run has so far; up to date whenever the run ends.

    A run that is given one ends in a marked partial run where KeyboardInterrupt would have left
    nothing, and sets `stopped`. It goes on from what the checkpoint holds at its start.

    Attributes:
        advice: how to go on, for the reasons of rows that were not judged.
        made: what the numbers depend on, as noted by `fit`.
        entries: what has been sampled, by the text of its key; what no row needs any more is gone.
        rows: the rows that are final while their samples are gone, by their place.
        stopped: whether the run was stopped before its end.
    """

    def __init__(self, advice: str = "") -> None:
        self.advice = advice
        self.entries: dict[str, Entry] = {}
        self.rows: dict[int, Row] = {}
        self.stopped = False
        self.made: dict[str, Any] = {}

    @property
    def empty(self) -> bool:
        """Whether there is nothing that would be worth keeping."""
        return not self.rows and not any(each.state.merged for each in self.entries.values())

    def fit(self, made: Mapping[str, Any]) -> None:
        """Note what the numbers of this run depend on, before it begins.

        Args:
            made: names and JSON values: seed, versions, inputs.

        Raises:
            InputError: the checkpoint is that of another run; the message names what differs.
        """
        now = json.loads(json.dumps(made))
        was = self.made or now
        for name in dict.fromkeys((*now, *was)):
            if now.get(name) != was.get(name):
                if name == "checks":  # a digest, which says nothing to anyone
                    raise _mismatch(name, "other claims or parameters", "the same ones")
                raise _mismatch(name, now.get(name), repr(was.get(name)))
        self.made, self.stopped = now, False

    def start(self, name: str, work: Work, blocks: int) -> State:
        """Where the sampling of that name starts, which has `blocks` blocks in all.

        Raises:
            InputError: it began with another work or another number of blocks.
        """
        # The text of a work is that of all numbers it depends on, so that it tells works apart.
        digest = hashlib.sha256(repr(work).encode()).hexdigest()
        entry = self.entries.get(name, Entry(digest, State(blocks)))
        if entry.state.blocks != blocks:
            raise _mismatch(f"blocks of {name}", blocks, repr(entry.state.blocks))
        if entry.digest != digest:
            raise _mismatch(f"work of {name}", digest[:12], repr(entry.digest[:12]))
        self.entries[name] = replace(entry, work=work)
        return entry.state

    def note(self, name: str, state: State) -> None:
        """Note how far the sampling of that name has come."""
        self.entries[name] = replace(self.entries[name], state=state)

    def dumps(self) -> bytes:
        """The checkpoint as the bytes of a file; every float comes back as it is."""
        from sdpa_check.report import record

        begun = {name: each for name, each in self.entries.items() if each.state.merged}
        header = {
            "schema": SCHEMA,
            "made": self.made,
            "entries": [
                {
                    "name": name,
                    "work": entry.digest,
                    "blocks": entry.state.blocks,
                    "merged": entry.state.merged,
                }
                for name, entry in begun.items()
            ],
            # What is not finite has no JSON form; such a row is made again.
            "rows": [
                [place, record.row_to_dict(row)]
                for place, row in self.rows.items()
                if row.estimate is None or math.isfinite(row.estimate.value)
            ],
        }
        arrays = {"header": np.array(json.dumps(header, allow_nan=False))}
        for index, entry in enumerate(begun.values()):
            sums = entry.state.replicates().sums if entry.state.complete else {}
            arrays |= {f"{index}/sums/{name}": each for name, each in sums.items()}
            arrays |= {f"{index}/begun/{name}": each for name, each in entry.state.begun.items()}
        stream = io.BytesIO()
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]  # names, not options
        return stream.getvalue()


def load(path: str | Path, advice: str = "") -> Checkpoint:
    """The checkpoint in a file, with the `Checkpoint.advice` of the run that goes on from it.

    Raises:
        InputError: there is none, or it is something else.
    """
    from zipfile import BadZipFile

    from sdpa_check.report import record

    path = Path(path)
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            if header["schema"] != SCHEMA:
                raise InputError(f"{path}: schema", header["schema"], SCHEMA)
            found = Checkpoint(advice)
            found.made = dict(header["made"])
            found.rows = {
                int(place): record.row_from_dict(row, str(path)) for place, row in header["rows"]
            }
            for index, entry in enumerate(header["entries"]):
                state = _state(arrays, index, int(entry["blocks"]), int(entry["merged"]))
                found.entries[str(entry["name"])] = Entry(str(entry["work"]), state)
            return found
    except FileNotFoundError as error:
        want = f"the {FILE} of a run that was stopped; without --resume a new run begins"
        raise InputError("--resume", str(path), want, "there is no such file") from error
    except OSError as error:
        raise InputError("--resume", str(path), f"a readable file ({error.strerror})") from error
    except (BadZipFile, zlib.error, EOFError, ValueError, TypeError, KeyError) as error:
        raise InputError("--resume", str(path), _WANT, f"{type(error).__name__}") from error


def _state(arrays: Mapping[str, Any], index: int, blocks: int, merged: int) -> State:
    """The state of an entry, with room for the replicates that are to come."""
    state = State(blocks, merged, {}, _below(arrays, f"{index}/begun/"))
    for name, each in _below(arrays, f"{index}/sums/").items():
        if len(each) != state.complete:
            raise ValueError(f"{len(each)} replicates")
        state.sums[name] = np.zeros((state.count, *each.shape[1:]), each.dtype)
        state.sums[name][: len(each)] = each
    if not 0 < merged <= blocks or bool(state.sums) != bool(state.complete):
        raise ValueError(f"{merged} of {blocks} blocks")
    return state


def _below(arrays: Mapping[str, Any], prefix: str) -> Sums:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def _mismatch(name: str, got: object, want: str) -> InputError:
    hint = "without --resume a new run begins"
    return InputError(f"--resume: {name}", got, f"{want}, as in the run that was stopped", hint)
