"""Declares the arguments that several commands take, and reads their texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.cli.output import MOST_WIDTH
from traceview.errors import UsageError
from traceview.location import Location
from traceview.store.address import location_of

if TYPE_CHECKING:
    from traceview.trace.load import Readers
    from traceview.trace.windows import StepRange


class Window(str, Enum):
    """The time spans that numbers may refer to."""

    auto = "auto"
    steps = "steps"
    devices = "devices"
    trace = "trace"


def _logdir(text: str) -> Location:
    if not text:
        raise UsageError("LOGDIR is empty", hint="the current directory is .")
    return location_of(text)


def folder_of(text: str) -> Path:
    """A folder on this machine; raises `UsageError` for an empty text."""
    if not text:
        raise UsageError("the name of the folder is empty", hint="the current directory is .")
    return Path(text)


def output_folder(text: str) -> Path:
    """The folder that `--out` of a capture names; raises `UsageError` for an empty text or an address."""
    from traceview.capture import destination

    return destination.output_folder(text)


Logdir = Annotated[
    Location,
    typer.Argument(
        metavar="LOGDIR",
        parser=_logdir,
        help="Log directory, a run in it, or one .xplane.pb file.",
        show_default=False,
    ),
]
Subject = Annotated[
    Location,
    typer.Argument(
        metavar="LOGDIR|REPORT",
        parser=_logdir,
        help="Log directory, a run in it, one .xplane.pb file, or a saved report.json.",
        show_default=False,
    ),
]
Run = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Run to read; by default the newest.", show_default=False),
]
FORMAT_OPTION: Final = typer.Option(
    "--format", help="By default what FILE ends with, else terminal.", show_default=False
)
"""Of commands that write one thing in several formats; each has formats of its own."""

Output = Annotated[
    Location | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        parser=location_of,
        help="Write to FILE instead of the terminal.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")]
Redact = Annotated[
    bool,
    typer.Option(
        "--redact",
        help="Replace names of hosts, paths, users, ops, layers and commands with stable pseudonyms.",
    ),
]
Steps = Annotated[
    str | None,
    typer.Option(
        metavar="A:B",
        help="Only steps A up to but not including B; A or B may be omitted.",
        show_default=False,
    ),
]
WindowChoice = Annotated[
    Window,
    typer.Option(
        "--window",
        help="Time span to analyze: first to last step, first to last device event, or the whole "
        "profile; auto picks the first available of these.",
    ),
]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="KEY",
        help="Show only this device: GPU:4, or 4 for short. May be repeated.",
        show_default=False,
    ),
]
Baseline = Annotated[
    Location | None,
    typer.Option(
        "--baseline",
        metavar="LOGDIR",
        parser=_logdir,
        help="A run on one device, to compare the speed with.",
        show_default=False,
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        min=1,
        metavar="N",
        help="Processes that read the files of several hosts.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Read the files where the workers of this Dask cluster are, such as tcp://host:8786.",
        show_default=False,
    ),
]
Salvage = Annotated[bool, typer.Option("--salvage", help="Use what is readable of a damaged file.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="NAMES",
        help="Only these columns, in this order, of CSV, JSON and Parquet: device,duration_ps.",
        show_default=False,
    ),
]
Width = Annotated[
    int | None,
    typer.Option(
        min=40,
        max=MOST_WIDTH,
        metavar="N",
        help="Width of the output in columns; by default that of the terminal.",
        show_default=False,
    ),
]

Full = Annotated[
    bool,
    typer.Option("--full", help="Print everything; by default what fits on one screen."),
]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="CODE",
        help="Report only these findings, comma-separated.",
        show_default=False,
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        metavar="CODE",
        help="Do not report these findings, comma-separated.",
        show_default=False,
    ),
]

_RANGE: Final = re.compile(r"\s*(\d*)\s*:\s*(\d*)\s*", re.ASCII)
_UNITS: Final = {"ns": 10**3, "us": 10**6, "µs": 10**6, "μs": 10**6, "ms": 10**9, "s": 10**12}
_SIZE_UNITS: Final = {
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SIZE: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([MGT]i?B)\s*", re.ASCII | re.IGNORECASE)
_LENGTH: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ns|us|µs|μs|ms|s)\s*", re.ASCII)


def step_range(text: str | None) -> StepRange | None:
    """`2:5`, `2:` or `:5` as a range of steps; raises `UsageError` for any other text."""
    if text is None:
        return None
    from traceview.trace.windows import StepRange

    match = _RANGE.fullmatch(text)
    if match is None or not any(match.groups()) or max(map(len, match.groups())) > 18:
        hint = "2:5 is steps 2, 3 and 4; 2: is all from 2 on; :5 is all before 5"
        if text.strip().isdecimal() and text.isascii() and len(text) < 18:
            hint = f"for step {int(text)} alone: --steps {int(text)}:{int(text) + 1}"
        raise UsageError(f"--steps {text}: not a range A:B", hint=hint)
    first, last = (int(number) if number else None for number in match.groups())
    if first is not None and last is not None and first >= last:
        raise UsageError(f"--steps {text}: an empty range", hint="B is the first step left out")
    return StepRange(first, last)


def codes(option: str, values: Sequence[str] | None) -> list[str]:
    """The finding codes of an option, in lower case; raises `UsageError` if it was given without one."""
    given = [code.lower() for code in listed(values)]
    if values and not given:
        raise UsageError(f"{option}: no code is given", hint="traceview explain lists them")
    return given


def hosts_read_by(
    workers: int, scheduler: str | None, *, are_asked: bool = False
) -> AbstractContextManager[Readers | None]:
    """Who reads the files of hosts until the end of the `with` block; None for this process.

    `are_asked`: the hosts are asked for more than their files. Raises `UsageError` if both options are given.
    """
    if scheduler is not None:
        if workers > 1:
            raise UsageError(
                "--workers and --scheduler exclude each other",
                hint="the workers of a cluster are those that its scheduler has",
            )
        if not scheduler.strip():
            raise UsageError("--scheduler: no address is given", hint="such as tcp://host:8786")
        from traceview.trace.cluster import Cluster

        return Cluster(scheduler, keeps=are_asked)
    if workers == 1:
        return nullcontext()
    from traceview.trace.workers import Workers as Processes

    return Processes(workers, keeps=are_asked)


def finding_codes(
    select: Sequence[str] | None, ignore: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """The codes of `--select` and of `--ignore`; raises `UsageError` for one that is unknown or in both."""
    select_codes, ignore_codes = codes("--select", select), codes("--ignore", ignore)
    if select_codes or ignore_codes:
        from traceview.report.build import check_codes

        check_codes([*select_codes, *ignore_codes])
    both = set(select_codes) & set(ignore_codes)
    if both:
        raise UsageError(f"{min(both)}: both in --select and in --ignore")
    return select_codes, ignore_codes


def device_names(values: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """The values of `--device`, spelled like the keys `known`; raises `UsageError` if none is given."""
    wanted = listed(values)
    if values and not wanted:
        raise UsageError("--device: no device is given", hint="GPU:4, or 4 for short")
    spelled = {name.lower(): name for key in known for name in (key, key.rpartition("/")[2])}
    return [spelled.get(name.lower(), name) for name in wanted]


def column_names(values: Sequence[str]) -> list[str]:
    """The names in the values of `--columns`; raises `UsageError` for none, or for one that comes twice."""
    names = listed(values)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice or not names:
        text = f"{twice} is given twice" if twice else "no column is given"
        raise UsageError(f"--columns: {text}", hint="names with commas between: device,duration_ps")
    return names


def memory_size(text: str) -> int:
    """`512MB`, `1GB` or `1.5GiB` in bytes; raises `UsageError` for any other text."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--max-memory {text}: not a size of memory",
            hint="a number and MB, GB, MiB or GiB: 1.5GB",
        )
    whole, _, fraction = match[1].partition(".")
    unit = _SIZE_UNITS[match[2].lower()]
    return int(whole) * unit + int(fraction.ljust(9, "0")[:9]) * unit // 10**9


