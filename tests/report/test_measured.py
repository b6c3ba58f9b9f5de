from __future__ import annotations

import dataclasses

import pytest

from sdpa_check.quantities import Case, quantity
from sdpa_check.records import Design, Outcome, Run
from sdpa_check.report import measured, rows


def _text(run: Run) -> list[list[str]]:
    """The lines of each grid."""
    return [[text for text, _ in measured.lines(grid)] for grid in measured.grids(run)]


def _of_one_case(run: Run) -> Run:
    params = dict(run.rows[0].params)
    alone = [row for row in run.rows if params.items() <= row.params.items()]
    return dataclasses.replace(run, rows=tuple(alone))


def _changed(run: Run, index: int, **changes: object) -> Run:
    some = list(run.rows)
    some[index] = dataclasses.replace(some[index], **changes)
    return dataclasses.replace(run, rows=tuple(some))


def test_the_theory_says_measured_only_as_this_module_reads_it():
    case = Case(designs=(Design(dk=8, keys=4),), statistic="median")
    assert quantity("jacobian.spectral").predict(case).source.startswith(measured.SOURCE)


def test_only_rows_without_any_prediction_are_measured_only(spread, mixed, sweep):
    own, only = measured.partition(spread)
    assert {row.prediction.kind for row in own} == {"exact"}
    assert {row.prediction.kind for row in only} == {"none"}
    assert sorted(row.id for row in (*own, *only)) == sorted(row.id for row in spread.rows)
    for run in (mixed, sweep):
        assert measured.partition(run) == (list(run.rows), [])
        assert measured.grids(run) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": Outcome.REFUTED},
        {"verdict": Outcome.NOT_RUN},
        {"expected": Outcome.CONFIRMED},
        {"estimate": None},
    ],
)
def test_a_row_that_is_not_as_expected_keeps_its_own_line(spread, changes):
    run = _changed(spread, 1, **changes)
    assert run.rows[1] in measured.partition(run)[0]


@pytest.mark.parametrize("kind", ["infinite", "limit", "exact", "stated"])
def test_a_row_with_a_prediction_keeps_its_own_line(spread, kind):
    prediction = dataclasses.replace(spread.rows[1].prediction, kind=kind)
    run = _changed(spread, 1, prediction=prediction)
    assert run.rows[1] in measured.partition(run)[0]


def test_a_number_that_theory_calls_undefined_keeps_its_own_line(spread):
    prediction = dataclasses.replace(spread.rows[1].prediction, source="a component has no mean")
    run = _changed(spread, 1, prediction=prediction)
    assert run.rows[1] in measured.partition(run)[0]


def test_rows_that_go_by_their_id_keep_their_own_lines(spread):
    assert measured.partition(dataclasses.replace(spread, command="verify"))[1] == []
    twice = dataclasses.replace(spread, rows=(*spread.rows, spread.rows[1]))
    assert measured.partition(twice)[1] == []


def test_grids_of_a_sweep(spread):
    numbers, statistics = _text(spread)
    assert numbers == [
        "  scale  softmax.max_weight  softmax.effective_keys",
        "keys=8",
        "  none   0.79096(17)          28.1016(95)",
        "  dk     0.19774(17)         112.4064(95)",
        "keys=64",
        "  none   0.79096(17)          28.1016(95)",
        "  dk     0.19774(17)         112.4064(95)",
    ]
    assert statistics[:6] == [
        "  jacobian   scale  mean          rms          median       95 %",
        "keys=8",
        "  frobenius  none   0.70000(17)   0.80000(20)  0.60000(15)  1e-7 ± n/a",
        "             dk     0.17500(17)   0.20000(20)  0.15000(15)  2.5e-8 ± n/a",
        "  trace      none   0.70000(23)   0.80000(20)  0.60000(15)  1e-7 ± n/a",
        "             dk     0.175000(58)  0.20000(20)  0.15000(15)  2.5e-8 ± n/a",
    ]
    assert [heading for _, heading in measured.lines(measured.grids(spread)[0])] == [
        *(True, True, False, False),
        *(True, False, False),
    ]


def test_a_single_design_has_no_names_before_its_numbers(spread):
    assert _text(_of_one_case(spread)) == [
        [
            "softmax.max_weight  softmax.effective_keys",
            "0.79096(17)         28.1016(95)",
        ],
        [
            "jacobian   mean         rms          median       95 %",
            "frobenius  0.70000(17)  0.80000(20)  0.60000(15)  1e-7 ± n/a",
            "trace      0.70000(23)  0.80000(20)  0.60000(15)  1e-7 ± n/a",
        ],
    ]


