"""States what fills the memory of each GPU: what was there before the capture, which ops hold the rest, what XLA programs take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import numpy as np

from traceview.analysis.facts.layers import Place, op_places
from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import OfDevice, Skipped
from traceview.base.ids import groups_of
from traceview.base.record import (
    Count,
    DeviceKey,
    FunctionName,
    OpName,
    Record,
    Share,
    one_of,
)
from traceview.base.stats import student, variance_of_mean
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE
from traceview.trace.device.memory import Allocator, allocators
from traceview.trace.device.op_names import Phase, split_op
from traceview.trace.model import Recording, Step, Trace
from traceview.xplane.columns import BUFFER_KINDS, ProgramBuffers
from traceview.xplane.planes import MILLION

MOST_ROWS: Final = 100
"""Of layers in a report; `traceview show memory` has all ops of all devices."""

MOST_PROGRAMS: Final = 10
MOST_PROGRAM_ROWS: Final = 50
"""Of a program in a report."""

OTHER: Final = "other"
PHASES: Final = {
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
}
_ARGUMENT: Final = BUFFER_KINDS[0]
_NUMBER: Final = lazy_pattern(r"\d+")
_ID: Final = lazy_pattern(r"\(\d*\)$")

FEWEST_CHANGES: Final = 4
"""From one used step to the next; of fewer no growth is stated."""

CONFIDENCE: Final = 0.95
"""Share of the intervals of growth that hold what further steps would show."""

BEFORE: Final = "before"
_KINDS: Final = {b"output": "output", b"temp": "temp", b"persist": "persistent"}
"""Kinds of memory that ops ask for, by `region_type`."""


class HeldBytes(Record, frozen=True):
    """Memory of one op that is in use on a device at its peak in the window. The rows of a device sum to its peak.

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


class HeldMemory(Record, frozen=True):
    """Memory in use at a peak, of a layer or an argument and those that are called alike but for numbers.

    Attributes:
        held_by: The layer, or of a program the name of an argument, with a star for each number if there are several; null
            where no name shows one.
        name_count: How many layers or arguments.
        kind: Of a device as in the rows of ops; of a program argument, result, constant or temporary.
        phase: As in the rows of ops.
        bytes: How many bytes.
        count: In how many allocations or buffers; 0 for what was in use before.
    """

    held_by: OpName | None
    name_count: Count
    kind: Annotated[str, one_of(BEFORE, *_KINDS.values(), OTHER, *BUFFER_KINDS)]
    phase: Annotated[str, one_of(*PHASES.values(), OTHER)]
    bytes: Count
    count: Count


class DeviceMemory(OfDevice, frozen=True):
    """The memory of one GPU, as its allocator reports it.

    Attributes:
        capacity_bytes: The most that the allocator may give out; null where not recorded.
        peak_bytes: The most in use in the window.
        process_peak_bytes: The most in use since the process started.
        before_bytes: Of the peak, what was in use before the capture or has no recorded allocation.
        allocated_bytes: Of the peak, what was allocated in the capture.
        forward_bytes: Of that, what ops of the forward pass hold.
        fragmentation_ratio: Share of the allocator's free memory outside of its largest free piece, at the peak; null where
            not recorded.
        growth_bytes_per_step: By how much the least memory in use of a step exceeds that of the step before, mean; null where the
            95% interval of that holds zero, and with too few steps.
        unrecorded_bytes: By how much what is in use changed without a recorded event, up and down together.
    """

    capacity_bytes: Count | None
    peak_bytes: Count
    process_peak_bytes: Count
    before_bytes: Count
    allocated_bytes: Count
    forward_bytes: Count
    fragmentation_ratio: Share | None
    growth_bytes_per_step: Count | None
    unrecorded_bytes: Count

    @property
    def most_bytes(self) -> int:
        """The most that the allocator may give out; 0 where that is not recorded, which leaves nothing free."""
        return self.capacity_bytes or 0

    @property
    def free_bytes(self) -> int:
        """Bytes that the allocator may still give out at the peak of the process."""
        return max(self.most_bytes - self.process_peak_bytes, 0)

    @property
    def steps_to_full(self) -> int | None:
        """After how many more steps memory that grows is full; None where it is not known to."""
        if not self.most_bytes or not self.growth_bytes_per_step:
            return None
        return self.free_bytes // self.growth_bytes_per_step