MaxMemory = Annotated[
    int | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        parser=memory_size,
        help="Hold at most so much memory, 1GB for instance; what does not fit goes to files in TMPDIR.",
        show_default=False,
    ),
]


def listed(values: Sequence[str] | None) -> list[str]:
    """Values of an option that may be repeated or joined by commas."""
    parts = [part.strip() for value in values or () for part in value.split(",")]
    return [part for part in parts if part]


def picoseconds(option: str, text: str) -> int:
    """`50us`, `1.5ms` or `2s` in picoseconds; raises `UsageError`, naming `option`, for any other text."""
    match = _LENGTH.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{option} {text}: not a length of time", hint="a number and ns, us, ms or s: 50us"
        )
    whole, _, fraction = match[1].partition(".")
    unit = _UNITS[match[2]]
    return int(whole) * unit + int(fraction.ljust(9, "0")[:9]) * unit // 10**9


def word_of(
    option: str, words: Collection[str], synonyms: Mapping[str, str] | None = None
) -> Callable[[str], str]:
    """What reads the text of an option that has to be one of these words; raises `UsageError` for others.

    `synonyms`: other texts in lower case, such as display names, and the word that each stands for.
    """

    def read(text: str) -> str:
        word = (synonyms or {}).get(text.lower(), text)
        if word in words:
            return word
        near = get_close_matches(text, words, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        hint += f"one of {', '.join(words)}"
        raise UsageError(f"{option} {text}: no such choice", hint=hint)

    return read
