"""Softmax rows: closed forms that do not cancel, against naive ones and explicit Jacobians."""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import baselines
from benchmarks.dots import estimated
from benchmarks.figures import Figure
from benchmarks.timing import Rival, compare, interleaved, quartiles
from sdpa_check import engine, rng
from sdpa_check.logits import scaling
from sdpa_check.measures.row_scores import RowsShape
from sdpa_check.measures.rows import RowsWork
from sdpa_check.quantities import Case, Sample
from sdpa_check.records import Design
from sdpa_check.softmax import RowStatistics, row_statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from benchmarks.sizes import Sizes

DK = 64
RULES = tuple(scaling.parse(name) for name in ("none", "sqrt", "dk"))
MULTIPLIERS = tuple(rule.multiplier(DK) for rule in RULES)
SQRT = MULTIPLIERS[1]

NAIVE_TARGETS = {1024: 7.0, 131072: 11.0}
TORCH_TARGETS = {1024: 2.0, 16384: 2.0, 131072: 2.0}
LIMIT_FROM, LIMIT_TARGET = 1024, 0.5
FROBENIUS_TARGET, SPECTRAL_TARGET = 700.0, 20_000.0
FROBENIUS_ROWS = 4
GIVEN = "from given queries and keys, the matrix product included on both sides"


def vectors(count: int, seed: int) -> NDArray[np.float64]:
    """Gaussian vectors, one a row."""
    return baselines.make_generator(seed).standard_normal((count, DK))


def statistics_of(
    q: NDArray[Any], k: NDArray[Any], multipliers: Sequence[float], *, spectral: bool = False
) -> tuple[RowStatistics, ...]:
    """The tool: raw scores and the statistics of their rows, in the precision of q and k."""
    return row_statistics(q @ k.T, multipliers, spectral=spectral)


def naive(
    q: NDArray[np.float64], k: NDArray[np.float64], multipliers: Sequence[float]
) -> list[dict[str, NDArray[np.float64]]]:
    """The textbook: raw scores, softmax, entropy and closed forms, in float64."""
    return baselines.closed_forms(q @ k.T, multipliers)


def torch_naive(q: NDArray[Any], k: NDArray[Any], multipliers: Sequence[float]) -> Any:
    """The same in torch, in float32."""
    import torch  # noqa: PLC0415  # optional, and seconds to load

    torch.set_num_threads(1)
    queries, keys = (torch.from_numpy(x).float() for x in (q, k))
    return baselines.torch_closed_forms(queries @ keys.T, multipliers)


def saturation(sizes: Sizes) -> list[Figure]:
    """Entropy, weights and norms of rows under three scalings."""
    found = []
    for keys, rows in sizes.keys:
        q, k = vectors(rows, 1), vectors(keys, 2)
        single = q.astype(np.float32), k.astype(np.float32)
        rivals = [
            Rival(
                name="naive closed forms",
                call=partial(naive, q, k, MULTIPLIERS),
                target=NAIVE_TARGETS.get(keys),
                note=GIVEN,
            ),
            Rival(
                name="the same in torch, float32",
                call=partial(torch_naive, *single, MULTIPLIERS),
                target=TORCH_TARGETS.get(keys),
                missing=baselines.NO_TORCH,
            ),
        ]
        tool = partial(statistics_of, *single, MULTIPLIERS)
        title = f"{rows} rows of m={keys}, three scalings"
        found += compare("saturation", title, tool, rivals, sizes.rounds)
    return found + _whole_blocks(sizes)


def _whole_blocks(sizes: Sizes) -> list[Figure]:
    """Drawing, spectral norms, quantiles and error bars too, against the naive form of the same."""
    found = []
    for keys, _ in sizes.keys[:2]:
        work = work_of(keys)
        rival = Rival(
            name="naive closed forms",
            call=partial(naive_blocks, work.shape, keys, sizes.drawn),
            note="the same draws, so the same error; the naive form has neither spectral norms nor "
            "quantiles",
        )
        title = f"{sizes.drawn} blocks of {work.size} rows of m={keys}, drawn, with error bars"
        tool = partial(entropies, work, sizes.drawn)
        found += compare("saturation", title, tool, [rival], sizes.rounds)
    return found


def work_of(keys: int) -> RowsWork:
    """Blocks of softmax rows as `sdpa_check.saturation` runs them, under three scalings."""
    work = RowsWork(Design(dk=DK, keys=keys), MULTIPLIERS, RowsShape.fitting(DK, keys))
    return work.with_grids(rng.generator(0, work.experiment, 0))


