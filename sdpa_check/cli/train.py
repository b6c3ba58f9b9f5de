"""`train`: one attention layer from scratch, with and without the scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from sdpa_check.cli import options, output
from sdpa_check.cli.options import Dk, Keys, Output, Sampling, Scale, with_options
from sdpa_check.errors import InputError

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
    dk: Dk = ["16,64"],  # noqa: B006
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
    keys: Keys = ["64"],  # noqa: B006
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
    trials.json, so that an interrupted command, called again, goes on where it stopped.

    For example:

      sdpa-check train --dk 16,64

      sdpa-check train --dk 64 --optimiser adam --lr 0.01,0.03 --warmup 0
    """
    del config
    file = (out.out or Path("outputs") / "train") / TRIALS
    kept = file if out.save else None
    if out.resume and not file.exists():
        want = f"the {TRIALS} of an earlier run; without --resume a new run begins"
        raise InputError("--resume", str(file), want, "there is no such file")

    def compute(progress: Options) -> Study:
        from sdpa_check.studies import train as command

        given: TrainOptions = {
            "lr": None if lr is None else _rates(lr),
            "warmup": options.integers("--warmup", warmup),
            "seeds": options.integer("--seeds", seeds),
            "steps": options.integer("--steps", steps),
            "keys": _single("--keys", keys),
            "optimiser": optimiser,
            "trials": kept,
            "seed": options.seed(seed),
            "jobs": jobs,
            "cluster": cluster,
            "progress": progress["progress"],
        }
        return command.study(options.integers("--dk", dk), options.words(scale), given)

    def figures(study: Study) -> dict[str, Figure]:
        from sdpa_check.studies import train_figures

        return train_figures.figures(cast("TrainStudy", study))

    output.report("train", out, compute, figures)


def _single(where: str, texts: list[str]) -> int:
    found = options.integers(where, texts)
    if len(found) != 1:
        raise InputError(where, ",".join(texts), "one integer")
    return found[0]


def _rates(texts: list[str]) -> list[float]:
    """``["0.1,1", "3"]`` → [0.1, 1.0, 3.0].

    Raises:
        InputError: for a part that is no number.
    """
    found = []
    for text in options.words(texts):
        try:
            found.append(float(text))
        except ValueError:
            raise InputError("--lr", text, "a learning rate, e.g. 0.1 or 1e-3") from None
    return found
