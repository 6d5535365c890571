"""Adds to the sidecar how busy the cores of the machine were in the window, and how long each thread ran and waited for one (Linux).

`/proc/stat` counts that of all processes since boot, `/proc/PID/stat` that of one, in ticks (proc(5)); `thread_clocks.c` asks
the kernel for that of threads.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from struct import iter_unpack, pack
from types import ModuleType
from typing import Final

from traceview.capture.sampling.sampled_stacks import compressed
from traceview.capture.sidecar.file import Sidecar, WindowListener

INTERVAL_NS: Final = 4_000_000
"""The kernel brings the clock of a running thread up to date every 1 to 4 ms."""
_PROC: Final = Path("/proc")
_CGROUP: Final = Path("/sys/fs/cgroup")
"""A container sees its own group there."""
_QUOTAS: Final = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
"""Microseconds of processor time in a period, and the period: of version 2, and of version 1."""
_IDLE: Final = (3, 4)
"""Places of the times in which a core had nothing to do, or only waited for a disk."""
_COUNTED: Final = 8
"""Times of guests, which come after these, are counted in them."""
_OF_CHILDREN: Final = ("children_elapsed_ns", "children_ns")
_OWN_TICKS: Final = slice(11, 15)
"""Places, behind the name, of the times of a process and of those it has started that have ended."""
_CLOCKS: ModuleType | None = None
with suppress(ImportError):
    _CLOCKS = import_module("traceview.capture.sampling.thread_clocks")


class ProcessorTimesListener(WindowListener):
    """Adds the groups `cores`, `load` and `threads`, where the system counts these times.

    `cores` has those that the process may use as the window closes, by its affinity and the quota of its container, rounded up.

    `load` holds the time of all processes and of this one while the profile ran, and of those that this one has started, of which
    some may have ended, in a time that begins before: they are looked for where that is not recorded.

    `threads` holds `rows`, a compressed text of int64 in five columns, by thread and time: Unix nanoseconds, number of the thread, what pthread_self returns in it (0 where
    not known), and nanoseconds that it ran and waited until then, each as the difference from the row before. A thread has a row for each round in which a clock of it had moved.
    `unnamed` has the numbers of threads with the name of the process, which nobody has given one.
    """

    def __init__(self) -> None:
        self._begun: tuple[int, ...] = ()
        self._children: tuple[int, ...] = ()

    def opening(self, sidecar: Sidecar) -> None:
        """Read the times of other processes, which takes a while."""
        self._children = _of_children()

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
        of_children = zip(_OF_CHILDREN, _of_children(), self._children, strict=False)
        children = {f: max(now - then, 0) for f, now, then in of_children}
        if hasattr(os, "sched_getaffinity"):
            sidecar.add("cores", {"usable_count": _usable_cores()})
        if load:
            sidecar.add("load", {**load, **children, "cores": os.cpu_count()})
        if rows:
            noted = sorted(iter_unpack("=qqqqq", rows), key=lambda row: (row[1], row[0]))
            # As differences, which compress better.
            pairs = (pair for column in zip(*noted, strict=True) for pair in pairwise((0, *column)))
            columns = compressed(*(pack("<q", b - a) for a, b in pairs))
            sidecar.add("threads", {"rows": columns, "unnamed": _unnamed()})

    def finished(self) -> None:
        """Stop where the profile failed."""
        if _CLOCKS is not None:
            _CLOCKS.stop()


def _usable_cores() -> int:
    """How many cores the process may use, by its affinity and the quota of its container, rounded up."""
    count = len(os.sched_getaffinity(0))
    for names in _QUOTAS:
        with suppress(OSError, ValueError):
            texts = ((_CGROUP / name).read_text("ascii") for name in names)
            # "max" and -1 are none.
            quota, period = map(int, " ".join(texts).split())
            if quota > 0 and period > 0:
                count = min(count, -(-quota // period))
    return count


def _unnamed() -> list[int]:
    """The numbers of threads of this process that have its name, and that Python has not started; TensorFlow, XLA, gRPC and drivers name theirs."""
    names: dict[int, bytes] = {}
    with suppress(OSError):
        for folder in (_PROC / "self" / "task").iterdir():
            # A thread may end meanwhile.
            with suppress(OSError):
                names[int(folder.name)] = (folder / "comm").read_bytes()
    own = names.get(os.getpid())
    of_python = {thread.native_id for thread in threading.enumerate()}
    return sorted(
        number for number, name in names.items() if name == own and number not in of_python
    )


def _times() -> tuple[int, ...]:
    """The clock, and processor time of all processes and of this one, in nanoseconds; empty where the system shows none."""
    with suppress(OSError, ValueError, IndexError):
        first = (_PROC / "stat").read_text("ascii").splitlines()[0].split()
        ticks = [int(text) for text in first[1 : 1 + _COUNTED]]
        busy = sum(count for place, count in enumerate(ticks) if place not in _IDLE)
        busy_ns = busy * _tick_ns()
        if len(ticks) == _COUNTED:
            return time.monotonic_ns(), busy_ns, time.process_time_ns()
    return ()


def _tick_ns() -> int:
    return 10**9 // os.sysconf("SC_CLK_TCK")


def _of_children() -> tuple[int, ...]:
    """The clock, and processor time of all processes below this one, in nanoseconds; empty where the system shows none."""
    of_process: dict[int, tuple[int, int]] = {}
    with suppress(OSError):
        for folder in _PROC.iterdir():
            # A process may end meanwhile. Its name, in parentheses, may hold anything.
            with suppress(OSError, ValueError, IndexError):
                _, _, shown = (folder / "stat").read_bytes().rpartition(b")")
                fields = shown.split()
                ticks = sum(map(int, fields[_OWN_TICKS]))
                of_process[int(folder.name)] = int(fields[1]), ticks
    parents, ticks = {os.getpid()}, 0
    while parents:
        found = {process for process, (parent, _) in of_process.items() if parent in parents}
        ticks += sum(of_process.pop(process)[1] for process in found)
        parents = found
    of_ended = os.times()
    ended_ns = round((of_ended.children_user + of_ended.children_system) * 1e9)
    return (time.monotonic_ns(), ended_ns + ticks * _tick_ns()) if of_process else ()
