"""What is asked of an experiment, and how it is run: checks and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sdpa_check import power
from sdpa_check.quantities import Case, ExactQuantity, Quantity, quantity
from sdpa_check.records import Fault, Prediction

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Executor

    from sdpa_check.checkpoint import Checkpoint
    from sdpa_check.engine import Runner
    from sdpa_check.forked import Pool
    from sdpa_check.records import Design, Estimate, Outcome, Relation

Current = Callable[[], tuple[str, "Estimate"] | None]
"""What is known so far of a design under way: a number by its name, or None where it is too soon.

It is computed when it is called.
"""

Progress = Callable[[str, int, int, Current], None]
"""Called as progress(label, blocks done, blocks in all, current)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question: a quantity, a case, and what the answer is expected to be.

    `stated` replaces the theory's prediction by the numbers of an author (several only for a
    quantity that is a list), and `relation` says how the measured number is claimed to stand to
    it. With `versus` the number is the difference between the two cases. `band` replaces the
    equivalence band, and `expected` is the outcome that counts as expected (None: what theory
    makes of it).
    """

    id: str
    quantity: str
    case: Case
    versus: Case | None = None
    expected: Outcome | None = None
    stated: tuple[float, ...] = ()
    relation: Relation = "equal"
    band: float | None = None
    tolerance: float | None = None

    @property
    def cases(self) -> tuple[Case, ...]:
        """The case, and the one that it is compared with."""
        return (self.case,) if self.versus is None else (self.case, self.versus)

    def prediction(self, asked: Quantity) -> Prediction:
        """What the author states, or else what theory says."""
        if not self.stated:
            return asked.predict(self.case)
        return self.states(self.stated[0])

    def states(self, value: float) -> Prediction:
        """A number that the author states, with its relation."""
        return Prediction(value=value, kind="stated", source="stated", relation=self.relation)

    def band_for(self, asked: Quantity, prediction: Prediction, tolerance: float) -> float:
        """Half-width of the equivalence band: the check's own, or that of its quantity."""
        if self.band is not None:
            return self.band
        return asked.band(self.case, prediction, self.tolerance or tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How checks are run. Nothing here changes what is true, only how precisely it is seen.

    Attributes:
        seed: root seed.
        jobs: workers, forked processes or threads; None for the cores present.
        executor: where blocks run instead.
        pool: processes that are forked for a run, and end with it.
        cluster: the address from which a run opens its executor, and closes it at its end.
        precision: wanted standard error relative to the scale that the band is a fraction of;
            None plans the sample size from the band itself, so that a true prediction is confirmed.
        samples: number of dot products or rows per design; overrides the plan.
        tolerance: relative half-width of the equivalence band.
        alpha: false-alarm probability of all checks together.
        fault: a planted error, for showing that the checks can fail.
        progress: called as progress(label, blocks done, blocks in all, current).
        checkpoint: where a run starts from and what it has so far; with one, KeyboardInterrupt ends
            the sampling and not the run.
    """

    seed: int = 0
    jobs: int | None = None
    executor: Executor | None = None
    pool: Pool | None = None
    cluster: str | None = None
    precision: float | None = None
    samples: int | None = None
    tolerance: float = 0.01
    alpha: float = power.ALPHA
    fault: Fault = field(default_factory=Fault)
    progress: Progress | None = None
    checkpoint: Checkpoint | None = None

    @property
    def runner(self) -> Runner | None:
        """Where blocks run, if not in threads."""
        return self.executor or self.pool


def parameters(case: Case, asked: Quantity | ExactQuantity) -> dict[str, Any]:
    """The parameters of a row, flat and by the names of the options."""
    if isinstance(asked, ExactQuantity):
        return dict(case.inputs)
    first = case.designs[0]
    dk: int | list[int] = first.dk if not asked.sweep else [d.dk for d in case.designs]
    laws = {} if asked.trained else law_parameters(first)
    params: dict[str, Any] = {"dk": dk, **laws, "keys": first.keys}
    params["scale"] = None if case.scale is None else case.scale.name
    if asked.sweep:
        return params
    if "scale" in asked.params:
        params["multiplier"] = case.multiplier
    if "statistic" in asked.params:
        params["statistic"] = case.statistic or asked.statistic
    if "level" in asked.params:
        params["level"] = case.level
    return params | dict(case.inputs)


def law_parameters(design: Design) -> dict[str, Any]:
    """The laws of a design, flat and by the names of the options."""
    q, k = design.query, design.key
    return {
        "distribution": q.distribution,
        "df": q.df,
        "standardize": q.standardize,
        "sigma": q.sigma,
        "sigma_k": k.sigma,
        "mean": q.mean,
        "mean_k": k.mean,
        "corr": design.corr,
    }


def checks_of(cases: Iterable[tuple[str, Case]]) -> list[Check]:
    """A check for every (quantity, case); its id is the quantity and what tells the case apart."""
    return [
        Check(id=f"{name}[{','.join(_parts(quantity(name), case))}]", quantity=name, case=case)
        for name, case in cases
    ]


def _parts(asked: Quantity | ExactQuantity, case: Case) -> list[str]:
    params = parameters(case, asked)
    dk = params["dk"]
    parts = [f"dk={dk if isinstance(dk, int) else '+'.join(map(str, dk))}"]
    parts += [
        f"{name}={params[name]}"
        for name in ("keys", "scale", "statistic", "level")
        if params.get(name) is not None
    ]
    return parts
