"""Queries and keys as an initialised layer makes them: projections of layer-normalised inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self

import numpy as np

from sdpa_check.logits.transforms.arguments import Arguments, shown, trimmed
from sdpa_check.logits.transforms.base import Source, octaves
from sdpa_check.logits.transforms.vectors import normalised

if TYPE_CHECKING:
    from numpy.random import Generator

    from sdpa_check.logits.transforms.base import Context, FloatArray

_INITS: Final = ("xavier", "kaiming", "torch_linear", "packed", "orthogonal", "normal")
_WIDTH: Final = 512
"""The width of the inputs where neither the step nor the context gives one."""

_COMMON: Final = 256
"""The part x − a·u of an input is about 1/a of it, and keeps 16 of the 24 bits of float32."""


@dataclass(frozen=True, slots=True)
class Projection(Source):
    """q = W_q x and k = W_k y, x and y layer-normalised normal vectors of width D.

    Every entry of W (d, D) has mean 0 and, by `init`,

    - ``xavier``: N(0, 2/(D+d)) (Glorot and Bengio 2010).
    - ``kaiming``: N(0, 2/D) (He et al. 2015).
    - ``torch_linear``: uniform on ±1/√D, of variance 1/(3D): the default of torch.nn.Linear.
    - ``packed``: uniform of variance 2/(3D+D), Xavier's on the (3D, D) in_proj_weight of
      torch.nn.MultiheadAttention.
    - ``orthogonal``: d orthonormal rows, uniform on all such (d ≤ D).
    - ``normal``: N(0, std²), written ``normal=0.02``.

    As ‖x‖² = D, the variance of a component of q over W and x is D times that of an entry.
    With `common` = a ≠ 0 the inputs are LN(z + a·u), z normal and u a fixed direction of norm √D:
    x and y then share a part, and all queries of a block have a common mean.
    """

    name: ClassVar[str] = "proj"
    tames: ClassVar[bool] = True
    usage: ClassVar[str] = (
        "proj:INIT[,width[,common]] with INIT xavier, kaiming, torch_linear, packed, orthogonal "
        "or normal=STD, and a width ≥ 2; for example proj:xavier,512"
    )
    init: str
    std: float | None = None
    width: int | None = None
    common: float = 0.0

    @classmethod
    def read(cls, given: Arguments) -> Self:
        """Read the initialisation, the width and the size of the common part."""
        init, equals, std = (part.strip() for part in given.text().partition("="))
        init = Arguments([init]).choice(_INITS)
        if bool(equals) != (init == "normal"):
            raise ValueError("normal, and only normal, has a standard deviation: normal=0.02")
        return cls(
            init,
            Arguments([std]).number(above=0) if equals else None,
            given.integer(at_least=2),
            given.number(0.0),
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """Initialisation, width and common part; the last two where they are given."""
        init = self.init if self.std is None else f"{self.init}={shown(self.std)}"
        return trimmed((init, None), (self.width, None), (self.common, 0.0))

    def objection(self, context: Context) -> str:
        """More rows than the width cannot be orthonormal; a width of 1 has no LayerNorm."""
        width = self.width_in(context)
        if self.init == "orthogonal" and context.dk > width:
            return f"{context.dk} rows cannot be orthonormal in {width} dimensions"
        return "LayerNorm needs a width ≥ 2" if width < 2 else ""

    def width_in(self, context: Context) -> int:
        """D: what the step says, else d_model, else 512."""
        return self.width or context.d_model or _WIDTH

    def repeated(self, rng: Generator, context: Context) -> tuple[FloatArray, FloatArray]:
        """Draw x and y, then pairs W_q, W_k, and multiply.

        The inputs have one norm, so that rows of the same inputs under other matrices are nearly
        as good as new.
        """
        inputs = [self.inputs(rng, n, context) for n in (context.queries, context.keys)]
        q, k = (np.empty((context.weights, context.dk, x.shape[1]), x.dtype) for x in inputs)
        for pair in zip(q, k, strict=True):
            for x, out in zip(inputs, pair, strict=True):
                np.matmul(self.matrix(rng, context), x, out=out)
        return q, k

    def draws(self, context: Context) -> int:
        """D numbers for an input, d D for a matrix."""
        vectors = context.queries + context.keys + 2 * context.weights * context.dk
        return self.width_in(context) * vectors

    def octaves(self, context: Context) -> float:
        """Those of the components; ∞ where the common part leaves few digits to the rest."""
        size = 1.0 if self.std is None else self.std * math.sqrt(self.width_in(context))
        return octaves(size) if abs(self.common) < _COMMON else math.inf

    def matrix(self, rng: Generator, context: Context) -> FloatArray:
        """Draw W, shape (d, D)."""
        d, width, dtype = context.dk, self.width_in(context), context.dtype
        if self.init in {"torch_linear", "packed"}:
            bound = math.sqrt(1 / width if self.init == "torch_linear" else 6 / (4 * width))
            drawn = rng.random((d, width), dtype=dtype)
            drawn *= 2 * bound
            drawn -= bound
            return drawn
        if self.init == "orthogonal":
            return _orthonormal(rng.standard_normal((d, width), dtype=dtype))
        variance = {"xavier": 2 / (width + d), "kaiming": 2 / width}
        drawn = rng.standard_normal((d, width), dtype=dtype)
        drawn *= self.std or math.sqrt(variance[self.init])
        return drawn

    def inputs(self, rng: Generator, n: int, context: Context) -> FloatArray:
        """Draw n inputs, shape (D, n)."""
        width = self.width_in(context)
        z = rng.standard_normal((width, n), dtype=context.dtype)
        if self.common:
            z = z + (self.common * _direction(width)).astype(context.dtype)
        return normalised(z, math.sqrt(width), centre=True)


def _orthonormal(z: FloatArray) -> FloatArray:
    """The rows of z (d, D), each made orthogonal to those before it, with norm 1.

    Of normal z that is uniform on all such rows. By Z Zᵀ = L Lᵀ they are L⁻¹ Z, which is several
    times faster than Householder's way, and as good for rows far from linear dependence.
    """
    if 2 * len(z) <= z.shape[1]:
        return np.asarray(np.linalg.inv(np.linalg.cholesky(z @ z.T)) @ z)
    basis, upper = np.linalg.qr(z.T)
    return np.asarray((basis * np.sign(np.diag(upper))).T)


def _direction(width: int) -> FloatArray:
    """The fixed u (D, 1) of norm √D: alternating signs, centred so that LayerNorm keeps it."""
    return normalised((-1.0) ** np.arange(width)[:, None], math.sqrt(width), centre=True)
