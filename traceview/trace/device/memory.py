"""Reads the memory of each GPU from the events of TensorFlow's and JAX's allocators.

Each event says what its allocator has given out after it, how much it gave out or took back, and where that lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.base.ids import unique_ids
from traceview.base.intervals import Int64Array
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE, HostColumns, Names
from traceview.trace.model import Recording, Window
from traceview.xplane.planes import LARGEST_COPY, LARGEST_COUNT

_OF_GPU: Final = lazy_pattern(rb"GPU_(\d{1,9})_bfc")
_ALLOCATION: Final = b"MemoryAllocation"


class Allocator(Struct, frozen=True, eq=False, dict=True):
    """What one allocator recorded, by time; events without `bytes_allocated` are left out.

    int64 `[n]`: `row` in the host columns; `time_ps`; `held_bytes`, in use after the event; `change_bytes`, what it gave
    out, negative where it took back, 0 where that is not recorded; `address`, 0 where not recorded. `peak_bytes`: the most
    in use since the process started; `capacity_bytes`: the most that it may give out, at the end.
    """

    row: Int64Array
    time_ps: Int64Array
    held_bytes: Int64Array
    change_bytes: Int64Array
    address: Int64Array
    peak_bytes: int
    capacity_bytes: int

    def held_at(self, event: int) -> int:
        """In use after an event."""
        return int(self.held_bytes[event])

    @cached_property
    def unrecorded_bytes(self) -> int:
        """By how much what is in use changed without an event, up and down together."""
        missing = np.abs(np.diff(self.held_bytes) - self.change_bytes[1:])
        # Of absurd sizes the sum would not fit into 64 bits.
        return min(int(missing.sum(dtype=np.float64)), LARGEST_COUNT)

    @cached_property
    def until(self) -> Int64Array:
        """Of each event the next one at its address, the number of events without one.

        What was given out there is taken back then: by a free, or by one that was not recorded where the address is given
        out again.
        """
        count = self.row.size
        order = np.argsort(self.address, kind="stable")
        before, after = order[:-1], order[1:]
        is_same = self.address[before] == self.address[after]
        until = np.full(count, count, dtype=np.int64)
        until[before[is_same]] = after[is_same]
        return np.where(self.address == 0, np.arange(count), until)

    def most_in(self, window: Window) -> int | None:
        """The event after which most was in use in a window; None where nothing is recorded up to its end.

        What was in use at the start of the window counts too. Of several it is the last, before which most is recorded.
        """
        # From the last event at or before the start of the window to the last one in it.
        first = max(int(np.searchsorted(self.time_ps, window.start_ps, side="right")) - 1, 0)
        last = int(np.searchsorted(self.time_ps, window.end_ps))
        return last - 1 - int(self.held_bytes[first:last][::-1].argmax()) if last > first else None

    def live_after(self, event: int) -> Int64Array:
        """The events that gave out what is in use after an event, of those that were recorded."""
        given = np.flatnonzero(self.change_bytes[: event + 1] > 0)
        return given[self.until[given] > event]

    def least_held(self, start_ps: Int64Array, end_ps: Int64Array) -> Int64Array:
        """The least that was in use in each of some spans, what was at its start included."""
        levels = np.append(self.held_bytes[0] - self.change_bytes[0], self.held_bytes)
        first = np.searchsorted(self.time_ps, start_ps, side="right")
        last = np.maximum(np.searchsorted(self.time_ps, end_ps) + 1, first + 1)
        bounds = np.stack((first, last), axis=1).ravel()
        return np.minimum.reduceat(np.append(levels, levels[-1]), bounds)[::2]


def allocators(recording: Recording) -> dict[int, Allocator]:
    """What the allocators of GPUs recorded, by device of the device list.

    The number in the name of an allocator is the number of the virtual GPU. If the host has an allocator without a GPU
    plane, the two numberings differ, and it is not known which GPU an allocator is of.
    """
    of_device: dict[int, Allocator] = {}
    for host, indices in enumerate(recording.devices_of_host):
        devices = {index: recording.device_list[index] for index in indices}
        gpus = {device.ordinal: index for index, device in devices.items() if device.kind == "gpu"}
        of_gpu = dict(_recorded(recording, host))
        if of_gpu.keys() <= gpus.keys():
            of_device.update((gpus[number], allocator) for number, allocator in of_gpu.items())
    return of_device


def _recorded(recording: Recording, host: int) -> Iterator[tuple[int, Allocator]]:
    """The allocators of GPUs of a host that say what is in use, by their number."""
    columns, names = recording.host_columns, recording.names
    of_rows = columns.stat("allocator_name").among(columns.rows_of_host(host))
    for number in unique_ids(of_rows.value).tolist():
        if match := _OF_GPU.fullmatch(names[number]):
            rows = of_rows.row[of_rows.value == number]
            rows = rows[columns.stat("bytes_allocated").at(rows, NONE) >= 0]
            if rows.size:
                yield int(match[1]), _allocator(columns, names, rows)


def _allocator(columns: HostColumns, names: Names, rows: Int64Array) -> Allocator:
    """The allocator of some events."""
    rows = rows[np.argsort(columns.start_ps[rows], kind="stable")]
    held = columns.stat("bytes_allocated").at(rows, NONE)
    peak = columns.stat("peak_bytes_in_use").at(rows, NONE)
    size = columns.stat("allocation_bytes").at(rows, 0)
    size = np.where(size <= LARGEST_COPY, size, 0)
    is_given = names.matching(columns.name[rows], (_ALLOCATION,))
    return Allocator(
        row=rows,
        time_ps=columns.start_ps[rows],
        held_bytes=held,
        change_bytes=np.where(is_given, size, -size),
        address=columns.stat("address").at(rows, 0),
        peak_bytes=max(int(peak.max()), int(held.max())),
        capacity_bytes=int(held[-1] + columns.stat("bytes_available").at(rows[-1:], 0)[0]),
    )
