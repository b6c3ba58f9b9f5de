"""Variance and kurtosis of q·k: shared pairs with their error bar, against independent pairs."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, cast

import sdpa_check
from benchmarks import baselines
from benchmarks.timing import Rival, compare
from sdpa_check import engine, works
from sdpa_check.checks import Check, Settings
from sdpa_check.quantities import Case, Sample, quantity
from sdpa_check.records import Design

if TYPE_CHECKING:
    from benchmarks.figures import Figure
    from benchmarks.sizes import Sizes
    from sdpa_check.measures.dot import DotWork
    from sdpa_check.quantities import Quantity
    from sdpa_check.records import Estimate

VARIANCE_TARGETS = {64: 30.0, 128: 55.0, 1024: 120.0}
KURTOSIS_TARGETS = {64: 80.0, 128: 130.0, 1024: 300.0}


def work_of(name: str, dk: int) -> DotWork:
    """Blocks of the default design, as the tool makes them where one quantity is asked for."""
    check = Check(id=name, quantity=name, case=Case(designs=(Design(dk=dk),)))
    return cast("DotWork", works.work_of("dot", Design(dk=dk), [check], Settings()))


def measured(name: str, dk: int, blocks: int, *, seed: int = 0, jobs: int = 1) -> Estimate:
    """One quantity of q·k with its error bar, from `blocks` blocks."""
    work = work_of(name, dk)
    merged = engine.run(work, seed=seed, blocks=blocks, jobs=jobs)
    sample = Sample(work=work, replicates=merged)
    return estimated(name, Case(designs=(work.design,)), sample)


def estimated(name: str, case: Case, sample: Sample) -> Estimate:
    """A sampled quantity of the vocabulary, as commands estimate it."""
    return cast("Quantity", quantity(name)).estimate(case, (sample,))


def block_variance(work: DotWork) -> float:
    """Relative variance of a variance from one block of shared Gaussian pairs, exact.

    From g groups of n × n pairs it is [(2/d)(2/n) + (2 + 2/d)/n²]/g (Hoeffding).
    """
    gram = work.size == work.vectors**2
    n, groups = (work.vectors, 1) if gram else work.tiling
    d = work.design.dk
    return (4 / (d * n) + (2 + 2 / d) / n**2) / groups


def pair_variance(dk: int) -> float:
    """Relative variance of a variance from one independent Gaussian pair: 2 + 6/d."""
    return 2 + 6 / dk


def pair_kurtosis_variance(dk: int) -> float:
    """Variance of a kurtosis from independent Gaussian pairs, times their number.

    Given q, s is normal with variance |q|², so μ_2j = (2j − 1)!! d(d + 2)…(d + 2j − 2)/d^j.
    """
    mu4, mu6, mu8 = (
        math.prod(range(1, 2 * j, 2)) * math.prod(1 + 2 * i / dk for i in range(j))
        for j in (2, 3, 4)
    )
    return baselines.kurtosis_variance(mu4, mu6, mu8)


def needed_blocks(work: DotWork, sizes: Sizes) -> int:
    """Blocks for the wanted error, or the least that a run has if it reaches that earlier."""
    blocks = math.ceil(block_variance(work) / sizes.relative**2)
    return engine.whole(max(sizes.least_blocks, blocks))


def variance(sizes: Sizes) -> list[Figure]:
    """Var(q·k) at 0.1 %: time of the tool, and of others for the same standard error."""
    return [figure for dk in sizes.dks for figure in _variance_at(dk, sizes)]


def _variance_at(dk: int, sizes: Sizes) -> list[Figure]:
    work = work_of("dot.variance", dk)
    blocks = needed_blocks(work, sizes)
    reached = block_variance(work) / blocks
    pairs = pair_variance(dk) / reached
    chunked, large = sizes.components // dk, sizes.one_shot // dk
    generator = baselines.make_generator(0)
    scaled = f"time of {chunked:,} pairs scaled to {pairs:,.0f}, which have the same error"
    rivals = [
        Rival(
            name="NumPy in chunks",
            call=partial(baselines.variance, generator, dk, chunked),
            factor=pairs / chunked,
            target=VARIANCE_TARGETS.get(dk),
            note=scaled,
        ),
        Rival(
            name="NumPy, one array",
            call=partial(baselines.one_shot, generator, dk, large),
            factor=pairs / large,
            note=f"arrays of {large:,} pairs",
        ),
        Rival(
            name="torch in chunks",
            call=partial(baselines.torch_variance, dk, chunked),
            factor=pairs / chunked,
            missing=baselines.NO_TORCH,
        ),
    ]
    title = f"variance, d={dk}, ± {100 * math.sqrt(reached):.3f} %"
    tool = partial(measured, "dot.variance", dk, blocks)
    return compare("variance", title, tool, rivals, sizes.rounds) + _whole_call(dk, sizes)


def _whole_call(dk: int, sizes: Sizes) -> list[Figure]:
    """The same against all that `sdpa_check.variance` does, at the precision that it then has."""
    work = work_of("dot.variance", dk)
    chunked = sizes.components // dk

    def tool() -> sdpa_check.Run:
        return sdpa_check.variance(dk=dk, precision=sizes.relative, jobs=1)

    (row,) = (row for row in tool().rows if row.quantity == "dot.variance")
    samples = row.estimate.samples if row.estimate is not None else 0
    reached = block_variance(work) * work.size / samples
    rival = Rival(
        name="NumPy in chunks",
        call=partial(baselines.variance, baselines.make_generator(0), dk, chunked),
        factor=pair_variance(dk) / reached / chunked,
        note="the pilot, all nine quantities and their verdicts are in the tool's time; exact "
        "theory, which a process computes once, is not",
    )
    title = f"variance, d={dk}, whole call, ± {100 * math.sqrt(reached):.3f} %"
    return compare("variance", title, tool, [rival], sizes.rounds)


def kurtosis(sizes: Sizes) -> list[Figure]:
    """The kurtosis of q·k at equal standard error, that of the tool by its own error bars."""
    return [figure for dk in sizes.dks for figure in _kurtosis_at(dk, sizes)]


def _kurtosis_at(dk: int, sizes: Sizes) -> list[Figure]:
    least = 24 / (3 * sizes.relative) ** 2 / work_of("dot.excess_kurtosis", dk).size
    blocks = engine.whole(max(sizes.least_blocks, math.ceil(least)))
    seeds = range(sizes.rounds)
    found = [measured("dot.excess_kurtosis", dk, blocks, seed=seed).se or 0.0 for seed in seeds]
    reached = sum(se * se for se in found) / len(found)
    pairs = pair_kurtosis_variance(dk) / reached
    chunked = sizes.components // dk
    rival = Rival(
        name="NumPy in chunks",
        call=partial(baselines.kurtosis, baselines.make_generator(0), dk, chunked),
        factor=pairs / chunked,
        target=KURTOSIS_TARGETS.get(dk),
        note=f"time of {chunked:,} pairs scaled to {pairs:,.0f}; the error of the tool is the root "
        f"mean square of its own over {len(found)} runs, which a ratio knows to about "
        f"{100 * math.sqrt(2 / (len(found) * (blocks - 1))):.0f} %",
    )
    title = f"kurtosis, d={dk}, ± {math.sqrt(reached):.4f}"
    tool = partial(measured, "dot.excess_kurtosis", dk, blocks)
    return compare("kurtosis", title, tool, [rival], sizes.rounds)
