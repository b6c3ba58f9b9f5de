"""`variance` and `saturation`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdpa_check.cli import options, output
from sdpa_check.cli.options import Dk, Keys, Scale, Shared, with_shared

if TYPE_CHECKING:
    from sdpa_check.inputs import Options
    from sdpa_check.report.figures import Figure
    from sdpa_check.studies.study import Study


@with_shared
def variance(dk: Dk = ["64"], scale: Scale = ["sqrt"], *, shared: Shared) -> None:  # noqa: B006
    """Mean, variance, std, kurtosis and IQR of q·k, and of the scaled logit, against theory.

    For example:

      sdpa-check variance --dk 64

      sdpa-check variance --dk 8,64,512 --dist t --df 5 --no-plot
    """

    def compute(progress: Options) -> Study:
        from sdpa_check.studies import variance as command

        rules = options.words(scale)
        return command.study(options.integers("--dk", dk), rules, _options(shared) | progress)

    def figures(study: Study) -> dict[str, Figure]:
        from sdpa_check.studies import variance_figures

        return variance_figures.figures(study)

    output.report("variance", shared, compute, figures)


@with_shared
def saturation(
    dk: Dk = ["64"],  # noqa: B006
    keys: Keys = ["64"],  # noqa: B006
    scale: Scale = ["all"],  # noqa: B006
    *,
    shared: Shared,
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
            options.words(scale),
            _options(shared) | progress,
        )

    def figures(study: Study) -> dict[str, Figure]:
        from sdpa_check.studies import saturation_figures

        return saturation_figures.figures(study)

    output.report("saturation", shared, compute, figures)


def _options(shared: Shared) -> Options:
    """The options of the command line as those of the Python API."""
    return {
        "dist": shared.dist,
        "df": shared.df,
        "standardize": shared.standardize,
        "sigma": shared.sigma,
        "sigma_k": shared.sigma_k,
        "mean": shared.mean,
        "mean_k": shared.mean_k,
        "corr": shared.corr,
        "dmodel": shared.dmodel,
        "precision": options.optional(options.fraction, "--precision", shared.precision),
        "samples": options.optional(options.integer, "--samples", shared.samples),
        "tolerance": options.fraction("--tolerance", shared.tolerance),
        "seed": options.seed(shared.seed),
        "jobs": shared.jobs,
    }
