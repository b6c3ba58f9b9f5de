"""How often the 95 % interval holds the truth, and how often a true prediction is refuted.

A small experiment is repeated over many seeds, and each of its intervals is held against the exact
value. Prints Markdown tables; `docs/calibration.md` explains them and holds a copy.

    python benchmarks/coverage.py [--seeds 1000] [--jobs 2]
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from sdpa_check import engine, rng
from sdpa_check.logits import scaling
from sdpa_check.measures.dot import DotWork
from sdpa_check.measures.row_scores import RowsShape
from sdpa_check.measures.rows import RowsWork
from sdpa_check.quantities import Case, Sample, quantity
from sdpa_check.records import Component, Design, Outcome, Prediction
from sdpa_check.theory.law import DotLaw
from sdpa_check.verdict import judge

DOT_BLOCKS, ROW_BLOCKS = 64, 32
CHUNK = 25  # seeds to a task
ALPHAS = (0.05, 0.01)
DOT = ("dot.mean", "dot.variance", "dot.std", "dot.excess_kurtosis", "dot.iqr")
ROWS = (
    ("softmax.entropy", None),
    ("softmax.sum_squares", None),
    ("jacobian.frobenius", "rms"),
    ("jacobian.frobenius", "median"),
    ("jacobian.frobenius", "q95"),
)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A design with the size of its blocks and what is estimated from them."""

    title: str
    work: DotWork | RowsWork
    blocks: int
    checks: tuple[tuple[str, Case], ...]


def experiments() -> list[Experiment]:
    """Dot products under several laws, and rows under two scalings."""

    def dot(title: str, dk: int, vectors: int, corr: str = "none", **law: object) -> Experiment:
        component = Component(**law)
        design = Design(dk=dk, query=component, key=component, corr=corr)
        checks = tuple((name, Case(designs=(design,))) for name in DOT)
        work = DotWork(design, vectors)
        return Experiment(f"{title}, d={dk}, n={vectors}²", work, DOT_BLOCKS, checks)

    def rows(dk: int, keys: int, scale: str, shape: RowsShape) -> Experiment:
        design, rule = Design(dk=dk, keys=keys), scaling.parse(scale)
        case = Case(designs=(design,), scale=rule)
        checks = tuple((name, dataclasses.replace(case, statistic=s)) for name, s in ROWS)
        work = RowsWork(design, (rule.multiplier(dk),), shape)
        work = work.with_grids(rng.generator(0, work.experiment, 0))
        title = f"rows, d={dk}, m={keys}, {scale}, {shape.rows} rows"
        return Experiment(title, work, ROW_BLOCKS, checks)

    return [
        dot("gaussian", 8, 16),
        dot("gaussian", 8, 128),
        dot("gaussian", 64, 64),
        dot("gaussian, qk:0.3", 16, 32, corr="qk:0.3"),
        dot("uniform", 16, 64, distribution="uniform"),
        dot("laplace", 16, 64, distribution="laplace"),
        dot("t(9)", 16, 64, distribution="t", df=9),
        dot("t(5)", 16, 64, distribution="t", df=5),
        dot("cauchy", 16, 64, distribution="cauchy"),
        rows(16, 2, "none", RowsShape(1, 16, 4)),
        rows(16, 2, "sqrt", RowsShape(1, 16, 4)),
        rows(64, 32, "none", RowsShape(1, 16, 2)),
        rows(64, 32, "sqrt", RowsShape(1, 16, 2)),
    ]


def truth(name: str, case: Case) -> float | None:
    """The exact value: the prediction, or for two keys the quantile of a function of one score.

    With two keys ‖J‖_F = 2p(1 − p), p = 1/(1 + e^−Δ), falls in |Δ|, and Δ = c q·(k₁ − k₂) is √2 c
    times a dot product: the quantiles of ‖J‖_F are those of s.
    """
    if case.statistic not in {"median", "q95"}:
        return quantity(name).predict(case).value
    if case.design.keys != 2:
        return None
    above = 0.5 if case.statistic == "median" else 0.05  # P(|Δ| < gap), as ‖J‖_F falls in |Δ|
    gap = math.sqrt(2) * case.multiplier * DotLaw(case.design).quantile(0.5 + above / 2)
    return 0.5 / math.cosh(gap / 2) ** 2


