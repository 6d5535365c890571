"""Measures the copies between host and GPUs: how long they are exposed, how fast they are, and which ops issue them.

Exposed time is that of the ledger: a copy under compute or a collective costs nothing. Where copies overlap each other,
each instant belongs to the first direction, and within a direction to the copy that began first. The exposed times of
single copies therefore add up exactly to that of their direction.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict

from traceview.analysis.facts.selection import rows_in, step_bounds
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.device_report import COPIES, ActivityTime, in_windows
from traceview.analysis.rules.finding import OfDevice, Skipped
from traceview.base.ids import groups_of, unique_ids
from traceview.base.intervals import Int64Array
from traceview.base.record import (
    LARGEST,
    Count,
    DeviceKey,
    OpName,
    OpType,
    Picoseconds,
    Record,
    Share,
    ThreadName,
    Words,
    one_of,
)
from traceview.base.stats import median_ps
from traceview.base.units import PS_PER_MS, PS_PER_S
from traceview.ledger.table import Ledger, totals
from traceview.trace.device.copies import Copies, copies_of
from traceview.trace.device.op_names import split_op
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.trace.sidecar.links import pcie_bytes_per_second
from traceview.trace.windows import Window
from traceview.xplane.host_names import op_type
from traceview.xplane.planes import CLASS_KEYS, ActivityClass, HostMemory

SMALL_BYTES: Final = 64 * 1024
"""Copies below this are small: they take latency rather than bandwidth."""

SMALL_SIZE: Final = f"{SMALL_BYTES // 1024} KiB"

HANDOVER_PS: Final = PS_PER_MS
"""An event that begins later than this after the one before may have waited for something else; our own choice."""

_TRANSFER: Final = re.compile(
    rb"edge_\d+_(?P<edge>[^:]+)(?::\w+)?|(?P<node>[^:]+?)(?:/_\d+)?:_(?:Host)?(?:Send|Recv)"
)
_WITHOUT_INPUT: Final = re.compile(
    rb"_(?:Host)?(?:Send|Recv)|_Arg|Const|Placeholder\w*|(?=\w*Iterator)\w+|Optional\w*"
)
"""Types of ops that take no tensor from a GPU: transfers themselves, constants, and ops that read a dataset."""

TOP_SOURCES: Final = 10
"""Sources of copies per device in a report."""


class Direction(ActivityTime, frozen=True):
    """The copies of one device in one direction that overlap the window.

    Attributes:
        exposed_ps_per_step: Exposed time per step, mean over the used steps, rounded down, picoseconds; null without any.
        exposed_ratio: Exposed share of the used steps; without steps, of the window.
        bytes_per_second: bytes over busy_ps, rounded down; null unless the sizes of all copies are recorded.
        pageable_bytes: Bytes from or to pageable memory of the host; null where the kind of memory is not
            recorded.
        small_count: Copies below 64 KiB; null where no size is recorded.
        small_count_per_step: Copies below 64 KiB that start in a step, median over the used steps; null without
            any.
    """

    exposed_ps_per_step: Picoseconds | None
    exposed_ratio: Share | None
    bytes_per_second: Count | None
    pageable_bytes: Count | None
    small_count: Count | None
    small_count_per_step: Count | None


class CopySource(Record, frozen=True):
    """An op or a thread that issued copies.

    Attributes:
        device: Key of the device.
        direction: h2d, d2h or d2d.
        op: Name of the op without its replica part; null if not recorded.
        op_type: Type of the op; null if not recorded.
        thread: Name of the thread that issued them; null if not recorded.
        count: Copies.
        bytes: Bytes of those whose size is recorded; null where none is.
        total_ps: Sum of their durations, picoseconds.
        exposed_ps: Their part of the exposed time of the direction, picoseconds.
    """

    device: DeviceKey
    direction: Annotated[str, one_of("h2d", "d2h", "d2d")]
    op: OpName | None
    op_type: OpType | None
    thread: ThreadName | None
    count: Count
    bytes: Count | None
    total_ps: Picoseconds
    exposed_ps: Picoseconds


class DeviceTransfers(OfDevice, frozen=True):
    """The copies of one GPU.

    Attributes:
        directions: Its copies by direction: h2d, d2h, and d2d, which are also those to another GPU.
        link_bytes_per_second: Rate of the PCIe link of the GPU in one direction, from the sidecar; null without
            a sidecar, and where the links of the GPUs of the host differ.
        top_sources: What issued the copies, the longest exposed first.
    """

    directions: dict[Words, Direction]
    link_bytes_per_second: Count | None
    top_sources: tuple[CopySource, ...]


class Transfers(Record, frozen=True):
    """The copies of all GPUs.

    Attributes:
        devices: GPUs of hosts on which the tracer recorded any, by host and ordinal.
    """

    devices: tuple[DeviceTransfers, ...]


def transfers_of(context: Context, top: int | None = TOP_SOURCES) -> Transfers | Skipped:
    """The copies of each GPU in its window, with `top` sources of each."""
    trace, selection = context.trace, context.selection
    gpus = [
        index for index, device in enumerate(trace.device_list) if device.kind in ("gpu", "tpu")
    ]
    if not gpus:
        return Skipped("not applicable: there is no GPU")
    recorded = [index for index in gpus if index in context.ledger.devices]
    if not recorded:
        return Skipped("no GPU recorded an event")
    copies, ledger = copies_of(trace), context.ledger
    exposed = _exposed(ledger, copies)
    in_steps = {
        way: ledger.by_device((ledger.columns.activity == CLASS_KEYS.index(way)) & ledger.counts)
        for way in COPIES
    }
    rows = []
    for index in recorded:
        window = selection.windows[trace.device_list[index].host]
        steps = step_bounds(selection.used_of(window.host))
        of_device = _in_window(trace, copies, index, window)
        own = _subset(copies, of_device)
        class_ = trace.device_columns.class_[own.row]
        rows.append(
            DeviceTransfers(
                *trace.identity(index),
                directions={
                    way: _direction(
                        context,
                        index,
                        steps,
                        own.row[class_ == CLASS_KEYS.index(way)],
                        context.once(in_windows)[index].activity[way],
                        in_steps[way][index],
                    )
                    for way in COPIES
                },
                link_bytes_per_second=_link(trace, window.host),
                top_sources=tuple(_sources(trace, index, own, exposed[of_device])[:top]),
            )
        )
    return Transfers(tuple(rows))


def _exposed(ledger: Ledger, copies: Copies) -> Int64Array:
    """The exposed time of each copy in its window, without that of earlier copies of its direction."""
    columns = ledger.columns
    is_copy = (columns.activity >= ActivityClass.H2D) & (columns.activity <= ActivityClass.D2D)
    number = np.searchsorted(copies.row, columns.event[is_copy])
    return totals(number, columns.duration_ps[is_copy], copies.row.size)


def _in_window(trace: Trace, copies: Copies, device: int, window: Window) -> Int64Array:
    """The numbers of the copies of a device that overlap its window; copies are in the order of device events."""
    columns, own = trace.device_columns, trace.device_columns.rows_of(device)
    first, last = np.searchsorted(copies.row, (own.start, own.stop)).tolist()
    rows = copies.row[first:last]
    inside: Int64Array = rows_in(columns.start_ps[rows], columns.end_ps[rows], window) + first
    return inside


def _subset(copies: Copies, index: Int64Array) -> Copies:
    return Copies(copies.row[index], copies.op[index], copies.thread[index])


# Directions


def _direction(
    context: Context,
    device: int,
    steps: tuple[Int64Array, Int64Array],
    rows: Int64Array,
    activity: ActivityTime,
    in_steps_ps: int,
) -> Direction:
    """`steps`: start and end of the used steps. `rows`: the copies in the window. `in_steps_ps`: exposed in used steps."""
    columns, ledger = context.trace.device_columns, context.ledger
    size = columns.bytes[rows]
    step_count, gpu_ps = ledger.steps_of_device[device], ledger.gpu_ps_by_device[device]
    small = np.sort(columns.start_ps[rows[(size != UNKNOWN_BYTES) & (size < SMALL_BYTES)]])
    small_in_step = np.subtract(*(np.searchsorted(small, times) for times in reversed(steps)))
    is_recorded = activity.bytes is not None
    return Direction(
        **asdict(activity),
        exposed_ps_per_step=in_steps_ps // step_count if step_count else None,
        exposed_ratio=in_steps_ps / gpu_ps if gpu_ps else None,
        bytes_per_second=None
        if (size == UNKNOWN_BYTES).any()
        else _rate(int(size.sum()), activity.busy_ps),
        pageable_bytes=_pageable_bytes(columns.host_memory[rows], size),
        small_count=int(small.size) if is_recorded else None,
        small_count_per_step=median_ps(small_in_step) if is_recorded else None,
    )


def _rate(size: int, busy_ps: int) -> int | None:
    """Bytes in a second; None without copies, and where damaged numbers make more of it than 64 bits hold."""
    rate = size * PS_PER_S // busy_ps if busy_ps and size else None
    return None if rate is not None and rate > LARGEST else rate


def _pageable_bytes(memory: npt.NDArray[np.uint8], size: Int64Array) -> int | None:
    pageable = size[memory == HostMemory.PAGEABLE]
    if (memory.size and not memory.any()) or (pageable == UNKNOWN_BYTES).any():
        return None
    return int(pageable.sum())


# Sources


def _sources(trace: Trace, device: int, copies: Copies, exposed: Int64Array) -> list[CopySource]:
    """The sources of the copies of one device, those with the longest exposed time first; `exposed`: of each copy."""
    columns = trace.device_columns
    class_ = columns.class_[copies.row]
    groups: dict[tuple[int, str | None, str | None, int], list[Int64Array]] = {}
    for members in groups_of(class_.astype(np.int64), copies.op, copies.thread):
        first = members[0]
        text = trace.names.text(int(copies.op[first]))
        name, type_ = (None, None) if text is None else split_op(text)
        key = (int(class_[first]), name, type_, int(copies.thread[first]))
        groups.setdefault(key, []).append(members)
    sources = []
    for (of_class, name, type_, thread), parts in groups.items():
        members = np.concatenate(parts)
        size = columns.bytes[copies.row[members]]
        known = size[size != UNKNOWN_BYTES]
        sources.append(
            CopySource(
                device=trace.device_key(device),
                direction=trace.class_name(of_class),
                op=name,
                op_type=type_,
                thread=None if thread == NONE else trace.lines[thread].name,
                count=int(members.size),
                bytes=int(known.sum()) if known.size else None,
                total_ps=int(columns.duration_ps[copies.row[members]].sum()),
                exposed_ps=int(exposed[members].sum()),
            )
        )
    return sorted(sources, key=lambda s: (-s.exposed_ps, -s.total_ps, s.op or "", s.thread or ""))


def _link(trace: Trace, host: int) -> int | None:
    """The rate of the PCIe link of each GPU of a host, if all are alike.

    The sidecar lists the GPUs of the machine in the order of NVML, which may differ from that of the process. The
    generation is the largest possible one, because an idle GPU saves power on a slower one.
    """
    sidecar = trace.hosts[host].sidecar
    gpus = sidecar.environment.links.gpus if sidecar is not None else None
    speeds = {
        pcie_bytes_per_second(
            gpu.pcie_generation_max or gpu.pcie_generation, gpu.pcie_width or gpu.pcie_width_max
        )
        for gpu in gpus or ()
    }
    return speeds.pop() if len(speeds) == 1 else None


def copied_results(trace: Trace, copies: Copies) -> Int64Array:
    """The copies to a GPU that bring the result of an op on the CPU, as rows of the device columns."""
    device, host = trace.device_columns, trace.host_columns
    up = device.class_[copies.row] == ActivityClass.H2D
    numbers, number_of_name = _source_ops(trace, copies.op[up])
    if not numbers:
        return np.empty(0, dtype=np.int64)
    source = np.append(number_of_name, NONE)[copies.op]
    up &= source != NONE
    ops, op_number = _runs(trace, numbers)
    to_device: Int64Array = copies.row[up]
    launch = device.launch[to_device]
    issued = np.where(
        launch == NONE, device.start_ps[to_device], np.append(host.start_ps, 0)[launch]
    )
    of_host = trace.host_of_device[device.device[to_device]]
    at = _latest(
        op_number * len(trace.hosts) + host.host[ops],
        host.end_ps[ops],
        source[up] * len(trace.hosts) + of_host,
        issued,
    )
    with_op = np.flatnonzero(at != NONE)
    return to_device[with_op[issued[with_op] - host.end_ps[ops[at[with_op]]] <= HANDOVER_PS]]


def _source_ops(trace: Trace, ops: Int64Array) -> tuple[dict[bytes, int], Int64Array]:
    """The ops whose results these transfers bring, numbered, and the number for each name of the trace."""
    numbers: dict[bytes, int] = {}
    number_of_name = np.full(len(trace.names), NONE, dtype=np.int64)
    for name in unique_ids(ops[ops != NONE]).tolist():
        transfer = _TRANSFER.fullmatch(trace.names[name])
        if transfer:
            source = transfer["edge"] or transfer["node"]
            number_of_name[name] = numbers.setdefault(source, len(numbers))
    return numbers, number_of_name


def _runs(trace: Trace, numbers: dict[bytes, int]) -> tuple[Int64Array, Int64Array]:
    """Host rows on which one of these ops ran, and its number."""
    number_of_name = np.full(len(trace.names), NONE, dtype=np.int64)
    for name, text in enumerate(trace.names):
        number = numbers.get(text.rpartition(b":")[0])
        type_ = None if number is None else op_type(text)
        if number is not None and type_ is not None and not _WITHOUT_INPUT.fullmatch(type_):
            number_of_name[name] = number
    number_of_row = number_of_name[trace.host_columns.name]
    rows = np.flatnonzero(number_of_row != NONE)
    return rows, number_of_row[rows]


def _latest(key: Int64Array, time: Int64Array, of_key: Int64Array, until: Int64Array) -> Int64Array:
    """For each query the entry of the same key with the latest `time` up to `until`; `NONE` without."""
    is_query = np.repeat([False, True], (key.size, of_key.size))
    keys, times = np.concatenate((key, of_key)), np.concatenate((time, until))
    order = np.lexsort((is_query, times, keys))
    place = np.where(is_query[order], -1, np.arange(order.size))
    last = np.maximum.accumulate(place) if order.size else place
    latest = np.append(order, NONE)[last]
    same = (latest != NONE) & (np.append(keys, NONE)[latest] == keys[order])
    result = np.empty(order.size, dtype=np.int64)
    result[order] = np.where(same, latest, NONE)
    return result[key.size :]
