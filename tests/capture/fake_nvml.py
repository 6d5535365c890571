"""The part of `pynvml` that capture asks: two GPUs, of which the second answers fewer questions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

BUS_IDS = ["0000:07:00.0", "0000:06:00.0"]
ANSWERS: dict[str, Any] = {
    "nvmlSystemGetDriverVersion": b"550.54",
    "nvmlDeviceGetCount": len(BUS_IDS),
    "nvmlDeviceGetName": "H200",
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=140 * 10**9, used=30 * 10**9),
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
}
"""What every GPU answers, whatever it is asked of."""


class NvmlError(Exception):
    pass


class Nvml(ModuleType):
    """Answers to NVML's names, `nvmlDeviceGetName`, with methods named as Python does: `device_get_name`.

    Handles are bus ids. `processes`: what each GPU lists, as (pid, bytes); `asked`: counts by question.
    """

    NVMLError = NvmlError
    NVML_CLOCK_SM = 1

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.is_open = False
        self.bus_ids = BUS_IDS
        self.asked: dict[str, int] = {}
        self.processes: list[tuple[int, int | None]] = [(os.getpid(), 10**9)]
        self.uses: list[tuple[int, int, int]] = []
        self.divided: set[str] = set()
        self.on_question: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        if name in ANSWERS:
            return lambda *_: ANSWERS[name]
        method = re.sub("(?<!^)(?=[A-Z])", "_", name.removeprefix("nvml")).lower()
        if not name.startswith("nvml") or not hasattr(type(self), method):
            raise AttributeError(name)
        return getattr(self, method)

    def init(self) -> None:
        self.is_open = True

    def shutdown(self) -> None:
        self.is_open = False

    def device_get_handle_by_pci_bus_id(self, bus_id: str) -> str:
        if bus_id not in BUS_IDS:
            raise NvmlError("Not Found")
        return bus_id

    def device_get_handle_by_index(self, index: int) -> str:
        return BUS_IDS[index]

    def unanswered(self, *_: object) -> Any:
        raise NvmlError("Not Supported")

    device_get_graphics_running_processes = unanswered

    def device_get_mig_mode(self, handle: str) -> list[int]:
        if handle == BUS_IDS[1]:
            raise NvmlError("Not Supported")
        return [int(handle in self.divided), 0]

    def device_get_utilization_rates(self, handle: str) -> Any:
        self._count("utilization")
        return SimpleNamespace(gpu=93)

    def device_get_clock_info(self, handle: str, clock: int) -> int:
        return {self.NVML_CLOCK_SM: 1755}[clock]

    def device_get_power_usage(self, handle: str) -> int:
        if handle == BUS_IDS[1]:
            self._count("power of the second")
            raise NvmlError("Not Supported")
        return 651_250

    def device_get_compute_running_processes(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes]

    def device_get_process_utilization(self, handle: str, since_us: int) -> list[Any]:
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
