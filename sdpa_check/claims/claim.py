"""One claim: what a document says, and how it is put to the test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sdpa_check.checks import Check
from sdpa_check.errors import InputError
from sdpa_check.inputs import Options, resolve
from sdpa_check.quantities import Case, ExactQuantity, quantity
from sdpa_check.quantities.params import DESIGN, PARAMS, ROW
from sdpa_check.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sdpa_check.quantities import Quantity
    from sdpa_check.records import Relation


OPTIONAL = (
    *("scale", "statistic", "level", "temperature"),
    *("warmup", "versus_scale", "versus_lr", "versus_warmup"),
)
"""Parameters of quantities that a claim may leave out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement of a document, with the one verdict that an honest run must find.

    Attributes:
        id: unique within its file.
        source: the document.
        section: where in it.
        statement: what it says, in our words.
        quantity: the number that decides it; None for a documentary claim.
        params: the parameters of that number.
        versus: parameters, replacing those of `params`, of the number to compare with; the claim
            is then about the difference.
        stated: what the document says the number is.
        relation: ``equal``, ``at least`` or ``at most``.
        band: half-width of what still counts as equal; from `decimals` one unit in the last place.
        tolerance: the same as a fraction of the quantity's natural scale.
        expected: the verdict that an honest run finds.
        right: the right value in words, where the document errs.
        note: what explains the verdict.
        control: changes under which the verdict must turn.
        slow: whether the claim is left to ``--full``.
    """

    id: str
    source: str = ""
    section: str = ""
    statement: str
    quantity: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    versus: Mapping[str, Any] | None = None
    stated: tuple[float, ...] = ()
    relation: Relation = "equal"
    band: float | None = None
    tolerance: float | None = None
    expected: Outcome = Outcome.CONFIRMED
    right: str = ""
    note: str = ""
    control: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False

    def check(self) -> Check:
        """The check that decides the claim.

        Raises:
            InputError: for a parameter whose value cannot be used, naming the claim.
        """
        if self.quantity is None:
            raise InputError(self.id, "a documentary claim", "a claim with a quantity")
        asked = quantity(self.quantity, f"{self.id}: quantity")
        try:
            versus = None if self.versus is None else case(asked, {**self.params, **self.versus})
            return Check(
                id=self.id,
                quantity=self.quantity,
                case=case(asked, self.params),
                versus=versus,
                expected=self.expected,
                stated=self.stated,
                relation=self.relation,
                band=self.band,
                tolerance=self.tolerance,
            )
        except InputError as error:
            where = f"{self.id}: {error.where}"
            raise InputError(where, error.got, error.want, error.hint) from error

    def controlled(self) -> Claim:
        """The claim under its control, by which its verdict must turn."""
        changes = dict(self.control)
        stated = changes.pop("stated", None)
        scalar = {k: changes.pop(k) for k in ("relation", "band") if k in changes}
        return replace(
            self,
            params={**self.params, **changes},
            stated=self.stated if stated is None else _tuple(stated),
            **scalar,
        )


def case(asked: Quantity | ExactQuantity, params: Mapping[str, Any]) -> Case:
    """The case that parameters describe, their names and kinds being checked already.

    Raises:
        InputError: for a value that cannot be used.
    """
    for name in asked.params:
        if name not in (*OPTIONAL, *params):
            raise InputError(name, None, f"{PARAMS[name].want}, for {asked.name}")
    if isinstance(asked, ExactQuantity):
        return Case(inputs=dict(params))
    given = dict(params)
    draws = {name: given.pop(name) for name in (*DESIGN, *ROW) if name in given}
    dk, keys = draws.pop("dk", None), draws.pop("keys", None)
    if dk is None:
        raise InputError("dk", None, "d_k, an integer or a list for a sweep")
    if asked.sampling != "dot" and keys is None:
        raise InputError("keys", None, "m, the number of keys in a row")
    inputs = resolve(Options(**draws))  # type: ignore[typeddict-item]
    designs = inputs.designs(dk, keys)
    if len(designs) > 1 and not asked.sweep:
        raise InputError(
            "dk", dk, f"one design for {asked.name}", "use `each` for a list of claims"
        )
    rule = given.pop("scale", None)
    return Case(
        designs=designs,
        scale=None if rule is None else inputs.scalings(rule)[0],
        d_model=inputs.dmodel,
        statistic=given.pop("statistic", None),
        level=given.pop("level", None),
        inputs=given,
    )


def _tuple(value: Any) -> tuple[float, ...]:
    return tuple(map(float, value)) if isinstance(value, list) else (float(value),)
