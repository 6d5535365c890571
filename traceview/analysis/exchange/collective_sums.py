"""Sums up what collectives cost: how much is transfer, how much waiting for other devices, how much is hidden.

All devices leave a collective together, so the device that came last spends the shortest time in it. That time is the
transfer; the others waited for the rest of their time in it. On a device the waiting comes first:

    GPU:0   ▕ compute ▏▕ wait   ▕ transfer ▏
    GPU:1   ▕ compute          ▏▕ transfer ▏      last

Only time that no kernel covers costs anything: in the ledger it is `communication` or `device_wait`. Where parts of
several collectives overlap on a device, transfer goes first.

The bytes of a bandwidth are those that the events record. Where they record none, it is the size of the gradients, which the sidecar
knows, over the transfer of all-reduces in a step. Sparse gradients are gathered, and how large they are is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from traceview.analysis.exchange.reduction_path import (
    Path,
    ReductionPath,
    events_in_windows,
    has_virtual_gpus,
    per_step,
    reduction_paths,
    used_steps,
)
from traceview.analysis.facts.layers import layer_of_scope
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.device_memory import PHASES
from traceview.analysis.measures.device_report import in_windows
from traceview.analysis.rules.finding import OfDevice, Skipped
from traceview.base.ids import groups_of, is_in, unique_ids
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.record import LARGEST, Count, Key, OpName, Picoseconds, Record, Share, Words
from traceview.base.units import PS_PER_S
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.device.op_names import phase_of, split_op
from traceview.trace.model import NONE, UNKNOWN_BYTES, Device, Trace
from traceview.trace.sidecar.links import nvlink_bytes_per_second, pcie_bytes_per_second
from traceview.trace.strategy.collectives import CollectiveKind, Collectives
from traceview.trace.strategy.roles import missing_tasks, step_groups
from traceview.xplane.planes import ActivityClass

if TYPE_CHECKING:
    from fractions import Fraction

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


def member_count(trace: Trace, recorded_count: int) -> int:
    """How many devices take part where so many were recorded: all workers have equally many."""
    missing_count = len(missing_tasks(trace.hosts))
    workers = len(max(step_groups(trace.hosts), key=len, default=()))
    return (
        recorded_count * (workers + missing_count) // workers if missing_count else recorded_count
    )


def _bandwidth(
    trace: Trace,
    collectives: Collectives,
    hosts: Sequence[int],
    chosen: BoolArray,
    reduce_ps_per_step: int | None,
) -> dict[str, Any]:
    """The first fields of the result, for the chosen collectives, bool `[collectives]`, of these hosts.

    `reduce_ps_per_step`: transfer of their complete all-reduces in a step.
    """
    complete = chosen & collectives.is_complete
    members = member_count(trace, int(collectives.device_count[complete].max(initial=0)))
    # All workers train the same model: what one sidecar says about it holds for all.
    # Sparse gradients are gathered instead: the size of dense ones says nothing about what is moved then.
    kinds, counts = collectives.kind[collectives.first], collectives.device_count
    captured = [trace.hosts[host].captured.environment.training for host in hosts]
    gradient_bytes = agreed(training.gradient_bytes or None for training in captured)
    if (kinds[chosen] == CollectiveKind.ALL_GATHER).any():
        gradient_bytes = None
    is_on_network = not collectives.is_within_host[chosen].all()
    link, link_speed = (None, None) if is_on_network else _link(trace, hosts)
    expected_ps = None
    if gradient_bytes is not None and link_speed and members > 1:
        sent = _bus_factor(CollectiveKind.ALL_REDUCE, members) * gradient_bytes
        expected_ps = int(sent * PS_PER_S / link_speed)

    size: int | None = None
    on_bus: Fraction | int = 0
    length_ps = 0
    if complete.any() and not (collectives.bytes_moved[complete] == UNKNOWN_BYTES).any():
        size, length_ps = 0, int(collectives.transfer_ps[complete].sum())
        for alike in groups_of(kinds[complete], counts[complete]):
            kind, devices = (of[complete][alike[0]] for of in (kinds, counts))
            moved = int(collectives.bytes_moved[complete][alike].sum())
            all_devices = member_count(trace, int(devices))
            if kind == CollectiveKind.ALL_GATHER:
                # It also holds the parts of devices that were not recorded.
                moved = moved * all_devices // int(devices)
            size += moved
            on_bus += moved * _bus_factor(CollectiveKind(kind), all_devices)
    elif gradient_bytes is not None and reduce_ps_per_step:
        size, length_ps = gradient_bytes, reduce_ps_per_step
        on_bus = size * _bus_factor(CollectiveKind.ALL_REDUCE, members)
    rate = int(on_bus * PS_PER_S / length_ps) if length_ps > 0 else None
    return {
        "bytes": size,
        "bus_bytes_per_second": None if rate is not None and rate > LARGEST else rate,
        "link": link,
        "link_bytes_per_second": link_speed,
        "expected_ps": expected_ps,
    }


def agreed(values: Iterable[int | None]) -> int | None:
    """The only value that is known; None without any, and where several are."""
    known = set(values) - {None}
    return known.pop() if len(known) == 1 else None


def _link(trace: Trace, hosts: Sequence[int]) -> tuple[Link | None, int | None]:
    """The link between the GPUs of these hosts, if all are alike: NVLink, else PCIe; with bytes per second."""
    links: set[tuple[Link | None, int | None]] = set()
    capabilities = {
        (device.count("compute_cap_major"), device.count("compute_cap_minor"))
        for device in _gpus(trace, hosts)
    }
    gpus = (
        gpu for host in hosts for gpu in trace.hosts[host].captured.environment.links.gpus or ()
    )
    for gpu in gpus:
        nvlinks = gpu.nvlinks.active if gpu.nvlinks else None
        if nvlinks:
            speeds = {nvlink_bytes_per_second(version, nvlinks) for version in capabilities}
            links.add(("nvlink", speeds.pop() if len(speeds) == 1 else None))
        else:
            generation = gpu.pcie_generation_max or gpu.pcie_generation
            speed = pcie_bytes_per_second(generation, gpu.pcie_width or gpu.pcie_width_max)
            links.add(("pcie" if speed else None, speed))
    return links.pop() if len(links) == 1 else (None, None)


def _bus_factor(kind: CollectiveKind, devices: int) -> Fraction:
    """Bytes over each link per byte reduced (NCCL tests, PERFORMANCE.md); 1 for what goes one way."""
    # Takes 1 ms of every start, and most runs without GPUs need none.
    from fractions import Fraction

    if kind in _SCATTERED:
        return Fraction(devices - 1, devices)
    return Fraction(2 * (devices - 1), devices) if kind in _REDUCING else Fraction(1)


# Sums

Matched: TypeAlias = Literal["keys", "order", "mixed"]
Library: TypeAlias = Literal["nccl", "rccl"]


class DeviceCollectives(OfDevice, frozen=True):
    """The time of one device in the collectives that overlap the window.

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

    @property
    def device_wait_ps(self) -> int:
        """The waiting in the exposed time, picoseconds."""
        return self.exposed_ps - self.communication_ps

    @property
    def exposed_per_step_ps(self) -> int | None:
        """Its exposed time per step; None without steps."""
        transfer, wait = self.communication_per_step_ps, self.device_wait_per_step_ps
        return None if transfer is None or wait is None else transfer + wait


