"""What did the driver see of the GPUs while the profile ran? NVML is sampled, and set beside the trace.

It knows what a trace does not: clocks and why they are low, power, and other processes on the same GPU. Group
`outside_view`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Any, Final

from traceview.capture.cuda_devices import bus_ids, started_driver
from traceview.capture.facts import Absent, Facts
from traceview.capture.gpu_neighbours import Neighbours, OwnProcesses
from traceview.capture.links import opened_nvml
from traceview.capture.nvml_sampling import GpuSamples, Sampler
from traceview.capture.sidecar import Sidecar

NOT_ASKED: Final = "switched off (--no-nvml, or nvml=False)"
_IS_DIVIDED: Final = "the GPU is divided by MIG, and NVML speaks of all its parts together"
_HZ: Final = 1_000_000


class OutsideViewListener:
    """Samples NVML from the start of the profile to its stop.

    The group holds `source` ("nvml", or None with the `reason`), `window_ns`, `interval_ms`, `sampling_ms` (what
    the asking took in all) and `devices`, by CUDA's numbers. All times are Unix nanoseconds.
    """

    def __init__(
        self,
        *,
        is_asked: bool = True,
        find_bus_ids: Callable[[], list[str]] = lambda: bus_ids(started_driver()),
    ) -> None:
        self._is_asked = is_asked
        self._find_bus_ids = find_bus_ids
        self._stack = ExitStack()
        self._pid = os.getpid()
        self._devices: list[tuple[dict[str, Any], GpuSamples | None]] = []
        self._sampler: Sampler | None = None
        self._started_ns = 0

    def opening(self, sidecar: Sidecar) -> None:
        """Start NVML and find the GPUs: that takes longer than to ask them."""
        begun = perf_counter_ns()
        try:
            self._find_devices()
        except Absent as reason:
            sidecar.add("outside_view", _without(str(reason)))
        _add_cost(sidecar, "outside_view_opening", begun)

    def opened(self, sidecar: Sidecar) -> None:
        """Begin to sample. Where the profile ends in an unexpected way, the sidecar's state ends it."""
        gpus = [samples for _, samples in self._devices if samples is not None]
        self._started_ns = time_ns()
        if gpus:
            self._sampler = Sampler(gpus, lambda: sidecar.state == "recording")
            self._sampler.start()

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Stop, and keep what was sampled while the profile ran."""
        if not self._devices or os.getpid() != self._pid:
            # A child that was forked in the window has no thread, and nothing of it.
            return
        begun = perf_counter_ns()
        sampler, self._sampler = self._sampler, None
        if sampler is None or sampler.stop():
            with self._stack:
                sidecar.add("outside_view", self._describe(sidecar, sampler))
        else:
            # The thread is still inside NVML, which must neither be asked nor be shut before it returns.
            sampler.held = self._stack.pop_all()
            sidecar.add("outside_view", _without("NVML stopped answering while the profile ran"))
        _add_cost(sidecar, "outside_view", begun)

    def _find_devices(self) -> None:
        if not self._is_asked:
            raise Absent(NOT_ASKED)
        ids = self._find_bus_ids()
        if not ids:
            raise Absent("no GPU is visible to this process")
        with ExitStack() as stack:
            nvml = stack.enter_context(opened_nvml())
            own = OwnProcesses()
            self._devices = [
                _found(nvml, ordinal, bus_id, own) for ordinal, bus_id in enumerate(ids)
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
                _described(device, samples, started, stopped) for device, samples in self._devices
            ],
        }


def _without(reason: str) -> dict[str, Any]:
    return {"source": None, "reason": reason, "devices": []}


def _found(
    nvml: Any, ordinal: int, bus_id: str, own: OwnProcesses
) -> tuple[dict[str, Any], GpuSamples | None]:
    """What stays the same of a GPU, and who samples the rest; nobody where NVML does not have it."""
    facts = Facts()
    facts.values.update(ordinal=ordinal, bus_id=bus_id)
    handle = facts.ask("samples", lambda: _handle(nvml, bus_id))
    facts.values.pop("samples", None)
    if handle is None:
        return facts.as_group(), None
    for field, question in {
        "name": lambda: str(nvml.nvmlDeviceGetName(handle)),
        "sm_clock_max_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * _HZ,
        "power_limit_watts": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "memory_total_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
    }.items():
        facts.ask(field, question)
    return facts.as_group(), GpuSamples(nvml, handle, Neighbours(nvml, handle, own))


def _handle(nvml: Any, bus_id: str) -> Any:
    handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
    if _is_divided(nvml, handle):
        raise Absent(_IS_DIVIDED)
    return handle


def _is_divided(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except Exception:
        # A GPU that cannot be divided has no such mode.
        return False


def _described(
    device: dict[str, Any], samples: GpuSamples | None, started_ns: int, stopped_ns: int
) -> dict[str, Any]:
    if samples is None:
        return device
    facts = Facts()
    facts.ask("samples", lambda: samples.between(started_ns, stopped_ns))
    facts.ask("other_processes", lambda: samples.neighbours.describe(started_ns, stopped_ns))
    missing = {**device.get("missing", {}), **samples.missing, **facts.missing}
    return {**device, **facts.values, **({"missing": missing} if missing else {})}


def _add_cost(sidecar: Sidecar, part: str, begun_ns: int) -> None:
    sidecar.add("listener_cost_ns", {part: perf_counter_ns() - begun_ns})
