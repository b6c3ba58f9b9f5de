"""`variance` and `saturation`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdpa_check.cli import options, output
from sdpa_check.cli.options import Dk, Keys, Law, Output, Sampling, Scale, with_options

if TYPE_CHECKING:
    from sdpa_check.inputs import Options
    from sdpa_check.report.figures import Figure
    from sdpa_check.studies.study import Study


@with_options
def variance(
    dk: Dk = ["64"],  # noqa: B006
    scale: Scale = ["sqrt"],  # noqa: B006
    *,
    law: Law,
    sampling: Sampling,
    out: Output,
) -> None:
    """Mean, variance, std, kurtosis and IQR of q·k, and of the scaled logit, against theory.

    For example:

      sdpa-check variance --dk 64

      sdpa-check variance --dk 8,64,512 --dist t --df 5 --no-plot
    """

    def compute(progress: Options) -> Study:
        from sdpa_check.studies import variance as command

        rules = options.words("--scale", scale)
        return command.study(
            options.integers("--dk", dk), rules, api_options(law, sampling) | progress
        )

    def figures(study: Study) -> dict[str, Figure]:
        from sdpa_check.studies import variance_figures

        return variance_figures.figures(study)

    output.report("variance", out, compute, figures)


@with_options
def saturation(
    dk: Dk = ["64"],  # noqa: B006
    keys: Keys = ["64"],  # noqa: B006
    scale: Scale = ["all"],  # noqa: B006
    *,
    law: Law,
    sampling: Sampling,
    out: Output,
) -> None:
    """Entropy, weights and Jacobian norms of softmax rows, per scaling, against exact theory.

    For example:

      sdpa-check saturation --scale none

      sdpa-check saturation --dk 64 --keys 8,64,1024 --format md
    """

    def compute(progress: Options) -> Study:
        from sdpa_check.studies import saturation as command

        return command.study(
            options.integers("--dk", dk),
            options.integers("--keys", keys),
            options.words("--scale", scale),
            api_options(law, sampling) | progress,
        )

    def figures(study: Study) -> dict[str, Figure]:
        from sdpa_check.studies import saturation_figures

        return saturation_figures.figures(study)

    output.report("saturation", out, compute, figures)


def api_options(law: Law | None, sampling: Sampling) -> Options:
    """The options of the command line as those of the Python API."""
    found: Options = {
        "precision": options.optional(options.fraction, "--precision", sampling.precision),
        "samples": options.optional(options.integer, "--samples", sampling.samples),
        "tolerance": options.fraction("--tolerance", sampling.tolerance),
        "seed": options.seed(sampling.seed),
        "jobs": sampling.jobs,
        "cluster": sampling.cluster,
    }
    if law is not None:
        found |= {
            "dist": law.dist,
            "df": law.df,
            "standardize": law.standardize,
            "sigma": law.sigma,
            "sigma_k": law.sigma_k,
            "mean": law.mean,
            "mean_k": law.mean_k,
            "corr": law.corr,
            "dmodel": law.dmodel,
        }
    return found
