"""Sums up what collectives cost: how much is transfer, how much waiting for other devices, how much is hidden.

All devices leave a collective together, so the device that came last spends the shortest time in it. That time is the
transfer; the others waited for the rest of their time in it. On a device the waiting comes first:

    GPU:0   ▕ compute ▏▕ wait   ▕ transfer ▏
    GPU:1   ▕ compute          ▏▕ transfer ▏      last

Only time that no kernel covers costs anything: in the ledger it is `communication` or `device_wait`. Where parts of
several collectives overlap on a device, transfer goes first.

Layers of the model, such as synchronised batch normalisation, make collectives of their own. Gradients are summed once
per step, after the backward pass and in a scope of the optimizer. A layer that computes over all replicas makes its
collectives in its own scope, which the backward pass has too; there each of them may have one more, which TensorFlow names
after no layer (TensorFlow 2.21).

The bytes of a bandwidth are those that the events record. Where they record none, it is the size of the gradients, which the sidecar
knows, over the transfer of all-reduces in a step. Sparse gradients are gathered, and how large they are is not known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from traceview.analysis.facts.layers import layer_of_scope
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.device_report import in_windows
from traceview.analysis.measures.program_memory import PHASES
from traceview.analysis.measures.reduction_path import (
    Path,
    ReductionPath,
    events_in_windows,
    reduction_paths,
)
from traceview.analysis.rules.finding import OfDevice, Skipped
from traceview.base.ids import groups_of, is_in, sorted_unique, unique_ids
from traceview.base.intervals import BoolArray, Int64Array, places
from traceview.base.record import LARGEST, Count, Key, OpName, Picoseconds, Record, Share, Words
from traceview.base.stats import median, median_ps
from traceview.base.units import PS_PER_S
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.device.op_names import (
    LONGEST_NAME,
    OPTIMIZER_SCOPE,
    Phase,
    op_names,
    phase_of,
    phases_of,
    split_op,
)
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.trace.sidecar.links import nvlink_bytes_per_second, pcie_bytes_per_second
from traceview.trace.sidecar.sidecar import Sidecar
from traceview.trace.strategy.collectives import CollectiveKind, Collectives
from traceview.trace.strategy.roles import missing_tasks, step_groups
from traceview.xplane.planes import ActivityClass

MOST_LAYERS: Final = 16
MOST_OPS: Final = 100
"""In a report; choices of ours."""

Link: TypeAlias = Literal["nvlink", "pcie"]

_SCATTERED: Final = (
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
_REDUCING: Final = (CollectiveKind.ALL_REDUCE, CollectiveKind.UNKNOWN)


# Bandwidth


class Bandwidth(Record, frozen=True):
    """How many bytes collectives move, and what their link would allow.

    Attributes:
        bytes: Bytes of all collectives if recorded, else of one step's gradients from the sidecar; null where
            neither is known.
        bus_bytes_per_second: bytes over the transfers, times what each link carries per byte: 2(n-1)/n of an all-reduce,
            (n-1)/n of an all-gather or reduce-scatter among n devices; rounded down, null where bytes are not known.
        link: What links the GPUs, from the sidecar; null where not known, and for a network.
        link_bytes_per_second: What the links of one GPU carry in one direction; null where not known.
        expected_ps: What reducing the gradients of one step takes at the speed of the link, picoseconds; null
            where either is not known.
    """

    bytes: Count | None
    bus_bytes_per_second: Count | None
    link: Link | None
    link_bytes_per_second: Count | None
    expected_ps: Picoseconds | None


class Workers(Struct, frozen=True):
    """How many workers train together, and how many of them were not recorded."""

    recorded_count: int
    missing_count: int

    @classmethod
    def of(cls, trace: Trace) -> Workers:
        """The workers of a run."""
        together = max(step_groups(trace.hosts), key=len, default=())
        return cls(len(together), len(missing_tasks(trace.hosts)))

    def member_count(self, recorded_devices: int) -> int:
        """How many devices take part where so many were recorded: all workers have equally many."""
        if not self.missing_count:
            return recorded_devices
        workers = self.recorded_count + self.missing_count
        return recorded_devices * workers // self.recorded_count


def bandwidth_of(
    trace: Trace,
    collectives: Collectives,
    hosts: Sequence[int],
    chosen: BoolArray,
    workers: Workers,
    reduce_ps_per_step: int | None,
) -> Bandwidth:
    """The bandwidth of the chosen collectives, bool `[collectives]`, of these hosts.

    `reduce_ps_per_step`: transfer of their complete all-reduces in a step.
    """
    complete = chosen & collectives.is_complete
    members = workers.member_count(int(collectives.device_count[complete].max(initial=0)))
    # All workers train the same model: what one sidecar says about it holds for all.
    # Sparse gradients are gathered instead: the size of dense ones says nothing about what is moved then.
    gathers = bool((collectives.kind[collectives.first][chosen] == CollectiveKind.ALL_GATHER).any())
    gradient_bytes = (
        None
        if gathers
        else agreed(
            sidecar.environment.training.gradient_bytes or None
            for sidecar in sidecars(trace, hosts)
        )
    )
    is_on_network = not collectives.is_within_host[chosen].all()
    link, link_speed = (None, None) if is_on_network else _link(trace, hosts)
    expected_ps = None
    if gradient_bytes is not None and link_speed and members > 1:
        sent = _bus_factor(CollectiveKind.ALL_REDUCE, members) * gradient_bytes
        expected_ps = int(sent * PS_PER_S / link_speed)

    size: int | None = None
    on_bus = Fraction(0)
    length_ps = 0
    if complete.any() and not (collectives.bytes_moved[complete] == UNKNOWN_BYTES).any():
        size, length_ps = 0, int(collectives.transfer_ps[complete].sum())
        for kind, devices, moved in _sizes(collectives, complete):
            whole = _whole_size(kind, devices, moved, workers)
            size += whole
            on_bus += whole * _bus_factor(kind, workers.member_count(devices))
    elif gradient_bytes is not None and reduce_ps_per_step:
        size, length_ps = gradient_bytes, reduce_ps_per_step
        on_bus = size * _bus_factor(CollectiveKind.ALL_REDUCE, members)
    return Bandwidth(
        bytes=size,
        bus_bytes_per_second=_per_second(on_bus, length_ps),
        link=link,
        link_bytes_per_second=link_speed,
        expected_ps=expected_ps,
    )


def is_reducing(collectives: Collectives) -> BoolArray:
    """Whether each collective may reduce gradients, bool `[collectives]`."""
    result: BoolArray = is_in(collectives.kind[collectives.first], _REDUCING)
    return result


def sidecars(trace: Trace, hosts: Sequence[int]) -> list[Sidecar]:
    """The sidecars of those of these hosts that have one."""
    return [sidecar for host in hosts if (sidecar := trace.hosts[host].sidecar) is not None]


def agreed(values: Iterable[int | None]) -> int | None:
    """The only value that is known; None without any, and where several are."""
    known = set(values) - {None}
    return known.pop() if len(known) == 1 else None


def _link(trace: Trace, hosts: Sequence[int]) -> tuple[Link | None, int | None]:
    """What links the GPUs of these hosts, if all are alike: NVLink, else PCIe; with bytes per second."""
    links: set[tuple[Link | None, int | None]] = set()
    capabilities = {
        (device.count("compute_cap_major"), device.count("compute_cap_minor"))
        for host in hosts
        for device in map(trace.device_list.__getitem__, trace.devices_of_host[host])
        if device.kind == "gpu"
    }
    for sidecar in sidecars(trace, hosts):
        for gpu in sidecar.environment.links.gpus or ():
            nvlinks = gpu.nvlinks.active if gpu.nvlinks else None
            if nvlinks:
                speeds = {nvlink_bytes_per_second(version, nvlinks) for version in capabilities}
                links.add(("nvlink", speeds.pop() if len(speeds) == 1 else None))
                continue
            generation = gpu.pcie_generation_max or gpu.pcie_generation
            speed = pcie_bytes_per_second(generation, gpu.pcie_width or gpu.pcie_width_max)
            links.add(("pcie" if speed else None, speed))
    return links.pop() if len(links) == 1 else (None, None)


def _sizes(collectives: Collectives, complete: BoolArray) -> list[tuple[CollectiveKind, int, int]]:
    """Kind, device count and bytes of the complete collectives; those of equal kind and count are summed."""
    kind = collectives.kind[collectives.first][complete]
    count, size = collectives.device_count[complete], collectives.bytes_moved[complete]
    return [
        (CollectiveKind(kind[of[0]]), int(count[of[0]]), int(size[of].sum()))
        for of in groups_of(kind, count)
    ]


def _whole_size(kind: CollectiveKind, devices: int, size: int, workers: Workers) -> int:
    """An all-gather also holds the parts of devices that were not recorded."""
    if kind == CollectiveKind.ALL_GATHER and devices:
        return size * workers.member_count(devices) // devices
    return size


def _bus_factor(kind: CollectiveKind, devices: int) -> Fraction:
    """What each link carries per byte reduced (NCCL tests, PERFORMANCE.md); 1 for what goes one way."""
    if devices < 1:
        return Fraction(0)
    if kind in _SCATTERED:
        return Fraction(devices - 1, devices)
    if kind in _REDUCING:
        return Fraction(2 * (devices - 1), devices)
    return Fraction(1)


def _per_second(size: Fraction, length_ps: int) -> int | None:
    rate = int(size * PS_PER_S / length_ps) if length_ps > 0 else None
    return None if rate is not None and rate > LARGEST else rate


# Layers

_GRADIENTS: Final = b"gradient_tape/"
_OF_CALL: Final = re.compile(rb"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
_BATCH_NORM: Final = re.compile(rb"batch_?norm", re.IGNORECASE)


class LayerCollectives(Struct, frozen=True, eq=False):
    """`rows`: int64, of the device columns. `scopes`: of the layers. `per_step`: collectives in a used step, median."""

    rows: Int64Array
    scopes: frozenset[bytes]
    per_step: int

    @property
    def is_batch_norm(self) -> bool:
        """Whether all of the layers normalise batches."""
        return all(_BATCH_NORM.search(scope) for scope in self.scopes)


def layer_collectives(context: Context) -> LayerCollectives | None:
    """The collectives of layers; None without any in a used step."""
    return _of_layers(context.trace, context.collectives, _used_steps(context))


def _used_steps(context: Context) -> Int64Array:
    used = [
        step.number
        for host in context.selection.windows
        for step in context.selection.used_of(host)
    ]
    return np.array(sorted(set(used)), dtype=np.int64)


def _of_layers(
    trace: Trace, collectives: Collectives, steps: Int64Array
) -> LayerCollectives | None:
    if not steps.size or not collectives.count:
        return None
    scope_of = {
        op: _path(split_op(trace.names.text(op) or "")[0]).rpartition(b"/")[0]
        for op in unique_ids(collectives.op).tolist()
        if op != NONE
    }
    scopes = _scopes(trace)
    is_forward = _asked_in(collectives, scope_of, scopes.of_layers)
    is_backward = _asked_in(collectives, scope_of, scopes.of_step)
    is_backward &= _before_the_last_gradient(trace, collectives, is_backward)
    forward, backward = (_per_step(collectives, rows, steps) for rows in (is_forward, is_backward))
    if not forward:
        return None
    # More of them cannot all belong to these layers: some may sum gradients.
    rows = is_forward | is_backward if backward <= forward else is_forward
    per_step = _per_step(collectives, rows, steps)
    layers = scopes.of_layers & set(scope_of.values())
    return LayerCollectives(collectives.row[rows], layers, per_step)


def _per_step(collectives: Collectives, rows: BoolArray | Int64Array, steps: Int64Array) -> int:
    """How many of the collectives begin in a used step, median."""
    of_step = np.sort(collectives.first_step[unique_ids(collectives.collective[rows])])
    counts = places(of_step, steps, right=True) - places(of_step, steps)
    return round(median(counts))


def _asked_in(
    collectives: Collectives, scope_of: Mapping[int, bytes], scopes: frozenset[bytes]
) -> BoolArray:
    """Which collectives were asked for by an op right in one of some scopes."""
    ops = [op for op, scope in scope_of.items() if scope in scopes]
    return is_in(collectives.op.astype(np.int64), np.array(sorted(ops), dtype=np.int64))


class _Scopes(Struct, frozen=True):
    """`of_layers`: those of layers. `of_step`: those around the model, b"" among them, in which gradients are computed."""

    of_layers: frozenset[bytes]
    of_step: frozenset[bytes]


def _scopes(trace: Trace) -> _Scopes:
    """The scopes that ops of the backward pass repeat, for what is in a layer has gradients, and those around them.

    A scope that the script puts around the step has most gradient ops or the optimizer in it, and is none of a layer.
    """
    gradients: Counter[bytes] = Counter()
    of_step: set[bytes] = {b""}
    of_optimizer: set[bytes] = set()
    gradient_count = 0
    # Replicas have the same ops, so that each is read once.
    for path in {_path(name) for name, _ in trace.once(op_names).ops if name is not None}:
        if path.startswith(_GRADIENTS):
            gradient_count += 1
            gradients.update(_around(path.removeprefix(_GRADIENTS).rpartition(b"/")[0]))
        elif (optimizer := OPTIMIZER_SCOPE.search(path)) is not None:
            of_step.update(_around(path[: optimizer.start()]))
            of_optimizer.update(_around(path[: optimizer.end()].rstrip(b"/")))
    of_step.update(scope for scope, count in gradients.items() if 2 * count > gradient_count)
    layers = gradients.keys() - of_step - of_optimizer
    return _Scopes(frozenset(layers), frozenset(of_step))


def _around(scope: bytes) -> Iterator[bytes]:
    """A scope and those around it."""
    while scope:
        yield scope
        scope = scope.rpartition(b"/")[0]


def _path(name: str) -> bytes:
    """The path of an op, whose name is without replica and type, without the function that was called."""
    return _OF_CALL.sub(b"", name[:LONGEST_NAME].encode())


def _before_the_last_gradient(trace: Trace, collectives: Collectives, rows: BoolArray) -> BoolArray:
    """Which of `rows` end before an op of the backward pass begins, in the same step on their device."""
    columns, phase = trace.device_columns, phases_of(trace)
    result = np.zeros(rows.size, dtype=np.bool_)
    for device in unique_ids(collectives.device[rows]).tolist():
        of_device = columns.rows_of(device)
        gradients = np.sort(columns.start_ps[of_device][phase[of_device] == Phase.BACKWARD])
        own = np.flatnonzero(rows & (collectives.device == device))
        end = collectives.end_ps[own]
        steps = trace.steps_by_host[trace.device_list[device].host].steps
        step_ends = np.array([step.end_ps for step in steps], dtype=np.int64)
        step_end = np.append(step_ends, end.max())[np.searchsorted(step_ends, end, side="right")]
        result[own] = np.searchsorted(gradients, step_end) > np.searchsorted(gradients, end)
    return result


Matched: TypeAlias = Literal["keys", "order", "mixed"]
Library: TypeAlias = Literal["nccl", "rccl"]


class DeviceCollectives(OfDevice, frozen=True):
    """What one device spends in the collectives that overlap the window.

    Attributes:
        wait_ps: Time in collectives beyond the transfers, whether or not compute hides it, picoseconds.
        exposed_ps: Time in collectives without compute, picoseconds.
        communication_ps: The part of the exposed time in transfers, picoseconds; the rest is waiting.
        communication_per_step_ps: The same per step, mean over the used steps of its host, rounded down, picoseconds; null
            without any.
        device_wait_per_step_ps: Exposed waiting for another device in collectives per step, as above, picoseconds.
        last_count: How often it started after all others of its collectives.
    """

    wait_ps: Picoseconds
    exposed_ps: Picoseconds
    communication_ps: Picoseconds
    communication_per_step_ps: Picoseconds | None
    device_wait_per_step_ps: Picoseconds | None
    last_count: Count


class CollectiveOp(Record, frozen=True):
    """What an op of collectives costs.

    Attributes:
        op: Its name.
        layers: Layers whose arrays it exchanges, at most MOST_LAYERS; none where no program says them.
        layer_count: How many there are.
        phase: The phase that they are of: backward for gradients. Null where they differ, or are not known.
        count_per_step: How often it runs in a step, over all groups of devices; median.
        device_count: Devices that exchange with each other, the largest number.
        bytes: What each device gives, the largest number; null where not recorded.
        stream_computes: Whether kernels compute on its stream, too, so that it can never run beside these; null without GPUs.
        exposed_ps_per_step: Time in it without compute, mean per step and device, rounded down, picoseconds.
        wait_ps_per_step: The part of it in which a device waits for another one, picoseconds.
    """

    op: OpName
    layers: tuple[OpName, ...]
    layer_count: Count
    phase: Key | None
    count_per_step: Count
    device_count: Count
    bytes: Count | None
    stream_computes: bool | None
    exposed_ps_per_step: Picoseconds
    wait_ps_per_step: Picoseconds


class CollectiveResult(Bandwidth, frozen=True):
    """The collectives that overlap the window.

    Attributes:
        device_count: Devices that took part.
        member_count: Devices that take part, those of workers that were not recorded included: every worker
            has equally many.
        library: The library for collectives of these GPUs; null without GPUs.
        count: Collectives that overlap the window.
        incomplete_count: Those of them that not all devices recorded; left out of transfer and waiting.
        count_per_step: Collectives per step, median over the used steps; null without any.
        matched_by: What showed that events of different devices are one collective; null without any.
        transfer_ps: Sum of the shortest durations over the devices, picoseconds.
        transfer_per_step_ps: The same per step, mean over the used steps, rounded down, picoseconds; null without any.
        devices: What each device spends in them.
        ops: What each op costs, the one that is exposed longest first; none in a run without steps.
        overlap_ratio: Share of the time in collectives that compute covers, over all devices; null without any.
        packs: Calls into which the strategy is set to pack the gradients; null where not known.
        path: How the devices reduce gradients; null where none of these names fits.
        path_reason: Why the devices reduce that way; null where the trace does not show it.
    """

    device_count: Count
    member_count: Count
    library: Library | None
    count: Count
    incomplete_count: Count
    count_per_step: Count | None
    matched_by: Matched | None
    transfer_ps: Picoseconds
    transfer_per_step_ps: Picoseconds | None
    devices: tuple[DeviceCollectives, ...]
    ops: tuple[CollectiveOp, ...]
    overlap_ratio: Share | None
    packs: Count | None
    path: Path | None
    path_reason: Words | None


def collectives_result(context: Context) -> CollectiveResult | Skipped:
    """Sum up the collectives of a trace."""
    trace, selection, collectives = context.trace, context.selection, context.collectives
    hosts = sorted(trace.hosts_with_device_events & set(selection.windows))
    device_count = sum(device.host in hosts for device in trace.device_list)
    if device_count < 2 and not collectives.count:
        return Skipped("not applicable: fewer than two devices, and no collective")
    return _summed_up(context, hosts)


def _common(paths: Sequence[ReductionPath]) -> ReductionPath:
    """The path of the hosts that reduce, if it is the same; the first host's evidence holds for all."""
    reducing = [path for path in paths if path.path != "none"] or list(paths)
    if len({path.path for path in reducing}) > 1:
        return ReductionPath(None, (), "hosts reduce in different ways")
    return reducing[0] if reducing else ReductionPath("none")


