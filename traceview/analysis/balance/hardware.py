"""Compares the hardware of the devices: models, sizes and clocks, as recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from traceview.analysis.base import Skipped
from traceview.analysis.nvml.result import Nvml
from traceview.record import Count, DeviceKey, ModelName, Ratio, Record
from traceview.trace.model import Device, Trace

_HZ_PER_KHZ: Final = 1000
_Value = TypeVar("_Value")


class DeviceHardware(Record, frozen=True):
    """What a device is, by its plane, else by the sidecar.

    Attributes:
        model: Model; null where not recorded.
        core_count: Multiprocessors or compute units; null where not recorded.
        clock_max_hz: Highest clock of its cores, hertz; null where not recorded.
        memory_bytes: Size of its memory; null where not recorded.
        clock_hz: Median clock in the recording, sampled by NVML, hertz; null without samples.
        throttled_ratio: Share of the samples in which something held its clocks back; null without samples.
    """

    model: ModelName | None
    core_count: Count | None
    clock_max_hz: Count | None
    memory_bytes: Count | None
    clock_hz: Count | None
    throttled_ratio: Ratio | None


class HardwareGroup(Record, frozen=True):
    """Devices in use of equal model, cores and clock.

    Attributes:
        model: Model; null where not recorded.
        core_count: Multiprocessors or compute units; null where not recorded.
        clock_max_hz: Highest clock of their cores, hertz; null where not recorded.
        devices: Keys of the devices.
    """

    model: ModelName | None
    core_count: Count | None
    clock_max_hz: Count | None
    devices: tuple[DeviceKey, ...]


class _Kind(NamedTuple):
    """The properties that are compared."""

    model: str | None = None
    core_count: int | None = None
    clock_max_hz: int | None = None


def hardware_of(trace: Trace, device: int, outside: Nvml | Skipped) -> DeviceHardware:
    """What is recorded about one device."""
    entry = trace.device_list[device]
    plane, sidecar = _on_plane(entry), _in_sidecar(trace, entry)
    key = trace.device_key(device)
    sampled = None
    if entry.kind == "gpu" and not isinstance(outside, Skipped):
        sampled = next((row for row in outside.devices if row.device == key), None)
    memory = entry.stats.get("memory_size")
    return DeviceHardware(
        model=plane.model or sidecar.model,
        core_count=plane.core_count,
        clock_max_hz=plane.clock_max_hz or sidecar.clock_max_hz,
        memory_bytes=memory if isinstance(memory, int) else None,
        clock_hz=sampled.sm_clock_hz if sampled else None,
        throttled_ratio=sampled.throttled_ratio if sampled else None,
    )


def hardware_groups(trace: Trace, devices: Sequence[int]) -> tuple[HardwareGroup, ...]:
    """The devices by their hardware, the largest group first.

    A property is compared only if it is known of all devices, and from one source: the clocks of CUDA and of NVML may
    differ for the same GPU.
    """
    planes = [_on_plane(trace.device_list[device]) for device in devices]
    sidecars = [_in_sidecar(trace, trace.device_list[device]) for device in devices]
    # CUDA, TensorFlow and NVML use the same names of models.
    models = [plane.model or side.model for plane, side in zip(planes, sidecars, strict=True)]
    clocks = [[kind.clock_max_hz for kind in kinds] for kinds in (planes, sidecars)]
    kinds = zip(
        _known_of_all(models),
        _known_of_all([kind.core_count for kind in planes]),
        _known_of_all(*clocks),
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
        # The stat `clock_rate` of GPU planes is in kHz.
        clock * _HZ_PER_KHZ if isinstance(clock, int) else None,
    )


def _in_sidecar(trace: Trace, device: Device) -> _Kind:
    """What TensorFlow and NVML recorded; TensorFlow lists physical GPUs in the order of their planes."""
    sidecar = trace.hosts[device.host].sidecar
    if sidecar is None or device.kind != "gpu":
        return _Kind()
    physical = [gpu for gpu in sidecar.environment.devices.physical or () if gpu.type == "GPU"]
    details = physical[device.ordinal].details if device.ordinal < len(physical) else None
    of_nvml = next(
        (gpu for gpu in sidecar.outside_view.devices if gpu.ordinal == device.ordinal), None
    )
    model = details.device_name if details else None
    if of_nvml is None:
        return _Kind(model)
    return _Kind(model or of_nvml.name, None, of_nvml.sm_clock_max_hz)
