from __future__ import annotations

import dataclasses
import re
from decimal import Decimal

import pytest

from sdpa_check.records import Estimate, Outcome, Prediction, Row, Run
from sdpa_check.report import ledger_table, record, rows, table, text

ANSI = re.compile(r"\x1b\[[0-9;]*m")
NONE = "measured only: no closed form is known"


def found(value, se, withheld=""):
    lo, hi = (None, None) if se is None else (value - 5 * se, value + 5 * se)
    return Estimate(
        value=value, se=se, lo=lo, hi=hi, level=0.999999, blocks=64, samples=4096, withheld=withheld
    )


def check(pipeline, quantity, value, se, predicted=None, *, verdict=None, design=(64, 64), **more):
    judged = predicted is not None
    right = Outcome.CONFIRMED if judged else Outcome.UNDEFINED
    kind = "exact" if judged else "none"
    return Row(
        id=f"{design}: {pipeline}/{quantity}{more}",
        quantity=quantity,
        params={"dk": design[0], "keys": design[1], "sigma": 1.0, "pipeline": pipeline, **more},
        estimate=found(value, se),
        prediction=Prediction(value=predicted, kind=kind, source="theory" if judged else NONE),
        verdict=verdict or right,
        expected=right,
        reason="" if verdict is None else f"the reason of {pipeline}/{quantity}",
        tolerance=None,
        detectable=None,
    )


def pipeline(name, std, *, design=(64, 64), within=None, verdicts=None):
    """Eight numbers of which four are judged, as `ledger` asks for them."""
    verdicts, within = verdicts or {}, within or std

    def one(quantity, value, se, predicted=None, **more):
        verdict = verdicts.get(quantity)
        return check(name, quantity, value, se, predicted, verdict=verdict, design=design, **more)

    return [
        one("ledger.mean", 0.00473 * std, 0.0074 * std, 0.0),
        one("ledger.std", 1.0011 * std, 0.0013 * std, std),
        one("ledger.within_std", 1.0012 * within, 0.0013 * within, within),
        one("ledger.entropy", 3.68561, 0.0014, 3.685705),
        one("ledger.effective_keys", 28.1162, 0.064),
        one("ledger.frobenius", 0.184592, 0.0002, statistic="rms"),
        one("ledger.frobenius", 0.1790312, 0.0000021, statistic="median"),
        one("gradient.burstiness", 1.09843, 0.0051),
    ]


def run(*parts, command="ledger"):
    every = tuple(row for part in parts for row in part)
    return Run(
        command=command,
        version="0.1.0",
        outcome="as expected",
        exit_code=0,
        design={"dk": [64], "keys": [64], "alpha": 1e-6},
        seed=7,
        generator="SFC64",
        rows=every,
        notes=("A note.",),
        environment={},
    )


@pytest.fixture
def plain():
    """Two pipelines whose std within a row is their std."""
    return run(pipeline("dot", 8.0), pipeline("qk_norm:rms | scale:sqrt", 1.0))


@pytest.fixture
def open_run():
    """What is refuted, what is open, and a std within a row that is another number."""
    refuted = {"ledger.std": Outcome.REFUTED, "ledger.entropy": Outcome.REFUTED}
    refuted["ledger.mean"] = Outcome.INCONCLUSIVE
    return run(
        pipeline("dot", 8.0, verdicts=refuted),
        pipeline("additive", 0.72, within=0.53, verdicts={"ledger.mean": Outcome.INCONCLUSIVE}),
    )


def rendered(of, width, *, color=False):
    return table.render(of, width=width, color=color)


def body(of, width):
    """The lines of the table below its rule."""
    lines = rendered(of, width).splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("─"))
    return lines[rule + 1 : lines.index("", rule)]


def header(of, width):
    lines = rendered(of, width).splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("─"))
    return " ".join(lines[rule - 1].split())


def test_one_line_per_pipeline_with_errors_where_there_is_room(plain):
    dot, norm = body(plain, 170)
    assert dot.split() == [
        *("dot", "0.038(59)", "8", "8.009(10)", "3.6856(14)", "28.116(64)"),
        *("0.18459(20)", "0.1790312(21)", "1.0984(51)", "confirmed", "4", "of", "8"),
    ]
    assert norm.startswith("qk_norm:rms | scale:sqrt  0.0047(74)  1      1.0011(13) ")
    assert "\n8.009(10) is 8.009 ± 0.010; " in rendered(plain, 170)


def test_the_whole_at_100_columns(open_run):
    assert rendered(open_run, 100).partition("\n\nas expected")[0] == (
        """\
ledger  dk=64 keys=64 sigma=1

                 std    std     within-           eff.   RMS
change    mean   pred.  meas.   row std  entropy  keys   ‖J‖_F   verdict                 judged
───────────────────────────────────────────────────────────────────────────────────────────────
dot       0.04   8      8.01    8.01     3.686    28.12  0.1846  refuted ✗ std, entropy  4 of 8
additive  0.003  0.72   0.7208  0.5306   3.686    28.12  0.1846  inconclusive            4 of 8

8.01 is 8.009 ± 0.010, rounded at the first digit of its error or to four digits; judged: against a
prediction that can be refuted; no room for median ‖J‖_F, bursts"""
    )


