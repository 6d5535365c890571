"""Samples NVML while the profile runs, and adds to the sidecar what the trace itself does not show.

These are clocks and what holds them down, power, load, memory, and other processes on the same GPU. They form the group
`outside_view`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import time_ns
from typing import Any, Final

from traceview.capture.gpu_libraries import bus_ids, opened_nvml, started_driver
from traceview.capture.nvml_sampling import HZ_PER_MHZ, GpuSamples, Sampler
from traceview.capture.other_processes import OtherProcesses, OwnProcesses
from traceview.capture.sidecar import Facts, NoAnswerError, Sidecar, WindowListener

NOT_ASKED: Final = "switched off (--without nvml, or nvml=False)"
_IS_DIVIDED: Final = "the GPU is divided by MIG, and NVML reports all its parts together"


class NvmlListener(WindowListener):
    """Samples NVML from the start of the profile to its stop.

    The group holds `source` ("nvml", or None with the `reason`), `window_ns`, `interval_ms`, `sampling_ms` (the time
    that all questions took) and `devices`, by CUDA's numbers. All times are Unix nanoseconds.
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
        self._sampler: Sampler | None = None
        self._started_ns = 0

    def opening(self, sidecar: Sidecar) -> None:
        """Start NVML and find the GPUs, which takes longer than sampling them."""
        with sidecar.timed("outside_view_opening"):
            try:
                self._find_devices()
            except NoAnswerError as reason:
                sidecar.add("outside_view", _without_samples(str(reason)))

    def opened(self, sidecar: Sidecar) -> None:
        """Begin to sample. The sidecar's state ends the sampling where the profile fails."""
        gpus = [samples for _, samples in self._devices if samples is not None]
        self._started_ns = time_ns()
        if gpus:
            self._sampler = Sampler(gpus, lambda: sidecar.state == "recording")
            self._sampler.start()

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Stop, and keep the samples of the time in which the profile ran."""
        if not self._devices or os.getpid() != self._pid:
            # A child that was forked in the window does not have the thread.
            return
        with sidecar.timed("outside_view"):
            sampler, self._sampler = self._sampler, None
            if sampler is None or sampler.stop():
                with self._stack:
                    sidecar.add("outside_view", self._describe(sidecar, sampler))
            else:
                # The thread is still inside NVML, which must not be used or shut down before it returns.
                sampler.held = self._stack.pop_all()
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
            own = OwnProcesses()
            self._devices = [
                _device(nvml, ordinal, bus_id, own) for ordinal, bus_id in enumerate(ids)
            ]
            self._stack = stack.pop_all()

    def _describe(self, sidecar: Sidecar, sampler: Sampler | None) -> dict[str, Any]:
        clock = sidecar.groups.get("clock", {})
        started = clock.get("started", {}).get("wall_ns", self._started_ns)
        stopped = clock.get("stopped", {}).get("wall_ns", time_ns())
        problem = sampler.problem if sampler is not None else None
        return {
            "source": "nvml",
            "reason": None,
            **({"problem": problem} if problem else {}),
            "window_ns": stopped - started,
            "interval_ms": round(sampler.interval_seconds * 1000) if sampler is not None else None,
            "sampling_ms": round(sampler.spent_seconds * 1000) if sampler is not None else None,
            "devices": [
                _with_samples(device, samples, started, stopped)
                for device, samples in self._devices
            ],
        }


def _without_samples(reason: str) -> dict[str, Any]:
    return {"source": None, "reason": reason, "devices": []}


def _device(
    nvml: Any, ordinal: int, bus_id: str, own: OwnProcesses
) -> tuple[dict[str, Any], GpuSamples | None]:
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
    return facts.as_group(), GpuSamples(nvml, handle, OtherProcesses(nvml, handle, own))


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
    facts.ask("other_processes", lambda: samples.others.describe(started_ns, stopped_ns))
    missing = {**device.get("missing", {}), **samples.missing, **facts.missing}
    return {**device, **facts.values, **({"missing": missing} if missing else {})}
