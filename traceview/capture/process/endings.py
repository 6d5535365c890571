"""Saves the profile before this process ends in a way that no function of `atexit` sees.

A signal is noted in C (`native`), so that it is seen at once, whatever the main thread does, and so that Python's own table
of handlers stays that of the script. A thread then saves, and lets the signal end the process as without traceview. Where a
native call holds Python's lock, another thread, which needs no lock, ends it. `os._exit` and `os.execv` are replaced for
as long as the profile runs.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Final

from traceview.capture.process.around import NATIVE, Patches
from traceview.capture.process.own_threads import own_thread

ENDINGS: Final = ("SIGTERM", "SIGHUP")
"""Sent by a batch system, and by a connection that is lost."""
_CALLS: Final = ("_exit", "execv", "execve")
"""What all functions that end or replace a process call in the end (Lib/os.py)."""
_GRACE_S: Final = 10.0
"""Python hands its lock over within milliseconds; a container is killed 10 s after SIGTERM, a job of Slurm after 30 s."""
_LONGEST_SAVING_S: Final = 60.0
"""A trace that is not saved by then waits for a device or a file system that is gone."""


class Endings:
    """Calls `save` before the process ends, from `install` to `remove`.

    `save` gets the number of a signal, in a thread of its own, and then has to call `NATIVE.end_by`, which ends the process as
    where nobody handles the signal, but for the first process of a container, which goes on; or None, in the thread that
    ends the process. Signals that somebody handles, or ignores, are left alone.
    """

    def __init__(self, save: Callable[[int | None], None]) -> None:
        self._save = save
        self._process = os.getpid()
        self._patches = Patches()
        self._is_catching = False

    def install(self) -> None:
        """The profile is about to start."""
        for name in _CALLS:
            self._patches.put(os, name, self._saving(getattr(os, name)))
        if hasattr(NATIVE, "catch"):
            self._is_catching = True
            NATIVE.catch(*(int(getattr(signal, name)) for name in ENDINGS))
            own_thread("ending", self._await_signal).start()
            own_thread("deadline", NATIVE.hold_to, _GRACE_S, _LONGEST_SAVING_S).start()

    def remove(self) -> None:
        """The trace is saved: everything ends the process as without traceview."""
        self.leave()
        if self._is_catching:
            self._is_catching = False
            NATIVE.release()

    def leave(self) -> None:
        """This is a forked child, in which the signals already do what they did."""
        self._patches.undo()

    def _saving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def ends(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == self._process:
                self.leave()
                self._save(None)
            return original(*args, **kwargs)

        return ends

    def _await_signal(self) -> None:
        number = NATIVE.wait()
        if number:
            self._save(number)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block; a second one in it acts at once."""
    handler = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(handler):
        yield
        return
    is_interrupted = False

    def hold(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.signal(signal.SIGINT, handler)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is hold:
            signal.signal(signal.SIGINT, handler)
        if is_interrupted:
            signal.raise_signal(signal.SIGINT)
