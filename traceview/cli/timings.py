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
                sys.stderr.write("\n".join(_lines(seconds, dict(stages.beside), rest)) + "\n")


def _lines(seconds: Mapping[str, float], beside: Mapping[str, float], rest: float) -> Iterator[str]:
    """The sum of the stages, and a line for each; `beside`: those of a second thread, in a column of their own."""
    names = dict.fromkeys((*seconds, *beside, _REST))
    seconds = {**seconds, _REST: rest}
    total = f"traceview: {sum(seconds.values()):.3f} s, of which"
    if not beside:
        yield total
        yield from (f"{_cell(seconds, name)}  {name}" for name in names if _takes(seconds, name))
        return
    yield f"{total} (beside: what a second thread did meanwhile)"
    yield f"{'':11}{'beside':>11}"
    for name in names:
        if _takes(seconds, name) or _takes(beside, name):
            yield f"{_cell(seconds, name)}{_cell(beside, name)}  {name}"


def _takes(seconds: Mapping[str, float], name: str) -> bool:
    return seconds.get(name, 0.0) > _LEAST_SECONDS


def _cell(seconds: Mapping[str, float], name: str) -> str:
    return f"{seconds[name]:9.3f} s" if _takes(seconds, name) else " " * 11
