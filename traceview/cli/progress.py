"""Shows on standard error, after a second, what a command works on, and at its end, for `--timings`, where the time went."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
    if is_here and is_remote(path):
        from traceview.store.ranges import counted

        with counted() as transfer, _shown(lambda: _transferred(transfer)):
            yield
        return
    with _shown(str):
        yield


@contextmanager
def _shown(amount: Callable[[], str]) -> Iterator[None]:
    """Shows the stage of what runs inside; `amount`: how much is read."""
    ended = Event()
    with measured() as stages:

        def show() -> None:
            shown = ""
            pause = PATIENCE_SECONDS
            while not ended.wait(pause):
                # A line that wraps could not be taken back.
                text = _text(stages, amount)[: max(1, get_terminal_size().columns - 1)]
                if text != shown:
                    _write(f"\r{text}{' ' * (len(shown) - len(text))}")
                shown, pause = text, _EVERY_SECONDS
            if shown:
                _write(f"\r{' ' * len(shown)}\r")

        thread = Thread(target=show, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # No more threads may be started, in a container for instance.
            yield
            return
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _text(stages: Stages, amount: Callable[[], str]) -> str:
    """The stage, and while files are read how much that is."""
    if stages.current not in ("", "reading files"):
        return f"{stages.current} …"
    several = f", file {stages.detail}" if stages.detail not in ("", "1 of 1") else ""
    return f"reading {amount()}".rstrip() + f"{several} …"


def _write(text: str) -> None:
    sys.stderr.write(text.encode(sys.stderr.encoding, "replace").decode(sys.stderr.encoding))
    sys.stderr.flush()


def _transferred(transfer: Transfer) -> str:
    from traceview.document import numbers

    if not transfer.total_bytes:
        return ""
    return f"{numbers.size(transfer.done_bytes)} of {numbers.size(transfer.total_bytes)}"


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
