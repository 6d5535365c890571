"""Selects the events of a device plane that are activity, and gives each its class.

A stream may mix kernels with bookkeeping, so each event is decided by itself: first by its name, then by its detail
strings, last by the host call that issued it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from msgspec.structs import asdict, replace

from traceview.base.ids import unique_inverse
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.trace.columns import NONE, UNKNOWN_BYTES, DeviceColumns, Names
from traceview.trace.device.instructions import InstructionNumbers
from traceview.trace.device.op_names import KEPT_NAMES
from traceview.xplane.planes import (
    XLA_OPS_LINE,
    ActivityClass,
    HostMemory,
    NameKind,
    PlaneKind,
    copy_direction,
    details_bytes,
    details_direction,
    details_host_memory,
    is_derived_line,
    is_never_busy_line,
    is_xla_container,
    name_kind,
    parse_details,
    xla_op_kind,
)
from traceview.xplane.read import MAX_SUM_PS
from traceview.xplane.table import PlaneTable


def activity_of(
    table: PlaneTable, names: Names, numbers: InstructionNumbers, device: int, first_line: int
) -> DeviceColumns:
    """The events of a GPU or TPU plane that count as activity, in order of start, before their launches are known.

    `class_`: `NameKind`, with `LINKED_COPY` where only the host call shows the direction. `first_line`: of the plane.
    """
    count = table.count
    nothing = np.zeros(count, dtype=np.bool_)
    every = DeviceColumns(
        device=np.full(count, device, dtype=np.int16),
        line=table.line + np.int32(first_line),
        start_ps=table.start_ps,
        duration_ps=table.duration_ps,
        name=names.add_all(table.names).take(table.name),
        op=_ops(table, names),
        instruction=_instructions(table, names, numbers),
        details=_named(table, names, "kernel_details"),
        class_=np.empty(count, dtype=np.uint8),
        correlation_id=table.ints("correlation_id").dense(count, 0),
        has_correlation=table.has("correlation_id"),
        launch=np.full(count, NONE, dtype=np.int64),
        bytes=np.full(count, UNKNOWN_BYTES, dtype=np.int64),
        host_memory=np.full(count, HostMemory.UNKNOWN, dtype=np.uint8),
        group=table.ints("group_id").dense(count, NONE),
        p2p=nothing,
        opaque=nothing,
        unknown_direction=nothing,
    )
    is_gpu = table.plane.kind is PlaneKind.GPU
    known, rows = _gpu_activity(table, every) if is_gpu else _tpu_activity(table, every)
    rows = rows[np.argsort(known.start_ps.take(rows), kind="stable")]
    return DeviceColumns(**{key: column[rows] for key, column in asdict(known).items()})


def _gpu_activity(table: PlaneTable, every: DeviceColumns) -> tuple[DeviceColumns, Int64Array]:
    """All events with their kinds, and the rows of those that are activity."""
    counts = np.array(
        [
            not is_derived_line(line.id, line.name) and not is_never_busy_line(line.name)
            for line in table.lines
        ],
        dtype=np.bool_,
    )
    kind_of_name = np.fromiter(map(name_kind, table.names), np.uint8, len(table.names))
    kind = kind_of_name.take(table.name)
    memcpy, memset = table.texts("memcpy_details"), table.texts("memset_details")
    kind[table.has("memcpy_details") & (kind == NameKind.COMPUTE)] = NameKind.COPY
    named_by_kind = (kind != NameKind.COMPUTE) & (kind != NameKind.COLLECTIVE)
    busy = (
        counts.take(table.line)
        & (kind != NameKind.NEVER_BUSY)
        & ~table.has("not_activity")
        & (named_by_kind | every.has_correlation | table.has("kernel_details"))
    )
    size = every.bytes
    for texts in (memcpy, memset):
        if not texts.texts:
            continue
        details = [parse_details(text) for text in texts.texts]
        sizes = [details_bytes(d) for d in details]
        of_text = np.array([UNKNOWN_BYTES if s is None else s for s in sizes], dtype=np.int64)
        size[texts.event] = of_text[texts.index]
        memories = np.array([details_host_memory(d) for d in details], dtype=np.uint8)
        every.host_memory[texts.event] = memories[texts.index]
        directions = np.array([details_direction(d) for d in details], dtype=np.uint8)
        neutral = kind[texts.event] == NameKind.COPY
        kind[texts.event[neutral]] = directions[texts.index[neutral]]
    # A copy of 0 bytes that took time: the writer did not know the size.
    size[(size == 0) & (table.duration_ps > 0)] = UNKNOWN_BYTES
    return replace(every, class_=kind), np.flatnonzero(busy)


def _tpu_activity(table: PlaneTable, every: DeviceColumns) -> tuple[DeviceColumns, Int64Array]:
    """The same of a TPU: the events of the `XLA Ops` line, with the times in their stats.

    A loop or a call is none where its ops are recorded: it lasts while they wait for copies, too.
    """
    counts = np.array([line.name == XLA_OPS_LINE for line in table.lines], dtype=np.bool_)
    rows = np.flatnonzero(counts.take(table.line))
    start, duration = table.start_ps.copy(), table.duration_ps.copy()
    offset, length = table.ints("device_offset_ps"), table.ints("device_duration_ps")
    start[offset.event] = offset.value
    if float(length.value.sum(dtype=np.float64)) <= MAX_SUM_PS:
        duration[length.event] = length.value
    kind = np.array([xla_op_kind(name) for name in table.names], dtype=np.uint8)
    is_container = np.array([is_xla_container(name) for name in table.names], dtype=np.bool_)
    begun = start[rows]
    rows = rows[
        ~with_ops_inside(is_container.take(table.name[rows]), begun, begun + duration[rows])
    ]
    known = replace(every, start_ps=start, duration_ps=duration, class_=kind.take(table.name))
    return known, rows


def with_ops_inside(is_loop: BoolArray, start_ps: Int64Array, end_ps: Int64Array) -> BoolArray:
    """Which events of one device are loops or calls, as `is_loop` says, inside which others begin."""
    loops = np.flatnonzero(is_loop)
    result = np.zeros(is_loop.size, dtype=np.bool_)
    if loops.size:
        begun = np.sort(start_ps)
        first, last = (np.searchsorted(begun, bound[loops]) for bound in (start_ps, end_ps))
        # It begins inside of itself.
        result[loops[last - first > 1]] = True
    return result


def _ops(table: PlaneTable, names: Names) -> Int32Array:
    """The op that issued each event, as text `scope/name:Type`, from the best stat that names it.

    TensorFlow on CUDA writes `tf_op`. XLA programs only write `XlaModule:` there and name the op in `hlo_op`.
    TensorFlow of 2020 wrote `level 0`, and `annotation` with `#shape=…#` behind the name.
    """
    op = np.full(table.count, NONE, dtype=np.int32)
    for key in ("annotation", "level_0", "hlo_op", "tf_op"):
        texts = table.texts(key)
        if texts.texts:
            kept = list(map(_op_text, texts.texts))
            ids = np.full(len(kept), NONE, dtype=np.int32)
            ids[np.fromiter(map(bool, kept), np.bool_, len(kept))] = names.add_all(
                filter(None, kept)
            )
            name = ids.take(texts.index)
            is_op = name != NONE
            op[texts.event[is_op]] = name[is_op]
    return op


def _named(table: PlaneTable, names: Names, key: str) -> Int32Array:
    """A text stat of each event, `NONE` without."""
    column = np.full(table.count, NONE, dtype=np.int32)
    texts = table.texts(key)
    if texts.texts:
        column[texts.event] = names.add_all(texts.texts)[texts.index]
    return column


def _instructions(table: PlaneTable, names: Names, numbers: InstructionNumbers) -> Int32Array:
    """The XLA instruction of each event."""
    if table.lacks("hlo_op") and table.lacks("hlo_module"):
        return np.full(table.count, NONE, dtype=np.int32)
    op, module = (_named(table, names, key) for key in ("hlo_op", "hlo_module"))
    return numbers.of(op, module, table.ints("program_id").dense(table.count, NONE))


@lru_cache(KEPT_NAMES)
def _op_text(text: bytes) -> bytes:
    """The op in a text, empty without one."""
    text = text.split(b"#", 1)[0]
    return b"" if text.startswith(b"XlaModule:") else text


_CLASS_OF_KIND: Final = np.arange(len(NameKind), dtype=np.uint8)
_CLASS_OF_KIND[[NameKind.P2P, NameKind.COPY, NameKind.LINKED_COPY]] = ActivityClass.D2D
_CLASS_OF_KIND[NameKind.GRAPH] = ActivityClass.COMPUTE


def with_final_classes(
    columns: DeviceColumns, host_name: Int32Array, names: Names
) -> DeviceColumns:
    """The events with classes instead of kinds: copies get the direction of the host call that issued them."""
    kind = columns.class_.copy()
    linked = np.flatnonzero((kind == NameKind.LINKED_COPY) & (columns.launch != NONE))
    calls, index = unique_inverse(host_name[columns.launch[linked]])
    directions = np.array([copy_direction(names[call]) for call in calls.tolist()], dtype=np.uint8)
    kind[linked] = directions[index]
    return replace(
        columns,
        class_=_CLASS_OF_KIND[kind],
        p2p=kind == NameKind.P2P,
        opaque=kind == NameKind.GRAPH,
        unknown_direction=(kind == NameKind.LINKED_COPY) | (kind == NameKind.COPY),
    )
