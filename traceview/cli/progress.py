"""Shows on standard error, after a second, what a command works on, and at its end, for `--timings`, where the time went."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from shutil import get_terminal_size
from threading import Event, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Final

from traceview.base.location import Location
from traceview.base.timing import Stages, measured, stage
from traceview.cli import STARTED
from traceview.store.address import is_remote

if TYPE_CHECKING:
    from traceview.store.ranges import Transfer

PATIENCE_SECONDS: Final = 1.0
"""Shorter work needs no word (the limit for an uninterrupted thought, Nielsen 1993)."""
_EVERY_SECONDS: Final = 0.2


@contextmanager
def reading(path: Location, *, is_here: bool = True) -> Iterator[None]:
    """Shows on standard error the stage of the work on a run, if that is a terminal and the work takes long.

    `is_here`: this process reads the files, so it sees how much of a file in a store has been transferred.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    ended = Event()
    with measured() as stages, ExitStack() as stack:
        transfer = None
        if is_here and is_remote(path):
            from traceview.store.ranges import counted

            transfer = stack.enter_context(counted())
        thread = Thread(target=_show, args=(stages, transfer, ended), daemon=True)
        # In a container for instance no more threads may be started.
        with suppress(RuntimeError):
            thread.start()
            stack.callback(thread.join)
        stack.callback(ended.set)
        yield


def _show(stages: Stages, transfer: Transfer | None, ended: Event) -> None:
    """Renew the line until the work has ended, then take it back."""
    shown, pause = "", PATIENCE_SECONDS
    while not ended.wait(pause):
        # A line that wraps could not be taken back.
        text = _text(stages, transfer)[: max(1, get_terminal_size().columns - 1)]
        _write(f"\r{text.ljust(len(shown))}")
        shown, pause = text, _EVERY_SECONDS
    if shown:
        _write(f"\r{' ' * len(shown)}\r")


def _text(stages: Stages, transfer: Transfer | None) -> str:
    """The stage, and while files are read how much that is."""
    if stages.current not in ("", "reading files"):
        return f"{stages.current} …"
    from traceview.document.numbers import size

    several = f", file {stages.detail}" if stages.detail not in ("", "1 of 1") else ""
    amount = ""
    if transfer is not None and transfer.total_bytes:
        amount = f" {size(transfer.done_bytes)} of {size(transfer.total_bytes)}"
    return f"reading{amount}{several} …"


def _write(text: str) -> None:
    sys.stderr.write(text.encode(sys.stderr.encoding, "replace").decode(sys.stderr.encoding))
    sys.stderr.flush()


_LEAST_SECONDS: Final = 0.0005
_START: Final = "starting"
_REST: Final = "all else"


# Where the time of a command went


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
            seconds[_REST] = seconds.pop(_REST)
            if sys.stderr is not None:
                sys.stderr.write("\n".join(_lines(seconds, dict(stages.beside))) + "\n")


def _lines(seconds: Mapping[str, float], beside: Mapping[str, float]) -> Iterator[str]:
    """The sum of the stages, and a line for each; `beside`: what a second thread did meanwhile."""
    yield f"traceview: {sum(seconds.values()):.3f} s, of which"
    for stages, where in ((seconds, ""), (beside, ", meanwhile in a second thread")):
        for name, of_stage in stages.items():
            if of_stage > _LEAST_SECONDS:
                yield f"{of_stage:9.3f} s  {name}{where}"
