"""Memory of GPUs: what fills it at its peak, what XLA programs take, and whether it grows, is nearly full, or has room."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import numpy as np

from traceview.analysis.facts.devices import devices_in_use
from traceview.analysis.facts.layers import Place, op_places
from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Argument, Number, Quantity
from traceview.base.ids import groups_of
from traceview.base.record import Count, DeviceKey, FunctionName, OpName, Record, Share, one_of
from traceview.base.stats import student, variance_of_mean
from traceview.base.text import lazy_pattern
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown, columns, table
from traceview.document.phrase import Sentence, Token, phrase
from traceview.trace.columns import NONE
from traceview.trace.device.memory import Allocator, allocators
from traceview.trace.device.op_names import Phase, split_op
from traceview.trace.device.table import Table, record_columns
from traceview.trace.device.table import table as data_table
from traceview.trace.model import Step, Trace
from traceview.xplane.columns import BUFFER_KINDS, ProgramBuffers
from traceview.xplane.planes import MILLION

MOST_ROWS: Final = 100
"""Of layers in a report; `traceview show memory` has all ops of all devices."""

MOST_PROGRAMS: Final = 10
MOST_PROGRAM_ROWS: Final = 50
"""Of a program in a report."""

BEFORE: Final = "before"
OTHER: Final = "other"
PHASES: Final = {
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
}
_KINDS: Final = {b"output": "output", b"temp": "temp", b"persist": "persistent"}
"""Kinds of memory that ops ask for, by `region_type`."""

_NUMBER: Final = lazy_pattern(r"\d+")
_ID: Final = lazy_pattern(r"\(\d*\)$")

CONFIDENCE: Final = 0.95
"""Share of the intervals of growth that hold what further steps would show."""


class HeldBytes(Record, frozen=True):
    """Memory of one op that is in use on a device at its peak in the window. The rows of a device sum to its peak.

    Attributes:
        device: Key of the device.
        layer: The layer that the op is in; null where its name shows none.
        op: Name of the op; null for what was in use before, and where no op is recorded.
        kind: before: in use before the capture, or without a recorded allocation; output, temp, persistent, other: allocated in
            the capture as an output, a temporary or a persistent buffer of an op, or for what is not recorded.
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
        held_by: The layer, or the argument of a program, with stars for numbers if there are several; null where not known.
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
        fragmentation_ratio: Share of free memory outside of its largest piece, at the peak; null where not recorded.
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


def compute(context: Context) -> Memory | Skipped:
    """The memory of all GPUs."""
    held = context.once(held_bytes)
    rows = {
        device: _device(context, device, event, held[device])
        for device, event in context.once(_peaks).items()
    }
    if not rows:
        return Skipped("no allocator of a GPU recorded what it gave out in the window")
    fullest = max(
        rows, key=lambda each: rows[each].peak_bytes / (rows[each].most_bytes or math.inf)
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


def _program(trace: Trace, of: ProgramBuffers) -> ProgramMemory:
    """A program with all that is live at its peak, the most first."""
    places = op_places(trace, dict.fromkeys(live.scope for live in of.live))
    rows = []
    for live in of.live:
        place, phase = places[live.scope]
        name = live.scope if live.kind == BUFFER_KINDS[0] else "/".join(place.scopes)
        rows.append((name, live.kind, PHASES.get(phase, OTHER), live.bytes, live.count))
    return ProgramMemory(
        program=_ID.sub("", of.program.decode("utf-8", "replace")),
        argument_bytes=of.argument_bytes,
        result_bytes=of.result_bytes,
        constant_bytes=of.constant_bytes,
        temporary_bytes=of.temporary_bytes,
        live_bytes=of.peak_bytes,
        held=tuple(_joined(rows)[:MOST_PROGRAM_ROWS]),
    )


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


def _peaks(context: Context) -> dict[int, int]:
    """By device with a recorded allocator, in the order of hosts and numbers, the event after which most was in use in the window."""
    events, of_device = {}, context.trace.once(allocators)
    for device in sorted(of_device, key=context.trace.identity):
        window = context.selection.window_of_device(context.trace, device)
        most = of_device[device].most_in(window) if window else None
        if most is not None:
            events[device] = most
    return events


_Live: TypeAlias = list[tuple[str | None, str, int, int]]
"""The recorded op, the kind of what it asked for, bytes and allocations."""


def held_bytes(context: Context) -> dict[int, list[HeldBytes]]:
    """By device what is in use at its peak in the window, the most first; the rows of each sum to the peak."""
    trace, of_device = context.trace, context.trace.once(allocators)
    peaks = context.once(_peaks)
    live = {device: _live(trace, of_device[device], event) for device, event in peaks.items()}
    ops = dict.fromkeys(op for of_ops in live.values() for op, *_ in of_ops if op is not None)
    places, found = op_places(trace, ops), {}
    for device, event in peaks.items():
        held, key = of_device[device].held_at(event), trace.device_key(device)
        found[device] = _rows(key, held, live[device], places)
    return found


def _live(trace: Trace, allocator: Allocator, event: int) -> _Live:
    """Memory that was given out by an event, and is in use after it."""
    live = allocator.live_after(event)
    rows, size = allocator.row[live], allocator.change_bytes[live]
    if int(size.sum()) > allocator.held_at(event):
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
    if rest := held - sums.total():
        sums[None, None, BEFORE, OTHER] = rest
    rows = [HeldBytes(device, *key, size, counts[key]) for key, size in sums.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.op or "", row.kind))


