"""Says on standard error where the time of a command went, for `traceview --timings COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from traceview.base.timing import measured, stage
from traceview.cli import STARTED

_LEAST_SECONDS: Final = 0.0005
_START: Final = "starting"
_REST: Final = "all else"


@contextmanager
def said() -> Iterator[None]:
    """Prints the stages of what runs inside, with the start of the process before them."""
    begun = perf_counter()
    with measured() as stages:
        try:
            with stage(_REST):
                yield
        finally:
            seconds = {_START: begun - STARTED, **stages.seconds}
            rest = seconds.pop(_REST)
            if sys.stderr is not None:
                sys.stderr.write("\n".join(_lines({**seconds, _REST: rest})) + "\n")


def _lines(seconds: Mapping[str, float]) -> Iterator[str]:
    """The sum of the stages, and a line for each that takes time."""
    yield f"traceview: {sum(seconds.values()):.3f} s, of which"
    for name, length in seconds.items():
        if length > _LEAST_SECONDS:
            yield f"{length:9.3f} s  {name}"