class CollectiveOp(Record, frozen=True):
    """The cost of an op of collectives.

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


class CollectiveResult(Record, frozen=True):
    """The collectives that overlap the window.

    Attributes:
        bytes: Bytes of all collectives if recorded, else of one step's gradients from the sidecar; null where
            neither is known.
        bus_bytes_per_second: bytes over the transfers, times what each link carries per byte: 2(n-1)/n of an all-reduce,
            (n-1)/n of an all-gather or reduce-scatter among n devices; rounded down, null where bytes are not known.
        link: What links the GPUs, from the sidecar; null where not known, and for a network.
        link_bytes_per_second: What the links of one GPU carry in one direction; null where not known.
        expected_ps: What reducing the gradients of one step takes at the speed of the link, picoseconds; null
            where either is not known.
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

    bytes: Count | None
    bus_bytes_per_second: Count | None
    link: Link | None
    link_bytes_per_second: Count | None
    expected_ps: Picoseconds | None
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


def compute(context: Context) -> CollectiveResult | Skipped:
    """The sums over all devices that take part."""
    trace, collectives = context.trace, context.collectives
    hosts = sorted(trace.hosts_with_device_events & set(context.selection.windows))
    is_single = sum(device.host in hosts for device in trace.device_list) < 2
    if is_single and not (
        collectives.count or any(has_virtual_gpus(trace, host) for host in hosts)
    ):
        return Skipped("not applicable: fewer than two devices, and no collective")
    in_window, chosen = np.zeros((2, collectives.count), dtype=np.bool_)
    in_window[collectives.collective[context.once(events_in_windows)]] = True
    rows = is_in(collectives.host, hosts) & in_window[collectives.collective]
    chosen[collectives.collective[rows]] = True
    complete = chosen & collectives.is_complete
    devices = tuple(_of_devices(context, rows & complete[collectives.collective]))
    exposed_ps = sum(row.exposed_ps for row in devices)
    busy_ps = sum(of["collective"].busy_ps for of in context.once(in_windows).values())
    device_count = unique_ids(collectives.device[rows]).size
    steps = used_steps(context)
    is_reducing = complete & is_in(collectives.kind[collectives.first], _REDUCING)
    reduce_ps = _transfer_per_step(collectives, is_reducing, steps)
    path = _common([context.once(reduction_paths)[host] for host in hosts])
    return CollectiveResult(
        device_count=device_count,
        member_count=member_count(trace, device_count),
        library=_library(trace, collectives, hosts),
        count=int(chosen.sum()),
        incomplete_count=int((chosen & ~complete).sum()),
        count_per_step=per_step(collectives, rows, steps) if steps.size else None,
        matched_by=_matched_by(collectives.by_keys[rows]),
        transfer_ps=int(collectives.transfer_ps[complete].sum()),
        transfer_per_step_ps=_transfer_per_step(collectives, complete, steps),
        devices=devices,
        ops=tuple(_of_ops(context, rows)),
        overlap_ratio=(busy_ps - exposed_ps) / busy_ps if busy_ps else None,
        **_bandwidth(trace, collectives, hosts, chosen, reduce_ps),
        packs=agreed(trace.hosts[host].captured.environment.strategy.packs for host in hosts),
        path=path.path,
        path_reason=path.reason,
    )


