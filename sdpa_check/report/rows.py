"""One check as the words and numbers that a person reads; no other module formats numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sdpa_check.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sdpa_check.records import Estimate, Prediction, Relation, Row, Run

ABSENT = "—"
"""What stands in a cell that has no number."""

_MOST = 12  # significant digits; a smaller error is one of rounding, and more digits binary noise

_VERSUS = "versus"  # the parameter that holds those of the second term of a difference
_DEFAULT = "default"

_DERIVED = ("multiplier",)  # follows from scale and dk, which stand beside it

_SIGNS = {"equal": "", "at least": "≥ ", "at most": "≤ "}

# Characters that steer a terminal, reorder text or have no place in XML; a record may come from
# anywhere, and its text must not do anything but be read.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def plain(text: str) -> str:
    """`text` on one line, with control characters written as escapes."""
    return _UNPRINTABLE.sub(
        lambda match: match[0].encode("unicode_escape").decode("ascii"), " ".join(text.split())
    )


def number(x: float | None, digits: int = 6) -> str:
    """A number whose error is not known, to `digits` significant digits; integers in full."""
    if x is None or math.isnan(x):
        return ABSENT
    if isinstance(x, int):
        return str(x)
    if math.isinf(x):
        return "∞" if x > 0 else "-∞"
    mantissa, _, exponent = f"{x:z.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def rounded(value: float, se: float | None) -> str:
    """A value rounded to its standard error, and the error, to two significant digits of the error.

    ``63.982 ± 0.031``, and ``(1.421 ± 0.031)e-22`` where plain notation would be long. Without a
    standard error the value has six significant digits.
    """
    if se is None or math.isnan(se):
        return number(value)
    if not _can_round(value, se):
        return f"{number(value)} ± {number(se)}"
    if _digits(value, se) > _MOST:
        return f"{number(value, _MOST)} ± {number(se, 2)}"
    (shown, error), exponent = _aligned([value, se], _last_place(se))
    if exponent and _lost(shown, value):
        return f"{number(value, 2)} ± {number(se, 2)}"
    return f"({shown} ± {error})e{exponent}" if exponent else f"{shown} ± {error}"


def _lost(shown: str, value: float) -> bool:
    """Whether nothing is left of a number that is not 0; over a power of ten not even its size."""
    return value != 0 and not float(shown)


def concise(estimate: Estimate | None) -> str:
    """A measured number with its error in units of the last digit: ``63.982(31)``.

    ``1.421(31)e-22`` where plain notation would be long. Where there is no such error the text is
    that of the column ``measured``.
    """
    if estimate is None or estimate.se is None or not _can_round(estimate.value, estimate.se):
        return _measured(estimate)
    if _digits(estimate.value, estimate.se) > _MOST:
        return _measured(estimate)
    place = _last_place(estimate.se)
    (shown, error), exponent = _aligned([estimate.value, estimate.se], place)
    if exponent and _lost(shown, estimate.value):
        return _measured(estimate)
    digits = error.replace(".", "").lstrip("0")
    return f"{shown}({digits})e{exponent}" if exponent else f"{shown}({digits})"


def _can_round(value: float, se: float) -> bool:
    return math.isfinite(value) and math.isfinite(se) and se > 0


def interval(value: float, lo: float, hi: float) -> str:
    """A value with an interval that need not be symmetric, to two digits of its half-width.

    ``0.674 [0.661, 0.689]``
    """
    half = (hi - lo) / 2
    if not _can_round(value, half) or _digits(max(abs(lo), abs(hi)), half) > _MOST:
        return f"{number(value)} [{number(lo)}, {number(hi)}]"
    (shown, low, high), exponent = _aligned([value, lo, hi], _last_place(half))
    return f"({shown} [{low}, {high}])e{exponent}" if exponent else f"{shown} [{low}, {high}]"


def _last_place(se: float) -> int:
    """The power of ten of the second significant digit of `se`, after rounding: 0.0996 is 0.10."""
    return Decimal(f"{se:.1e}").adjusted() - 1


def _digits(value: float, se: float) -> int:
    """How many significant digits `value` has when it is rounded to `se`."""
    return Decimal(value).adjusted() - _last_place(se) + 1 if value else 1


def _aligned(numbers: Sequence[float], place: int) -> tuple[list[str], int]:
    """Numbers rounded at the power of ten `place`, over a power of ten that they share or 0."""
    unit = Decimal(1).scaleb(place)
    shown = [Decimal(x).quantize(unit) for x in numbers]
    top = max(x.adjusted() for x in shown)
    # Plain notation up to where zeros would have to stand for digits that are not known.
    exponent = top if top < -4 or (top > 5 and place > 0) else 0
    decimals = max(0, exponent - place)
    return [f"{x.scaleb(-exponent):z.{decimals}f}" for x in shown], exponent


def count(n: int) -> str:
    """A count with its thousands apart: ``1,048,576``."""
    return f"{n:,}"


def param(value: object) -> str:
    """The value of a parameter: ``64``, ``sqrt``, ``yes``, ``8,64,512``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value, _MOST)
    if isinstance(value, list | tuple):
        items = [f"[{param(x)}]" if isinstance(x, list | tuple) else param(x) for x in value]
        if len(items) > 8:
            items = [*items[:6], "…", f"{items[-1]} ({len(items)} values)"]
        return ",".join(items)
    return plain(str(value))


