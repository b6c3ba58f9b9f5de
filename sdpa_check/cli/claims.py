"""`claims list`, `claims show` and `claims quantities`: the registry, read aloud."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sdpa_check.cli.compare import read_run
from sdpa_check.cli.stopping import write
from sdpa_check.errors import EXIT_USAGE, InputError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sdpa_check.claims.claim import Claim

FORMATS = ("table", "json", "md")
_NAMED = 8  # so many claims that a pattern matches an error names
LAST_RUN = Path("outputs/verify/run.json")

Format = Annotated[
    str, typer.Option("--format", metavar="|".join(FORMATS), help="What goes to stdout.")
]

app = typer.Typer(
    name="claims", invoke_without_command=True, add_completion=False, rich_markup_mode=None
)


@app.callback()
def main(context: typer.Context) -> None:
    """The registry of claims: what documents say, what is right, and how it is measured.

    For example:

      sdpa-check claims list --verdict refuted

      sdpa-check claims show B-15.3-softmax
    """
    if context.invoked_subcommand is None:
        write(sys.stdout, f"{context.get_help()}\n")
        raise typer.Exit(EXIT_USAGE)


@app.command("list", short_help="The built-in claims, by document and section.")
def list_(
    source: Annotated[
        str | None, typer.Option("--source", metavar="NAME", help="Only this document.")
    ] = None,
    verdict: Annotated[
        str | None,
        typer.Option("--verdict", metavar="VERDICT", help="Only claims that should end so."),
    ] = None,
    form: Format = "table",
) -> None:
    """List the built-in claims, by document and section, with the verdict that is expected.

    For example:

      sdpa-check claims list --source B --verdict refuted

      sdpa-check claims list --format md > docs/claims.md
    """
    from sdpa_check.claims import describe, registry

    _check_format(form)
    chosen = _chosen(registry.builtin(), source, verdict)
    if form == "json":
        _write_json([describe.to_dict(claim) for claim in chosen])
    elif form == "md":
        from sdpa_check.claims.pages import claims_page

        write(sys.stdout, claims_page(chosen))
    else:
        _write_lines(_listed(describe.in_order(chosen), _width()))


@app.command(short_help="What there is to know about one claim.")
def show(
    claim: Annotated[str, typer.Argument(metavar="ID", help="The id, as `claims list` has it.")],
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="RUN", help=f"A saved run; default: {LAST_RUN}, if any."),
    ] = None,
) -> None:
    """Show a claim: what is stated, measured and right, what theory says, and the last verdict.

    For example:

      sdpa-check claims show B-8.2

      sdpa-check claims show A-var --run baseline/run.json
    """
    from sdpa_check.claims import describe, registry

    for index, group in enumerate(describe.groups(_find(registry.builtin(), claim))):
        _write_lines([""] if index else [])
        _write_lines(_told(group, run))


@app.command(short_help="The numbers that a claim can ask for.")
def quantities(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One quantity; default: all.")
    ] = None,
    form: Format = "table",
) -> None:
    """List the quantities that a claim can ask for, or show one: formula, unit and parameters.

    For example:

      sdpa-check claims quantities

      sdpa-check claims quantities softmax.entropy
    """
    from sdpa_check.claims import pages, vocabulary
    from sdpa_check.quantities import QUANTITIES, quantity
    from sdpa_check.report import listing

    _check_format(form)
    asked = list(QUANTITIES.values()) if name is None else [quantity(name, "NAME")]
    if form == "json":
        _write_json([vocabulary.to_dict(each) for each in asked])
    elif form == "md":
        write(sys.stdout, pages.quantities_page(asked))
    elif name is None:
        lines = [
            [q.name, vocabulary.origin(q).partition(":")[0], ",".join(q.params), q.formula]
            for q in asked
        ]
        _write_lines(listing.columns(lines, _width()))
    else:
        known = vocabulary.to_dict(asked[0])
        takes = [f"{k}: {v['meaning']} ({v['want']})" for k, v in known.pop("params").items()]
        pairs = {key: [text] for key, text in known.items()} | {"takes": takes or ["nothing"]}
        _write_lines(listing.facts(pairs, _width()))


def _chosen(claims: Sequence[Claim], source: str | None, verdict: str | None) -> list[Claim]:
    from sdpa_check.records import Outcome

    sources = {claim.source for claim in claims}
    if source is not None and source not in sources:
        raise unknown_name("--source", source, sources)
    if verdict is not None and verdict not in tuple(Outcome):
        raise unknown_name("--verdict", verdict, map(str, Outcome))
    return [
        claim
        for claim in claims
        if source in (None, claim.source) and verdict in (None, str(claim.expected))
    ]


def _listed(claims: Sequence[Claim], width: int) -> Iterator[str]:
    """The claims under the sections where they stand, then how many there are."""
    from sdpa_check.claims import describe
    from sdpa_check.report import listing

    groups = describe.groups(claims)
    yield from listing.columns(
        [[describe.name(each), str(each[0].expected), each[0].statement] for each in groups],
        width,
        above=[describe.place(each[0]) for each in groups],
    )
    tally = Counter(str(claim.expected) for claim in claims)
    words = ", ".join(f"{count} {verdict}" for verdict, count in sorted(tally.items()))
    yield ""
    yield f"{len(claims)} claims{': ' if words else ''}{words}"


def _find(claims: Sequence[Claim], wanted: str) -> list[Claim]:
    """The claim of that id, or those that ``each`` made of it.

    Raises:
        InputError: if there is none, naming the nearest one.
    """
    from sdpa_check.claims import describe, selection

    found = [claim for claim in claims if wanted in (claim.id, describe.base(claim))]
    if found:
        return found
    if "*" in wanted:
        some = [describe.base(claim) for claim in claims if selection.matches(claim.id, wanted)]
        names = list(dict.fromkeys(some))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        hint = f"it matches {', '.join(names[:_NAMED])}{more}" if names else ""
        raise InputError("ID", wanted, "one id, see sdpa-check claims list", hint)
    hint = selection.nearest(wanted, [claim.id for claim in claims])
    raise InputError("ID", wanted, "the id of a claim, see sdpa-check claims list", hint)


def _told(group: Sequence[Claim], run: Path | None) -> Iterator[str]:
    """The facts about claims with one statement: what they share, then what differs, by claim."""
    from sdpa_check.claims import describe
    from sdpa_check.report import listing, rows

    facts = [describe.facts(each) | _last(each, run) for each in group]
    params = rows.assignments(describe.shared_params(group))
    for each in facts:  # parameters that differ are in the labels of the claims
        each.pop("params", None)
    if params:
        facts = [_behind(each, "quantity", {"params": params}) for each in facts]
    keys = dict.fromkeys(key for each in facts for key in each)
    shared = {key: facts[0][key] for key in keys if len({each.get(key) for each in facts}) == 1}
    yield from listing.prose(f"{describe.name(group)}: {group[0].statement}", _width())
    yield ""
    yield from listing.facts({key: [text] for key, text in shared.items()}, _width())
    differ = [key for key in keys if key not in shared]
    if len(group) > 1 and not differ:
        yield ""
        yield from listing.prose(f"for each of {', '.join(map(describe.label, group))}", _width())
    elif len(group) > 1:
        lines = [
            [describe.label(claim), *(each.get(key, "—") for key in differ)]
            for claim, each in zip(group, facts, strict=True)
        ]
        yield ""
        yield from listing.columns([["", *differ], *lines], _width())


def _behind(facts: dict[str, str], key: str, more: dict[str, str]) -> dict[str, str]:
    """The facts with more of them behind one."""
    found: dict[str, str] = {}
    for name, text in facts.items():
        found |= {name: text} | (more if name == key else {})
    return found


def _last(claim: Claim, path: Path | None) -> dict[str, str]:
    """The verdict on the claim in a saved run, and which run that is."""
    from sdpa_check.report import rows

    if path is None and not LAST_RUN.exists():
        return {}
    run = read_run(path or LAST_RUN, "--run")
    started = rows.plain(str(run.environment.get("started", "at an unknown time")))
    known = {"last run": f"{path or LAST_RUN}, seed {run.seed}, {started}"}
    for row in run.rows:
        if row.id == claim.id:
            measured = f", measured {rows.cells(row)['measured']}" if row.estimate else ""
            return known | {"found": f"{row.verdict}{measured}"}
    return known | {"found": "not in that run"}


def _check_format(form: str) -> None:
    if form not in FORMATS:
        raise unknown_name("--format", form, FORMATS)


def _width() -> int:
    from sdpa_check.report.terminal import width_of

    return width_of(sys.stdout)


def _write_lines(lines: Iterable[str]) -> None:
    write(sys.stdout, "".join(f"{line}\n" for line in lines))


def _write_json(value: Any) -> None:
    write(sys.stdout, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n")
