"""How often a correct number is refuted: many seeds of `variance` and of `verify`.

    python benchmarks/false_alarms.py            # 200 seeds each
    python benchmarks/false_alarms.py 50

Runs are made small by a fixed number of samples. That leaves more checks inconclusive, which is no
alarm, and no fewer refuted than the false-alarm probability of 1e-6 a run allows: none is expected.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import sdpa_check
from sdpa_check.records import Outcome

HEAVY = (2.1, 2.5, 3.0, 4.0)


def alarms(run: sdpa_check.Run) -> list[str]:
    """The ids of the rows that came out otherwise than expected, inconclusive ones apart."""
    return [
        row.id
        for row in run.rows
        if row.verdict not in (row.expected, Outcome.INCONCLUSIVE, Outcome.NOT_RUN)
    ]


def main() -> None:
    """Print, for each command, the number of runs, of checks and of alarms."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print("| runs | seeds | checks | inconclusive | alarms | seconds |")
    print("|---|---|---|---|---|---|")
    for df in HEAVY:
        runs = (
            sdpa_check.variance(dk=[4, 64], dist="t", df=df, samples=1 << 20, seed=1000 + seed)
            for seed in range(seeds)
        )
        report(f"variance --dist t --df {df}", seeds, runs)
    runs = (sdpa_check.verify(samples=1 << 14, seed=1000 + seed) for seed in range(seeds))
    report("verify", seeds, runs)


def report(name: str, seeds: int, runs: object) -> None:
    """One line of the table, and the alarms by name."""
    start, tally, found = time.perf_counter(), Counter(), Counter()
    for run in runs:  # type: ignore[attr-defined]
        tally.update(row.verdict for row in run.rows)
        found.update(alarms(run))
    seconds = time.perf_counter() - start
    checks = sum(tally.values()) - tally[Outcome.NOT_RUN]
    open_ = tally[Outcome.INCONCLUSIVE]
    print(f"| {name} | {seeds} | {checks} | {open_} | {sum(found.values())} | {seconds:.0f} |")
    for each, count in found.most_common():
        print(f"  {each}: {count}", file=sys.stderr)


if __name__ == "__main__":
    main()
