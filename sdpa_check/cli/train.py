"""`train`: one attention layer from scratch, with and without the scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from sdpa_check.cli import options, output
from sdpa_check.cli.options import Output, Sampling, Scale, with_options
from sdpa_check.cli.stopping import StoppedRun
from sdpa_check.errors import InputError, LostWorkersError

if TYPE_CHECKING:
    from sdpa_check.inputs import Options
    from sdpa_check.report.figures import Figure
    from sdpa_check.studies.study import Study
    from sdpa_check.studies.train import TrainOptions, TrainStudy

TRIALS = "trials.json"
"""Where finished trials stand, beside run.json."""


def _of_sampling(name: str) -> Any:
    """An option of `Sampling`, which as a whole has options that mean nothing here."""
    return get_type_hints(Sampling, include_extras=True)[name].__metadata__[0]


@with_options
def train(
    *,
    dk: Annotated[
        list[str],
        typer.Option(
            "--dk", metavar="D[,D…]", help="d_k = head_dim, 1 to 1024; several for a sweep."
        ),
    ] = ["16,64"],  # noqa: B006
    scale: Scale = ["none,sqrt"],  # noqa: B006
    lr: Annotated[
        list[str] | None,
        typer.Option(
            "--lr", metavar="R[,R…]", help="Learning rates; default: six, by the optimiser."
        ),
    ] = None,
    warmup: Annotated[
        list[str],
        typer.Option("--warmup", metavar="N[,N…]", help="Steps of linear warmup, 0 for none."),
    ] = ["0,50"],  # noqa: B006
    keys: Annotated[
        list[str],
        typer.Option(
            "--keys",
            metavar="N",
            help="Keys of a sequence and labels to choose from, 16 to 4096.",
        ),
    ] = ["64"],  # noqa: B006
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N", help="How often each setting is trained.")
    ] = "5",
    steps: Annotated[
        str, typer.Option("--steps", metavar="N", help="Steps of a training, one sequence each.")
    ] = "400",
    optimiser: Annotated[
        str, typer.Option("--optimiser", metavar="sgd|adam", help="How weights are updated.")
    ] = "sgd",
    seed: Annotated[str, _of_sampling("seed")] = "0",
    jobs: Annotated[int | None, _of_sampling("jobs")] = None,
    cluster: Annotated[str | None, _of_sampling("cluster")] = None,
    config: Annotated[Path | None, _of_sampling("config")] = None,
    out: Output,
) -> None:
    """Train one attention layer under every scaling and learning rate, on several seeds.

    The layer must find the key that its query is a noisy copy of. Losses are measured, not judged;
    the notes say what they mean for the claims about training. Finished trials are kept in
    trials.json, from which --resume goes on, also to more seeds, rates or scalings.

    For example:

      sdpa-check train --dk 16,64

      sdpa-check train --dk 64 --optimiser adam --lr 0.01,0.03 --warmup 0
    """
    del config
    file = (out.out or Path("outputs") / "train") / TRIALS
    if out.resume:
        _check_resumable(file, out)

    def compute(progress: Options) -> Study:
        from sdpa_check.studies import train as command

        given: TrainOptions = {
            "lr": None if lr is None else _rates(lr),
            "warmup": options.integers("--warmup", warmup),
            "seeds": options.integer("--seeds", seeds),
            "steps": options.integer("--steps", steps),
            "keys": _single("--keys", keys),
            "optimiser": optimiser,
            "trials": file if out.save else None,
            "resume": out.resume,
            "seed": options.seed(seed),
            "jobs": jobs,
            "cluster": cluster,
            "progress": progress["progress"],
        }
        asked = options.integers("--dk", dk), options.words("--scale", scale), given
        if out.resume and not command.finished(*asked)[0]:
            want = "trials of the same --keys, --steps, --optimiser, --dmodel and --seed in it"
            hint = "without --resume a new run begins"
            raise InputError("--resume", str(file), want, hint)
        try:
            return command.study(*asked)
        except (KeyboardInterrupt, LostWorkersError) as error:
            done, total = command.finished(*asked)
            if out.save and not done:
                raise
            kept = f"{done} of {total} trials are in {file}, --resume goes on"
            kept = kept if out.save else "nothing is kept: --no-save"
            if isinstance(error, KeyboardInterrupt):
                raise StoppedRun(kept, quiet=out.quiet) from error
            raise LostWorkersError(f"{error}; {kept}") from error

    def figures(study: Study) -> dict[str, Figure]:
        from sdpa_check.studies import train_figures

        return train_figures.figures(cast("TrainStudy", study))

    # Its state is the trials, and not what --resume reads for the other commands.
    output.report("train", replace(out, resume=False), compute, figures)


def _check_resumable(file: Path, out: Output) -> None:
    """Refuse ``--resume`` where there is nothing to go on from.

    Raises:
        InputError: saying so.
    """
    if not out.save:
        raise InputError("--resume", "--no-save", f"one of the two: trials are read from {TRIALS}")
    if not file.exists():
        want = f"the {TRIALS} of an earlier run; without --resume a new run begins"
        raise InputError("--resume", str(file), want, "there is no such file")


def _single(where: str, texts: list[str]) -> int:
    found = options.integers(where, texts)
    if len(found) != 1:
        raise InputError(where, ",".join(texts), "one integer")
    return found[0]


def _rates(texts: list[str]) -> list[float]:
    """``["0.1,1", "3"]`` → [0.1, 1.0, 3.0].

    Raises:
        InputError: for a part that is empty or no number.
    """
    found = []
    for text in options.words("--lr", texts):
        try:
            found.append(float(text))
        except ValueError:
            raise InputError("--lr", text, "a learning rate, e.g. 0.1 or 1e-3") from None
    return found
