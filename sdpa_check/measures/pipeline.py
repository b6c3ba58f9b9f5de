"""Rows of logits as a pipeline of attention changes makes them, and the gradient that they pass."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check import rng, softmax
from sdpa_check.errors import InputError
from sdpa_check.histogram import SampleGrid
from sdpa_check.logits.pipeline import Pipeline, parse
from sdpa_check.logits.transforms import Context
from sdpa_check.logits.transforms.scores import Additive
from sdpa_check.measures import scores
from sdpa_check.measures.rows import row_length
from sdpa_check.records import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sdpa_check.engine import Sums
    from sdpa_check.records import Design

LOGITS = ("count", "sum", "square", "within", "rows", "overflow")
"""What is summed over the logits of finite rows: their number, Σx, Σx², Σ over rows of the variance
within the row, the number of these rows, and the number of rows with a logit that is not finite.
"""

AVERAGED = ("entropy", "entropy_deficit", "max_weight", "effective_keys", "sum_squares", "trace")
"""Row statistics whose sum a block returns, in this order."""

SPREAD = ("frobenius", "gradient_logits", "gradient_query", "gradient_w_q")
"""Row statistics of which a block returns squares and histograms, in this order: ‖J‖_F, and the
norms of ∂L/∂s, ∂L/∂q and ∂L/∂W_Q for a gradient ∂L/∂p of independent N(0, 1) entries.
"""

_GROUP_SCORES = 1 << 17
_BLOCK_SCORES = 1 << 15


@lru_cache(maxsize=1024)
def pipeline_of(text: str) -> Pipeline:
    """The pipeline of a canonical text."""
    return parse(text)


@dataclass(frozen=True, slots=True)
class PipelineWork:
    """Blocks of `groups` sets of m keys with `queries` queries each, through a pipeline.

    Every pipeline gets the same q and k and the same ∂L/∂p in a block of the same number, so two
    pipelines are compared on equal draws. Sums of a block: ``logits`` (see `LOGITS`), ``mean``
    (Σ of every one of `AVERAGED`), ``square`` (Σ of squares of every one of `SPREAD`) and
    ``histogram.{name}`` for each of `SPREAD`.
    """

    design: Design
    pipeline: str
    groups: int
    queries: int
    d_model: int | None = None
    grids: tuple[SampleGrid, ...] = ()
    fault: Fault = dataclasses.field(default_factory=Fault)
    stream: str = "main"

    @classmethod
    def fitting(
        cls,
        design: Design,
        pipeline: str,
        d_model: int | None,
        rows: int | None,
        fault: Fault,
    ) -> PipelineWork:
        """Blocks of about 2^15 scores, of at most about `rows` rows if that is given.

        A score that draws weights of its own draws them for a group: more and smaller groups then.

        Raises:
            InputError: keys that depend on the query.
        """
        if design.corr.startswith("qk:"):
            want = "none, ar1 or equi: a pipeline acts on keys that many queries share"
            raise InputError("--corr", design.corr, want)
        keys = row_length(design)
        most = 32 if pipeline_of(pipeline).score.draws_weights else 128
        queries = min(most, max(4, _GROUP_SCORES // keys))
        groups = max(1, min(32, _BLOCK_SCORES // (queries * keys)))
        if rows is not None and rows < queries * groups:
            queries = max(1, min(queries, rows))
            groups = max(1, rows // queries)
        return cls(design, pipeline, groups, queries, d_model, (), fault)

    @property
    def experiment(self) -> str:
        """The design, the block shape and the stream; pipelines share draws and do not enter."""
        shape = [self.groups, self.queries]
        key = {"pipeline": dataclasses.asdict(self.design), "shape": shape, "stream": self.stream}
        return json.dumps(key, sort_keys=True)

    @property
    def size(self) -> int:
        """Rows in a block."""
        return self.groups * self.queries

    @property
    def cost(self) -> float:
        """Elementary operations of a block, roughly: what one drawn normal costs counts as 32."""
        keys, d = row_length(self.design), self.design.dk
        width = (self.d_model or 512) if "proj" in self.pipeline else 1
        scores_cost = pipeline_of(self.pipeline).score.operations * d
        drawn = 32.0 * (self.queries + keys + d) * d * max(1.0, width / d)
        return self.groups * (drawn + self.queries * keys * (132.0 + scores_cost))

    def split(self, parts: int) -> PipelineWork:
        """The same work in blocks of a `parts`-th of the groups, but at least one."""
        return dataclasses.replace(self, groups=max(1, self.groups // parts))

    def with_grids(self, generator: np.random.Generator) -> PipelineWork:
        """The same work with grids that fit its norms, found from one block of its own.

        Where every row of that block overflows there is nothing to fit, and any grid will do.
        """
        _, rows = self._statistics(generator)
        norms = (rows[name] if rows[name].size else np.ones(1) for name in SPREAD)
        return dataclasses.replace(self, grids=tuple(map(SampleGrid.of, norms)))

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw one block and return its sums."""
        logits, rows = self._statistics(generator)
        sums: Sums = {
            "logits": logits,
            "mean": np.array([rows[name].sum() for name in AVERAGED]),
            "square": np.array([np.vdot(rows[name], rows[name]) for name in SPREAD]),
        }
        for name, grid in zip(SPREAD, self.grids, strict=False):
            sums[f"histogram.{name}"] = grid.counts(rows[name]).astype(np.int32)
        return sums

    def _statistics(
        self, generator: np.random.Generator
    ) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
        """The sums of the logits, and the row statistics, of the rows of all groups."""
        # What the pipeline draws itself comes from a stream apart and leaves the others alone.
        own = rng.generator(int(generator.integers(2**63)), "pipeline", 0)
        return _rows([self._group(generator, own) for _ in range(self.groups)])

    def _group(self, generator: np.random.Generator, own: np.random.Generator) -> _Group:
        """One set of keys with its queries."""
        design, keys = self.design, row_length(self.design)
        context = Context(dk=design.dk, keys=keys, queries=self.queries, d_model=self.d_model)
        q = scores.vectors(generator, design, design.query, self.queries, self.fault)
        k = scores.vectors(generator, design, design.key, keys, self.fault)
        upstream = generator.standard_normal((self.queries, keys))
        inputs = np.sqrt(generator.chisquare(self.d_model or design.dk, self.queries))
        pipeline = pipeline_of(self.pipeline)
        if not _in_single_precision(pipeline):
            q, k = q.astype(np.float64), k.astype(np.float64)
        applied = pipeline.run(own, lambda _: (q, k), context)
        logits, k = (np.asarray(x, np.float64) for x in (applied.logits, applied.k))
        return _Group(logits, k, pipeline.multiplier(context), upstream, inputs)