def test_columns_go_from_the_right_before_anything_wraps(plain):
    heads = {width: header(plain, width) for width in range(170, 80, -1)}
    every = "change mean pred. meas. entropy keys ‖J‖_F ‖J‖_F bursts verdict judged"
    assert list(dict.fromkeys(heads.values())) == [
        every,
        every.replace(" bursts", ""),
        every.replace(" ‖J‖_F bursts", ""),
        every.replace(" keys ‖J‖_F ‖J‖_F bursts", " ‖J‖_F"),
    ]
    assert all(len(body(plain, width)) == 2 for width in heads)
    assert "no room for eff. keys, median ‖J‖_F, bursts" in " ".join(rendered(plain, 81).split())
    assert "no room" not in rendered(plain, 110)


def test_then_a_pipeline_wraps_and_then_it_stands_above_its_numbers(plain):
    assert [line.split("  ")[0] for line in body(plain, 80)] == ["dot", "qk_norm:rms |", ""]
    assert body(plain, 80)[2] == "  scale:sqrt"
    assert body(plain, 60) == [
        "dot",
        "  0.04   8      8.01   3.686    0.1846  confirmed  4 of 8",
        "qk_norm:rms | scale:sqrt",
        "  0.005  1      1.001  3.686    0.1846  confirmed  4 of 8",
    ]


@pytest.mark.parametrize("width", range(48, 200, 3))
def test_lines_fit_and_nothing_is_cut(plain, open_run, width):
    for of in (plain, open_run, run(*(pipeline("dot", 8.0, design=(d, 64)) for d in (8, 64)))):
        text = rendered(of, width)
        assert all(len(line) <= width for line in text.splitlines())
        assert "…" not in text
        assert "8.009(10)" in text or " 8.01 " in text


def test_the_std_within_a_row_is_a_column_only_where_it_is_another_number(plain, open_run):
    assert "row std" in header(open_run, 170)
    assert "row std" not in header(plain, 170)
    assert "the std within a row is the same" in " ".join(rendered(plain, 170).split())
    assert "within-row std" not in text.markdown(plain)
    std, within = plain.rows[1:3]
    for changed in (
        {"prediction": dataclasses.replace(within.prediction, value=7.99)},
        {"estimate": dataclasses.replace(within.estimate, value=std.estimate.value + 0.03)},
    ):
        every = (*plain.rows[:2], dataclasses.replace(within, **changed), *plain.rows[3:])
        assert "row std" in header(dataclasses.replace(plain, rows=every), 170)


def test_without_an_error_a_number_ends_at_the_first_digit_of_it():
    for value, se in ((1.00114, 0.0013), (63.98213, 0.095), (-0.00028, 0.00076), (1e-9, 3e-11)):
        shown = Decimal(ledger_table._short(found(value, se)))
        unit = Decimal(1).scaleb(shown.as_tuple().exponent)
        assert abs(shown - Decimal(value)) <= unit / 2
        assert unit <= Decimal(se) < 10 * unit
    assert ledger_table._short(found(0.1790312, 2.1e-6)) == "0.1790"
    assert ledger_table._short(found(-15.749412, 9.2e-4)) == "-15.75"
    assert ledger_table._short(found(0.0, 0.02)) == "0.00"
    assert ledger_table._short(found(1.25, None, "not available")) == "1.25 ± n/a"
    assert ledger_table._short(found(float("nan"), None, "not available")) == "n/a"
    assert ledger_table._short(found(3.0, float("inf"))) == "3 ± ∞"
    assert ledger_table._short(None) == "—"


@pytest.mark.parametrize(
    ("verdicts", "shown"),
    [
        ({}, "confirmed 4 of 8"),
        ({"ledger.std": Outcome.INCONCLUSIVE}, "inconclusive 4 of 8"),
        ({"ledger.std": Outcome.UNDEFINED}, "undefined ✗ std 3 of 8"),
        ({"ledger.std": Outcome.NOT_RUN}, "confirmed 3 of 8"),
        (
            {"ledger.mean": Outcome.INCONCLUSIVE, "ledger.within_std": Outcome.REFUTED},
            "refuted ✗ within-row std 4 of 8",
        ),
        ({"gradient.burstiness": Outcome.REFUTED}, "refuted ✗ (expected undefined) bursts 5 of 8"),
    ],
)
def test_the_verdict_is_the_worst_one(verdicts, shown):
    of = run(pipeline("dot", 8.0, verdicts=verdicts))
    (line,) = body(of, 200)
    assert " ".join(line.split()).endswith(f" {shown}")


