"""One claim: what a document says, and how it is put to the test."""

from __future__ import annotations

import re
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
    from sdpa_check.records import Design, Relation


OPTIONAL = (
    *("scale", "statistic", "level", "temperature"),
    *("warmup", "versus_scale", "versus_lr", "versus_warmup"),
)
"""Parameters of quantities that a claim may leave out."""

_SYNONYMS = {"distribution": "dist", "d_model": "dmodel"}
"""What theory calls parameters of a claim."""


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
        own = self._case(asked, "params", self.params)
        versus = None
        if self.versus is not None:
            versus = self._case(asked, "versus", {**self.params, **self.versus})
        return Check(
            id=self.id,
            quantity=self.quantity,
            case=own,
            versus=versus,
            expected=self.expected,
            stated=self.stated,
            relation=self.relation,
            band=self.band,
            tolerance=self.tolerance,
        )

    def _case(self, asked: Quantity | ExactQuantity, table: str, params: Mapping[str, Any]) -> Case:
        try:
            return case(asked, params)
        except InputError as error:
            raise self.named(error, table) from error

    def named(self, error: InputError, table: str = "params") -> InputError:
        """An error about a value of the claim, with the claim and the field where it stands.

        What a command calls ``--sigma-k`` is ``params.sigma_k`` here.

        Args:
            error: what is wrong.
            table: the field that holds the parameters.
        """
        text, colon, rest = error.where.removeprefix("--").partition(":")
        name = _SYNONYMS.get(text, text.replace("-", "_"))
        if name in PARAMS or name in DESIGN or name in ROW:
            name = f"{table}.{name}"
        hint = re.sub(r"--([a-z]+) (\d)", r"\1 = \2", error.hint).replace("--", "")
        return InputError(f"{self.id}: {name}{colon}{rest}", error.got, error.want, hint)

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
    if "pipeline" in given:
        _check_pipeline(given["pipeline"], designs, inputs.dmodel)
    return Case(
        designs=designs,
        scale=None if rule is None else inputs.scalings(rule)[0],
        d_model=inputs.dmodel,
        statistic=given.pop("statistic", None),
        level=given.pop("level", None),
        inputs=given,
    )


def _check_pipeline(text: str, designs: tuple[Design, ...], d_model: int | None) -> None:
    """See that every step exists and can act, and that a function of a user can be imported."""
    from sdpa_check.logits import pipeline
    from sdpa_check.logits.transforms import Context

    steps = pipeline.parse(text)
    for design in designs:
        steps.check(Context(dk=design.dk, keys=design.keys or 2, d_model=d_model))


def _tuple(value: Any) -> tuple[float, ...]:
    return tuple(map(float, value)) if isinstance(value, list) else (float(value),)
