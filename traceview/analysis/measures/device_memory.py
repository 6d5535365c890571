"""States what fills the memory of each GPU: how much at most, what of it was there before the capture, which ops hold the rest."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import numpy as np

from traceview.analysis.facts.layers import Place, op_places
from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.program_memory import (
    OTHER,
    PHASES,
    ProgramMemory,
    program_memory,
)
from traceview.analysis.rules.finding import OfDevice, Skipped
from traceview.base.record import (
    Count,
    DeviceKey,
    Hostname,
    Integer,
    OpName,
    Record,
    Share,
    one_of,
)
from traceview.base.stats import student, variance_of_mean
from traceview.trace.device.memory import Allocator, allocators
from traceview.trace.device.op_names import Phase, split_op
from traceview.trace.model import NONE, Step, Trace
from traceview.xplane.planes import MILLION

MOST_ROWS: Final = 100
"""Of layers in a report; `traceview show memory` has all ops of all devices."""

FEWEST_CHANGES: Final = 4
"""From one used step to the next; of fewer no growth is stated."""

CONFIDENCE: Final = 0.95
"""Share of the intervals of growth that hold what further steps would show."""

BEFORE: Final = "before"
_KINDS: Final = {b"output": "output", b"temp": "temp", b"persist": "persistent"}
"""What ops ask for, by `region_type`."""


class HeldBytes(Record, frozen=True):
    """What is in use on a device at its peak in the window, of one op. The rows of a device sum to its peak.

    Attributes:
        device: Key of the device.
        layer: The layer that the op is in; null where its name shows none.
        op: Name of the op; null for what was in use before, and where no op is recorded.
        kind: before: in use before the capture, or without a recorded allocation; output, temp, persistent: allocated in the
            capture as an output of an op, as a temporary or as a persistent buffer of it; other: allocated in the capture for
            what is not recorded.
        phase: The phase of the step that the op is a part of; other where its name does not show it.
        bytes: How many bytes.
        count: In how many allocations; 0 for what was in use before.
    """

    device: DeviceKey
    layer: OpName | None
    op: OpName | None
    kind: Annotated[str, one_of(BEFORE, *_KINDS.values(), OTHER)]
    phase: Annotated[str, one_of(*PHASES.values(), OTHER)]
    bytes: Count
    count: Count


class HeldByLayer(Record, frozen=True):
    """What is in use at the peak of the fullest device, of a layer and those that are called alike but for numbers.

    Attributes:
        layer: The layer, with a star for each number if there are several; null for what has none.
        layer_count: How many layers.
        kind: As in the rows of ops.
        phase: As in the rows of ops.
        bytes: How many bytes.
        count: In how many allocations; 0 for what was in use before.
    """

    layer: OpName | None
    layer_count: Count
    kind: Annotated[str, one_of(BEFORE, *_KINDS.values(), OTHER)]
    phase: Annotated[str, one_of(*PHASES.values(), OTHER)]
    bytes: Count
    count: Count


class MemoryGrowth(Record, frozen=True):
    """By how much the least memory in use of a step differs from that of the step before.

    Attributes:
        bytes_per_step: The mean, rounded.
        low_bytes_per_step: Lower end of its 95% interval.
        high_bytes_per_step: Upper end of it.
        count: Pairs of steps.
    """

    bytes_per_step: Integer
    low_bytes_per_step: Integer
    high_bytes_per_step: Integer
    count: Count


class DeviceMemory(OfDevice, frozen=True):
    """The memory of one GPU, as its allocator reports it.

    Attributes:
        capacity_bytes: The most that the allocator may give out; null where not recorded.
        peak_bytes: The most in use in the window.
        peak_ps: When it was last reached, picoseconds since the origin of the run; before the window where it was in use at its
            start.
        process_peak_bytes: The most in use since the process started.
        before_bytes: Of the peak, what was in use before the capture or has no recorded allocation.
        allocated_bytes: Of the peak, what was allocated in the capture.
        forward_bytes: Of that, what ops of the forward pass hold.
        fragmentation_ratio: Share of the allocator's free memory outside of its largest free piece, at the peak; null where
            not recorded.
        growth: How it changes from step to step; null with too few steps.
        event_count: Allocations and frees that were recorded.
        unrecorded_bytes: By how much what is in use changed without a recorded event, up and down together.
    """

    capacity_bytes: Count | None
    peak_bytes: Count
    peak_ps: Integer
    process_peak_bytes: Count
    before_bytes: Count
    allocated_bytes: Count
    forward_bytes: Count
    fragmentation_ratio: Share | None
    growth: MemoryGrowth | None
    event_count: Count
    unrecorded_bytes: Count

    @property
    def free_bytes(self) -> int | None:
        """What the allocator may still give out at the peak of the process; None where that is not recorded."""
        return _left(self.capacity_bytes, self.process_peak_bytes)

    @property
    def free_at_peak_bytes(self) -> int | None:
        """The same at the peak in the window."""
        return _left(self.capacity_bytes, self.peak_bytes)

    @property
    def largest_piece_bytes(self) -> int | None:
        """How much of that is in one piece at most; None where it is not recorded."""
        free, ratio = self.free_at_peak_bytes, self.fragmentation_ratio
        return None if free is None or ratio is None else round(free * (1 - ratio))

    @property
    def steps_to_full(self) -> int | None:
        """After how many more steps memory that grows is full; None where it is not known to."""
        free, growth = self.free_bytes, self.growth
        if free is None or growth is None or growth.bytes_per_step <= 0:
            return None
        return free // growth.bytes_per_step


def _left(capacity: int | None, used: int) -> int | None:
    return None if capacity is None else max(capacity - used, 0)


class PinnedMemory(Record, frozen=True):
    """The pinned memory of a host, from which GPUs copy.

    Attributes:
        host: Name of the host.
        peak_bytes: The most in use in the window.
        event_count: Allocations and frees that were recorded.
    """

    host: Hostname
    peak_bytes: Count
    event_count: Count


class Memory(Record, frozen=True):
    """What fills the memory of the GPUs.

    Attributes:
        devices: GPUs whose allocator recorded anything, in the order of hosts and numbers.
        fullest: Key of the device whose peak is nearest to what it may use.
        layers: What is in use at the peak of that device, by layer, the most first.
        layer_row_count: Rows there are of it, with those that are not here.
        pinned: Pinned memory of the hosts that recorded any.
        programs: XLA programs that ran, those that take most first; no more than ten.
    """

    devices: tuple[DeviceMemory, ...]
    fullest: DeviceKey
    layers: tuple[HeldByLayer, ...]
    layer_row_count: Count
    pinned: tuple[PinnedMemory, ...]
    programs: tuple[ProgramMemory, ...] = ()


def memory_of(context: Context) -> Memory | Skipped:
    """The memory of all GPUs."""
    held = context.once(held_bytes)
    rows = {
        device: _device(context, device, event, held[device])
        for device, event in context.once(peaks).items()
    }
    if not rows:
        return Skipped("no allocator of a GPU recorded what it gave out in the window")
    fullest = max(rows, key=lambda device: _fill(rows[device]))
    layers = _by_layer(held[fullest])
    return Memory(
        devices=tuple(rows.values()),
        fullest=rows[fullest].device,
        layers=tuple(layers[:MOST_ROWS]),
        layer_row_count=len(layers),
        pinned=tuple(_pinned(context)),
        programs=program_memory(context),
    )


_NUMBER: Final = re.compile(r"\d+")


def _by_layer(held: Sequence[HeldBytes]) -> list[HeldByLayer]:
    """The rows of a device by layer, of layers alike but for numbers together, the most first."""
    alike: dict[tuple[str | None, str, str], list[HeldBytes]] = {}
    for row in held:
        pattern = None if row.layer is None else _NUMBER.sub("*", row.layer)
        alike.setdefault((pattern, row.kind, row.phase), []).append(row)
    rows = []
    for (pattern, kind, phase), of_layer in alike.items():
        layers = {row.layer for row in of_layer}
        layer = pattern if len(layers) > 1 else of_layer[0].layer
        size, count = (sum(getattr(row, key) for row in of_layer) for key in ("bytes", "count"))
        rows.append(HeldByLayer(layer, len(layers), kind, phase, size, count))
    return sorted(rows, key=lambda row: (-row.bytes, row.layer or "", row.kind, row.phase))


def _fill(row: DeviceMemory) -> float:
    return row.peak_bytes / (row.capacity_bytes or math.inf)


def peaks(context: Context) -> dict[int, int]:
    """By device with a recorded allocator, in the order of hosts and numbers, the event after which most was in use in the window."""
    found = {}
    of_device = context.trace.once(allocators).of_device
    for device in sorted(of_device, key=context.trace.identity):
        window = context.selection.window_of_device(context.trace, device)
        most = of_device[device].most_in(window) if window else None
        if most is not None:
            found[device] = most
    return found


def held_bytes(context: Context) -> dict[int, tuple[HeldBytes, ...]]:
    """By device what is in use at its peak in the window, the most first; the rows of each sum to the peak."""
    trace, of_device = context.trace, context.trace.once(allocators).of_device
    at = context.once(peaks)
    groups = {device: _groups(trace, of_device[device], event) for device, event in at.items()}
    ops = dict.fromkeys(op for of_ops in groups.values() for op, _ in of_ops if op is not None)
    places = op_places(trace, ops)
    return {
        device: tuple(
            _rows(
                trace.device_key(device),
                int(of_device[device].held_bytes[event]),
                groups[device],
                places,
            )
        )
        for device, event in at.items()
    }


_Groups: TypeAlias = dict[tuple[str | None, str], tuple[int, int]]
"""Bytes and allocations by the recorded op and the kind of what it asked for."""


def _groups(trace: Trace, allocator: Allocator, event: int) -> _Groups:
    """What was given out by an event, and is in use after it."""
    live = allocator.live_after(event)
    rows, size = allocator.row[live], allocator.change_bytes[live]
    if int(size.sum()) > int(allocator.held_bytes[event]):
        # Frees are missing, so it is not known what is in use.
        return {}
    host = trace.host_columns
    op = host.stat("tf_op").at(rows, NONE)
    region = host.stat("region_type").at(rows, NONE)
    pairs, of_row = np.unique(np.stack((op, region), axis=1), axis=0, return_inverse=True)
    sums, counts = np.zeros((2, len(pairs)), dtype=np.int64)
    np.add.at(sums, of_row.ravel(), size)
    np.add.at(counts, of_row.ravel(), 1)
    found: _Groups = {}
    for (name, asked), of_sum, count in zip(
        pairs.tolist(), sums.tolist(), counts.tolist(), strict=True
    ):
        kind = OTHER if asked == NONE else _KINDS.get(trace.names[asked], OTHER)
        key = trace.names.text(name), kind
        known = found.get(key, (0, 0))
        found[key] = known[0] + of_sum, known[1] + count
    return found


def _rows(
    device: str, held: int, groups: _Groups, places: Mapping[str, tuple[Place, Phase]]
) -> list[HeldBytes]:
    """The rows of a device, and last in equal ones what no group has."""
    sums: dict[tuple[str | None, str | None, str, str], tuple[int, int]] = {}
    for (op, kind), (size, count) in groups.items():
        place, phase = places[op] if op is not None else (Place(()), Phase.UNKNOWN)
        # Replicas of an op are one.
        name = None if op is None else split_op(op)[0]
        key = "/".join(place.scopes) or None, name, kind, PHASES.get(phase, OTHER)
        known = sums.get(key, (0, 0))
        sums[key] = known[0] + size, known[1] + count
    rest = held - sum(size for size, _ in sums.values())
    if rest:
        sums[None, None, BEFORE, OTHER] = rest, 0
    rows = [HeldBytes(device, *key, *of_key) for key, of_key in sums.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.op or "", row.kind))


def _device(context: Context, device: int, event: int, held: Sequence[HeldBytes]) -> DeviceMemory:
    trace, allocator = context.trace, context.trace.once(allocators).of_device[device]
    entry = trace.device_list[device]
    peak = int(allocator.held_bytes[event])
    before = sum(row.bytes for row in held if row.kind == BEFORE)
    rows = allocator.row[event : event + 1]
    fragmentation = int(trace.host_columns.stat("fragmentation").at(rows, NONE)[0])
    return DeviceMemory(
        *trace.identity(device),
        capacity_bytes=entry.memory_capacity_bytes or None,
        peak_bytes=peak,
        peak_ps=int(allocator.time_ps[event]),
        process_peak_bytes=max(entry.memory_peak_bytes or 0, peak),
        before_bytes=before,
        allocated_bytes=peak - before,
        forward_bytes=sum(row.bytes for row in held if row.phase == PHASES[Phase.FORWARD]),
        fragmentation_ratio=None if fragmentation == NONE else fragmentation / MILLION,
        growth=_growth(allocator, context.selection.used_of(entry.host)),
        event_count=allocator.row.size,
        unrecorded_bytes=allocator.unrecorded_bytes,
    )


def _growth(allocator: Allocator, steps: Sequence[Step]) -> MemoryGrowth | None:
    """The mean change from one step to the next, of what each keeps in use throughout."""
    if len(steps) <= FEWEST_CHANGES:
        return None
    least = allocator.least_held(*step_bounds(steps))
    number = np.array([step.number for step in steps], dtype=np.int64)
    changes = np.diff(least)[np.diff(number) == 1].astype(np.float64)
    if changes.size < FEWEST_CHANGES:
        return None
    variance, degrees = variance_of_mean(changes)
    # Rounded, for the cache.
    error = student(CONFIDENCE, round(max(degrees, 1.0), 2)) * math.sqrt(variance)
    mean = float(changes.mean())
    return MemoryGrowth(round(mean), round(mean - error), round(mean + error), changes.size)


def _pinned(context: Context) -> Iterator[PinnedMemory]:
    for host, allocator in context.trace.once(allocators).of_host.items():
        window = context.selection.windows.get(host)
        most = allocator.most_in(window) if window else None
        if most is not None:
            name, held = context.trace.hosts[host].name, int(allocator.held_bytes[most])
            yield PinnedMemory(name, held, allocator.row.size)
