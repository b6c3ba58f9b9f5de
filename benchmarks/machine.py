"""What the machine can do at most, and where the time of the hot paths goes."""

from __future__ import annotations

import cProfile
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import baselines, dots, rows
from benchmarks.figures import Figure, Profile
from benchmarks.timing import interleaved, quartiles
from sdpa_check.environment import environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from benchmarks.sizes import Sizes

CACHED, CALLS = 1 << 14, 1000  # numbers in a buffer, and calls on it
DK = 64
SHOWN = 9


def described(started: datetime, seconds: float) -> dict[str, Any]:
    """Machine, versions and date, as in every record; the vector instructions; how busy it was."""
    simd = np.show_config("dicts")["SIMD Extensions"]["found"]
    load = os.getloadavg()[1] if hasattr(os, "getloadavg") else None
    return {
        **environment(started, seconds),
        "simd": simd[-1] if simd else None,
        "load": load,
    }


def speeds(sizes: Sizes) -> list[Figure]:
    """Speeds of one core that bound every method, absolute and so of this machine only."""
    side = sizes.side
    a = baselines.make_generator(0).standard_normal((side, side), dtype=np.float32)
    numbers, out = np.linspace(-4, 0, CACHED, dtype=np.float32), np.empty(CACHED, np.float32)
    normals = np.random.Generator(np.random.SFC64(0)).standard_normal
    exp, draw = partial(np.exp, numbers, out=out), partial(normals, out=out, dtype=np.float32)
    narrow = a[:, :DK]
    tasks: tuple[tuple[str, Callable[[], object], float, str], ...] = (
        (f"matrix product, {side}³", lambda: a @ a, 2e-9 * side**3, "GFLOP/s"),
        (f"q kᵀ, {side}², d={DK}", lambda: narrow @ narrow.T, 2e-9 * DK * side**2, "GFLOP/s"),
        ("exp, cached", partial(_often, exp), 1e-9 * CALLS * CACHED, "G/s"),
        ("normals, SFC64, cached", partial(_often, draw), 1e-6 * CALLS * CACHED, "M/s"),
    )
    found = []
    for title, call, amount, unit in tasks:
        (times,) = interleaved([call], sizes.rounds)
        lower, median, upper = quartiles([amount / each for each in times])
        found.append(
            Figure(
                group="speeds",
                title=f"{title}, float32",
                unit=unit,
                lower=lower,
                median=median,
                upper=upper,
                rounds=sizes.rounds,
            )
        )
    return found


def _often(call: Callable[[], object]) -> None:
    for _ in range(CALLS):
        call()


def profiles(sizes: Sizes) -> list[Profile]:
    """Own time of functions in blocks of dot products and of rows; ufuncs count for their caller.

    The profiler sees calls of Python and of NumPy's functions, but no operator: the time of
    ``q @ k.T`` is that of the function in which it stands.
    """
    blocks = max(2, sizes.worker_blocks // 4)
    found = [
        profile(f"variance, d={dk}, {blocks} blocks", partial(_variance, dk, blocks))
        for dk in (sizes.dks[0], sizes.dks[-1])
    ]
    for keys, _ in sizes.keys[:2]:
        work, few = rows.work_of(keys), max(2, blocks // 8)
        title = f"saturation, m={keys}, three scalings, {few} blocks of {work.size} rows"
        found.append(profile(title, partial(rows.entropies, work, few)))
    return found


def _variance(dk: int, blocks: int) -> object:
    return dots.measured("dot.variance", dk, blocks)


def profile(title: str, call: Callable[[], object]) -> Profile:
    """The functions with the largest own time in one call."""
    call()
    profiler = cProfile.Profile()
    profiler.runcall(call)
    entries = sorted(_entries(profiler), key=lambda entry: -entry[1])
    total = sum(own for _, own in entries)
    return Profile(
        title=title,
        seconds=total,
        functions=tuple(name for name, _ in entries[:SHOWN]),
        shares=tuple(own / total for _, own in entries[:SHOWN]),
    )


def _entries(profiler: cProfile.Profile) -> list[tuple[str, float]]:
    """Every function as ``module.function`` with the time spent in itself."""
    found = []
    for entry in profiler.getstats():
        code = entry.code
        if isinstance(code, str):
            name = code.strip("<>").replace("built-in method ", "").replace("method ", "")
        else:
            name = f"{Path(code.co_filename).stem}.{code.co_name}"
        found.append((name, entry.inlinetime))
    return found
