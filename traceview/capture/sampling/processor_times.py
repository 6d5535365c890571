"""Adds to the sidecar how busy the cores of the machine were in the window, and how long each thread ran and waited for one (Linux).

`/proc/stat` counts the time of all processes since boot, in ticks of 10 ms on most systems (proc(5)); `thread_clocks.c` asks
the kernel for that of threads.
"""

from __future__ import annotations

import os
import time
import zlib
from base64 import b64encode
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from struct import iter_unpack
from types import ModuleType
from typing import Final

from traceview.capture.sidecar.file import Sidecar, WindowListener

_STAT: Final = Path("/proc/stat")
_IDLE: Final = (3, 4)
"""Places of the times in which a core had nothing to do, or only waited for a disk."""
_COUNTED: Final = 8
"""Times of guests, which come after these, are counted in them."""


class MachineLoadListener(WindowListener):
    """Adds the group `load`, where the system counts the times of its cores."""

    def __init__(self) -> None:
        self._begun: tuple[int, ...] = ()

    def opened(self, sidecar: Sidecar) -> None:
        """Read the times as the window opens."""
        self._begun = _times()

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Add what was counted since."""
        fields = ("elapsed_ns", "busy_ns", "own_ns")
        group = {f: now - then for f, now, then in zip(fields, _times(), self._begun, strict=False)}
        if group:
            sidecar.add("load", {**group, "cores": os.cpu_count()})


def _times() -> tuple[int, ...]:
    """The clock, and processor time of all processes and of this one, in nanoseconds; empty where the system shows none."""
    try:
        first = _STAT.read_text("ascii").splitlines()[0].split()
        ticks = [int(text) for text in first[1 : 1 + _COUNTED]]
        tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return ()
    busy = sum(count for place, count in enumerate(ticks) if place not in _IDLE)
    now = time.monotonic_ns(), busy * tick_ns, time.process_time_ns()
    return now if len(ticks) == _COUNTED else ()


INTERVAL_NS: Final = 4_000_000
"""The kernel brings the clock of a running thread up to date every 1 to 4 ms."""
_CLOCKS: ModuleType | None = None
with suppress(ImportError):
    _CLOCKS = import_module("traceview.capture.sampling.thread_clocks")


class ThreadTimesListener(WindowListener):
    """Notes the clocks of all threads from the start of the profile to its stop, where the kernel counts.

    The group holds `rows`, a compressed text of int64 in five columns, by thread and time: Unix nanoseconds, number of the thread, what pthread_self returns in it (0 where
    not known), and nanoseconds that it ran and waited until then, each as the difference from the row before. A thread has a row for each round in which a clock of it had moved.
    """

    def opened(self, sidecar: Sidecar) -> None:
        """Begin to note."""
        if _CLOCKS is not None:
            _CLOCKS.start(INTERVAL_NS)

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Stop, and keep what was noted."""
        rows = b"" if _CLOCKS is None else _CLOCKS.stop()
        if rows:
            noted = sorted(iter_unpack("=qqqqq", rows), key=lambda row: (row[1], row[0]))
            # As differences, which compress better.
            packed = b"".join(
                (value - before).to_bytes(8, "little", signed=True)
                for column in zip(*noted, strict=True)
                for before, value in pairwise((0, *column))
            )
            sidecar.add("threads", {"rows": b64encode(zlib.compress(packed)).decode("ascii")})

    def finished(self) -> None:
        """Stop where the profile failed."""
        if _CLOCKS is not None:
            _CLOCKS.stop()
