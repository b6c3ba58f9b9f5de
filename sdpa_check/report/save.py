"""Files that appear whole or not at all."""

from __future__ import annotations

import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LAST = "run.json"
"""The file that is put in place last: where it is new, all others are."""


def save(directory: Path, files: Mapping[str, bytes | str]) -> None:
    """Write `files`, a mapping of names to contents, into `directory`, which is made if absent.

    All contents are written under temporary names first and renamed once every one of them is on
    the disk; a failure leaves earlier files as they were, and nothing new.

    Raises:
        InputError: the directory or a file in it cannot be written.
    """
    with _as_input_error(directory), _directory(directory), _temporaries(directory, files) as pairs:
        _put_in_place(pairs)


def _put_in_place(pairs: Mapping[Path, Path]) -> None:
    """Rename every temporary file to its target, or none of them."""
    before = {target: target.read_bytes() for target in pairs.values() if target.exists()}
    placed = []
    try:
        for temporary, target in pairs.items():
            temporary.replace(target)
            placed.append(target)
    except BaseException:  # a target can be locked: a spreadsheet has table.csv open
        for target in placed:
            if target in before:
                target.write_bytes(before[target])
            else:
                target.unlink()
        raise


def check_writable(directory: Path) -> None:
    """Make sure that `save` can write into `directory`, before hours of work; nothing stays behind.

    Raises:
        InputError: it cannot be made or cannot be written.
    """
    with (
        _as_input_error(directory),
        _directory(directory, keep=False),
        _temporaries(directory, {"probe": b""}),
    ):
        pass


@contextmanager
def _as_input_error(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = error.strerror or str(error)
        raise InputError("--out", str(directory), "a directory to write to", hint) from error


@contextmanager
def _directory(directory: Path, *, keep: bool = True) -> Iterator[None]:
    """The directory and its parents, made where absent, and removed again on failure."""
    absent = [path for path in (directory, *directory.parents) if not path.exists()]
    done = False
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
        done = keep
    finally:
        if not done:
            for path in absent:
                with suppress(OSError):  # not made, or by now in use by someone else
                    path.rmdir()


@contextmanager
def _temporaries(directory: Path, files: Mapping[str, bytes | str]) -> Iterator[dict[Path, Path]]:
    """Temporary files with the given contents, each with the path that it is meant for."""
    token = secrets.token_hex(4)  # so that two runs into one directory do not meet
    names = sorted(files, key=lambda name: name == LAST)
    pairs = {directory / f".{name}.{token}.tmp": directory / name for name in names}
    try:
        for temporary, target in pairs.items():
            content = files[target.name]
            data = content.encode() if isinstance(content, str) else content
            with temporary.open("xb") as stream:
                stream.write(data)
        yield pairs
    finally:
        for temporary in pairs:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