def test_every_number_stands_in_its_line_and_column(spread):
    found = {
        (line.section, *line.labels, column): text
        for grid in measured.grids(spread)
        for line in grid.lines
        for column, text in line.cells.items()
    }
    only = measured.partition(spread)[1]
    assert len(found) == len(only) + 4  # a mean of the trace in each design is judged
    for row in only:
        section, scale = f"keys={row.params['keys']}", str(row.params["scale"])
        statistic = row.params.get("statistic")
        names = [scale, row.quantity]
        if statistic:
            label = row.quantity.removeprefix("jacobian.")
            names = [label, scale, "95 %" if statistic == "q95" else statistic]
        assert found[section, *names] == rows.concise(row.estimate)


def test_a_quantity_all_of_whose_statistics_are_judged_is_no_line(spread):
    judged = spread.rows[-4].prediction
    assert judged.kind == "exact"
    some = [
        dataclasses.replace(row, prediction=judged) if row.quantity == "jacobian.trace" else row
        for row in spread.rows
    ]
    grid = measured.grids(dataclasses.replace(spread, rows=tuple(some)))[1]
    assert {line.labels[0] for line in grid.lines} == {"frobenius"}


def test_quantities_of_two_families_keep_their_full_names(spread):
    some = [
        dataclasses.replace(row, quantity=row.quantity.replace("jacobian.trace", "gradient.query"))
        for row in spread.rows
    ]
    grid = measured.grids(dataclasses.replace(spread, rows=tuple(some)))[1]
    assert grid.labels == ("", "scale")
    assert {line.labels[0] for line in grid.lines} == {"jacobian.frobenius", "gradient.query"}


def test_what_only_some_rows_have_belongs_to_the_name_of_the_quantity(spread):
    run = _changed(spread, 1, params=spread.rows[1].params | {"level": 0.25})
    numbers = measured.grids(run)[0]
    assert numbers.columns == (
        "softmax.max_weight level=0.25",
        "softmax.effective_keys",
        "softmax.max_weight",
    )
    assert _text(run)[0][2].split() == ["none", "0.79096(17)", "28.1016(95)", "—"]


def test_columns_are_left_out_by_their_importance(spread):
    grid = measured.grids(spread)[1]
    widths = {}
    for width in range(44, 101):
        (narrow,) = measured.fitted(grid, width)
        assert all(len(text) <= width for text, _ in measured.lines(narrow))
        widths.setdefault(narrow.columns, width)
    assert widths == {
        ("rms", "median"): 44,
        ("mean", "rms", "median"): len(
            "  frobenius  none   0.175000(58)  0.80000(20)  0.60000(15)"
        ),
        ("mean", "rms", "median", "95 %"): len(
            "  frobenius  none   0.175000(58)  0.80000(20)  0.60000(15)  2.5e-8 ± n/a"
        ),
    }


def test_what_may_not_be_left_out_goes_below(spread):
    grid = measured.grids(spread)[0]
    assert [each.columns for each in measured.fitted(grid, 51)] == [grid.columns]
    assert [each.columns for each in measured.fitted(grid, 50)] == [
        ("softmax.max_weight",),
        ("softmax.effective_keys",),
    ]
    assert [each.columns for each in measured.fitted(measured.grids(spread)[1], 30)] == [
        ("rms",),
        ("median",),
    ]


def test_columns_that_are_all_optional_stay(spread):
    tails = [row for row in spread.rows if row.params.get("statistic") in (None, "q95")]
    run = dataclasses.replace(spread, rows=tuple(tails))
    (grid,) = measured.fitted(measured.grids(run)[1], 10)
    assert grid.columns == ("95 %",)


def test_title_explains_the_notation_and_names_what_is_left_out(spread):
    grids = measured.grids(spread)
    says = "measured only (no closed form); 0.79096(17) is 0.79096 ± 0.00017"
    assert measured.title(spread, grids) == says
    narrow = [piece for grid in grids for piece in measured.fitted(grid, 40)]
    assert measured.title(spread, narrow) == f"{says}; no room for mean, 95 %"


def test_title_without_any_error_bar(spread):
    tails = [row for row in spread.rows if row.params.get("statistic") in (None, "q95")]
    bare = [
        row for row in tails if row.quantity not in ("softmax.max_weight", "softmax.effective_keys")
    ]
    run = dataclasses.replace(spread, rows=tuple(bare))
    assert measured.title(run, measured.grids(run)) == "measured only (no closed form)"


def test_a_statistic_is_a_column_where_every_row_has_one(spread):
    some = tuple(row for row in spread.rows if "statistic" in row.params)
    (grid,) = measured.grids(dataclasses.replace(spread, rows=some))
    assert grid.labels == ("jacobian", "scale")
    assert grid.columns == ("mean", "rms", "median", "95 %")
