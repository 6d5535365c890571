"""Are the devices alike, and did they run alike? Models, sizes and clocks, as recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from traceview.analysis.base import Skipped
from traceview.analysis.nvml.result import OutsideView
from traceview.record import Count, DeviceKey, ModelName, Ratio, Record
from traceview.trace.model import Device, Trace

_HZ_PER_KHZ = 1000
_Value = TypeVar("_Value")


class DeviceHardware(Record, frozen=True):
    """What a device is: from its plane, else from the sidecar; None where neither says.

    Attributes:
        model: Model; null where not recorded.
        core_count: Multiprocessors or compute units; null where not recorded.
        clock_max_hz: The most its cores run at, hertz; null where not recorded.
        memory_bytes: Size of its memory; null where not recorded.
        clock_hz: Median clock in the recording as its driver said, hertz; null without samples.
        throttled_ratio: Share of the samples in which something held its clocks back; null without samples.
    """

    model: ModelName | None
    core_count: Count | None
    clock_max_hz: Count | None
    memory_bytes: Count | None
    clock_hz: Count | None
    throttled_ratio: Ratio | None


class HardwareGroup(Record, frozen=True):
    """Devices in use that are alike in model, cores and clock.

    Attributes:
        model: Model; null where not recorded.
        core_count: Multiprocessors or compute units; null where not recorded.
        clock_max_hz: The most their cores run at, hertz; null where not recorded.
        devices: Keys of the devices.
    """

    model: ModelName | None
    core_count: Count | None
    clock_max_hz: Count | None
    devices: tuple[DeviceKey, ...]


@dataclass(frozen=True)
class _Kind:
    """What tells devices apart."""

    model: str | None
    core_count: int | None
    clock_max_hz: int | None


_NOTHING: Final = _Kind(None, None, None)


def hardware_of(trace: Trace, device: int, outside: OutsideView | Skipped) -> DeviceHardware:
    """What is recorded of one device."""
    entry = trace.device_list[device]
    plane, noted = _on_plane(entry), _in_sidecar(trace, entry)
    key = trace.device_key(device)
    seen = None
    if entry.kind == "gpu" and not isinstance(outside, Skipped):
        seen = next((row for row in outside.devices if row.device == key), None)
    memory = entry.stats.get("memory_size")
    return DeviceHardware(
        model=plane.model or noted.model,
        core_count=plane.core_count,
        clock_max_hz=plane.clock_max_hz or noted.clock_max_hz,
        memory_bytes=memory if isinstance(memory, int) else None,
        clock_hz=seen.sm_clock_hz if seen else None,
        throttled_ratio=seen.throttled_ratio if seen else None,
    )


def hardware_groups(trace: Trace, devices: Sequence[int]) -> tuple[HardwareGroup, ...]:
    """The devices by what they are, the largest group first.

    What is not known of all of them is not compared, and each of model, cores and clock by one source only: the
    clocks of CUDA and of NVML need not be the same.
    """
    planes = [_on_plane(trace.device_list[device]) for device in devices]
    noted = [_in_sidecar(trace, trace.device_list[device]) for device in devices]
    # CUDA, TensorFlow and NVML call a model alike.
    either = [plane.model or note.model for plane, note in zip(planes, noted, strict=True)]
    kinds = zip(
        _known_of_all(either),
        _known_of_all([one.core_count for one in planes]),
        _known_of_all([one.clock_max_hz for one in planes], [one.clock_max_hz for one in noted]),
        strict=True,
    )
    groups: dict[tuple[str | None, int | None, int | None], list[str]] = {}
    for device, kind in zip(devices, kinds, strict=True):
        groups.setdefault(kind, []).append(trace.device_key(device))
    return tuple(
        HardwareGroup(*kind, devices=tuple(keys))
        for kind, keys in sorted(groups.items(), key=lambda group: -len(group[1]))
    )


def _known_of_all(*sources: list[_Value | None]) -> list[_Value | None]:
    """The first source that knows a value of every device; None of each without one."""
    for values in sources:
        if all(value is not None for value in values):
            return values
    return [None for _ in sources[0]]


def _on_plane(device: Device) -> _Kind:
    cores, clock = device.stats.get("core_count"), device.stats.get("clock_rate")
    return _Kind(
        device.model,
        cores if isinstance(cores, int) else None,
        # The planes of GPUs hold kHz (XPlane, `clock_rate`).
        clock * _HZ_PER_KHZ if isinstance(clock, int) else None,
    )


def _in_sidecar(trace: Trace, device: Device) -> _Kind:
    """What TensorFlow and NVML said; its list of physical GPUs is in the order of their planes."""
    sidecar = trace.hosts[device.host].sidecar
    if sidecar is None or device.kind != "gpu":
        return _NOTHING
    physical = [one for one in sidecar.environment.devices.physical or () if one.type == "GPU"]
    details = physical[device.ordinal].details if device.ordinal < len(physical) else None
    seen = next(
        (one for one in sidecar.outside_view.devices if one.ordinal == device.ordinal), None
    )
    told = details.device_name if details else None
    return _Kind(
        told or (seen.name if seen else None), None, seen.sm_clock_max_hz if seen else None
    )
