"""Reads and writes the options of a capture in the environment variable TRACEVIEW_CAPTURE.

The value holds options of `traceview capture`, as on a command line. It is read in the process that trains, which may
lack the libraries of the command line, so only the standard library is used here.
"""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from traceview.base.errors import UsageError
from traceview.capture.launch.saying import VARIABLE
from traceview.capture.record.destination import DEFAULT_OUT
from traceview.capture.record.settings import PARTS, Settings
from traceview.capture.window.ranges import (
    DEFAULT_STEPS,
    StepRange,
    parse_duration,
)

_EXAMPLE: Final = f'for example {VARIABLE}="--steps 100:110 --out logs"'


def read(text: str) -> Settings:
    """Read the value of the variable; raises `UsageError` with the reason."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(str(error).lower(), hint=_EXAMPLE) from error
    options = vars(_parser().parse_args(words))
    return Settings(
        options["out"],
        StepRange.parse(options["steps"]),
        run=options["run"],
        without=omitted(options["without"]),
        step_functions=tuple(options["step_function"]),
        on_hang_s=None if options["on_hang"] is None else hang_seconds(options["on_hang"]),
        launch=options["launch"],
    )


def written(settings: Settings) -> str:
    """The value that `read` reads as these settings, with absolute paths."""
    hang_s = settings.on_hang_s
    values: dict[str, object] = {
        "steps": settings.steps,
        "out": settings.out.absolute(),
        "run": settings.run,
        "without": ",".join(sorted(settings.without)) or None,
        "on-hang": None if hang_s is None else f"{round(hang_s * 1000)}ms",
        "launch": settings.launch,
    }
    words = [f"--{name}={value}" for name, value in values.items() if value is not None]
    words += [f"--step-function={name}" for name in settings.step_functions]
    return shlex.join(words)


def omitted(without: Sequence[str]) -> frozenset[str]:
    """The parts that --without names; raises `UsageError` for any other name."""
    names = frozenset(name.strip() for value in without for name in value.split(","))
    for name in names.difference(PARTS):
        raise UsageError(f"--without {name}: no such choice", hint=f"one of {', '.join(PARTS)}")
    return names


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
    parser.add_argument("--steps", default=DEFAULT_STEPS)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--run")
    parser.add_argument("--step-function", action="append", default=[])
    parser.add_argument("--on-hang")
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--launch")
    return parser
