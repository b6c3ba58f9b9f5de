"""Rows of logits as a pipeline of attention changes makes them, and the gradient that they pass."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sdpa_check import rng, softmax
from sdpa_check.errors import InputError
from sdpa_check.histogram import SampleGrid
from sdpa_check.logits.pipeline import Pipeline, parse
from sdpa_check.logits.transforms import Context
from sdpa_check.logits.transforms.base import octaves
from sdpa_check.measures import scores
from sdpa_check.measures.row_scores import row_length
from sdpa_check.records import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sdpa_check.engine import Sums
    from sdpa_check.records import Design

    _Floats = NDArray[np.floating[Any]]
    _Pair = tuple[_Floats, _Floats]

LOGITS = ("count", "sum", "square", "within", "rows", "overflow")
"""What is summed over the logits of finite rows: their number, Σx, Σx², Σ over rows of the variance
within the row, the number of these rows, and the number of rows with a logit that is not finite.
"""

AVERAGED = ("entropy", "max_weight", "effective_keys")
"""Row statistics of which a block returns sums."""

SPREAD = ("frobenius", "gradient_logits", "gradient_query", "gradient_w_q")
"""Row statistics of which a block returns sums of squares and histograms: ‖J‖_F, and the norms of
∂L/∂s, ∂L/∂q and ∂L/∂W_Q for a gradient ∂L/∂p of independent N(0, 1) entries.
"""

PARTS = ("logits", *AVERAGED, *SPREAD, *(f"histogram.{name}" for name in SPREAD))
"""What a block can return, see `PipelineWork`."""

_OF_SOFTMAX = (*AVERAGED, "frobenius")
_OF_GRADIENT = ("gradient_logits", "gradient_query", "gradient_w_q")

_BLOCK_SCORES = 1 << 18
_BLOCK_DRAWS = 1 << 20
_SHORT = 2048  # no float32 sum of the logits runs over more terms
_SHOWN = 4  # what is only shown takes so many times fewer rows
_OCTAVES = 40  # below 2^40 up to 2^−40 a size has a square that float32 holds
_NOTHING = -1000.0  # a logit so far below the largest has no weight in float64


@lru_cache(maxsize=1024)
def pipeline_of(text: str) -> Pipeline:
    """The pipeline of a canonical text."""
    return parse(text)


@dataclass(frozen=True, slots=True)
class PipelineWork:
    """Blocks of `groups` sets of m keys with `queries` queries each, through a pipeline.

    A pipeline that draws weights of its own draws them `weights` times for the inputs of a group,
    which makes so many times more rows.

    Sums of a block, for those of `PARTS` that are wanted: ``logits`` (see `LOGITS`); for each of
    `AVERAGED` the number of rows in it and Σ; for each of `SPREAD` the number of rows in it and Σ
    of squares; and ``histogram.{name}``, its counts on the grid of that norm. What is only `shown`,
    and judges nothing, is measured on a fourth of the rows.

    Every pipeline gets the same q and k in blocks of one number and shape, whatever is wanted of
    it, and the same ∂L/∂p where that is drawn: two pipelines are compared on equal draws.
    """

    design: Design
    pipeline: str
    groups: int
    queries: int
    d_model: int | None = None
    grids: tuple[SampleGrid, ...] = ()
    fault: Fault = dataclasses.field(default_factory=Fault)
    stream: str = "main"
    parts: tuple[str, ...] = PARTS
    shown: tuple[str, ...] = ()
    weights: int = 1

    @classmethod
    def fitting(
        cls,
        design: Design,
        pipeline: str,
        d_model: int | None,
        rows: int | None,
        fault: Fault,
    ) -> PipelineWork:
        """Blocks of about 2^18 scores and 2^20 draws, of at most about `rows` rows if given.

        The more queries share a set of keys, the cheaper is a row, and the less it says. With d
        components, about √(d (d + m)/2) queries are best where drawing two components costs as
        much as looking at a score (`row_scores.RowsShape.fitting`); a pipeline looks at it longer,
        and twice as many are as good. Inputs are projected by several pairs of matrices, and scored
        under many v, because rows that share inputs but no weights are nearly independent; the
        smaller d, the more two pairs of matrices differ, and the cheaper they are.

        Raises:
            InputError: keys that depend on the query.
        """
        if design.corr.startswith("qk:"):
            want = "none, ar1 or equi: a pipeline acts on keys that many queries share"
            raise InputError("--corr", design.corr, want)
        keys, parsed = row_length(design), pipeline_of(pipeline)
        room = max(4, _BLOCK_SCORES // keys)
        if rows is not None:
            room = min(room, max(1, rows))
        best = 1 << round(math.log2(2 * design.dk * (design.dk + keys)) / 2)
        queries, weights = min(room, max(16, min(best, 128))), 1
        if parsed.source is not None:
            queries = min(room, max(32, queries))
            weights = max(1, min(room // queries, 32, max(4, 256 // design.dk)))
        elif parsed.score.draws_weights:
            weights = max(1, min(32, room // 4))
            queries = min(16, room // weights)
        one = cls(design, pipeline, 1, queries, d_model, fault=fault, weights=weights)
        groups = max(1, min(room // one.size, _BLOCK_DRAWS // one.drawn))
        return dataclasses.replace(one, groups=groups)

    @property
    def experiment(self) -> str:
        """The design, the block shape and the stream; pipelines and parts share draws."""
        shape = [self.groups, self.queries, self.weights]
        key = {"pipeline": dataclasses.asdict(self.design), "shape": shape, "stream": self.stream}
        return json.dumps(key, sort_keys=True)

    @property
    def size(self) -> int:
        """Rows in a block."""
        return self.groups * self.queries * self.weights

    @property
    def drawn(self) -> int:
        """Components of vectors and of projections that a block draws."""
        source = pipeline_of(self.pipeline).source
        if source is not None:
            return self.groups * source.draws(self._context)
        return self.groups * (self.queries + row_length(self.design)) * self.design.dk

    @property
    def cost(self) -> float:
        """Elementary operations of a block, roughly: what one drawn normal costs counts as 32."""
        d, pairs = self.design.dk, self.groups * self.queries * row_length(self.design)
        score = pipeline_of(self.pipeline).score.operations * d
        looks = 16.0 + 0.2 * d
        if share := self._share(_OF_SOFTMAX):
            looks += 48.0 / share
        if share := self._share(_OF_GRADIENT):
            looks += (80.0 + 0.2 * d) / share
        return 32.0 * self.drawn + pairs * (score + self.weights * looks)

    @property
    def _context(self) -> Context:
        return Context(
            dk=self.design.dk,
            keys=row_length(self.design),
            queries=self.queries,
            d_model=self.d_model,
            dtype=scores.precision(self.design),
            weights=self.weights,
        )

    def split(self, parts: int) -> PipelineWork:
        """The same work in blocks of a `parts`-th of the groups, but at least one."""
        return dataclasses.replace(self, groups=max(1, self.groups // parts))

    def with_grids(self, generator: np.random.Generator) -> PipelineWork:
        """The same work with grids that fit its norms, found from one block of its own.

        Where every row of that block overflows there is nothing to fit, and any grid will do.
        """
        _, rows = self._statistics(generator)
        norms = (rows[name] if rows[name].size else np.ones(1) for name in self._counted)
        return dataclasses.replace(self, grids=tuple(map(SampleGrid.of, norms)))

    def grid(self, name: str) -> SampleGrid:
        """The bins of one norm."""
        return self.grids[self._counted.index(name)]

    @property
    def _counted(self) -> tuple[str, ...]:
        return tuple(name for name in SPREAD if f"histogram.{name}" in self.parts)

    def block(self, generator: np.random.Generator) -> Sums:
        """Draw one block and return its sums."""
        logits, rows = self._statistics(generator)
        sums: Sums = {"logits": logits} if "logits" in self.parts else {}
        for name in (*AVERAGED, *SPREAD):
            if name in self.parts:
                found = rows[name]
                total = found.sum() if name in AVERAGED else np.vdot(found, found)
                sums[name] = np.array([float(found.size), total])
        for name, grid in zip(self._counted, self.grids, strict=False):
            sums[f"histogram.{name}"] = grid.counts(rows[name]).astype(np.int32)
        return sums

    def _statistics(
        self, generator: np.random.Generator
    ) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
        """The sums of the logits, and the statistics of every row, as far as they are wanted."""
        x, keys = self._logits(generator)
        finite, rows = _finite(x), dict[str, Any]()
        logits = _moments(x, finite) if "logits" in self.parts else np.zeros(len(LOGITS))
        if share := self._share(_OF_SOFTMAX):
            names = [name for name in _OF_SOFTMAX if self._parts_of(name)]
            seen = _rows(_first(x, share), _first(finite, share))
            wanted = dict.fromkeys(names, len(seen))
            (found,) = softmax.chosen_statistics(seen, [1.0], [wanted])
            rows |= {name: getattr(found, name) for name in names}
        if share := self._share(_OF_GRADIENT):
            rows |= self._gradients(generator, _first(x, share), _first(finite, share), keys)
        return logits, rows

    def _parts_of(self, *statistics: str) -> set[str]:
        """The wanted parts that come from some row statistics."""
        return {part for part in self.parts if part.removeprefix("histogram.") in statistics}

    def _share(self, statistics: tuple[str, ...]) -> int:
        """Of how many rows these are measured in one; 0 where none of them is wanted."""
        wanted = self._parts_of(*statistics)
        return 0 if not wanted else _SHOWN if wanted <= set(self.shown) else 1

    def _logits(self, generator: np.random.Generator) -> _Pair:
        """The logits (sets, n, m), and the keys (sets, d, m) before any step."""
        pipeline, context, own = pipeline_of(self.pipeline), self._context, generator
        pipeline.check(context)
        seed = int(generator.integers(2**63))
        if pipeline.source is not None or pipeline.score.draws_weights:
            # What a pipeline draws itself comes from a stream apart and leaves the others alone.
            own = rng.generator(seed, "pipeline", 0)
        q, k = self._vectors(generator, own)
        if not self._in_single_precision:
            q, k = (x.astype(np.float64, copy=False) for x in (q, k))
        if pipeline.source is not None:
            context = dataclasses.replace(context, weights=1)  # a v for every pair of matrices
        return pipeline.logits_of(q, k, own, context), k

    @property
    def _in_single_precision(self) -> bool:
        """Whether float32 will do, which takes half the time, for q, k and their logits.

        It would round twice what a step rounds, and of overflows float64 alone tells the true
        ones. So nothing may round or be of the user's own, no tail may be heavy, and no size may
        come near the ends of float32, not even in a square.
        """
        design, context = self.design, self._context
        if context.dtype != np.float32 or scores.tail_index(design) <= 4:
            return False
        sizes = (design.query.sigma, design.key.sigma, self.fault.sample_scale**2)
        steps = (step.octaves(context) for step in pipeline_of(self.pipeline).transforms)
        return sum(map(octaves, sizes)) + sum(steps) < _OCTAVES

    def _vectors(self, generator: np.random.Generator, own: np.random.Generator) -> _Pair:
        """The queries q (sets, d, n) and keys k (sets, d, m) of a block."""
        design, source = self.design, pipeline_of(self.pipeline).source
        if source is not None:
            made = [source.repeated(own, self._context) for _ in range(self.groups)]
            return np.concatenate([q for q, _ in made]), np.concatenate([k for _, k in made])
        sizes = self.queries, row_length(design)
        return scores.sets(generator, design, self.groups, sizes, self.fault)

    def _gradients(
        self,
        generator: np.random.Generator,
        x: NDArray[np.float64],
        finite: NDArray[np.bool_],
        keys: NDArray[Any],
    ) -> dict[str, NDArray[np.float64]]:
        """The norms of the gradients that finite rows of x (sets, n, m) pass back."""
        kept = finite.reshape(-1)
        g = generator.standard_normal((kept.size, x.shape[2]), dtype=np.float32)
        along, size = _through_softmax(_rows(x, finite), g if kept.all() else g[kept])
        rows = {"gradient_logits": size * _norms(along)}
        if self._parts_of("gradient_query", "gradient_w_q"):
            c = pipeline_of(self.pipeline).multiplier(self._context)
            if c is None:  # the way back is then no product with k
                back = np.zeros(len(along))
            else:
                of_all = np.zeros((*finite.shape, along.shape[1]), along.dtype)
                of_all[finite] = along
                back = abs(c) * size * _norms(of_all @ keys.swapaxes(-1, -2))[finite]
            rows["gradient_query"] = back
        if self._parts_of("gradient_w_q"):
            inputs = np.sqrt(generator.chisquare(self.d_model or self.design.dk, kept.size))
            rows["gradient_w_q"] = back * inputs[kept]
        return rows


def _first(x: NDArray[Any], share: int) -> NDArray[Any]:
    """The first 1/`share` of the rows of every set, at least one."""
    return x[:, : max(1, x.shape[1] // share)]


def _finite(x: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows of x (sets, n, m) have no logit that is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.asarray(np.isfinite(x @ np.ones(x.shape[2], x.dtype)))
    return found if found.all() else np.asarray(np.isfinite(x).all(axis=2))


def _kept(x: NDArray[Any], finite: NDArray[np.bool_]) -> NDArray[Any]:
    """The finite rows of x (sets, n, m), shape (rows, m)."""
    return x.reshape(-1, x.shape[2]) if finite.all() else x[finite]


def _moments(x: NDArray[Any], finite: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The sums of `LOGITS`: those of a short row in the precision of x, all others in float64."""
    kept, keys = _kept(x, finite), x.shape[2]
    if keys > _SHORT:
        kept = kept.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        means = kept @ np.full(keys, 1 / keys, kept.dtype)
        centred = kept - means[:, None]
        squares = np.vecdot(centred, centred).sum(dtype=np.float64)
        means = means.astype(np.float64, copy=False)
        total, square = keys * means.sum(), squares + keys * np.vdot(means, means)
    lost = finite.size - len(kept)
    return np.array([kept.size, total, square, squares / (keys - 1), len(kept), lost], np.float64)


