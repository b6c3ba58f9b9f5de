"""The inputs that studies share, checked and resolved before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypedDict

from sdpa_check.checks import Settings
from sdpa_check.distributions import component_law, parse_dependence
from sdpa_check.errors import InputError, unknown_name
from sdpa_check.logits import scaling
from sdpa_check.records import Component, Design, Fault

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from sdpa_check.checkpoint import Checkpoint
    from sdpa_check.checks import Progress
    from sdpa_check.logits.scaling import Scaling

MAX_DK = 16384
MAX_KEYS = 1_000_000
MAX_DESIGNS = 64
LARGEST = 1e6
"""Bound on σ, 1/σ and |mean|: products of 16384 components stay far inside float32."""

LARGEST_SCALE = 1e100
"""Bound on a constant multiplier and its inverse: the variance of the logits stays a float."""

Integers = int | Sequence[int]
Scales = str | float | Sequence[str | float]


class Options(TypedDict, total=False):
    """Keyword options that every study takes; names and meaning as on the command line.

    Attributes:
        dist: law of the components: gaussian, uniform, rademacher, laplace, t, cauchy, mixture.
        df: degrees of freedom of Student's t.
        standardize: divide a raw t by its standard deviation.
        sigma: scale of the components of q, and of k where `sigma_k` is not given.
        sigma_k: scale of the components of k.
        mean: mean of the components of q, and of k where `mean_k` is not given.
        mean_k: mean of the components of k.
        corr: ``none``, ``ar1:ρ``, ``equi:ρ`` or ``qk:ρ``.
        dmodel: width of the model, for the scaling ``sqrt_dmodel``.
        precision: wanted relative standard error; None plans from the tolerance.
        samples: number of dot products or rows per design; overrides the plan.
        tolerance: relative half-width of the equivalence band.
        seed: root seed.
        jobs: workers; None for the cores present. They are forked processes where this one has a
            single thread and runs Linux, else threads.
        executor: a `concurrent.futures.Executor` to run blocks on instead.
        cluster: a cluster to run blocks on, ``tcp://host:port``, ``tls://host:port`` or
            ``local:N``. It is an executor that is opened for this run alone; for several runs open
            one with `sdpa_check.cluster.opened`.
        fault: a planted error, to see the checks fail.
        progress: called as progress(label, blocks done, blocks in all, current); current() is the
            name and the estimate of a number under way, or None where it is too soon.
        checkpoint: a `checkpoint.Checkpoint`, with which KeyboardInterrupt ends in a partial run
            that can be resumed.
    """

    dist: str
    df: float | None
    standardize: bool
    sigma: float
    sigma_k: float | None
    mean: float
    mean_k: float | None
    corr: str
    dmodel: int | None
    precision: float | None
    samples: int | None
    tolerance: float
    seed: int
    jobs: int | None
    executor: Executor | None
    cluster: str | None
    fault: Fault | None
    progress: Progress | None
    checkpoint: Checkpoint | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Resolved inputs: the laws of q and k, their dependence, and the settings of the run."""

    query: Component
    key: Component
    corr: str
    dmodel: int | None
    settings: Settings

    def designs(self, dk: Integers, keys: Integers | None = None) -> tuple[Design, ...]:
        """Every combination of d_k and m, in the order given, d_k first.

        Raises:
            InputError: for a d_k or m out of range, or more than 64 combinations.
        """
        dks = integers("--dk", dk, 1, MAX_DK)
        rows = (None,) if keys is None else integers("--keys", keys, 2, MAX_KEYS)
        if len(dks) * len(rows) > MAX_DESIGNS:
            raise InputError("--dk", len(dks) * len(rows), f"at most {MAX_DESIGNS} designs")
        for d in dks:
            parse_dependence(self.corr).check(d)
        return tuple(
            Design(dk=d, query=self.query, key=self.key, corr=self.corr, keys=m)
            for d in dks
            for m in rows
        )

    def scalings(self, texts: Scales) -> tuple[Scaling, ...]:
        """The scaling rules of `texts`.

        Raises:
            InputError: for no rule at all, an unknown one, or one that needs d_model where there is
                none.
        """
        given = listed(texts)
        if not given:
            raise InputError("--scale", texts, "at least one scaling rule, e.g. sqrt")
        for text in given:
            if isinstance(text, bool) or not isinstance(text, str | Real):
                raise InputError("--scale", text, "the name of a rule or a number > 0")
        rules = scaling.parse_all([str(text) for text in given])
        for rule in rules:
            rule.multiplier(1, self.dmodel, 1.0)
            if not 1 / LARGEST_SCALE <= rule.coefficient <= LARGEST_SCALE:
                want = f"a multiplier from {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}"
                raise InputError("--scale", rule.name, want)
        return rules


