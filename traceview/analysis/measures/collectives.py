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
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from traceview.analysis.facts.selection import Selection
from traceview.analysis.measures.bandwidth import (
    Link,
    Workers,
    agreed,
    bandwidth_of,
    is_reducing,
    sidecars,
)
from traceview.analysis.measures.reduction_path import (
    Path,
    ReductionPath,
    events_in_windows,
    reduction_paths,
)
from traceview.analysis.rules.finding import Skipped
from traceview.base.ids import is_in, sorted_unique, unique_ids
from traceview.base.intervals import BoolArray, Int64Array, places
from traceview.base.record import (
    Count,
    DeviceKey,
    Picoseconds,
    Record,
    Share,
    Words,
)
from traceview.base.stats import median, median_ps
from traceview.ledger.states import State
from traceview.ledger.table import Ledger, totals
from traceview.trace.device.op_names import op_names, split_op
from traceview.trace.device.op_phase import LONGEST_NAME, OPTIMIZER_SCOPE, Phase, phases_of
from traceview.trace.device.table import Table, flags, integers, table, texts
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.trace.strategy.collectives import CollectiveKind, Collectives
from traceview.xplane.planes import ActivityClass

if TYPE_CHECKING:
    from traceview.analysis.measures.context import Context


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


def _per_step(collectives: Collectives, rows: BoolArray, steps: Int64Array) -> int:
    """How many of the collectives begin in a used step, median."""
    first = np.zeros(collectives.count, dtype=np.bool_)
    first[collectives.collective[rows]] = True
    of_step = np.sort(collectives.first_step[first])
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


class CollectiveResult(Record, frozen=True):
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
        wait_ps: Time each device spent in collectives beyond the transfers, whether or not compute hides it,
            picoseconds by device.
        exposed_ps: Time in collectives without compute, picoseconds by device.
        communication_ps: The part of the exposed time in transfers, picoseconds by device; the rest is waiting.
        communication_per_step_ps: The same per step, mean over the used steps, rounded down, picoseconds by device;
            null without any. As in all numbers per step by device, devices of hosts without a used step are left out.
        device_wait_per_step_ps: Exposed waiting for another device in collectives per step, mean over the used
            steps, rounded down, picoseconds by device; null without any.
        overlap_ratio: Share of the time in collectives that compute covers, over all devices; null without any.
        last_count: How often each device started after all others of its collectives.
        bytes: Bytes of all collectives if recorded, else of one step's gradients from the sidecar; null where
            neither is known.
        bus_bytes_per_second: bytes over the transfers, times what each link carries per byte: 2(n-1)/n of an all-reduce,
            (n-1)/n of an all-gather or reduce-scatter among n devices; rounded down, null where bytes are not known.
        link: What links the GPUs, from the sidecar; null where not known, and for a network.
        link_bytes_per_second: What the links of one GPU carry in one direction; null where not known.
        expected_ps: What reducing the gradients of one step takes at the speed of the link, picoseconds; null
            where either is not known.
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
    wait_ps: dict[DeviceKey, Picoseconds]
    exposed_ps: dict[DeviceKey, Picoseconds]
    communication_ps: dict[DeviceKey, Picoseconds]
    communication_per_step_ps: dict[DeviceKey, Picoseconds] | None
    device_wait_per_step_ps: dict[DeviceKey, Picoseconds] | None
    overlap_ratio: Share | None
    last_count: dict[DeviceKey, Count]
    bytes: Count | None
    bus_bytes_per_second: Count | None
    link: Link | None
    link_bytes_per_second: Count | None
    expected_ps: Picoseconds | None
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
    trace, selection, ledger = context.trace, context.selection, context.ledger
    collectives, workers = context.collectives, Workers.of(trace)
    inside = events_in_windows(trace, selection, collectives)
    in_window = np.zeros(collectives.count, dtype=np.bool_)
    in_window[collectives.collective[inside]] = True
    rows = is_in(collectives.host, hosts) & in_window[collectives.collective]
    chosen = np.zeros(collectives.count, dtype=np.bool_)
    chosen[collectives.collective[rows]] = True
    complete = chosen & collectives.is_complete
    in_complete = rows & complete[collectives.collective]
    last = collectives.last_among(in_complete)
    used = [step.number for host in hosts for step in selection.used_of(host)]
    steps = sorted_unique(np.array(used, dtype=np.int64))
    devices = {
        trace.device_key(index): index
        for index in sorted(chain.from_iterable(map(trace.devices_of_host.__getitem__, hosts)))
    }
    count = len(trace.device_list)
    wait_ps = totals(collectives.device[in_complete], collectives.wait_ps[in_complete], count)
    last_count = np.bincount(collectives.device[last], minlength=count)
    in_collective = ledger.columns.activity == ActivityClass.COLLECTIVE
    transfers = in_collective & (ledger.columns.state == State.COMMUNICATION)
    waits = in_collective & (ledger.columns.state == State.DEVICE_WAIT)
    exposed_of, communication = ledger.by_device(in_collective), ledger.by_device(transfers)
    exposed = {key: exposed_of.get(device, 0) for key, device in devices.items()}
    exposed_ps = sum(exposed.values())
    busy_ps = sum(_busy(context, device) for device in devices.values())
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
        wait_ps={key: int(wait_ps[device]) for key, device in devices.items()},
        exposed_ps=exposed,
        communication_ps={key: communication.get(d, 0) for key, d in devices.items()},
        communication_per_step_ps=_means(ledger, transfers, devices),
        device_wait_per_step_ps=_means(ledger, waits, devices),
        overlap_ratio=(busy_ps - exposed_ps) / busy_ps if busy_ps else None,
        last_count={key: int(last_count[device]) for key, device in devices.items()},
        **asdict(bandwidth),
        packs=agreed(sidecar.environment.strategy.packs for sidecar in sidecars(trace, hosts)),
        path=path.path,
        path_reason=path.reason,
    )


