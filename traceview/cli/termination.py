"""Lets a command that a batch system ends clean up as after Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALLED: Final = 128
"""A shell reports a process that died of a signal with this plus the number of the signal."""
_ENDINGS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM and the end of the terminal into `SystemExit(128 + number)`, unless they are handled already."""
    process = os.getpid()

    def terminate(number: int, _frame: FrameType | None) -> Any:
        if os.getpid() != process:
            # A forked child ends as it would without us.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise SystemExit(_SIGNALLED + number)

    handled = [number for number in _ENDINGS if _take(number, terminate)]
    try:
        yield
    finally:
        for number in handled:
            if signal.getsignal(number) is terminate:
                signal.signal(number, signal.SIG_DFL)


def _take(number: int, handler: Callable[[int, FrameType | None], Any]) -> bool:
    """Handle a signal that is not handled yet; False if it is, or outside the main thread."""
    if signal.getsignal(number) is not signal.SIG_DFL:
        return False
    try:
        signal.signal(number, handler)
    except ValueError:
        return False
    return True
