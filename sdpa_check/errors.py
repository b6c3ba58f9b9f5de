"""What the package raises on purpose: what was got, what was wanted, what to do about it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


EXIT_CRASH, EXIT_USAGE, EXIT_STOPPED = 1, 2, 130
"""Exit codes of a command without a finished run; `verdict` has those of a run."""


class SdpaCheckError(Exception):
    """The parent of every error that sdpa-check raises on purpose.

    Its message is one line that a user can act on; the command line prints it and exits with 2,
    for a `LostWorkersError` with 1.
    """


class InputError(SdpaCheckError):
    """An input that cannot be used.

    Attributes:
        where: the option, parameter or file that holds the input, e.g. ``"--dk"``.
        got: the offending value as it was given.
        want: what would have been valid.
    """

    def __init__(self, where: str, got: object, want: str, hint: str = "") -> None:
        self.where, self.got, self.want, self.hint = where, got, want, hint
        tail = f"; {hint}" if hint else ""
        super().__init__(f"{where}: got {_shown(got)}, want {want}{tail}")

    def __reduce__(self) -> tuple[Callable[..., InputError], tuple[object, ...], dict[str, object]]:
        # An error of a block travels between processes, and is made of more than its message.
        return type(self), (self.where, self.got, self.want, self.hint), self.__dict__


class MissingExtraError(SdpaCheckError):
    """A feature needs an optional package that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.feature, self.extra = feature, extra
        super().__init__(f"{feature} needs an optional package: pip install 'sdpa-check[{extra}]'")

    def __reduce__(self) -> tuple[Callable[..., MissingExtraError], tuple[str, str]]:
        return type(self), (self.feature, self.extra)


class ClusterWarning(UserWarning):
    """The numbers of a run on a cluster may differ in their last bits from those made here."""


class LostWorkersError(SdpaCheckError):
    """The workers that a run was using have gone; nothing was wrong with the input."""


_LISTED = 40
"""So many names an error lists; of more it tells how many there are."""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown_name(where: str, got: object, names: Iterable[str]) -> InputError:
    """An `InputError` for a name outside a closed list, with the nearest valid one as the hint."""
    known = sorted(names)
    listed = ", ".join(known) if len(known) <= _LISTED else f"{len(known)} names"
    near = difflib.get_close_matches(str(got), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else ""
    return InputError(where, got, f"one of {listed}", hint)
