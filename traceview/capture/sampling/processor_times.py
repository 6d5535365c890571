"""Adds to the sidecar how busy the cores of the machine were in the window, and how long each thread ran and waited for one (Linux).

`/proc/stat` counts that of all processes since boot, in ticks (proc(5)); `thread_clocks.c` asks the kernel for that of threads.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from struct import iter_unpack, pack
from types import ModuleType
from typing import Final

from traceview.capture.sampling.python_sampling import compressed
from traceview.capture.sidecar.file import Sidecar, WindowListener

INTERVAL_NS: Final = 4_000_000
"""The kernel brings the clock of a running thread up to date every 1 to 4 ms."""
_STAT: Final = Path("/proc/stat")
_IDLE: Final = (3, 4)
"""Places of the times in which a core had nothing to do, or only waited for a disk."""
_COUNTED: Final = 8
"""Times of guests, which come after these, are counted in them."""
_CLOCKS: ModuleType | None = None
with suppress(ImportError):
    _CLOCKS = import_module("traceview.capture.sampling.thread_clocks")


class ProcessorTimesListener(WindowListener):
    """Adds the groups `load` and `threads`, where the system counts these times.

    `threads` holds `rows`, a compressed text of int64 in five columns, by thread and time: Unix nanoseconds, number of the thread, what pthread_self returns in it (0 where
    not known), and nanoseconds that it ran and waited until then, each as the difference from the row before. A thread has a row for each round in which a clock of it had moved.
    """

    def __init__(self) -> None:
        self._begun: tuple[int, ...] = ()

    def opened(self, sidecar: Sidecar) -> None:
        """Read the times as the window opens, and begin to note those of threads."""
        self._begun = _times()
        if _CLOCKS is not None:
            _CLOCKS.start(INTERVAL_NS)

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Add what was counted since."""
        rows = b"" if _CLOCKS is None else _CLOCKS.stop()
        fields = ("elapsed_ns", "busy_ns", "own_ns")
        load = {f: now - then for f, now, then in zip(fields, _times(), self._begun, strict=False)}
        if load:
            sidecar.add("load", {**load, "cores": os.cpu_count()})
        if rows:
            noted = sorted(iter_unpack("=qqqqq", rows), key=lambda row: (row[1], row[0]))
            # As differences, which compress better.
            pairs = (pair for column in zip(*noted, strict=True) for pair in pairwise((0, *column)))
            sidecar.add("threads", {"rows": compressed(*(pack("<q", b - a) for a, b in pairs))})

    def finished(self) -> None:
        """Stop where the profile failed."""
        if _CLOCKS is not None:
            _CLOCKS.stop()


def _times() -> tuple[int, ...]:
    """The clock, and processor time of all processes and of this one, in nanoseconds; empty where the system shows none."""
    with suppress(OSError, ValueError, IndexError):
        first = _STAT.read_text("ascii").splitlines()[0].split()
        ticks = [int(text) for text in first[1 : 1 + _COUNTED]]
        busy = sum(count for place, count in enumerate(ticks) if place not in _IDLE)
        busy_ns = busy * (10**9 // os.sysconf("SC_CLK_TCK"))
        if len(ticks) == _COUNTED:
            return time.monotonic_ns(), busy_ns, time.process_time_ns()
    return ()