def params(mapping: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as text, nested ones by their dotted name; those that are not set are left out.

    Of a difference those that differ between its terms have both values: ``scale=none − sqrt``.
    """
    own, versus = dict(mapping), mapping.get(_VERSUS)
    if isinstance(versus, Mapping):
        del own[_VERSUS]
    found = dict(_params(own, ""))
    if isinstance(versus, Mapping):
        for name, text in _params(versus, ""):
            found[name] = f"{found.get(name, _DEFAULT)} − {text}"
    return found


def difference(mapping: Mapping[str, Any]) -> str:
    """The parameters by which the terms of a difference differ; empty where it is none."""
    versus, every = mapping.get(_VERSUS), params(mapping)
    if not isinstance(versus, Mapping):
        return ""
    return assignments({name: every[name] for name, _ in _params(versus, "")})


def _params(mapping: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in mapping.items():
        name = prefix + plain(str(key))
        if isinstance(value, Mapping):
            yield from _params(value, name + ".")
        elif value is not None and value not in ("", [], ()):
            yield name, param(value)


def assignments(pairs: Mapping[str, str]) -> str:
    """``dk=64 scale=sqrt``."""
    return " ".join(f"{key}={value}" for key, value in pairs.items())


def common_params(rows: Sequence[Row]) -> dict[str, str]:
    """The parameters that all rows have and that are equal in all of them."""
    every = [params(row.params) for row in rows]
    first = every[0] if every else {}
    return {
        key: text for key, text in first.items() if all(each.get(key) == text for each in every)
    }


def varying_params(rows: Sequence[Row]) -> tuple[str, ...]:
    """The parameters that tell rows apart: they differ, or only some rows have them.

    Those that follow from others are left out.
    """
    every = dict.fromkeys(key for row in rows for key in params(row.params))
    common = common_params(rows)
    return tuple(key for key in every if key not in common and key not in _DERIVED)


def as_expected(row: Row) -> bool:
    """Whether a row counts neither against its run nor as open; one that was not run never does."""
    return row.verdict in (row.expected, Outcome.NOT_RUN)


def cells(row: Row, shown: Collection[str] | None = None) -> dict[str, str]:
    """The columns that a person reads, by name.

    ``check``, ``measured``, ``predicted``, ``z`` (the deviation in standard errors), ``tolerance``,
    ``verdict`` and ``reason``.

    Args:
        row: the check.
        shown: the parameters named beside the quantity; None names all of them.
    """
    return {
        "check": _check(row, shown),
        "measured": _measured(row.estimate),
        "predicted": _predicted(row.prediction, row.estimate),
        "z": _deviation(row.prediction, row.estimate),
        "tolerance": ABSENT if row.tolerance is None else f"±{number(row.tolerance, 3)}",
        "verdict": _verdict(row),
        "reason": _reason(row),
    }


def run_cells(run: Run, some: Sequence[Row] | None = None) -> list[dict[str, str]]:
    """The cells of all rows or of `some`, with the parameters that differ named in ``check``.

    Claims go by their id, and so does everything where two rows would read alike.
    """
    shown = varying_params(run.rows)
    chosen = run.rows if some is None else some
    table = [cells(row, shown) for row in chosen]
    if by_id(run):
        for row, each in zip(chosen, table, strict=True):
            each["check"] = f"{plain(row.id)}: {each['check']}"
    return table


def grouped_cells(run: Run, some: Sequence[Row]) -> list[dict[str, str]]:
    """`run_cells` with one more cell, ``group``: parameters that neighbouring rows share.

    They are then no longer named in ``check``. The group is empty where it would not spare lines.
    """
    table = run_cells(run, some)
    lifted = () if by_id(run) else _slow_params(some)
    own = set(varying_params(run.rows)).difference(lifted)
    for row, each in zip(some, table, strict=True):
        every = params(row.params)
        each["group"] = assignments({key: every[key] for key in lifted})
        if lifted:
            each["check"] = _check(row, own)
    return table


def _slow_params(some: Sequence[Row]) -> tuple[str, ...]:
    """Parameters that stay equal over neighbouring rows: on average over two of them or more."""
    every = [params(row.params) for row in some]

    def groups(keys: Collection[str]) -> int:
        return sum(1 for _ in groupby([each[key] for key in keys] for each in every))

    # A parameter that only some rows have, as the level of a quantile, belongs to the quantity.
    design = [key for key in varying_params(some) if all(key in each for each in every)]
    lifted: list[str] = []
    for key in sorted(design, key=lambda key: groups([key])):
        if 2 * groups([*lifted, key]) <= len(every):
            lifted.append(key)
    return tuple(key for key in design if key in lifted)


def judges_claims(run: Run) -> bool:
    """Whether a run judges claims, and so is shown claim by claim."""
    return any(row.claim is not None for row in run.rows)


def accounts_for_changes(run: Run) -> bool:
    """Whether a run is about pipelines, and so is shown as the table of a ledger."""
    return (
        run.command == "ledger"
        and bool(run.rows)
        and all(row.params.get("pipeline") for row in run.rows)
    )


def by_id(run: Run) -> bool:
    """Whether checks are named by their id beside the quantity."""
    shown = varying_params(run.rows)
    alike = len({_check(row, shown) for row in run.rows}) < len(run.rows)
    return alike or run.command == "verify"


def _check(row: Row, shown: Collection[str] | None) -> str:
    every = params(row.params)
    some = {key: text for key, text in every.items() if shown is None or key in shown}
    return f"{plain(row.quantity)} {assignments(some)}".rstrip()


def claimed(values: Sequence[float], relation: Relation = "equal") -> str:
    """What an author states: ``≥ 0.98``; ``0.307, 0.506, 0.186``."""
    return _SIGNS[relation] + ", ".join(number(value, _MOST) for value in values)


def _measured(estimate: Estimate | None) -> str:
    if estimate is None:
        return ABSENT
    if estimate.se is None and estimate.lo is not None and estimate.hi is not None:
        return interval(estimate.value, estimate.lo, estimate.hi)
    if estimate.se is None and estimate.withheld:
        return "n/a" if math.isnan(estimate.value) else f"{number(estimate.value)} ± n/a"
    if not estimate.blocks:  # computed, not sampled
        return number(estimate.value)
    return rounded(estimate.value, estimate.se)


def _predicted(prediction: Prediction, estimate: Estimate | None) -> str:
    if prediction.kind == "infinite":
        return "∞"
    if prediction.kind == "stated" and prediction.value is None:  # null in a record that was read
        return "∞ (stated)"
    if prediction.value is None or prediction.kind == "none":
        return ABSENT
    digits, se = 6, estimate.se if estimate else None
    if se and math.isfinite(se):
        # As many digits as the measurement has, so that a reader can compare the two.
        digits = min(_MOST, max(digits, _digits(prediction.value, se)))
    sign = _SIGNS[prediction.relation] or ("≈ " if prediction.kind == "limit" else "")
    return f"{sign}{number(prediction.value, digits)} ({prediction.kind})"


def _deviation(prediction: Prediction, estimate: Estimate | None) -> str:
    if estimate is None or not estimate.se or prediction.value is None:
        return ABSENT
    z = (estimate.value - prediction.value) / estimate.se
    if abs(z) < 1e5:
        return f"{z:+z.{1 if abs(z) < 100 else 0}f}"
    return f"{'+' if z > 0 else ''}{number(z, 2)}"


def _verdict(row: Row) -> str:
    """The verdict, and the expected one where a reader would be misled without it."""
    if row.verdict is row.expected:
        judged = row.verdict in (Outcome.REFUTED, Outcome.INCONCLUSIVE)
        return f"{row.verdict} (expected)" if judged else str(row.verdict)
    wrong = not as_expected(row) and row.verdict is not Outcome.INCONCLUSIVE
    mark = " ✗" if wrong else ""
    other = "" if row.expected is Outcome.CONFIRMED else f" (expected {row.expected})"
    return f"{row.verdict}{mark}{other}"


def _reason(row: Row) -> str:
    reason, without = plain(row.reason), withheld(row)
    if not without or plain(row.estimate.withheld if row.estimate else "") in reason:
        return reason
    return f"{reason}; {without}" if reason else without


def withheld(row: Row) -> str:
    """Why a row has no error bar: ``error bar not available (…)``; empty where it has one."""
    text = plain(row.estimate.withheld) if row.estimate else ""
    return f"error bar {text}" if text else ""
