"""`verify`: every claim of a registry, judged, and theory held to the same measurements."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from sdpa_check import verdict
from sdpa_check.checks import Check
from sdpa_check.claims import registry, selection
from sdpa_check.errors import InputError
from sdpa_check.inputs import Options, resolve, texts
from sdpa_check.quantities import ExactQuantity, quantity
from sdpa_check.quantities.params import PARAMS
from sdpa_check.records import MOVED, THEORY, ClaimText, Outcome, Prediction, Row
from sdpa_check.studies import compare
from sdpa_check.studies.study import Study, conduct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdpa_check.claims.claim import Claim
    from sdpa_check.records import Run


def verify(
    path: str | Path | None = None,
    *,
    full: bool = False,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    **options: Unpack[Options],
) -> Run:
    """Judge the claims of a TOML file, or the built-in ones.

    Where a claim asks for a number that theory predicts exactly, a second row holds that prediction
    to the same measurement: a slip in a formula shows even where a claim has the right number.

    Args:
        path: a file of ``[[claim]]`` blocks; None for the claims that come with the package.
        full: include claims that are marked as slow.
        select: patterns of ids to keep; ``A-var`` also means ``A-var[dk=8]``.
        ignore: patterns of ids to leave out.
        options: see `Options`; those of the sampling are read.

    Raises:
        InputError: for a file or a pattern that cannot be used.
    """
    return study(path, full=full, select=select, ignore=ignore, options=options).run


def study(
    path: str | Path | None,
    *,
    full: bool,
    select: Sequence[str],
    ignore: Sequence[str],
    options: Options,
    baseline: Run | None = None,
) -> Study:
    """As `verify`, with what surrounds the run.

    With a `baseline`, rows that hold every number to that of the earlier run are added.
    """
    inputs = resolve(options)
    if not isinstance(path, str | os.PathLike | None):
        raise InputError("FILE", path, "the path of a TOML file")
    claims = registry.builtin() if path is None else registry.load(Path(path))
    select = texts("--select", select, "a claim's id, or a pattern with *")
    ignore = texts("--ignore", ignore, "a claim's id, or a pattern with *")
    chosen = selection.select(claims, select, ignore)
    left_out = [] if full else [claim for claim in chosen if claim.slow]
    chosen = [claim for claim in chosen if full or not claim.slow]
    design = {
        "file": "built-in claims" if path is None else str(path),
        "full": full,
        "select": list(select),
        "ignore": list(ignore),
    }
    try:
        found = conduct(
            "verify",
            _checks(chosen),
            inputs,
            design,
            lambda _: _notes(left_out),
            population=_checks(claims),
            finish=lambda rows: _explained(chosen, rows),
        )
    except InputError as error:
        raise _located(error, chosen, str(design["file"])) from error
    if baseline is None or found.run.stopped:
        return found
    return replace(found, run=_compared(baseline, found.run))


def _located(error: InputError, claims: Sequence[Claim], file: str) -> InputError:
    """An error that only the sampling met, by the file and the claim, where one alone fits it."""
    name = error.where.removeprefix("--")
    if name not in PARAMS:
        return error
    some = [each for each in claims if str(error.got) in str(each.params.get(name))]
    found = some[0].named(error) if len(some) == 1 else error
    return InputError(f"{file}: {found.where}", found.got, found.want, found.hint)


def _compared(baseline: Run, run: Run) -> Run:
    """The run with a row for every number that the baseline has as well."""
    kept = [row for row in baseline.rows if not row.id.startswith(MOVED)]
    rows = (
        *run.rows,
        *compare.rows(replace(baseline, rows=tuple(kept)), run, ("the baseline", "this run")),
    )
    outcome, code = verdict.conclude(rows)
    return replace(run, rows=rows, outcome=outcome, exit_code=code)


def _checks(claims: Sequence[Claim]) -> list[Check]:
    """A check for every claim with a quantity, then one for every exact prediction behind them."""
    measured = [claim for claim in claims if claim.quantity is not None]
    theory: dict[str, Check] = {}
    for claim in measured:
        check = theory_check(claim)
        if check is not None:
            theory.setdefault(check.id, check)
    return [claim.check() for claim in measured] + list(theory.values())


def theory_check(claim: Claim) -> Check | None:
    """The check of theory itself at the case of a claim, where theory is exact there."""
    check = claim.check()
    asked = quantity(check.quantity)
    if isinstance(asked, ExactQuantity) or asked.predict(check.case).kind != "exact":
        return None
    return Check(id=theory_id(claim), quantity=check.quantity, case=check.case)


def theory_id(claim: Claim) -> str:
    """The id of the row that holds theory to the measurement behind a claim."""
    label = ",".join(f"{name}={value}" for name, value in sorted(claim.params.items()))
    return f"{THEORY}{claim.quantity}[{label}]"


def _explained(claims: Sequence[Claim], rows: list[Row]) -> list[Row]:
    """The rows of the claims, in their order and with their explanations, then those of theory."""
    found = {row.id: row for row in rows}
    told = [_row(claim, found.pop(claim.id, None)) for claim in claims]
    asked = {theory_id(claim): dict(claim.params) for claim in claims if claim.quantity}
    return told + [replace(row, params=asked[row.id]) for row in found.values()]


def _row(claim: Claim, row: Row | None) -> Row:
    if row is None:
        return Row(
            id=claim.id,
            quantity="documentary",
            params={},
            estimate=None,
            prediction=Prediction(value=None, kind="none", source=claim.source),
            verdict=Outcome.NOT_RUN,
            expected=Outcome.NOT_RUN,
            reason=claim.note,
            claim=_text(claim),
        )
    more: dict[str, Any] = {"versus": dict(claim.versus)} if claim.versus else {}
    if len(claim.stated) > 1:  # the prediction of the row is one of them
        more["stated"] = list(claim.stated)
    return replace(row, params={**claim.params, **more}, claim=_text(claim))


def _text(claim: Claim) -> ClaimText:
    return ClaimText(
        statement=claim.statement,
        source=claim.source,
        section=claim.section,
        right=claim.right,
        note=claim.note,
    )


def _notes(left_out: Sequence[Claim]) -> list[str]:
    if not left_out:
        return []
    return [f"Slow claims were left out: {len(left_out)}; --full runs them."]
