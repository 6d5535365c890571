"""Records of the GPUs as the driver saw them during the profile, as `traceview capture` writes them.

They are the group `outside_view` of the sidecar: samples of NVML for each GPU, by the number that CUDA gives it, which
is also the number in the name of its plane.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from traceview.base.record import RecordedCount

_Value = TypeVar("_Value")


class NvmlSamples(Struct, frozen=True):
    """Columns of equal length; `t_ns` is Unix nanoseconds. None where NVML returned no value.

    Utilizations are averages over the last period of NVML, which is between a sixth of a second and a second
    (nvml.h, nvmlUtilization_t). `throttle_reasons`: bits as in nvml.h, clocks event reasons.
    """

    t_ns: tuple[int, ...]
    gpu_utilization_ratio: tuple[float | None, ...]
    memory_used_bytes: tuple[int | None, ...]
    sm_clock_hz: tuple[int | None, ...]
    throttle_reasons: tuple[int | None, ...]
    power_watts: tuple[float | None, ...]

    def shares(self, column: tuple[float | None, ...]) -> list[tuple[int, float]]:
        """Time and value of the known ratios of a column; empty if the column and the times differ in length."""
        known = [(t, value) for t, value in self.timed(column) if value is not None]
        return [(t, value) for t, value in known if 0 <= value <= 1]

    def numbers(self, column: tuple[float | None, ...]) -> list[float]:
        """The values of a column from zero on; empty if the column and the times differ in length."""
        return [value for _, value in self.timed(column) if value is not None and value >= 0]

    def integers(self, column: tuple[int | None, ...]) -> list[int]:
        """The same for a column of integers."""
        return [value for _, value in self.timed(column) if value is not None and value >= 0]

    def timed(self, column: tuple[_Value, ...]) -> list[tuple[int, _Value]]:
        """Time and value of a column; empty if the column and the times differ in length."""
        if len(column) != len(self.t_ns):
            return []
        return list(zip(self.t_ns, column, strict=True))


class NvmlProcess(Struct, frozen=True):
    """Another process on the GPU: its largest memory and its mean utilization, if the driver reports them."""

    pid: int | None
    memory_bytes: RecordedCount | None
    utilization_ratio: float | None


class NvmlGpu(Struct, frozen=True):
    """One GPU. `other_processes`: None where unknown. `missing`: why a field could not be read."""

    ordinal: RecordedCount | None
    name: str | None
    samples: NvmlSamples
    sm_clock_max_hz: RecordedCount | None
    power_limit_watts: float | None
    memory_total_bytes: RecordedCount | None
    other_processes: tuple[NvmlProcess, ...] | None
    missing: dict[str, str]


class NvmlRecord(Struct, frozen=True):
    """The samples of all GPUs; `reason`: why there are none."""

    reason: str | None
    devices: tuple[NvmlGpu, ...]
