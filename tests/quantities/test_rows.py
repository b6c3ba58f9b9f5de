"""What is measured of rows for the numbers that are asked for."""

from __future__ import annotations

import pytest

from sdpa_check import engine
from sdpa_check.logits import scaling
from sdpa_check.measures.row_scores import RowsShape
from sdpa_check.measures.rows import AVERAGED, NORMS, RowsWork
from sdpa_check.quantities import QUANTITIES, Case, Quantity, Sample, quantity
from sdpa_check.quantities.rows import LEVELS, STATISTICS, depth
from sdpa_check.records import Design
from sdpa_check.rng import generator

DESIGN = Design(dk=16, keys=8)
SQRT = scaling.parse("sqrt")
ASKED = [
    (each.name, statistic)
    for each in QUANTITIES.values()
    if isinstance(each, Quantity) and each.sampling == "rows" and not each.sweep
    for statistic in (STATISTICS if "statistic" in each.params else (None,))
]


def asked_of(*pairs):
    """Quantities and cases, from names and statistics."""
    return [
        (quantity(name), Case(designs=(DESIGN,), scale=SQRT, statistic=statistic))
        for name, statistic in pairs
    ]


def measured(depths):
    work = RowsWork(DESIGN, (0.25,), RowsShape(2, 8, 2), depths=depths)
    work = work.with_grids(generator(0, "grids", 0))
    return Sample(
        work=work, replicates=engine.run(work, seed=0, blocks=32, jobs=1), multiplier=0.25
    )


@pytest.mark.parametrize(("name", "statistic"), ASKED)
def test_what_is_read_is_measured_and_nothing_else(name, statistic):
    ((asked, case),) = pairs = asked_of((name, statistic))
    alone = depth(pairs, judged=True)
    assert alone.closer == 1
    read = (*alone.averaged, *alone.squared, *alone.counted)
    assert set(read) == set(asked.parts)
    assert len(read) == (2 if name == "softmax.argmax_distance" else 1)
    found, right = (asked.estimate(case, (measured(each),)) for each in ((alone,), ()))
    assert found.value == pytest.approx(right.value, rel=1e-12)  # sums in another order
    assert found.se == pytest.approx(right.se, rel=1e-9)


def test_how_a_norm_is_summarised_decides_what_is_measured():
    norms = asked_of(
        ("jacobian.trace", "mean"),
        ("jacobian.frobenius", None),
        ("jacobian.inf_norm", "rms"),
        *(("jacobian.spectral", level) for level in LEVELS),
    )
    found = depth(norms, judged=True)
    assert found.averaged == ("trace",)
    assert found.squared == ("frobenius", "inf_norm")
    assert found.counted == ("spectral",)
    assert found.spectral


def test_names_come_in_the_order_of_the_sums():
    every = asked_of(*ASKED)
    found = depth(every, judged=True)
    assert found.averaged == AVERAGED
    assert found.squared == found.counted == NORMS
    assert depth(reversed(every), judged=True) == found


@pytest.mark.parametrize(
    ("pair", "closer"),
    [
        (("jacobian.frobenius", "rms"), 1),
        (("softmax.entropy", None), 1),
        (("jacobian.frobenius", "median"), 4),
        (("jacobian.spectral", "rms"), 4),
    ],
)
def test_what_is_only_shown_is_looked_at_less(pair, closer):
    assert depth(asked_of(pair), judged=False).closer == closer


def test_the_growth_of_the_deficit_reads_the_deficit():
    growth = quantity("softmax.deficit_exponent")
    case = Case(designs=(DESIGN, Design(dk=64, keys=8)), scale=SQRT)
    assert depth([(growth, case)], judged=False).averaged == ("entropy_deficit",)
