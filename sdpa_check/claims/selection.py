"""Claims by the patterns of their ids."""

from __future__ import annotations

import difflib
import fnmatch
from typing import TYPE_CHECKING

from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sdpa_check.claims.claim import Claim

_LISTED = 12
"""So many ids an error lists; of more it tells how many there are."""


def select(
    claims: Sequence[Claim], chosen: Sequence[str] = (), ignored: Sequence[str] = ()
) -> list[Claim]:
    """The claims whose id matches a pattern of `chosen`, if there is any, and none of `ignored`.

    Raises:
        InputError: for a pattern that matches nothing.
    """
    ids = [claim.id for claim in claims]
    for option, patterns in (("--select", chosen), ("--ignore", ignored)):
        for pattern in patterns:
            if not any(matches(name, pattern) for name in ids):
                raise _unmatched(option, pattern, ids)
    return [
        claim
        for claim in claims
        if (not chosen or any(matches(claim.id, p) for p in chosen))
        and not any(matches(claim.id, p) for p in ignored)
    ]


def _unmatched(option: str, pattern: str, ids: Sequence[str]) -> InputError:
    names = list(dict.fromkeys(name.partition("[")[0] for name in ids))
    listed = ", ".join(names) if len(names) <= _LISTED else f"the {len(names)} ids"
    return InputError(
        option, pattern, f"one of {listed}, or a pattern with *", nearest(pattern, ids)
    )


def nearest(wanted: str, ids: Iterable[str]) -> str:
    """``did you mean 'A-var'?``: an id that differs in upper and lower case, or else a close one.

    Empty where there is none.
    """
    known = {each.lower(): each for name in ids for each in (name.partition("[")[0], name)}
    alike = [name for name in known if matches(name, wanted.lower())]
    near = alike or difflib.get_close_matches(wanted.lower(), known, n=1, cutoff=0.7)
    return f"did you mean {known[near[0]]!r}?" if near else ""


def matches(name: str, pattern: str) -> bool:
    """fnmatch, with brackets taken literally; ``A-var`` also means ``A-var[dk=8]``."""
    literal = pattern.replace("[", "[[]")
    return fnmatch.fnmatchcase(name, literal) or name.partition("[")[0] == pattern