def entropies(work: RowsWork, blocks: int, jobs: int = 1) -> list[tuple[float, float | None]]:
    """The mean entropy with its standard error under every scaling, from blocks that are drawn."""
    merged = engine.run(work, seed=0, blocks=blocks, jobs=jobs)
    found = []
    for rule, c in zip(RULES, MULTIPLIERS, strict=True):
        sample = Sample(work=work, replicates=merged, multiplier=c)
        case = Case(designs=(work.design,), scale=rule)
        estimate = estimated("softmax.entropy", case, sample)
        found.append((estimate.value, estimate.se))
    return found


def naive_blocks(shape: RowsShape, keys: int, blocks: int) -> list[tuple[float, float]]:
    """As `entropies` by the naive forms: queries and key sets are shared in the same way."""
    generator = baselines.make_generator(0)
    means = np.empty((blocks, len(MULTIPLIERS)))
    for mean in means:
        total = np.zeros(len(MULTIPLIERS))
        for _ in range(shape.groups):
            q = generator.standard_normal((shape.queries, DK))
            k = generator.standard_normal((shape.key_sets * keys, DK))
            scores = (q @ k.T).reshape(-1, keys)
            total += [each["entropy"].sum() for each in baselines.closed_forms(scores, MULTIPLIERS)]
        mean[:] = total / shape.rows
    errors = means.std(axis=0, ddof=1) / math.sqrt(blocks)
    return list(zip(means.mean(axis=0).tolist(), errors.tolist(), strict=True))


def jacobian(sizes: Sizes) -> list[Figure]:
    """Norms of the Jacobian without forming it, against forming it; one scaling, 1/√d."""
    keys = sizes.jacobian_keys
    rows = 1024
    q, k = vectors(rows, 1), vectors(keys, 2)
    single = q.astype(np.float32), k.astype(np.float32)

    def explicit(form: Callable[..., object], count: int, target: float | None) -> dict[str, Any]:
        some = "one row" if count == 1 else f"{count} rows"
        note = f"time of {some}, matrix product included, scaled to {rows}"
        call = partial(_norms, form, q[:count], k)
        return {"call": call, "factor": rows / count, "target": target, "note": note}

    first = explicit(baselines.explicit_frobenius, FROBENIUS_ROWS, FROBENIUS_TARGET)
    frobenius = Rival(name="explicit J, numpy.linalg.norm(J)", **first)
    spectral = [
        Rival(
            name="explicit J, numpy.linalg.norm(J, 2)",
            **explicit(baselines.explicit_spectral, 1, SPECTRAL_TARGET),
        ),
        Rival(
            name="explicit J, numpy.linalg.eigvalsh(J)",
            **explicit(baselines.explicit_eigenvalue, 1, None),
        ),
    ]
    tool = partial(statistics_of, *single, (SQRT,))
    title = f"{rows} rows of m={keys}"
    return [
        *compare("jacobian", f"‖J‖_F, {title}", tool, [frobenius], sizes.rounds),
        *compare(
            "jacobian",
            f"‖J‖₂ and all others, {title}",
            partial(tool, spectral=True),
            spectral,
            sizes.rounds,
        ),
    ]


def _norms(form: Callable[..., object], q: NDArray[Any], k: NDArray[Any]) -> object:
    return form(q @ k.T, SQRT)


def limit(sizes: Sizes) -> list[Figure]:
    """The share of the machine's limit: the matrix product and one exp per scaling, float32."""
    found = []
    for keys, rows in sizes.keys:
        q, k = (vectors(count, i).astype(np.float32) for i, count in enumerate((rows, keys)))
        tool = partial(statistics_of, q, k, MULTIPLIERS)
        own, least = interleaved([tool, partial(product_and_exp, q, k)], sizes.rounds)
        lower, median, upper = quartiles([b / a for a, b in zip(own, least, strict=True)])
        found.append(
            Figure(
                group="limit",
                title=f"{rows} rows of m={keys}, three scalings",
                against="q kᵀ and three exp of cached blocks",
                unit="of the limit",
                lower=lower,
                median=median,
                upper=upper,
                target=LIMIT_TARGET if keys >= LIMIT_FROM else None,
                tool_seconds=statistics.median(own),
                other_seconds=statistics.median(least),
                rounds=sizes.rounds,
            )
        )
    return found


def product_and_exp(q: NDArray[Any], k: NDArray[Any]) -> None:
    """The least that any method does: all scores, and one exp of each per scaling."""
    scores = (q @ k.T).reshape(-1)
    for start in range(0, scores.size, baselines.ROW_CHUNK):
        part = scores[start : start + baselines.ROW_CHUNK]
        out = np.empty_like(part)
        for _ in MULTIPLIERS:
            np.exp(part, out=out)
