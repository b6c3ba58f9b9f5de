"""What is known of q and k after the steps that act on them.

A state is one of four: components of a design (`Drawn`), projected rows (`Projected`), normalised
vectors (`Normalised`), or `Unknown` with the reason. Steps map states to states; `scores` maps a
state to what is known of the scores.

Two facts carry most of it. If E[kkᵀ] is a multiple of the identity, the second moment of q·k is
that multiple of E‖q‖², and a rotation of k changes nothing. And components that are independent
and symmetric, or whose signs and order do not matter, give such a matrix after any normalisation
by a norm; after a LayerNorm they give a multiple of P = 1 − 11ᵀ/d.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, isfinite, lgamma, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from sdpa_check.errors import InputError, unknown_name
from sdpa_check.theory.moments import component_variance, dependence
from sdpa_check.theory.row_law import SphereRows
from sdpa_check.theory.steps import arguments, number, row_length, scale_multiplier

if TYPE_CHECKING:
    from sdpa_check.records import Component, Design, Step

DEFAULT_WIDTH: Final = 512
"""Width D of what is projected, where neither the step nor a d_model says."""

_INITS: Final = ("xavier", "kaiming", "torch_linear", "packed", "orthogonal", "normal=std")


@dataclass(frozen=True, slots=True)
class Drawn:
    """q and k with the laws of a design; `rotated` by their positions or not."""

    design: Design
    rotated: bool = False


@dataclass(frozen=True, slots=True)
class Projected:
    """q = W_q x, k = W_k y, with x and y layer-normalised rows: ‖x‖² = D exactly.

    Over W, E[qqᵀ] = σ_q² 1 exactly, and the means are 0. `shared` is ‖E y‖²/D, the part of an input
    that all inputs share.
    """

    dk: int
    sigma_q: float
    sigma_k: float
    shared: float = 0.0


@dataclass(frozen=True, slots=True)
class Normalised:
    """q and k of fixed lengths, with zero mean and every order and sign equally likely.

    Attributes:
        dk: number of components.
        radius_q: ‖q‖.
        radius_k: ‖k‖.
        centred: whether the components of each sum to 0, as after a LayerNorm.
        uniform: whether all directions are equally likely, as for Gaussian components.
        normal_limit: whether q·k tends to a normal law for large d.
        cosine_square: mean over positions of (1ᵀR1/d)², R the rotation between query and key.
    """

    dk: int
    radius_q: float
    radius_k: float
    centred: bool
    uniform: bool
    normal_limit: bool
    cosine_square: float = 1.0

    @property
    def dimension(self) -> int:
        """Dimension of the sphere's space."""
        return self.dk - self.centred

    @property
    def variance(self) -> float:
        """Var(q·k) = r_q² r_k²/d, or for centred vectors r_q² r_k² tr(PRPRᵀ)/(d−1)²."""
        product = (self.radius_q * self.radius_k) ** 2
        if not self.centred:
            return product / self.dk
        return product * (self.dk - 2 + self.cosine_square) / (self.dk - 1) ** 2


@dataclass(frozen=True, slots=True)
class Unknown:
    """Vectors of which theory knows nothing, and why."""

    reason: str


Vectors = Drawn | Projected | Normalised | Unknown


