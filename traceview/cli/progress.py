"""Shows on standard error, after a second, what a command works on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from shutil import get_terminal_size
from threading import Event, Thread
from typing import Final

from traceview.base.timing import Stages, followed

PATIENCE_SECONDS: Final = 1.0
"""Shorter work needs no word (the limit for an uninterrupted thought, Nielsen 1993)."""
_EVERY_SECONDS: Final = 0.2


@contextmanager
def reading() -> Iterator[None]:
    """Shows on standard error the stage of the work on a run, if that is a terminal and the work takes long."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    ended = Event()
    with followed() as stages, ExitStack() as stack:
        thread = Thread(target=_show, args=(stages, ended), daemon=True)
        # In a container for instance no more threads may be started.
        with suppress(RuntimeError):
            thread.start()
            stack.callback(thread.join)
        stack.callback(ended.set)
        yield


def _show(stages: Stages, ended: Event) -> None:
    """Renew the line until the work has ended, then take it back."""
    shown, pause = "", PATIENCE_SECONDS
    while not ended.wait(pause):
        # A line that wraps could not be taken back.
        text = _text(stages)[: max(1, get_terminal_size().columns - 1)]
        _write(f"\r{text.ljust(len(shown))}")
        shown, pause = text, _EVERY_SECONDS
    if shown:
        _write(f"\r{' ' * len(shown)}\r")


def _text(stages: Stages) -> str:
    """The innermost stage, and which of several files is read."""
    name, detail = next(iter(stages[-1:]), ("", ""))
    if name not in ("", "reading files"):
        return f"{name} …"
    return f"reading{f', file {detail}' if detail not in ('', '1 of 1') else ''} …"


def _write(text: str) -> None:
    sys.stderr.write(text.encode(sys.stderr.encoding, "replace").decode(sys.stderr.encoding))
    sys.stderr.flush()
