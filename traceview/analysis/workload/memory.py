"""Memory of GPUs: what fills it at its peak, and whether it grows, is nearly full, or has room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.facts.devices import devices_in_use
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.device_memory import (
    BEFORE,
    DeviceMemory,
    HeldBytes,
    HeldMemory,
    Memory,
    ProgramMemory,
    held_bytes,
    memory_of,
)
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Argument, Number, Size
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown, columns, table
from traceview.document.phrase import Sentence, Token, phrase
from traceview.trace.device.memory import allocators
from traceview.trace.device.table import Table, record_columns
from traceview.trace.device.table import table as data_table

# Rules

_LESS: Final = (
    "A smaller batch, 16-bit activations and recomputing activations in the backward pass (`tf.recompute_grad`, "
    "`jax.checkpoint`) take less."
)

NEAR_LIMIT: Final = Rule(
    code="memory-near-limit",
    severity="info",
    limits={"full_ratio": 0.95},
    starts_at="a peak since the start of the process of at least {full_ratio} of what the allocator may give out",
    title="{who:has/have} {free} of {capacity} memory left at the peak",
    meaning=(
        "A longer sequence or a larger batch may run out of memory, and cuDNN may choose slower algorithms for lack of "
        "workspace."
    ),
    action="Look at what fills the memory: `traceview show memory LOGDIR`.",
    advice=_LESS,
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
    meaning=(
        "On average each step leaves more in use than the one before. If that goes on, the job runs out of memory. Common causes: "
        "tensors kept in a list, such as losses, and functions traced anew."
    ),
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
    reasons={
        "": "the interval holds what further steps would show, if they are like those recorded"
    },
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
        "What was in use before the capture, such as variables, does not grow with the batch. This is a bound: it holds if nothing "
        "that steps allocate grows faster than the batch, and if free memory is in pieces that are large enough."
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
    fullest = min(rows, key=lambda row: row.free_bytes, default=None)
    if fullest is None:
        return None
    return NEAR_LIMIT.about(
        context,
        rows,
        {"free": Size(fullest.free_bytes), "capacity": Size(fullest.most_bytes)},
        evidence=[
            Evidence("process_peak_bytes", row.process_peak_bytes, least[row.device], row.device)
            for row in rows
        ],
    )


def _growing(context: Context, devices: Sequence[DeviceMemory]) -> Finding | None:
    most_steps = GROWING.limits["full_after_count"]
    rows = [
        row
        for row in devices
        if row.growth_bytes_per_step
        and (row.steps_to_full is None or row.steps_to_full <= most_steps)
    ]
    if not rows:
        return None
    arguments: dict[str, Argument] = {
        "growth": Size(max(row.growth_bytes_per_step or 0 for row in rows))
    }
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
    return HEADROOM.about(
        context,
        rows,
        {"free": Size(tightest.free_bytes), "allocated": Size(tightest.allocated_bytes)},
        confidence=("medium", ""),
        evidence=[
            Evidence("free_bytes", row.free_bytes, row.allocated_bytes, row.device) for row in rows
        ],
    )


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
    Shown(
        "fragmentation",
        "fragmentation_ratio",
        5,
        meaning="free memory outside of the largest piece",
    ),
    Shown("growth per step", "growth_bytes_per_step", 7, "bytes"),
)
_LAYER_COLUMNS: Final = (
    Shown("held by", lambda row: _holder(row), kind="words"),
    Shown("in use", "bytes"),
    Shown("kind", lambda row: row.kind, 1),
    Shown("phase", lambda row: row.phase, 2),
    Shown("layers", "name_count", 4),
    Shown("allocations", "count", 3),
)


def _holder(row: HeldMemory) -> Sentence:
    if row.held_by is None:
        return "before the capture" if row.kind == BEFORE else "no layer"
    return (Token(row.held_by, "name"),)


def section(view: View, result: Memory) -> doc.Section:
    """A row per GPU, and what is in use at the peak of the fullest, if it is one of those that were chosen."""
    shown = f"{view.command('show memory')} -o memory.csv"
    fullest = next((row for row in result.devices if row.device == result.fullest), None)
    layers = result.layers[: view.most_rows] if fullest else ()
    unrecorded = ", ".join(
        f"{row.device} {numbers.size(row.unrecorded_bytes)}"
        for row in result.devices
        if row.unrecorded_bytes
    )
    return doc.Section(
        "memory",
        "Memory",
        (
            *view.device_table("Memory of GPUs", result.devices, _DEVICE_COLUMNS, "memory"),
            *(_layers(result, layers, shown) if fullest else ()),
            *_programs(result.programs, view.most_rows),
            *doc.remarks(
                "Numbers in names of layers are stars where several layers are in one row."
                if any(row.name_count > 1 for row in layers)
                else None,
                "What was in use before the capture has no recorded op."
                if any(row.before_bytes for row in result.devices)
                else None,
                f"Changes without an event: {unrecorded}. They count as in use before the capture."
                if unrecorded
                else None,
            ),
        ),
        lead=_lead(fullest) if fullest else "",
    )


def _layers(result: Memory, layers: Sequence[HeldMemory], shown: str) -> Iterator[doc.Block]:
    yield doc.Subheading(phrase("In use at the peak of ", Token(result.fullest, "device")))
    yield from doc.table(
        "In use at the peak",
        columns(layers, _LAYER_COLUMNS),
        row_count=result.layer_row_count,
        rest=shown,
    )


_PROGRAM_COLUMNS: Final = (
    Shown("program", "program", kind="name"),
    Shown("while it runs", "whole_bytes"),
    Shown("arguments", "argument_bytes", 1, meaning="with the results that take their place"),
    Shown("results", "result_bytes", 1),
    Shown("temporaries", "temporary_bytes", 1, meaning="allocated at once for a run"),
    Shown("of these live", "live_bytes", 2, meaning="the most that is in use at the same time"),
)
_HELD_COLUMNS: Final = (
    Shown("held by", lambda row: row.held_by or "no layer", kind="name"),
    Shown("in use", "bytes"),
    Shown("kind", lambda row: row.kind),
    Shown("phase", lambda row: row.phase, 2),
    Shown("buffers", "count", 3),
)


def _programs(programs: Sequence[ProgramMemory], most_rows: int) -> Iterator[doc.Block]:
    """What programs take by their own account, and what is live at the peak of the largest."""
    if not programs:
        return
    yield doc.Subheading("What XLA programs take while they run")
    yield from table("Programs", programs, _PROGRAM_COLUMNS, most_rows=most_rows)
    largest = programs[0]
    if largest.held:
        yield doc.Subheading(phrase("Live at the peak of ", Token(largest.program, "name")))
        yield from table("Live at the peak", largest.held, _HELD_COLUMNS, most_rows=most_rows)


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
    compute=memory_of,
    rules=(NEAR_LIMIT, GROWING, HEADROOM),
    leads=lambda context: bool(context.trace.once(allocators)),
    diagnose=diagnose,
    sections=(section,),
    table=memory_table,
)