# What programs say


class ProgramMemory(Record, frozen=True):
    """Memory of an XLA program that ran by its own account, on each of its devices.

    Attributes:
        program: Name of the program.
        argument_bytes: Of its arguments, and of the results that take their place.
        result_bytes: Of its other results; temporaries may be in them meanwhile.
        constant_bytes: Of its constants.
        temporary_bytes: What a run allocates for temporaries.
        live_bytes: The most of these that is in use at the same time.
        held: What is in use then, by layer or argument, the most first; only of the three programs of a host that take most.
    """

    program: FunctionName
    argument_bytes: Count
    result_bytes: Count
    constant_bytes: Count
    temporary_bytes: Count
    live_bytes: Count
    held: tuple[HeldMemory, ...]

    @property
    def whole_bytes(self) -> int:
        """All that it takes while it runs."""
        return self.argument_bytes + self.result_bytes + self.constant_bytes + self.temporary_bytes


def _program(trace: Recording, of: ProgramBuffers) -> ProgramMemory:
    return ProgramMemory(
        program=_ID.sub("", of.program.decode("utf-8", "replace")),
        argument_bytes=of.argument_bytes,
        result_bytes=of.result_bytes,
        constant_bytes=of.constant_bytes,
        temporary_bytes=of.temporary_bytes,
        live_bytes=of.peak_bytes,
        held=tuple(_held(trace, of)[:MOST_PROGRAM_ROWS]),
    )


def _held(trace: Recording, of: ProgramBuffers) -> list[HeldMemory]:
    """Rows of all that is live at the peak, the most first."""
    places = op_places(trace, dict.fromkeys(live.scope for live in of.live))
    live_rows = []
    for live in of.live:
        place, phase = places[live.scope]
        name = live.scope if live.kind == _ARGUMENT else "/".join(place.scopes)
        live_rows.append((name, live.kind, PHASES.get(phase, OTHER), live.bytes, live.count))
    return _joined(live_rows)


def _joined(rows: Iterable[tuple[str, str, str, int, int]]) -> list[HeldMemory]:
    """Rows that are called alike but for numbers as one, the most bytes first.

    `rows`: name, kind, phase, bytes and allocations; "" is no name.
    """
    groups: dict[tuple[str, str, str], list[tuple[str, int, int]]] = {}
    for name, kind, phase, size, count in rows:
        pattern = _NUMBER.sub("*", name)
        groups.setdefault((pattern, kind, phase), []).append((name, size, count))
    joined = []
    for (pattern, kind, phase), members in groups.items():
        names, sizes, counts = zip(*members, strict=True)
        name_count = len(set(names))
        shown = pattern if name_count > 1 else names[0]
        joined.append(HeldMemory(shown or None, name_count, kind, phase, sum(sizes), sum(counts)))
    return sorted(joined, key=lambda row: (-row.bytes, row.held_by or "", row.kind, row.phase))


# The memory of a run


class Memory(Record, frozen=True):
    """The memory of the GPUs.

    Attributes:
        devices: GPUs whose allocator recorded anything, in the order of hosts and numbers.
        fullest: Key of the device whose peak is nearest to what it may use.
        layers: What is in use at the peak of that device, by layer, the most first.
        layer_row_count: Rows there are of it, with those that are not here.
        programs: XLA programs that ran, those that take most first; no more than ten.
    """

    devices: tuple[DeviceMemory, ...]
    fullest: DeviceKey
    layers: tuple[HeldMemory, ...]
    layer_row_count: Count
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
    fullest = max(
        rows, key=lambda device: rows[device].peak_bytes / (rows[device].capacity_bytes or math.inf)
    )
    layers = _joined(
        (row.layer or "", row.kind, row.phase, row.bytes, row.count) for row in held[fullest]
    )
    ranked = sorted(context.trace.program_buffers, key=lambda of: (-of.whole_bytes, of.program))
    return Memory(
        devices=tuple(rows.values()),
        fullest=rows[fullest].device,
        layers=tuple(layers[:MOST_ROWS]),
        layer_row_count=len(layers),
        programs=tuple(_program(context.trace, of) for of in ranked[:MOST_PROGRAMS]),
    )