def resolve(options: Options) -> Inputs:
    """Check the shared options.

    Raises:
        InputError: for a value that cannot be used or an option that does not exist, naming it.
    """
    for name in options:
        if name not in Options.__optional_keys__:  # a type checker sees it, Python does not
            raise unknown_name("option", name, Options.__optional_keys__)
    dist, df = _text("--dist", options.get("dist", "gaussian")), options.get("df")
    if df is not None:
        df = _real("--df", df, "a number")
    elif dist == "t":
        hint = "--df is missing, for example --df 5"
        raise InputError("--dist", dist, "t with its degrees of freedom", hint)
    standardize = options.get("standardize", False)
    if not isinstance(standardize, bool):
        raise InputError("--standardize", standardize, "True or False")
    sigma = _number("--sigma", options.get("sigma", 1.0), 1 / LARGEST, LARGEST)
    mean = _number("--mean", options.get("mean", 0.0), -LARGEST, LARGEST)
    _near("--mean", mean, sigma)
    sigma_k = _number("--sigma-k", _other(options.get("sigma_k"), sigma), 1 / LARGEST, LARGEST)
    mean_k = _number("--mean-k", _other(options.get("mean_k"), mean), -LARGEST, LARGEST)
    _near("--mean-k", mean_k, sigma_k)
    query = Component(distribution=dist, df=df, sigma=sigma, mean=mean, standardize=standardize)
    key = Component(
        distribution=dist,
        df=df,
        sigma=sigma_k,
        mean=mean_k,
        standardize=standardize,
    )
    for component in (query, key):
        component_law(component)
    precision = options.get("precision")
    dmodel = _optional("--dmodel", options.get("dmodel"), 1, 1 << 30)
    settings = Settings(
        seed=_integer("--seed", options.get("seed", 0), 0, (1 << 63) - 1),
        jobs=_optional("--jobs", options.get("jobs"), 1, 1024),
        executor=_executor(options),
        cluster=_cluster(options),
        precision=None if precision is None else _fraction("--precision", precision),
        samples=_optional("--samples", options.get("samples"), 64, 10**15),
        tolerance=_fraction("--tolerance", options.get("tolerance", 0.01)),
        fault=_fault(options, dmodel),
        progress=_progress(options),
        checkpoint=_checkpoint(options),
    )
    if settings.samples is not None and settings.precision is not None:
        raise InputError(
            "--samples", settings.samples, "a number of samples or a precision, not both"
        )
    corr = str(parse_dependence(_text("--corr", options.get("corr", "none"))))
    return Inputs(query, key, corr, dmodel, settings)


def _fault(options: Options, dmodel: int | None) -> Fault:
    fault = options.get("fault")
    if fault is None:
        return Fault()
    if not isinstance(fault, Fault):
        raise InputError("fault", fault, "a sdpa_check.Fault")
    _number("fault: sample_scale", fault.sample_scale, -LARGEST, LARGEST)
    if fault.scale is not None:
        rule = scaling.parse(_text("fault: scale", fault.scale), where="fault: scale")
        rule.multiplier(1, dmodel, 1.0)
    return fault


def _progress(options: Options) -> Progress | None:
    progress = options.get("progress")
    if progress is not None and not callable(progress):
        raise InputError("progress", progress, "a function of (label, done, total, current)")
    return progress


def _executor(options: Options) -> Executor | None:
    executor = options.get("executor")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise InputError("executor", executor, "a concurrent.futures.Executor")
    return executor


def _checkpoint(options: Options) -> Checkpoint | None:
    found = options.get("checkpoint")
    if found is None:
        return None
    from sdpa_check.checkpoint import Checkpoint

    if not isinstance(found, Checkpoint):
        raise InputError("checkpoint", found, "a sdpa_check.checkpoint.Checkpoint")
    return found


def _cluster(options: Options) -> str | None:
    address = options.get("cluster")
    if address is None:
        return None
    from sdpa_check import cluster

    cluster.local_workers(address)
    if options.get("executor") is not None:
        raise InputError(cluster.OPTION, address, "an executor or a cluster, not both")
    return address


def integers(where: str, given: Integers | None, low: int, high: int) -> tuple[int, ...]:
    """A tuple of distinct integers between `low` and `high`, in the order given."""
    values = listed(given)
    if not values:
        raise InputError(where, given, "at least one integer")
    return tuple(dict.fromkeys(_integer(where, value, low, high) for value in values))


def texts(where: str, given: object, want: str) -> list[str]:
    """Some texts, or one.

    Raises:
        InputError: for anything else.
    """
    found = listed(given)
    for each in found:
        if not isinstance(each, str):
            raise InputError(where, each, want)
    return [str(each) for each in found]


def listed(given: object) -> list[object]:
    """The values of a list, or of what is one value: a text has no letters here."""
    if not isinstance(given, str | bytes):
        with suppress(TypeError):
            return list(given)  # type: ignore[call-overload, no-any-return]
    return [given]


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(where, value, "a text")
    return value


def _integer(where: str, value: object, low: int, high: int) -> int:
    number = int(value) if isinstance(value, Integral) else None  # numpy's integers too
    if number is None or isinstance(value, bool) or not low <= number <= high:
        whole = isinstance(value, float) and value.is_integer() and low <= value <= high
        hint = f"write {value:.0f}" if whole else ""
        raise InputError(where, value, f"an integer from {low} to {high}", hint)
    return number


def _optional(where: str, value: int | None, low: int, high: int) -> int | None:
    return None if value is None else _integer(where, value, low, high)


def _real(where: str, value: object, want: str) -> float:
    if not isinstance(value, bool) and isinstance(value, Real):  # numpy's numbers too
        with suppress(OverflowError):  # an integer beyond all floats
            # 2 and 2.0, −0 and 0 are one number: random streams go by its text
            return float(value) + 0.0
    raise InputError(where, value, want)


def _fraction(where: str, value: object) -> float:
    want = "a fraction from 1e-7 to below 1, e.g. 0.001"
    number = _real(where, value, want)
    if not 1e-7 <= number < 1:
        raise InputError(where, value, want)
    return number


def _number(where: str, value: object, low: float, high: float) -> float:
    want = f"a number from {low:g} to {high:g}"
    number = _real(where, value, want)
    if not low <= number <= high:
        raise InputError(where, value, want)
    return number


def _near(where: str, mean: float, sigma: float) -> None:
    """Refuse a mean beside which the spread of the dot products would be lost to rounding."""
    if abs(mean) > 1000 * sigma:
        raise InputError(where, mean, f"at most 1000 σ = {1000 * sigma:g} in size")


def _other(value: float | None, default: float) -> float:
    return default if value is None else value