def _rows(x: NDArray[Any], finite: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Finite rows of x (sets, n, m) in float32, as far as the softmax sees them: (rows, m).

    That is how far every logit is from the largest, so that rounding float64 comes last. What has
    no weight at all beside the largest is cut off, for not every difference fits into float32.
    """
    kept = _kept(x, finite)
    if kept.dtype == np.float32:
        return kept
    with np.errstate(over="ignore"):
        below = np.asarray(kept - kept.max(axis=1, keepdims=True), np.float32)
    return np.maximum(below, _NOTHING, out=below)


def _through_softmax(
    x: NDArray[np.floating[Any]], g: NDArray[np.floating[Any]]
) -> tuple[NDArray[np.floating[Any]], NDArray[np.float64]]:
    """J g for every row, as a vector of moderate length and a number that multiplies it.

    With h = g − g_(1), J maps constants to 0 and so J g = J h = p ∘ (h − p·h), where the key of the
    largest weight has h = 0. Of all others p = p_(2) f with f = exp(x − x_(2)), so that
    J g = p_(2) [f ∘ (h − a)], a = p_(2) f·h, with −p_(1) f·h at the key of the largest weight.
    Nothing is a difference of nearly equal numbers, however concentrated the row, and nothing but
    the factor p_(2) can be too small for float32.

    Args:
        x: logits, shape (n, m).
        g: ∂L/∂p, shape (n, m).
    """
    row, top, ones = np.arange(len(x)), x.argmax(axis=1), np.ones(x.shape[1], x.dtype)
    f = x.copy()
    f[row, top] = -np.inf
    second = f.max(axis=1)
    ratio = np.exp(second.astype(np.float64) - x[row, top])  # p_(2)/p_(1)
    f -= second[:, None]
    np.exp(f, out=f)
    largest = 1 / (1 + ratio * (f @ ones))
    size = ratio * largest
    along = g - g[row, top][:, None]
    along *= f
    product = along @ ones
    along -= f * (size * product).astype(g.dtype)[:, None]
    along[row, top] = -largest * product
    return along, size


def _norms(x: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The Euclidean norm of every row."""
    return np.asarray(np.sqrt(np.vecdot(x, x)))
