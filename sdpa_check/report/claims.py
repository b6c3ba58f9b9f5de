"""A run that judges the claims of a document, in the parts that every rendering of it shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sdpa_check.records import MOVED, THEORY, Outcome
from sdpa_check.report import rows, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sdpa_check.records import Row, Run

COLUMNS = ("id", "claim", "stated", "measured", "verdict")

LEGEND = '✓ the verdict that the claim\'s record expects: where a document errs, "refuted"'
"""What the sign behind a verdict that is not "confirmed" means."""

NOT_MEASURED = "not measured"
"""The label of the documentary claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The rows of a run by what they are about; see `parts`."""

    claims: tuple[Row, ...]
    documentary: tuple[Row, ...]
    theory: tuple[Row, ...]
    moved: tuple[Row, ...]

    @property
    def named(self) -> dict[str, tuple[Row, ...]]:
        """What is counted, under the word for one of it."""
        return {
            "claim": self.claims,
            "exact prediction": self.theory,
            "comparison with the baseline": self.moved,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Why some claims are not simply confirmed; `ids` share all the rest.

    Attributes:
        ids: as text, ``B-3.3[keys=8], [keys=64]``.
        verdict: in words, with the expected one where they differ.
        statement: what the document says; for a row of no claim, what was measured.
        details: the sentences that explain it, by their label, empty for the first.
        expected: whether the verdict is the expected one.
    """

    ids: str
    verdict: str
    statement: str
    details: tuple[tuple[str, str], ...]
    expected: bool


def parts(run: Run) -> Parts:
    """The claims that are measured, those that are documentary, and what stands beside them."""
    theory = tuple(row for row in run.rows if row.id.startswith(THEORY))
    moved = tuple(row for row in run.rows if row.id.startswith(MOVED))
    others = [row for row in run.rows if not row.id.startswith((THEORY, MOVED))]
    return Parts(
        claims=tuple(row for row in others if not _is_documentary(row)),
        documentary=tuple(row for row in others if _is_documentary(row)),
        theory=theory,
        moved=moved,
    )


def _is_documentary(row: Row) -> bool:
    return row.verdict is row.expected is Outcome.NOT_RUN


def cells(row: Row) -> dict[str, str]:
    """The columns that a person reads, by name, with one more: ``difference``.

    The claim is what the document says, or what was measured where the row judges no document.
    """
    every = rows.cells(row)
    return {
        "id": rows.plain(row.id),
        "claim": rows.plain(row.claim.statement) if row.claim else every["check"],
        "difference": rows.difference(row.params),
        "stated": every["predicted"].removesuffix(" (stated)") + _of_list(row),
        "measured": every["measured"],
        "verdict": _verdict(row),
    }


def _of_list(row: Row) -> str:
    """`` (of 4)`` where the document states four numbers, of which the row shows the worst."""
    listed = row.params.get("stated")
    return f" (of {len(listed)})" if isinstance(listed, list) else ""


def _verdict(row: Row) -> str:
    if row.verdict is row.expected:
        return str(row.verdict) + (" ✓" if row.verdict is not Outcome.CONFIRMED else "")
    judged = row.verdict not in (Outcome.INCONCLUSIVE, Outcome.NOT_RUN)
    return f"{row.verdict}{' ✗' if judged else ''}"


def title(run: Run) -> str:
    """The command and its options; what claims have in common by chance is none of them."""
    return summary.title(replace(run, rows=()))


def outcome_line(run: Run) -> str:
    """``NOT as expected: 1 claim ✗; as expected: 9 confirmed, 1 refuted, 2 not measured``."""
    found = parts(run)
    wrong = [
        text
        for name, some in found.named.items()
        for text in _counted(name, [row for row in some if not rows.as_expected(row)])
    ]
    fine = Counter(row.verdict for row in found.claims if rows.as_expected(row))
    tally = [f"{fine[each]} {each}" for each in Outcome if fine[each]]
    if found.documentary:
        tally.append(f"{len(found.documentary)} not measured")
    if not wrong:
        return f"{run.outcome}: {', '.join(tally)}"
    rest = f"; as expected: {', '.join(tally)}" if tally else ""
    return f"{run.outcome}: {', '.join(wrong)}{rest}"


def _counted(name: str, off: Sequence[Row]) -> Iterable[str]:
    """``2 claims ✗``, ``1 claim inconclusive``."""
    wrong = sum(row.verdict is not Outcome.INCONCLUSIVE for row in off)
    for count, sign in ((wrong, "✗"), (len(off) - wrong, str(Outcome.INCONCLUSIVE))):
        if count:
            yield f"{numbered(count, name)} {sign}"


def numbered(count: int, name: str) -> str:
    """``1 claim``, ``2 claims``, ``2 comparisons with the baseline``."""
    head, _, tail = name.partition(" with ")
    return f"{count} {head}{'s' if count != 1 else ''}{f' with {tail}' if tail else ''}"