def source(step: Step | None, design: Design, d_model: int | None) -> Vectors:
    """The vectors that a pipeline starts from: those of the design, or projected rows.

    ``proj:init[,width[,common]]``: σ² = D·(variance of an entry of W) is, with D the width, for
    ``xavier`` 2D/(D+d), ``kaiming`` 2, ``torch_linear`` ⅓, ``packed`` ½, ``orthogonal`` (D ≥ d) 1
    and ``normal=s`` D s². The inputs are LN(z + common·u), z normal and u a fixed vector of length
    √D that sums to 0.

    Raises:
        InputError: for arguments that cannot be used.
    """
    if step is None:
        return Drawn(design)
    init, *rest = arguments(step, 1, 3)
    width = number(step, rest[0], least=2.0) if rest else float(d_model or DEFAULT_WIDTH)
    if not width.is_integer() or width < 2:
        raise InputError("pipeline", str(step), "an integer width of at least 2")
    common = number(step, rest[1]) if len(rest) > 1 else 0.0
    name, _, text = init.partition("=")
    if name == "normal":
        variance = width * number(step, text, above=0.0) ** 2
    elif init in _INITS:
        xavier = 2 * width / (width + design.dk)
        table = {"xavier": xavier, "kaiming": 2.0, "torch_linear": 1 / 3, "packed": 0.5}
        variance = table.get(init, 1.0)
    else:
        raise unknown_name("pipeline: proj", init, _INITS)
    if init == "orthogonal" and width < design.dk:
        raise InputError("pipeline", str(step), f"a width of at least d_k = {design.dk}")
    shared = shared_part(int(width), common)
    return Projected(design.dk, sqrt(variance), sqrt(variance), shared)


def shared_part(width: int, common: float) -> float:
    """‖E y‖²/D of y = LN(z + γu), z normal, u of length √D that sums to 0; γ²/(1+γ²) for D → ∞.

    y/√D is the direction of a normal vector in n = D−1 dimensions with the mean λ = γ√D along u.
    Its cosine with u has the mean (λ/√2) Γ((n+1)/2)/Γ(n/2+1) ₁F₁(½; n/2+1; −λ²/2) (projected
    normal law), where ₁F₁ = E exp(−λ²s²/2), s a component of a uniform direction in n+2 dimensions.

    Args:
        width: D, at least 2.
        common: γ.
    """
    if common == 0:
        return 0.0
    n, size = width - 1, abs(common) * sqrt(width)
    ((_, s, weights),) = SphereRows(1.0, n + 2).branches(1 / size)
    kummer = float(weights @ np.exp(-0.5 * (size * s) ** 2))
    gammas = lgamma((n + 1) / 2) - lgamma(n / 2 + 1)
    return (size / sqrt(2) * exp(gammas) * kummer) ** 2


def apply(vectors: Vectors, step: Step, design: Design, d_model: int | None) -> Vectors:
    """The state after one step on the vectors.

    Args:
        vectors: the state before it.
        step: ``scale_q``, ``scale_qk``, ``qk_norm``, ``rope``, ``user_q`` or ``user_k``.
        design: what is drawn, for the number of keys and for scaling rules.
        d_model: width of the model, for the rule that needs it.

    Raises:
        InputError: for arguments that cannot be used.
    """
    if step.name in {"scale_q", "scale_qk"}:
        factor = scale_multiplier(step, design, d_model)
        return _scaled(vectors, factor, factor if step.name == "scale_qk" else 1.0)
    if step.name == "qk_norm":
        return _normalised(vectors, step, design.dk)
    if step.name == "rope":
        return _rotated(vectors, step, design)
    return Unknown("a transform of the user's own")


def _scaled(vectors: Vectors, query: float, key: float) -> Vectors:
    if isinstance(vectors, Drawn):
        q, k = _wider(vectors.design.query, query), _wider(vectors.design.key, key)
        return replace(vectors, design=replace(vectors.design, query=q, key=k))
    if isinstance(vectors, Projected):
        sigmas = vectors.sigma_q * query, vectors.sigma_k * key
        return replace(vectors, sigma_q=sigmas[0], sigma_k=sigmas[1])
    if isinstance(vectors, Normalised):
        radii = vectors.radius_q * query, vectors.radius_k * key
        return replace(vectors, radius_q=radii[0], radius_k=radii[1])
    return vectors


def _wider(component: Component, factor: float) -> Component:
    return replace(component, sigma=component.sigma * factor, mean=component.mean * factor)