def _summed_up(context: Context, hosts: Sequence[int]) -> CollectiveResult:
    """The sums over the devices of `hosts`."""
    trace, selection = context.trace, context.selection
    collectives, workers = context.collectives, Workers.of(trace)
    inside = events_in_windows(trace, selection, collectives)
    in_window = np.zeros(collectives.count, dtype=np.bool_)
    in_window[collectives.collective[inside]] = True
    rows = is_in(collectives.host, hosts) & in_window[collectives.collective]
    chosen = np.zeros(collectives.count, dtype=np.bool_)
    chosen[collectives.collective[rows]] = True
    complete = chosen & collectives.is_complete
    in_complete = rows & complete[collectives.collective]
    used = [step.number for host in hosts for step in selection.used_of(host)]
    steps = sorted_unique(np.array(used, dtype=np.int64))
    devices = tuple(_of_devices(context, in_complete))
    exposed_ps = sum(row.exposed_ps for row in devices)
    busy_ps = sum(of.activity["collective"].busy_ps for of in context.once(in_windows).values())
    device_count = unique_ids(collectives.device[rows]).size
    reducing = complete & is_reducing(collectives)
    bandwidth = bandwidth_of(
        trace, collectives, hosts, chosen, workers, _transfer_per_step(collectives, reducing, steps)
    )
    paths = context.once(reduction_paths)
    path = _common([paths[host] for host in hosts])
    return CollectiveResult(
        device_count=device_count,
        member_count=workers.member_count(device_count),
        library=_library(trace, collectives, hosts),
        count=int(chosen.sum()),
        incomplete_count=int((chosen & ~complete).sum()),
        count_per_step=median_ps(
            _summed(
                collectives.first_step[chosen], np.ones(int(chosen.sum()), dtype=np.int64), steps
            )
        ),
        matched_by=_matched_by(collectives.by_keys[rows]),
        transfer_ps=int(collectives.transfer_ps[complete].sum()),
        transfer_per_step_ps=_transfer_per_step(collectives, complete, steps),
        devices=devices,
        ops=tuple(_of_ops(context, rows)),
        overlap_ratio=(busy_ps - exposed_ps) / busy_ps if busy_ps else None,
        **asdict(bandwidth),
        packs=agreed(sidecar.environment.strategy.packs for sidecar in sidecars(trace, hosts)),
        path=path.path,
        path_reason=path.reason,
    )


