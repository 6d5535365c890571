"""Which replica of a CPU-only MirroredStrategy run did which op?

Without GPUs there is no device plane, but each replica's part of the step function runs as a component of
its own: one `FunctionRun` in the calling thread produces an id, and every `ExecutorState::Process` that runs
ops of that component consumes it (TensorFlow 2.21, measured). So an op belongs to the component of the
innermost `ExecutorState::Process` around it, and a component to the replica that any op name in it tells:
`replica_<k>` anywhere in the path, or `update_<k>` in an optimizer's; replica 0 where none does. Reading or
writing a variable does not tell: it runs where the variable lies, which is with another replica if it was made
outside of the strategy's scope. Threads do not tell either: components hop between them. Collectives run on
threads of their own and are dealt out by the number in their name, in the order of their group. What no link
places is `shared`, counted apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from traceview.ids import occurring
from traceview.intervals import BoolArray, Int64Array, nesting
from traceview.trace.link import linked_events
from traceview.trace.model import NONE, UNKNOWN_BYTES, Device, DeviceColumns, Trace
from traceview.trace.op_phase import uses_variable
from traceview.xplane.planes import ActivityClass, HostMemory

_OP = re.compile(rb"([^\s:](?:[^:]|:(?!:))*):([A-Za-z_]\w*)", re.DOTALL)
_REPLICA = re.compile(rb"(?:^|/)(?:replica|update)_(\d{1,4})(?:_\d+)?(?=/|:|$)")
_NOT_WORK = re.compile(
    rb"_(?:Host)?(?:Send|Recv)|RemoteCall.*|.*PartitionedCall|(?:Stateless)?(?:While|If)|IteratorGetNext.*"
)
_COLLECTIVE = re.compile(rb"Collective.*|NcclAllReduce")
_SUFFIX = re.compile(rb"_(\d{1,6}):[^:]*$")
_DATA_THREAD: Final = "tf_data"
_SHARED: Final = -2


@dataclass(frozen=True, eq=False)
class _NameFacts:
    """Per name of the trace: whether it is an op that is work, a collective, its replica and suffix numbers.

    `uses_variable`: the op runs where a variable lies, whichever replica asked for it.
    """

    work: BoolArray
    uses_variable: BoolArray
    collective: BoolArray
    replica: Int64Array
    suffix: Int64Array


def replicas_of(trace: Trace) -> Trace:
    """The trace with the replicas of its CPU-only hosts as devices; others are left as they are."""
    with_plane = {device.host for device in trace.roster}
    hosts = [
        index
        for index, host in enumerate(trace.hosts)
        if index not in with_plane and not host.gpus_expected
    ]
    if not hosts or trace.host_columns.count == 0:
        return trace
    facts = _name_facts(trace)
    rows = np.flatnonzero(facts.work[trace.host_columns.name] & _on_executor_thread(trace))
    rows = rows[np.isin(trace.host_columns.host[rows], hosts)]
    replica = _replica_of_rows(trace, rows, facts)
    placed = replica >= 0
    devices: list[Device] = list(trace.roster)
    device_of: dict[tuple[int, int], int] = {}
    of_host = trace.host_columns.host[rows].astype(np.int64)
    for host in hosts:
        for number in occurring(replica[placed & (of_host == host)]).tolist():
            device_of[host, number] = len(devices)
            devices.append(Device(host, f"replica:{number}", "replica", int(number), None, {}))
    if not device_of:
        return replace(trace, shared_rows=rows)
    device = np.array(
        [
            device_of[pair]
            for pair in zip(of_host[placed].tolist(), replica[placed].tolist(), strict=True)
        ],
        dtype=np.int16,
    )
    columns = _columns(trace, rows[placed], device, facts)
    return replace(
        trace,
        roster=tuple(devices),
        device_columns=_joined(trace.device_columns, columns),
        shared_rows=rows[~placed],
    )


def _name_facts(trace: Trace) -> _NameFacts:
    count = len(trace.names)
    work, uses, collective = (np.zeros(count, dtype=np.bool_) for _ in range(3))
    replica, suffix = np.full(count, NONE, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for index in range(count):
        name = trace.names[index]
        op = _OP.fullmatch(name)
        if not op:
            continue
        uses[index] = uses_variable(op[2])
        work[index] = not _NOT_WORK.fullmatch(op[2])
        collective[index] = _COLLECTIVE.fullmatch(op[2]) is not None
        numbered = _REPLICA.search(name)
        if numbered:
            replica[index] = int(numbered[1])
        counted = _SUFFIX.search(name)
        if counted:
            suffix[index] = int(counted[1])
    return _NameFacts(work, uses, collective, replica, suffix)


def _on_executor_thread(trace: Trace) -> BoolArray:
    of_line = np.array(
        [not line.name.startswith(_DATA_THREAD) for line in trace.lines], dtype=np.bool_
    )
    result: BoolArray = of_line[trace.host_columns.line]
    return result


def _replica_of_rows(trace: Trace, rows: Int64Array, facts: _NameFacts) -> Int64Array:
    """Replica of each op row, `_SHARED` where nothing places it."""
    host = trace.host_columns
    component = _component_of_rows(trace, rows)
    named = facts.replica[host.name[rows]]
    result = np.where(named != NONE, named, _SHARED)
    in_component = component != NONE
    if in_component.any():
        count = int(component.max()) + 1
        replica_of_component = np.zeros(count, dtype=np.int64)
        uses = facts.uses_variable[host.name[rows]]
        # What does nothing else is told by whom it does that for.
        does_more = np.zeros(count, dtype=np.bool_)
        does_more[component[in_component & ~uses]] = True
        telling = np.flatnonzero(in_component & (named != NONE) & ~(uses & does_more[component]))
        np.maximum.at(replica_of_component, component[telling], named[telling])
        result[in_component] = replica_of_component[component[in_component]]
    collective = np.flatnonzero(facts.collective[host.name[rows]] & ~in_component & (named == NONE))
    if collective.size:
        replicas = int(result.max(initial=0)) + 1
        result[collective] = _deal_out(trace, rows[collective], facts, replicas)
    return result


def _component_of_rows(trace: Trace, rows: Int64Array) -> Int64Array:
    """The component that each op row runs in, if a step function's call produced it; else `NONE`."""
    host = trace.host_columns
    producers, producer_key, consumers, consumer_key = linked_events(host)
    runs = trace.names.matching(host.name[producers], [b"FunctionRun"])
    calls = runs & _on_executor_thread(trace)[producers]
    is_component = np.isin(consumer_key, producer_key[calls])
    executes = trace.names.matching(host.name[consumers], [b"ExecutorState::Process"])
    component = np.full(rows.size, NONE, dtype=np.int64)
    for line in occurring(host.line[rows]):
        mine = np.flatnonzero(host.line[rows] == line)
        around = np.flatnonzero(executes & (host.line[consumers] == line))
        if around.size == 0:
            continue
        nest = nesting(host.start_ps[consumers[around]], host.end_ps[consumers[around]])
        inner = nest.innermost(host.start_ps[rows[mine]])
        hit = np.flatnonzero(inner != NONE)
        found = around[inner[hit]]
        component[mine[hit]] = np.where(is_component[found], consumer_key[found], NONE)
    return component


