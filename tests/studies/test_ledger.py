"""`ledger`: the account of attention changes, and what is refused."""

from __future__ import annotations

import math
import sys

import pytest

import sdpa_check
from sdpa_check.errors import InputError
from sdpa_check.records import Run
from sdpa_check.studies.ledger import ASKED, CHANGES

QUICK = {"samples": 1024, "seed": 1}
OWN = """
import numpy as np

def halved(x):
    return x / 2

def nan(x):
    return x - np.inf + np.inf

def short(x):
    return x[:1]

def raising(x):
    raise ZeroDivisionError("of its own")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's own, in a directory on the path."""
    (tmp_path / "own_ledger.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_ledger"
    sys.modules.pop("own_ledger", None)


def ledger(*pipelines, dk=8, keys=6, sort="none", **options):
    return sdpa_check.ledger(pipelines, dk, keys, sort, **{**QUICK, **options})


def pipelines(run):
    return list(dict.fromkeys(row.params["pipeline"] for row in run.rows))


def std(row, run, text, **params):
    return row(run, "ledger.std", pipeline=text, **params).estimate.value


def test_rows_come_in_the_order_of_the_pipelines(within_error):
    texts = ["temperature:2 | scale:sqrt", "qk_norm:rms", "rope | scale:dk"]
    run = ledger(*texts, dk=[8, 4], keys=[2, 6])
    assert isinstance(run, Run)
    assert run.command == "ledger"
    asked = [(r.params["dk"], r.params["keys"], r.params["pipeline"]) for r in run.rows]
    designs = [(8, 2), (8, 6), (4, 2), (4, 6)]
    assert asked == [(*design, text) for design in designs for text in texts for _ in ASKED]
    assert [(r.quantity, r.params.get("statistic")) for r in run.rows[: len(ASKED)]] == list(ASKED)
    assert run.design["pipeline"] == texts
    assert run.design["dk"] == [8, 4]
    within_error(run)


def test_equal_pipelines_are_one():
    run = ledger("scale:sqrt", " Scale: sqrt ", "dot | scale:sqrt", "scale:none")
    assert pipelines(run) == ["scale:sqrt", "scale:none"]
    assert pipelines(ledger("scale:sqrt")) == ["scale:sqrt"]
    assert sdpa_check.ledger("scale:sqrt", 8, 6, **QUICK).design["pipeline"] == ["scale:sqrt"]


def test_the_default_changes(within_error):
    run = sdpa_check.ledger(dk=16, keys=8, **QUICK)
    assert pipelines(run) == list(CHANGES)
    within_error(run)
    for row in run.rows:
        assert math.isfinite(row.estimate.value), row.id
        if row.quantity in {"ledger.mean", "ledger.std", "ledger.within_std"}:
            assert row.prediction.kind == "exact", row.id
    notes = " ".join(run.notes)
    assert "QK-norm does not replace the scale: at d_k=16 the logit std is" in notes
    assert "ALiBi of slope 0.5 over 8 keys" in notes


@pytest.mark.parametrize("sort", ["std", "entropy", "frobenius", "burstiness"])
def test_sort(sort):
    quantity, statistic = {
        "std": ("ledger.std", None),
        "entropy": ("ledger.entropy", None),
        "frobenius": ("ledger.frobenius", "rms"),
        "burstiness": ("gradient.burstiness", None),
    }[sort]
    run = ledger("scale:0.1", "dot", "scale:sqrt", "qk_norm:l2", sort=sort)
    values = [
        r.estimate.value
        for r in run.rows
        if (r.quantity, r.params.get("statistic")) == (quantity, statistic)
    ]
    assert values == sorted(values)
    assert len(values) == 4
    assert len(pipelines(run)) == 4
    # Every pipeline keeps its rows together, and in their order.
    for start in range(0, len(run.rows), len(ASKED)):
        group = run.rows[start : start + len(ASKED)]
        assert len({row.params["pipeline"] for row in group}) == 1
        assert [(r.quantity, r.params.get("statistic")) for r in group] == list(ASKED)


def test_a_pipeline_that_overflows_is_sorted_last():
    options = {"mean": 1000.0, "sigma": 1.0, "dk": 64}
    run = ledger("dot | dtype:float16", "scale:sqrt", "scale:0.001", sort="std", **options)
    assert pipelines(run) == ["scale:0.001", "scale:sqrt", "dot | dtype:float16"]


def test_qk_norm_does_not_replace_the_scale(row):
    """Standard deviations at d = 64 that theory gives exactly; four digits of what is measured."""
    run = ledger("qk_norm:layer", "qk_norm:rms", "qk_norm:l2", dk=64, keys=64, samples=4096)
    for kind, value in (("layer", 8.063), ("rms", 8.0), ("l2", 0.125)):
        found = row(run, "ledger.std", pipeline=f"qk_norm:{kind}")
        assert found.prediction.kind == "exact"
        assert found.prediction.value == pytest.approx(value, abs=5e-4)
        # 64 blocks at t of 1e-6/3: a false alarm with P = 1e-6 in all.
        assert abs(found.estimate.value - value) < 6.1 * found.estimate.se + 5e-4
        assert found.estimate.se < 0.01 * value
    assert any("QK-norm does not replace the scale: at d_k=64" in note for note in run.notes)


@pytest.mark.parametrize("mean", [0.0, 0.25], ids=["float32", "float64"])
def test_a_scale_split_over_q_and_k_is_the_scale(row, mean):
    """d^−¼ on both sides, on the same draws: every number but for rounding.

    A mean is drawn in float64, where logits stay; what the softmax sees is float32 in either case.
    A logit has d + 4 roundings relative to the size of its terms, which differ between pipelines.
    """
    run = ledger("scale:sqrt", "scale_qk:pow:-0.25", "scale_q:sqrt", dk=7, mean=mean)
    single = 2 * (7 + 4) * 2.0**-24
    for quantity, statistic in ASKED:
        if quantity == "ledger.mean":
            continue
        params = {"statistic": statistic} if statistic else {}
        one, *others = (
            row(run, quantity, pipeline=text, **params).estimate.value for text in pipelines(run)
        )
        exact = mean and quantity in {"ledger.std", "ledger.within_std"}
        assert others == pytest.approx([one, one], rel=1e-12 if exact else single)
    means = [row(run, "ledger.mean", pipeline=t).estimate.value for t in pipelines(run)]
    assert means == pytest.approx([means[0]] * 3, abs=1e-14 if mean else single)


def test_float16_overflows_in_the_raw_product_only(row):
    """64 · 32² = 65 536 beside the largest float16, 65 504: theory, section 8."""
    texts = ("dot | dtype:float16", "scale_q:sqrt | dtype:float16 | dot | dtype:float16")
    run = ledger(*texts, dk=64, keys=6, mean=32.0, sigma=0.032)
    raw, scaled = (row(run, "ledger.overflow", pipeline=text).estimate.value for text in texts)
    assert raw > 0.9  # a row is lost with one of its six logits, each of which is at 92 %
    assert scaled == 0
    # 65 536/8, on a lattice of steps of 8, 2^13 being in [2^13, 2^14).
    mean = row(run, "ledger.mean", pipeline=texts[1])
    assert mean.estimate.value == pytest.approx(8192, abs=8)
    assert mean.prediction.kind == "limit"
    plain = ledger("scale:sqrt")
    assert all(found.quantity != "ledger.overflow" for found in plain.rows)


def test_all_rows_may_overflow():
    run = ledger("dot | dtype:float16", dk=64, mean=1000.0, sigma=1.0)
    found = {r.quantity: r.estimate for r in run.rows}
    assert found["ledger.overflow"].value == 1
    assert found["ledger.std"].withheld == "not available (every row overflows)"
    assert run.outcome


def test_a_function_of_the_user(own, row):
    # A mean keeps both in float64, where a function of the user's own always runs.
    run = ledger("scale:sqrt", f"scale:sqrt | user:{own}:halved", mean=0.25)
    one, other = (std(row, run, text) for text in pipelines(run))
    assert other == pytest.approx(one / 2, rel=1e-12)
    prediction = row(run, "ledger.std", pipeline=f"scale:sqrt | user:{own}:halved").prediction
    assert prediction.value is None


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("nan", "NaN out of finite numbers"),
        ("short", "returned shape"),
        ("raising", "ZeroDivisionError: of its own"),
        ("halve", "did you mean 'halved'?"),
    ],
)
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_function_of_the_user_that_is_broken(own, function, said, jobs):
    with pytest.raises(InputError) as caught:
        ledger("scale:sqrt", f"scale:sqrt | user:{own}:{function}", jobs=jobs)
    assert f"user:{own}:{function}" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("pipeline", "options", "said"),
    [
        ("scale:sqrt | sofcap:5", {}, "did you mean 'softcap'?"),
        ("scale:sqrt | sofcap:5", {}, "step 2 of 2"),
        ("rope", {"dk": [8, 7]}, "d_k = 7 is odd"),
        ("scale:sqrt | qk_norm:rms", {}, "before step 1, scale:sqrt"),
        ("scale:sqr", {}, "scale:sqr"),
        ("", {}, "at least one step"),
        ("scale:sqrt_dmodel", {}, "d"),
        ("user:no_such_module_here:f", {}, "importing no_such_module_here failed"),
        ("scale:sqrt", {"corr": "qk:0.5"}, "--corr: got 'qk:0.5'"),
        ("scale:sqrt", {"sort": "variance"}, "--sort: got 'variance', want one of none, std"),
        ("scale:sqrt", {"keys": 1}, "--keys: got 1"),
        ("scale:sqrt", {"bogus": 1}, "bogus"),
    ],
)
def test_refused(pipeline, options, said):
    with pytest.raises(InputError) as caught:
        ledger("dot", pipeline, **options)
    assert said in str(caught.value)


def test_numbers_depend_on_the_seed_and_not_on_jobs_or_company():
    def values(run):
        return [r.estimate.value for r in run.rows if r.params["pipeline"] == "additive"]

    one = values(ledger("additive", jobs=1))
    assert values(ledger("scale:sqrt", "additive", jobs=2)) == one
    assert values(ledger("additive", jobs=1, seed=2)) != one