def summaries(run: Run) -> list[tuple[str, str]]:
    """One line each for what is not shown row by row, with its label."""
    found = parts(run)
    lines: list[tuple[str, str]] = []
    if found.theory:
        judged = [row for row in found.theory if not _skipped(run, row)]
        held = sum(row.verdict is row.expected for row in judged)
        text = f"{held} of {len(judged)} exact predictions hold on the same samples"
        left = len(found.theory) - len(judged)
        lines.append(("theory", f"{text}; {left} {Outcome.NOT_RUN}" if left else text))
    if found.moved:
        numbers = [row for row in found.moved if row.estimate]
        same = sum(row.verdict is row.expected for row in numbers)
        lines.append(
            ("baseline", f"{same} of {len(numbers)} numbers are where the earlier run had them")
        )
    if found.documentary:
        ids = joined(rows.plain(row.id) for row in found.documentary)
        lines.append((f"{NOT_MEASURED} ({len(found.documentary)})", ids))
    return lines


def joined(ids: Iterable[str]) -> str:
    """``A-var[dk=8], [dk=64], A-std``: of neighbours with one name the name is said once."""
    shown: list[str] = []
    last = ""
    for each in ids:
        name, bracket, label = each.partition("[")
        shown.append(bracket + label if bracket and name == last else each)
        last = name
    return ", ".join(shown)


def told(run: Run) -> list[Told]:
    """What is not as expected, row by row, then the claims with another verdict than confirmed.

    Of the latter those that share a statement are told of once. Wrong rows come before
    inconclusive ones.
    """
    found = parts(run)
    skipped = [row for row in found.claims if _skipped(run, row)]
    every = (*found.claims, *found.theory, *found.moved)
    off = [row for row in every if row.verdict is not row.expected and not _skipped(run, row)]
    wrong = sorted(off, key=lambda row: (rows.as_expected(row), _is_open(row)))
    fine = [
        row
        for row in found.claims
        if row.verdict is row.expected and row.verdict is not Outcome.CONFIRMED
    ]
    return [_in_full(row) for row in wrong] + _unsampled(skipped) + _in_short(fine)


def _skipped(run: Run, row: Row) -> bool:
    """Whether a stopped run did not come to a row; there may be too many to tell of each."""
    return run.stopped and row.verdict is Outcome.NOT_RUN


def _unsampled(some: Iterable[Row]) -> list[Told]:
    found: dict[str, list[str]] = {}
    for row in some:
        found.setdefault(rows.cells(row)["reason"], []).append(rows.plain(row.id))
    return [
        Told(
            ids=joined(ids),
            verdict=str(Outcome.NOT_RUN),
            statement="",
            details=(("", _capitalized(reason)),),
            expected=False,
        )
        for reason, ids in found.items()
    ]


def sentences(each: Told) -> list[str]:
    """The statement and what explains the verdict, each a sentence with its label."""
    labelled = [f"{label}: {text}" if label else text for label, text in each.details]
    return [f"{text.rstrip('.')}." for text in (each.statement, *labelled) if text]


def _is_open(row: Row) -> bool:
    return row.verdict is Outcome.INCONCLUSIVE


def _in_full(row: Row) -> Told:
    each, every = cells(row), rows.cells(row)
    sign = "" if _is_open(row) or row.verdict is Outcome.NOT_RUN else "✗ "
    numbers = f"measured {each['measured']}, {_predicted(row)}"
    if row.id.startswith(MOVED):  # without a difference there is a reason that has both numbers
        away = each["measured"] != rows.ABSENT
        numbers = f"{each['measured']} from where the baseline has it" if away else ""
    numbers = f"{every['check']}: {numbers}" if numbers else every["check"]
    details = [("", numbers), ("", _capitalized(every["reason"]))]
    if row.claim:
        where = ", ".join(filter(None, (row.claim.source, row.claim.section)))
        details += [("Right", row.claim.right), ("Note", row.claim.note), ("Source", where)]
    return Told(
        ids=each["id"],
        verdict=f"{sign}{row.verdict}, expected {row.expected}",
        statement=each["claim"] if row.claim else "",
        details=tuple((label, rows.plain(text)) for label, text in details if text),
        expected=False,
    )


def _predicted(row: Row) -> str:
    text = rows.cells(row)["predicted"]
    stated = text.endswith(" (stated)")
    return f"stated {text.removesuffix(' (stated)')}" if stated else f"predicted {text}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _in_short(some: Iterable[Row]) -> list[Told]:
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for row in some:
        right = rows.plain(row.claim.right) if row.claim else ""
        reason = "" if right else rows.cells(row)["reason"]
        key = (str(row.verdict), cells(row)["claim"], right, reason)
        found.setdefault(key, []).append(rows.plain(row.id))
    return [
        Told(
            ids=joined(ids),
            verdict=verdict,
            statement=statement,
            details=(("Right", right) if right else ("", _capitalized(reason)),),
            expected=True,
        )
        for (verdict, statement, right, reason), ids in found.items()
    ]
