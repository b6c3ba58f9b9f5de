"""`train`: one attention layer, trained from scratch under every scaling and learning rate."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import sdpa_check
from sdpa_check import power, rng, verdict
from sdpa_check.environment import environment
from sdpa_check.errors import InputError, unknown_name
from sdpa_check.inputs import Inputs, Integers, Options, Scales, integers, resolve
from sdpa_check.quantities.base import multiplier
from sdpa_check.records import Design, Run
from sdpa_check.studies.study import Study, running
from sdpa_check.studies.train_notes import notes
from sdpa_check.studies.train_rows import Start, start_rows, training_rows
from sdpa_check.training import store, trial
from sdpa_check.training.measures import Results
from sdpa_check.training.model import NOISE, WIDTH, Task
from sdpa_check.training.optimisers import RATES, optimiser
from sdpa_check.training.trial import Curve, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor

    from sdpa_check.checks import Progress, Settings
    from sdpa_check.logits.scaling import Scaling

MAX_DK, MAX_STEPS, MAX_SEEDS, MAX_TRIALS, MAX_LR = 1024, 1_000_000, 1000, 20_000, 1e6
MIN_KEYS, MAX_KEYS = 16, 4096

_SAVE_EVERY = 2.0  # seconds between two writes of the trials

Rates = float | Sequence[float]


class TrainOptions(TypedDict, total=False):
    """Keyword options of `train`; names and meaning as on the command line.

    Attributes:
        lr: one learning rate or several; None for six that span the useful ones of the optimiser.
        warmup: steps of linear warmup, 0 for none; one number or several. Default 0 and 50.
        seeds: how many times each setting is trained, 2 to 1000. Default 5.
        steps: steps of a training, each on a new sequence. Default 400.
        keys: N, the keys of a sequence and the labels to choose from, 16 to 4096. Default 64.
        optimiser: ``sgd`` or ``adam``.
        trials: a file for finished trials.
        resume: do not train again what that file holds from an earlier run; default True. Else it
            is replaced when the run is finished.
        seed: root seed.
        jobs: threads; None for the cores present.
        executor: a `concurrent.futures.Executor` to run trials on instead of threads.
        cluster: a cluster to run them on, as in `Options`.
        progress: called as progress(label, trials done, trials in all, current), see `Options`;
            current() is None.
    """

    lr: Rates | None
    warmup: Integers
    seeds: int
    steps: int
    keys: int
    optimiser: str
    trials: str | Path | None
    resume: bool
    seed: int
    jobs: int | None
    executor: Executor | None
    cluster: str | None
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class TrainStudy(Study):
    """A finished run with the curves that its figures show."""

    results: Results


def train(
    dk: Integers = (16, 64),
    scale: Scales = ("none", "sqrt"),
    **options: Unpack[TrainOptions],
) -> Run:
    """Train one attention layer to find the key that matches its query, and compare scalings.

    Every combination of d_k, scaling, learning rate and warmup is trained on every seed, all on the
    same sequences; `sdpa_check.training.model` describes task and layer. Losses are measured, with
    95 % intervals over seeds and differences taken seed by seed. Only the losses at the start are
    judged. The notes answer what is said about training with and without the scale.

    Args:
        dk: one d_k or several, up to 1024.
        scale: scaling rules, as for `sdpa_check.saturation`; differences are to the first.
        options: see `TrainOptions`.

    Raises:
        InputError: for an input that cannot be used.

    Example:
        >>> import sdpa_check
        >>> sdpa_check.train(dk=16, lr=1.0, warmup=0, steps=100).exit_code
        0
    """
    return study(dk, scale, options).run


def study(dk: Integers, scale: Scales, options: TrainOptions) -> TrainStudy:
    """As `train`, with what the figures need beside the run."""
    started, clock = datetime.now(UTC), time.perf_counter()
    plan = _plan(dk, scale, options)
    settings = plan.inputs.settings
    with running(settings) as there:
        begun = start_rows(plan.starts(), there)
        curves, resumed = _trained(plan, there, options)
    results = Results(curves)
    rows = (*begun, *training_rows(results))
    outcome, code = verdict.conclude(rows)
    run = Run(
        command="train",
        version=sdpa_check.__version__,
        outcome=outcome,
        exit_code=code,
        design=plan.record(),
        seed=settings.seed,
        generator=rng.GENERATOR,
        rows=rows,
        notes=tuple(notes(rows, results, plan.tasks[0].keys)),
        environment={
            **environment(started, time.perf_counter() - clock),
            "trials": len(curves),
            "trials_resumed": resumed,
        },
    )
    return TrainStudy(run, plan.inputs, {}, results)


def finished(dk: Integers, scale: Scales, options: TrainOptions) -> tuple[int, int]:
    """How many trials of a run its file of trials holds, and how many the run has."""
    plan = _plan(dk, scale, options)
    trials = plan.trials()
    return len(_known(trials, _stored(options.get("trials"), plan.inputs.settings))), len(trials)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The inputs of `train`, checked."""

    inputs: Inputs
    tasks: tuple[Task, ...]
    rules: tuple[Scaling, ...]
    rates: tuple[float, ...]
    warmups: tuple[int, ...]
    seeds: int
    steps: int
    optimiser: str

    def starts(self) -> list[Start]:
        """The task of every d_k, with the multiplier that each rule puts before q·k."""
        return [
            Start(
                task, {r.name: multiplier(r, Design(dk=task.dk), task.dmodel) for r in self.rules}
            )
            for task in self.tasks
        ]

    def trials(self) -> list[Trial]:
        """A trial for every combination of the inputs, seeds last."""
        return [
            Trial(
                task=start.task,
                scale=scale,
                multiplier=factor,
                lr=lr,
                warmup=warmup,
                steps=self.steps,
                optimiser=self.optimiser,
                seed=seed,
            )
            for start in self.starts()
            for scale, factor in start.multipliers.items()
            for warmup, lr, seed in product(self.warmups, self.rates, range(self.seeds))
        ]

    def record(self) -> dict[str, Any]:
        """All inputs, as the run's record shows them."""
        return {
            "dk": [task.dk for task in self.tasks],
            "scale": [rule.name for rule in self.rules],
            "lr": list(self.rates),
            "warmup": list(self.warmups),
            "optimiser": self.optimiser,
            "seeds": self.seeds,
            "steps": self.steps,
            "keys": self.tasks[0].keys,
            "dmodel": self.tasks[0].dmodel,
            "noise": NOISE,
            "alpha": power.ALPHA,
        }


