from __future__ import annotations

import csv
import dataclasses
import io
import re

from sdpa_check.report import junit, rows, text


def test_csv_has_one_line_a_row_and_every_digit(mixed):
    table = list(csv.DictReader(io.StringIO(text.csv(mixed))))
    assert len(table) == len(mixed.rows)
    for line, row in zip(table, mixed.rows, strict=True):
        assert (line["id"], line["quantity"]) == (row.id, row.quantity)
        assert (line["verdict"], line["expected"]) == (row.verdict, row.expected)
        assert line["reason"] == row.reason
        assert line["prediction_kind"] == row.prediction.kind
        assert _float(line["prediction"]) == row.prediction.value
        assert _float(line["tolerance"]) == row.tolerance
        assert _float(line["detectable"]) == row.detectable
        for name in ("value", "se", "lo", "hi", "level", "blocks", "samples"):
            assert _float(line[name]) == (row.estimate and getattr(row.estimate, name)), name


def test_csv_columns(mixed):
    header = text.csv(mixed).splitlines()[0]
    assert header == (
        "id,quantity,dk,scale,distribution,keys,param_level,value,se,lo,hi,level,blocks,samples,"
        "prediction,prediction_kind,relation,verdict,expected,tolerance,detectable,reason"
    )


def test_csv_writes_parameters_so_that_programs_read_them(sweep):
    params = {"standardize": True, "dk": [8, 64], "note": 'a,"b"\nc', "x": 0.1}
    run = dataclasses.replace(sweep, rows=(dataclasses.replace(sweep.rows[0], params=params),))
    (line,) = csv.DictReader(io.StringIO(text.csv(run)))
    assert (line["standardize"], line["dk"], line["x"]) == ("true", "[8, 64]", "0.1")
    assert line["note"] == 'a,"b" c'
    assert text.csv(run).count("\n") == 2
    assert "\r" not in text.csv(run)


def test_csv_of_a_run_without_rows_is_its_header(sweep):
    assert text.csv(dataclasses.replace(sweep, rows=())) == (
        "id,quantity,value,se,lo,hi,level,blocks,samples,prediction,prediction_kind,relation,"
        "verdict,expected,tolerance,detectable,reason\n"
    )


def test_csv_has_what_the_documents_say_where_claims_are_judged(judged):
    lines = list(csv.DictReader(io.StringIO(text.csv(judged))))
    assert [line["statement"] for line in lines] == [
        row.claim.statement if row.claim else "" for row in judged.rows
    ]
    assert (lines[2]["source"], lines[2]["section"]) == ("B", "1.4")
    assert lines[2]["right"] == "it is larger: 0.271 against 0.185"
    assert (lines[2]["relation"], lines[2]["versus"]) == ("at most", '{"scale": "sqrt"}')


def test_markdown_is_a_table_with_the_cells_that_people_read(mixed):
    lines = text.markdown(mixed).splitlines()
    table = [line for line in lines if line.startswith("|")]
    cells = [_split(line) for line in table]
    assert {len(line) for line in cells} == {6}
    assert cells[0] == ["check", "measured", "predicted", "z", "tolerance", "verdict"]
    assert [cell.strip("-") for cell in cells[1]] == ["", ":", ":", ":", ":", ""]
    for line, expected in zip(cells[2:], rows.run_cells(mixed), strict=True):
        assert [_unescaped(cell) for cell in line] == [expected[name] for name in cells[0]]
    assert len({len(line) for line in table}) == 1  # aligned in the source too


def test_markdown_has_the_grids_of_measured_numbers(spread):
    written = text.markdown(spread)
    main, numbers, statistics = (
        [_split(line) for line in block.splitlines()]
        for block in written.split("\n\n")
        if block.startswith("|")
    )
    assert len(main) == 2 + 8
    assert numbers[0] == ["", "scale", "softmax.max_weight", "softmax.effective_keys"]
    assert numbers[2] == ["keys=8", "none", "0.79096(17)", "28.1016(95)"]
    assert len(numbers) == 2 + 4
    assert statistics[0] == ["", "jacobian", "scale", "mean", "rms", "median", "95 %"]
    assert statistics[3][:4] == ["keys=8", "frobenius", "dk", "0.17500(17)"]
    assert len(statistics) == 2 + 8
    assert [cell.endswith(":") for cell in numbers[1]] == [False, False, True, True]
    assert "\n\nmeasured only (no closed form); 0.79096(17) is 0.79096 ± 0.00017\n\n|" in written


def test_markdown_of_one_design_has_no_column_for_it(spread):
    alone = dataclasses.replace(spread, rows=spread.rows[: len(spread.rows) // 4])
    assert "\n| jacobian  | " in text.markdown(alone)


def test_csv_and_junit_keep_what_is_measured_only_row_by_row(spread):
    assert text.csv(spread).count("\n") == 1 + len(spread.rows)
    assert junit.junit(spread).count("<testcase ") == len(spread.rows)


def test_markdown_says_outcome_first_and_notes_and_reasons_below(mixed):
    written = text.markdown(mixed)
    assert written.startswith("**NOT as expected: 1 refuted, 1 inconclusive; ")
    assert "\n\nUnscaled, ‖J‖\\_F is larger at 64 keys" in written
    assert "\n- **refuted ✗** scaled: logit.variance dk=64 scale=sqrt: outside the band" in written
    assert "\n- **undefined** no-variance: dot.variance dk=64 distribution=cauchy: " in written


def test_markdown_escapes_what_would_be_markup(mixed):
    written = text.markdown(mixed)
    assert "var\\|root" in written
    assert "\\<0.99, 1.01\\>" in written
    assert "softmax.effective_keys" in written  # an underscore within a word is no markup
    run = dataclasses.replace(mixed, notes=("*a* _b_ `c` [d](e) <img> &amp; $x$ \x1b",))
    assert "\\*a\\* \\_b\\_ \\`c\\` \\[d\\](e) \\<img\\> \\&amp; \\$x\\$ \\\\x1b" in text.markdown(
        run
    )


def test_markdown_of_a_run_without_rows_has_no_table(sweep):
    assert "|" not in text.markdown(dataclasses.replace(sweep, rows=()))


def test_same_run_same_bytes(mixed):
    assert text.csv(mixed) == text.csv(dataclasses.replace(mixed))
    assert text.markdown(mixed) == text.markdown(dataclasses.replace(mixed))


def _float(field: str) -> float | None:
    return float(field) if field else None


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _unescaped(cell: str) -> str:
    return re.sub(r"\\(.)", r"\1", cell)
