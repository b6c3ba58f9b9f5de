"""What a quantity is: a name with a measure, a prediction and an equivalence band."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from sdpa_check.theory.law import DotLaw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sdpa_check.engine import Replicates, Work
    from sdpa_check.logits.scaling import Scaling
    from sdpa_check.records import Design, Estimate, Prediction

Sampling = Literal["dot", "rows", "weights", "pipeline", "start", "train"]
"""On which kind of block a quantity is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What one check asks about: one design (several for a sweep) and the quantity's parameters.

    `inputs` holds the parameters that only some quantities have, by name: thresholds, and the
    vectors of those that are computed and not sampled (which have no design).
    """

    designs: tuple[Design, ...] = ()
    scale: Scaling | None = None
    d_model: int | None = None
    statistic: str | None = None
    level: float | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def design(self) -> Design:
        """The only design of a case that is no sweep."""
        (design,) = self.designs
        return design

    @property
    def multiplier(self) -> float:
        """The factor c that the scaling rule puts before q·k; 1 where there is no rule."""
        return 1.0 if self.scale is None else multiplier(self.scale, self.design, self.d_model)


def multiplier(rule: Scaling, design: Design, d_model: int | None) -> float:
    """The factor c of a rule at a design; the exact law is asked only by a rule that needs it."""
    iqr = exact_law(design).iqr() if rule.needs_iqr else None
    return rule.multiplier(design.dk, d_model, iqr)


@lru_cache(maxsize=256)
def exact_law(design: Design) -> DotLaw:
    """The exact law of q·k, made once per design.

    Raises:
        InputError: where theory has none.
    """
    return DotLaw(design)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The merged sums of one design, and the multiplier that was really applied to its scores."""

    work: Work
    replicates: Replicates
    multiplier: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One name of the vocabulary.

    Attributes:
        name: e.g. ``"dot.variance"``.
        formula: what it is, in one line.
        unit: ``"nats"``, or ``"1"`` where there is none.
        sampling: which kind of block it is measured on.
        params: the parameters beyond the design that it takes, by their names in `params.PARAMS`.
        statistic: how rows are summarised where a case does not say.
        sweep: the logarithm of a number of one design whose slope over several designs it is; None
            where it is about one design.
        lead: whether the sample size is planned for it alone; others get at most a multiple.
        parts: what it reads of a block, by the names in `measures.dot.PARTS`, those of the row
            statistics (`measures.rows`), and so on for every kind of block.
        estimate: samples (one per design) → estimate.
        predict: the theory.
        band: (case, prediction, relative tolerance) → half-width of the equivalence band.
    """

    name: str
    formula: str
    unit: str
    sampling: Sampling
    estimate: Callable[[Case, tuple[Sample, ...]], Estimate]
    predict: Callable[[Case], Prediction]
    band: Callable[[Case, Prediction, float], float]
    params: tuple[str, ...] = ()
    statistic: str | None = None
    sweep: Callable[[Case, Sample], Estimate] | None = None
    lead: bool = True
    parts: tuple[str, ...] = ()

    @property
    def trained(self) -> bool:
        """Whether it is about a layer in training, which draws by laws of its own."""
        return self.sampling in {"start", "train"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactQuantity:
    """One name of the vocabulary that is computed from given inputs and not sampled.

    Attributes:
        name: e.g. ``"softmax.weights"``.
        formula: what it is, in one line.
        unit: ``"nats"``, or ``"1"`` where there is none.
        params: the parameters that it takes, by their names in `params.PARAMS`.
        evaluate: case → the numbers, one or several.
        bound: largest rounding error of the computation, derived; the default band of a claim.
    """

    name: str
    formula: str
    unit: str
    params: tuple[str, ...]
    evaluate: Callable[[Case], list[float]]
    bound: float = 0.0


def relative(case: Case, prediction: Prediction, tolerance: float) -> float:
    """A band of `tolerance` times the predicted value."""
    del case
    return tolerance * abs(prediction.value or 0.0)


def absolute(unit: float) -> Callable[[Case, Prediction, float], float]:
    """A band of `tolerance` times a fixed natural scale."""

    def band(case: Case, prediction: Prediction, tolerance: float) -> float:
        del case, prediction
        return tolerance * unit

    return band
