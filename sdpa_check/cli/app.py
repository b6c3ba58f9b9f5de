"""The Typer application: what `sdpa-check --help` shows."""

from __future__ import annotations

from typing import Annotated

import typer

import sdpa_check
from sdpa_check.cli import account, measure
from sdpa_check.cli import claims as claims_
from sdpa_check.cli import compare as compare_
from sdpa_check.cli import train as train_
from sdpa_check.cli import verify as verify_
from sdpa_check.verdict import EXIT_USAGE

app = typer.Typer(
    name="sdpa-check",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"sdpa-check {sdpa_check.__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Measure what the scale of attention really does, and hold every number to exact theory.

    For example:

      sdpa-check variance --dk 64

      sdpa-check saturation --scale none
    """
    del version
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_USAGE)


for name, command, summary in (
    ("variance", measure.variance, "Moments and quantiles of q·k, over a sweep of d_k."),
    ("saturation", measure.saturation, "Entropy and Jacobian norms of softmax rows, by scaling."),
    ("gradient", account.gradient, "What goes back through the softmax, per scaling."),
    ("ledger", account.ledger, "The variance account of attention changes."),
    ("train", train_.train, "One attention layer from scratch, by scaling and learning rate."),
    ("compare", compare_.compare, "Which numbers of two saved runs moved."),
    ("verify", verify_.verify, "Judge the claims of a document, the built-in ones or your own."),
):
    app.command(name, short_help=summary)(command)
app.add_typer(
    claims_.app, name="claims", short_help="The registry: what documents say, and what is right."
)