def _deal_out(trace: Trace, rows: Int64Array, facts: _NameFacts, replicas: int) -> Int64Array:
    """Collectives by the rank of their suffix within one (group, instance), else by the suffix itself."""
    host = trace.host_columns
    suffix = facts.suffix[host.name[rows]]
    group = host.stat("group_key").dense(host.count, NONE)[rows]
    instance = host.stat("instance_key").dense(host.count, NONE)[rows]
    order = np.lexsort((suffix, instance, group, host.host[rows]))
    keys = [column[order] for column in (host.host[rows], group, instance)]
    starts = np.ones(rows.size, dtype=np.bool_)
    starts[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    first = np.maximum.accumulate(np.where(starts, np.arange(rows.size), 0))
    rank = np.empty(rows.size, dtype=np.int64)
    rank[order] = np.arange(rows.size) - first
    return np.where(instance != NONE, rank, suffix % replicas)


def _columns(
    trace: Trace,
    rows: Int64Array,
    device: np.ndarray[tuple[int], np.dtype[np.int16]],
    facts: _NameFacts,
) -> DeviceColumns:
    host = trace.host_columns
    order = np.lexsort((host.start_ps[rows], device))
    rows, device = rows[order], device[order]
    no = np.zeros(rows.size, dtype=np.bool_)
    collective = facts.collective[host.name[rows]]
    return DeviceColumns(
        device=device,
        line=host.line[rows],
        start_ps=host.start_ps[rows],
        duration_ps=host.duration_ps[rows],
        name=host.name[rows],
        op=host.name[rows],
        module=np.full(rows.size, NONE, dtype=np.int32),
        class_=np.where(collective, ActivityClass.COLLECTIVE, ActivityClass.COMPUTE).astype(
            np.uint8
        ),
        correlation_id=np.zeros(rows.size, dtype=np.int64),
        has_correlation=no,
        # An op of a replica is its own evidence on the host.
        launch=rows,
        bytes=np.full(rows.size, UNKNOWN_BYTES, dtype=np.int64),
        host_memory=np.full(rows.size, HostMemory.UNKNOWN, dtype=np.uint8),
        group=np.full(rows.size, NONE, dtype=np.int64),
        p2p=no,
        opaque=no,
        unknown_direction=no,
        position=host.position[rows],
    )


def _joined(first: DeviceColumns, second: DeviceColumns) -> DeviceColumns:
    # Replicas are devices of later numbers than any plane, so the order of devices is kept.
    return DeviceColumns(
        **{
            key: np.concatenate((column, getattr(second, key)))
            for key, column in vars(first).items()
            if key in DeviceColumns.__dataclass_fields__
        }
    )