def _device(context: Context, device: int, event: int, held: Sequence[HeldBytes]) -> DeviceMemory:
    trace, allocator = context.trace, context.trace.once(allocators)[device]
    steps = context.selection.used_of(trace.device_list[device].host)
    peak = allocator.held_at(event)
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
    fewest = GROWING.limits["fewest_count"]
    if len(steps) <= fewest:
        return None
    least = allocator.least_held(*step_bounds(steps))
    number = np.array([step.number for step in steps], dtype=np.int64)
    changes = np.diff(least)[np.diff(number) == 1].astype(np.float64)
    if changes.size < fewest:
        return None
    variance, degrees = variance_of_mean(changes)
    # Rounded, for the cache.
    error = student(CONFIDENCE, round(max(degrees, 1.0), 2)) * math.sqrt(variance)
    mean = float(changes.mean())
    return round(mean) if mean - error > 0 else None


# Rules

NEAR_LIMIT: Final = Rule(
    code="memory-near-limit",
    severity="info",
    limits={"full_ratio": 0.95},
    starts_at="since the start of the process at least {full_ratio} of what the allocator may give out was in use",
    title="{who:has/have} {free} of {capacity} memory left at the peak",
    meaning="A larger batch may run out of memory, and cuDNN may choose slower algorithms for lack of workspace.",
    action="Look at what fills the memory: `traceview show memory LOGDIR`.",
    advice="A smaller batch, 16-bit activations and recomputing them (`tf.recompute_grad`, `jax.checkpoint`) take less.",
    metrics={"process_peak_bytes": "peak since the process started"},
    example="GPU:0 has 310 MB of 15.5 GB memory left at the peak",
)

GROWING: Final = Rule(
    code="memory-growing",
    severity="warning",
    limits={"fewest_count": 4, "full_after_count": 100_000},
    starts_at=(
        "the 95% interval of the change of the least memory in use from step to step, of at least {fewest_count} changes, above "
        "zero, and memory for at most {full_after_count} steps"
    ),
    title="Memory of {who:grows/grow} by {growth} each step[: full after {steps}]",
    meaning="On average each step leaves more in use, such as tensors kept in a list (losses), or functions that are traced anew.",
    action="Keep numbers instead of tensors: `float(loss)`; and look whether functions are traced in every step.",
    advice=(
        "`traceview show memory LOGDIR` names the ops whose results are in use at the peak. A cache that fills up stops growing: "
        "capture later steps to see."
    ),
    actions={
        "jax": (
            "Keep numbers instead of arrays: `float(loss)`; and look whether functions are compiled anew.",
            "A cache that fills up stops growing: capture later steps to see.",
        )
    },
    reasons={"": "the interval holds what further steps like those recorded would show"},
    metrics={"growth_bytes_per_step": "growth"},
    example="Memory of GPU:0 grows by 12.6 MB each step: full after 740 steps",
)

