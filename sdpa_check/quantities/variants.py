"""Variants of attention on given numbers: where the scale stands, tiles, rotations, norms, caps.

As in `attention`, an identity is claimed as an error that equals 0, and its `bound` is what
rounding alone can make of it. Rotations, caps and LayerNorm are those of the steps of a pipeline.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sdpa_check.errors import InputError
from sdpa_check.logits.transforms import Context
from sdpa_check.logits.transforms.floats import to_float16
from sdpa_check.logits.transforms.logits import SoftCap
from sdpa_check.logits.transforms.vectors import RoPE, normalised
from sdpa_check.quantities.attention import WEIGHTS, bounded_vectors, values, vectors
from sdpa_check.quantities.exact import LARGEST_LOGIT, LARGEST_ROW, UNIT, exact
from sdpa_check.quantities.params import required
from sdpa_check.softmax import softmax
from sdpa_check.theory import extremes

if TYPE_CHECKING:
    from sdpa_check.quantities.base import Case
    from sdpa_check.quantities.exact import Floats

_TILE = 2
"""Keys in a tile: so few that a short row has several tiles."""

_LEAST_SPREAD, _LARGEST_SPREAD = 0.1, 600.0
"""Of logits from whose weights a multiplier is read: none may underflow, and some must differ."""

_LARGEST_MEAN = 1000.0
"""Of a vector that is layer-normalised, in standard deviations: what is left after x − mean."""

_ALIGNED_DK = 64


def _plain_attention(q: Floats, k: Floats, v: Floats) -> tuple[Floats, Floats]:
    """softmax(Kq/√d) V as textbooks write it; the output, and the weights."""
    scores = k @ q / q.shape[-1] ** 0.5
    weights = np.exp(scores) / np.exp(scores).sum()
    return weights @ v, weights


def _plain_multiplier(case: Case) -> list[float]:
    q, k = bounded_vectors(case)
    s, root = k @ q, math.sqrt(len(q))
    spread = float(s.max() - s.min())
    if not _LEAST_SPREAD <= spread / root <= _LARGEST_SPREAD or np.abs(s).max() / root > 700:
        want = f"scores q·k/√d that differ by {_LEAST_SPREAD:g} to {_LARGEST_SPREAD:g}"
        raise InputError("k", k.tolist(), want)
    _, p = _plain_attention(q, k, values(k))
    return [root * math.log(p[s.argmax()] / p[s.argmin()]) / spread]


def _scale_position_error(case: Case) -> list[float]:
    q, k = bounded_vectors(case)
    root, fourth = math.sqrt(len(q)), len(q) ** -0.25
    on_scores, on_q = k @ q / root, k @ (q / root)
    on_both = (fourth * k) @ (fourth * q)
    return [float(np.abs([on_q - on_scores, on_both - on_scores]).max())]


def _float16_scale_error(case: Case) -> list[float]:
    q, k = (_float16(x) for x in vectors(case))
    c = float(_float16(np.array(1 / math.sqrt(len(q)))))
    on_scores, on_query = _float16(_float16(k @ q) * c), _float16(k @ _float16(c * q))
    with np.errstate(invalid="ignore"):
        return [float(np.abs(on_scores - on_query).max())]


def _float16(x: Floats) -> Floats:
    """Rounded: a sum of products is one step, as hardware adds them up in a wider type."""
    return np.asarray(to_float16(x), np.float64)


def _scale_cost_ratio(case: Case) -> list[float]:
    tokens = np.array(required(case.inputs, "k"), dtype=np.float64)
    return [tokens.size / (tokens @ tokens.T).size]


def _rope_scale_error(case: Case) -> list[float]:
    q, k = bounded_vectors(case)
    if len(q) % 2:
        raise InputError("q", q.tolist(), "an even number of components, for pairs")
    c, context = 1 / math.sqrt(len(q)), Context(dk=len(q), keys=len(k))

    def rotated_scores(query: Floats) -> Floats:
        turned, keys = RoPE().on_vectors(query[:, None], k.T, context)
        return np.asarray((turned.T @ keys)[0], np.float64)

    error = np.abs(rotated_scores(c * q) - c * rotated_scores(q))
    size = c * np.linalg.norm(q) * np.linalg.norm(k, axis=1)
    return [float(np.divide(error, size, out=np.zeros_like(size), where=size > 0).max())]


def _tiled_attention(q: Floats, k: Floats, v: Floats) -> Floats:
    """softmax(Kq/√d) V tile by tile, with a running maximum, sum and output (Dao et al. 2022)."""
    top, total, out = -math.inf, 0.0, np.zeros(v.shape[1])
    for start in range(0, len(k), _TILE):
        tile = slice(start, start + _TILE)
        x = k[tile] @ q / math.sqrt(len(q))
        new = max(top, float(x.max()))
        e, kept = np.exp(x - new), math.exp(top - new)
        total, out, top = kept * total + float(e.sum()), kept * out + e @ v[tile], new
    return out / total


def _tiled_error(case: Case) -> list[float]:
    q, k = bounded_vectors(case)
    v = values(k)
    plain = softmax(k @ q / math.sqrt(len(q))) @ v
    return [float(np.abs(_tiled_attention(q, k, v) - plain).max())]


def _rotated_sign_variance(case: Case) -> list[float]:
    q, k = vectors(case)
    if k.shape != (1, 2):
        raise InputError("k", k.tolist(), "one key of two components, a pair that is rotated")
    angle = np.array([math.radians(required(case.inputs, "x"))])
    signs = np.array(list(np.ndindex(2, 2))) * 2.0 - 1.0
    queries, keys = signs * q, RoPE().rotated((signs * k).T, angle)
    return [float(np.square(queries @ keys).mean())]  # the mean is 0 by symmetry


def _additive_bound_ratio(case: Case) -> list[float]:
    q, k = vectors(case)
    v = k[0]
    if not v.any():
        raise InputError("k", k.tolist(), "a first key that is not 0: it stands for v")
    scores = [(v * np.tanh(10.0**power * (q + k))).sum(axis=1) for power in range(7)]
    return [float(np.abs(scores).max() / np.abs(v).sum())]


def _softcap_largest(case: Case) -> list[float]:
    cap = float(required(case.inputs, "x"))
    if cap <= 0:
        raise InputError("x", cap, "a cap > 0")
    far = np.outer([-1.0, 1.0], 10.0 ** np.arange(9))
    capped = SoftCap(cap).on_logits(far, Context(dk=1, keys=far.shape[1]))
    return [float(np.abs(capped).max())]


def _layer_normalised(where: str, x: Floats) -> Floats:
    """LayerNorm of every column of x (d, n).

    Raises:
        InputError: for a vector with too little spread around its mean, or one that is too long.
    """
    mean, std = np.abs(x.mean(axis=0)), x.std(axis=0)
    if len(x) > LARGEST_ROW or not (std > mean / _LARGEST_MEAN).all():
        want = f"at most {LARGEST_ROW} numbers that differ, of a mean of at most 1000 std"
        raise InputError(where, x.T.tolist(), want)
    return np.asarray(normalised(x, math.sqrt(len(x)), centre=True), np.float64)


def _layernorm_moments(case: Case) -> list[float]:
    x = np.array(required(case.inputs, "q"), dtype=np.float64)
    out = _layer_normalised("q", x[:, None])
    return [float(out.mean()), float(out.std())]


def _projected_mean(case: Case) -> list[float]:
    row, tokens = vectors(case)
    return [float((row @ _layer_normalised("k", tokens.T)).mean())]


def _alignment(case: Case) -> float:
    rho = float(required(case.inputs, "x"))
    if not -1 < rho < 1:
        raise InputError("x", rho, "a correlation between −1 and 1")
    return rho


def _aligned_mean(case: Case) -> list[float]:
    """√d E r, with r the cosine: E r = ρ (2/d) (Γ((d+1)/2)/Γ(d/2))² ₂F₁(½, ½; d/2 + 1; ρ²)."""
    from scipy.special import hyp2f1

    rho, d = _alignment(case), _ALIGNED_DK
    gammas = math.exp(2 * (math.lgamma((d + 1) / 2) - math.lgamma(d / 2)))
    return [math.sqrt(d) * rho * 2 / d * gammas * float(hyp2f1(0.5, 0.5, d / 2 + 1, rho**2))]


def _aligned_variance(case: Case) -> list[float]:
    """Times d, E r² − (E r)²: 1 − E r² = (1 − ρ²) (1 − 1/d) ₂F₁(1, 1; d/2 + 1; ρ²)."""
    from scipy.special import hyp2f1

    rho, d = _alignment(case), _ALIGNED_DK
    rest = (1 - rho**2) * (1 - 1 / d) * float(hyp2f1(1, 1, d / 2 + 1, rho**2))
    (mean,) = _aligned_mean(case)
    return [d * (1 - rest) - mean**2]


def _count(case: Case) -> int:
    n = float(required(case.inputs, "x"))
    if not n.is_integer() or not 2 <= n <= 1e6:
        raise InputError("x", n, "an integer from 2 to 1000000: the number of logits")
    return int(n)


def _expected_max(case: Case) -> list[float]:
    return [extremes.expected_max(_count(case))]


def _expected_gap(case: Case) -> list[float]:
    return [extremes.expected_gap(_count(case))]


def _max_growth(case: Case) -> list[float]:
    n = _count(case)
    risen = extremes.expected_max(10 * n) - extremes.expected_max(n)
    return [risen / (extremes.leading_term(10 * n) - extremes.leading_term(n))]


_TILED = LARGEST_ROW * (2 * WEIGHTS + 8 * LARGEST_ROW * UNIT)
"""Difference of outputs of values ≤ 1: m weights, twice. A weight of the tiled form is a product of
at most m/2 + 1 exponentials, whose arguments are ≤ 0 and add up to x − max: 7 units more for each.
"""

QUANTITIES = (
    exact(
        "attention.plain_multiplier",
        "c√d, c = ln(p_a/p_b)/(s_a − s_b) read off the weights of a plain implementation",
        _plain_multiplier,
        "q",
        "k",
        # two logits (d + 2 units of them) and two weights (|x| and some units), over the spread
        bound=2 * (LARGEST_ROW + 8) * UNIT * LARGEST_LOGIT / _LEAST_SPREAD,
    ),
    exact(
        "attention.scale_position_error",
        "max |logit − q·k/√d| for q/√d first, and for d^−¼ on q and k",
        _scale_position_error,
        "q",
        "k",
        bound=2 * (LARGEST_ROW + 6) * UNIT * LARGEST_LOGIT,  # d products and at most 6 factors
    ),
    exact(
        "attention.float16_scale_error",
        "max |c(q·k) − (cq)·k|, c = 1/√d, every result rounded to float16",
        _float16_scale_error,
        "q",
        "k",
    ),
    exact(
        "attention.scale_cost_ratio",
        "entries of the (N, d) queries over entries of the (N, N) scores, N tokens k of d numbers",
        _scale_cost_ratio,
        "k",
    ),
    exact(
        "attention.rope_scale_error",
        "max |(R c q)·(R k) − c (R q)·(R k)|/(c‖q‖‖k‖), c = 1/√d, R rotates by position",
        _rope_scale_error,
        "q",
        "k",
        # of the same cosines: 3 units and √2 for each rotation, d for the sum, 3 for the factors
        bound=2 * (LARGEST_ROW + 12) * UNIT,
    ),
    exact(
        "attention.tiled_error",
        "max |out by tiles of 2 keys − softmax(Kq/√d) V|, V = K/max|K|",
        _tiled_error,
        "q",
        "k",
        bound=_TILED,
    ),
    exact(
        "rope.sign_variance",
        "Var[q·R k] over all signs of the components of one pair, R a rotation by x degrees",
        _rotated_sign_variance,
        "q",
        "k",
        "x",
    ),
    exact(
        "attention.additive_bound_ratio",
        "max |Σ v_a tanh(t(q_a + k_a))|/‖v‖₁ over t = 1 … 10⁶, v = k₁",
        _additive_bound_ratio,
        "q",
        "k",
    ),
    exact(
        "softcap.largest", "max |x tanh(y/x)| over y = ±1 … ±10⁸, x the cap", _softcap_largest, "x"
    ),
    exact(
        "layernorm.moments",
        "mean and std of (q − mean q)/std q over the components of q",
        _layernorm_moments,
        "q",
        # a number keeps all but (d + 6) units of the mean; the spread, as many of itself
        bound=2 * (LARGEST_ROW + 6) * UNIT * _LARGEST_MEAN,
    ),
    exact(
        "layernorm.projected_mean",
        "mean over tokens k of w·LN(k), w = q a row of a projection",
        _projected_mean,
        "q",
        "k",
    ),
    exact(
        "qk_norm.aligned_mean",
        "E[√d cos(q, k)] at d = 64 for Gaussian q_a, k_a of correlation x",
        _aligned_mean,
        "x",
    ),
    exact(
        "qk_norm.aligned_variance",
        "Var[√d cos(q, k)] at d = 64 for Gaussian q_a, k_a of correlation x",
        _aligned_variance,
        "x",
        bound=1e-12,  # d times the rounding of 1 − E[1 − r²] and of the square of the mean
    ),
    exact("extremes.expected_max", "E[max of x standard normals]", _expected_max, "x"),
    exact("extremes.expected_gap", "E[largest − second of x standard normals]", _expected_gap, "x"),
    exact(
        "extremes.max_growth",
        "rise of E[max] from x to 10x standard normals over the rise of √(2 ln x)",
        _max_growth,
        "x",
    ),
)
