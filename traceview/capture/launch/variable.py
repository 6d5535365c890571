"""Reads and writes the options of a capture in the environment variable TRACEVIEW_CAPTURE.

The value holds options of `traceview capture`, as on a command line. It is read in the process that trains, which may
lack the libraries of the command line, so only the standard library is used here.
"""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NoReturn

from traceview.base.errors import UsageError
from traceview.capture.launch.saying import VARIABLE
from traceview.capture.record.destination import DEFAULT_OUT
from traceview.capture.record.settings import Settings
from traceview.capture.window.ranges import (
    DEFAULT_STEPS,
    UNDECIDED,
    SecondsRange,
    StepRange,
    parse_duration,
)

_EXAMPLE: Final = f'for example {VARIABLE}="--steps 100:110 --out logs"'
SWITCHES: Final = {
    "sync": "is_synchronised",
    "nvml": "is_nvml_sampled",
    "python": "is_python_sampled",
    "source": "is_source_recorded",
}
"""What `--without NAME` switches off, and the setting that it unsets."""


def read(text: str) -> Settings:
    """Read the value of the variable; raises `UsageError` with the reason."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(str(error).lower(), hint=_EXAMPLE) from error
    options = vars(_parser().parse_args(words))
    steps, seconds = windows(options["steps"], options["seconds"])
    return Settings(
        options["out"],
        steps,
        run=options["run"],
        seconds=seconds,
        step_functions=tuple(options["step_function"]),
        on_hang_s=None if options["on_hang"] is None else hang_seconds(options["on_hang"]),
        launch=options["launch"],
        **switches(options["without"]),
    )


def written(settings: Settings) -> str:
    """The value that `read` reads as these settings, with absolute paths."""
    hang_s = settings.on_hang_s
    values: dict[str, object] = {
        "steps": settings.steps if settings.seconds is None else None,
        "seconds": settings.seconds,
        "out": Path.cwd() / settings.out,
        "run": settings.run,
        "on-hang": None if hang_s is None else f"{round(hang_s * 1000)}ms",
        "launch": settings.launch,
    }
    words = [f"--{name}={value}" for name, value in values.items() if value is not None]
    words += [f"--step-function={name}" for name in settings.step_functions]
    off = [name for name, setting in SWITCHES.items() if not getattr(settings, setting)]
    words += [f"--without={','.join(off)}"] if off else []
    return shlex.join(words)


def windows(steps: str | None, seconds: str | None) -> tuple[StepRange, SecondsRange | None]:
    """Read --steps or --seconds; raises `UsageError` if both are given or one cannot be read."""
    if seconds is None:
        return StepRange.parse(DEFAULT_STEPS if steps is None else steps), None
    if steps is not None:
        raise UsageError(
            "--seconds cannot be combined with --steps",
            hint="--seconds is for scripts in which no steps are recognized",
        )
    return UNDECIDED, SecondsRange.parse(seconds)


def switches(without: Sequence[str], also: Collection[str] = ()) -> dict[str, bool]:
    """The settings that --without leaves on and switches off; raises `UsageError` for a name that is not in `also`."""
    names = [name.strip() for value in without for name in value.split(",")]
    for name in names:
        if name not in (*SWITCHES, *also):
            raise UsageError(
                f"--without {name}: no such choice", hint=f"one of {', '.join((*SWITCHES, *also))}"
            )
    return {setting: name not in names for name, setting in SWITCHES.items()}


def hang_seconds(text: str) -> float:
    """Read the time of --on-hang; raises `UsageError`."""
    return parse_duration("--on-hang", text) / 1000


def option_names() -> set[str]:
    """The options that a user may write into the variable."""
    names = {name for action in _parser()._actions for name in action.option_strings}
    return names - {"--launch"}


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=_EXAMPLE)


def _parser() -> _Parser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--steps")
    parser.add_argument("--seconds")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--run")
    parser.add_argument("--step-function", action="append", default=[])
    parser.add_argument("--on-hang")
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--launch")
    return parser
