"""The laws of the components of q and k, and the vectors that are drawn from them.

The module of a law is imported when that law is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from sdpa_check.distributions.base import FloatArray, Law, Precision
from sdpa_check.distributions.dependence import Dependence, stratified_normals
from sdpa_check.distributions.dependence import parse as parse_dependence
from sdpa_check.errors import InputError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    from sdpa_check.records import Component

__all__ = [
    "NAMES",
    "ComponentLaw",
    "Dependence",
    "FloatArray",
    "Law",
    "Precision",
    "component_law",
    "draw",
    "law",
    "parse_dependence",
    "stratified_normals",
]

_HOMES: Final = {
    "gaussian": "gaussian:Gaussian",
    "uniform": "uniform:Uniform",
    "rademacher": "rademacher:Rademacher",
    "laplace": "laplace:Laplace",
    "cauchy": "cauchy:Cauchy",
    "mixture": "mixture:Mixture",
    "t": "student_t:StudentT",
}
"""Where the law of a name is defined: ``module:class``."""

NAMES: Final = tuple(_HOMES)
"""Every name that `records.Component.distribution` may hold."""


@dataclass(frozen=True, slots=True)
class ComponentLaw:
    """The law of loc + scale · X, with X a standard member."""

    standard: Law
    loc: float
    scale: float

    @property
    def mean(self) -> float:
        """E of the component, in its own unit; as `Law.mean` where it does not exist."""
        return self.loc + self.scale * self.standard.mean

    @property
    def variance(self) -> float:
        """Variance of the component; as `Law.variance` where it does not exist."""
        return self.scale**2 * self.standard.variance

    @property
    def kurtosis(self) -> float:
        """Central kurtosis, which loc and scale do not change."""
        return self.standard.kurtosis

    @property
    def tail_index(self) -> float:
        """Tail index, which loc and scale do not change."""
        return self.standard.tail_index

    def sample(self, rng: Generator, shape: tuple[int, ...], dtype: Precision) -> FloatArray:
        """Draw an array of independent components."""
        return self.place(self.standard.sample(rng, shape, dtype))

    def place(self, x: FloatArray) -> FloatArray:
        """Turn standard members into components, in place: x ← loc + scale · x."""
        if self.scale != 1:
            x *= self.scale
        if self.loc != 0:
            x += self.loc
        return x


@cache
def _family(name: str) -> Callable[..., Law]:
    module, _, law_class = _HOMES[name].partition(":")
    found: Callable[..., Law] = getattr(import_module(f"{__name__}.{module}"), law_class)
    return found


def law(component: Component) -> Law:
    """The standard member X of the family that `component` names.

    Raises:
        InputError: unknown name, df missing for ``t``, given for another law, or below 0.1.
    """
    name, df = component.distribution, component.df
    if name not in NAMES:
        raise unknown_name("--dist", name, NAMES)
    if name != "t":
        if df is not None:
            raise InputError("--df", df, f"no df for {name}", "only t has degrees of freedom")
        return _family(name)()
    if df is None:
        raise InputError("--df", df, "the degrees of freedom of t", "for example --df 5")
    return _family(name)(df)


def component_law(component: Component) -> ComponentLaw:
    """The law of ``mean + sigma * X``, X divided by its standard deviation if asked for.

    Raises:
        InputError: as `law`; `sigma` not finite and positive; `mean` not finite; `standardize`
            for a law without a finite variance.
    """
    standard = law(component)
    if not 0 < component.sigma < math.inf:
        raise InputError("--sigma", component.sigma, "a finite number > 0")
    if not math.isfinite(component.mean):
        raise InputError("--mean", component.mean, "a finite number")
    scale = component.sigma
    if component.standardize:
        if not math.isfinite(standard.variance):
            want, hint = "a law of finite variance", "t has one for df > 2, cauchy never"
            raise InputError("--standardize", component.distribution, want, hint)
        scale /= math.sqrt(standard.variance)
    return ComponentLaw(standard, component.mean, scale)


def draw(
    rng: Generator,
    component: Component,
    dependence: Dependence,
    *,
    dk: int,
    n: int,
    dtype: Precision,
    common: NDArray[np.float64] | None = None,
) -> FloatArray:
    """Draw n vectors of `dk` components: mean + sigma · (A X), A the map of `dependence`.

    With a finite variance the covariance within a vector is σ² times the correlation matrix. The
    dependence ``qk`` joins a query to its key and is left to the caller; see `Dependence.qk_rho`.
    Common factors of the vectors may be given; see `Dependence.apply`.

    Returns:
        (dk, n), component-major: one vector per column.

    Raises:
        InputError: as `component_law` and `Dependence.check`.
    """
    whole = component_law(component)
    return whole.place(dependence.apply(whole.standard.sample(rng, (dk, n), dtype), common))
