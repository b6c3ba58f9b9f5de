"""Every built-in claim, slow ones too, and its control: does the verdict turn?

A claim is judged as it stands and under the change that its record names as its control, at the
planned sample sizes. Prints a Markdown table of both and exits with 1 if a verdict is not the
expected one, or a control not its opposite.

    python benchmarks/controls.py [--seed 0] [--jobs 2]
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from sdpa_check import experiment
from sdpa_check.checks import Settings
from sdpa_check.claims import registry
from sdpa_check.records import Outcome, Row

OPPOSITE = {Outcome.CONFIRMED: Outcome.REFUTED, Outcome.REFUTED: Outcome.CONFIRMED}


def judged(settings: Settings) -> list[tuple[registry.Claim, Row, Row]]:
    """Every claim that is judged, with its row and that of its control."""
    claims = [claim for claim in registry.builtin() if claim.quantity is not None]
    checks = [claim.check() for claim in claims]
    controls = [
        dataclasses.replace(claim.controlled().check(), id=f"control of {claim.id}")
        for claim in claims
    ]
    rows, _ = experiment.run([*checks, *controls], settings)
    return list(zip(claims, rows[: len(claims)], rows[len(claims) :], strict=True))


def main() -> int:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    started = time.perf_counter()
    found = judged(Settings(seed=options.seed, jobs=options.jobs))
    print(f"{len(found)} claims, seed {options.seed}, {time.perf_counter() - started:.0f} s.\n")
    print("| claim | verdict | control | verdict | as wanted |")
    print("|---|---|---|---|---|")
    wrong = 0
    for claim, row, control in found:
        wanted = (claim.expected, OPPOSITE[claim.expected])
        good = (row.verdict, control.verdict) == wanted
        wrong += not good
        changes = ", ".join(f"{name} = {value}" for name, value in claim.control.items())
        print(
            f"| {claim.id} | {row.verdict} | {changes} | {control.verdict} "
            f"| {'yes' if good else 'NO'} |"
        )
    print(f"\n{wrong} not as wanted.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
