"""Reads the memory that TensorFlow holds on each GPU from the events of its allocators `GPU_<n>_bfc`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from traceview.base.ids import unique_ids
from traceview.trace.model import Device, HostColumns, Names
from traceview.trace.windows import Window

_ALLOCATOR = re.compile(rb"GPU_(\d{1,9})_bfc")


def with_memory(devices: Sequence[Device], host: HostColumns, names: Names) -> list[Device]:
    """The devices of one host with the memory of their allocators: last `bytes_allocated`, largest `peak_bytes_in_use`.

    The number in the allocator's name is the number of the virtual GPU. If the host has an allocator without a GPU
    plane, the two numberings differ, and its GPUs get no memory figures.
    """
    held = _held(host, names)
    gpus = {device.ordinal for device in devices if device.kind == "gpu"}
    if not held.keys() <= gpus:
        held = {}
    return [
        replace(device, **held.get(device.ordinal, {}) if device.kind == "gpu" else {})
        for device in devices
    ]


def most_held(host: HostColumns, names: Names, device: Device, window: Window) -> int | None:
    """The most bytes that the allocator of a device held in the window: what it held at its start counts too.

    None where the device has no memory figures, or nothing is recorded up to the end of the window.
    """
    if device.memory_held_bytes is None:
        return None
    allocator = host.stat("allocator_name").among(host.rows_of_host(device.host))
    rows = allocator.row[names.matching(allocator.value, [b"GPU_%d_bfc" % device.ordinal])]
    allocated = host.stat("bytes_allocated").at(rows, -1)
    rows, allocated = rows[allocated >= 0], allocated[allocated >= 0]
    start = host.start_ps[rows]
    order = np.argsort(start, kind="stable")
    start, allocated = start[order], allocated[order]
    # From the last event at or before the start of the window to the last one in it.
    first = max(int(np.searchsorted(start, window.start_ps, side="right")) - 1, 0)
    last = int(np.searchsorted(start, window.end_ps))
    return int(allocated[first:last].max()) if last > first else None


def _held(host: HostColumns, names: Names) -> dict[int, dict[str, int]]:
    """The figures of each allocator by its number, as fields of `Device`."""
    allocator = host.stat("allocator_name")
    allocated = host.stat("bytes_allocated").at(allocator.row, -1)
    available = host.stat("bytes_available").at(allocator.row, 0)
    peak = host.stat("peak_bytes_in_use").at(allocator.row, -1)
    start = host.start_ps[allocator.row]
    result = {}
    for name in unique_ids(allocator.value).tolist():
        match = _ALLOCATOR.fullmatch(names[name])
        rows = np.flatnonzero((allocator.value == name) & (allocated >= 0))
        if match and rows.size:
            last = rows[np.flatnonzero(start[rows] == start[rows].max())[-1]]
            result[int(match[1])] = {
                "memory_held_bytes": int(allocated[last]),
                "memory_peak_bytes": int(max(peak[rows].max(), allocated[rows].max())),
                "memory_capacity_bytes": int(allocated[last] + available[last]),
            }
    return result
