from __future__ import annotations

import dataclasses
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sdpa_check.records import Outcome
from sdpa_check.report import rows, table

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def test_a_sweep_at_80_columns(sweep):
    assert table.render(sweep, width=80, color=False) == (
        """\
saturation  distribution=t standardize=no scale=sqrt sigma=1

                                                     predicted
check                         measured                 (exact)     z  verdict
───────────────────────────────────────────────────────────────────────────────
dk=8
  softmax.saturated_fraction  0.012312 ± 0.000026       0.0123  +0.5  confirmed
  jacobian.frobenius rms       0.14300 ± 0.00030      0.142857  +0.5  confirmed
  jacobian.frobenius mean      (3.0030 ± 0.0063)e-9       3e-9  +0.5  confirmed
dk=64
  softmax.saturated_fraction  0.012312 ± 0.000026       0.0123  +0.5  confirmed
  jacobian.frobenius rms       0.14300 ± 0.00030      0.142857  +0.5  confirmed
  jacobian.frobenius mean      (3.0030 ± 0.0063)e-9       3e-9  +0.5  confirmed

as expected: 6 confirmed
± is one standard error (64 independent blocks, 1,048,576 samples); z counts
them; seed 7, PCG64DXSM
"""
    )


def test_measured_numbers_at_100_columns(spread):
    text = table.render(spread, width=100, color=False)
    assert text == (
        """\
saturation  dk=64 distribution=t standardize=no

check                  measured             predicted (exact)     z  tolerance  verdict
─────────────────────────────────────────────────────────────────────────────────────────
keys=8 scale=none
  softmax.entropy       2.00000 ± 0.00067                   2  +0.0      ±0.02  confirmed
  jacobian.trace mean   0.70000 ± 0.00023                 0.7  +0.0     ±0.007  confirmed
keys=8 scale=dk
  softmax.entropy       0.50000 ± 0.00017                 0.5  +0.0     ±0.005  confirmed
  jacobian.trace mean  0.175000 ± 0.000058              0.175  +0.0   ±0.00175  confirmed
keys=64 scale=none
  softmax.entropy       2.00000 ± 0.00067                   2  +0.0      ±0.02  confirmed
  jacobian.trace mean   0.70000 ± 0.00023                 0.7  +0.0     ±0.007  confirmed
keys=64 scale=dk
  softmax.entropy       0.50000 ± 0.00017                 0.5  +0.0     ±0.005  confirmed
  jacobian.trace mean  0.175000 ± 0.000058              0.175  +0.0   ±0.00175  confirmed

measured only (no closed form); 0.79096(17) is 0.79096 ± 0.00017
  scale  softmax.max_weight  softmax.effective_keys
keys=8
  none   0.79096(17)          28.1016(95)
  dk     0.19774(17)         112.4064(95)
keys=64
  none   0.79096(17)          28.1016(95)
  dk     0.19774(17)         112.4064(95)

  jacobian   scale  mean          rms          median       95 %
keys=8
  frobenius  none   0.70000(17)   0.80000(20)  0.60000(15)  1e-7 ± n/a
             dk     0.17500(17)   0.20000(20)  0.15000(15)  2.5e-8 ± n/a
  trace      none   0.70000(23)   0.80000(20)  0.60000(15)  1e-7 ± n/a
             dk     0.175000(58)  0.20000(20)  0.15000(15)  2.5e-8 ± n/a
keys=64
  frobenius  none   0.70000(17)   0.80000(20)  0.60000(15)  1e-7 ± n/a
             dk     0.17500(17)   0.20000(20)  0.15000(15)  2.5e-8 ± n/a
  trace      none   0.70000(23)   0.80000(20)  0.60000(15)  1e-7 ± n/a
             dk     0.175000(58)  0.20000(20)  0.15000(15)  2.5e-8 ± n/a

as expected: 8 confirmed; 36 measured only
± is one standard error (64 independent blocks, 1,048,576 samples); z counts them; seed 7, PCG64DXSM

measured only  jacobian.frobenius keys=8 scale=none statistic=q95; jacobian.trace keys=8 scale=none
  statistic=q95; jacobian.frobenius keys=8 scale=dk statistic=q95; 5 more
  error bar not available (a quantile lies beyond the bins)
"""
    )