def _normalised(vectors: Vectors, step: Step, d: int) -> Vectors:
    """``qk_norm:rms|layer|l2[,gain]`` of q and of k: lengths √d, √d and 1, times the gain."""
    kind, *rest = arguments(step, 1, 2)
    if kind not in {"rms", "layer", "l2"}:
        raise unknown_name("pipeline: qk_norm", kind, ("rms", "layer", "l2"))
    gain = number(step, rest[0], above=0.0) if rest else 1.0
    centred = kind == "layer"
    if centred and d == 1:
        raise InputError("pipeline", str(step), "d_k ≥ 2: one component has no deviation")
    radius = gain if kind == "l2" else gain * sqrt(d)
    if isinstance(vectors, Drawn):
        return _normalised_drawn(vectors, radius, centred=centred)
    if isinstance(vectors, Projected):
        if vectors.shared:
            return Unknown("QK-norm of projected inputs with a common direction")
        return Normalised(d, radius, radius, centred, uniform=False, normal_limit=True)
    if isinstance(vectors, Normalised):
        return _normalised_again(vectors, radius, centred=centred)
    return vectors


def _normalised_again(vectors: Normalised, radius: float, *, centred: bool) -> Vectors:
    """Norms take away an earlier length; a LayerNorm needs to know the law, or changes nothing."""
    if centred and not vectors.centred and not vectors.uniform:
        return Unknown("LayerNorm of vectors of a fixed length")
    if centred and vectors.cosine_square != 1:
        return Unknown("LayerNorm of rotated vectors that were centred before")
    both = centred or vectors.centred
    return replace(vectors, radius_q=radius, radius_k=radius, centred=both)


def _normalised_drawn(vectors: Drawn, radius: float, *, centred: bool) -> Vectors:
    design = vectors.design
    laws = (design.query, design.key)
    kind, rho = dependence(design)
    gaussian = all(law.distribution == "gaussian" for law in laws)
    if centred:
        # A LayerNorm takes away a mean and what all components share; exchangeable is enough.
        fits = kind == "none" or (kind == "equi" and rho < 1)
        fits &= not vectors.rotated or gaussian
        # Equal components, which have no deviation to divide by, are possible.
        fits &= all(law.distribution != "rademacher" for law in laws)
    else:
        fits = kind == "none" and all(law.mean == 0 for law in laws)
    if not fits:
        return Unknown("QK-norm of components that are not independent, alike and symmetric")
    finite = all(isfinite(component_variance(law)) for law in laws)
    return Normalised(design.dk, radius, radius, centred, uniform=gaussian, normal_limit=finite)


def _rotated(vectors: Vectors, step: Step, design: Design) -> Vectors:
    """``rope[:base[,offset]]``: pairs (2i, 2i+1) turned by position · base^(−2i/d)."""
    texts = arguments(step, 0, 2)
    base = number(step, texts[0], above=0.0) if texts else 10_000.0
    offset = number(step, texts[1]) if len(texts) > 1 else 0.0
    d = design.dk
    if d % 2:
        raise InputError("pipeline", f"{step} with d_k = {d}", "an even d_k: rope turns pairs")
    if isinstance(vectors, Drawn):
        laws = (vectors.design.query, vectors.design.key)
        if dependence(vectors.design)[0] != "none" or any(law.mean for law in laws):
            return Unknown("rotation of vectors with a mean or correlated components")
        return replace(vectors, rotated=True)
    if isinstance(vectors, Projected) and vectors.shared:
        return Unknown("rotation of projected inputs with a common direction")
    if isinstance(vectors, Normalised) and vectors.centred:
        if vectors.cosine_square != 1:
            return Unknown("two rotations of vectors that were centred before")
        distances = offset + np.arange(row_length(step, design))
        angles = np.multiply.outer(distances, base ** (-2 * np.arange(d // 2) / d))
        square = float(np.mean(np.cos(angles).mean(axis=1) ** 2))
        return replace(vectors, cosine_square=square)
    return vectors
