"""Limits how long the profile stays open for an edge step that may never come.

Starting a thread takes 0.2 ms, and tens of milliseconds when all cores are busy; a recorded step would pay for that.
So the thread starts before the first recorded step, and inside the window it is only notified.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from time import monotonic

from traceview.capture.process.own_threads import own_thread


class EdgeTimeout:
    """Calls `expired` in its own thread when the time set by `start` is over; `expired` calls `stop` or `cancel`."""

    def __init__(self, expired: Callable[[], None]) -> None:
        self._expired = expired
        self._changed = Condition()
        self._deadline_s: float | None = None
        self._is_needed = False

    @property
    def is_running(self) -> bool:
        """Whether the time is running or over, and not cancelled."""
        return self._deadline_s is not None

    def prepare(self) -> None:
        """Start the thread."""
        self._is_needed = True
        own_thread("edge-timeout", self._watch).start()

    def start(self, seconds: float) -> None:
        """Let the time run from now."""
        with self._changed:
            self._deadline_s = monotonic() + seconds
            self._changed.notify()

    def cancel(self) -> None:
        """The edge step has come."""
        if self._deadline_s is not None:
            with self._changed:
                self._deadline_s = None

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_needed = False
            self._changed.notify()

    def _watch(self) -> None:
        while self._wait():
            self._expired()

    def _wait(self) -> bool:
        """Return True when the time is over, False when the thread is no longer needed."""
        with self._changed:
            while self._is_needed:
                left_s = None if self._deadline_s is None else self._deadline_s - monotonic()
                if left_s is not None and left_s <= 0:
                    return True
                self._changed.wait(left_s)
        return False