def test_without_an_error_bar_nothing_is_judged():
    every = pipeline("scale:sqrt", 1.0)
    bare = dataclasses.replace(every[1], estimate=found(1.0, None, "not available"))
    judged = [
        ledger_table._Account(
            section="", change="scale:sqrt", checks={row.id: row for row in some}
        ).judged
        for some in (every, [every[0], bare, *every[2:]])
    ]
    assert judged == ["4 of 8", "3 of 8"]


def test_nothing_judged_is_no_confirmation():
    names = ("mean", "std", "within_std", "entropy")
    of = run(pipeline("dot", 8.0, verdicts={f"ledger.{n}": Outcome.NOT_RUN for n in names}))
    assert body(of, 200)[0].endswith("undefined  0 of 8")


def test_designs_are_sections_however_the_rows_are_sorted():
    small, large = (8, 64), (64, 64)
    of = run(
        pipeline("dot", 2.8, design=small),
        pipeline("dot", 8.0, design=large),
        pipeline("additive", 0.72, design=small),
        pipeline("additive", 0.73, design=large),
    )
    lines = body(of, 200)
    assert [line.split("  (")[0].rstrip()[:10].rstrip() for line in lines] == [
        *("dk=8", "  dot", "  additive"),
        *("dk=64", "  dot", "  additive"),
    ]
    assert [line.split()[3] for line in lines if line.startswith("  dot")] == [
        *("2.8031(36)", "8.009(10)")
    ]
    table_lines = [line for line in text.markdown(of).splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in table_lines] == [
        *("design", "------", "dk=8", "dk=8", "dk=64", "dk=64")
    ]


def test_a_quantity_of_some_pipelines_has_a_column_of_its_own(plain):
    share = check("dot", "ledger.overflow", 0.25, 0.01)
    of = dataclasses.replace(plain, rows=(*plain.rows[:8], share, *plain.rows[8:]))
    assert header(of, 170).endswith("bursts overflow verdict judged")
    dot, norm = body(of, 170)
    assert "  0.250(10)  confirmed  4 of 9" in dot
    assert "  —          confirmed  4 of 8" in norm
    assert "overflow" in header(of, 60)


def test_predictions_that_are_none_limits_or_infinite(plain):
    for kind, value, shown in (
        ("limit", 7.987654, "≈ 7.988"),
        ("infinite", None, "∞"),
        ("none", None, "—"),
    ):
        std = dataclasses.replace(
            plain.rows[1], prediction=Prediction(value=value, kind=kind, source="theory")
        )
        of = dataclasses.replace(plain, rows=(plain.rows[0], std, *plain.rows[2:]))
        assert f"  {shown} " in body(of, 110)[0]


def test_markdown_has_every_column_and_the_errors(open_run):
    lines = text.markdown(open_run).splitlines()
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
        if line.startswith("|")
    ]
    assert cells[0] == [
        *("change", "mean", "std predicted", "std measured", "within-row std", "entropy"),
        *("eff. keys", r"RMS ‖J‖\_F", r"median ‖J‖\_F", "bursts", "verdict", "judged"),
    ]
    assert cells[2] == [
        *("dot", "0.038(59)", "8", "8.009(10)", "8.010(10)", "3.6856(14)", "28.116(64)"),
        *("0.18459(20)", "0.1790312(21)", "1.0984(51)", "refuted ✗ std, entropy", "4 of 8"),
    ]
    assert {len(line) for line in cells} == {12}
    assert any(line.startswith("8.009(10) is 8.009 ± 0.010; ") for line in lines)


def test_a_bar_in_a_pipeline_does_not_split_a_cell(plain):
    assert r"| qk_norm:rms \| scale:sqrt |" in text.markdown(plain)


def test_colour_adds_nothing_but_colour(open_run):
    assert ANSI.sub("", rendered(open_run, 100, color=True)) == rendered(open_run, 100)
    assert "\x1b[1;31mrefuted ✗ std, entropy" in rendered(open_run, 100, color=True)


def test_outcome_notes_and_reasons_follow(open_run):
    below = rendered(open_run, 100).partition("judged: ")[2]
    assert (
        below.index("2 refuted") < below.index("A note.") < below.index("\nrefuted ✗  ledger.std")
    )


def test_other_commands_keep_their_table(plain):
    other = dataclasses.replace(plain, command="gradient")
    assert not rows.accounts_for_changes(other)
    assert "tolerance" in rendered(other, 120)
    assert not rows.accounts_for_changes(dataclasses.replace(plain, rows=()))


def test_the_table_is_made_from_the_record_alone(open_run):
    again = record.loads(record.dumps(open_run), "run.json")
    assert rendered(again, 100) == rendered(open_run, 100)
    assert text.markdown(again) == text.markdown(open_run)


def test_a_text_from_a_record_does_not_steer_the_terminal():
    assert "\x1b" not in rendered(run(pipeline("dot\x1b[2J", 8.0)), 100)