@pytest.mark.parametrize("width", range(60, 161, 3))
def test_measured_numbers_fit_and_none_is_cut(spread, width):
    text = table.render(spread, width=width, color=False)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for row in spread.rows:
        if row.prediction.kind == "none" and row.params.get("statistic") != "q95":
            assert re.search(rf"(?<!\S){re.escape(rows.concise(row.estimate))}(?!\S)", text)
    assert ("no room for" in " ".join(text.split())) == (width < 72)


def test_the_kind_of_all_predictions_stands_beside_the_name_where_it_fits(spread):
    for width, header in ((88, "         predicted\n"), (89, "  predicted (exact)     z  ")):
        text = table.render(spread, width=width, color=False)
        assert header in text
        assert max(map(len, text.partition("\n\nmeasured")[0].splitlines())) <= width


def test_a_number_is_not_parted_from_its_error_or_unit(sweep):
    run = dataclasses.replace(sweep, notes=(f"{'x' * 54} 12 ± 3 of 95 %",))
    text = table.render(run, width=60, color=False)
    assert f"{'x' * 54}\n12 ± 3 of 95 %\n" in text


def test_a_run_of_measured_numbers_alone_has_no_empty_table(spread):
    only = tuple(row for row in spread.rows if row.prediction.kind == "none")
    text = table.render(dataclasses.replace(spread, rows=only), width=100, color=False)
    assert "─" not in text
    assert "z counts" not in text
    assert (
        text.splitlines()[2] == "measured only (no closed form); 0.79096(17) is 0.79096 ± 0.00017"
    )


@pytest.mark.parametrize("width", range(60, 161, 3))
def test_lines_fit_and_no_number_is_cut(mixed, sweep, width):
    for run in (mixed, sweep):
        text = table.render(run, width=width, color=False)
        assert max(map(len, text.splitlines())) <= width
        assert not any(line != line.rstrip() for line in text.splitlines())
        # The ellipsis of a cut cell must not be there; every number must, split at ± at most.
        assert "…" not in text
        for cells in rows.run_cells(run):
            for part in (*cells["measured"].split(" ±"), cells["predicted"].partition(" (")[0]):
                assert part in text


def test_a_very_narrow_terminal_gets_long_lines_and_whole_numbers(mixed):
    text = table.render(mixed, width=20, color=False)
    for part in ("63.982", "± 0.031", "± 0.031)e-22", "± 0.00050", "≈ 12"):
        assert part in text


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (140, ["check", "measured", "predicted", "z", "tolerance", "verdict"]),
        (100, ["check", "measured", "predicted", "z", "verdict"]),
        (80, ["check", "measured", "predicted", "verdict"]),
        (60, ["check", "measured", "predicted", "verdict"]),
    ],
)
def test_columns_go_by_their_importance(mixed, width, names):
    lines = table.render(mixed, width=width, color=False).splitlines()
    assert next(line for line in lines if line.startswith("check")).split() == names


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_colours_add_nothing_but_colour(mixed, spread, width):
    for run in (spread, mixed):
        plain, coloured = (table.render(run, width=width, color=color) for color in (False, True))
        stripped = [line.rstrip() for line in ANSI.sub("", coloured).splitlines()]
        assert stripped == plain.splitlines()
        assert "\x1b" not in plain
    assert "\x1b[1;31mrefuted ✗" in coloured
    assert "\x1b[32mconfirmed" in coloured


def test_an_unexpected_verdict_is_red_whatever_it_is(mixed):
    rows_ = tuple(dataclasses.replace(row, verdict=Outcome.UNDEFINED) for row in mixed.rows[:1])
    text = table.render(dataclasses.replace(mixed, rows=rows_), width=140, color=True)
    assert "\x1b[1;31mundefined ✗" in text


