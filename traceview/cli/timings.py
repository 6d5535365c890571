"""Says on standard error where the time of a command went: `--timings`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Annotated, Final

import typer

from traceview.cli import STARTED
from traceview.stages import measured, stage

_LEAST_SECONDS: Final = 0.0005
_START: Final = "starting"
_REST: Final = "all else"


@contextmanager
def _said() -> Iterator[None]:
    """Prints the stages of what runs inside, with the start of the process before them."""
    begun = perf_counter()
    with measured() as stages:
        try:
            with stage(_REST):
                yield
        finally:
            seconds = {_START: begun - STARTED, **stages.seconds}
            seconds[_REST] = seconds.pop(_REST)
            lines = [f"traceview: {sum(seconds.values()):.3f} s, of which"]
            lines += [
                f"{took:9.3f} s  {name}" for name, took in seconds.items() if took > _LEAST_SECONDS
            ]
            if sys.stderr is not None:
                sys.stderr.write("\n".join(lines) + "\n")


def _asked(context: typer.Context, is_wanted: bool) -> bool:
    if is_wanted and not context.resilient_parsing:
        context.with_resource(_said())
    return is_wanted


Timings = Annotated[
    bool,
    typer.Option("--timings", help="Say on standard error where the time went.", callback=_asked),
]
