"""Measures how much of the step each device spends on side work, and how much of its compute is the optimizer.

Side work is Python, printing, summaries and checks inside the step (`trace.side_work`). It counts as compute where the CPU is
the device, which hides it: the device looks busy with the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import numpy as np

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.base import OfDevice, Skipped
from traceview.analysis.selection import Selection, step_bounds
from traceview.ids import unique_inverse
from traceview.intervals import (
    BoolArray,
    Int32Array,
    Int64Array,
    IntervalSet,
    difference,
    places,
    union,
)
from traceview.record import Count, OpType, Picoseconds, Record, Share, one_of
from traceview.trace.model import NONE, Trace
from traceview.trace.op_names import split_op
from traceview.trace.op_phase import Phase, phases_of
from traceview.trace.side_work import SideWork, side_work_of
from traceview.trace.state_timeline import intersection
from traceview.xplane.planes import ActivityClass

OPTIMIZER: Final = "optimizer"
TOP_TYPES: Final = 3
"""Types of ops that are named, those that take longest."""


class OpKind(Record, frozen=True):
    """Ops of one kind on one device in the used steps.

    Attributes:
        kind: python: Python functions; printing: formatting and printing; summaries: tf.summary with what it
            computes; checks: checks for NaN and infinity; text: ops on strings; optimizer: updates of the variables.
        op_types: Types of these ops, the three that take longest.
        count: Events that start in the used steps.
        ps_per_step: Time in which such an op runs, picoseconds, mean over the used steps, rounded down.
        alone_ps_per_step: The part of it in which the device does nothing else, picoseconds, mean over the used steps,
            rounded down.
        path_ps_per_step: The part of that which is on the critical path, picoseconds, mean over the used steps, rounded
            down. Summed over the devices of a host it is what the kind costs.
        compute_ratio: Share of the compute time of the device in the used steps in which such an op runs.
    """

    kind: Annotated[str, one_of("python", "printing", "summaries", "checks", "text", "optimizer")]
    op_types: tuple[OpType, ...]
    count: Count
    ps_per_step: Picoseconds
    alone_ps_per_step: Picoseconds
    path_ps_per_step: Picoseconds
    compute_ratio: Share


class DeviceStepOps(OfDevice, frozen=True):
    """One device that computed in the used steps.

    Attributes:
        idle_ps_per_step: Idle time, picoseconds, mean over the used steps, rounded down.
        kinds: Kinds of ops that ran there.
        updates_sparse: Whether the optimizer ran ops for sparse gradients, those of an embedding.
    """

    idle_ps_per_step: Picoseconds
    kinds: tuple[OpKind, ...]
    updates_sparse: bool


class StepOps(Record, frozen=True):
    """What else than the model runs in the steps.

    Attributes:
        devices: Devices that computed in the used steps, in the order of hosts and ordinals.
    """

    devices: tuple[DeviceStepOps, ...]


_SPARSE_UPDATES: Final = ("UnsortedSegmentSum", "ResourceScatter", "ResourceSparseApply")


def compute(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    paths: Mapping[int, IntervalSet],
) -> StepOps | Skipped:
    """The ops of each kind in the used steps; `activities`, and where the critical path is, by device index."""
    if not selection.used_steps:
        return Skipped("no used step")
    kind_of_event = _kinds(trace)
    rows = [
        row
        for device in range(len(trace.device_list))
        if (row := _row(trace, selection, device, activities[device], paths, kind_of_event))
        is not None
    ]
    rows.sort(key=lambda row: (row.host, row.device.partition(":")[0], row.ordinal))
    return StepOps(tuple(rows)) if rows else Skipped("no device computed in the used steps")


_NOWHERE: Final = union(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
_KINDS: Final = (*(kind.value for kind in SideWork), OPTIMIZER)


def _kinds(trace: Trace) -> Int64Array:
    """By device event the index of its kind, int64; `NONE` for the model and for what is no compute."""
    columns = trace.device_columns
    names, index = unique_inverse(columns.op.astype(np.int64))
    shown = [None if name == NONE else side_work_of(trace.names[name]) for name in names.tolist()]
    of_name = np.array(
        [NONE if kind is None else _KINDS.index(kind.value) for kind in shown], dtype=np.int64
    )
    result = of_name[index] if names.size else np.empty(0, dtype=np.int64)
    is_update = (phases_of(trace) == Phase.OPTIMIZER) & (result == NONE)
    result[is_update] = _KINDS.index(OPTIMIZER)
    result[columns.class_ != ActivityClass.COMPUTE] = NONE
    return result


def _row(
    trace: Trace,
    selection: Selection,
    device: int,
    activity: DeviceActivity,
    paths: Mapping[int, IntervalSet],
    kind_of_event: Int64Array,
) -> DeviceStepOps | None:
    steps = selection.used_of(trace.device_list[device].host)
    start, end = step_bounds(steps)
    compute_ps = int(activity.compute.within(start, end).sum()) if steps else 0
    if not compute_ps:
        return None
    columns, events = trace.device_columns, trace.device_columns.rows_of(device)
    kinds = kind_of_event[events]
    begun, ended = columns.start_ps[events], columns.end_ps[events]
    overlaps = places(np.sort(start), ended) > places(np.sort(end), begun, right=True)
    busy_ps = activity.within_up_to(max(ActivityClass), start, end)
    found = []
    for number, kind in enumerate(_KINDS):
        is_kind = kinds == number
        inside = is_kind & overlaps
        if not inside.any():
            continue
        spans = union(begun[is_kind], ended[is_kind])
        runs = spans.within(start, end)
        alone = difference(spans, union(begun[~is_kind], ended[~is_kind]))
        path = intersection(paths.get(device, _NOWHERE), alone)
        found.append(
            OpKind(
                kind=kind,
                op_types=_types(trace, columns.op[events][inside], (ended - begun)[inside]),
                count=_started(begun[is_kind], start, end),
                ps_per_step=int(runs.sum()) // len(steps),
                alone_ps_per_step=int(alone.within(start, end).sum()) // len(steps),
                path_ps_per_step=int(path.within(start, end).sum()) // len(steps),
                compute_ratio=int(runs.sum()) / compute_ps,
            )
        )
    return DeviceStepOps(
        *trace.identity(device),
        idle_ps_per_step=int((end - start - busy_ps).sum()) // len(steps),
        kinds=tuple(found),
        updates_sparse=_updates_sparse(
            trace, columns.op[events], overlaps & (kinds == _KINDS.index(OPTIMIZER))
        ),
    )


def _started(begun: Int64Array, start: Int64Array, end: Int64Array) -> int:
    in_order = np.sort(begun)
    return int((np.searchsorted(in_order, end) - np.searchsorted(in_order, start)).sum())


def _type_of(trace: Trace, name: int) -> str:
    return split_op(trace.names.text(name) or "")[1] or ""


def _types(trace: Trace, ops: Int32Array, length_ps: Int64Array) -> tuple[str, ...]:
    total: dict[str, int] = {}
    names, index = unique_inverse(ops.astype(np.int64))
    for place, name in enumerate(names.tolist()):
        type_ = _type_of(trace, name)
        total[type_] = total.get(type_, 0) + int(length_ps[index == place].sum())
    longest = sorted(total, key=lambda type_: (-total[type_], type_))
    return tuple(type_ for type_ in longest if type_)[:TOP_TYPES]


def _updates_sparse(trace: Trace, ops: Int32Array, is_update: BoolArray) -> bool:
    names, _ = unique_inverse(ops[is_update].astype(np.int64))
    return any(_type_of(trace, name).startswith(_SPARSE_UPDATES) for name in names.tolist())