def _plan(dk: Integers, scale: Scales, options: TrainOptions) -> _Plan:
    """Check the inputs.

    Raises:
        InputError: for a value that cannot be used or an option that does not exist, naming it.
    """
    for name in options:
        if name not in TrainOptions.__optional_keys__:
            raise unknown_name("option", name, TrainOptions.__optional_keys__)
    dks = integers("--dk", dk, 1, MAX_DK)
    width = max(WIDTH, *dks)
    keys = _one("--keys", options.get("keys", 64), MIN_KEYS, MAX_KEYS)
    shared: Options = {
        "dmodel": width,
        "seed": options.get("seed", 0),
        "jobs": options.get("jobs"),
        "executor": options.get("executor"),
        "cluster": options.get("cluster"),
        "progress": options.get("progress"),
    }
    inputs = resolve(shared)
    rule = options.get("optimiser", "sgd")
    optimiser(rule)
    plan = _Plan(
        inputs=inputs,
        tasks=tuple(Task(dk=d, dmodel=width, keys=keys) for d in dks),
        rules=inputs.scalings(scale),
        rates=_rates(options.get("lr"), rule),
        warmups=integers("--warmup", options.get("warmup", (0, 50)), 0, MAX_STEPS),
        seeds=_one("--seeds", options.get("seeds", 5), 2, MAX_SEEDS),
        steps=_one("--steps", options.get("steps", 400), 1, MAX_STEPS),
        optimiser=rule,
    )
    count = len(dks) * len(plan.rules) * len(plan.rates) * len(plan.warmups) * plan.seeds
    if count > MAX_TRIALS:
        raise InputError("--seeds", plan.seeds, f"at most {MAX_TRIALS} trials; these are {count}")
    return plan


def _one(where: str, given: int, low: int, high: int) -> int:
    (number,) = integers(where, (given,), low, high)
    return number


def _rates(given: Rates | None, rule: str) -> tuple[float, ...]:
    """Learning rates in increasing order."""
    if given is None:
        return RATES[rule]
    listed = list(given) if isinstance(given, Iterable) else [given]
    if not listed:
        raise InputError("--lr", given, "at least one learning rate")
    for rate in listed:
        if isinstance(rate, bool | str) or not 0 < rate <= MAX_LR:
            raise InputError("--lr", rate, f"a learning rate > 0, at most {MAX_LR:g}")
    return tuple(sorted({float(rate) for rate in listed}))


def _stored(file: str | Path | None, settings: Settings) -> dict[Trial, Curve]:
    """All trials in a file; none without one."""
    return {} if file is None else store.load(Path(file), settings.seed)


def _known(trials: Sequence[Trial], stored: Mapping[Trial, Curve]) -> dict[Trial, Curve]:
    """Those that are wanted of the stored trials."""
    return {each: stored[each] for each in trials if each in stored}


def _trained(
    plan: _Plan, settings: Settings, options: TrainOptions
) -> tuple[dict[Trial, Curve], int]:
    """The curve of every trial, and how many of them an earlier run had finished."""
    trials = plan.trials()
    file, seed = options.get("trials"), settings.seed
    path = None if file is None else Path(file)
    stored = _stored(path, settings)
    known = _known(trials, stored) if options.get("resume", True) else {}
    latest: Mapping[Trial, Curve] = known
    written = time.monotonic()

    def finished(found: Mapping[Trial, Curve]) -> None:
        nonlocal latest, written
        latest = found
        if settings.progress is not None:
            settings.progress("trials", len(found), len(trials), lambda: None)
        if path is not None and time.monotonic() - written > _SAVE_EVERY:
            # What other designs left in the file goes when this one is complete, not before.
            store.dump(path, stored | dict(found), seed)
            written = time.monotonic()

    try:
        curves = trial.run(
            trials,
            root_seed=seed,
            known=known,
            jobs=settings.jobs,
            executor=settings.executor,
            finished=finished,
        )
    except BaseException:
        if path is not None and len(latest) > len(known):
            store.dump(path, stored | dict(latest), seed)
        raise
    if path is not None and len(known) < len(trials):
        store.dump(path, curves, seed)
    return curves, len(known)
