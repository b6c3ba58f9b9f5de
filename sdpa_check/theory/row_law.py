"""Softmax rows of m iid logits of any law: the integrals of `iid_row` from nodes and weights.

Given q the logits of a row are iid wherever the keys are; their law enters only through averages
over one logit, so any rule Σ wᵢ f(xᵢ) for E f(x) will do. With y = u + x,

    φ(u) = E[exp(−e^y)],      ψ_{n,a}(u) = E[(x − c)ᵃ e^{ny} exp(−e^y)],

and all row statistics follow as in `iid_row`, besides one more. Where c(u) makes ψ_{1,1} = 0,

    E[‖J x‖²] = m(m−1)/6 ∫ (2 (ψ₂₂ψ₂₀ − ψ₂₁²) φ^{m−2} + (m−2) ψ₂₂ ψ₁₀² φ^{m−3}) du,

from ‖Jx‖² = Σ_j p_j² (Σ_i p_i (x_j − x_i))² = Σ_j Σ_{i,i′} p_j² p_i p_i′ (x_j − x_i)(x_j − x_i′).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import acosh, atan, ceil, exp, log, pi, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sdpa_check.theory.iid_row import CUT, row_means
from sdpa_check.theory.quadrature import even_grid
from sdpa_check.theory.squash import FINENESS, REACH, Squash

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Branch = tuple[float, Floats, Floats]

STEP = 0.2
"""Step in u: the integrands are analytic for |Im u| < π/2, which leaves exp(−π²/0.2) = 4e-22."""

SMOOTH = pi / 2
"""exp(−e^x) is bounded for |Im x| < π/2, which bounds the spacing of nodes."""

MOST_NODES = 50_000
"""A law that needs more nodes than this is not integrated: seconds for every row."""

_CHUNK = 1 << 16


class RowAverages(NamedTuple):
    """Expectations over a row, linear, so that they may be averaged over laws of the row.

    E[H] in nats, E[Σp²], E[‖J‖_F²], and E[‖Jx‖²] with x the logits.
    """

    entropy: float
    sum_squares: float
    frobenius_ms: float
    response_ms: float


@dataclass(frozen=True, slots=True, eq=False)
class NormalRows:
    """Rows whose logits given q are iid N(shift, τ²), mixed over q.

    `taus`, `weights` and `shifts` have the shape (nodes,). `shifts` is None where the mean of a
    row varies in a way that is not modelled: a softmax does not see it, a soft cap does.
    """

    taus: Floats
    weights: Floats
    shifts: Floats | None

    @property
    def symmetric(self) -> bool:
        """Whether every row has the mean 0, so that odd functions have too."""
        return self.shifts is not None and not self.shifts.any()

    def size(self, strip: float) -> int:
        """The number of nodes of the finest branch."""
        return ceil(2 * REACH / _normal_step(float(self.taus.max()), strip))

    def branches(self, strip: float) -> Iterator[Branch]:
        """(weight, nodes, weights of the nodes) for every τ.

        Args:
            strip: half-width of the strip around the real axis in which the integrand is bounded.
        """
        shifts = np.zeros_like(self.taus) if self.shifts is None else self.shifts
        for tau, weight, shift in zip(self.taus, self.weights, shifts, strict=True):
            z = even_grid(-REACH, REACH, _normal_step(float(tau), strip))
            density = np.exp(-0.5 * z**2)
            yield float(weight), shift + tau * z, density / density.sum()


@dataclass(frozen=True, slots=True)
class SphereRows:
    """Rows whose logits are iid R t, t a component of a point uniform on the sphere in ℝⁿ.

    t = tanh v has the density ∝ sech^{n−1}(v) in v: a trapezoid sum serves every n ≥ 2. For n = 1
    t is a random sign.
    """

    radius: float
    dimension: int

    @property
    def symmetric(self) -> bool:
        """Whether every row has the mean 0."""
        return True

    @property
    def variance(self) -> float:
        """R²/n."""
        return self.radius**2 / self.dimension

    def size(self, strip: float) -> int:
        """The number of nodes."""
        return ceil(2 * self._reach / self._step(strip)) if self.dimension > 1 else 2

    @property
    def _reach(self) -> float:
        return acosh(exp(CUT / (self.dimension - 1)))

    def _step(self, strip: float) -> float:
        # |Im R tanh v| ≤ R tan|Im v|, and sech^{n−1} is nearly normal with variance 1/(n−1).
        return min(0.5 / sqrt(self.dimension - 1), FINENESS * atan(strip / self.radius))

    def branches(self, strip: float) -> Iterator[Branch]:
        """As `NormalRows.branches`: the only branch, of weight 1."""
        if self.dimension == 1:
            yield 1.0, np.array([-self.radius, self.radius]), np.array([0.5, 0.5])
            return
        v = even_grid(-self._reach, self._reach, self._step(strip))
        log_cosh = np.abs(v) + np.log1p(np.exp(-2 * np.abs(v))) - log(2)
        density = np.exp((1 - self.dimension) * log_cosh)
        yield 1.0, self.radius * np.tanh(v), density / density.sum()


Rows = NormalRows | SphereRows


class Moments(NamedTuple):
    """Mean and variance of a logit over everything, and its variance in a row on average."""

    mean: float
    variance: float
    within: float


def squashed_moments(rows: Rows, squash: Squash) -> Moments | None:
    """Moments of a capped chain of the logits of `rows`; None if that takes too many nodes."""
    strip = squash.strip()
    if rows.size(strip) > MOST_NODES:
        return None
    mean = square = between = 0.0
    for weight, x, density in rows.branches(strip):
        y = squash.value(x)
        row = float(density @ y)
        mean += weight * row
        between += weight * row**2
        square += weight * float(density @ y**2)
    if rows.symmetric:
        return Moments(0.0, square, square)
    return Moments(mean, square - mean**2, square - between)


def averages(rows: Rows, squash: Squash, keys: int) -> RowAverages | None:
    """Row statistics of softmax(f(x)), f a chain without response; None if it takes too long.

    E[‖Jx‖²] is NaN where the rows are normal and not capped, for which `iid_row` is faster.
    """
    if isinstance(rows, NormalRows) and not squash.caps:
        found = np.array([row_means(keys, squash.last * float(tau)) for tau in rows.taus])
        deficit, excess, _, _, _, _, frobenius = rows.weights @ found
        return RowAverages(log(keys) - deficit, (1 + excess) / keys, frobenius, float("nan"))
    strip = squash.strip(SMOOTH)
    if rows.size(strip) > MOST_NODES:
        return None
    total = np.zeros(4)
    for weight, x, density in rows.branches(strip):
        total += weight * np.array(law_row(keys, squash.value(x), density))
    return RowAverages(*total.tolist())


def law_row(keys: int, x: Floats, weights: Floats, step: float = STEP) -> RowAverages:
    """Row statistics for `keys` iid logits of the law with nodes x.

    Args:
        keys: number m of logits, at least 2.
        x: nodes in ascending order, close enough for exp(−e^{u+x}) to be integrated right.
        weights: their weights, summing to 1, in the shape of x.
        step: step in u; more than `STEP` only where ln Σe^x is known to vary more widely.
    """
    m = float(keys)
    u = even_grid(-(float(x.max()) + log(m) + CUT), log(CUT) - float(x.min()), step)
    complement, one, one_x, two, two_x, two_xx = _tables(u, x, weights)
    log_phi = np.log1p(-np.minimum(complement, 1 - np.finfo(np.float64).eps))
    first, second, third = (step * np.exp((m - k) * log_phi) for k in (1, 2, 3))
    pairs, triples = m * (m - 1) / 6 * 2 * second, m * (m - 1) * (m - 2) / 6 * third
    entropy = -m * float(((u + np.euler_gamma) * one + one_x) @ first)
    frobenius = float(two**2 @ pairs + (two * one**2) @ triples)
    centre = np.divide(one_x, one, out=np.zeros_like(one), where=one > 0)
    drift = two_x - centre * two
    spread = two_xx - centre * (two_x + drift)
    response = float((spread * two - drift**2) @ pairs + (spread * one**2) @ triples)
    return RowAverages(entropy, m * float(two @ first), frobenius, response)


def _tables(u: Floats, x: Floats, weights: Floats) -> Floats:
    """1 − φ, ψ₁₀, ψ₁₁, ψ₂₀, ψ₂₁, ψ₂₂ with c = 0 at every u: shape (6, u)."""
    powers = np.stack([weights, weights * x, weights * x**2], axis=1)
    parts = []
    for part in np.array_split(u, ceil(u.size * x.size / _CHUNK)):
        # exp(−e⁷) is 0, and e^−60 adds nothing: only nodes between matter.
        low, high = np.searchsorted(x, (-60.0 - part[-1], 7.0 - part[0]))
        growth = np.exp(np.minimum(np.add.outer(part, x[low:high]), 7.0))
        complement = -np.expm1(-growth)
        first = growth * (1 - complement)
        near = powers[low:high]
        certain = weights[high:].sum()
        columns = (complement @ near[:, 0] + certain, first @ near[:, :2], (growth * first) @ near)
        parts.append(np.column_stack(columns))
    tables: Floats = np.concatenate(parts).T
    return tables


def _normal_step(tau: float, strip: float) -> float:
    return min(0.5, FINENESS * strip / tau)