HEADROOM: Final = Rule(
    code="batch-headroom",
    severity="info",
    limits={"fewest_count": 2, "forward_ratio": 0.5, "free_ratio": 0.2},
    starts_at=(
        "at the peak of every GPU that computes at least {free_ratio} of what its allocator may give out is free, and as much as was "
        "allocated in the capture, of which at least {forward_ratio} is of the forward pass; the process never used more, no event is "
        "missing, at least {fewest_count} used steps"
    ),
    title="Twice the batch fits: {free} free at the peak, {allocated} allocated in steps",
    meaning=(
        "What was in use before the capture, such as variables, does not grow with the batch. Twice the batch fits if nothing that "
        "steps allocate grows faster, and if free memory is in pieces that are large enough."
    ),
    action="Try a batch twice as large if steps wait for the host, and see whether examples per second rise.",
    advice="The learning rate may have to change with the batch.",
    reasons={"": "a bound from what was in use at the peak"},
    metrics={
        "free_bytes": "free at the peak",
        "allocated_bytes": "allocated in the capture, at the peak",
    },
    example="Twice the batch fits: 9.27 GB free at the peak, 2.20 GB allocated in steps",
)


def diagnose(context: Context, result: Memory) -> Iterator[Finding | None]:
    """What is wrong with the memory of devices, and whether there is room."""
    yield _near_limit(context, [row for row in result.devices if row.capacity_bytes])
    yield _growing(context, result.devices)
    yield _headroom(context, result.devices)


def _near_limit(context: Context, devices: Sequence[DeviceMemory]) -> Finding | None:
    least = {row.device: int(NEAR_LIMIT.limits["full_ratio"] * row.most_bytes) for row in devices}
    rows = [row for row in devices if row.process_peak_bytes >= least[row.device]]
    if not rows:
        return None
    fullest = min(rows, key=lambda row: row.free_bytes)
    arguments = {
        "free": Quantity(fullest.free_bytes, "bytes"),
        "capacity": Quantity(fullest.most_bytes, "bytes"),
    }
    peaks = ((row.process_peak_bytes, least[row.device], row.device) for row in rows)
    evidence = [Evidence("process_peak_bytes", *peak) for peak in peaks]
    return NEAR_LIMIT.about(context, rows, arguments, evidence=evidence)


def _growing(context: Context, devices: Sequence[DeviceMemory]) -> Finding | None:
    most_steps = GROWING.limits["full_after_count"]
    growing = [row for row in devices if row.growth_bytes_per_step]
    rows = [row for row in growing if (row.steps_to_full or 0) <= most_steps]
    growth = max((row.growth_bytes_per_step or 0 for row in rows), default=0)
    arguments: dict[str, Argument] = {"growth": Quantity(growth, "bytes")}
    left = [row.steps_to_full for row in rows if row.steps_to_full is not None]
    if left:
        arguments["steps"] = Number(min(left), "step")
    return GROWING.about(
        context, rows, arguments, "growth_bytes_per_step", confidence=("medium", "")
    )


def _headroom(context: Context, devices: Sequence[DeviceMemory]) -> Finding | None:
    trace, selection = context.trace, context.selection
    used = devices_in_use(context)
    keys = set(map(trace.device_key, used))
    rows = [row for row in devices if row.device in keys]
    step_counts = [len(selection.used_of(trace.device_list[device].host)) for device in used]
    is_known = len(rows) == len(used) and all(map(_fits_twice, rows))
    if not is_known or min(step_counts, default=0) < HEADROOM.limits["fewest_count"]:
        return None
    tightest = min(rows, key=lambda row: row.free_bytes / row.allocated_bytes)
    arguments = {
        "free": Quantity(tightest.free_bytes, "bytes"),
        "allocated": Quantity(tightest.allocated_bytes, "bytes"),
    }
    sizes = ((row.free_bytes, row.allocated_bytes, row.device) for row in rows)
    evidence = [Evidence("free_bytes", *each) for each in sizes]
    return HEADROOM.about(context, rows, arguments, confidence=("medium", ""), evidence=evidence)


def _fits_twice(row: DeviceMemory) -> bool:
    """Whether the numbers of a device say that twice of what was allocated in the capture fits."""
    limits = HEADROOM.limits
    return (
        not row.unrecorded_bytes
        and row.process_peak_bytes == row.peak_bytes
        and not row.growth_bytes_per_step
        and 0 < row.allocated_bytes <= row.free_bytes
        and row.free_bytes >= limits["free_ratio"] * row.most_bytes
        and row.forward_bytes >= limits["forward_ratio"] * row.allocated_bytes
    )


# Section

