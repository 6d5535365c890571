"""Defines what a capture records, as TRACEVIEW_CAPTURE tells it to a process that may lack the libraries of the command line."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from traceview.base.errors import UsageError
from traceview.base.units import parse_duration
from traceview.capture.process.saying import VARIABLE
from traceview.capture.record.destination import DEFAULT_OUT, run_name
from traceview.capture.window.step_window import DEFAULT_STEPS, StepRange

PARTS: Final = ("nvml", "python", "source")
"""What a capture can do without: samples of the GPUs, samples of Python stacks, lines of ops."""
_EXAMPLE: Final = f'for example {VARIABLE}="--steps 100:110 --output logs"'


@dataclass(frozen=True)
class Settings:
    """What to capture; raises `UsageError` for a `run` that cannot name a folder.

    `without`: those of `PARTS` that are switched off. `step_functions`: by default all that compute gradients. `on_hang_s`: report
    if no step ends for that many seconds. `launch`: the process that became the command, a dash, and a random word.
    """

    out: Path
    steps: StepRange
    run: str | None = None
    without: frozenset[str] = frozenset()
    step_functions: tuple[str, ...] = ()
    on_hang_s: float | None = None
    launch: str | None = None

    def __post_init__(self) -> None:
        if self.run is not None:
            run_name(self.run)

    @classmethod
    def of(
        cls,
        out: Path = DEFAULT_OUT,
        steps: str | None = None,
        run: str | None = None,
        without: Sequence[str] | None = None,
        step_function: Sequence[str] | None = None,
        on_hang: str | None = None,
        launch: str | None = None,
    ) -> Settings:
        """Those of options, as a user writes them; raises `UsageError` with the reason."""
        names = frozenset(name.strip() for value in without or () for name in value.split(","))
        for name in names.difference(PARTS):
            hint = f"one of {', '.join(PARTS)}"
            raise UsageError(f"--without {name}: no such choice", hint=hint)
        hang_s = None if on_hang is None else parse_duration("--on-hang", on_hang) / 1000
        window = StepRange.parse(steps or DEFAULT_STEPS)
        return cls(out, window, run, names, tuple(step_function or ()), hang_s, launch)

    @classmethod
    def read(cls, text: str) -> Settings:
        """Those that the variable holds; raises `UsageError` with the reason."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(str(error).lower(), hint=_EXAMPLE) from error
        return cls.of(**vars(option_parser().parse_args(words)))

    def written(self) -> str:
        """The value that `read` reads as these settings, with absolute paths."""
        words = [f"--steps={self.steps}", f"--output={self.out.absolute()}"]
        words += [f"--without={name}" for name in sorted(self.without)]
        words += [f"--step-function={name}" for name in self.step_functions]
        words += [] if self.run is None else [f"--run={self.run}"]
        words += [] if self.launch is None else [f"--launch={self.launch}"]
        if self.on_hang_s is not None:
            words.append(f"--on-hang={round(self.on_hang_s * 1000)}ms")
        return shlex.join(words)


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=_EXAMPLE)


def option_parser() -> ArgumentParser:
    """What reads the options of a capture, and raises `UsageError` for others."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--output", "-o", dest="out", type=Path, default=DEFAULT_OUT)
    for name in ("--steps", "--run", "--on-hang", "--launch"):
        parser.add_argument(name)
    for name in ("--step-function", "--without"):
        parser.add_argument(name, action="append")
    return parser
