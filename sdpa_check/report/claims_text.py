"""A run that judges claims as Markdown: what a GitHub job shows as its summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdpa_check.report import claims, markup, rows, summary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sdpa_check.records import Row, Run
    from sdpa_check.report.claims import Told

_RIGHT = ("stated", "measured")


def markdown(run: Run) -> str:
    """The outcome, what is not as expected, the table of claims, and the details folded."""
    found, told = claims.parts(run), claims.told(run)
    off = [each for each in told if not each.expected]
    legend = any("✓" in claims.cells(row)["verdict"] for row in found.claims)
    parts = [
        f"**{markup.escaped(claims.outcome_line(run))}**",
        *("\n".join([_headline(each), *_bullets(each)]) for each in off),
        *([_table(found.claims)] if found.claims else []),
        *([markup.escaped(claims.LEGEND)] if legend else []),
        *_folded(told),
        *_beside(run),
        *(markup.escaped(rows.plain(note)) for note in run.notes),
        markup.escaped(" ".join(claims.title(run).split())),
        markup.escaped(summary.sampling_line(run, z=False)),
    ]
    return "\n\n".join(parts) + "\n"


def _headline(each: Told) -> str:
    return f"**{markup.escaped(f'{each.verdict}: {each.ids}')}**\n"


def _bullets(each: Told) -> Iterable[str]:
    return (f"- {markup.escaped(text)}" for text in claims.sentences(each))


def _table(some: Iterable[Row]) -> str:
    lines = []
    for row in some:
        each = claims.cells(row)
        if each["difference"]:
            each["claim"] += f" ({each['difference']})"
        lines.append([each[name] for name in claims.COLUMNS])
    return markup.table([claims.COLUMNS, *lines], _RIGHT)


def _folded(told: Iterable[Told]) -> Iterable[str]:
    """For each verdict other than confirmed the claims for which it is expected."""
    by_verdict: dict[str, list[Told]] = {}
    for each in told:
        if each.expected:
            by_verdict.setdefault(each.verdict, []).append(each)
    for verdict, some in by_verdict.items():
        lines = [
            f"- **{markup.escaped(each.ids)}** {markup.escaped(' '.join(claims.sentences(each)))}"
            for each in some
        ]
        yield markup.folded(f"{verdict}, as expected", "\n".join(lines))


def _beside(run: Run) -> Iterable[str]:
    """The predictions of theory, the comparison with a baseline, the claims without a number."""
    found = claims.parts(run)
    for label, text in claims.summaries(run):
        if label.startswith(claims.NOT_MEASURED):
            lines = [
                f"- **{markup.escaped(rows.plain(row.id))}** {markup.escaped(_why(row))}"
                for row in found.documentary
            ]
            yield markup.folded(label, "\n".join(lines))
        else:
            yield markup.escaped(f"{label}: {text}")


def _why(row: Row) -> str:
    statement = row.claim.statement if row.claim else ""
    return rows.plain(f"{statement}: {row.reason}" if statement else row.reason)