def _common(paths: Sequence[ReductionPath]) -> ReductionPath:
    """The path of the hosts that reduce, if it is the same; the first host's evidence holds for all."""
    reducing = [path for path in paths if path.path != "none"] or list(paths)
    if len({path.path for path in reducing}) > 1:
        return ReductionPath(None, "hosts reduce in different ways")
    return reducing[0] if reducing else ReductionPath("none")


def _of_devices(context: Context, rows: BoolArray) -> Iterator[DeviceCollectives]:
    """The time of each device of the ledger in collectives; `rows`: of `Collectives`, those of complete ones."""
    trace, ledger, collectives = context.trace, context.ledger, context.collectives
    columns, count = ledger.columns, len(trace.device_list)
    wait_ps = totals(collectives.device[rows], collectives.wait_ps[rows], count).tolist()
    last = collectives.device[collectives.last_among(rows)]
    last_count = np.bincount(last, minlength=count).tolist()
    in_collective = columns.activity == ActivityClass.COLLECTIVE
    is_transfer = in_collective & (columns.state == State.COMMUNICATION)
    is_wait = in_collective & (columns.state == State.DEVICE_WAIT)
    in_window, per_step = ledger.by_device(is_transfer), ledger.per_step(is_transfer)
    waits = ledger.per_step(is_wait)
    for device in ledger.devices:
        yield DeviceCollectives(
            *trace.identity(device),
            wait_ps=wait_ps[device],
            exposed_ps=context.once(in_windows)[device]["collective"].exposed_ps,
            communication_ps=in_window[device],
            communication_per_step_ps=per_step[device],
            device_wait_per_step_ps=waits[device],
            last_count=last_count[device],
        )


def _of_ops(context: Context, rows: BoolArray) -> Iterator[CollectiveOp]:
    """The cost of each op; `rows`: of `Collectives`."""
    trace, ledger, collectives = context.trace, context.ledger, context.collectives
    columns = ledger.columns
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
    # Those without a name by kernel.
    name = np.where(collectives.op == NONE, collectives.name, collectives.op)
    places = np.flatnonzero(rows)
    for group in groups_of(on_device.instruction[collectives.row[places]], name[places]):
        of_op = places[group]
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
                count_per_step=per_step(collectives, of_op, used_steps(context)),
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


def _exchanged(trace: Trace, row: int) -> tuple[str, ...]:
    """The scopes of what the instruction of a device row exchanges."""
    number = trace.device_columns.instruction[row]
    exchange = None if number == NONE else trace.instructions[number].exchange
    return exchange.of if exchange else ()


def _gpus(trace: Trace, hosts: Sequence[int]) -> list[Device]:
    return [each for each in trace.device_list if each.kind == "gpu" and each.host in hosts]


def _library(trace: Trace, collectives: Collectives, hosts: Sequence[int]) -> Library | None:
    gpus = _gpus(trace, hosts)
    if not gpus:
        return None
    is_amd = any(gpu.stats.get("device_vendor") == "AMD" for gpu in gpus)
    names = (trace.names[name].lower() for name in unique_ids(collectives.name).tolist())
    return "rccl" if is_amd or any(b"rccl" in name for name in names) else "nccl"


def _transfer_per_step(
    collectives: Collectives, chosen: BoolArray, steps: Int64Array
) -> int | None:
    """The transfer of some collectives, mean over the steps, rounded down; None without any step."""
    used = chosen & is_in(collectives.first_step, steps)
    return int(collectives.transfer_ps[used].sum()) // steps.size if steps.size else None


def _matched_by(by_keys: BoolArray) -> Matched | None:
    if not by_keys.size:
        return None
    return "mixed" if by_keys.any() and not by_keys.all() else "keys" if by_keys[0] else "order"
