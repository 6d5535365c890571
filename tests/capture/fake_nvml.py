# ruff: noqa: N802 -- the fake has the names of NVML
"""The part of `pynvml` that capture samples: two GPUs, of which the second answers fewer questions."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

BUS_IDS = ["0000:07:00.0", "0000:06:00.0"]


class NvmlError(Exception):
    pass


class Nvml(ModuleType):
    """Handles are bus ids. `processes`: what each GPU lists, as (pid, bytes); `asked`: counts by question."""

    NVMLError = NvmlError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_PCIE_UTIL_TX_BYTES = 0
    NVML_PCIE_UTIL_RX_BYTES = 1

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.is_open = False
        self.asked: dict[str, int] = {}
        self.processes: list[tuple[int, int | None]] = [(os.getpid(), 10**9)]
        self.uses: list[tuple[int, int, int]] = []
        self.divided: set[str] = set()
        self.on_question: Callable[[], None] = lambda: None

    def nvmlInit(self) -> None:
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:
        if bus_id not in BUS_IDS:
            raise NvmlError("Not Found")
        return bus_id

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        if handle == BUS_IDS[1]:
            raise NvmlError("Not Supported")
        return [int(handle in self.divided), 0]

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "H200"

    def nvmlDeviceGetMaxClockInfo(self, handle: str, clock: int) -> int:
        return 1980

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(total=140 * 10**9, used=30 * 10**9)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        self._count("utilization")
        return SimpleNamespace(gpu=93, memory=41)

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        return {self.NVML_CLOCK_SM: 1755, self.NVML_CLOCK_MEM: 3201}[clock]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0x4

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        if handle == BUS_IDS[1]:
            self._count("power of the second")
            raise NvmlError("Not Supported")
        return 651_250

    def nvmlDeviceGetPcieThroughput(self, handle: str, counter: int) -> int:
        self._count("pcie")
        return {self.NVML_PCIE_UTIL_RX_BYTES: 5000, self.NVML_PCIE_UTIL_TX_BYTES: 70}[counter]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        self._count("processes")
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[Any]:
        raise NvmlError("Not Supported")

    def nvmlDeviceGetProcessUtilization(self, handle: str, since_us: int) -> list[Any]:
        found = [
            SimpleNamespace(pid=pid, timeStamp=since_us + after_us, smUtil=percent)
            for pid, after_us, percent in self.uses
        ]
        if not found:
            raise NvmlError("Not Found")
        return found

    def _count(self, question: str) -> None:
        self.on_question()
        self.asked[question] = self.asked.get(question, 0) + 1