_DEVICE_COLUMNS: Final = (
    DEVICE,
    Shown("peak", "peak_bytes", meaning="in the window"),
    Shown(
        "of what it may use", lambda row: doc.ratio(row.peak_bytes, row.capacity_bytes), 1, "share"
    ),
    Shown("peak since start", "process_peak_bytes", 6, meaning="since the process started"),
    Shown("from before", "before_bytes", 2, meaning="of the peak, in use before the capture"),
    Shown("allocated", "allocated_bytes", 3, meaning="of the peak, allocated in the capture"),
    Shown("forward", "forward_bytes", 4, meaning="of that, by ops of the forward pass"),
    Shown("fragmentation", "fragmentation_ratio", 5, meaning="free, outside of the largest piece"),
    Shown("growth per step", "growth_bytes_per_step", 7, "bytes"),
)


def _holder(row: HeldMemory) -> Sentence:
    if row.held_by is None:
        return "before the capture" if row.kind == BEFORE else "no layer"
    return (Token(row.held_by, "name"),)


_HELD_COLUMNS: Final = (
    Shown("held by", _holder, kind="words"),
    Shown("in use", "bytes"),
    Shown("kind", lambda row: row.kind, 1),
    Shown("phase", lambda row: row.phase, 2),
)
_LAYER_COLUMNS: Final = (
    *_HELD_COLUMNS,
    Shown("layers", "name_count", 4),
    Shown("allocations", "count", 3),
)
_PROGRAM_COLUMNS: Final = (
    Shown("program", "program", kind="name"),
    Shown("while it runs", "whole_bytes"),
    Shown("arguments", "argument_bytes", 1, meaning="with the results that take their place"),
    Shown("results", "result_bytes", 1),
    Shown("temporaries", "temporary_bytes", 1, meaning="allocated at once for a run"),
    Shown("of these live", "live_bytes", 2, meaning="the most that is in use at the same time"),
)


def section(view: View, result: Memory) -> doc.Section:
    """A row per GPU, what is in use at the peak of the fullest, if it is one of those that were chosen, and programs."""
    blocks = list(view.device_table("Memory of GPUs", result.devices, _DEVICE_COLUMNS, "memory"))
    fullest = next((row for row in result.devices if row.device == result.fullest), None)
    layers = result.layers[: view.most_rows] if fullest else ()
    if fullest:
        peak = phrase("In use at the peak of ", Token(result.fullest, "device"))
        blocks += [
            doc.Subheading(peak),
            *doc.table(
                "In use at the peak",
                columns(layers, _LAYER_COLUMNS),
                row_count=result.layer_row_count,
                rest=f"{view.command('show memory')} -o memory.csv",
            ),
        ]
    if result.programs:
        shown, largest = (*_HELD_COLUMNS, Shown("buffers", "count", 3)), result.programs[0]
        blocks += [
            doc.Subheading("What XLA programs take while they run"),
            *table("Programs", result.programs, _PROGRAM_COLUMNS, most_rows=view.most_rows),
        ]
        if largest.held:
            blocks += [
                doc.Subheading(phrase("Live at the peak of ", Token(largest.program, "name"))),
                *table("Live at the peak", largest.held, shown, most_rows=view.most_rows),
            ]
    is_joined = any(row.name_count > 1 for row in layers)
    has_before = any(row.before_bytes for row in result.devices)
    unrecorded = ", ".join(
        f"{row.device} {numbers.size(row.unrecorded_bytes)}"
        for row in result.devices
        if row.unrecorded_bytes
    )
    blocks += doc.remarks(
        "Stars in names stand for the numbers of several layers." if is_joined else None,
        "What was in use before the capture has no recorded op." if has_before else None,
        f"Changes without an event: {unrecorded}. They count as in use before the capture."
        if unrecorded
        else None,
    )
    return doc.Section("memory", "Memory", tuple(blocks), lead=_lead(fullest) if fullest else "")


def _lead(row: DeviceMemory) -> Sentence:
    device = Token(row.device, "device")
    of = f" of {numbers.size(row.capacity_bytes)}" if row.capacity_bytes else ""
    before = f"{numbers.size(row.before_bytes)} of it from before the capture"
    return phrase(device, f" is fullest: {numbers.size(row.peak_bytes)}{of} at its peak, {before}.")


def memory_table(context: Context) -> Table:
    """What is in use at the peak of each GPU, by op; the rows of a GPU sum to its peak."""
    rows = [row for of_device in context.once(held_bytes).values() for row in of_device]
    return data_table("memory", *record_columns(HeldBytes, rows))


ANALYSIS: Final = Analysis[Memory](
    "memory",
    compute=compute,
    rules=(NEAR_LIMIT, GROWING, HEADROOM),
    diagnose=diagnose,
    sections=(section,),
    table=memory_table,
)
