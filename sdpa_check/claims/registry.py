"""TOML files → claims: reading, checking and selecting.

A file holds ``[[claim]]`` blocks; `FIELDS` says what may stand in one. With ``each`` a block stands
for a list of claims, one for every entry: ``each = { dk = [8, 64] }`` and ``stated = [8, 64]`` make
``id[dk=8]`` and ``id[dk=64]``.
"""

from __future__ import annotations

import math
import tomllib
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any

from sdpa_check.claims.claim import Claim
from sdpa_check.errors import InputError, unknown_name
from sdpa_check.quantities import ExactQuantity, quantity
from sdpa_check.quantities.params import DESIGN, PARAMS, ROW, Param
from sdpa_check.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sdpa_check.quantities import Quantity

_TEXTS = ("id", "source", "section", "statement", "quantity", "right", "note", "reason")
_TABLES = ("params", "versus", "each", "control")
FIELDS = {
    **dict.fromkeys(_TEXTS, "a text"),
    **dict.fromkeys(_TABLES, "a table"),
    "stated": "a number, a list of numbers, or 'inf'",
    "relation": "'equal', 'at least' or 'at most'",
    "decimals": "an integer from 0 to 15",
    "band": "a number ≥ 0",
    "tolerance": "a number between 0 and 1",
    "expected": "'confirmed', 'refuted', 'inconclusive', 'undefined' or 'not run'",
    "slow": "true or false",
}
"""What may stand in a ``[[claim]]`` block, and of what kind it is."""

_REQUIRED = ("id", "statement")
_CONTROLS = ("stated", "relation", "band")
_DOCUMENTARY = ("id", "source", "section", "statement", "right", "reason")
_BANDS = ("decimals", "band", "tolerance")


def builtin() -> list[Claim]:
    """The claims of the three documents that the package ships, in the order of its files."""
    folder = resources.files("sdpa_check.claims")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    found: list[Claim] = []
    for name in names:
        found += parse(folder.joinpath(name).read_text(encoding="utf-8"), name)
    with _in_file("built-in claims"):
        _refuse_duplicates(found)
    return found


