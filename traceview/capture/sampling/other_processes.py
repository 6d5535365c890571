"""Finds the other processes on a GPU of this process, in NVML's lists.

In a container NVML may give process ids of the host, or leave processes out. Only where this process is listed itself can
other processes be distinguished from it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from traceview.capture.sidecar.file import NoAnswerError

_PROC: Final = Path("/proc")
_MOST_PROCESSES: Final = 64
"""On one GPU; a list for people, not for accounting."""
_MOST_PERCENT: Final = 100
"""Some drivers report more, which means nothing."""


def other_processes(
    nvml: Any, handle: Any, started_ns: int, stopped_ns: int
) -> list[dict[str, Any]]:
    """The other processes now, and how much each used the GPU between two Unix times, if NVML says.

    Raises `NoAnswerError` where they are unknown.
    """
    listed = {
        int(process.pid): getattr(process, "usedGpuMemory", None)
        for process in (
            *nvml.nvmlDeviceGetComputeRunningProcesses(handle),
            *_optional(lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)),
        )
    }
    if os.getpid() not in listed:
        raise NoAnswerError(
            "NVML does not list this process, as in some containers, so its list is incomplete"
        )
    # NVML keeps a few samples of each process, stamped in Unix microseconds.
    percents: defaultdict[int, list[int]] = defaultdict(list)
    for sample in _optional(
        lambda: nvml.nvmlDeviceGetProcessUtilization(handle, started_ns // 1000)
    ):
        if started_ns <= sample.timeStamp * 1000 <= stopped_ns and sample.smUtil <= _MOST_PERCENT:
            percents[int(sample.pid)].append(sample.smUtil)
    return [
        {
            "pid": pid,
            "memory_bytes": None if used is None else int(used),
            "utilization_ratio": round(fmean(percents[pid]) / 100, 4) if percents[pid] else None,
        }
        for pid, used in sorted(listed.items())
        if not is_own(pid)
    ][:_MOST_PROCESSES]


def is_own(pid: int, proc: Path = _PROC) -> bool:
    """Whether it is this process, or one that it started."""
    visited = set()
    while pid > 1 and pid not in visited:
        visited.add(pid)
        if pid == os.getpid():
            return True
        try:
            stat = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
            # The name of the program comes first, in parentheses, and may hold any character.
            pid = int(stat.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def _optional(ask: Callable[[], Iterable[Any]]) -> Sequence[Any]:
    """An answer that a GPU or driver may lack; an empty list may come as an error."""
    try:
        return list(ask())
    except Exception:
        return ()