def test_outcome_notes_and_reasons_stand_below(mixed):
    text = table.render(mixed, width=140, color=False)
    below = text.partition("\nNOT as expected: 1 refuted, 1 inconclusive; ")[2]
    assert mixed.notes[0] in below
    assert "\nrefuted ✗  scaled: logit.variance dk=64 scale=sqrt\n  outside the band" in below
    assert "error bar not available (fourth moment infinite)" in below
    assert "inside the band" not in text


def test_many_reasons_are_cut_short_but_never_those_of_what_is_wrong(mixed):
    def many(row, n):
        return [dataclasses.replace(row, id=f"x{i}", reason=f"reason {i}.") for i in range(n)]

    rows_ = (*many(mixed.rows[4], 20), *many(mixed.rows[2], 20))
    text = table.render(dataclasses.replace(mixed, rows=rows_), width=140, color=False)
    assert len(re.findall(r"^refuted ✗", text, re.MULTILINE)) == 20
    assert "\nundefined" not in text
    assert "\n20 more reasons stand in the record." in text


def test_eight_reasons_are_given_where_nothing_is_wrong(mixed):
    rows_ = [
        dataclasses.replace(mixed.rows[index], id=f"x{i}", reason=f"reason {i}.")
        for index in (4, 3)
        for i in range(5)
    ]
    text = table.render(dataclasses.replace(mixed, rows=tuple(rows_)), width=140, color=False)
    assert re.findall(r"^  reason (\d)", text, re.MULTILINE) == list("01234012")
    assert text.index("\ninconclusive  x0") < text.index("\nundefined  x0")
    assert text.endswith("\n\n2 more reasons stand in the record.\n")


def test_a_reason_of_many_checks_names_three(mixed):
    rows_ = tuple(dataclasses.replace(mixed.rows[-1], id=f"x{i}") for i in range(10))
    text = table.render(dataclasses.replace(mixed, rows=rows_), width=140, color=False)
    assert "not run  x0: float.exp; x1: float.exp; x2: float.exp; 7 more\n  no torch" in text


def test_a_run_without_rows(sweep):
    run = dataclasses.replace(sweep, rows=(), outcome="nothing was checked", exit_code=4)
    text = table.render(run, width=80, color=False)
    assert "nothing was checked: no checks\nnothing was sampled; seed 7" in text


def test_brackets_and_control_characters_of_a_record_are_only_text(sweep):
    run = dataclasses.replace(sweep, notes=("[bold]x[/bold] :smile: \x1b[31mred",))
    text = table.render(run, width=100, color=True)
    assert "[bold]x[/bold] :smile: \\x1b[31mred" in text


def test_same_run_same_text_whatever_the_environment(sweep, monkeypatch):
    text = table.render(sweep, width=90, color=False)
    for name, value in {"COLUMNS": "40", "FORCE_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    assert table.render(sweep, width=90, color=False) == text


def test_a_table_is_text_in_a_notebook_too(sweep, monkeypatch):
    text = table.render(sweep, width=90, color=False)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert table.render(sweep, width=90, color=False) == text


def test_an_id_is_not_split_at_its_hyphens(sweep):
    run = dataclasses.replace(sweep, notes=(f"{'x' * 44} B-12.5-scale-of-t",))
    assert "\nB-12.5-scale-of-t\n" in table.render(run, width=60, color=False)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_plain_text_of_a_fixed_width(mixed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    stream = io.StringIO()
    table.show(mixed, stream)
    assert stream.getvalue() == table.render(mixed, width=100, color=False)


@pytest.mark.parametrize(
    ("variables", "color"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_gets_its_width_and_colours_unless_refused(mixed, monkeypatch, variables, color):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in {"COLUMNS": "77", **variables}.items():
        monkeypatch.setenv(name, value)
    stream = _Terminal()
    table.show(mixed, stream)
    assert stream.getvalue() == table.render(mixed, width=77, color=color)


def test_rich_is_not_imported_before_a_table_is_drawn():
    names = "rows, measured, summary, table, record, text, junit, save"
    code = (
        f"import sys; from sdpa_check.report import {names}; "
        "sys.exit(sorted({'rich', 'numpy', 'matplotlib'} & sys.modules.keys()))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == "[]", done.stderr
