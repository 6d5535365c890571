"""Joins the time of each device with its comparison with the others: the rows of `traceview devices`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from traceview.analysis.balance.result import Balance
from traceview.analysis.device_time.result import DeviceTime
from traceview.xplane.planes import ActivityClass


@dataclass(frozen=True)
class DeviceLine:
    """One device. Up to `memory_peak_bytes` as in `device_time`, with `total_ps` by class; then from `balance`.

    `backward`: whether gradients were computed there. None where a value is not known, or has no meaning for a device
    that did not compute.
    """

    host: str
    device: str
    ordinal: int
    kind: str
    model: str | None
    status: str
    window_ps: int | None
    busy_ps: int | None
    busy_ratio: float | None
    compute_ps: int | None
    compute_ratio: float | None
    exposed_collective_ps: int | None
    exposed_h2d_ps: int | None
    exposed_d2h_ps: int | None
    exposed_d2d_ps: int | None
    exposed_memset_ps: int | None
    idle_ps: int | None
    compute_total_ps: int | None
    collective_total_ps: int | None
    h2d_total_ps: int | None
    d2h_total_ps: int | None
    d2d_total_ps: int | None
    memset_total_ps: int | None
    kernel_count: int | None
    collective_count: int | None
    copy_count: int | None
    memset_count: int | None
    h2d_bytes: int | None
    d2h_bytes: int | None
    d2d_bytes: int | None
    unknown_direction_count: int | None
    opaque_count: int | None
    outside_window_count: int | None
    memory_held_bytes: int | None
    memory_peak_bytes: int | None
    compute_ps_per_step: int | None
    longer_ratio: float | None
    longest_count: int | None
    step_count: int | None
    start_lag_ps: int | None
    end_lead_ps: int | None
    last_count: int | None
    matched_collective_count: int | None
    straggler_cause: str | None
    backward: bool | None
    core_count: int | None
    clock_max_hz: int | None
    clock_hz: int | None
    throttled_ratio: float | None


_OF_BALANCE = (
    "compute_ps_per_step",
    "longer_ratio",
    "longest_count",
    "step_count",
    "start_lag_ps",
    "end_lead_ps",
    "last_count",
)
_OF_HARDWARE = ("core_count", "clock_max_hz", "clock_hz", "throttled_ratio")


def device_table(device_time: DeviceTime, balance: Balance | None) -> list[DeviceLine]:
    """All devices in the order of hosts and numbers."""
    compared = {row.device: row for row in balance.devices} if balance else {}
    phases = {row.device: row for row in balance.gradients.devices} if balance else {}
    straggler = balance.straggler if balance else None
    lines = []
    for row in device_time.devices:
        values: dict[str, Any] = {
            field.name: getattr(row, field.name, None) for field in fields(DeviceLine)
        }
        for class_ in ActivityClass:
            name = class_.name.lower()
            values[f"{name}_total_ps"] = None if row.total_ps is None else row.total_ps[name]
        comparison = compared.get(row.device)
        if comparison is not None:
            values |= {key: getattr(comparison, key) for key in _OF_BALANCE}
            values |= {key: getattr(comparison.hardware, key) for key in _OF_HARDWARE}
            values["matched_collective_count"] = comparison.collective_count
            values["model"] = row.model or comparison.hardware.model
        if row.device in phases:
            values["backward"] = phases[row.device].backward
        if straggler is not None and straggler.device == row.device:
            values["straggler_cause"] = straggler.cause
        lines.append(DeviceLine(**values))
    return lines
