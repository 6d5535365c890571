"""Shows on standard error, after a second, how much is being read or what a command waits for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from threading import Timer
from time import monotonic
from typing import Final

from traceview.location import Location
from traceview.store.address import is_remote

PATIENCE_SECONDS: Final = 1.0
"""What takes less needs no word (the limit for an uninterrupted thought, Nielsen 1993)."""


@contextmanager
def reading(path: Location, run: str | None) -> Iterator[None]:
    """Shows on standard error what is being read, if that is a terminal and reading takes long."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    if is_remote(path):
        with _transferring():
            yield
        return
    shown: list[str] = []

    def show() -> None:
        text = f"reading {_size(path, run)}…"
        shown.append(text)
        _write(text)

    timer = Timer(PATIENCE_SECONDS, show)
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError:
        # No more threads may be started, in a container for instance.
        yield
        return
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if shown:
            _write(f"\r{' ' * len(shown[0])}\r")


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
    from traceview.document import numbers
    from traceview.errors import TraceviewError
    from traceview.trace.locate import choose_run, find_runs

    try:
        chosen = choose_run(find_runs(path), run)
        return numbers.size(sum(file.stat().st_size for file in chosen.paths)) + " "
    except (TraceviewError, OSError):
        return ""
