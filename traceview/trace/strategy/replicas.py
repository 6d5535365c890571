"""Assigns the ops of a CPU-only MirroredStrategy run to the replicas that ran them.

Without GPUs there is no device plane, but the part of each replica in the step function runs as a separate component:
a `FunctionRun` in the calling thread produces an id, and every `ExecutorState::Process` that runs ops of that
component consumes it (TensorFlow 2.21, measured). So an op belongs to the component of the innermost
`ExecutorState::Process` around it. A component belongs to the replica that most of its op names contain: `replica_<k>`
anywhere in the path, or `update_<k>` in an optimizer; a name without a number counts for replica 0. A single op does
not decide: replica 1 flushes its summaries on the device of the writer, which is that of replica 0. An optimizer
without a strategy numbers its variables, `update_7`; that is a replica only where `replica_7` or a higher one ran.

An op that reads or writes a variable does not identify the replica: it runs on the device of the variable, which
belongs to another replica if the variable was made outside of the strategy's scope. Threads do not identify it
either, because components move between them. Collectives run on threads of their own; they are assigned by the numbers
in their names, in the order of their group: TensorFlow makes them replica by replica, `CollectiveReduceV2` and
`CollectiveReduceV2_1`, or of sparse gradients `cond/…/CollectiveGatherV2` and `cond_1/…/CollectiveGatherV2`. Ops that
no link assigns are `shared` and counted separately.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs
from msgspec.structs import asdict, replace

from traceview.base.ids import is_in, labels, sorted_unique, unique_ids
from traceview.base.intervals import BoolArray, Int64Array, nesting
from traceview.trace.device.correlation import linked_events
from traceview.trace.device.op_phase import uses_variable
from traceview.trace.model import (
    NONE,
    UNKNOWN_BYTES,
    Device,
    DeviceColumns,
    Host,
    HostColumns,
    LineInfo,
    Names,
    Recording,
)
from traceview.trace.strategy.replica_names import ReplicaNames, highest_replicas, replica_in
from traceview.xplane.planes import ActivityClass, HostMemory

_OP = re.compile(rb"([^\s:](?:[^:]|:(?!:))*):([A-Za-z_]\w*)", re.DOTALL)
_NOT_WORK = re.compile(
    rb"_(?:Host)?(?:Send|Recv)|RemoteCall.*|.*PartitionedCall|(?:Stateless)?(?:While|If)|IteratorGetNext.*"
)
_COLLECTIVE = re.compile(rb"Collective.*|NcclAllReduce")
_SUFFIX = re.compile(rb"_(\d{1,6})$")
_SHARED: Final = -2
_SEVERAL: Final = 2


class _NameFacts(Struct, frozen=True, eq=False):
    """Per name of the trace: whether it is an op that does work, or a collective, and its suffix number.

    `order`: of collectives, the place of the name by its suffix, then by those of the scopes around it.
    `replica`: `[hosts, names]`, for what `update_<k>` means depends on the replicas of the host.
    `uses_variable`: the op runs on the device of a variable, whichever replica issued it.
    """

    work: BoolArray
    uses_variable: BoolArray
    collective: BoolArray
    replica: Int64Array
    suffix: Int64Array
    order: Int64Array


class Replicas(Struct, frozen=True, eq=False):
    """The replicas of CPU-only hosts as devices, numbered after the planes of other hosts.

    `columns`: their ops, None without any. `shared_rows`: int64, host rows of ops that no replica owns.
    """

    devices: tuple[Device, ...]
    columns: DeviceColumns | None
    shared_rows: Int64Array

    def after(self, columns: DeviceColumns) -> DeviceColumns:
        """The events of planes, followed by those of the replicas, in the order of devices."""
        if self.columns is None:
            return columns
        return DeviceColumns(
            **{
                key: np.concatenate((column, getattr(self.columns, key)))
                for key, column in asdict(columns).items()
            }
        )


class _HostEvents(Struct, frozen=True, eq=False):
    columns: HostColumns
    lines: Sequence[LineInfo]
    names: Names


def find_replicas(
    hosts: Sequence[Host],
    planes: Sequence[Device],
    lines: Sequence[LineInfo],
    names: Names,
    columns: HostColumns,
) -> Replicas:
    """The replicas of hosts that run on CPUs only; `planes`: the devices that have a plane."""
    with_plane = {device.host for device in planes}
    on_cpu = [
        index
        for index, host in enumerate(hosts)
        if index not in with_plane and not host.gpus_expected
    ]
    if not on_cpu or columns.count == 0:
        return Replicas((), None, np.empty(0, dtype=np.int64))
    events = _HostEvents(columns, lines, names)
    facts = _name_facts(
        names,
        highest_replicas(
            names,
            [unique_ids(columns.name[columns.rows_of_host(host)]) for host in range(len(hosts))],
        ),
    )
    rows = np.flatnonzero(facts.work[columns.name] & _on_executor_thread(events))
    rows = rows[is_in(columns.host[rows], on_cpu)]
    replica = _replica_of_rows(events, rows, facts)
    placed = replica >= 0
    devices: list[Device] = []
    device_of: dict[tuple[int, int], int] = {}
    of_host = columns.host[rows].astype(np.int64)
    for host in on_cpu:
        for number in unique_ids(replica[placed & (of_host == host)]).tolist():
            device_of[host, number] = len(planes) + len(devices)
            devices.append(Device(host, f"replica:{number}", "replica", int(number), None, {}))
    if not device_of:
        return Replicas((), None, rows)
    device = np.array(
        [
            device_of[pair]
            for pair in zip(of_host[placed].tolist(), replica[placed].tolist(), strict=True)
        ],
        dtype=np.int16,
    )
    own = rows[placed]
    is_collective = facts.collective[columns.name[own]]
    found = columns_of_ops(columns, own, device, columns.end_ps[own], is_collective)
    return Replicas(tuple(devices), found, rows[~placed])


def _name_facts(names: Names, highest: Int64Array) -> _NameFacts:
    count = len(names)
    work, uses, collective = (np.zeros(count, dtype=np.bool_) for _ in range(3))
    replica = np.full((highest.size, count), NONE, dtype=np.int64)
    suffix, order = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    numbers_of: dict[int, tuple[int, ...]] = {}
    for index in range(count):
        name = names[index]
        op = _OP.fullmatch(name)
        if not op:
            continue
        uses[index] = uses_variable(op[2])
        work[index] = not _NOT_WORK.fullmatch(op[2])
        collective[index] = _COLLECTIVE.fullmatch(op[2]) is not None
        limits = sorted_unique(highest).tolist() if b"update_" in name else [NONE]
        for limit in limits:
            number = replica_in(name, limit)
            of_host = highest == limit if len(limits) > 1 else slice(None)
            replica[of_host, index] = NONE if number is None else number
        if collective[index]:
            *scopes, last = map(_number_of, op[1].split(b"/"))
            suffix[index] = last
            numbers_of[index] = (last, *scopes)
    place = {key: rank for rank, key in enumerate(sorted(set(numbers_of.values())))}
    for index, key in numbers_of.items():
        order[index] = place[key]
    return _NameFacts(work, uses, collective, replica, suffix, order)


def _number_of(part: bytes) -> int:
    """The number that makes a part of a name unique, 0 without one."""
    counted = _SUFFIX.search(part)
    return int(counted[1]) if counted else 0


def _on_executor_thread(events: _HostEvents) -> BoolArray:
    runs_model = np.array([line.runs_model for line in events.lines], dtype=np.bool_)
    result: BoolArray = runs_model[events.columns.line]
    return result


def _replica_of_rows(events: _HostEvents, rows: Int64Array, facts: _NameFacts) -> Int64Array:
    """Replica of each op row, `_SHARED` where nothing assigns it."""
    host = events.columns
    component = _component_of_rows(events, rows)
    named = facts.replica[host.host[rows], host.name[rows]]
    result = np.where(named != NONE, named, _SHARED)
    in_component = component != NONE
    if in_component.any():
        uses = facts.uses_variable[host.name[rows]]
        # A component that only uses variables belongs to the replica that the names of those ops contain.
        does_more = np.zeros(int(component.max()) + 1, dtype=np.bool_)
        does_more[component[in_component & ~uses]] = True
        decides = np.flatnonzero(in_component & ~(uses & does_more[component]))
        replica_of_component = _most_frequent(
            component[decides], np.maximum(named[decides], 0), does_more.size
        )
        result[in_component] = replica_of_component[component[in_component]]
    collective = np.flatnonzero(facts.collective[host.name[rows]] & ~in_component & (named == NONE))
    if collective.size:
        replicas = int(result.max(initial=0)) + 1
        result[collective] = _deal_out(events, rows[collective], facts, replicas)
    return result


def _most_frequent(group: Int64Array, value: Int64Array, group_count: int) -> Int64Array:
    """The most frequent value of each group, int64 `[group_count]`; of several the largest, 0 in an empty group."""
    pair = labels(group, value)
    count = np.bincount(pair)
    # Of equal indices the last one is kept: that of the most frequent pair, of several the largest.
    order = np.lexsort((value, count[pair], group))
    result = np.zeros(group_count, dtype=np.int64)
    result[group[order]] = value[order]
    return result


def _component_of_rows(events: _HostEvents, rows: Int64Array) -> Int64Array:
    """The component that each op row runs in, if a call of a step function produced it; else `NONE`."""
    host = events.columns
    producers, producer_key, consumers, consumer_key = linked_events(host)
    runs = events.names.matching(host.name[producers], [b"FunctionRun"])
    calls = runs & _on_executor_thread(events)[producers]
    is_component = is_in(consumer_key, producer_key[calls])
    executes = events.names.matching(host.name[consumers], [b"ExecutorState::Process"])
    component = np.full(rows.size, NONE, dtype=np.int64)
    for line in unique_ids(host.line[rows]):
        on_line = np.flatnonzero(host.line[rows] == line)
        around = np.flatnonzero(executes & (host.line[consumers] == line))
        if around.size == 0:
            continue
        nest = nesting(host.start_ps[consumers[around]], host.end_ps[consumers[around]])
        inner = nest.innermost(host.start_ps[rows[on_line]])
        hit = np.flatnonzero(inner != NONE)
        consumer = around[inner[hit]]
        component[on_line[hit]] = np.where(is_component[consumer], consumer_key[consumer], NONE)
    return component


def _deal_out(
    events: _HostEvents, rows: Int64Array, facts: _NameFacts, replicas: int
) -> Int64Array:
    """The replica of each collective: the rank of its name within one (group, instance), else its suffix.

    In a loop within a graph the same op runs with the same instance in every iteration: equal names have one rank.
    """
    host = events.columns
    suffix = facts.suffix[host.name[rows]]
    group = host.stat("group_key").at(rows, NONE)
    instance = host.stat("instance_key").at(rows, NONE)
    name = facts.order[host.name[rows]]
    order = np.lexsort((name, instance, group, host.host[rows]))
    keys = [column[order] for column in (host.host[rows], group, instance)]
    starts = np.ones(rows.size, dtype=np.bool_)
    starts[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    is_new = starts.copy()
    is_new[1:] |= name[order][1:] != name[order][:-1]
    group_of = np.cumsum(starts) - 1
    # A single op that ran several times says nothing: each run counts as an op then.
    is_new |= (np.bincount(group_of, weights=is_new) == 1)[group_of]
    distinct = np.cumsum(is_new)
    rank = np.empty(rows.size, dtype=np.int64)
    rank[order] = distinct - np.maximum.accumulate(np.where(starts, distinct, 0))
    return np.where(instance != NONE, rank, suffix % replicas)


def columns_of_ops(
    host: HostColumns,
    rows: Int64Array,
    device: npt.NDArray[np.integer],
    end_ps: Int64Array,
    is_collective: BoolArray,
) -> DeviceColumns:
    """Host events as the events of devices on a CPU, in the order of kernels; of those that begin together the longer first."""
    order = np.lexsort((-end_ps, host.start_ps[rows], device))
    rows, end_ps = rows[order], end_ps[order]
    nowhere = np.zeros(rows.size, dtype=np.bool_)
    class_ = np.where(is_collective[order], ActivityClass.COLLECTIVE, ActivityClass.COMPUTE)
    return DeviceColumns(
        device=device[order].astype(np.int16),
        line=host.line[rows],
        start_ps=host.start_ps[rows],
        duration_ps=end_ps - host.start_ps[rows],
        name=host.name[rows],
        op=host.name[rows],
        module=np.full(rows.size, NONE, dtype=np.int32),
        shape=np.full(rows.size, NONE, dtype=np.int32),
        class_=class_.astype(np.uint8),
        correlation_id=np.zeros(rows.size, dtype=np.int64),
        has_correlation=nowhere,
        # The op is its own host event.
        launch=rows,
        bytes=np.full(rows.size, UNKNOWN_BYTES, dtype=np.int64),
        host_memory=np.full(rows.size, HostMemory.UNKNOWN, dtype=np.uint8),
        group=np.full(rows.size, NONE, dtype=np.int64),
        p2p=nowhere,
        opaque=nowhere,
        unknown_direction=nowhere,
        position=host.position[rows],
    )


def with_detected_strategies(recording: Recording) -> tuple[Host, ...]:
    """The hosts, with `found_by` set to `recording` where several replicas ran and the capture did not show it.

    The capture inspects the variables and the input of the step functions. These do not show the strategy of a model
    that was built outside of its scope, or of a step without a `tf.function`: then the capture finds it in memory only.
    """
    in_memory = [
        index
        for index, host in enumerate(recording.hosts)
        if host.sidecar is not None and host.sidecar.environment.strategy.found_by == "memory"
    ]
    if not in_memory:
        return recording.hosts
    named = ReplicaNames(recording).least_counts
    on_cpu = [device.host for device in recording.device_list if device.kind == "replica"]
    return tuple(
        _with_detected_strategy(host)
        if index in in_memory and (index in named or on_cpu.count(index) >= _SEVERAL)
        else host
        for index, host in enumerate(recording.hosts)
    )


def _with_detected_strategy(host: Host) -> Host:
    if host.sidecar is None:
        return host
    environment = host.sidecar.environment
    strategy = structs.replace(environment.strategy, found_by="recording")
    environment = structs.replace(environment, strategy=strategy)
    return replace(host, sidecar=replace(host.sidecar, environment=environment))
