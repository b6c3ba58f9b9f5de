"""The frozen records that cross the borders between modules; nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "sdpa-check/run/1"
"""Name and version of the record format that `Run` is written in."""

THEORY, MOVED = "theory/", "moved/"
"""How the ids of the rows of `verify` begin that judge no claim: those that hold theory itself to a
measurement, and those that hold a number to the one of an earlier run."""

PredictionKind = Literal["exact", "stated", "limit", "infinite", "none"]
Relation = Literal["equal", "at least", "at most"]


STOPPED = "stopped"
"""The outcome of a run that was stopped before its end, whatever its rows are."""


class Outcome(StrEnum):
    """Every way in which a check can end."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    UNDEFINED = "undefined"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """The law of one component of q or of k.

    The component is ``mean + sigma * X``, where X is the standard member of the family: unit
    variance for gaussian, uniform, rademacher, laplace and mixture, the raw Student t for ``t``
    (variance df/(df-2)) unless `standardize` asks for unit variance, the standard Cauchy for
    ``cauchy``.
    """

    distribution: str = "gaussian"
    df: float | None = None
    sigma: float = 1.0
    mean: float = 0.0
    standardize: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What is drawn: rows with equal designs share one sampling.

    `keys` is the number m of keys in a softmax row, or None where only dot products are measured.
    `corr` is the canonical text of the dependence: ``none``, ``ar1:0.5``, ``equi:0.1``, ``qk:0.3``.
    """

    dk: int
    query: Component = field(default_factory=Component)
    key: Component = field(default_factory=Component)
    corr: str = "none"
    keys: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a pipeline from q and k to logits: ``softcap:50`` is Step("softcap", ("50",)).

    The sampler turns it into a transform, theory into a prediction; neither knows the other's.
    """

    name: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}:{','.join(self.arguments)}" if self.arguments else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A measured number with its error bar.

    `se`, `lo` and `hi` are None where no honest error bar exists; `withheld` then says why.
    `blocks` counts the independent replicates behind `se`; `samples` the dot products or rows.
    """

    value: float
    se: float | None
    lo: float | None
    hi: float | None
    level: float
    blocks: int
    samples: int
    withheld: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What theory, or an author, says the number is; `value` is None where it is ∞ or absent.

    `relation` says how the number is claimed to stand to `value`.
    """

    value: float | None
    kind: PredictionKind
    source: str
    relation: Relation = "equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimText:
    """What a row judges where it judges a claim of a document.

    `statement` is what the document says, `source` and `section` where, `right` the right value
    where it errs, `note` what explains the verdict. All but the statement may be empty.
    """

    statement: str
    source: str = ""
    section: str = ""
    right: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One check: quantity, estimate, prediction and verdict.

    `tolerance` is the half-width of the equivalence band in the unit of the quantity, `detectable`
    the smallest deviation from the prediction that this run could have seen. `claim` is what a
    document says, where the row judges that. Where the number is a difference, ``versus`` among the
    parameters holds those of the second term that differ.
    """

    id: str
    quantity: str
    params: Mapping[str, Any]
    estimate: Estimate | None
    prediction: Prediction
    verdict: Outcome
    expected: Outcome
    reason: str
    tolerance: float | None = None
    detectable: float | None = None
    claim: ClaimText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything a command found; the JSON record and every table are made from it alone.

    The `outcome` of a partial run is `STOPPED`: some of its rows were not judged, or not sampled.
    """

    command: str
    version: str
    outcome: str
    exit_code: int
    design: Mapping[str, Any]
    seed: int
    generator: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    environment: Mapping[str, Any]

    @property
    def stopped(self) -> bool:
        """Whether this is a partial run."""
        return self.outcome == STOPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A planted error, to show that the checks can fail; predictions never see it.

    `sample_scale` multiplies every component that is drawn (1.03: a sampler 3 % too wide).
    `scale` replaces the scaling rule that is measured (``"dk"``: a missing square root,
    ``"sqrt_dmodel"``: d_model in the place of d_k); the prediction keeps the rule asked for.
    """

    sample_scale: float = 1.0
    scale: str | None = None