def _in_single_precision(pipeline: Pipeline) -> bool:
    """Whether q and k may stay in float32: only where nothing but an additive score acts on them.

    tanh takes half the time there, and no such score can overflow. Of others float64 alone tells
    a true overflow.
    """
    return pipeline == Pipeline(score=pipeline.score) and isinstance(pipeline.score, Additive)


@dataclass(frozen=True, slots=True)
class _Group:
    """Logits (n, m), the keys k (d, m) they are made from, and what is needed for gradients.

    `multiplier` is the c of logits = c qᵀk, or None; `upstream` is ∂L/∂p (n, m), `inputs` are the
    norms ‖x‖ (n,) of what W_Q projects.
    """

    logits: NDArray[np.float64]
    k: NDArray[np.float64]
    multiplier: float | None
    upstream: NDArray[np.float64]
    inputs: NDArray[np.float64]


def _rows(
    groups: Sequence[_Group],
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """The sums of `LOGITS`, and the statistics of every row without an overflow."""
    x = np.concatenate([group.logits for group in groups])
    finite = np.isfinite(x).all(axis=1)
    kept = x if finite.all() else x[finite]
    logits = np.array(
        [
            float(kept.size),
            kept.sum(),
            np.vdot(kept, kept),
            _within(kept),
            float(len(kept)),
            float(len(x) - len(kept)),
        ]
    )
    if not len(kept):
        return logits, {name: np.zeros(0) for name in (*AVERAGED, *SPREAD)}
    (statistics,) = softmax.row_statistics(kept, [1.0], spectral=False)
    rows: dict[str, Any] = {name: getattr(statistics, name) for name in AVERAGED}
    rows["frobenius"] = statistics.frobenius
    upstream = np.concatenate([group.upstream for group in groups])[finite]
    passed = _through_softmax(kept, upstream)
    rows["gradient_logits"] = _norms(passed)
    rows["gradient_query"] = _back(groups, finite, passed)
    inputs = np.concatenate([group.inputs for group in groups])[finite]
    rows["gradient_w_q"] = rows["gradient_query"] * inputs
    return logits, rows


def _back(
    groups: Sequence[_Group], finite: NDArray[np.bool_], passed: NDArray[np.float64]
) -> NDArray[np.float64]:
    """|c| ‖K w‖ for every finite row, w = J g, with the keys of its group.

    It is 0 where the logits are no multiple of q·k: the way back is then no product with the keys.
    """
    counts = [int(part.sum()) for part in np.split(finite, len(groups))]
    parts = np.split(passed, np.cumsum(counts)[:-1])
    norms = [
        abs(group.multiplier) * _norms(part @ group.k.T)
        if group.multiplier is not None
        else np.zeros(len(part))
        for group, part in zip(groups, parts, strict=True)
    ]
    return np.concatenate(norms)


def _through_softmax(x: NDArray[np.float64], g: NDArray[np.float64]) -> NDArray[np.float64]:
    """J g for every row, as p ∘ (h − p·h) with h = g − g_top, top being its largest logit.

    J maps constants to 0, so g may be counted from its entry at the top logit; then a nearly
    one-hot row has no difference of nearly equal numbers in it.
    """
    top = x.argmax(axis=1)[:, None]
    p = np.exp(x - np.take_along_axis(x, top, axis=1))
    p /= p.sum(axis=1, keepdims=True)
    h = g - np.take_along_axis(g, top, axis=1)
    return np.asarray(p * (h - (p * h).sum(axis=1, keepdims=True)))


def _within(x: NDArray[np.float64]) -> float:
    """Σ over rows of the sample variance within the row."""
    centred = x - x.mean(axis=1, keepdims=True)
    squares = float(np.vdot(centred, centred))
    return squares / float(x.shape[1] - 1)


def _norms(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The Euclidean norm of every row."""
    return np.asarray(np.sqrt(np.vecdot(x, x)))