def repeat(experiment: Experiment, truths: dict[int, float], seeds: range) -> list[dict]:
    """Estimates and outcomes of one run per seed."""
    found = []
    for seed in seeds:
        merged = engine.run(experiment.work, seed=seed, blocks=experiment.blocks, jobs=1)
        multiplier = getattr(experiment.work, "multipliers", (1.0,))[0]
        sample = Sample(work=experiment.work, replicates=merged, multiplier=multiplier)
        run = {"alarm": dict.fromkeys(ALPHAS, False)}
        for i, (name, case) in enumerate(experiment.checks):
            estimate = quantity(name).estimate(case, (sample,))
            if estimate.se is None or i not in truths:
                continue
            run[i] = (estimate.value, estimate.se, estimate.lo, estimate.hi)
            right = Prediction(value=truths[i], kind="exact", source="")
            for alpha in ALPHAS:
                verdict = judge(estimate, right, 0.0, alpha=alpha, checks=len(truths))
                run["alarm"][alpha] |= verdict.outcome is Outcome.REFUTED
        found.append(run)
    return found


def coverage_row(title: str, name: str, right: float, values: np.ndarray) -> str:
    """One line of the table: how many intervals hold the truth, and miss it on which side."""
    value, se, lo, hi = values.T
    below, above = np.mean(hi < right), np.mean(lo > right)
    ratio = math.sqrt(np.mean(se**2)) / value.std(ddof=1)
    bias = (value.mean() - right) / value.std(ddof=1)
    return (
        f"| {title} | {name} | {100 * (1 - below - above):.1f} | {100 * below:.1f} | "
        f"{100 * above:.1f} | {ratio:.3f} | {bias:+.3f} |"
    )


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    seeds = range(options.seeds)
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(options.jobs) as pool:
        tasks = []
        for experiment in experiments():
            known = {i: truth(*check) for i, check in enumerate(experiment.checks)}
            truths = {i: value for i, value in known.items() if value is not None}
            runs = pool.map(partial(repeat, experiment, truths), chunks)
            tasks.append((experiment, truths, runs))
        finished = [(one, truths, list(chain(*runs))) for one, truths, runs in tasks]
    print(f"{options.seeds} runs of {DOT_BLOCKS} blocks of dot products, {ROW_BLOCKS} of rows.\n")
    print("| experiment | quantity | coverage % | too low % | too high % | se/sd | bias/sd |")
    print("|---|---|---|---|---|---|---|")
    for experiment, truths, runs in finished:
        for i, right in truths.items():
            name, case = experiment.checks[i]
            values = np.array([run[i] for run in runs if i in run])
            if len(values):
                label = f"{name} {case.statistic or ''}".strip()
                print(coverage_row(experiment.title, label, right, values))
    print("\n| experiment | checks | refuted at α = 0.05, % | at α = 0.01, % |")
    print("|---|---|---|---|")
    alarms = defaultdict(list)
    for experiment, truths, runs in finished:
        for alpha in ALPHAS:
            alarms[alpha] += [run["alarm"][alpha] for run in runs]
        rates = [100 * np.mean([run["alarm"][alpha] for run in runs]) for alpha in ALPHAS]
        print(f"| {experiment.title} | {len(truths)} | {rates[0]:.1f} | {rates[1]:.1f} |")
    total = [100 * np.mean(alarms[alpha]) for alpha in ALPHAS]
    print(f"| all | | {total[0]:.2f} | {total[1]:.2f} |")


if __name__ == "__main__":
    main()
