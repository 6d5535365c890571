"""Declares the arguments that several commands take, and reads their texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from traceview.base.errors import UsageError
from traceview.base.location import Location
from traceview.base.text import did_you_mean, lazy_pattern
from traceview.cli.output import MOST_WIDTH
from traceview.store.address import location_of

if TYPE_CHECKING:
    from traceview.trace.model import StepRange
    from traceview.trace.reading.load import Readers


def option(
    metavar: str, text: str, *names: str, show_default: bool = False, **settings: Any
) -> Any:
    """An option with a value; `text`: its help."""
    return typer.Option(
        *names, metavar=metavar or None, help=text, show_default=show_default, **settings
    )


def word_of(option: str, words: Collection[str]) -> Callable[[str], str]:
    """Make a parser of an option that has to be one of these words; it raises `UsageError` for others."""

    def read(text: str) -> str:
        if text in words:
            return text
        hint = f"{did_you_mean(text, words, most=1)} one of {', '.join(words)}".lstrip()
        raise UsageError(f"{option} {text}: no such choice", hint=hint)

    return read


def choice(metavar: str, text: str, name: str, words: Sequence[str], **settings: Any) -> Any:
    """An option whose value is one of these words; a shell completes it."""
    read = word_of(name, words)
    return option(metavar, text, name, parser=read, autocompletion=lambda: list(words), **settings)


def flag(text: str, *names: str) -> Any:
    """An option without a value."""
    return typer.Option(*names, help=text)


def argument(metavar: str, text: str, **settings: Any) -> Any:
    """A word that is no option."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, **settings)


def place(metavar: str, text: str, *names: str) -> Any:
    """An option whose value is a path or an address."""
    return option(metavar, text, *names, parser=location_of)


def place_argument(metavar: str, text: str) -> Any:
    """A path or an address that is no option."""
    return argument(metavar, text, parser=location_of)


def folder_of(text: str) -> Path:
    """A folder on this machine; raises `UsageError` for an empty text."""
    if not text:
        raise UsageError("the name of the folder is empty", hint="the current directory is .")
    return Path(text)


Logdir = Annotated[
    Location,
    place_argument("LOGDIR", "Log directory, a run in it, or one .xplane.pb."),
]
Subject = Annotated[
    Location,
    place_argument("LOGDIR", "Log directory, run, .xplane.pb or saved report.json."),
]
Run = Annotated[str | None, option("NAME", "Run to read; by default the newest.")]


def format_option(*names: str) -> Any:
    """The option `--format` of a command that writes one thing in these formats; `format_of` finds the one to write."""
    return choice("NAME", f"{', '.join(names)}; by default by FILE's ending.", "--format", names)


Output = Annotated[
    Location | None,
    place("FILE", "Write to FILE instead of the terminal.", "--output", "-o"),
]
Force = Annotated[bool, flag("Replace FILE if it exists.", "--force")]
Redact = Annotated[bool, flag("Replace identifying names with stable pseudonyms.", "--redact")]
Steps = Annotated[str | None, option("A:B", "Only steps A to B-1; A or B may be omitted.")]
_WINDOWS: Final = ("auto", "steps", "devices", "trace")
Window = Annotated[
    str, choice("SPAN", "Time span: steps, devices, trace or auto (default).", "--window", _WINDOWS)
]
Devices = Annotated[
    list[str] | None, option("KEY", "Only this device: GPU:4, or 4. Repeatable.", "--device")
]
Workers = Annotated[
    str | None, option("ADDRESS", "Read hosts on a cluster, by its Dask scheduler.", "--workers")
]
Salvage = Annotated[bool, flag("Use what is readable of a damaged file.", "--salvage")]
Width = Annotated[
    int | None, option("N", "Width of the output in columns.", min=40, max=MOST_WIDTH)
]

Full = Annotated[bool, flag("Print everything, not only the first screen.", "--full")]

