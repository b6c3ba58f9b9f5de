"""Claims in words: their order, their groups, and the facts that `claims show` lists."""

from __future__ import annotations

import dataclasses
import math
import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sdpa_check.quantities import ExactQuantity, quantity
from sdpa_check.report import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sdpa_check.claims.claim import Claim
    from sdpa_check.quantities import Quantity

TOLERANCE = 0.01
"""The tolerance that commands have unless they are told another."""


def base(claim: Claim) -> str:
    """The id without what ``each`` added to it: ``A-var`` of ``A-var[dk=8]``."""
    return claim.id.partition("[")[0]


def label(claim: Claim) -> str:
    """What ``each`` added to the id: ``dk=8`` of ``A-var[dk=8]``."""
    return claim.id.partition("[")[2].removesuffix("]")


def groups(claims: Iterable[Claim]) -> list[list[Claim]]:
    """Neighbours that differ in what ``each`` lists, and in nothing that is said about them."""

    def alike(claim: Claim) -> tuple[object, ...]:
        return base(claim), claim.statement, claim.expected, claim.right, claim.note

    return [list(some) for _, some in groupby(claims, alike)]


def name(group: Sequence[Claim]) -> str:
    """The id of a group: that of its only claim, or what those of its claims begin with."""
    return group[0].id if len(group) == 1 else base(group[0])


def in_order(claims: Sequence[Claim]) -> list[Claim]:
    """The claims in the order of their documents.

    Sources go by their names. Sections without a number come first, as they are listed, then those
    with one by their numbers: 2.7 before 10.1.
    """
    first: dict[tuple[str, str], int] = {}
    for index, claim in enumerate(claims):
        first.setdefault((claim.source, claim.section), index)

    def place(claim: Claim) -> tuple[object, ...]:
        found = re.match(r"\d+(?:\.\d+)*", claim.section)
        numbers = [int(part) for part in found[0].split(".")] if found else []
        return claim.source, numbers, first[claim.source, claim.section]

    return sorted(claims, key=place)


def place(claim: Claim) -> str:
    """Where the claim stands: ``B, 8.2``."""
    return ", ".join(filter(None, (claim.source, claim.section)))


def stated(group: Sequence[Claim]) -> str:
    """What the document says the number is: ``≥ 0.98``; ``dk=8: 8, dk=64: 64``."""
    texts = [rows.claimed(claim.stated, claim.relation) for claim in group]
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(f"{label(each)}: {text}" for each, text in zip(group, texts, strict=True))


def measured(claim: Claim) -> str:
    """Quantity and parameters: ``dot.variance dk=64``."""
    return f"{claim.quantity or ''} {rows.assignments(params(claim))}".strip()


def params(claim: Claim) -> dict[str, str]:
    """The parameters as text; where the claim is about a difference, with both values."""
    versus = {"versus": claim.versus} if claim.versus else {}
    return rows.params({**claim.params, **versus})


def shared_params(group: Sequence[Claim]) -> dict[str, str]:
    """The parameters that all claims of a group have alike."""
    every = [params(claim) for claim in group]
    return {k: v for k, v in every[0].items() if all(each.get(k) == v for each in every)}


def to_dict(claim: Claim) -> dict[str, Any]:
    """The claim as JSON values, by the names that its fields have in a file; ∞ is ``inf``."""
    fields = {each.name: getattr(claim, each.name) for each in dataclasses.fields(claim)}
    fields["stated"] = ["inf" if math.isinf(x) else x for x in claim.stated]
    fields["expected"] = str(claim.expected)
    return fields


def facts(claim: Claim) -> dict[str, str]:
    """What there is to know about a claim, by label; what is empty is left out."""
    control = rows.assignments(rows.params(claim.control))
    found = {"source": place(claim), **(_numbers(claim) if claim.quantity else {})}
    found |= {
        "expected": str(claim.expected),
        "right": claim.right,
        "control": f"the verdict turns under {control}" if control else "",
        "note": claim.note,
        "slow": "only with --full" if claim.slow else "",
    }
    return {key: text for key, text in found.items() if text}


def _numbers(claim: Claim) -> dict[str, str]:
    asked = quantity(claim.quantity or "")
    unit = f", in {asked.unit}" if asked.unit != "1" else ""
    return {
        "quantity": f"{asked.name}: {asked.formula}{unit}",
        "params": rows.assignments(params(claim)),
        "stated": rows.claimed(claim.stated, claim.relation) + _band(claim, asked),
        **_known(claim, asked),
    }


def _band(claim: Claim, asked: Quantity | ExactQuantity) -> str:
    """What still counts as equal."""
    if claim.relation != "equal":
        return ""
    check = claim.check()
    if isinstance(asked, ExactQuantity):
        half = asked.bound if claim.band is None else claim.band
    else:
        half = check.band_for(asked, check.prediction(asked), TOLERANCE)
    return f" ± {rows.number(half, 3)}" if half else ", exactly"


def _known(claim: Claim, asked: Quantity | ExactQuantity) -> dict[str, str]:
    """What theory says, or the numbers themselves where nothing is sampled."""
    check = claim.check()
    if isinstance(asked, ExactQuantity):
        return {"computed": rows.claimed(asked.evaluate(check.case))}
    found = [asked.predict(case) for case in check.cases]
    values = [each.value for each in found]
    kinds = {each.kind for each in found}
    sources = "; ".join(dict.fromkeys(each.source for each in found))
    if "infinite" in kinds:
        return {"theory": "∞", "from": sources}
    if None in values:
        return {"theory": "none", "from": sources}
    sign = "≈ " if "limit" in kinds else ""
    numbers = [rows.number(value) for value in values]
    both = f" = {' − '.join(numbers)}" if len(numbers) > 1 else ""
    total = values[0] if len(values) == 1 else (values[0] or 0.0) - (values[1] or 0.0)
    return {"theory": f"{sign}{rows.number(total)}{both}", "from": sources}
