"""Streams of random numbers: which arguments select them, and that nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from sdpa_check import rng

BASE = (7, "dot", 3)


def first(seed, experiment, block):
    return rng.generator(seed, experiment, block).integers(0, 2**63, 8).tolist()


def test_equal_arguments_give_the_same_stream():
    assert first(*BASE) == first(*BASE)


@pytest.mark.parametrize(
    "other",
    [(8, "dot", 3), (7, "dot ", 3), (7, "dot", 4), (7, "", 3), (7, "dot", 0), (0, "dot", 3)],
)
def test_every_argument_changes_the_stream(other):
    # 8 draws of 63 bits: an accidental match has probability 2**-504.
    assert first(*BASE) != first(*other)


def test_streams_do_not_depend_on_what_was_drawn_before():
    before = first(*BASE)
    rng.generator(7, "dot", 2).standard_normal(1000)
    np.random.default_rng(0).standard_normal(1000)
    assert first(*BASE) == before


def test_block_and_experiment_cannot_be_confused():
    """The words of the experiment are of fixed number, so no two keys run into each other."""
    keys = [(s, e, b) for s in (0, 1, 2**31) for e in ("a", "b", "ab") for b in (0, 1, 2, 10**10)]
    streams = {tuple(first(*key)) for key in keys}
    assert len(streams) == len(keys)


def test_the_stream_is_the_documented_one():
    """A change of the streams changes every published number: it must be made on purpose."""
    import hashlib

    words = np.frombuffer(hashlib.sha256(b"dot").digest()[:16], "<u4").tolist()
    sequence = np.random.SeedSequence(7, spawn_key=(*words, 3))
    documented = np.random.Generator(np.random.SFC64(sequence))
    assert first(*BASE) == documented.integers(0, 2**63, 8).tolist()
    assert "SFC64" in rng.GENERATOR
    assert "sha256" in rng.GENERATOR


def test_more_experiments_than_are_remembered():
    """Their words are kept for the next block; no experiment gets those of another."""
    experiments = [f"experiment {i}" for i in range(200)]
    streams = [first(7, each, 0) for each in experiments]
    assert len({tuple(each) for each in streams}) == len(experiments)
    assert [first(7, each, 0) for each in reversed(experiments)] == streams[::-1]


def test_blocks_are_uncorrelated():
    """Neighbouring streams: 64 correlations of n normals, each N(0, 1/n) up to O(1/n).

    False-alarm rate: 63 two-sided comparisons at z = 5.5, 63 · 4e-8 = 2.4e-6; the seed is fixed.
    """
    n = 10_000
    draws = np.array([rng.generator(0, "blocks", b).standard_normal(n) for b in range(64)])
    neighbours = np.sum(draws[1:] * draws[:-1], axis=1) / n
    assert np.abs(neighbours).max() < 5.5 / np.sqrt(n)


def test_fresh_seeds_are_short_and_new():
    seeds = {rng.fresh_seed() for _ in range(32)}
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert len(seeds) > 28  # four repetitions among 32 of 2**31 have a probability below 1e-25
