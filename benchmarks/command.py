"""The command: which benchmarks are run, and what becomes of what they find."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import dots, figures, growth, machine, page, processes, rows, workers
from benchmarks.sizes import FULL, TINY
from sdpa_check.errors import InputError, SdpaCheckError
from sdpa_check.report.save import save

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.figures import Found, Results
    from benchmarks.sizes import Sizes

ROOT = Path(__file__).resolve().parent.parent
RESULTS = "benchmarks/results.json"

GROUPS: Mapping[str, Callable[[Sizes], Sequence[Found]]] = {
    "speeds": machine.speeds,
    "variance": dots.variance,
    "kurtosis": dots.kurtosis,
    "saturation": rows.saturation,
    "jacobian": rows.jacobian,
    "limit": rows.limit,
    "workers": workers.workers,
    "memory": processes.memory,
    "startup": processes.startup,
    "growth": growth.growth,
    "profiles": machine.profiles,
}
"""Every benchmark by its name."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the benchmarks that were asked for; a run of all of them is written down."""
    options = _parser().parse_args(arguments)
    try:
        if options.redraw:
            write(read(root), root)
            return 0
        sizes = TINY if options.tiny else FULL
        if options.rounds is not None:
            sizes = dataclasses.replace(sizes, rounds=options.rounds)
        found = measure(options.only or list(GROUPS), sizes)
        print(report(found))
        if not (options.only or options.tiny):
            write(found, root)
    except (OSError, SdpaCheckError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time sdpa-check beside what people write otherwise. A run of everything "
        f"writes {RESULTS}, and the tables and plots of docs/performance.md from it.",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(GROUPS),
        metavar="NAME",
        help=f"run this one and write nothing; repeatable: {', '.join(GROUPS)}",
    )
    parser.add_argument("--rounds", type=_rounds, help=f"rounds per figure, {FULL.rounds} if not")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument(
        "--redraw", action="store_true", help=f"measure nothing, make the pages from {RESULTS}"
    )
    return parser


def _rounds(text: str) -> int:
    if not (text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"got {text!r}, want a whole number of at least 1")
    return int(text)


def measure(names: Sequence[str], sizes: Sizes) -> Results:
    """Run these benchmarks in turn, saying on stderr which one is under way."""
    started, clock = datetime.now(UTC), time.perf_counter()
    found: list[Found] = []
    for name in dict.fromkeys(names):
        begun = time.perf_counter()
        found += GROUPS[name](sizes)
        sys.stderr.write(f"{name}: {time.perf_counter() - begun:.0f} s\n")
    return figures.results(machine.described(started, time.perf_counter() - clock), found)


def report(found: Results) -> str:
    """Everything as text."""
    texts = [page.machine(found)]
    if found.figures:
        texts.append(page.figures_table(found.figures))
        texts.append(page.notes(found.figures))
    for plot in dict.fromkeys(curve.plot for curve in found.curves):
        same = [curve for curve in found.curves if curve.plot == plot]
        texts += [page.curves_table(same)]
    texts += map(page.profile_table, found.profiles)
    return "\n\n".join(text for text in texts if text)


def read(root: Path) -> Results:
    """The results below `root`.

    Raises:
        InputError: there are none, or they cannot be read.
    """
    path = root / RESULTS
    if not path.exists():
        raise InputError(RESULTS, "no such file", "a record", "run: python -m benchmarks")
    return figures.from_json(path.read_text(encoding="utf-8"), RESULTS)


def write(found: Results, root: Path) -> None:
    """The plots and pages below `root`, and last the results they are made from."""
    filled = page.pages(found, root)
    save(root / "docs" / "images", page.pictures(found))
    for name, text in filled.items():
        path = root / name
        save(path.parent, {path.name: text})
    path = root / RESULTS
    save(path.parent, {path.name: figures.to_json(found)})
