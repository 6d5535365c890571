"""Shows on standard error, after a second, what a command works on or waits for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from threading import Event, Thread
from time import monotonic
from typing import Final

from traceview.base.location import Location
from traceview.base.timing import measured
from traceview.store.address import is_remote

PATIENCE_SECONDS: Final = 1.0
"""What takes less needs no word (the limit for an uninterrupted thought, Nielsen 1993)."""
_EVERY_SECONDS: Final = 0.2


@contextmanager
def reading(path: Location, run: str | None, *, is_here: bool = True) -> Iterator[None]:
    """Shows on standard error the stage of the work on a run, if that is a terminal and the work takes long.

    `is_here`: this process reads the files, so it sees how much of a file in a store has been transferred.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    if is_here and is_remote(path):
        with _transferring():
            yield
        return
    ended = Event()
    with measured() as stages:

        def show() -> None:
            if ended.wait(PATIENCE_SECONDS):
                return
            size, shown = _size(path, run), ""
            while not ended.is_set():
                text = _text(stages.current, stages.detail, size)
                if text != shown:
                    _write(f"\r{text}{' ' * (len(shown) - len(text))}")
                    shown = text
                ended.wait(_EVERY_SECONDS)
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


def _text(stage: str, detail: str, size: str) -> str:
    """What is shown: the stage, and while files are read how much that is."""
    if not stage or stage == "reading files":
        several = f", file {detail}" if detail and detail != "1 of 1" else ""
        return f"reading {size.rstrip()}{several} …"
    return f"{stage} …"


@contextmanager
def _transferring() -> Iterator[None]:
    """Shows how much of the files in a store has been read."""
    from traceview.document import numbers
    from traceview.store.ranges import transfers_shown

    with waiting() as show:

        def show_bytes(done: int, total: int) -> None:
            show(f"reading {numbers.size(done)} of {numbers.size(total)}")

        with transfers_shown(show_bytes):
            yield


@contextmanager
def waiting() -> Iterator[Callable[[str], None]]:
    """Gives what shows a text in place of the one before, on standard error, if that is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    begun = monotonic()
    shown = ""

    def show(text: str) -> None:
        nonlocal shown
        if monotonic() - begun < PATIENCE_SECONDS or text == shown:
            return
        # A line that wraps could not be taken back.
        text = text[: max(1, get_terminal_size().columns - 1)]
        _write(f"\r{text}{' ' * (len(shown) - len(text))}")
        shown = text

    try:
        yield show
    finally:
        if shown:
            _write(f"\r{' ' * len(shown)}\r")


def _write(text: str) -> None:
    sys.stderr.write(text.encode(sys.stderr.encoding, "replace").decode(sys.stderr.encoding))
    sys.stderr.flush()


def _size(path: Location, run: str | None) -> str:
    from traceview.base.errors import TraceviewError
    from traceview.document import numbers
    from traceview.trace.reading.locate import choose_run, find_runs

    try:
        chosen, _ = choose_run(find_runs(path), run)
        return numbers.size(sum(file.stat().st_size for file in chosen.paths)) + " "
    except (TraceviewError, OSError):
        return ""
