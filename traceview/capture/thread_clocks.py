"""Reads the processor time of any thread that is in Python, also of one that native code started.

Python gives the clock of a thread by the address that pthread_self returns, and reads memory there: of a thread that has
ended it may be gone. A thread with a Python frame cannot end while another one holds the GIL, because it has to leave the frame
first. So the frames are listed and the clocks asked for in one call of native code, in which the GIL stays where it is. The clock
itself is a number in the kernel: reading that of a thread that has ended is an error and no more.
"""

from __future__ import annotations

import sys
import time
from itertools import chain, starmap, tee
from typing import Final

UNKNOWN: Final = -1
"""Instead of a processor time."""


class ThreadClocks:
    """The clocks of threads by identifier, each asked for once."""

    def __init__(self) -> None:
        self._clocks: dict[int, int] = {}

    def cpu_us(self, ident: int) -> int:
        """Microseconds of processor time that a thread has taken; `UNKNOWN` where that is not known, or it has ended."""
        if ident in self._clocks:
            try:
                return _read_us(self._clocks[ident])
            except OSError:
                # It has ended, and another thread may have its address.
                del self._clocks[ident]
        try:
            self._clocks.update(_clocks_now())
            return _read_us(self._clocks[ident])
        except (KeyError, OSError):
            return UNKNOWN


def _read_us(clock: int) -> int:
    return time.clock_gettime_ns(clock) // 1000


def _clocks_now() -> dict[int, int]:
    """The clock of each thread that is in Python; empty where the system has none, or Python has no GIL."""
    if not hasattr(time, "pthread_getcpuclockid") or not _has_lock():
        return {}
    # Nothing of this runs before `dict` does, and nothing in it is code of Python, which could let go of the GIL.
    idents, same_idents = tee(chain.from_iterable(starmap(sys._current_frames, ((),))))
    return dict(zip(idents, map(time.pthread_getcpuclockid, same_idents), strict=False))


def _has_lock() -> bool:
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or bool(is_enabled())
