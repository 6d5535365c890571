"""States what devices are, by their planes and by the sidecar: models, numbers of cores and clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from traceview.base.record import Count, DeviceKey, ModelName, Record
from traceview.trace.model import Device, Trace

_HZ_PER_KHZ: Final = 1000
_Value = TypeVar("_Value")


class Hardware(Record, frozen=True):
    """The properties of devices that are compared.

    Attributes:
        model: Model; null where not recorded.
        core_count: Multiprocessors or compute units; null where not recorded.
        clock_max_hz: Highest clock of the cores, hertz; null where not recorded.
    """

    model: ModelName | None
    core_count: Count | None
    clock_max_hz: Count | None


class HardwareGroup(Hardware, frozen=True):
    """Devices in use of equal model, cores and clock.

    Attributes:
        devices: Keys of the devices.
    """

    devices: tuple[DeviceKey, ...]


def hardware_of(trace: Trace, device: int) -> Hardware:
    """What a device is, by its plane, else by the sidecar."""
    entry = trace.device_list[device]
    plane, sidecar = _on_plane(entry), _in_sidecar(trace, entry)
    return Hardware(
        plane.model or sidecar.model, plane.core_count, plane.clock_max_hz or sidecar.clock_max_hz
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


def _on_plane(device: Device) -> Hardware:
    clock = device.count("clock_rate")
    return Hardware(
        device.model,
        device.count("core_count"),
        # The stat `clock_rate` of GPU planes is in kHz.
        None if clock is None else clock * _HZ_PER_KHZ,
    )


def _in_sidecar(trace: Trace, device: Device) -> Hardware:
    """What TensorFlow and NVML recorded; TensorFlow lists physical GPUs in the order of their planes."""
    sidecar = trace.hosts[device.host].sidecar
    if sidecar is None or device.kind != "gpu":
        return Hardware(None, None, None)
    physical = sidecar.physical_gpus
    details = physical[device.ordinal].details if device.ordinal < len(physical) else None
    model = details.device_name if details else None
    for gpu in sidecar.outside_view.devices:
        if gpu.ordinal == device.ordinal:
            return Hardware(model or gpu.name, None, gpu.sm_clock_max_hz)
    return Hardware(model, None, None)
