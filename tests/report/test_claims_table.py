from __future__ import annotations

import dataclasses
import io
import re

import pytest

from sdpa_check.report import claims, rows, table

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def rendered(run, width, *, color=False):
    return table.render(run, width=width, color=color)


def test_one_line_per_claim_at_100_columns(judged):
    assert rendered(judged, 100) == (
        """\
verify  dk=8,64 distribution=t standardize=no

id            claim                             stated  measured            verdict
─────────────────────────────────────────────────────────────────────────────────────
A-var[dk=8]   the variance is d_k                    8    8.0025 ± 0.0074   confirmed
A-var[dk=64]                                        64    64.013 ± 0.054    confirmed
B-1.4         the unscaled Jacobian is smaller     ≤ 0   0.08626 ± 0.00030  refuted ✓
              (scale=none − sqrt)
B-15.3        softmax(…) ≈ 0.295                 0.295  0.307196            refuted ✓

✓ the verdict that the claim's record expects: where a document errs, "refuted"
theory: 1 of 1 exact predictions hold on the same samples
baseline: 1 of 1 numbers are where the earlier run had them
not measured (1): B-9

as expected: 2 confirmed, 2 refuted, 1 not measured
± is one standard error (64 independent blocks, 1,048,576 samples); seed 7, PCG64DXSM

A note.

refuted, as expected
  B-1.4: the unscaled Jacobian is smaller. Right: it is larger: 0.271 against 0.185.
  B-15.3: softmax(…) ≈ 0.295. Right: 0.307.
"""
    )


def test_statements_stand_above_their_numbers_at_60_columns(judged):
    assert rendered(judged, 60).partition("\n\n✓")[0] == (
        """\
verify  dk=8,64 distribution=t standardize=no

           stated  measured            verdict
────────────────────────────────────────────────
A-var: the variance is d_k
  [dk=8]        8    8.0025 ± 0.0074   confirmed
  [dk=64]      64    64.013 ± 0.054    confirmed
B-1.4: the unscaled Jacobian is smaller (scale=none − sqrt)
              ≤ 0   0.08626 ± 0.00030  refuted ✓
B-15.3: softmax(…) ≈ 0.295
            0.295  0.307196            refuted ✓"""
    )


def test_what_is_wrong_stands_first_and_in_full(unexpected):
    below = rendered(unexpected, 100).partition("\nNOT as expected: ")[2]
    first, last = below.index("\n✗ confirmed, expected refuted: B-1.4\n"), below.index("\nrefuted,")
    assert first < below.index("\n✗ refuted, expected confirmed: theory/dot") < last
    assert below.index("✗ refuted, expected confirmed: moved/") < last
    assert "\n  Moved by 0.3.\n" in below
    assert "\nrefuted, as expected\n  B-15.3: " in below
    assert "\nB-1.4                                  the" not in below


@pytest.mark.parametrize("width", range(60, 161, 4))
def test_lines_fit_and_no_number_is_cut(judged, unexpected, width):
    long = dataclasses.replace(
        judged.rows[0],
        id="B-12.4-clt-rademacher[sigma=0.25,dk=512]",
        claim=dataclasses.replace(judged.rows[0].claim, statement="a statement " * 12),
    )
    for run in (judged, unexpected, dataclasses.replace(judged, rows=(long, *judged.rows))):
        text = rendered(run, width)
        assert max(map(len, text.splitlines())) <= width
        assert not any(line != line.rstrip() for line in text.splitlines())
        for row in claims.parts(run).claims:
            for part in claims.cells(row)["measured"].split(" ±"):
                assert part in text
        for row in (*claims.parts(run).claims, *claims.parts(run).documentary):
            assert rows.plain(row.id).partition("[")[0] in text


def test_a_long_statement_is_cut_beside_the_numbers_and_whole_above_them(judged):
    statement = " ".join(f"word{i}" for i in range(40))
    said = dataclasses.replace(judged.rows[0].claim, statement=statement)
    run = dataclasses.replace(judged, rows=(dataclasses.replace(judged.rows[0], claim=said),))
    wide = rendered(run, 120)
    assert "…" in wide
    assert "word0" in wide
    assert "word39" not in wide
    assert len([line for line in wide.splitlines() if "word" in line]) == 3
    assert " ".join(rendered(run, 60).split()).count(statement) == 1


def test_narrow_columns_are_cut_at_their_signs_only(judged):
    precise = dataclasses.replace(judged.rows[0].estimate, value=0.00012345678, se=4.2e-10)
    row = dataclasses.replace(judged.rows[0], estimate=precise, id="A[sigma=0.25,dk=512,df=5]")
    text = rendered(dataclasses.replace(judged, rows=(row,)), 50)
    lines = [line.split() for line in text.splitlines()[4:7]]
    assert lines == [
        ["A:", "the", "variance", "is", "d_k"],
        ["[sigma=0.25,", "8", "0.00012345678", "confirmed"],
        ["dk=512,df=5]", "±", "0.00000000042"],
    ]


def test_colours_add_nothing_but_colour(judged, unexpected):
    for run in (judged, unexpected):
        for width in (60, 100, 140):
            coloured = rendered(run, width, color=True)
            stripped = [line.rstrip() for line in ANSI.sub("", coloured).splitlines()]
            assert stripped == rendered(run, width).splitlines()
    assert "\x1b[1;31mconfirmed ✗" in coloured
    assert "\x1b[33minconclusive" in coloured
    assert "\x1b[1;31m✗ confirmed, expected refuted: B-1.4" in coloured


def test_the_sign_is_explained_where_it_is_used(judged):
    assert claims.LEGEND in rendered(judged, 100)
    plain = dataclasses.replace(judged, rows=judged.rows[:2])
    assert claims.LEGEND not in rendered(plain, 100)


def test_claims_without_numbers_alone_make_no_table(judged):
    run = dataclasses.replace(
        judged, rows=judged.rows[4:5], outcome="nothing was checked", exit_code=4
    )
    text = rendered(run, 100)
    assert "─" not in text
    assert "\nnothing was checked: 1 not measured\n" in text


def test_no_colour_and_one_width_into_a_pipe(judged):
    stream = io.StringIO()
    table.show(judged, stream)
    assert stream.getvalue() == rendered(judged, 100)


def test_control_characters_of_a_file_do_nothing(judged):
    nasty = "\x1b[2J\u202e<b>"
    said = dataclasses.replace(
        judged.rows[2].claim, statement=nasty, right=nasty, note=nasty, source=nasty
    )
    row = dataclasses.replace(judged.rows[2], id=nasty, claim=said, reason=nasty)
    for run in (judged,):
        text = rendered(dataclasses.replace(run, rows=(row,)), 100)
        assert "\x1b" not in text
        assert "\u202e" not in text
