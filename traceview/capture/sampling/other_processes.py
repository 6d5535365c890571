"""Finds the other processes on the GPUs of this process, in NVML's lists.

In a container NVML may give process ids of the host, or leave processes out. Only if this process is listed itself can
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


class OwnProcesses:
    """This process and those that it started, and whether NVML's ids can be compared with theirs."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._pid = os.getpid()
        self._known: dict[int, bool] = {self._pid: True}
        self._was_listed = False

    def has(self, pid: int) -> bool:
        """Whether it is ours; remembered, because a process that has ended no longer has a parent."""
        if pid == self._pid:
            self._was_listed = True
        if pid not in self._known:
            self._known[pid] = self._descends(pid)
        return self._known[pid]

    def check_comparable(self) -> None:
        """Raise `NoAnswerError` if NVML may give ids of another namespace."""
        if not self._was_listed:
            raise NoAnswerError(
                "NVML does not list this process, as in some containers, so its list is incomplete"
            )

    def _descends(self, pid: int) -> bool:
        visited = set()
        while pid > 1 and pid not in visited:
            visited.add(pid)
            if pid == self._pid:
                return True
            try:
                stat = (self._proc / str(pid) / "stat").read_text(
                    encoding="utf-8", errors="replace"
                )
                # The name of the program comes first, in parentheses, and may hold any character.
                pid = int(stat.rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                return False
        return False


class OtherProcesses:
    """The other processes on one GPU, each with the most memory that it was listed with."""

    def __init__(self, nvml: Any, handle: Any, own: OwnProcesses) -> None:
        self._nvml = nvml
        self._handle = handle
        self._own = own
        self._memory: dict[int, int | None] = {}
        self.problem: str | None = None

    def update(self) -> None:
        """List the processes now."""
        try:
            listed = [
                *self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle),
                *self._optional(self._nvml.nvmlDeviceGetGraphicsRunningProcesses),
            ]
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"
            return
        for process in listed:
            pid, used = int(process.pid), getattr(process, "usedGpuMemory", None)
            if self._own.has(pid) or len(self._memory) >= _MOST_PROCESSES:
                continue
            known = self._memory.get(pid)
            self._memory[pid] = known if used is None else max(int(used), known or 0)

    def describe(self, started_ns: int, stopped_ns: int) -> list[dict[str, Any]]:
        """The other processes, and how much each used the GPU between two Unix times, if NVML says.

        Raises `NoAnswerError` where they are unknown.
        """
        if self.problem is not None and not self._memory:
            raise NoAnswerError(self.problem)
        self._own.check_comparable()
        utilization = self._utilization(started_ns, stopped_ns)
        return [
            {
                "pid": pid,
                "memory_bytes": self._memory.get(pid),
                "utilization_ratio": utilization.get(pid),
            }
            for pid in sorted({*self._memory, *utilization})
        ]

    def _utilization(self, started_ns: int, stopped_ns: int) -> dict[int, float]:
        # NVML keeps a few samples of each process, stamped in Unix microseconds.
        percents: defaultdict[int, list[int]] = defaultdict(list)
        samples = self._optional(
            lambda handle: self._nvml.nvmlDeviceGetProcessUtilization(handle, started_ns // 1000)
        )
        for sample in samples:
            is_inside = started_ns <= sample.timeStamp * 1000 <= stopped_ns
            if is_inside and sample.smUtil <= _MOST_PERCENT and not self._own.has(int(sample.pid)):
                percents[int(sample.pid)].append(sample.smUtil)
        return {pid: round(fmean(values) / 100, 4) for pid, values in percents.items()}

    def _optional(self, ask: Callable[[Any], Iterable[Any]]) -> Sequence[Any]:
        """An answer that a GPU or driver may lack; an empty list may come as an error."""
        try:
            return list(ask(self._handle))
        except Exception:
            return ()