def _of_devices(context: Context, rows: BoolArray) -> Iterator[DeviceCollectives]:
    """What each device of the ledger spends; `rows`: of `Collectives`, those of complete ones."""
    trace, ledger, collectives = context.trace, context.ledger, context.collectives
    columns, count = ledger.columns, len(trace.device_list)
    wait_ps = totals(collectives.device[rows], collectives.wait_ps[rows], count).tolist()
    last = collectives.device[collectives.last_among(rows)]
    last_count = np.bincount(last, minlength=count).tolist()
    in_collective = columns.activity == ActivityClass.COLLECTIVE
    is_transfer, is_wait = (
        in_collective & (columns.state == state)
        for state in (State.COMMUNICATION, State.DEVICE_WAIT)
    )
    communication = ledger.by_device(is_transfer)
    in_steps = [ledger.by_device(part & ledger.counts) for part in (is_transfer, is_wait)]
    for device, steps in ledger.steps_of_device.items():
        transfer_ps, awaited_ps = (sums[device] // (steps or 1) for sums in in_steps)
        yield DeviceCollectives(
            *trace.identity(device),
            wait_ps=wait_ps[device],
            exposed_ps=context.once(in_windows)[device].activity["collective"].exposed_ps,
            communication_ps=communication[device],
            communication_per_step_ps=transfer_ps if steps else None,
            device_wait_per_step_ps=awaited_ps if steps else None,
            last_count=last_count[device],
        )


def _of_ops(context: Context, rows: BoolArray) -> Iterator[CollectiveOp]:
    """What each op costs; `rows`: of `Collectives`."""
    trace, ledger, collectives = context.trace, context.ledger, context.collectives
    columns = ledger.columns
    steps = _used_steps(context)
    step_count = sum(ledger.steps_of_device.values())
    if not step_count:
        return
    exposed = (columns.activity == ActivityClass.COLLECTIVE) & ledger.counts
    waits = exposed & (columns.state == State.DEVICE_WAIT)
    exposed_ps, wait_ps = (
        totals(columns.event[part], columns.duration_ps[part], trace.device_columns.count)
        for part in (exposed, waits)
    )
    on_device = trace.device_columns
    is_gpu = np.array([device.kind == "gpu" for device in trace.device_list], dtype=np.bool_)
    # A stream may be recorded on several lines.
    streams = [(line.device, line.id) for line in trace.lines]
    with_compute = unique_ids(on_device.line[on_device.class_ == ActivityClass.COMPUTE]).tolist()
    computing = {streams[line] for line in with_compute}
    computes = np.array([stream in computing for stream in streams], dtype=np.bool_)
    found = []
    for of_op in _by_op(trace, collectives, np.flatnonzero(rows)):
        event, number = collectives.row[of_op], unique_ids(collectives.collective[of_op])
        size = collectives.bytes[of_op]
        scopes, op = _exchanged(trace, int(event[0])), int(collectives.op[of_op[0]])
        layers = tuple(dict.fromkeys(filter(None, map(layer_of_scope, scopes))))
        phases = {PHASES.get(phase_of(scope.encode())) for scope in scopes}
        found.append(
            CollectiveOp(
                op=split_op(trace.names.text(op) or "")[0]
                or trace.names.text(int(collectives.name[of_op[0]]))
                or "",
                layers=layers[:MOST_LAYERS],
                layer_count=len(layers),
                phase=phases.pop() if layers and len(phases) == 1 else None,
                count_per_step=_per_step(collectives, of_op, steps),
                device_count=int(collectives.device_count[number].max()),
                bytes=int(size.max()) if (size != UNKNOWN_BYTES).all() else None,
                stream_computes=bool(computes[on_device.line[event]].any())
                if is_gpu[on_device.device[event]].all()
                else None,
                exposed_ps_per_step=int(exposed_ps[event].sum()) // step_count,
                wait_ps_per_step=int(wait_ps[event].sum()) // step_count,
            )
        )
    yield from sorted(found, key=lambda of: (-of.exposed_ps_per_step, of.op))[:MOST_OPS]


def _by_op(trace: Trace, collectives: Collectives, rows: Int64Array) -> list[Int64Array]:
    """The rows of each op, and of those without a name by kernel."""
    instruction = trace.device_columns.instruction[collectives.row[rows]]
    op = np.where(collectives.op == NONE, collectives.name, collectives.op)[rows]
    return [rows[group] for group in groups_of(instruction, op)]


def _exchanged(trace: Trace, row: int) -> tuple[str, ...]:
    """The scopes of what the instruction of a device row exchanges."""
    number = trace.device_columns.instruction[row]
    exchange = None if number == NONE else trace.instructions[number].exchange
    return exchange.of if exchange else ()


def _library(trace: Trace, collectives: Collectives, hosts: Sequence[int]) -> Library | None:
    of_hosts = chain.from_iterable(map(trace.devices_of_host.__getitem__, hosts))
    gpus = [trace.device_list[d] for d in of_hosts if trace.device_list[d].kind == "gpu"]
    if not gpus:
        return None
    is_amd = any(gpu.stats.get("device_vendor") == "AMD" for gpu in gpus)
    names = (trace.names[name].lower() for name in unique_ids(collectives.name).tolist())
    return "rccl" if is_amd or any(b"rccl" in name for name in names) else "nccl"


def _transfer_per_step(
    collectives: Collectives, chosen: BoolArray, steps: Int64Array
) -> int | None:
    """The transfer of some collectives, mean over the steps, rounded down; None without any step."""
    of_steps = _summed(collectives.first_step[chosen], collectives.transfer_ps[chosen], steps)
    return int(of_steps.sum()) // of_steps.size if of_steps.size else None


def _summed(steps: Int64Array, values: Int64Array, numbers: Int64Array) -> Int64Array:
    place = np.searchsorted(numbers, steps)
    is_used = np.append(numbers, np.iinfo(np.int64).min)[place] == steps
    return totals(np.where(is_used, place, NONE), values, numbers.size)


def _matched_by(by_keys: BoolArray) -> Matched | None:
    if not by_keys.size:
        return None
    return "mixed" if by_keys.any() and not by_keys.all() else "keys" if by_keys[0] else "order"
