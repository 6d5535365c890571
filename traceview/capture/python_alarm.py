"""Samples the main thread while it holds the GIL, which a sampling thread cannot: a timer interrupts it.

The sampling thread sets the timer again in every round, a little later than the next round is due. So the timer runs
out only if that thread did not get the GIL: then Python holds it, and a handler runs in the main thread at its next
instruction. A main thread that waits, or is inside TensorFlow, gets a signal only where the machine is so busy that the
sampling thread is late.

The timer is that of SIGALRM. It is left alone where the script uses it, and on systems without it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

PATIENCE_NS: Final = 700_000
"""How much later than the next round the timer runs out."""
_HAS_TIMER: Final = hasattr(signal, "SIGALRM")


class MainThreadAlarm:
    """Calls `sample` with the frame of the main thread when its timer has run out.

    `interval_ns`: how soon it does so again while the sampling thread still waits.
    """

    def __init__(self, sample: Callable[[FrameType | None], None], interval_ns: int) -> None:
        self._sample = sample
        self._interval_s = interval_ns / 1e9
        self._is_set = False

    def install(self) -> None:
        """Prepare the timer, if this is the main thread and nothing else uses the signal."""
        if (
            not _HAS_TIMER
            or threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
            or signal.getitimer(signal.ITIMER_REAL)[0]
            or signal.SIGALRM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        ):
            return
        signal.signal(signal.SIGALRM, self._run_out)
        # System calls go on after the handler.
        signal.siginterrupt(signal.SIGALRM, False)
        self._is_set = True

    def set_for(self, delay_ns: int) -> None:
        """Let the timer run out after `delay_ns`, instead of at the time set before."""
        if self._is_set:
            if self._is_ours():
                signal.setitimer(signal.ITIMER_REAL, (delay_ns + PATIENCE_NS) / 1e9)
            else:
                self._is_set = False

    def stop(self) -> None:
        """Stop the timer. Any thread may do so."""
        if self._is_set:
            self._is_set = False
            if self._is_ours():
                signal.setitimer(signal.ITIMER_REAL, 0)

    def remove(self) -> None:
        """Take the handler away again, if this is the main thread; it does nothing while the timer is stopped."""
        self.stop()
        if self._is_ours() and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _is_ours(self) -> bool:
        return _HAS_TIMER and signal.getsignal(signal.SIGALRM) == self._run_out

    def _run_out(self, _number: int, frame: FrameType | None) -> None:
        # Runs between two instructions of the script, which must not get an error of ours.
        if not self._is_set:
            return
        try:
            self._sample(frame)
            signal.setitimer(signal.ITIMER_REAL, self._interval_s)
        except Exception:
            self._is_set = False


HANDLER: Final = MainThreadAlarm._run_out.__code__
"""The code that the main thread runs when the timer has run out."""
