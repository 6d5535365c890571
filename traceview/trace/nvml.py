"""What did the driver see of the GPUs while the profile ran, as `traceview capture` wrote it down?

The group `outside_view` of the sidecar: samples of NVML by CUDA's number of each GPU, which is the one in the
name of its plane.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

_Value = TypeVar("_Value")


class NvmlSamples(Struct, frozen=True):
    """Columns of equal length; `t_ns` is Unix nanoseconds. None where a question had no answer.

    Utilisations are averages over NVML's last period, which is between a sixth of a second and a second
    (nvml.h, nvmlUtilization_t). `throttle_reasons`: bits as in nvml.h, clocks event reasons.
    """

    t_ns: tuple[int, ...]
    gpu_utilization_ratio: tuple[float | None, ...]
    memory_utilization_ratio: tuple[float | None, ...]
    memory_used_bytes: tuple[int | None, ...]
    sm_clock_hz: tuple[int | None, ...]
    memory_clock_hz: tuple[int | None, ...]
    throttle_reasons: tuple[int | None, ...]
    power_watts: tuple[float | None, ...]
    pcie_rx_bytes_per_second: tuple[int | None, ...]
    pcie_tx_bytes_per_second: tuple[int | None, ...]

    def shares(self, column: tuple[float | None, ...]) -> list[tuple[int, float]]:
        """Time and value of a column of ratios where it has one; nothing if it does not match the times."""
        known = [(t, value) for t, value in self._timed(column) if value is not None]
        return [(t, value) for t, value in known if 0 <= value <= 1]

    def numbers(self, column: tuple[float | None, ...]) -> list[float]:
        """The values of a column that are no less than zero; nothing if it does not match the times."""
        return [value for _, value in self._timed(column) if value is not None and value >= 0]

    def integers(self, column: tuple[int | None, ...]) -> list[int]:
        """The same of a column of integers."""
        return [value for _, value in self._timed(column) if value is not None and value >= 0]

    def _timed(self, column: tuple[_Value, ...]) -> list[tuple[int, _Value]]:
        if len(column) != len(self.t_ns):
            return []
        return list(zip(self.t_ns, column, strict=True))


class NvmlProcess(Struct, frozen=True):
    """Another process on the GPU; the most memory that it held, and its mean use, if the driver says."""

    pid: int | None
    memory_bytes: int | None
    utilization_ratio: float | None


class NvmlGpu(Struct, frozen=True):
    """One GPU. `other_processes`: None where they could not be told. `missing`: why a field could not be had."""

    ordinal: int | None
    bus_id: str | None
    name: str | None
    samples: NvmlSamples
    sm_clock_max_hz: int | None
    power_limit_watts: float | None
    memory_total_bytes: int | None
    other_processes: tuple[NvmlProcess, ...] | None
    missing: dict[str, str]


class NvmlRecord(Struct, frozen=True):
    """`source`: nvml, or None for the `reason`; `window_ns`: from the start of the profile to its stop."""

    source: str | None
    reason: str | None
    window_ns: int | None
    interval_ms: int | None
    devices: tuple[NvmlGpu, ...]
