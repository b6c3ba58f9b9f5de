"""A user's own function as a transform of the logits, of q, or of k."""

from __future__ import annotations

import difflib
import importlib
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.logits.transforms.base import OnLogits, OnVectors, Transform

if TYPE_CHECKING:
    from collections.abc import Callable

    from sdpa_check.logits.transforms.arguments import Arguments
    from sdpa_check.logits.transforms.base import Context, FloatArray


@dataclass(frozen=True, slots=True)
class _Own(Transform):
    """What the three have in common.

    The function gets one array, a copy, and returns one of the same shape; its result is brought
    to the dtype of what it got.
    """

    target: str

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read ``module:function``; nothing is imported yet."""
        target = given.text()
        module, _, function = target.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), function)):
            raise ValueError(f"{target!r} is not module:function")
        return cls(target)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The target."""
        return (self.target,)

    def objection(self, _context: Context) -> str:
        """Why the function cannot be loaded."""
        try:
            self.load()
        except ValueError as error:
            return str(error)
        return ""

    def load(self) -> Callable[[FloatArray], Any]:
        """Import the function.

        Raises:
            ValueError: the module cannot be imported, or has no such function.
        """
        path, _, name = self.target.partition(":")
        try:
            module = importlib.import_module(path)
        except (Exception, SystemExit) as error:
            raise ValueError(f"importing {path} failed: {_told(error)}") from error
        found = getattr(module, name, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
        if found is not None:
            raise ValueError(f"{name} of {path} is no function")
        near = difflib.get_close_matches(name, dir(module), n=1, cutoff=0.5)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{path} has no {name!r}{hint}")

    def called(self, x: FloatArray) -> FloatArray:
        """Call the function on x, of a stack on every set, and hold the result to the contract.

        Raises:
            InputError: an exception, another shape, no numbers, or NaN made of finite numbers.
        """
        if x.ndim > 2:
            return np.stack([self.called(each) for each in x])
        try:
            with redirect_stdout(sys.stderr):  # stdout is for the table
                result = np.asarray(self.load()(x.copy()))
        except (Exception, SystemExit) as error:
            raise self._broken(f"it raised {_told(error)}") from error
        if result.shape != x.shape or result.dtype.kind not in "fiu":
            raise self._broken(f"it returned shape {result.shape} of dtype {result.dtype}")
        out = result.astype(x.dtype, copy=False)
        if np.isnan(out).any() and np.isfinite(x).all():
            raise self._broken("it made NaN out of finite numbers")
        return out

    def _broken(self, fault: str) -> InputError:
        want = "a function that returns an array of real numbers of the shape that it gets"
        return InputError("--pipeline", str(self), want, fault)


@dataclass(frozen=True, slots=True)
class User(_Own, OnLogits):
    """function(x) on the logits, shape (n, m): n queries, m keys."""

    name: ClassVar[str] = "user"
    usage: ClassVar[str] = "user:module:function with a function of the logits (n, m)"

    def on_logits(self, x: FloatArray, _context: Context) -> FloatArray:
        """Call it on x."""
        return self.called(x)


@dataclass(frozen=True, slots=True)
class UserQ(_Own, OnVectors):
    """function(q) on the queries, shape (d, n): one query per column."""

    name: ClassVar[str] = "user_q"
    usage: ClassVar[str] = "user_q:module:function with a function of the queries (d, n)"

    def on_vectors(
        self, q: FloatArray, k: FloatArray, _context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """Call it on q."""
        return self.called(q), k


@dataclass(frozen=True, slots=True)
class UserK(_Own, OnVectors):
    """function(k) on the keys, shape (d, m): one key per column."""

    name: ClassVar[str] = "user_k"
    usage: ClassVar[str] = "user_k:module:function with a function of the keys (d, m)"

    def on_vectors(
        self, q: FloatArray, k: FloatArray, _context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """Call it on k."""
        return q, self.called(k)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
