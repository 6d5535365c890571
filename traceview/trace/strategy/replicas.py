"""Assigns the ops of a CPU-only run to the replicas of a MirroredStrategy, or to the CPU devices of XLA (docs/method.md, "Replicas").

Threads do not identify a replica, because components move between them; nor does an op on a variable, which runs where that lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.ids import labels, unique_counts, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE, DeviceColumns, HostColumns, Names, device_columns
from traceview.trace.device.classify import InstructionNumbers, with_ops_inside
from traceview.trace.device.correlation import EventsAround, linked_events
from traceview.trace.device.op_names import (
    KEPT_NAMES,
    LONGEST_NAME,
    OPTIMIZER_SCOPE,
    Phase,
    event_phases,
    split_op_name,
    uses_variable,
)
from traceview.trace.model import MOST_DEVICES, Device, Host, LineInfo, Recording
from traceview.trace.sidecar.sidecar import Sidecar
from traceview.trace.strategy.components import (
    MOST_LOGICAL,
    component_of_rows,
    components_around,
    logical_cpus,
    logical_device_of_rows,
    most_frequent,
    ops_of_loops,
)
from traceview.xplane.planes import (
    ActivityClass,
    NameKind,
    is_xla_container,
    op_type,
    xla_op_kind,
)

_NOT_WORK = lazy_pattern(
    rb"_(?:Host)?(?:Send|Recv)|RemoteCall.*|.*PartitionedCall|(?:Stateless)?(?:While|If)|IteratorGetNext.*"
)
_COLLECTIVE = lazy_pattern(rb"Collective.*|NcclAllReduce")
_OF_STEP: Final = b"PartitionedCall/"
"""What is in the names of ops of a function that was put into the graph of its caller, as those of a replica are (TensorFlow 2.21)."""
_PROGRAM: Final = b"CpuExecutable::ExecuteAsyncOnStream"
"""A program of XLA that an op of TensorFlow runs, with `jit_compile=True`; it returns when all is computed (2.21, measured)."""
_SUFFIX = lazy_pattern(rb"_(\d{1,6})$")
_SHARED: Final = -2
_KNOWN_RATIO: Final = 0.25
"""Of the ops of a component: with a number in so many names, those without one do not count. A choice of ours."""


_FACTS: Final = np.dtype(
    [("work", np.bool_), ("collective", np.bool_), ("of_step", np.bool_), ("replica", np.int64)]
)
"""Of a name: whether it is an op that does work, a collective, or of a part of a step, and its replica."""


class Replicas(Struct, frozen=True, eq=False):
    """The replicas of a CPU-only host as devices.

    `columns`: their ops, None without any. `shared_rows`: int64, host rows of ops that no replica owns.
    """

    devices: tuple[Device, ...] = ()
    columns: DeviceColumns | None = None
    shared_rows: Int64Array = np.empty(0, dtype=np.int64)


def find_replicas(
    lines: Sequence[LineInfo], names: Names, columns: HostColumns, captured: Sidecar
) -> Replicas:
    """The replicas of a host that runs on CPUs only; where names show a single one, the logical CPU devices that it asks for."""
    highest = int(highest_replicas(names, [unique_ids(columns.name)])[0])
    facts = np.fromiter((_facts_of(name, highest) for name in names), _FACTS, len(names))
    runs_model = np.array([line.runs_model for line in lines], dtype=np.bool_)
    is_work = facts["work"][columns.name]
    rows = np.flatnonzero(is_work & runs_model[columns.line])
    replica = _replica_of_rows(names, columns, runs_model, rows, facts)
    inside = ops_of_loops(names, columns, runs_model, is_work)
    if inside.size:
        # Nothing says who runs a data set; where there is one replica it does.
        named = facts["replica"][columns.name[inside]]
        nobody = 0 if replica.max(initial=0) <= 0 else _SHARED
        replica = np.append(replica, np.where(named != NONE, named, nobody))
        rows = np.append(rows, inside)
    logical = logical_cpus(captured)
    is_placed = 1 < len(logical) <= MOST_LOGICAL and replica.max(initial=0) <= 0
    if is_placed:
        placed = logical_device_of_rows(names, columns, runs_model, rows, logical)
        replica = np.where(placed != NONE, placed, replica)
    is_owned = replica >= 0
    numbers, device = unique_inverse(replica[is_owned])
    if not numbers.size:
        return Replicas(shared_rows=rows)
    own = rows[is_owned]
    is_collective = facts["collective"][columns.name[own]]
    found = columns_of_ops(columns, own, device, columns.end_ps[own], is_collective)
    kind, model = (CPU, CPU) if is_placed else ("replica", None)
    devices = (Device(0, f"{kind}:{n}", "replica", n, model, {}) for n in numbers.tolist())
    return Replicas(tuple(devices), found, rows[~is_owned])


def _facts_of(name: bytes, highest: int) -> tuple[bool, bool, bool, int]:
    """What a name shows; `highest`: the highest replica in the names of the host."""
    type_ = op_type(name)
    if type_ is None:
        return name == _PROGRAM, False, False, NONE
    is_work, is_collective = not _NOT_WORK.fullmatch(type_), bool(_COLLECTIVE.fullmatch(type_))
    replica = replica_in(name, highest)
    return is_work, is_collective, _OF_STEP in name, NONE if replica is None else replica


def _replica_of_rows(
    names: Names,
    host: HostColumns,
    runs_model: BoolArray,
    rows: Int64Array,
    facts: npt.NDArray[np.void],
) -> Int64Array:
    """Replica of each op row, `_SHARED` where nothing assigns it. `facts`: of all names."""
    component = component_of_rows(names, host, runs_model, rows)
    name = host.name[rows]
    named = facts["replica"][name]
    result = np.where(named != NONE, named, _SHARED)
    # Without a graph around, Python calls the program, on the only device that can be.
    result[names.matching(name, [_PROGRAM])] = 0
    in_component = component != NONE
    if in_component.any():
        own, number = component[in_component], named[in_component]
        size, has_number = int(own.max()) + 1, number != NONE
        # Ops outside of all scopes have no number in any component, so a quarter with one says more than the rest.
        count, numbered = (np.bincount(rows_, minlength=size) for rows_ in (own, own[has_number]))
        by_all = most_frequent(own, np.maximum(number, 0), size)
        by_numbered = most_frequent(own[has_number], number[has_number], size)
        replica = np.where(numbered >= _KNOWN_RATIO * count, by_numbered, by_all)
        is_step = np.bincount(own, facts["of_step"][name[in_component]], size) > 0
        around = components_around(names, host)
        result[in_component] = replica[_callers(around, (numbered > 0) | is_step)][own]
    collective = np.flatnonzero(facts["collective"][name] & ~in_component & (named == NONE))
    if collective.size:
        replicas = int(result.max(initial=0)) + 1
        result[collective] = _deal_out(names, host, rows[collective], replicas)
    return result


def _callers(around: Int64Array, is_known: BoolArray) -> Int64Array:
    """By component the innermost one around it of which something is known, or itself; `around`: as `components_around`.

    What an op calls has names of its own, which say no replica.
    """
    size = max(around.size, is_known.size)
    own = np.arange(size)
    known = np.append(is_known, np.zeros(size - is_known.size, dtype=np.bool_))
    outer = np.append(around, np.full(size - around.size, NONE))
    found = np.where(known | (outer == NONE), own, outer)
    for _ in range(size.bit_length()):
        found = found[found]
    result: Int64Array = np.where(known[found], found, own)[: is_known.size]
    return result


def _numbers_of(name: bytes) -> tuple[int, ...]:
    """The numbers that make the name of an op unique, 0 for none: its own, then those of the scopes around it."""
    parts = map(_SUFFIX.search, name.rpartition(b":")[0].split(b"/"))
    *scopes, own = (int(counted[1]) if counted else 0 for counted in parts)
    return own, *scopes


def _deal_out(names: Names, host: HostColumns, rows: Int64Array, replicas: int) -> Int64Array:
    """The replica of each collective: the rank of its name, by its numbers, within one (group, instance), else its own number.

    In a loop within a graph the same op runs with the same instance in every iteration: equal names have one rank.
    """
    instance = host.stat("instance_key").at(rows, NONE)
    group = labels(host.stat("group_key").at(rows, NONE), instance)
    distinct, place = unique_inverse(host.name[rows])
    numbers = [_numbers_of(names[index]) for index in distinct.tolist()]
    ranks = {key: rank for rank, key in enumerate(sorted(set(numbers)))}
    name = np.array([ranks[key] for key in numbers], dtype=np.int64)[place]
    own = np.array([key[0] for key in numbers], dtype=np.int64)[place]
    order = np.lexsort((name, group))
    group = group[order]
    starts = np.diff(group, prepend=-1) != 0
    is_new = starts | (np.diff(name[order], prepend=-1) != 0)
    # A single op that ran several times says nothing: each run counts as an op then.
    is_new |= (np.bincount(group, weights=is_new) == 1)[group]
    passed = np.cumsum(is_new)
    rank = np.empty(rows.size, dtype=np.int64)
    rank[order] = passed - np.maximum.accumulate(np.where(starts, passed, 0))
    return np.where(instance != NONE, rank, own % replicas)


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
    class_ = np.where(is_collective[order], ActivityClass.COLLECTIVE, ActivityClass.COMPUTE)
    return device_columns(
        rows.size,
        device=device[order].astype(np.int16),
        line=host.line[rows],
        start_ps=host.start_ps[rows],
        duration_ps=end_ps - host.start_ps[rows],
        name=host.name[rows],
        op=host.name[rows],
        class_=class_.astype(np.uint8),
        # The op is its own host event.
        launch=rows,
    )


def with_detected_strategies(recording: Recording) -> tuple[Host, ...]:
    """The hosts, with `found_by` set to `recording` where several replicas ran and the capture did not show it.

    The capture inspects the variables and the input of the step functions. These do not show the strategy of a model
    that was built outside of its scope, or of a step without a `tf.function`: then the capture finds it in memory only.
    """
    hosts = list(recording.hosts)
    on_cpu = [device.host for device in recording.device_list if device.kind == "replica"]
    for index, host in enumerate(hosts):
        environment = host.captured.environment
        if host.sidecar is None or environment.strategy.found_by != "memory":
            continue
        if on_cpu.count(index) > 1 or index in least_replica_counts(recording):
            strategy = replace(environment.strategy, found_by="recording")
            found = replace(environment, strategy=strategy)
            hosts[index] = replace(host, sidecar=replace(host.sidecar, environment=found))
    return tuple(hosts)


# CPU devices of XLA

_INSTRUCTION: Final = lazy_pattern(rb"[A-Za-z_][\w.\-]{0,255}")
"""The name of an HLO instruction; what the runtime records beside it has spaces or colons."""

_END: Final = b"end: "
_GOES_ON: Final = b"ThunkExecutor::Execute"

_RENDEZVOUS: Final = (b"Rendezvous", b"InvokeRendezvous")
"""Where the devices of a collective meet (jaxlib 0.10)."""

CPU: Final = "CPU"
"""The model of such a device."""


def find_xla_devices(
    names: Names, columns: HostColumns, instructions: InstructionNumbers
) -> Replicas:
    """The CPU devices of one host, which has no device planes. A number of 32,768 or more is none of a device."""
    ordinals = columns.stat("device_ordinal")
    is_device = (ordinals.value >= 0) & (ordinals.value < MOST_DEVICES)
    rows, number = ordinals.row[is_device], ordinals.value[is_device]
    is_op = names.where(columns.name[rows], _INSTRUCTION.fullmatch)
    rows, number = rows[is_op], number[is_op]
    if not rows.size:
        return Replicas()
    known, device = unique_inverse(number)
    end_ps = _ends(names, columns, rows)
    order = np.argsort(device, kind="stable")
    rows, device, end_ps = rows[order], device[order], end_ps[order]
    is_work = ~_are_loops(names, columns, rows, device, end_ps)
    rows, device, end_ps = rows[is_work], device[is_work], end_ps[is_work]
    is_collective = names.where(
        columns.name[rows], lambda name: xla_op_kind(name) is NameKind.COLLECTIVE
    )
    is_collective |= _meet_others(names, columns, rows)
    found = columns_of_ops(columns, rows, device, end_ps, is_collective)
    calls = found.launch.astype(np.int64, copy=False)
    module, program = (columns.stat(key).at(calls, NONE) for key in ("hlo_module", "program_id"))
    run = instructions.of(found.name, module.astype(np.int32), program)
    found = replace(found, instruction=run)
    devices = (Device(0, f"CPU:{number}", "replica", number, CPU, {}) for number in known.tolist())
    return Replicas(tuple(devices), found)


def _ends(names: Names, columns: HostColumns, rows: Int64Array) -> Int64Array:
    """When each op ended, which may be on another thread."""
    end = columns.end_ps[rows]
    producer, produced, consumer, consumed = linked_events(columns)
    is_end = names.where(columns.name[consumer], lambda name: name.startswith(_END))
    until = np.full(int(max(produced.max(initial=0), consumed.max(initial=0))) + 1, NONE, np.int64)
    np.maximum.at(until, consumed[is_end], _completed(names, columns, consumer[is_end]))
    of_row = np.full(columns.count, NONE, dtype=np.int64)
    of_row[producer] = until[produced]
    return np.maximum(end, of_row[rows])


def _completed(names: Names, columns: HostColumns, ends: Int64Array) -> Int64Array:
    """When the ops were done whose end these rows say.

    The thread that completes an op first runs all that waited for it, the rest of the program perhaps (`ThunkExecutor::Execute`),
    and says the end then: of the last op of a loop after that of the loop.
    """
    result = columns.end_ps[ends]
    is_other = np.ones(columns.count, dtype=np.bool_)
    is_other[ends] = False
    line, start = columns.line[ends], columns.start_ps[ends]
    for each in unique_ids(line).tolist():
        of_line = np.flatnonzero((columns.line[:] == each) & is_other)
        if not of_line.size:
            continue
        # Of those that end together the outermost last.
        order = np.lexsort((-columns.start_ps[of_line], columns.end_ps[of_line]))
        of_line = of_line[order]
        own = np.flatnonzero(line == each)
        before = np.searchsorted(columns.end_ps[of_line], start[own], side="right") - 1
        last = of_line[before]
        goes_on = (before >= 0) & names.matching(columns.name[last], [_GOES_ON])
        result[own[goes_on]] = columns.start_ps[last[goes_on]]
    return result


def _meet_others(names: Names, columns: HostColumns, rows: Int64Array) -> BoolArray:
    """Ops inside which their thread waits for those of other devices: collectives, whatever the program calls them."""
    meetings = np.flatnonzero(names.matching(columns.name[:], _RENDEZVOUS))
    result = np.zeros(rows.size, dtype=np.bool_)
    around = EventsAround(rows, columns).innermost(meetings)
    result[around[around != NONE]] = True
    return result


def _are_loops(
    names: Names, columns: HostColumns, rows: Int64Array, device: Int64Array, end_ps: Int64Array
) -> BoolArray:
    """Loops and calls, whose ops are recorded too; the rows are in the order of their devices."""
    result = names.where(columns.name[rows], is_xla_container)
    if result.any():
        start_ps = columns.start_ps[rows]
        bounds = np.append(np.flatnonzero(np.diff(device, prepend=-1)), device.size)
        for low, high in pairwise(bounds.tolist()):
            own = slice(low, high)
            result[own] = with_ops_inside(result[own], start_ps[own], end_ps[own])
    return result


_REPLICA: Final = lazy_pattern(rb"(?:^|/)replica_(\d{1,4})(?:_\d+)?(?=/|:|$)")
_UPDATE: Final = lazy_pattern(rb"(?:^|/)update_(\d{1,4})(?:_\d+)?(?=/|:|$)")
_REPLICA_SCOPE: Final = lazy_pattern(rb"(?:^|/|_)replica_(\d{1,4})(?:_\d+)?/")


def least_replica_counts(recording: Recording) -> dict[int, int]:
    """The smallest number of replicas that the op names of each host (by index) allow: the highest number plus one.

    The first replica has no number in names, so a host whose ops name no other replica is left out.
    """
    highest = recording.once(_highest_of_hosts).tolist()
    return {host: value + 1 for host, value in enumerate(highest) if value > 0}


def _highest_of_hosts(recording: Recording) -> Int64Array:
    """The highest replica in the names of each host, over the events of the host and of its devices."""
    columns, events = recording.device_columns, recording.host_columns
    used = [
        np.concatenate(
            (
                unique_ids(events.name[events.rows_of_host(host)]),
                *(unique_ids(columns.op[columns.rows_of(device)]) for device in devices),
            )
        )
        for host, devices in enumerate(recording.devices_of_host)
    ]
    return highest_replicas(recording.names, used)


def gradient_counts(recording: Recording, device: int) -> dict[int, int]:
    """The number of events that compute gradients on one device, by replica; ops without a number belong to replica 0."""
    columns, rows = recording.device_columns, recording.device_columns.rows_of(device)
    highest = int(recording.once(_highest_of_hosts)[recording.device_list[device].host])
    is_gradient = columns.class_[rows] == ActivityClass.COMPUTE
    is_gradient &= recording.once(event_phases)[rows] == Phase.BACKWARD
    of_op = partial(_replica_of_op, highest=highest)
    replica = recording.names.each(columns.op[rows][is_gradient], of_op, np.int64, NONE)
    replicas, count = unique_counts(np.maximum(replica, 0))
    return dict(zip(replicas.tolist(), count.tolist(), strict=True))


@lru_cache(KEPT_NAMES)
def _replica_of_op(text: bytes, highest: int) -> int:
    """The replica that the recorded text of an op contains, `NONE` without one."""
    path, type_ = split_op_name(text[:LONGEST_NAME])
    # An optimizer names an op after the device of the variable; other ops are named after the replica that asks.
    if uses_variable(type_) and not OPTIMIZER_SCOPE.search(path):
        return NONE
    replica = replica_in(path, highest)
    return NONE if replica is None else replica


def highest_replicas(names: Names, of_hosts: Sequence[Int64Array]) -> Int64Array:
    """The highest k in a scope `replica_<k>/` among the names of each host, int64; `NONE` where no name has one.

    `of_hosts`: by host, indices of names, or `NONE`. Ops that only send to another device or receive from it count too.
    """
    # The last entry is that of `NONE`.
    number = np.append(names.every(_scope_number, np.int64), NONE)
    return np.array([number[own].max(initial=NONE) for own in of_hosts], dtype=np.int64)


def _scope_number(name: bytes) -> int:
    # Most names have none, which is found faster.
    match = _REPLICA_SCOPE.search(name[:LONGEST_NAME]) if b"replica_" in name else None
    return int(match[1]) if match else NONE


def replica_in(path: bytes, highest: int) -> int | None:
    """The replica that the name or path of an op contains: `replica_<k>`, or an optimizer's `update_<k>`.

    Of several `update_<k>` the innermost counts: an optimizer of tf_keras numbers its variables outside of it. Where
    k exceeds `highest`, the highest `replica_<k>` of the host, it numbers a variable.
    """
    # Most names have neither, which is found faster.
    match = _REPLICA.search(path) if b"replica_" in path else None
    if match:
        return int(match[1])
    updates = _UPDATE.findall(path) if b"update_" in path else []
    return int(updates[-1]) if updates and int(updates[-1]) <= max(highest, 0) else None
