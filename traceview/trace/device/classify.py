"""Selects the events of a device plane that are activity, and gives each its class.

A stream may mix kernels with bookkeeping, so each event is decided by itself: first by its name, then by its detail
strings, last by the host call that issued it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from traceview.base.ids import unique_inverse
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.trace.device.instructions import InstructionNumbers
from traceview.trace.device.op_names import KEPT_NAMES
from traceview.trace.model import NONE, UNKNOWN_BYTES, Names
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


class Activity(Struct, frozen=True, eq=False):
    """The activity of one device plane; columns as in `DeviceColumns`, `line` as in the table.

    `kind`: uint8 `NameKind`, with `LINKED_COPY` where only the host call shows the direction.
    """

    line: Int32Array
    start_ps: Int64Array
    duration_ps: Int64Array
    name: Int32Array
    op: Int32Array
    instruction: Int32Array
    details: Int32Array
    kind: npt.NDArray[np.uint8]
    correlation_id: Int64Array
    has_correlation: BoolArray
    bytes: Int64Array
    host_memory: npt.NDArray[np.uint8]
    group: Int64Array


def activity_of(table: PlaneTable, names: Names, numbers: InstructionNumbers) -> Activity:
    """The events of a GPU or TPU plane that count as activity, in order of start."""
    gpu = table.plane.kind is PlaneKind.GPU
    activity, rows = (_gpu_activity if gpu else _tpu_activity)(table, names, numbers)
    rows = rows[np.argsort(activity.start_ps.take(rows), kind="stable")]
    return Activity(**{key: column.take(rows) for key, column in asdict(activity).items()})


def _gpu_activity(
    table: PlaneTable, names: Names, numbers: InstructionNumbers
) -> tuple[Activity, Int64Array]:
    """The columns of all events, and the rows of those that are activity."""
    counts = np.array(
        [
            not is_derived_line(line.id, line.name) and not is_never_busy_line(line.name)
            for line in table.lines
        ],
        dtype=np.bool_,
    )
    kind_of_name = np.fromiter(map(name_kind, table.names), np.uint8, len(table.names))
    kind = kind_of_name.take(table.name)
    correlation = table.ints("correlation_id")
    has_correlation = _present(table, correlation.event)
    memcpy, memset = table.texts("memcpy_details"), table.texts("memset_details")
    has_memcpy = _present(table, memcpy.event)
    kind = np.where(has_memcpy & (kind == NameKind.COMPUTE), NameKind.COPY, kind).astype(np.uint8)
    named_by_kind = (kind != NameKind.COMPUTE) & (kind != NameKind.COLLECTIVE)
    busy = (
        counts.take(table.line)
        & (kind != NameKind.NEVER_BUSY)
        & ~table.has("not_activity")
        & (named_by_kind | has_correlation | table.has("kernel_details"))
    )
    size = np.full(table.count, UNKNOWN_BYTES, dtype=np.int64)
    host_memory = np.full(table.count, HostMemory.UNKNOWN, dtype=np.uint8)
    for texts in (memcpy, memset):
        if not texts.texts:
            continue
        details = [parse_details(text) for text in texts.texts]
        sizes = [details_bytes(d) for d in details]
        of_text = np.array([UNKNOWN_BYTES if s is None else s for s in sizes], dtype=np.int64)
        size[texts.event] = of_text[texts.index]
        memories = np.array([details_host_memory(d) for d in details], dtype=np.uint8)
        host_memory[texts.event] = memories[texts.index]
        directions = np.array([details_direction(d) for d in details], dtype=np.uint8)
        neutral = kind[texts.event] == NameKind.COPY
        if neutral.any():
            kind[texts.event[neutral]] = directions[texts.index[neutral]]
    # A copy of 0 bytes that took time: the writer did not know the size.
    size[(size == 0) & (table.duration_ps > 0)] = UNKNOWN_BYTES
    activity = Activity(
        line=table.line,
        start_ps=table.start_ps,
        duration_ps=table.duration_ps,
        name=names.add_all(table.names).take(table.name),
        op=_ops(table, names),
        instruction=_instructions(table, names, numbers),
        details=_named(table, names, "kernel_details"),
        kind=kind,
        correlation_id=correlation.dense(table.count, 0),
        has_correlation=has_correlation,
        bytes=size,
        host_memory=host_memory,
        group=table.ints("group_id").dense(table.count, NONE),
    )
    return activity, np.flatnonzero(busy).astype(np.int64, copy=False)


def _tpu_activity(
    table: PlaneTable, names: Names, numbers: InstructionNumbers
) -> tuple[Activity, Int64Array]:
    """The same of a TPU: the events of the `XLA Ops` line, with the times in their stats.

    A loop or a call is none where its ops are recorded: it lasts while they wait for copies, too.
    """
    counts = np.array([line.name == XLA_OPS_LINE for line in table.lines], dtype=np.bool_)
    rows = np.flatnonzero(counts.take(table.line)).astype(np.int64, copy=False)
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
    count = table.count
    activity = Activity(
        line=table.line,
        start_ps=start,
        duration_ps=duration,
        name=names.add_all(table.names).take(table.name),
        op=_ops(table, names),
        instruction=_instructions(table, names, numbers),
        details=_named(table, names, "kernel_details"),
        kind=kind.take(table.name),
        correlation_id=np.zeros(count, dtype=np.int64),
        has_correlation=np.zeros(count, dtype=np.bool_),
        bytes=np.full(count, UNKNOWN_BYTES, dtype=np.int64),
        host_memory=np.full(count, HostMemory.UNKNOWN, dtype=np.uint8),
        group=table.ints("group_id").dense(count, NONE),
    )
    return activity, rows


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


def _present(table: PlaneTable, rows: Int64Array) -> BoolArray:
    mask = np.zeros(table.count, dtype=np.bool_)
    mask[rows] = True
    return mask


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


class Classes(Struct, frozen=True, eq=False):
    """The final class of each device event, with flags for point-to-point copies, opaque graphs and unknown directions."""

    class_: npt.NDArray[np.uint8]
    p2p: BoolArray
    opaque: BoolArray
    unknown_direction: BoolArray


_CLASS_OF_KIND: Final = np.arange(len(NameKind), dtype=np.uint8)
_CLASS_OF_KIND[[NameKind.P2P, NameKind.COPY, NameKind.LINKED_COPY]] = ActivityClass.D2D
_CLASS_OF_KIND[NameKind.GRAPH] = ActivityClass.COMPUTE


def final_classes(
    kind: npt.NDArray[np.uint8], launch: Int64Array, host_name: Int32Array, names: Names
) -> Classes:
    """Give copies the direction of the host call that issued them; `launch`: host row or `NONE`."""
    kind = kind.copy()
    linked = np.flatnonzero((kind == NameKind.LINKED_COPY) & (launch != NONE))
    if linked.size:
        calls, index = unique_inverse(host_name[launch[linked]])
        directions = np.array([copy_direction(names[int(c)]) for c in calls], dtype=np.uint8)
        kind[linked] = directions[index]
    return Classes(
        _CLASS_OF_KIND[kind],
        p2p=kind == NameKind.P2P,
        opaque=kind == NameKind.GRAPH,
        unknown_direction=(kind == NameKind.LINKED_COPY) | (kind == NameKind.COPY),
    )