def peaks(context: Context) -> dict[int, int]:
    """By device with a recorded allocator, in the order of hosts and numbers, the event after which most was in use in the window."""
    events = {}
    of_device = context.trace.once(allocators)
    for device in sorted(of_device, key=context.trace.identity):
        window = context.selection.window_of_device(context.trace, device)
        most = of_device[device].most_in(window) if window else None
        if most is not None:
            events[device] = most
    return events


def held_bytes(context: Context) -> dict[int, list[HeldBytes]]:
    """By device what is in use at its peak in the window, the most first; the rows of each sum to the peak."""
    trace, of_device = context.trace, context.trace.once(allocators)
    at = context.once(peaks)
    live = {device: _live(trace, of_device[device], event) for device, event in at.items()}
    ops = dict.fromkeys(op for of_ops in live.values() for op, *_ in of_ops if op is not None)
    places = op_places(trace, ops)
    return {
        device: _rows(
            trace.device_key(device), int(of_device[device].held_bytes[event]), live[device], places
        )
        for device, event in at.items()
    }


_Live: TypeAlias = list[tuple[str | None, str, int, int]]
"""The recorded op, the kind of what it asked for, bytes and allocations."""


def _live(trace: Trace, allocator: Allocator, event: int) -> _Live:
    """Memory that was given out by an event, and is in use after it."""
    live = allocator.live_after(event)
    rows, size = allocator.row[live], allocator.change_bytes[live]
    if int(size.sum()) > int(allocator.held_bytes[event]):
        # Frees are missing, so it is not known what is in use.
        return []
    op, region = (trace.host_columns.stat(key).at(rows, NONE) for key in ("tf_op", "region_type"))
    of_ops = []
    for alike in groups_of(op, region):
        name, asked = int(op[alike[0]]), int(region[alike[0]])
        kind = OTHER if asked == NONE else _KINDS.get(trace.names[asked], OTHER)
        of_ops.append((trace.names.text(name), kind, int(size[alike].sum()), alike.size))
    return of_ops


def _rows(
    device: str, held: int, live: _Live, places: Mapping[str, tuple[Place, Phase]]
) -> list[HeldBytes]:
    """The rows of a device, and last in equal ones what no op has."""
    sums: Counter[tuple[str | None, str | None, str, str]] = Counter()
    counts = sums.copy()
    for op, kind, size, count in live:
        place, phase = places[op] if op is not None else (Place(()), Phase.UNKNOWN)
        # Replicas of an op are one.
        name = None if op is None else split_op(op)[0]
        key = "/".join(place.scopes) or None, name, kind, PHASES.get(phase, OTHER)
        sums[key] += size
        counts[key] += count
    rest = held - sums.total()
    if rest:
        sums[None, None, BEFORE, OTHER] = rest
    rows = [HeldBytes(device, *key, size, counts[key]) for key, size in sums.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.op or "", row.kind))


def _device(context: Context, device: int, event: int, held: Sequence[HeldBytes]) -> DeviceMemory:
    trace, allocator = context.trace, context.trace.once(allocators)[device]
    steps = context.selection.used_of(trace.device_list[device].host)
    peak = int(allocator.held_bytes[event])
    before = sum(row.bytes for row in held if row.kind == BEFORE)
    rows = allocator.row[event : event + 1]
    fragmentation = int(trace.host_columns.stat("fragmentation").at(rows, NONE)[0])
    return DeviceMemory(
        *trace.identity(device),
        capacity_bytes=allocator.capacity_bytes or None,
        peak_bytes=peak,
        process_peak_bytes=allocator.peak_bytes,
        before_bytes=before,
        allocated_bytes=peak - before,
        forward_bytes=sum(row.bytes for row in held if row.phase == PHASES[Phase.FORWARD]),
        fragmentation_ratio=None if fragmentation == NONE else fragmentation / MILLION,
        growth_bytes_per_step=_growth(allocator, steps),
        unrecorded_bytes=allocator.unrecorded_bytes,
    )


def _growth(allocator: Allocator, steps: Sequence[Step]) -> int | None:
    """The mean change from one step to the next, of what each keeps in use throughout; None where it may be no growth."""
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
    return round(mean) if mean - error > 0 else None
