"""What only a process of its own shows: start-up and peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.figures import Figure
from benchmarks.timing import Rival, compare, quartiles

if TYPE_CHECKING:
    from benchmarks.sizes import Sizes

EAGER = (
    "import numpy, scipy.stats, matplotlib.pyplot, typer, rich.console, rich.table; "
    "from sdpa_check.__main__ import main; main()"
)
COMMANDS = (
    ("sdpa-check --help", ("--help",), 8.0),
    ("sdpa-check variance --dk 64 --no-plot", ("variance", "--dk", "64", "--no-plot"), 4.0),
)

# The peak of the process itself: ru_maxrss would begin at that of the process that started it.
_PEAK = """
import pathlib, re, resource, sys
status = pathlib.Path("/proc/self/status")
if status.exists():
    print(int(re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1]) / 1024)
else:
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)
"""
_ROWS = """
from sdpa_check import engine, rng
from sdpa_check.measures.row_scores import RowsShape
from sdpa_check.measures.rows import RowsWork
from sdpa_check.records import Design
work = RowsWork(Design(dk=64, keys={keys}), (1.0, 0.125, 0.015625), RowsShape.fitting(64, {keys}))
work = work.with_grids(rng.generator(0, work.experiment, 0))
engine.run(work, seed=0, blocks=2, jobs=1)
"""


def startup(sizes: Sizes) -> list[Figure]:
    """Wall time of whole commands, as they are and with everything imported first."""
    found = []
    with tempfile.TemporaryDirectory() as directory:

        def run(program: tuple[str, ...]) -> None:
            subprocess.run(  # noqa: S603  # this interpreter and the texts above
                [sys.executable, *program],
                check=True,
                cwd=directory,
                capture_output=True,
                env=_with_bytecode(),
            )

        for title, arguments, target in COMMANDS:
            eager = Rival(
                name="eager imports",
                call=partial(run, ("-c", EAGER, *arguments)),
                target=target,
                note="scipy.stats, matplotlib.pyplot, typer, rich and numpy imported first",
            )
            rivals = [eager]
            if "variance" in arguments:
                numpy = partial(run, ("-c", "import numpy"))
                rivals.append(
                    Rival(name="five times `import numpy`", call=numpy, factor=5.0, target=1.0)
                )
            lazy = partial(run, ("-m", "sdpa_check", *arguments))
            found += compare("startup", title, lazy, rivals, sizes.rounds)
    return found


def _with_bytecode() -> dict[str, str]:
    """The environment, in which modules are compiled once and not at every start."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def memory(sizes: Sizes) -> list[Figure]:
    """Peak resident memory above that of an interpreter with numpy, one worker."""
    shared = f"import sdpa_check; sdpa_check.variance(dk=64, samples={sizes.pairs}, jobs=1)"
    tasks = (
        (f"variance, d=64, {sizes.pairs:,} shared pairs, whole call", shared, 64.0),
        (f"rows of m={sizes.many_keys:,}, blocks of full size", _ROWS, 300.0),
    )
    rounds = min(3, sizes.rounds)
    base = [peak("import numpy") for _ in range(rounds)]
    found = []
    for title, code, target in tasks:
        program = code.format(keys=sizes.many_keys)
        lower, median, upper = quartiles([peak(program) - each for each in base])
        found.append(
            Figure(
                group="memory",
                title=title,
                against="an interpreter with numpy",
                unit="MiB more",
                lower=lower,
                median=median,
                upper=upper,
                target=target,
                relation="at most",
                rounds=rounds,
                note=f"{median + quartiles(base)[1]:.0f} MiB in all, one worker",
            )
        )
    return found


def peak(code: str) -> float:
    """Peak resident memory in MiB of a new interpreter that runs `code`."""
    done = subprocess.run(  # noqa: S603  # this interpreter and the texts above
        [sys.executable, "-c", code + _PEAK], check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])
