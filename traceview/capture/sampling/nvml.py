"""Samples NVML ten times a second while the profile runs: clocks and what holds them down, power, load, memory, other processes.

They form the group `outside_view` of the sidecar. In a container NVML may give process ids of the host, or leave processes
out. Only where this process is listed itself can other processes be distinguished from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from time import perf_counter, time_ns
from typing import Any, Final

from traceview.base.errors import NoAnswerError
from traceview.capture.process.own_threads import Ticker
from traceview.capture.sidecar.environment import bus_ids, opened_nvml
from traceview.capture.sidecar.file import (
    Facts,
    Sidecar,
    WindowListener,
    answers,
    reason_of,
    stat_fields,
)

NOT_ASKED: Final = "switched off (--without nvml, or nvml=False)"
INTERVAL_SECONDS: Final = 0.1
"""NVML updates utilization at most six times a second (nvml.h)."""
_STOP_TIMEOUT_SECONDS: Final = 2.0


class NvmlListener(WindowListener):
    """Adds the group `outside_view`: the `reason` where there are no samples, and `devices`, by CUDA's numbers; times in Unix nanoseconds."""

    def __init__(self, *, is_wanted: bool = True) -> None:
        self._is_wanted = is_wanted
        self._stack = ExitStack()
        self._pid = os.getpid()
        self._gpus: list[_Gpu] = []
        self._ticker: Ticker | None = None
        self._started_ns = 0

    def opening(self, sidecar: Sidecar) -> None:
        """Start NVML and find the GPUs, which takes longer than sampling them."""
        reason = "no GPU is visible to this process" if self._is_wanted else NOT_ASKED
        try:
            if self._is_wanted and (ids := bus_ids()):
                nvml = self._stack.enter_context(opened_nvml())
                self._gpus = [_Gpu(nvml, ordinal, bus_id) for ordinal, bus_id in enumerate(ids)]
        except NoAnswerError as absent:
            reason = str(absent)
        if not self._gpus:
            sidecar.add("outside_view", {"reason": reason, "devices": []})

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
        reason, devices = None, []
        if self._ticker is not None and not self._ticker.stop(_STOP_TIMEOUT_SECONDS):
            # The thread is still inside NVML, which must not be used before it returns, or shut down: it holds the stack.
            reason = "NVML stopped answering while the profile ran"
        else:
            span = self._started_ns, sidecar.stopped_ns
            with self._stack:
                devices = [gpu.described(*span) for gpu in self._gpus]
        sidecar.add("outside_view", {"reason": reason, "devices": devices})

    def _tick(self, sidecar: Sidecar) -> float | None:
        if not sidecar.is_recording:
            return None
        begun_s = perf_counter()
        try:
            for gpu in self._gpus:
                gpu.take()
        except Exception as error:
            sidecar.note("listeners", f"nvml: {reason_of(error)}")
            return None
        # A slow driver leaves half of the time to the script.
        return max(INTERVAL_SECONDS - (perf_counter() - begun_s), INTERVAL_SECONDS / 2)


class _Gpu:
    """A GPU, and its samples: columns of equal length, None for no answer. `handle`: None where NVML does not report the GPU."""

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
            return int(getattr(nvml, ask)(handle, nvml.NVML_CLOCK_SM)) * 1_000_000

        self._questions: dict[str, Callable[[], float]] = {
            "gpu_utilization_ratio": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "memory_used_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            "sm_clock_hz": lambda: sm_hz("nvmlDeviceGetClockInfo"),
            "throttle_reasons": throttle_reasons,
            "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        }
        self._columns: dict[str, list[Any]] = {name: [] for name in ("t_ns", *self._questions)}
        if handle is not None:
            facts.values |= answers({
                "name": lambda: str(nvml.nvmlDeviceGetName(handle)),
                "sm_clock_max_hz": lambda: sm_hz("nvmlDeviceGetMaxClockInfo"),
                "power_limit_watts": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
                "memory_total_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            })  # fmt: skip

    def take(self) -> None:
        if self.handle is None:
            return
        self._columns["t_ns"].append(time_ns())
        for field, question in self._questions.items():
            values = self._columns[field]
            # What it does not answer at first it never answers.
            is_asked = not values or values[0] is not None
            values.append(self._facts.find(field, question) if is_asked else None)

    def described(self, started_ns: int, stopped_ns: int) -> dict[str, Any]:
        """The fields of the GPU, with the samples of a time span. A field without any answer is named in `missing` instead."""
        facts = self._facts
        if self.handle is None:
            return facts.as_group()
        samples = dict(self._columns)
        for field in self._questions:
            reason = facts.missing.pop(field, "the window closed before it was sampled")
            if all(value is None for value in samples[field]):
                del samples[field]
                facts.missing[field] = reason
        facts.values["samples"] = samples
        facts.ask("other_processes", lambda: self._other_processes(started_ns, stopped_ns))
        return facts.as_group()

    def _other_processes(self, started_ns: int, stopped_ns: int) -> list[dict[str, Any]]:
        """The other processes, and how much each used the GPU between two Unix times, if known; raises `NoAnswerError` where they are not."""
        nvml, handle = self._nvml, self.handle
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        drawing = _optional(lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle))
        listed = {int(e.pid): getattr(e, "usedGpuMemory", None) for e in (*running, *drawing)}
        if os.getpid() not in listed:
            raise NoAnswerError(
                "NVML does not list this process, as in some containers, so its list is incomplete"
            )
        # NVML keeps a few samples of each process, stamped in Unix microseconds.
        uses = _optional(lambda: nvml.nvmlDeviceGetProcessUtilization(handle, started_ns // 1000))
        percents: dict[int, list[int]] = {pid: [] for pid in listed}
        for use in uses:
            if started_ns <= use.timeStamp * 1000 <= stopped_ns and use.smUtil <= 100:
                percents.setdefault(int(use.pid), []).append(use.smUtil)
        others = [pid for pid in sorted(listed) if not is_own(pid)][:64]
        busy = {pid: round(fmean(percents[pid]) / 100, 4) for pid in others if percents[pid]}
        return [
            {"pid": pid, "memory_bytes": listed[pid], "utilization_ratio": busy.get(pid)}
            for pid in others
        ]


def _handle(nvml: Any, bus_id: str) -> Any:
    handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
    # Now, and after the next reset.
    if any(_optional(lambda: nvml.nvmlDeviceGetMigMode(handle))[:1]):
        raise NoAnswerError("the GPU is divided by MIG, and NVML reports all its parts together")
    return handle


def is_own(pid: int) -> bool:
    """Whether it is this process, or one that it started."""
    while pid > 1 and pid != os.getpid():
        try:
            pid = int(stat_fields(Path("/proc") / str(pid))[1])
        except (OSError, ValueError, IndexError):
            return False
    return pid == os.getpid()


def _optional(ask: Callable[[], Iterable[Any]]) -> Sequence[Any]:
    try:
        return list(ask())
    except Exception:
        return ()
