"""`ledger` and `gradient`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sdpa_check.cli import options, output
from sdpa_check.cli.measure import api_options
from sdpa_check.cli.options import Dk, Keys, Law, Output, Sampling, Scale, with_options
from sdpa_check.errors import InputError

if TYPE_CHECKING:
    from sdpa_check.inputs import Options
    from sdpa_check.report.figures import Figure
    from sdpa_check.studies.study import Study


@with_options
def ledger(
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline",
            metavar="STEPS",
            help="Steps from q and k to logits, with bars between them. Repeatable; default: a "
            "list of common changes.",
        ),
    ] = None,
    transform: Annotated[
        list[str] | None,
        typer.Option(
            "--transform",
            metavar="MODULE:FUNCTION",
            help="A function of your own on the logits, after scale:sqrt. Repeatable.",
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(metavar="BY", help="none, std, entropy, frobenius or burstiness."),
    ] = "none",
    dk: Dk = ["64"],  # noqa: B006
    keys: Keys = ["64"],  # noqa: B006
    *,
    law: Law,
    sampling: Sampling,
    out: Output,
) -> None:
    """The variance account of attention changes: logit mean and std, entropy, Jacobian, bursts.

    Steps: proj, scale_q, scale_qk, qk_norm, rope, user_q, user_k, dtype, dot, additive, scale,
    temperature, logn, yarn, softcap, alibi, user. docs/quantities.md shows what each takes.

    For example:

      sdpa-check ledger --sort std

      sdpa-check ledger --pipeline "qk_norm:rms | rope | scale:sqrt | softcap:50"
    """

    def compute(progress: Options) -> Study:
        from sdpa_check.studies import ledger as command

        sys.path.insert(0, "")  # a user's module stands in the working directory
        steps = {f"user:{name}": name for name in transform or []}
        own = [f"scale:sqrt | {step}" for step in steps]
        try:
            return command.study(
                [*(pipeline or []), *own] or command.CHANGES,
                options.integers("--dk", dk),
                options.integers("--keys", keys),
                sort,
                api_options(law, sampling) | progress,
            )
        except InputError as error:
            name = steps.get(str(error.got))
            if name is None:
                raise
            hint = error.hint.removeprefix("step 2 of 2: ")
            raise InputError("--transform", name, error.want, hint) from error

    def figures(study: Study) -> dict[str, Figure]:
        from sdpa_check.studies.pipeline_figures import ledger_figures

        return ledger_figures(study)

    output.report("ledger", out, compute, figures)


@with_options
def gradient(
    dk: Dk = ["64"],  # noqa: B006
    keys: Keys = ["64"],  # noqa: B006
    scale: Scale = ["all"],  # noqa: B006
    *,
    law: Law,
    sampling: Sampling,
    out: Output,
) -> None:
    """What goes back through the softmax: RMS, median, quantiles and bursts, per scaling.

    For example:

      sdpa-check gradient --keys 128

      sdpa-check gradient --dk 16,64,256 --keys 16 --scale none,sqrt
    """

    def compute(progress: Options) -> Study:
        from sdpa_check.studies import gradient as command

        return command.study(
            options.integers("--dk", dk),
            options.integers("--keys", keys),
            options.words("--scale", scale),
            api_options(law, sampling) | progress,
        )

    def figures(study: Study) -> dict[str, Figure]:
        from sdpa_check.studies.pipeline_figures import gradient_figures

        return gradient_figures(study)

    output.report("gradient", out, compute, figures)
