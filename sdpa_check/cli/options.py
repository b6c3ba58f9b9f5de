"""Every shared option, declared once: name, help, and how its text is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from sdpa_check.errors import InputError, unknown_name

_T = TypeVar("_T")

FORMATS = ("table", "json", "csv", "md", "junit")


def _config(context: typer.Context, value: Path | None) -> Path | None:
    """Read a TOML file of options; those on the command line win."""
    if value is None:
        return None
    import tomllib

    try:
        table = tomllib.loads(value.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("--config", str(value), f"a readable file ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError("--config", str(value), f"a TOML file ({error})") from error
    params = {p.name: p for p in context.command.params if p.name not in (None, "config", "debug")}
    defaults: dict[str, Any] = {}
    for key, entry in table.items():
        name = key.replace("-", "_")
        if name not in params:
            raise unknown_name(f"--config {value}", key, filter(None, params))
        where = f"--config {value}: {key}"
        if isinstance(entry, bool) and not getattr(params[name], "is_flag", False):
            raise InputError(where, entry, "a value: this option is no switch")
        option = _as_option(where, entry)
        several = getattr(params[name], "multiple", False) and not isinstance(option, list)
        defaults[name] = [str(option)] if several else option
    context.default_map = {**(context.default_map or {}), **defaults}
    return value


def _out(text: object) -> Path:
    """A path; of an empty text `Path` makes the current folder."""
    if text == "":
        raise InputError("--out", text, "a directory to write to", "for the current one write .")
    return Path(str(text))  # in a file of options it can be a number


def _as_option(where: str, entry: object) -> object:
    """A TOML value as the option parser expects it: numbers in lists as text, the rest as it is."""
    if isinstance(entry, list) and all(isinstance(x, str | int | float) for x in entry):
        if any(isinstance(x, bool) for x in entry):
            raise InputError(where, entry, "a list of numbers or texts")
        return [str(x) for x in entry]
    if isinstance(entry, bool | str | int | float):
        return entry
    raise InputError(where, entry, "a number, a text, true, false, or a list of those")


Dk = Annotated[
    list[str],
    typer.Option("--dk", metavar="D[,D…]", help="d_k = head_dim, 1 to 16384; several for a sweep."),
]
Keys = Annotated[
    list[str],
    typer.Option("--keys", metavar="M[,M…]", help="Keys in a softmax row, 2 to 1000000."),
]
Scale = Annotated[
    list[str],
    typer.Option(
        "--scale",
        metavar="RULE",
        help="none, sqrt (1/√d), dk (1/d), sqrt2 (1/√2d), sqrt_dmodel, iqr (gives the logits the "
        "IQR of N(0, 1)), pow:a (d^a), a number, or all (none, sqrt, dk). Repeatable.",
    ),
]


Format = Annotated[
    str, typer.Option("--format", metavar="|".join(FORMATS), help="What goes to stdout.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The law of q and k."""

    dist: Annotated[
        str,
        typer.Option(
            metavar="LAW", help="gaussian, uniform, rademacher, laplace, t, cauchy or mixture."
        ),
    ] = "gaussian"
    df: Annotated[float | None, typer.Option(help="Degrees of freedom of t.")] = None
    standardize: Annotated[
        bool,
        typer.Option("--standardize", help="Give a raw t unit variance (df > 2)."),
    ] = False
    sigma: Annotated[float, typer.Option(help="Scale of q (and of k).")] = 1.0
    sigma_k: Annotated[float | None, typer.Option(help="Scale of k, if another.")] = None
    mean: Annotated[float, typer.Option(help="Mean of q (and of k).")] = 0.0
    mean_k: Annotated[float | None, typer.Option(help="Mean of k, if another.")] = None
    corr: Annotated[
        str,
        typer.Option(metavar="KIND:RHO", help="none, ar1:ρ, equi:ρ or qk:ρ."),
    ] = "none"
    dmodel: Annotated[int | None, typer.Option(help="d_model, for the rule sqrt_dmodel.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How many samples are drawn, from which seed, by how many workers, and how they are judged."""

    precision: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="Relative standard error, e.g. 0.1%. Default: planned so that a true prediction "
            "is confirmed.",
        ),
    ] = None
    samples: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Dot products or rows per design, instead of a precision; 1e7 is fine.",
        ),
    ] = None
    tolerance: Annotated[
        str,
        typer.Option(metavar="P", help="Half-width of the equivalence band."),
    ] = "1%"
    seed: Annotated[
        str,
        typer.Option(metavar="N", help="Root seed, or 'random'."),
    ] = "0"
    jobs: Annotated[int | None, typer.Option(help="Worker processes; default: all cores.")] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run blocks on a dask cluster, tcp://host:port, or on local:N worker processes.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML file of options; the command line wins.",
            is_eager=True,
            callback=_config,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What goes to stdout, to stderr and into files."""

    format: Format = "table"
    stderr: Annotated[
        str | None,
        typer.Option(metavar="|".join(FORMATS), help="What goes to stderr beside it."),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=_out, help="Where files go; default outputs/COMMAND."),
    ] = None
    save: Annotated[bool, typer.Option("--save/--no-save", help="Write files.")] = True
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on where the same command was stopped, from the state that it left in DIR. "
            "Without it a run begins anew and replaces that state at its end.",
        ),
    ] = False
    plot: Annotated[bool, typer.Option("--plot/--no-plot", help="Draw plots.")] = True
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on stderr but errors.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False


GROUPS = (Law, Sampling, Output)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of every group of `GROUPS` that annotates one of its parameters.

    Each group then reaches the command as one object, so an option is declared here and nowhere
    else.
    """
    signature = inspect.signature(command, eval_str=True)
    groups = {p.name: p.annotation for p in signature.parameters.values() if p.annotation in GROUPS}
    own = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in signature.parameters.values()
        if p.name not in groups
    ]
    extra = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hint
        )
        for group in groups.values()
        for f, hint in zip(fields(group), _hints(group), strict=True)
    ]

    @wraps(command)
    def wrapped(**values: Any) -> None:
        made = {
            name: group(**{f.name: values.pop(f.name) for f in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **made)

    wrapped.__signature__ = signature.replace(parameters=own + extra)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in own + extra} | {"return": None}
    del wrapped.__wrapped__
    return wrapped


def _hints(group: type) -> list[Any]:
    hints = get_type_hints(group, include_extras=True)
    return [hints[f.name] for f in fields(group)]


def integers(where: str, texts: list[str]) -> list[int]:
    """``["8,64", "512"]`` → [8, 64, 512].

    Raises:
        InputError: for a part that is empty or no integer.
    """
    return [integer(where, part) for part in words(where, texts)]


def words(where: str, texts: list[str]) -> list[str]:
    """``["none,sqrt", "dk"]`` → ["none", "sqrt", "dk"].

    Raises:
        InputError: for a part that is empty.
    """
    parts = [part.strip() for text in texts for part in text.split(",")]
    if not all(parts):
        raise InputError(
            where, ",".join(texts), "values with commas between them, none of them empty"
        )
    return parts


def optional(read: Callable[[str, str], _T], where: str, text: str | None) -> _T | None:
    """What `read` makes of an option that may be absent."""
    return None if text is None else read(where, text)


def seed(text: str) -> int:
    """A root seed, drawn from the operating system for ``random``."""
    if text.strip().lower() == "random":
        from sdpa_check.rng import fresh_seed

        return fresh_seed()
    return integer("--seed", text)


def fraction(where: str, text: str) -> float:
    """``0.1%`` or ``0.001`` → 0.001."""
    body, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(body)
    except ValueError:
        raise InputError(where, text, "a fraction or a percentage, e.g. 0.001 or 0.1%") from None
    return value / 100 if percent else value


def integer(where: str, text: str) -> int:
    """``1000000`` or ``1e6`` → 1000000."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
        if value == int(value):
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise InputError(where, text, "an integer")
