"""Samples NVML while the profile runs, and adds to the sidecar what the trace itself does not show.

These are clocks and what holds them down, power, load, memory, and other processes on the same GPU. They form the group
`outside_view`.

A thread samples ten times a second. Signals are left to the script's threads. The thread ends when it is stopped, when the
recording is over in any other way, and with the process. A question that a GPU does not answer is not asked again.

In a container NVML may give process ids of the host, or leave processes out. Only where this process is listed itself can
other processes be distinguished from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from time import perf_counter, time_ns
from typing import Any, Final

from traceview.capture.process.own_threads import Ticker
from traceview.capture.sidecar.file import (
    Facts,
    NoAnswerError,
    Sidecar,
    WindowListener,
    reason_of,
    stat_fields,
)
from traceview.capture.sidecar.gpu_libraries import bus_ids, opened_nvml, started_driver

NOT_ASKED: Final = "switched off (--without nvml, or nvml=False)"
INTERVAL_SECONDS: Final = 0.1
"""NVML updates utilization at most six times a second (nvml.h)."""
_STOP_TIMEOUT_SECONDS: Final = 2.0
"""A driver that hangs must not hold up the script; others answer within milliseconds."""
_HZ_PER_MHZ: Final = 1_000_000
_MOST_PROCESSES: Final = 64
"""On one GPU; a list for people, not for accounting."""
_MOST_PERCENT: Final = 100
"""Some drivers report more, which means nothing."""
_PROC: Final = Path("/proc")


class NvmlListener(WindowListener):
    """Samples NVML from the start of the profile to its stop.

    The group holds the `reason` where there are no samples, and `devices`, by CUDA's numbers. All times are Unix nanoseconds.
    """

    def __init__(
        self,
        *,
        is_wanted: bool = True,
        find_bus_ids: Callable[[], list[str]] = lambda: bus_ids(started_driver()),
    ) -> None:
        self._is_wanted = is_wanted
        self._find_bus_ids = find_bus_ids
        self._stack = ExitStack()
        self._pid = os.getpid()
        self._gpus: list[_Gpu] = []
        self._ticker: Ticker | None = None
        self._problem: str | None = None
        self._started_ns = 0

    def opening(self, sidecar: Sidecar) -> None:
        """Start NVML and find the GPUs, which takes longer than sampling them."""
        try:
            self._find_gpus()
        except NoAnswerError as reason:
            sidecar.add("outside_view", {"reason": str(reason), "devices": []})

    def _find_gpus(self) -> None:
        if not self._is_wanted:
            raise NoAnswerError(NOT_ASKED)
        ids = self._find_bus_ids()
        if not ids:
            raise NoAnswerError("no GPU is visible to this process")
        with ExitStack() as stack:
            nvml = stack.enter_context(opened_nvml())
            self._gpus = [_Gpu(nvml, ordinal, bus_id) for ordinal, bus_id in enumerate(ids)]
            self._stack = stack.pop_all()

    def opened(self, sidecar: Sidecar) -> None:
        """Begin to sample. The sidecar's state ends the sampling where the profile fails."""
        self._started_ns = time_ns()
        if any(gpu.handle is not None for gpu in self._gpus):
            self._ticker = Ticker("nvml", lambda: self._tick(sidecar))
            self._ticker.start()

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Stop, and keep the samples of the time in which the profile ran."""
        if not self._gpus or os.getpid() != self._pid:
            # A child that was forked in the window does not have the thread.
            return
        if self._ticker is not None and not self._ticker.stop(_STOP_TIMEOUT_SECONDS):
            # The thread is still inside NVML, which must not be used before it returns, or shut down: it holds the stack.
            reason = "NVML stopped answering while the profile ran"
            sidecar.add("outside_view", {"reason": reason, "devices": []})
            return
        span = self._started_ns, sidecar.stopped_ns
        with self._stack:
            devices = [gpu.described(*span) for gpu in self._gpus]
        problem = {"problem": self._problem} if self._problem else {}
        sidecar.add("outside_view", {"reason": None, **problem, "devices": devices})

    def _tick(self, sidecar: Sidecar) -> float | None:
        """Sample while the profile runs; seconds until the next time."""
        if not sidecar.is_recording:
            return None
        begun_s = perf_counter()
        try:
            for gpu in self._gpus:
                gpu.take()
        except Exception as error:
            self._problem = reason_of(error)
            return None
        # With a slow driver, half of the time is still left to the script.
        return max(INTERVAL_SECONDS - (perf_counter() - begun_s), INTERVAL_SECONDS / 2)


class _Gpu:
    """A GPU, and its samples: columns of equal length, None where a question was not asked or not answered.

    `handle`: None where NVML does not report it.
    """

    def __init__(self, nvml: Any, ordinal: int, bus_id: str) -> None:
        self._nvml = nvml
        self._facts = facts = Facts()
        facts.values.update(ordinal=ordinal, bus_id=bus_id)
        handle = self.handle = facts.find("samples", lambda: _handle(nvml, bus_id))

        def throttle_reasons() -> int:
            try:
                return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
            except Exception:
                # Drivers before 535, and their packages, name the same bits throttle reasons.
                return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))

        def sm_hz(ask: str) -> int:
            return int(getattr(nvml, ask)(handle, nvml.NVML_CLOCK_SM)) * _HZ_PER_MHZ

        self._questions: dict[str, Callable[[], float]] = {
            "gpu_utilization_ratio": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "memory_used_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            "sm_clock_hz": lambda: sm_hz("nvmlDeviceGetClockInfo"),
            "throttle_reasons": throttle_reasons,
            "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        }
        self._columns: dict[str, list[Any]] = {name: [] for name in ("t_ns", *self._questions)}
        if handle is not None:
            facts.ask_each({
                "name": lambda: str(nvml.nvmlDeviceGetName(handle)),
                "sm_clock_max_hz": lambda: sm_hz("nvmlDeviceGetMaxClockInfo"),
                "power_limit_watts": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
                "memory_total_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            })  # fmt: skip

    def take(self) -> None:
        """Add one sample."""
        if self.handle is None:
            return
        self._columns["t_ns"].append(time_ns())
        for field, question in self._questions.items():
            answer = None
            if field not in self._facts.missing:
                try:
                    answer = question()
                except Exception as error:
                    if all(value is None for value in self._columns[field]):
                        self._facts.missing[field] = reason_of(error)
            self._columns[field].append(answer)

    def described(self, started_ns: int, stopped_ns: int) -> dict[str, Any]:
        """The fields of the GPU, with the samples of a time span. A field without any answer is named in `missing` instead."""
        facts = self._facts
        if self.handle is None:
            return facts.as_group()
        samples = dict(self._columns)
        for field in self._questions:
            if all(value is None for value in samples[field]):
                del samples[field]
                facts.missing.setdefault(field, "the window closed before it was sampled")
        facts.values["samples"] = samples
        facts.ask("other_processes", lambda: self._other_processes(started_ns, stopped_ns))
        return facts.as_group()

    def _other_processes(self, started_ns: int, stopped_ns: int) -> list[dict[str, Any]]:
        """The other processes now, and how much each used the GPU between two Unix times, if NVML says.

        Raises `NoAnswerError` where they are unknown.
        """
        nvml, handle = self._nvml, self.handle
        running = (
            *nvml.nvmlDeviceGetComputeRunningProcesses(handle),
            *_optional(lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)),
        )
        listed = {int(each.pid): getattr(each, "usedGpuMemory", None) for each in running}
        if os.getpid() not in listed:
            raise NoAnswerError(
                "NVML does not list this process, as in some containers, so its list is incomplete"
            )
        # NVML keeps a few samples of each process, stamped in Unix microseconds.
        uses = _optional(lambda: nvml.nvmlDeviceGetProcessUtilization(handle, started_ns // 1000))
        percents: dict[int, list[int]] = {pid: [] for pid in listed}
        for use in uses:
            if started_ns <= use.timeStamp * 1000 <= stopped_ns and use.smUtil <= _MOST_PERCENT:
                percents.setdefault(int(use.pid), []).append(use.smUtil)
        return [
            {
                "pid": pid,
                "memory_bytes": None if used is None else int(used),
                "utilization_ratio": round(fmean(each) / 100, 4)
                if (each := percents[pid])
                else None,
            }
            for pid, used in sorted(listed.items())
            if not is_own(pid)
        ][:_MOST_PROCESSES]


def _handle(nvml: Any, bus_id: str) -> Any:
    handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
    # Now, and after the next reset.
    if any(_optional(lambda: nvml.nvmlDeviceGetMigMode(handle))[:1]):
        raise NoAnswerError("the GPU is divided by MIG, and NVML reports all its parts together")
    return handle


def is_own(pid: int) -> bool:
    """Whether it is this process, or one that it started."""
    visited = set()
    while pid > 1 and pid not in visited and pid != os.getpid():
        visited.add(pid)
        try:
            pid = int(stat_fields(_PROC / str(pid))[1])
        except (OSError, ValueError, IndexError):
            return False
    return pid == os.getpid()


def _optional(ask: Callable[[], Iterable[Any]]) -> Sequence[Any]:
    """An answer that a GPU or driver may lack; an empty list may come as an error."""
    try:
        return list(ask())
    except Exception:
        return ()
