"""Sums of a block behind a pipeline, against loops over its rows; the gradient, by other routes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from sdpa_check import rng
from sdpa_check.errors import InputError
from sdpa_check.logits.transforms import Context
from sdpa_check.measures import scores
from sdpa_check.measures.pipeline import (
    AVERAGED,
    LOGITS,
    SPREAD,
    PipelineWork,
    _rows,
    _through_softmax,
    pipeline_of,
)
from sdpa_check.records import Component, Design, Fault

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
    """q (d, n), k (d, m), ∂L/∂p (n, m) and ‖x‖ (n,) of every group of block 0."""
    g, design = generator(work), work.design
    g.integers(2**63)  # the seed of what a pipeline draws itself
    for _ in range(work.groups):
        q = scores.vectors(g, design, design.query, work.queries, work.fault)
        k = scores.vectors(g, design, design.key, design.keys, work.fault)
        upstream = g.standard_normal((work.queries, design.keys))
        inputs = np.sqrt(g.chisquare(work.d_model or design.dk, work.queries))
        yield q.astype(float), k.astype(float), upstream, inputs


def dot(q, k):
    return [[math.fsum(a * b for a, b in zip(x, y, strict=True)) for y in k.T] for x in q.T]


def half(x):
    """Rounded to float16, where ±∞ stands for what is too large."""
    with np.errstate(over="ignore"):
        return np.array(x).astype(np.float16).astype(float)


def normed(x):
    return x / np.sqrt((x**2).mean(axis=0))


LOOPS = {
    "scale:sqrt": (lambda q, k: np.array(dot(q, k)) / math.sqrt(len(q)), 1 / math.sqrt(6)),
    "qk_norm:rms | softcap:5": (
        lambda q, k: 5 * np.tanh(np.array(dot(normed(q), normed(k))) / 5),
        None,
    ),
    "alibi:0.5": (
        lambda q, k: np.array(dot(q, k)) - 0.5 * np.arange(k.shape[1] - 1, -1, -1),
        None,
    ),
}


def naive(work):
    """The logits sums, and for every finite row its statistics, with softmax and J written out."""
    logits, multiplier = LOOPS[work.pipeline]
    sums = dict.fromkeys(LOGITS, 0.0)
    rows = []
    for q, k, upstream, inputs in drawn(work):
        x = logits(q, k)
        for row, g, size in zip(x, upstream, inputs, strict=True):
            if not np.isfinite(row).all():
                sums["overflow"] += 1
                continue
            sums["rows"] += 1
            sums["count"] += len(row)
            sums["sum"] += math.fsum(row)
            sums["square"] += math.fsum(row**2)
            sums["within"] += row.var(ddof=1)
            p = np.exp(row - row.max())
            p /= p.sum()
            jacobian = np.diag(p) - np.outer(p, p)
            passed = np.linalg.norm(jacobian @ g)
            back = abs(multiplier) * np.linalg.norm(k @ (jacobian @ g)) if multiplier else 0.0
            entropy = -sum(w * math.log(w) for w in p if w)
            rows.append(
                {
                    "entropy": entropy,
                    "entropy_deficit": math.log(len(p)) - entropy,
                    "max_weight": p.max(),
                    "effective_keys": 1 / (p @ p),
                    "sum_squares": p @ p,
                    "trace": np.trace(jacobian),
                    "frobenius": np.linalg.norm(jacobian),
                    "gradient_logits": passed,
                    "gradient_query": back,
                    "gradient_w_q": back * size,
                }
            )
    return sums, {name: np.array([row[name] for row in rows]) for name in rows[0]}


@designs
@pytest.mark.parametrize("pipeline", LOOPS)
def test_block_twin(design, pipeline):
    work = work_of(design, pipeline)
    work = work.with_grids(rng.generator(0, "grids", 0))
    sums = work.block(generator(work))
    logits, rows = naive(work)
    found = dict(zip(LOGITS, sums["logits"], strict=True))
    for name, value in logits.items():
        # Σx may cancel; every term is rounded relative to its own size.
        size = 1e-12 * math.sqrt(logits["square"] * logits["count"])
        assert found[name] == pytest.approx(value, rel=1e-12, abs=size * (name == "sum")), name
    for i, name in enumerate(AVERAGED):
        # The loop loses what is tiny beside 1 to cancellation, and so only its digits of 1 count.
        close = pytest.approx(rows[name].sum(), rel=1e-12, abs=1e-12 * work.size)
        assert sums["mean"][i] == close, name
    for i, name in enumerate(SPREAD):
        close = pytest.approx((rows[name] ** 2).sum(), rel=1e-11, abs=1e-24)
        assert sums["square"][i] == close, name
        assert sums[f"histogram.{name}"].sum() == work.size


def test_histograms_count_the_norms():
    work = work_of(DESIGNS["drawn in float64"], "scale:sqrt", d_model=16)
    work = work.with_grids(rng.generator(0, "grids", 0))
    sums, (_, rows) = work.block(generator(work)), naive(work)
    for name, grid in zip(SPREAD, work.grids, strict=True):
        below = np.cumsum(sums[f"histogram.{name}"])[:-1]
        low, high = (
            np.searchsorted(np.sort(rows[name] * slack), grid.edges()[1:-1])
            for slack in (1 + 1e-11, 1 - 1e-11)
        )
        assert (low <= below).all()
        assert (below <= high).all()


def test_rows_that_overflow_are_counted_and_left_out(monkeypatch):
    """Entries of std 150² √6 = 55 000 beside the largest float16, 65 504."""
    text = "dot | dtype:float16"
    monkeypatch.setitem(LOOPS, text, (lambda q, k: half(dot(q, k)), None))
    wide = Component(sigma=150.0, mean=1.0)
    work = work_of(Design(dk=6, keys=3, query=wide, key=wide), text, groups=4, queries=8)
    work = work.with_grids(rng.generator(0, "grids", 0))
    sums, (logits, rows) = work.block(generator(work)), naive(work)
    assert 0 < logits["overflow"] < work.size
    assert dict(zip(LOGITS, sums["logits"], strict=True)) == pytest.approx(logits, rel=1e-12)
    assert logits["rows"] + logits["overflow"] == work.size
    frobenius = sums["square"][SPREAD.index("frobenius")]
    # Gaps of thousands: the loop has 0 where J is e^−1000; nothing there is NaN.
    assert frobenius == pytest.approx((rows["frobenius"] ** 2).sum(), rel=1e-11, abs=1e-24)
    assert sums["histogram.frobenius"].sum() == logits["rows"]


def test_rows_keep_the_keys_of_their_group_where_others_overflow():
    work = work_of(DESIGNS["drawn in float64"], "scale:sqrt", groups=4)
    own, stream = rng.generator(0, "own", 0), generator(work)
    stream.integers(2**63)
    groups = [work._group(stream, own) for _ in range(work.groups)]
    _, whole = _rows(groups)
    lost = [1, 8, 9, 10, 11, 15]  # one of the first group, all of the third, one of the last
    for row in lost:
        groups[row // 4].logits[row % 4, row % 5] = (np.inf, -np.inf, np.nan)[row % 3]
    logits, rows = _rows(groups)
    assert logits[LOGITS.index("overflow")] == len(lost)
    for name, values in whole.items():
        np.testing.assert_allclose(rows[name], np.delete(values, lost), rtol=1e-12, err_msg=name)


def test_a_block_without_a_finite_row():
    wide = Component(sigma=1e5, mean=1.0)
    work = work_of(Design(dk=6, keys=40, query=wide, key=wide), "dot | dtype:float16")
    sums = work.block(generator(work))
    assert dict(zip(LOGITS, sums["logits"], strict=True)) == dict.fromkeys(LOGITS, 0.0) | {
        "overflow": work.size
    }
    assert not sums["mean"].any()
    assert not sums["square"].any()


@pytest.mark.parametrize("pipeline", ["scale:dk", "additive", "proj:xavier,16 | additive"])
def test_pipelines_share_their_draws(pipeline):
    """The own randomness of a pipeline, in the first group, moves nothing in the second."""
    design = DESIGNS["drawn in float64"]
    plain, other = work_of(design, "dot"), work_of(design, pipeline)
    assert plain.experiment == other.experiment
    own = [rng.generator(0, "own", 0) for _ in range(2)]
    streams = [generator(plain), generator(other)]
    for _ in range(2):
        a, b = (w._group(g, o) for w, g, o in zip((plain, other), streams, own, strict=True))
        np.testing.assert_array_equal(a.upstream, b.upstream)
        np.testing.assert_array_equal(a.inputs, b.inputs)
        if not pipeline.startswith("proj"):
            np.testing.assert_array_equal(a.k, b.k)


def test_additive_weights_differ_between_groups_and_blocks():
    work = work_of(DESIGNS["drawn in float64"], "additive", groups=2)
    own, stream = rng.generator(0, "own", 0), generator(work)
    first, second = (work._group(stream, own) for _ in range(2))
    assert not np.isin(first.logits, second.logits).any()
    one, other = (work.block(generator(work, b))["logits"] for b in (0, 1))
    assert one[1] != other[1]


@pytest.mark.parametrize("text", ["additive", "additive:unit | softcap:5"])
def test_a_score_with_weights_of_its_own_has_more_and_smaller_groups(text):
    """A block says as much about the weights as it has groups."""
    design = Design(dk=64, keys=64)
    own, plain = (
        PipelineWork.fitting(design, t, None, None, Fault()) for t in (text, "scale:sqrt")
    )
    assert (own.groups, own.queries) == (16, 32)
    assert (plain.groups, plain.queries) == (4, 128)


def test_a_split_pipeline_has_fewer_groups():
    work = work_of(Design(dk=8, keys=8), "scale:sqrt", groups=8)
    assert work.split(4) == dataclasses.replace(work, groups=2)
    assert work.split(100).groups == 1


def test_additive_in_float32_is_additive_in_float64():
    """`additive | scale:1` runs in float64: 64 terms of at most |v_a|, rounded once each."""
    design = Design(dk=64, keys=8)
    one, other = (work_of(design, text) for text in ("additive", "additive | scale:1"))
    own = [rng.generator(0, "own", 0) for _ in range(2)]
    a, b = (w._group(generator(w), o) for w, o in zip((one, other), own, strict=True))
    context = Context(dk=64, keys=8)
    v = pipeline_of("additive").score.weights(rng.generator(0, "own", 0), context)
    bound = 70 * np.finfo(np.float32).eps * np.abs(v).sum()
    assert 0 < np.abs(a.logits - b.logits).max() <= bound


# --- J g ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def random():
    return np.random.default_rng(5)


@pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 8.0, 300.0])
def test_j_g_by_pairs(random, size):
    """(J g)_i = p_i Σ_j p_j (g_i − g_j), which cancels in no row."""
    x, g = size * random.standard_normal((50, 7)), random.standard_normal((50, 7))
    p = np.exp(x - x.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    pairs = p * (p[:, None, :] * (g[:, :, None] - g[:, None, :])).sum(axis=2)
    scale = np.abs(p[:, None, :] * (g[:, :, None] - g[:, None, :])).sum(axis=2) * p
    assert (np.abs(_through_softmax(x, g) - pairs) <= 1e-12 * scale + 1e-300).all()


@pytest.mark.parametrize("size", [0.1, 1.0, 8.0])
def test_j_g_is_the_derivative_of_the_loss(random, size):
    """By complex steps of L(x) = g·softmax(x), which round but do not cancel."""
    x, g = size * random.standard_normal(6), random.standard_normal(6)

    def loss(x):
        e = np.exp(x - x.real.max())
        return g @ (e / e.sum())

    steps = 1e-30j * np.eye(6)
    right = [loss(x + step).imag / 1e-30 for step in steps]
    np.testing.assert_allclose(_through_softmax(x[None], g[None])[0], right, rtol=1e-11, atol=1e-14)


def test_gradient_to_the_query_is_the_derivative_of_the_loss():
    """By complex steps of L(q) = g·softmax(c Kᵀ q), for the whole pipeline."""
    text = "scale_qk:pow:-0.5 | temperature:0.7"
    work = work_of(DESIGNS["drawn in float64"], text)
    c = 6**-1.0 / 0.7
    right = []
    for q, k, upstream, _ in drawn(work):
        for query, g in zip(q.T, upstream, strict=True):

            def loss(query, k=k, g=g):
                x = c * (query @ k)
                e = np.exp(x - x.real.max())
                return g @ (e / e.sum())

            steps = [loss(query + 1e-30j * unit).imag / 1e-30 for unit in np.eye(6)]
            right.append(np.linalg.norm(steps))
    _, rows = work._statistics(generator(work))
    np.testing.assert_allclose(rows["gradient_query"], right, rtol=1e-11)


# --- shape, names, cost -------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [2, 64, 4096, 1_000_000])
@pytest.mark.parametrize("text", ["scale:sqrt", "additive", "proj:xavier | scale:sqrt"])
def test_shapes(keys, text):
    design = Design(dk=64, keys=keys)
    whole = PipelineWork.fitting(design, text, None, None, Fault())
    assert whole.size >= 4
    assert whole.size * keys <= max(4 * keys, 1 << 17)
    few = PipelineWork.fitting(design, text, None, 10, Fault())
    assert 1 <= few.size <= max(10, 1)
    one = PipelineWork.fitting(design, text, None, 1, Fault())
    assert one.size == 1


def test_keys_that_depend_on_the_query_are_refused():
    with pytest.raises(InputError, match=r"^--corr: got 'qk:0\.5', want none, ar1 or equi"):
        PipelineWork.fitting(Design(dk=4, keys=4, corr="qk:0.5"), "dot", None, None, Fault())


def test_the_experiment_names_what_shapes_the_draws():
    work = work_of(DESIGNS["ar1"], "dot")
    others = [
        dataclasses.replace(work, stream="pilot"),
        dataclasses.replace(work, queries=5),
        dataclasses.replace(work, groups=5),
        dataclasses.replace(work, design=DESIGNS["two keys"]),
    ]
    assert len({work.experiment, *(other.experiment for other in others)}) == 5
    assert dataclasses.replace(work, pipeline="scale:dk").experiment == work.experiment


def test_cost_grows_with_the_work():
    texts = ("dot", "additive", "proj:xavier")
    dot_, additive, projection = (work_of(Design(dk=64, keys=64), t, 2, 16).cost for t in texts)
    assert dot_ < additive
    assert dot_ < projection
    costs = [work_of(Design(dk=64, keys=64), "dot", n).cost for n in (1, 2, 3)]
    assert costs == sorted(set(costs))


def test_a_fault_is_a_wider_sampler():
    design = DESIGNS["drawn in float64"]
    faulty = work_of(design, "scale:0.25", fault=Fault(sample_scale=2.0))
    right = work_of(design, "dot")
    found, wanted = (work.block(generator(work))["mean"] for work in (faulty, right))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
