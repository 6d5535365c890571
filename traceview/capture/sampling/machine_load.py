"""Measures how busy the cores of the machine are while the window is open, and how much of that is this process (Linux).

`/proc/stat` counts the time of all processes since boot, in ticks of 10 ms on most systems (proc(5)).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from traceview.capture.sidecar.file import Sidecar, WindowListener

_STAT: Final = Path("/proc/stat")
_IDLE: Final = (3, 4)
"""Places of the times in which a core had nothing to do, or only waited for a disk."""
_COUNTED: Final = 8
"""Times of guests, which come after these, are counted in them."""


class _Reading(NamedTuple):
    at_ns: int
    busy_ns: int
    own_ns: int


class MachineLoadListener(WindowListener):
    """Adds the group `load`, where the system counts the times of its cores."""

    def __init__(self) -> None:
        self._begun: _Reading | None = None

    def opened(self, sidecar: Sidecar) -> None:
        """Read the times as the window opens."""
        self._begun = _reading()

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Add what was counted since."""
        begun, ended = self._begun, _reading()
        if begun is None or ended is None:
            return
        elapsed, busy, own = (now - then for now, then in zip(ended, begun, strict=True))
        group = {"elapsed_ns": elapsed, "busy_ns": busy, "own_ns": own, "cores": os.cpu_count()}
        sidecar.add("load", group)


def _reading() -> _Reading | None:
    """The times now; None where the system does not show them."""
    try:
        first = _STAT.read_text("ascii").splitlines()[0].split()
        times = [int(ticks) for ticks in first[1 : 1 + _COUNTED]]
        tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    if len(times) < _COUNTED:
        return None
    busy = sum(ticks for place, ticks in enumerate(times) if place not in _IDLE)
    return _Reading(time.monotonic_ns(), busy * tick_ns, time.process_time_ns())
