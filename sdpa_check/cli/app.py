"""The Typer application: what `sdpa-check --help` shows, and where each command is defined.

The module of a command is imported when that command is called, so that none waits for the others.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import sdpa_check
from sdpa_check.cli.conversion import spare
from sdpa_check.cli.stopping import write
from sdpa_check.errors import EXIT_USAGE

COMMANDS = {
    "variance": ("measure:variance", "Moments and quantiles of q·k, over a sweep of d_k."),
    "saturation": (
        "measure:saturation",
        "Entropy and Jacobian norms of softmax rows, by scaling.",
    ),
    "gradient": ("account:gradient", "What goes back through the softmax, per scaling."),
    "ledger": ("account:ledger", "The variance account of attention changes."),
    "train": ("train:train", "One attention layer from scratch, by scaling and learning rate."),
    "compare": ("compare:compare", "Which numbers of two saved runs moved."),
    "verify": ("verify:verify", "Judge the claims of a document, the built-in ones or your own."),
    "claims": ("claims:app", "The registry: what documents say, and what is right."),
}
"""Every command: ``module:name`` below `sdpa_check.cli`, and its line in the help."""


def command(name: str) -> Any:
    """The command, or group of commands, of that name, imported now and built by typer."""
    place, summary = COMMANDS[name]
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"sdpa_check.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        return get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=_Command, short_help=summary)(found)
    return get_command(alone)


class _Command(TyperCommand):
    """A command that converts no value needlessly."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does, but see `spare`."""
        spare(self.get_params(ctx))
        return super().parse_args(ctx, args)


class _LateGroup(TyperGroup):
    """A group whose members are stand-ins, with a name and a summary, until one is called."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does, but see `spare`."""
        spare(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """The called command itself in the place of its stand-in."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and command(str(name)), rest


app = typer.Typer(
    name="sdpa-check",
    cls=_LateGroup,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(value: bool) -> None:
    if value:
        write(sys.stdout, f"sdpa-check {sdpa_check.__version__}\n")
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
        write(sys.stdout, f"{context.get_help()}\n")
        raise typer.Exit(EXIT_USAGE)


def _stand_in() -> None:
    """Never called: `_LateGroup` puts the command in its place."""


for _name, (_, _summary) in COMMANDS.items():
    app.command(_name, short_help=_summary)(_stand_in)
