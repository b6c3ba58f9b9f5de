"""Root seed → independent generators; the only place where generators are made."""

from __future__ import annotations

import hashlib
import secrets
from functools import lru_cache

import numpy as np

GENERATOR = "SFC64, SeedSequence(seed, spawn_key=(sha256(experiment)[:16] as 4 words, block))"
"""How block generators are made, as written into every record."""


def generator(seed: int, experiment: str, block: int) -> np.random.Generator:
    """The generator of one block of one experiment.

    It depends on its three arguments alone: not on workers, on the order in which blocks run, or
    on which other experiments run beside it. SFC64 is the fastest of numpy's generators for the
    normal ziggurat; SeedSequence makes streams with different keys independent for every purpose
    of simulation (numpy documentation, "Parallel random number generation").
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(*_words(experiment), block))
    return np.random.Generator(np.random.SFC64(sequence))


@lru_cache(maxsize=64)
def _words(experiment: str) -> tuple[int, ...]:
    digest = hashlib.sha256(experiment.encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))


def fresh_seed() -> int:
    """A new root seed from the operating system, small enough to be typed again."""
    return secrets.randbelow(2**31)