def _busy(context: Context, device: int) -> int:
    """The time of a device in collectives, hidden or not."""
    window = context.selection.window_of_device(context.trace, device)
    in_collectives = context.activities[device].by_class[ActivityClass.COLLECTIVE]
    return int(in_collectives.within(window.start_ps, window.end_ps)) if window else 0


def _means(ledger: Ledger, rows: BoolArray, devices: Mapping[str, int]) -> dict[str, int] | None:
    """The mean over the used steps of each device that has any; None without any."""
    sums, counts = ledger.by_device(rows & ledger.counts), ledger.steps_of_device
    means = {key: sums[d] // counts[d] for key, d in devices.items() if counts.get(d)}
    return means or None


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
    total = np.zeros(numbers.size, dtype=np.int64)
    place = np.searchsorted(numbers, steps)
    inside = np.append(numbers, np.iinfo(np.int64).min)[place] == steps
    np.add.at(total, place[inside], values[inside])
    return total


def _matched_by(by_keys: BoolArray) -> Matched | None:
    if not by_keys.size:
        return None
    return "mixed" if by_keys.any() and not by_keys.all() else "keys" if by_keys[0] else "order"


# Each collective


def collective_table(
    trace: Trace,
    selection: Selection,
    collectives: Collectives,
    keys: Collection[str],
    top: int | None = None,
) -> tuple[Table, int]:
    """A row per device in each collective that overlaps the window, and how many rows are left out.

    `keys`: of the devices to show. `top`: only so many collectives, those with the longest waiting first; without it
    all in the order in which they began. `transfer_ps` is the shortest time that a device is in the collective,
    `wait_ps` how much longer this one is; both are missing where a device was not recorded.
    """
    inside = events_in_windows(trace, selection, collectives)
    shown = unique_ids(collectives.collective[inside])
    row_count = int(np.count_nonzero(is_in(collectives.collective, shown)))
    if top is not None and shown.size > top:
        longest = np.zeros(collectives.count, dtype=np.int64)
        np.maximum.at(longest, collectives.collective, collectives.wait_ps)
        longest[~collectives.is_complete] = -1
        shown = shown[np.argsort(-longest[shown], kind="stable")[:top]]
    device_keys = [trace.device_key(index) for index in range(len(trace.device_list))]
    rows_of = np.split(np.arange(collectives.row.size), collectives.first[1:])
    rows = [
        row
        for number in shown.tolist()
        for row in rows_of[number].tolist()
        if device_keys[collectives.device[row]] in keys
    ]
    return _table(trace, collectives, rows, device_keys), row_count - len(rows)


def _table(
    trace: Trace, collectives: Collectives, rows: list[int], device_keys: list[str]
) -> Table:
    number = collectives.collective[rows]
    device = collectives.device[rows].tolist()
    is_complete = collectives.is_complete[number]
    ops = [trace.names.text(op) for op in collectives.op[rows].tolist()]
    transfers, waits = (
        [ps if known else None for ps, known in zip(lengths.tolist(), is_complete, strict=True)]
        for lengths in (collectives.transfer_ps[number], collectives.wait_ps[rows])
    )
    size = collectives.bytes_moved[number].tolist()
    step = collectives.step[rows].tolist()
    return table(
        "collectives",
        integers("collective", number.tolist()),
        texts("kind", [CollectiveKind(k).name.lower() for k in collectives.kind[rows].tolist()]),
        texts("op", [None if op is None else split_op(op)[0] for op in ops]),
        texts("name", [trace.names.text(n) or "" for n in collectives.name[rows].tolist()]),
        texts("host", [trace.hosts[trace.device_list[index].host].name for index in device]),
        texts("device", [device_keys[index] for index in device]),
        integers("step", [None if value == NONE else value for value in step]),
        integers("start_ps", collectives.start_ps[rows].tolist()),
        integers("duration_ps", collectives.duration_ps[rows].tolist()),
        integers("transfer_ps", transfers),
        integers("wait_ps", waits),
        flags("is_last", collectives.is_last[rows].tolist(), is_optional=False),
        integers("device_count", collectives.device_count[number].tolist()),
        texts("matched_by", ["keys" if by else "order" for by in collectives.by_keys[rows]]),
        integers("bytes", [None if value == UNKNOWN_BYTES else value for value in size]),
    )
