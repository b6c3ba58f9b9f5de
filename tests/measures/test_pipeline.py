"""Sums of a block behind a pipeline, against loops over its rows; the gradient, by other routes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from sdpa_check import rng, softmax
from sdpa_check.errors import InputError
from sdpa_check.measures import pipeline as measure
from sdpa_check.measures import scores
from sdpa_check.measures.pipeline import (
    AVERAGED,
    LOGITS,
    PARTS,
    SPREAD,
    PipelineWork,
    _finite,
    _first,
    _kept,
    _moments,
    _rows,
    _through_softmax,
    pipeline_of,
)
from sdpa_check.records import Component, Design, Fault

UNIT = 2.0**-24
"""The rounding unit of float32."""

DESIGNS = {
    "drawn in float32": Design(dk=6, keys=5),
    "drawn in float64": Design(dk=6, keys=5, key=Component(mean=0.25)),
    "two keys": Design(dk=6, keys=2),
    "ar1": Design(dk=6, keys=5, corr="ar1:0.5"),
    "cauchy": Design(dk=6, keys=5, query=Component(distribution="cauchy")),
}
designs = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)


def work_of(design, pipeline, groups=3, queries=4, **changes):
    return PipelineWork(design, pipeline, groups, queries, **changes)


def generator(work, block=0):
    return rng.generator(0, work.experiment, block)


def drawn(work):
    """q (d, n) and k (d, m) of every set of block 0, and ∂L/∂p (n, m) and ‖x‖ (n,) of its rows."""
    g, design = generator(work), work.design
    g.integers(2**63)  # the seed of what a pipeline draws itself
    vectors = []
    for _ in range(work.groups):
        q = scores.vectors(g, design, design.query, work.queries, work.fault)
        k = scores.vectors(g, design, design.key, design.keys, work.fault)
        vectors.append((q.astype(float), k.astype(float)))
    upstream = g.standard_normal((work.size, design.keys), dtype=np.float32).astype(float)
    inputs = np.sqrt(g.chisquare(work.d_model or design.dk, work.size))
    n = work.queries
    for i, (q, k) in enumerate(vectors):
        yield q, k, upstream[i * n : (i + 1) * n], inputs[i * n : (i + 1) * n]


def dot(q, k):
    return [[math.fsum(a * b for a, b in zip(x, y, strict=True)) for y in k.T] for x in q.T]


def half(x):
    """Rounded to float16, where ±∞ stands for what is too large."""
    with np.errstate(over="ignore"):
        return np.array(x).astype(np.float16).astype(float)


def normed(x):
    return x / np.sqrt((x**2).mean(axis=0))


def penalties(k):
    return 0.5 * np.arange(k.shape[1] - 1, -1, -1)


def terms(q, k):
    """What the terms of a dot product add up to in size."""
    return np.abs(q).T @ np.abs(k)


LOOPS = {  # logits, the c of c q·k, and the size of the terms that logits are added up from
    "scale:sqrt": (
        lambda q, k: np.array(dot(q, k)) / math.sqrt(len(q)),
        1 / math.sqrt(6),
        lambda q, k: terms(q, k) / math.sqrt(6),
    ),
    "qk_norm:rms | softcap:5": (
        lambda q, k: 5 * np.tanh(np.array(dot(normed(q), normed(k))) / 5),
        None,
        lambda q, k: terms(normed(q), normed(k)),
    ),
    "alibi:0.5": (
        lambda q, k: np.array(dot(q, k)) - penalties(k),
        None,
        lambda q, k: terms(q, k) + penalties(k),
    ),
}


def logits_twin(work):
    """The sums of the logits by loops, and how far rounding may take every one of them."""
    logits, _, size = LOOPS[work.pipeline]
    sums, rounding = dict.fromkeys(LOGITS, 0.0), 0.0
    for q, k, _, _ in drawn(work):
        # d roundings of the product, d/2 + 4 of either norm, and a few of the steps.
        rounding = max(rounding, float((2 * len(q) + 16) * unit(work) * size(q, k).max()))
        for row in logits(q, k):
            if not np.isfinite(row).all():
                sums["overflow"] += 1
                continue
            sums["rows"] += 1
            sums["count"] += len(row)
            sums["sum"] += math.fsum(row)
            sums["square"] += math.fsum(row**2)
            sums["within"] += row.var(ddof=1)
    # A sum loses what its terms lose, and a few units of the terms' own size; a row has 5 terms.
    large = math.sqrt(sums["square"] * sums["count"])
    near = dict.fromkeys(LOGITS, 0.0)
    near["sum"] = sums["count"] * rounding + 8 * unit(work) * large
    near["square"] = 2 * large * rounding + 16 * unit(work) * sums["square"]
    near["within"] = 2 * near["square"]
    return sums, near


def unit(work):
    return UNIT if work._in_single_precision else 2.0**-53


def rows_twin(work):
    """The statistics of every finite row by loops, with softmax and J written out.

    With each stands how far rounding may take it. A difference of logits is rounded to float32
    and every weight has the relative error of it, `tilt`; sums of weights have a few more units.
    Numbers that add up to a difference are held against the sum of their sizes.
    """
    logits, multiplier, size = LOOPS[work.pipeline]
    rows, errors = [], []
    for q, k, upstream, inputs in drawn(work):
        rounding = (2 * len(q) + 16) * unit(work) * size(q, k).max(axis=1)
        for row, g, length, of_x in zip(logits(q, k), upstream, inputs, rounding, strict=True):
            if not np.isfinite(row).all():
                continue
            below = row - row.max()
            p = np.exp(below)
            p /= p.sum()
            jacobian = np.diag(p) - np.outer(p, p)
            h = np.abs(g - g[p.argmax()])
            sizes = p * (h + p @ h)
            second = np.sort(below)[-2]
            tilt = 2 * of_x + UNIT * (abs(second) + 50)  # what is e^−50 beside it hardly counts
            near = 4 * tilt + 40 * UNIT
            passed = jacobian @ g
            c = abs(multiplier or 0.0)
            back = c * np.linalg.norm(k @ passed)
            entropy = -sum(w * math.log(w) for w in p if w)
            rows.append(
                {
                    "entropy": entropy,
                    "max_weight": p.max(),
                    "effective_keys": 1 / (p @ p),
                    "frobenius": np.linalg.norm(jacobian),
                    "gradient_logits": np.linalg.norm(passed),
                    "gradient_query": back,
                    "gradient_w_q": back * length,
                }
            )
            way = c * near * np.linalg.norm(np.abs(k) @ sizes)
            errors.append(
                # The loop itself loses what is tiny beside 1 to cancellation.
                {name: near * rows[-1][name] + 1e-12 for name in (*AVERAGED, "frobenius")}
                | {
                    "gradient_logits": near * np.linalg.norm(sizes) + 1e-12,
                    "gradient_query": way + 1e-12 * c * np.abs(k).sum(),
                    "gradient_w_q": (way + 1e-12 * c * np.abs(k).sum()) * length,
                }
            )
    return (
        {name: np.array([row[name] for row in each]) for name in rows[0]} for each in (rows, errors)
    )


@designs
@pytest.mark.parametrize("pipeline", LOOPS)
def test_block_twin(design, pipeline):
    work = work_of(design, pipeline)
    found, rows = work._statistics(generator(work))
    right, near = logits_twin(work)
    for name, value in zip(LOGITS, found, strict=True):
        assert abs(value - right[name]) <= near[name], name
        assert near[name] <= 1e-4 * right["square"], name  # the bound says something
    right, near = rows_twin(work)
    assert set(rows) == {*AVERAGED, *SPREAD}
    for name, values in rows.items():
        assert (np.abs(values - right[name]) <= near[name]).all(), name
    assert (near["entropy"] < 1e-3).all()


@pytest.mark.parametrize("pipeline", LOOPS)
def test_a_block_sums_over_its_rows(pipeline):
    work = work_of(DESIGNS["drawn in float32"], pipeline)
    work = work.with_grids(rng.generator(0, "grids", 0))
    sums = work.block(generator(work))
    logits, rows = work._statistics(generator(work))
    assert set(sums) == set(PARTS)
    np.testing.assert_array_equal(sums["logits"], logits)
    for name in AVERAGED:
        assert sums[name].tolist() == [12, pytest.approx(rows[name].sum(), rel=1e-14)]
    for name, grid in zip(SPREAD, work.grids, strict=True):
        assert sums[name].tolist() == [12, pytest.approx((rows[name] ** 2).sum(), rel=1e-14)]
        np.testing.assert_array_equal(sums[f"histogram.{name}"], grid.counts(rows[name]))
        assert sums[f"histogram.{name}"].sum() == 12
        assert work.grid(name) is grid


def test_rows_that_overflow_are_counted_and_left_out(monkeypatch):
    """Entries of std 150² √6 = 55 000 beside the largest float16, 65 504."""
    text = "dot | dtype:float16"
    monkeypatch.setitem(LOOPS, text, (lambda q, k: half(dot(q, k)), None, terms))
    wide = Component(sigma=150.0, mean=1.0)
    work = work_of(Design(dk=6, keys=3, query=wide, key=wide), text, groups=4, queries=8)
    work = work.with_grids(rng.generator(0, "grids", 0))
    sums, (logits, _) = work.block(generator(work)), logits_twin(work)
    assert 0 < logits["overflow"] < work.size
    assert dict(zip(LOGITS, sums["logits"], strict=True)) == pytest.approx(logits, rel=1e-12)
    assert logits["rows"] + logits["overflow"] == work.size
    right, near = rows_twin(work)
    _, rows = work._statistics(generator(work))
    for name, values in rows.items():
        assert (np.abs(values - right[name]) <= near[name]).all(), name
        assert (sums[name][0] == sums["logits"][LOGITS.index("rows")]).all()
    assert sums["histogram.frobenius"].sum() == logits["rows"]


def test_rows_keep_the_keys_of_their_set_where_others_overflow():
    work = work_of(DESIGNS["drawn in float64"], "scale:sqrt", groups=4)
    x, keys = work._logits(generator(work))

    def gradients(x):
        return work._gradients(rng.generator(0, "upstream", 0), x, _finite(x), keys)

    whole = gradients(x)
    lost = [1, 8, 9, 10, 11, 15]  # one of the first set, all of the third, one of the last
    for row in lost:
        x[row // 4, row % 4, row % 5] = (np.inf, -np.inf, np.nan)[row % 3]
    assert np.flatnonzero(~_finite(x)).tolist() == lost
    assert _moments(x, _finite(x))[LOGITS.index("overflow")] == len(lost)
    for name, values in gradients(x).items():
        right = np.delete(whole[name], lost)
        np.testing.assert_allclose(values, right, rtol=1e-6, err_msg=name)


def test_a_block_without_a_finite_row():
    wide = Component(sigma=1e5, mean=1.0)
    work = work_of(Design(dk=6, keys=40, query=wide, key=wide), "dot | dtype:float16")
    sums = work.block(generator(work))
    assert dict(zip(LOGITS, sums["logits"], strict=True)) == dict.fromkeys(LOGITS, 0.0) | {
        "overflow": work.size
    }
    for name in (*AVERAGED, *SPREAD):
        assert not sums[name].any()


# --- what is measured --------------------------------------------------------------------------

SUBSETS = (
    ("logits",),
    ("entropy",),
    ("frobenius", "histogram.frobenius"),
    ("gradient_logits",),
    ("histogram.gradient_query",),
    ("logits", "max_weight", "gradient_w_q"),
    ("effective_keys", "gradient_query", "histogram.gradient_w_q"),
)


@pytest.mark.parametrize("pipeline", ["scale:sqrt", "additive", "proj:xavier,16 | scale:sqrt"])
@pytest.mark.parametrize("parts", SUBSETS, ids="+".join)
def test_parts_are_those_of_a_full_block(pipeline, parts):
    """To the last bit: what is measured beside it moves no draw, and no number."""
    work = work_of(DESIGNS["drawn in float32"], pipeline, weights=2, d_model=8)
    full = work.with_grids(rng.generator(0, "grids", 0))
    grids = tuple(full.grid(name) for name in SPREAD if f"histogram.{name}" in parts)
    some = dataclasses.replace(full, parts=parts, grids=grids)
    assert some.experiment == full.experiment
    sums, right = some.block(generator(some)), full.block(generator(full))
    assert set(sums) == set(parts)
    for name in parts:
        np.testing.assert_array_equal(sums[name], right[name])
    with_own = dataclasses.replace(some, grids=()).with_grids(rng.generator(0, "grids", 0))
    assert with_own.grids == grids


def test_nothing_is_computed_that_is_not_asked(monkeypatch):
    design, asked, draws = DESIGNS["drawn in float32"], [], []

    def spy(scores_, multipliers, wanted):
        asked.append(list(wanted[0]))
        return softmax_statistics(scores_, multipliers, wanted)

    def through(x, g):
        asked.append("J g")
        return through_softmax(x, g)

    class Counting(np.random.Generator):
        def standard_normal(self, *args, **kwargs):
            draws.append("normal")
            return super().standard_normal(*args, **kwargs)

        def chisquare(self, *args, **kwargs):
            draws.append("chisquare")
            return super().chisquare(*args, **kwargs)

    softmax_statistics, through_softmax = softmax.chosen_statistics, _through_softmax
    monkeypatch.setattr(softmax, "chosen_statistics", spy)
    monkeypatch.setattr(measure, "_through_softmax", through)
    vectors = 2 * 3 * ["normal"]  # q and k of three sets
    for parts, computed, more in (
        (("logits",), [], []),
        (("entropy",), [["entropy"]], []),
        (("logits", "frobenius"), [["frobenius"]], []),
        (("histogram.frobenius",), [["frobenius"]], []),
        (("gradient_query",), ["J g"], ["normal"]),
        (("gradient_w_q", "max_weight"), [["max_weight"], "J g"], ["normal", "chisquare"]),
    ):
        asked.clear()
        draws.clear()
        work = work_of(design, "scale:sqrt", parts=parts)
        stream = Counting(generator(work).bit_generator)
        work.block(stream)
        assert asked == computed, parts
        assert draws == vectors + more, parts
    monkeypatch.setattr(measure, "_moments", None)
    work_of(design, "dot", parts=("entropy",)).block(rng.generator(0, "", 0))


def test_what_is_only_shown_takes_a_fourth_of_the_rows():
    """The first of every set; what is judged, and shares the work with it, takes all."""
    design, judged = DESIGNS["drawn in float32"], ("logits", "entropy", "histogram.frobenius")
    work = work_of(design, "scale:sqrt", queries=8)
    some = dataclasses.replace(work, shown=tuple(part for part in PARTS if part not in judged))
    (_, found), (_, right) = (w._statistics(generator(w)) for w in (some, work))
    for name in (*AVERAGED, "frobenius"):
        np.testing.assert_array_equal(found[name], right[name])
    assert found["gradient_logits"].size == 3 * 2
    x, keys = some._logits(generator(some))
    part = _first(x, 4)
    np.testing.assert_array_equal(part, x[:, :2])
    stream = generator(some)
    some._logits(stream)
    again = some._gradients(stream, part, _finite(part), keys)
    np.testing.assert_array_equal(found["gradient_query"], again["gradient_query"])
    both = dataclasses.replace(work, shown=PARTS[1:])
    assert both._statistics(generator(both))[1]["entropy"].size == 3 * 2
    assert _first(x[:, :3], 4).shape[1] == 1  # never none


@pytest.mark.parametrize("pipeline", ["scale:dk", "additive", "qk_norm:rms | dtype:float16"])
def test_pipelines_share_their_draws(pipeline):
    """The own randomness of a pipeline moves neither q nor k, nor the gradients after them."""
    design = DESIGNS["drawn in float32"]
    plain, other = work_of(design, "dot"), work_of(design, pipeline)
    assert plain.experiment == other.experiment
    streams = [generator(plain), generator(other)]
    (_, keys), (_, same) = (w._logits(g) for w, g in zip((plain, other), streams, strict=True))
    np.testing.assert_array_equal(keys, same)
    first, second = (g.bit_generator.state["state"] for g in streams)
    np.testing.assert_array_equal(first["state"], second["state"])


@pytest.mark.parametrize("corr", ["none", "ar1:0.5", "equi:0.5"])
@pytest.mark.parametrize("sample_scale", [1.0, 1.5])
def test_sets_are_drawn_one_after_the_other(corr, sample_scale):
    """Queries and keys of laws of their own."""
    query, key = Component(sigma=2.0), Component(distribution="uniform", mean=0.5)
    design = Design(dk=6, keys=5, query=query, key=key, corr=corr)
    fault = Fault(sample_scale=sample_scale)
    streams = [np.random.default_rng(4) for _ in range(2)]
    q, k = scores.sets(streams[0], design, 3, (4, 5), fault)
    for each_q, each_k in zip(q, k, strict=True):
        alone = scores.vectors(streams[1], design, query, 4, fault)
        np.testing.assert_array_equal(each_q, alone)
        alone = scores.vectors(streams[1], design, key, 5, fault)
        np.testing.assert_array_equal(each_k, alone)
    assert (q.shape, k.shape) == ((3, 6, 4), (3, 6, 5))
    assert streams[0].bit_generator.state == streams[1].bit_generator.state


def test_the_queries_are_shared_too():
    design = DESIGNS["drawn in float64"]
    (x, _), (y, _) = (
        w._logits(generator(w)) for w in (work_of(design, t) for t in ("dot", "scale:4"))
    )
    np.testing.assert_array_equal(4 * x, y)


def test_additive_weights_differ_between_rows_groups_and_blocks():
    work = work_of(DESIGNS["drawn in float64"], "additive", groups=2, weights=3)
    (x, keys), (other, _) = (work._logits(generator(work, block)) for block in (0, 1))
    assert x.shape == (2, 12, 5)
    assert len(keys) == 2
    assert len(np.unique(x)) == x.size
    assert not np.isin(x, other).any()


@pytest.mark.parametrize("score", ["scale:sqrt", "additive"])
def test_projected_sets_share_inputs_and_no_matrix(score):
    """2 groups of 3 pairs of matrices: 6 sets of keys, of which none has the keys of another.

    A score that draws weights too draws them once for every pair.
    """
    text = f"proj:orthogonal,64 | {score}"
    work = work_of(DESIGNS["drawn in float64"], text, groups=2, weights=3)
    x, keys = work._logits(generator(work))
    assert x.shape == (6, 4, 5)
    assert len(keys) == 6
    assert work.size == x.shape[0] * x.shape[1]
    assert len(np.unique(np.array(keys))) == 6 * 6 * 5
    found, _ = work._statistics(generator(work))
    assert found[LOGITS.index("rows")] == work.size


# --- precision ---------------------------------------------------------------------------------

SINGLE = (
    *("dot", "scale:sqrt", "scale_qk:pow:-0.25", "temperature:100,clamp", "qk_norm:l2,3"),
    *("rope | scale:sqrt", "scale:sqrt | softcap:50", "alibi:0.5", "alibi:0", "yarn:4"),
    *("additive | scale:2", "proj:normal=0.02 | scale:sqrt", "proj:xavier,64,1 | scale:sqrt"),
)
DOUBLE = (
    *("dtype:float16", "dot | dtype:bfloat16", "user:numpy:sin", "user_q:numpy:sin"),
    *("scale:1e-20", "scale_q:1e20", "scale:1e-7 | scale:1e7", "softcap:1e-15"),
    *("qk_norm:l2,1e-15", "alibi:1e15", "proj:normal=1e-20", "proj:xavier,64,1000"),
)


@pytest.mark.parametrize("text", [*SINGLE, *DOUBLE])
def test_float32_where_it_will_do(text):
    work = work_of(Design(dk=6, keys=5), str(pipeline_of(text)))
    x, _ = work._logits(generator(work))
    assert x.dtype == (np.float32 if text in SINGLE else np.float64)


@pytest.mark.parametrize(
    "design",
    [
        Design(dk=6, keys=5, query=Component(mean=0.1)),
        Design(dk=6, keys=5, query=Component(distribution="t", df=4.0)),
        Design(dk=6, keys=5, key=Component(sigma=1e13)),
    ],
    ids=["a mean", "a heavy tail", "a large size"],
)
def test_designs_that_need_float64(design):
    work = work_of(design, "scale:sqrt")
    assert work._logits(generator(work))[0].dtype == np.float64


def test_a_fault_may_need_float64():
    wide = work_of(Design(dk=6, keys=5), "scale:sqrt", fault=Fault(sample_scale=1e7))
    assert wide._logits(generator(wide))[0].dtype == np.float64


@pytest.mark.parametrize("text", SINGLE)
def test_float32_is_float64_but_for_rounding(text, monkeypatch):
    """From the same draws; every number is added up from terms of less than 2^7 in size."""
    design = Design(dk=64, keys=8)
    work = work_of(design, str(pipeline_of(text)), groups=1)
    single, _ = work._logits(generator(work))
    monkeypatch.setattr(PipelineWork, "_in_single_precision", False)
    double, _ = work._logits(generator(work))
    assert double.dtype == np.float64
    # d roundings of the product, d/2 + 4 of either norm, the sizes of which may be 2^7 at most.
    assert 0 < np.abs(single - double).max() <= (2 * 64 + 16) * UNIT * 2**7


@pytest.mark.parametrize("text", ["qk_norm:rms", "scale:1e-30", "scale:1e30 | temperature:1e30"])
@pytest.mark.parametrize("sigma", [1e-25, 1.0, 1e25])
def test_sizes_that_float32_cannot_hold(text, sigma):
    """Nothing overflows, or is lost, before it would in float64."""
    component = Component(sigma=sigma)
    design = Design(dk=16, keys=64, query=component, key=component)
    work = work_of(design, text, groups=16, queries=64)
    found = dict(zip(LOGITS, work.block(generator(work))["logits"], strict=True))
    assert found["overflow"] == 0
    scale = {"qk_norm:rms": 1.0, "scale:1e-30": sigma**2 * 1e-30}.get(text, sigma**2)
    # 1024 queries with the norm of a chi-square of 16: 5 standard errors of 1.1 % in the std, at
    # 3e-7 each, and of 1.2 % for the 1024 sets of keys.
    assert math.sqrt(found["square"] / found["count"]) == pytest.approx(4 * scale, rel=0.08)


def test_differences_that_float32_cannot_hold():
    """They are cut off where nothing is left: p = 0 to all digits of float64."""
    x = np.array([[[1e200, -1e200, 1e200 - 1e190], [1e308, -1e308, 0.0], [5.0, 4.0, -1e39]]])
    seen = _rows(x, _finite(x))
    assert seen.dtype == np.float32
    assert seen.tolist() == [[0, -1000, -1000], [0, -1000, -1000], [0, -1, -1000]]
    (found,) = softmax.row_statistics(seen, [1.0])
    assert found.max_weight[:2].tolist() == [1.0, 1.0]
    assert found.max_weight[2] == pytest.approx(1 / (1 + math.exp(-1)), rel=4 * UNIT)


def test_a_large_offset_costs_no_digits():
    """Logits near 2^16: what the softmax sees are their differences in float64, rounded last."""
    random = np.random.default_rng(1)
    x = random.standard_normal((1, 40, 30))
    far = x + 65536.0
    near, shifted = (
        softmax.row_statistics(_rows(y, _finite(y)), [1.0])[0].entropy for y in (far - 65536.0, far)
    )
    np.testing.assert_array_equal(near, shifted)


@pytest.mark.parametrize("keys", [3, 2048, 2049])
def test_moments_of_long_rows(keys):
    """Up to 2048 terms are added up in float32, by parts: the error grows like √m units at most."""
    random = np.random.default_rng(2)
    x = (random.standard_normal((2, 5, keys)) - 3).astype(np.float32)
    found = dict(zip(LOGITS, _moments(x, _finite(x)), strict=True))
    exact = x.astype(float)
    near = 8 * math.sqrt(keys) * UNIT if keys <= 2048 else 1e-12
    assert found["sum"] == pytest.approx(exact.sum(), rel=near)
    assert found["square"] == pytest.approx((exact**2).sum(), rel=near)
    assert found["within"] == pytest.approx(exact.var(axis=2, ddof=1).sum(), rel=near)
    assert (found["count"], found["rows"], found["overflow"]) == (10 * keys, 10, 0)


# --- J g ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def random():
    return np.random.default_rng(5)


def passed(x, g):
    along, size = _through_softmax(x, g)
    assert along.dtype == x.dtype
    return size[:, None] * along


@pytest.mark.parametrize(("dtype", "unit"), [(np.float64, 2.0**-53), (np.float32, UNIT)])
@pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 8.0, 300.0])
def test_j_g_by_pairs(random, size, dtype, unit):
    """(J g)_i = p_i Σ_j p_j (g_i − g_j), which cancels in no row.

    A weight has the relative error of its distance from the largest or, here, from the second, and
    about m + 8 units of the sums. Beside the second largest nothing is seen that is below the
    smallest number.
    """
    x = (size * random.standard_normal((50, 7))).astype(dtype)
    g = random.standard_normal((50, 7)).astype(dtype)
    exact = x.astype(float)
    p = np.exp(exact - exact.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    differences = p[:, None, :] * (g[:, :, None].astype(float) - g[:, None, :])
    pairs, scale = p * differences.sum(axis=2), p * np.abs(differences).sum(axis=2)
    top, second = (np.sort(exact, axis=1)[:, [i]] for i in (-1, -2))
    distance = np.abs(exact - top) + np.abs(exact - second)
    unseen = np.finfo(dtype).tiny * scale.max(axis=1, keepdims=True) + 1e-300
    assert (np.abs(passed(x, g) - pairs) <= 2 * unit * (distance + 15) * scale + unseen).all()


def test_j_g_of_a_row_that_is_one_hot_in_float32():
    """A gap of 200 leaves e^−200, far below the smallest float32, to all of its digits."""
    x, g = np.array([[200.0, 0.0, -1.0]], np.float32), np.array([[0.5, 1.5, -0.5]], np.float32)
    along, size = _through_softmax(x, g)
    h = np.array([0.0, 1.0, -1.0])  # J g = p ∘ (h − p·h), p = e^−200 (·, 1, 1/e), p·h of no account
    f = np.array([0.0, 1.0, math.exp(-1)])
    right = math.exp(-200) * math.hypot(*(f * h), f @ h)
    found = size[0] * np.linalg.norm(along[0].astype(float))
    assert found == pytest.approx(right, rel=8 * UNIT)


@pytest.mark.parametrize("size", [0.1, 1.0, 8.0])
def test_j_g_is_the_derivative_of_the_loss(random, size):
    """By complex steps of L(x) = g·softmax(x), which round but do not cancel."""
    x, g = size * random.standard_normal(6), random.standard_normal(6)

    def loss(x):
        e = np.exp(x - x.real.max())
        return g @ (e / e.sum())

    steps = 1e-30j * np.eye(6)
    right = [loss(x + step).imag / 1e-30 for step in steps]
    np.testing.assert_allclose(passed(x[None], g[None])[0], right, rtol=1e-11, atol=1e-14)


def test_gradient_to_the_query_is_the_derivative_of_the_loss():
    """By complex steps of L(q) = g·softmax(c Kᵀ q), for the whole pipeline.

    J g is rounded to float32: each of its 5 entries has a few units, of which K makes at most the
    sum of the sizes.
    """
    text = "scale_qk:pow:-0.5 | temperature:0.7"
    work = work_of(DESIGNS["drawn in float64"], text)
    c = 6**-1.0 / 0.7
    right, sizes = [], []
    for q, k, upstream, _ in drawn(work):
        for query, g in zip(q.T, upstream, strict=True):

            def loss(query, k=k, g=g):
                x = c * (query @ k)
                e = np.exp(x - x.real.max())
                return g @ (e / e.sum())

            steps = [loss(query + 1e-30j * unit).imag / 1e-30 for unit in np.eye(6)]
            right.append(np.linalg.norm(steps))
            sizes.append(c * np.abs(k).max() * math.sqrt(6) * 2 * np.abs(g).max())
    _, rows = work._statistics(generator(work))
    off = np.abs(rows["gradient_query"] - right)
    assert (off <= 40 * UNIT * np.array(sizes)).all()
    assert (np.array(right) > 1e3 * 40 * UNIT * np.array(sizes)).all()


# --- shape, names, cost -------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [2, 64, 4096, 1_000_000])
@pytest.mark.parametrize("text", ["scale:sqrt", "additive", "proj:xavier | scale:sqrt"])
@pytest.mark.parametrize("dk", [2, 64, 16384])
def test_shapes(keys, text, dk):
    design = Design(dk=dk, keys=keys)
    whole = PipelineWork.fitting(design, text, None, None, Fault())
    assert whole.size >= 4
    assert whole.size * keys <= max(4 * keys, 1 << 18)
    assert whole.groups == 1 or whole.drawn <= 1 << 20
    few = PipelineWork.fitting(design, text, None, 10, Fault())
    assert 1 <= few.size <= max(10, 1)
    one = PipelineWork.fitting(design, text, None, 1, Fault())
    assert one.size == 1


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("scale:sqrt", (32, 128, 1)),
        ("additive", (8, 16, 32)),
        ("additive:unit | softcap:5", (8, 16, 32)),
        ("proj:xavier,64 | scale:sqrt", (8, 128, 4)),
        ("proj:xavier,512 | scale:sqrt", (2, 128, 4)),
        ("proj:xavier,64 | additive", (8, 128, 4)),
    ],
)
def test_weights_are_drawn_several_times_for_the_same_inputs(text, shape):
    work = PipelineWork.fitting(Design(dk=64, keys=64), text, None, None, Fault())
    assert (work.groups, work.queries, work.weights) == shape
    few = PipelineWork.fitting(Design(dk=64, keys=64), text, None, 16, Fault())
    assert few.size == 16


def test_a_split_pipeline_has_fewer_groups():
    work = work_of(Design(dk=8, keys=8), "scale:sqrt", groups=8)
    assert work.split(4) == dataclasses.replace(work, groups=2)
    assert work.split(100).groups == 1


def test_keys_that_depend_on_the_query_are_refused():
    with pytest.raises(InputError, match=r"^--corr: got 'qk:0\.5', want none, ar1 or equi"):
        PipelineWork.fitting(Design(dk=4, keys=4, corr="qk:0.5"), "dot", None, None, Fault())


def test_a_block_that_a_step_cannot_act_on_is_refused():
    work = work_of(Design(dk=5, keys=4), "rope")
    with pytest.raises(InputError, match="step 1 of 1: d_k = 5 is odd"):
        work.block(generator(work))


def test_the_experiment_names_what_shapes_the_draws():
    work = work_of(DESIGNS["ar1"], "dot")
    others = [
        dataclasses.replace(work, stream="pilot"),
        dataclasses.replace(work, queries=5),
        dataclasses.replace(work, groups=5),
        dataclasses.replace(work, weights=2),
        dataclasses.replace(work, design=DESIGNS["two keys"]),
    ]
    assert len({work.experiment, *(other.experiment for other in others)}) == 6
    for change in ({"pipeline": "scale:dk"}, {"parts": ("logits",)}, {"shown": ("entropy",)}):
        assert dataclasses.replace(work, **change).experiment == work.experiment


def test_cost_grows_with_the_work():
    texts = ("dot", "additive", "proj:xavier")
    dot_, additive, projection = (work_of(Design(dk=64, keys=64), t, 2, 16).cost for t in texts)
    assert dot_ < additive
    assert dot_ < projection
    costs = [work_of(Design(dk=64, keys=64), "dot", n).cost for n in (1, 2, 3)]
    assert costs == sorted(set(costs))


def test_cost_follows_the_parts():
    work = work_of(Design(dk=64, keys=64), "dot", 2, 16)

    def cost(*parts, **changes):
        return dataclasses.replace(work, parts=parts, **changes).cost

    drawn_alone = 32 * 2 * (16 + 64) * 64
    steps = [
        drawn_alone,
        cost("logits"),
        cost("logits", "entropy", shown=("entropy",)),
        cost("logits", "entropy"),
        cost("logits", "entropy", "gradient_logits", shown=("gradient_logits",)),
        cost("logits", "entropy", "gradient_logits"),
    ]
    assert steps == sorted(set(steps))
    assert cost("entropy", "frobenius") == cost("entropy") == cost("histogram.frobenius")


def test_a_fault_is_a_wider_sampler():
    design = DESIGNS["drawn in float64"]
    faulty = work_of(design, "scale:0.25", fault=Fault(sample_scale=2.0))
    right = work_of(design, "dot")
    found, wanted = (work.block(generator(work)) for work in (faulty, right))
    for name in ("logits", *AVERAGED, "frobenius", "gradient_logits"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12)


def test_finite_rows_are_told_by_their_sums():
    """Even where a sum overflows and no logit does, or two logits cancel."""
    x = np.array([[[1e308, 1e308], [np.inf, -np.inf], [np.nan, 1.0], [1.0, 2.0]]])
    assert _finite(x).tolist() == [[True, False, False, True]]
    assert _kept(x, _finite(x)).tolist() == [[1e308, 1e308], [1.0, 2.0]]
    assert _finite(x[:, 3:]).all()


@pytest.mark.parametrize(
    ("dk", "keys", "queries", "projected", "pairs"),
    [
        (2, 2, 16, 32, 32),
        (8, 16, 16, 32, 32),
        (16, 64, 64, 64, 16),
        (64, 64, 128, 128, 4),
        (1024, 64, 128, 128, 4),
    ],
)
def test_the_fewer_components_the_fewer_rows_share_vectors(dk, keys, queries, projected, pairs):
    """2 √(d (d + m)/2) queries, a power of two from 16 to 128; with matrices, 256/d pairs of them.

    Measured: at d = m = 2 blocks of 128 queries need 4 to 7 times as many rows for one error.
    """
    design = Design(dk=dk, keys=keys)
    plain = PipelineWork.fitting(design, "scale:sqrt", None, None, Fault())
    assert (plain.queries, plain.weights) == (queries, 1)
    drawn = PipelineWork.fitting(design, "proj:xavier,512 | scale:sqrt", None, None, Fault())
    assert (drawn.queries, drawn.weights) == (projected, pairs)
