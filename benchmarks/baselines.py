"""The code that people write for these numbers, in its plain form.

Chunks are cache-sized, which is the fastest form of each on the machines tried: arrays that leave
the cache are 5 to 40 % slower, and with page faults much more. All of it is float64, as NumPy
makes it, but for torch, whose default is float32.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

CHUNK = 1 << 15
"""Components of q in a chunk of dot products: with q and k in float64, half a MiB."""

ROW_CHUNK = 1 << 17
"""Logits in a chunk of softmax rows: a MiB in float64."""

NO_TORCH = "" if find_spec("torch") else "torch is not installed"


def make_generator(seed: int) -> np.random.Generator:
    """NumPy's default, which people use."""
    return np.random.default_rng(seed)


def chunks(total: int, size: int) -> Iterator[int]:
    """Sizes of chunks that add up to `total`."""
    for start in range(0, total, size):
        yield min(size, total - start)


def dot_products(generator: np.random.Generator, dk: int, pairs: int) -> Iterator[Array]:
    """Independent dot products, chunk by chunk."""
    for n in chunks(pairs, max(1, CHUNK // dk)):
        q = generator.standard_normal((n, dk))
        k = generator.standard_normal((n, dk))
        yield (q * k).sum(axis=1)


def variance(generator: np.random.Generator, dk: int, pairs: int) -> tuple[float, float]:
    """Var(q·k) and its standard error √((E s⁴ − Var²)/N), in chunks."""
    sums = np.zeros(3)
    for s in dot_products(generator, dk, pairs):
        s2 = s * s
        sums += [s.sum(), s2.sum(), (s2 * s2).sum()]
    m1, m2, m4 = sums / pairs
    value = m2 - m1 * m1
    return value, math.sqrt((m4 - value * value) / pairs)


def kurtosis(generator: np.random.Generator, dk: int, pairs: int) -> tuple[float, float]:
    """The excess kurtosis of q·k and its standard error by the delta method, in chunks.

    The law is symmetric about 0, so odd moments are not looked at.
    """
    sums = np.zeros(4)
    for s in dot_products(generator, dk, pairs):
        s2 = s * s
        s4 = s2 * s2
        sums += [s2.sum(), s4.sum(), (s4 * s2).sum(), (s4 * s4).sum()]
    m2, m4, m6, m8 = sums / pairs
    kappa = m4 / m2**2
    return kappa - 3, math.sqrt(kurtosis_variance(kappa, m6 / m2**3, m8 / m2**4) / pairs)


def kurtosis_variance(kappa: float, mu6: float, mu8: float) -> float:
    """N times the variance of the kurtosis κ̂ of N independent numbers of a symmetric law.

    With μ_j = m_j/m₂^{j/2} it is that of s⁴/m₂² − 2κ s²/m₂ (delta method):
    μ₈ − κ² − 4κ(μ₆ − κ) + 4κ²(κ − 1); 24 for a normal law.
    """
    return mu8 - kappa**2 - 4 * kappa * (mu6 - kappa) + 4 * kappa**2 * (kappa - 1)


def one_shot(generator: np.random.Generator, dk: int, pairs: int) -> tuple[float, float]:
    """As `variance`, with arrays of all pairs at once."""
    q = generator.standard_normal((pairs, dk))
    k = generator.standard_normal((pairs, dk))
    s = (q * k).sum(axis=1)
    return float(s.var()), math.sqrt(float((s**2).var()) / pairs)


def torch_variance(dk: int, pairs: int) -> tuple[float, float]:
    """As `variance`, with torch's generator and float32 arithmetic; sums in float64."""
    import torch  # noqa: PLC0415  # optional, and seconds to load

    torch.set_num_threads(1)
    sums = np.zeros(3)
    for n in chunks(pairs, max(1, CHUNK // dk)):
        s = (torch.randn(n, dk) * torch.randn(n, dk)).sum(dim=1).double()
        s2 = s * s
        sums += [s.sum().item(), s2.sum().item(), (s2 * s2).sum().item()]
    m1, m2, m4 = sums / pairs
    value = m2 - m1 * m1
    return value, math.sqrt((m4 - value * value) / pairs)


def closed_forms(scores: Array, multipliers: Sequence[float]) -> list[dict[str, Array]]:
    """Entropy, weights and Jacobian norms of softmax(c·scores) by the textbook closed forms.

    They cancel where a row saturates: at d = 1024 without a scale they are wrong by 100 %.
    """
    from scipy.special import softmax  # noqa: PLC0415  # as late as the tool imports it
    from scipy.stats import entropy  # noqa: PLC0415

    found: list[dict[str, Array]] = []
    for c in multipliers:
        parts = []
        for start in range(0, len(scores), max(1, ROW_CHUNK // scores.shape[1])):
            p = softmax(c * scores[start : start + max(1, ROW_CHUNK // scores.shape[1])], axis=1)
            p2 = p * p  # and not p**2 and p**3: a power costs more than all the rest on many CPUs
            squares, cubes, top = p2.sum(axis=1), (p2 * p).sum(axis=1), p.max(axis=1)
            parts.append(
                {
                    "entropy": np.asarray(entropy(p, axis=1)),
                    "max_weight": top,
                    "effective_keys": 1 / squares,
                    "trace": 1 - squares,
                    "frobenius": np.sqrt(np.maximum(squares - 2 * cubes + squares**2, 0)),
                    "inf_norm": 2 * top * (1 - top),
                }
            )
        found.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return found


def torch_closed_forms(scores: Any, multipliers: Sequence[float]) -> list[dict[str, Any]]:
    """As `closed_forms`, on a float32 tensor of scores, chunk by chunk."""
    import torch  # noqa: PLC0415  # optional, and seconds to load

    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for c in multipliers:
        parts = []
        for part in scores.split(max(1, ROW_CHUNK // scores.shape[1])):
            p = torch.softmax(c * part, dim=1)
            p2 = p * p
            squares, cubes, top = p2.sum(dim=1), (p2 * p).sum(dim=1), p.amax(dim=1)
            parts.append(
                {
                    "entropy": torch.special.entr(p).sum(dim=1),
                    "max_weight": top,
                    "effective_keys": 1 / squares,
                    "trace": 1 - squares,
                    "frobenius": (squares - 2 * cubes + squares**2).clamp(min=0).sqrt(),
                    "inf_norm": 2 * top * (1 - top),
                }
            )
        found.append({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    return found


def explicit_jacobians(scores: Array, c: float) -> Iterator[Array]:
    """J = diag(p) − ppᵀ of every row, formed."""
    from scipy.special import softmax  # noqa: PLC0415

    for p in softmax(c * scores, axis=1):
        yield np.diag(p) - np.outer(p, p)


def explicit_frobenius(scores: Array, c: float) -> list[float]:
    """‖J‖_F of every row from its m² entries."""
    return [float(np.linalg.norm(J)) for J in explicit_jacobians(scores, c)]


def explicit_spectral(scores: Array, c: float) -> list[float]:
    """‖J‖₂ of every row by singular values."""
    return [float(np.linalg.norm(J, 2)) for J in explicit_jacobians(scores, c)]


def explicit_eigenvalue(scores: Array, c: float) -> list[float]:
    """The largest eigenvalue of every row's J, which is its ‖J‖₂."""
    return [float(np.linalg.eigvalsh(J)[-1]) for J in explicit_jacobians(scores, c)]
