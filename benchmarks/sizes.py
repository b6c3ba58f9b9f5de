"""How much work the benchmarks do: the full sizes, and tiny ones that only show that they run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of one run of all benchmarks.

    Attributes:
        rounds: how often each pair of times is taken.
        relative: the relative standard error of a variance that is aimed at.
        dks: d_k of the dot products.
        least_blocks: blocks of a run of dot products, at least.
        components: components of q that a naive run draws; its time is scaled from there.
        one_shot: the same for the one-shot form, whose arrays must be larger than any cache.
        keys: m of the softmax rows, with the number of rows.
        jacobian_keys: m of the rows whose Jacobian is formed.
        side: rows of the matrices behind the machine's limits.
        spins: steps of the calibration, about a millisecond each.
        drawn: blocks of softmax rows that are drawn.
        worker_keys: m of the rows of a two-worker figure.
        worker_blocks: blocks of dot products behind a two-worker figure.
        pairs: dot products behind the first memory figure.
        many_keys: m behind the second.
        curve_dks: d_k of the first curve.
        curve_keys: m of the second.
        curve_pairs: independent pairs of the third.
        explicit_keys: largest m of the second curve at which the Jacobian is formed.
        logits: logits of one point of the second curve, about.
    """

    rounds: int
    relative: float
    dks: tuple[int, ...]
    least_blocks: int
    components: int
    one_shot: int
    keys: tuple[tuple[int, int], ...]
    jacobian_keys: int
    side: int
    spins: int
    drawn: int
    worker_keys: int
    worker_blocks: int
    pairs: int
    many_keys: int
    curve_dks: tuple[int, ...]
    curve_keys: tuple[int, ...]
    curve_pairs: tuple[int, ...]
    explicit_keys: int
    logits: int


FULL = Sizes(
    rounds=9,
    relative=1e-3,
    dks=(64, 128, 1024),
    least_blocks=64,
    components=1 << 22,
    one_shot=1 << 23,
    keys=((64, 16384), (1024, 1024), (16384, 64), (131072, 64)),
    jacobian_keys=1024,
    side=2048,
    spins=100,
    drawn=4,
    worker_keys=1024,
    worker_blocks=128,
    pairs=10**9,
    many_keys=10**6,
    curve_dks=tuple(2**i for i in range(13)),
    curve_keys=(2, 8, 16, 32, 64, 96, 128, 256, 512, *(2**i for i in range(10, 20)), 10**6),
    curve_pairs=tuple(2**i for i in range(12, 24)),
    explicit_keys=2048,
    logits=1 << 20,
)

TINY = Sizes(
    rounds=2,
    relative=0.05,
    dks=(64,),
    least_blocks=4,
    components=1 << 10,
    one_shot=1 << 10,
    keys=((256, 4),),
    jacobian_keys=16,
    side=64,
    spins=2,
    drawn=2,
    worker_keys=256,
    worker_blocks=4,
    pairs=10**5,
    many_keys=100,
    curve_dks=(64, 128),
    curve_keys=(2, 8),
    curve_pairs=(1 << 16, 1 << 17),
    explicit_keys=2,
    logits=64,
)
