"""Are the devices alike, and did they run alike? Models, sizes and clocks, as recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from traceview.analyses.finding import Skipped
from traceview.analyses.outside_view import OutsideView
from traceview.trace.model import Device, Trace

_HZ_PER_KHZ = 1000


@dataclass(frozen=True)
class DeviceHardware:
    """What a device is: from its plane, else from the sidecar; None where neither says.

    `core_count`: multiprocessors (compute units); `clock_max_hz`: what its cores can run at; `clock_hz`: median in the
    recording and `throttled_ratio`: share of it in which something held them back, both as its driver said.
    """

    model: str | None
    core_count: int | None
    clock_max_hz: int | None
    memory_bytes: int | None
    clock_hz: int | None
    throttled_ratio: float | None


@dataclass(frozen=True)
class HardwareGroup:
    """Devices in use that are alike in model, cores and clock."""

    model: str | None
    core_count: int | None
    clock_max_hz: int | None
    devices: tuple[str, ...]


def hardware_of(trace: Trace, device: int, outside: OutsideView | Skipped) -> DeviceHardware:
    """What is recorded of one device."""
    entry = trace.roster[device]
    model, cores, clock = _kind_of(trace, entry)
    key = trace.device_key(device)
    seen = None
    if entry.kind == "gpu" and not isinstance(outside, Skipped):
        seen = next((row for row in outside.devices if row.device == key), None)
    memory = entry.stats.get("memory_size")
    return DeviceHardware(
        model=model,
        core_count=cores,
        clock_max_hz=clock,
        memory_bytes=memory if isinstance(memory, int) else None,
        clock_hz=seen.sm_clock_hz if seen else None,
        throttled_ratio=seen.throttled_ratio if seen else None,
    )


def hardware_groups(trace: Trace, devices: Sequence[int]) -> tuple[HardwareGroup, ...]:
    """The devices by what they are, the largest group first; those of which nothing is known are one group."""
    groups: dict[tuple[str | None, int | None, int | None], list[str]] = {}
    for device in devices:
        groups.setdefault(_kind_of(trace, trace.roster[device]), []).append(
            trace.device_key(device)
        )
    return tuple(
        HardwareGroup(*kind, devices=tuple(keys))
        for kind, keys in sorted(groups.items(), key=lambda group: -len(group[1]))
    )


def _kind_of(trace: Trace, device: Device) -> tuple[str | None, int | None, int | None]:
    cores, clock = device.stats.get("core_count"), device.stats.get("clock_rate")
    return (
        device.model or _model_in_sidecar(trace, device),
        cores if isinstance(cores, int) else None,
        # The planes of GPUs hold kHz (XPlane, `clock_rate`).
        clock * _HZ_PER_KHZ if isinstance(clock, int) else None,
    )


def _model_in_sidecar(trace: Trace, device: Device) -> str | None:
    """TensorFlow's list of physical GPUs is in the order of their planes."""
    sidecar = trace.hosts[device.host].sidecar
    if sidecar is None or device.kind != "gpu":
        return None
    physical = [one for one in sidecar.environment.devices.physical or () if one.type == "GPU"]
    if device.ordinal >= len(physical) or physical[device.ordinal].details is None:
        return None
    details = physical[device.ordinal].details
    return details.device_name if details else None
