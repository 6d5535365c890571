"""Reads the memory that TensorFlow holds on each GPU from the events of its allocators `GPU_<n>_bfc`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.ids import unique_ids
from traceview.trace.model import Device, HostColumns, Names
from traceview.trace.windows import Window

_ALLOCATOR = re.compile(rb"GPU_(\d{1,9})_bfc")


class _Held(Struct, frozen=True):
    held_bytes: int
    peak_bytes: int
    capacity_bytes: int


def with_memory(devices: Sequence[Device], host: HostColumns, names: Names) -> Iterator[Device]:
    """The devices with the memory of their allocators: last `bytes_allocated`, largest `peak_bytes_in_use`.

    The number in the allocator's name is the number of the virtual GPU. If a host has an allocator without a GPU
    plane, the two numberings differ, and its GPUs get no memory figures.
    """
    held = _held(host, names)
    gpus = {(device.host, device.ordinal) for device in devices if device.kind == "gpu"}
    others = {of_host for of_host, number in held if (of_host, number) not in gpus}
    for device in devices:
        memory = held.get((device.host, device.ordinal))
        if device.kind != "gpu" or memory is None or device.host in others:
            yield device
        else:
            yield replace(
                device,
                memory_held_bytes=memory.held_bytes,
                memory_peak_bytes=memory.peak_bytes,
                memory_capacity_bytes=memory.capacity_bytes,
            )


def most_held(host: HostColumns, names: Names, device: Device, window: Window) -> int | None:
    """The most bytes that the allocator of a device held in the window: what it held at its start counts too.

    None where the device has no memory figures, or nothing is recorded up to the end of the window.
    """
    if device.memory_held_bytes is None:
        return None
    allocator = host.stat("allocator_name").among(host.rows_of_host(device.host))
    rows = allocator.row[names.are([b"GPU_%d_bfc" % device.ordinal])[allocator.value]]
    allocated = host.stat("bytes_allocated").at(rows, -1)
    rows, allocated = rows[allocated >= 0], allocated[allocated >= 0]
    start = host.start_ps[rows]
    order = np.argsort(start, kind="stable")
    start, allocated = start[order], allocated[order]
    # From the last event at or before the start of the window to the last one in it.
    first = max(int(np.searchsorted(start, window.start_ps, side="right")) - 1, 0)
    last = int(np.searchsorted(start, window.end_ps))
    return int(allocated[first:last].max()) if last > first else None


def _held(host: HostColumns, names: Names) -> dict[tuple[int, int], _Held]:
    allocator = host.stat("allocator_name")
    if allocator.row.size == 0:
        return {}
    allocated = host.stat("bytes_allocated").at(allocator.row, -1)
    available = host.stat("bytes_available").at(allocator.row, 0)
    peak = host.stat("peak_bytes_in_use").at(allocator.row, -1)
    of_host = host.host[allocator.row]
    start = host.start_ps[allocator.row]
    result = {}
    for name in unique_ids(allocator.value):
        match = _ALLOCATOR.fullmatch(names[int(name)])
        if not match:
            continue
        for index in unique_ids(of_host):
            rows = np.flatnonzero((allocator.value == name) & (of_host == index) & (allocated >= 0))
            if rows.size:
                last = rows[np.flatnonzero(start[rows] == start[rows].max())[-1]]
                result[int(index), int(match[1])] = _Held(
                    int(allocated[last]),
                    int(max(peak[rows].max(), allocated[rows].max())),
                    int(allocated[last] + available[last]),
                )
    return result