def load(path: Path) -> list[Claim]:
    """The claims of a file.

    Raises:
        InputError: for a file that cannot be read or a claim that cannot be used; the message names
            the file, the claim, the field, what was got and what was wanted.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors put a mark before the first line
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError("FILE", str(path), f"a readable TOML file ({reason})") from error
    claims = parse(text, str(path))
    with _in_file(str(path)):
        for claim in claims:
            _try_out(claim)
            if claim.control:
                with _in_control():
                    _try_out(claim.controlled())
    return claims


def parse(text: str, where: str) -> list[Claim]:
    """The claims of a TOML text; `where` is the file that errors name."""
    with _in_file(where):
        return _parsed(text)


@contextmanager
def _in_file(file: str) -> Iterator[None]:
    """Errors name the file, and show values as they stand there."""
    try:
        yield
    except InputError as error:
        where = f"{file}: {error.where}" if error.where else file
        text = _toml(error.got)
        got = error.got if text == repr(error.got) else _Verbatim(text)
        raise InputError(where, got, error.want, error.hint) from error


@contextmanager
def _in_control() -> Iterator[None]:
    """Errors about a controlled claim name the control: the claim without it was fine."""
    try:
        yield
    except InputError as error:
        place = error.where.replace(": params.", ": control.").replace(
            ": stated", ": control.stated"
        )
        raise InputError(place, error.got, error.want, error.hint) from error


class _Verbatim(str):
    """A text that errors show without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _toml(value: object) -> str:
    """A value as it stands in a file; ``missing`` where it does not."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{name} = {_toml(each)}" for name, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{ }"
    return repr(value) if isinstance(value, str | int | float) else str(value)


def _try_out(claim: Claim) -> None:
    """Find values that a quantity or its theory refuses, before anything is sampled."""
    if claim.quantity is None:
        return
    check, asked, count = claim.check(), quantity(claim.quantity), 1
    try:
        if isinstance(asked, ExactQuantity):
            count = len(asked.evaluate(check.case))
        else:
            for case in check.cases:
                asked.predict(case)
    except InputError as error:
        raise claim.named(error) from error
    if len(claim.stated) != count:
        wanted = "one number" if count == 1 else f"{count} numbers"
        raise InputError(f"{claim.id}: stated", list(claim.stated), f"{wanted} for {asked.name}")


def _parsed(text: str) -> list[Claim]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError("", str(error), "valid TOML") from error
    blocks = document.pop("claim", None)
    document.pop("document", None)
    if document:
        raise unknown_name("top level", next(iter(document)), ("claim", "document"))
    if isinstance(blocks, dict):
        want = "[[claim]], in two pairs of brackets, above each claim"
        raise InputError("", _Verbatim("[claim]"), want)
    if not isinstance(blocks, list) or not blocks:
        raise InputError("", blocks, "at least one [[claim]] block")
    claims = [
        claim
        for number, block in enumerate(blocks, start=1)
        for claim in _claims(block, f"claim {number}")
    ]
    _refuse_duplicates(claims)
    return claims


def _claims(block: Any, where: str) -> list[Claim]:
    """The claims that one block stands for."""
    if not isinstance(block, dict):
        raise InputError(where, block, "a [[claim]] table")
    if _is_kind("id", block.get("id")):
        where = block["id"]
    _check_fields(block, where)
    if "quantity" not in block:
        return [_documentary(block, where)]
    asked = quantity(block["quantity"], f"{where}: quantity")
    for table in ("params", "versus", "each", "control"):
        _check_params(asked, block.get(table, {}), f"{where}: {table}", table)
    return [_claim(variant, where) for variant in _variants(block, where)]


def _check_fields(block: dict[str, Any], where: str) -> None:
    for name, value in block.items():
        if name not in FIELDS:
            raise unknown_name(f"{where}: field", name, FIELDS)
        if not _is_kind(name, value):
            raise InputError(f"{where}: {name}", value, FIELDS[name])
    for name in _REQUIRED:
        if name not in block:
            raise InputError(where, sorted(block), f"the field {name!r}")
    if "quantity" in block and "stated" not in block:
        raise InputError(where, sorted(block), "the field 'stated' beside 'quantity'")
    if ("quantity" in block) == ("reason" in block):
        want = "either the field 'quantity', or 'reason' why there is none"
        raise InputError(where, sorted(block), want)
    if block.get("control") == {}:
        raise InputError(f"{where}: control", {}, "a change, or no control")
    _check_bands(block, where)


def _check_bands(block: dict[str, Any], where: str) -> None:
    """One band at most, and none that would be read by nobody."""
    given = [name for name in _BANDS if name in block]
    if len(given) > 1:
        raise InputError(where, given, "only one of them")
    if given and block.get("relation", "equal") != "equal":
        want = "no band beside a one-sided relation"
        raise InputError(f"{where}: {given[0]}", block[given[0]], want)


def _is_kind(name: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in _TEXTS:
        return isinstance(value, str) and bool(value.strip())
    if name in _TABLES:
        return isinstance(value, dict)
    if name == "stated":
        many = isinstance(value, list) and value
        return all(map(_is_stated, value)) if many else _is_stated(value)
    return {
        "relation": value in ("equal", "at least", "at most"),
        "decimals": isinstance(value, int) and number and 0 <= value <= 15,
        "band": number and 0 <= value < math.inf,
        "tolerance": number and 0 < value < 1,
        "expected": value in tuple(Outcome),
        "slow": isinstance(value, bool),
    }[name]


def _is_stated(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value == "inf" or (number and not math.isnan(value))


def allowed(asked: Quantity | ExactQuantity) -> dict[str, Param]:
    """The parameters that a quantity takes, by name."""
    own = {name: PARAMS[name] for name in asked.params}
    if isinstance(asked, ExactQuantity):
        return own
    if asked.trained:  # the layer and its task draw by laws of their own
        return {"dk": DESIGN["dk"], "dmodel": DESIGN["dmodel"], **ROW, **own}
    return {**DESIGN, **(ROW if asked.sampling != "dot" else {}), **own}


def _check_params(
    asked: Quantity | ExactQuantity, given: dict[str, Any], where: str, table: str
) -> None:
    known = allowed(asked)
    for name, value in given.items():
        if table == "control" and name in _CONTROLS:
            if not _is_kind(name, value):
                raise InputError(f"{where}.{name}", value, FIELDS[name])
            continue
        if name not in known:
            names = (*known, *(_CONTROLS if table == "control" else ()))
            raise unknown_name(f"{where} of {asked.name}", name, names)
        if table == "each":
            if not isinstance(value, list) or not value:
                raise InputError(f"{where}.{name}", value, "a list, one entry for each claim")
            for entry in value:
                known[name].check(f"{where}.{name}", entry)
        else:
            known[name].check(f"{where}.{name}", value)


def _variants(block: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """The blocks, without ``each``, that a block stands for."""
    each = block.get("each")
    if not each:
        return [block]
    counts = {len(entries) for entries in each.values()}
    if len(counts) > 1:
        raise InputError(f"{where}: each", each, "lists of one length")
    (count,) = counts
    stated = block["stated"]
    if isinstance(stated, list) and len(stated) != count:
        raise InputError(f"{where}: stated", stated, f"one number, or {count} as in `each`")
    rest = {name: value for name, value in block.items() if name != "each"}
    variants = []
    for i in range(count):
        own = {name: entries[i] for name, entries in each.items()}
        label = ",".join(f"{name}={value}" for name, value in own.items())
        variants.append(
            rest
            | {
                "id": f"{block['id']}[{label}]",
                "params": {**block.get("params", {}), **own},
                "stated": stated[i] if isinstance(stated, list) else stated,
            }
        )
    return variants


def _claim(block: dict[str, Any], where: str) -> Claim:
    stated = block["stated"]
    band = block.get("band")
    if "decimals" in block:
        band = 10.0 ** -block["decimals"]
    claim = Claim(
        id=block["id"],
        source=block.get("source", ""),
        section=block.get("section", ""),
        statement=block["statement"],
        quantity=block["quantity"],
        params=block.get("params", {}),
        versus=block.get("versus"),
        stated=tuple(float(x) for x in (stated if isinstance(stated, list) else [stated])),
        relation=block.get("relation", "equal"),
        band=band,
        tolerance=block.get("tolerance"),
        expected=Outcome(block.get("expected", "confirmed")),
        right=block.get("right", ""),
        note=block.get("note", ""),
        control=block.get("control", {}),
        slow=block.get("slow", False),
    )
    asked = quantity(block["quantity"])
    if not isinstance(asked, ExactQuantity) and len(claim.stated) != 1:
        raise InputError(f"{where}: stated", stated, "one number, or `each` for several claims")
    for name in ("versus", "tolerance"):
        if isinstance(asked, ExactQuantity) and name in block:
            raise InputError(f"{where}: {name}", block[name], f"no {name} for {asked.name}")
    _check_values(claim)
    return claim


def _check_values(claim: Claim) -> None:
    """Values that only together cannot be used are found before anything is computed."""
    check = claim.check()
    with _in_control():
        controlled = claim.controlled().check()
    if claim.control and controlled == check:
        want = "a change: under this one the claim is the same"
        raise InputError(f"{claim.id}: control", dict(claim.control), want)


def _documentary(block: dict[str, Any], where: str) -> Claim:
    for name, value in block.items():
        if name not in _DOCUMENTARY:
            raise InputError(f"{where}: {name}", value, "a quantity beside it")
    return Claim(
        id=block["id"],
        source=block.get("source", ""),
        section=block.get("section", ""),
        statement=block["statement"],
        expected=Outcome.NOT_RUN,
        right=block.get("right", ""),
        note=block["reason"],
    )


def _refuse_duplicates(claims: Sequence[Claim]) -> None:
    seen: set[str] = set()
    for claim in claims:
        if claim.id in seen:
            raise InputError("", claim.id, "an id that no other claim has")
        seen.add(claim.id)
