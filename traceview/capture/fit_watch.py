"""Notices that Keras' `fit` has ended by an exception, of which Keras tells no callback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Event, get_ident
from types import FrameType
from typing import Final

from traceview.capture.own_threads import own_thread
from traceview.capture.sidecar import Sidecar, WindowListener

_INTERVAL_SECONDS: Final = 0.1
"""Few looks in a window of seconds, and what is recorded after `fit` stays short."""


class FitWatch(WindowListener):
    """Calls `ended`, in a thread of its own, if `fit` ends while the window is open.

    It looks whether the frame of `fit` is still on the stack of its thread: an exception that is kept keeps the frame
    alive, but not there.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._is_over = Event()

    def opened(self, sidecar: Sidecar) -> None:
        """Begin to look."""
        fit = _frame_of_fit()
        if fit is not None:
            own_thread("fit", self._look, get_ident(), fit).start()

    def finished(self) -> None:
        """Look no longer. The thread is not waited for: it may be about to call `ended`, which waits for this."""
        self._is_over.set()

    def _look(self, thread: int, fit: FrameType) -> None:
        while not self._is_over.wait(_INTERVAL_SECONDS):
            frame = sys._current_frames().get(thread)
            while frame is not None and frame is not fit:
                frame = frame.f_back
            if frame is None:
                self._ended()
                return


def _frame_of_fit() -> FrameType | None:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "fit":
        frame = frame.f_back
    return frame
