"""`verify`: the claims of a registry as a regression."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sdpa_check.cli import output
from sdpa_check.cli.compare import read_run
from sdpa_check.cli.measure import api_options
from sdpa_check.cli.options import Output, Sampling, with_options

if TYPE_CHECKING:
    from sdpa_check.inputs import Options
    from sdpa_check.studies.study import Study


@with_options
def verify(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="TOML file of claims; default: the built-in ones."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Slow claims too.")] = False,
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="PATTERN", help="Only these ids, e.g. 'B-15*'."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="PATTERN", help="Not these ids."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="RUN", help="A saved run to compare with as well."),
    ] = None,
    *,
    sampling: Sampling,
    out: Output,
) -> None:
    """Judge every claim, the built-in ones or those of a file; exit code 3 if one comes out wrong.

    For example:

      sdpa-check verify --select 'B-15*'

      sdpa-check verify my-claims.toml --format junit > report.xml
    """

    def compute(progress: Options) -> Study:
        from sdpa_check.studies import verify as command

        sys.path.insert(0, "")  # a user's module stands in the working directory
        earlier = None if baseline is None else read_run(baseline, "--baseline")
        return command.study(
            file,
            full=full,
            select=select or [],
            ignore=ignore or [],
            baseline=earlier,
            options=api_options(None, sampling) | progress,
        )

    output.report("verify", out, compute, more={"junit.xml": "junit"})
