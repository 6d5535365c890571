"""Samples NVML while the profile runs, and adds to the sidecar what the trace itself does not show.

These are clocks and what holds them down, power, load, memory, and other processes on the same GPU. They form the group
`outside_view`.

A thread samples ten times a second. Signals are left to the script's threads. The thread ends when it is stopped, when the
recording is over in any other way, and with the process. A question that a GPU does not answer is not asked again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter, time_ns
from typing import Any, Final

from traceview.capture.process.own_threads import Ticker
from traceview.capture.sampling.other_processes import other_processes
from traceview.capture.sidecar.file import Facts, NoAnswerError, Sidecar, WindowListener, reason_of
from traceview.capture.sidecar.gpu_libraries import bus_ids, opened_nvml, started_driver

NOT_ASKED: Final = "switched off (--without nvml, or nvml=False)"
_IS_DIVIDED: Final = "the GPU is divided by MIG, and NVML reports all its parts together"


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
        self._devices: list[tuple[dict[str, Any], GpuSamples | None]] = []
        self._ticker: Ticker | None = None
        self._problem: str | None = None
        self._started_ns = 0

    def opening(self, sidecar: Sidecar) -> None:
        """Start NVML and find the GPUs, which takes longer than sampling them."""
        try:
            self._find_devices()
        except NoAnswerError as reason:
            sidecar.add("outside_view", _without_samples(str(reason)))

    def opened(self, sidecar: Sidecar) -> None:
        """Begin to sample. The sidecar's state ends the sampling where the profile fails."""
        gpus = [samples for _, samples in self._devices if samples is not None]
        self._started_ns = time_ns()
        if gpus:
            self._ticker = Ticker("nvml", partial(self._tick, sidecar, gpus))
            self._ticker.start()

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Stop, and keep the samples of the time in which the profile ran."""
        if not self._devices or os.getpid() != self._pid:
            # A child that was forked in the window does not have the thread.
            return
        if self._ticker is None or self._ticker.stop(_STOP_TIMEOUT_SECONDS):
            with self._stack:
                sidecar.add("outside_view", self._describe(sidecar))
        else:
            # The thread is still inside NVML, which must not be used before it returns, or shut down: it holds the stack.
            reason = "NVML stopped answering while the profile ran"
            sidecar.add("outside_view", _without_samples(reason))

    def _find_devices(self) -> None:
        if not self._is_wanted:
            raise NoAnswerError(NOT_ASKED)
        ids = self._find_bus_ids()
        if not ids:
            raise NoAnswerError("no GPU is visible to this process")
        with ExitStack() as stack:
            nvml = stack.enter_context(opened_nvml())
            self._devices = [_device(nvml, ordinal, bus_id) for ordinal, bus_id in enumerate(ids)]
            self._stack = stack.pop_all()

    def _tick(self, sidecar: Sidecar, gpus: Sequence[GpuSamples]) -> float | None:
        """Sample while the profile runs; seconds until the next time."""
        if sidecar.state != "recording":
            return None
        begun_s = perf_counter()
        try:
            for gpu in gpus:
                gpu.take()
        except Exception as error:
            self._problem = reason_of(error)
            return None
        # With a slow driver, half of the time is still left to the script.
        return max(INTERVAL_SECONDS - (perf_counter() - begun_s), INTERVAL_SECONDS / 2)

    def _describe(self, sidecar: Sidecar) -> dict[str, Any]:
        clock = sidecar.groups.get("clock", {})
        started = clock.get("started", {}).get("wall_ns", self._started_ns)
        stopped = clock.get("stopped", {}).get("wall_ns", time_ns())
        return {
            "reason": None,
            **({"problem": self._problem} if self._problem else {}),
            "devices": [
                _with_samples(device, samples, started, stopped)
                for device, samples in self._devices
            ],
        }


def _without_samples(reason: str) -> dict[str, Any]:
    return {"reason": reason, "devices": []}


def _device(nvml: Any, ordinal: int, bus_id: str) -> tuple[dict[str, Any], GpuSamples | None]:
    """The constant fields of a GPU, and what samples the others; None where NVML does not report it."""
    facts = Facts()
    facts.values.update(ordinal=ordinal, bus_id=bus_id)
    handle = facts.find("samples", lambda: _handle(nvml, bus_id))
    if handle is None:
        return facts.as_group(), None
    facts.ask_each(
        {
            "name": lambda: str(nvml.nvmlDeviceGetName(handle)),
            "sm_clock_max_hz": lambda: (
                nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * HZ_PER_MHZ
            ),
            "power_limit_watts": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            "memory_total_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        }
    )
    return facts.as_group(), GpuSamples(nvml, handle)


def _handle(nvml: Any, bus_id: str) -> Any:
    handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
    try:
        is_divided = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except Exception:
        # A GPU that cannot be divided has no such mode.
        is_divided = False
    if is_divided:
        raise NoAnswerError(_IS_DIVIDED)
    return handle


def _with_samples(
    device: dict[str, Any], samples: GpuSamples | None, started_ns: int, stopped_ns: int
) -> dict[str, Any]:
    if samples is None:
        return device
    facts = Facts()
    facts.ask("samples", lambda: samples.between(started_ns, stopped_ns))
    facts.ask(
        "other_processes",
        lambda: other_processes(samples.nvml, samples.handle, started_ns, stopped_ns),
    )
    missing = {**device.get("missing", {}), **samples.missing, **facts.missing}
    return {**device, **facts.values, **({"missing": missing} if missing else {})}


INTERVAL_SECONDS: Final = 0.1
"""NVML updates utilization at most six times a second (nvml.h)."""
_STOP_TIMEOUT_SECONDS: Final = 2.0
"""A driver that hangs must not hold up the script; others answer within milliseconds."""
HZ_PER_MHZ: Final = 1_000_000


class GpuSamples:
    """The samples of one GPU: columns of equal length, None where a question was not asked or not answered.

    `t_ns`: Unix nanoseconds. `missing`: fields without a column, and the reasons.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.missing: dict[str, str] = {}
        self._questions: dict[str, Callable[[], float]] = {
            "gpu_utilization_ratio": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "memory_used_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            "sm_clock_hz": lambda: (
                int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)) * HZ_PER_MHZ
            ),
            "throttle_reasons": self._throttle_reasons,
            "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        }
        self._columns: dict[str, list[Any]] = {"t_ns": [], **{name: [] for name in self._questions}}

    def take(self) -> None:
        """Add one sample."""
        sample: dict[str, Any] = {"t_ns": time_ns()}
        for field, question in self._questions.items():
            if field not in self.missing:
                sample[field] = self._answer(field, question)
        for field, column in self._columns.items():
            column.append(sample.get(field))

    def between(self, started_ns: int, stopped_ns: int) -> dict[str, list[Any]]:
        """The samples of a time span, by field. A field without any answer is named in `missing` instead."""
        # The thread may still be running, where it did not end in time.
        columns = {field: list(column) for field, column in self._columns.items()}
        length = min(map(len, columns.values()))
        kept = [i for i in range(length) if started_ns <= columns["t_ns"][i] <= stopped_ns]
        samples = {field: [column[i] for i in kept] for field, column in columns.items()}
        for field in self._questions:
            if all(value is None for value in samples[field]):
                del samples[field]
                self.missing.setdefault(field, "the window closed before it was sampled")
        return samples

    def _answer(self, field: str, question: Callable[[], float]) -> float | None:
        try:
            return question()
        except Exception as error:
            if all(value is None for value in self._columns[field]):
                self.missing[field] = reason_of(error)
            return None

    def _throttle_reasons(self) -> int:
        try:
            return int(self.nvml.nvmlDeviceGetCurrentClocksEventReasons(self.handle))
        except Exception:
            # Drivers before 535, and their packages, name the same bits throttle reasons.
            return int(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle))