OF_RUN: Final[Mapping[str, tuple[Any, Any]]] = {
    "run": (Run, None),
    "steps": (Steps, None),
    "window": (Window, _WINDOWS[0]),
    "salvage": (Salvage, False),
    "workers": (Workers, None),
}
"""The options of all commands that read a run: which one, which part of it, and how. `report_source.Source` reads them."""


def reads_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that choose a run; it finds their values in the parameters of its context."""
    own = signature(command, eval_str=True)
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in OF_RUN.items()
    ]

    @wraps(command)
    def with_own(**given: Any) -> None:
        command(**{name: given[name] for name in own.parameters})

    every = [*own.parameters.values(), *shared]
    signed: Any = with_own
    signed.__signature__ = own.replace(parameters=every)
    with_own.__annotations__ = {each.name: each.annotation for each in every}
    return with_own


_RANGE: Final = lazy_pattern(r"(\d*)\s*:\s*(\d*)", re.ASCII)


def step_range(text: str | None) -> StepRange | None:
    """`2:5`, `2:` or `:5` as a range of steps; raises `UsageError` for any other text."""
    if text is None:
        return None
    from traceview.trace.model import StepRange

    match = _RANGE.fullmatch(text.strip())
    if match is None or not any(match.groups()) or max(map(len, match.groups())) > 18:
        hint = "2:5 is steps 2, 3 and 4; 2: is all from 2 on; :5 is all before 5"
        if text.strip().isdecimal() and text.isascii() and len(text) < 18:
            hint = f"for step {int(text)} alone: --steps {int(text)}:{int(text) + 1}"
        raise UsageError(f"--steps {text}: not a range A:B", hint=hint)
    first, last = (int(number) if number else None for number in match.groups())
    if first is not None and last is not None and first >= last:
        raise UsageError(f"--steps {text}: an empty range", hint="B is the first step left out")
    return StepRange(first, last)


def hosts_read_by(workers: str | None) -> Readers | None:
    """The cluster that reads the files of hosts, by the address of its Dask scheduler; None for this process.

    Raises `UsageError` for what is no address.
    """
    if workers is None:
        return None
    if ":" not in workers:
        raise UsageError(f"--workers {workers}: not an address", hint="such as tcp://host:8786")
    from traceview.trace.reading.cluster import Cluster

    return Cluster(workers).read


def given_options(context: typer.Context) -> dict[str, str]:
    """The options and arguments on the command line by their names: how the user knows them."""
    given = {}
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            is_option = parameter.param_type_name == "option"
            given[name] = max(parameter.opts, key=len) if is_option else name.upper()
    return given


def check_mode(context: typer.Context, mode: str, taken: Container[str]) -> None:
    """Raise `UsageError` for a given option or argument that is not among those that a command takes with `mode`."""
    for name, shown in given_options(context).items():
        if name not in taken:
            raise UsageError(f"{shown} cannot be combined with {mode}")


def chosen_devices(values: Sequence[str] | None, known: Sequence[str]) -> frozenset[str]:
    """The keys among `known` that `--device` names: by key, by name without the host, or by number; all without it.

    Raises `UsageError` if none is given, and for a name that fits no device.
    """
    if not values:
        return frozenset(known)
    wanted = listed(values)
    if not wanted:
        raise UsageError("--device: no device is given", hint="GPU:4, or 4 for short")
    chosen: set[str] = set()
    for name in wanted:
        keys = [key for key in known if name.lower() in _names_of(key.lower())]
        if not keys:
            hint = f"there are {', '.join(known)}" if known else "the trace has no devices"
            raise UsageError(f"no device is called {name!r}", hint=hint)
        chosen.update(keys)
    return frozenset(chosen)


def _names_of(key: str) -> tuple[str, ...]:
    bare = key.rpartition("/")[2]
    return key, bare, bare.rpartition(":")[2]


def listed(values: Sequence[str] | None) -> list[str]:
    """Values of an option that may be repeated or joined by commas."""
    parts = [part.strip() for value in values or () for part in value.split(",")]
    return [part for part in parts if part]
