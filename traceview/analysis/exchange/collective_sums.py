"""Sums up what collectives cost: how much is transfer, how much waiting for other devices, how much is hidden.

All devices leave a collective together (docs/method.md, "Transfer and wait"), and on a device the waiting comes first:

    GPU:0   ▕ compute ▏▕ wait   ▕ transfer ▏
    GPU:1   ▕ compute          ▏▕ transfer ▏      last

Where no collective sums the gradients of replicas, the CPU may: copies bring the parts to it and the sums back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from traceview.analysis.facts.detours import WAITS_FOR_RESULTS, copied_results
from traceview.analysis.facts.selection import rows_in
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.device_report import in_windows, rate_of
from traceview.analysis.rules.finding import Skipped
from traceview.base.ids import groups_of, is_in, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, Int64Array, places
from traceview.base.record import Count, DeviceKey, OpName, Picoseconds, Record, Share
from traceview.base.stats import median_ps
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.columns import NONE, UNKNOWN_BYTES
from traceview.trace.device.op_names import split_op
from traceview.trace.model import Trace, missing_tasks
from traceview.trace.strategy.collectives import CollectiveKind, Collectives
from traceview.xplane.planes import ActivityClass

if TYPE_CHECKING:
    from fractions import Fraction

_FEW_SENDERS: Final = 2

MOST_OPS: Final = 100
"""In a report; a choice of ours."""

_SCATTERED: Final = (
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
_REDUCING: Final = (CollectiveKind.ALL_REDUCE, CollectiveKind.UNKNOWN)


def rows_in_windows(context: Context) -> BoolArray:
    """Which rows are of collectives that overlap the window of a host, bool `[n]`; `Context.once` keeps it."""
    columns, collectives = context.trace.device_columns, context.collectives
    inside = np.zeros(collectives.count, dtype=np.bool_)
    for host, window in context.selection.windows.items():
        rows = np.flatnonzero(collectives.host == host)
        events = collectives.row[rows]
        overlap = rows_in(columns.start_ps[events], columns.end_ps[events], window)
        inside[collectives.collective[rows[overlap]]] = True
    return inside[collectives.collective]


def _used_steps(context: Context) -> Int64Array:
    """The numbers of the used steps, ascending."""
    return np.array(sorted({s.number for s in context.selection.used_steps}), dtype=np.int64)


def per_step(context: Context, rows: BoolArray | Int64Array) -> int:
    """How many of the collectives of some rows begin in a used step, median, rounded down; 0 without steps."""
    collectives, steps = context.collectives, context.once(_used_steps)
    of_step = np.sort(collectives.first_step[unique_ids(collectives.collective[rows])])
    return median_ps(places(of_step, steps, right=True) - places(of_step, steps)) or 0


def _bandwidth(
    trace: Trace,
    collectives: Collectives,
    hosts: Sequence[int],
    chosen: BoolArray,
    reduce_ps_per_step: int | None,
) -> tuple[int | None, int | None]:
    """The bytes and the bytes per second of the chosen collectives, bool `[collectives]`, of these hosts.

    `reduce_ps_per_step`: transfer of their complete all-reduces in a step.
    """
    complete = chosen & collectives.is_complete
    # All workers train the same model: what one sidecar says about it holds for all.
    # Sparse gradients are gathered instead: the size of dense ones says nothing about what is moved then.
    kinds, counts = collectives.kind[collectives.first], collectives.device_count
    captured = [trace.hosts[host].captured.environment.training for host in hosts]
    gradient_bytes = agreed(training.gradient_bytes or None for training in captured)
    if (kinds[chosen] == CollectiveKind.ALL_GATHER).any():
        gradient_bytes = None
    size: int | None = None
    on_bus: Fraction | int = 0
    length_ps = 0
    if complete.any() and not (collectives.bytes_moved[complete] == UNKNOWN_BYTES).any():
        size, length_ps = 0, int(collectives.transfer_ps[complete].sum())
        for alike in groups_of(kinds[complete], counts[complete]):
            kind, devices = (int(of[complete][alike[0]]) for of in (kinds, counts))
            moved = int(collectives.bytes_moved[complete][alike].sum())
            size += moved
            on_bus += moved * _bus_factor(CollectiveKind(kind), devices)
    elif gradient_bytes is not None and reduce_ps_per_step:
        size, length_ps = gradient_bytes, reduce_ps_per_step
        devices = int(counts[complete].max(initial=0))
        on_bus = size * _bus_factor(CollectiveKind.ALL_REDUCE, devices)
    # What workers that were not recorded take part with is not known.
    is_known = not missing_tasks(trace.hosts)
    return size, rate_of(on_bus, length_ps) if is_known else None


def agreed(values: Iterable[int | None]) -> int | None:
    """The only value that is known; None without any, and where several are."""
    known = set(values) - {None}
    return known.pop() if len(known) == 1 else None


def _bus_factor(kind: CollectiveKind, devices: int) -> Fraction:
    """Bytes over each link per byte reduced (NCCL tests, PERFORMANCE.md); 1 for what goes one way."""
    # Takes 1 ms of every start, and most runs without GPUs need none.
    from fractions import Fraction

    if kind in _SCATTERED:
        return Fraction(devices - 1, devices)
    return Fraction(2 * (devices - 1), devices) if kind in _REDUCING else Fraction(1)


# Sums

Matched: TypeAlias = Literal["keys", "order", "mixed"]


class CollectiveOp(Record, frozen=True):
    """The cost of an op of collectives.

    Attributes:
        op: Its name.
        count_per_step: How often it runs in a step, over all groups of devices; median.
        device_count: Devices that exchange with each other, the largest number.
        bytes: Data of one of them, of an all-gather the parts of all devices together; the largest number; null where not recorded.
        exposed_ps_per_step: Time in it without compute, mean per step and device, rounded down, picoseconds.
        wait_ps_per_step: The part of it in which a device waits for another one, picoseconds.
    """

    op: OpName
    count_per_step: Count
    device_count: Count
    bytes: Count | None
    exposed_ps_per_step: Picoseconds
    wait_ps_per_step: Picoseconds


class CollectiveResult(Record, frozen=True):
    """The collectives that overlap the window.

    Attributes:
        bytes: Bytes of all collectives if recorded, else of one step's gradients from the sidecar; null where
            neither is known.
        bus_bytes_per_second: bytes over the transfers, times what each link carries per byte: 2(n-1)/n of an all-reduce,
            (n-1)/n of an all-gather or reduce-scatter among n devices; rounded down, null where bytes are not known, or workers were not recorded.
        device_count: Devices that took part.
        count: Collectives that overlap the window.
        incomplete_count: Those of them that not all devices recorded; left out of transfer and waiting.
        count_per_step: Collectives per step, median over the used steps; null without any.
        matched_by: What showed that events of different devices are one collective; null without any.
        transfer_ps: Sum of the shortest durations over the devices, picoseconds.
        transfer_per_step_ps: The same per step, mean over the used steps, rounded down, picoseconds; null without any.
        last_counts: By device how often it started after all others of a complete collective.
        ops: What each op costs, the one that is exposed longest first; none in a run without steps.
        overlap_ratio: Share of the time in collectives that compute covers, over all devices; null without any.
    """

    bytes: Count | None
    bus_bytes_per_second: Count | None
    device_count: Count
    count: Count
    incomplete_count: Count
    count_per_step: Count | None
    matched_by: Matched | None
    transfer_ps: Picoseconds
    transfer_per_step_ps: Picoseconds | None
    last_counts: dict[DeviceKey, Count]
    ops: tuple[CollectiveOp, ...]
    overlap_ratio: Share | None


def compute(context: Context) -> CollectiveResult | Skipped:
    """The sums over all devices that take part."""
    trace, collectives = context.trace, context.collectives
    hosts = sorted(trace.hosts_with_device_events & set(context.selection.windows))
    is_single = sum(device.host in hosts for device in trace.device_list) < 2
    if is_single and not (
        collectives.count or any(trace.hosts[host].captured.has_virtual_gpus for host in hosts)
    ):
        return Skipped("not applicable: fewer than two devices, and no collective")
    rows = is_in(collectives.host, hosts) & context.once(rows_in_windows)
    chosen = np.zeros(collectives.count, dtype=np.bool_)
    chosen[collectives.collective[rows]] = True
    complete = chosen & collectives.is_complete
    ledger, last = context.ledger, rows & complete[collectives.collective] & collectives.is_last
    last_count = np.bincount(collectives.device[last], minlength=len(trace.device_list)).tolist()
    times = [of["collective"] for of in context.once(in_windows).values()]
    busy_ps, exposed_ps = sum(of.busy_ps for of in times), sum(of.exposed_ps for of in times)
    steps = context.once(_used_steps)
    is_reducing = complete & is_in(collectives.kind[collectives.first], _REDUCING)
    reduce_ps = _transfer_per_step(collectives, is_reducing, steps)
    size, rate = _bandwidth(trace, collectives, hosts, chosen, reduce_ps)
    return CollectiveResult(
        device_count=unique_ids(collectives.device[rows]).size,
        count=int(chosen.sum()),
        incomplete_count=int((chosen & ~complete).sum()),
        count_per_step=per_step(context, rows) if steps.size else None,
        matched_by=_matched_by(collectives.by_keys[rows]),
        transfer_ps=int(collectives.transfer_ps[complete].sum()),
        transfer_per_step_ps=_transfer_per_step(collectives, complete, steps),
        last_counts={trace.device_key(device): last_count[device] for device in ledger.devices},
        ops=tuple(_of_ops(context, rows)),
        overlap_ratio=(busy_ps - exposed_ps) / busy_ps if busy_ps else None,
        bytes=size,
        bus_bytes_per_second=rate,
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
    found = []
    # On replicas each has a name of its own for it: that of the first stands for all.
    name = collectives.label[collectives.first][collectives.collective]
    chosen = np.flatnonzero(rows)
    for group in groups_of(trace.device_columns.instruction[collectives.row[chosen]], name[chosen]):
        of_op = chosen[group]
        event, number = collectives.row[of_op], unique_ids(collectives.collective[of_op])
        size, op = collectives.bytes_moved[number], trace.names.text(int(name[of_op[0]])) or ""
        found.append(
            CollectiveOp(
                op=split_op(op)[0] or op,
                count_per_step=per_step(context, of_op),
                device_count=int(collectives.device_count[number].max()),
                bytes=int(size.max()) if (size != UNKNOWN_BYTES).all() else None,
                exposed_ps_per_step=int(exposed_ps[event].sum()) // step_count,
                wait_ps_per_step=int(wait_ps[event].sum()) // step_count,
            )
        )
    yield from sorted(found, key=lambda of: (-of.exposed_ps_per_step, of.op))[:MOST_OPS]


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


# Sums on the CPU


def reduction_rows(context: Context) -> BoolArray:
    """The rows of the ledger in which GPUs wait for gradients that the CPU sums; `Context.once` keeps it.

    Exposed copies to the host, copies back that bring the result of an op on the CPU, and the wait for these, of GPUs that are
    given a sum over replicas.
    """
    ledger, results = context.ledger, context.once(copied_results)
    is_virtual = any(host.captured.has_virtual_gpus for host in context.trace.hosts)
    if len(ledger.devices) < 2 and not is_virtual:
        return np.zeros(ledger.count, dtype=np.bool_)
    gpus = unique_ids(context.trace.device_columns.device[results.row[results.is_sum]]).tolist()
    rows = ledger.rows(states=(State.D2H,), devices=gpus)
    waits = ledger.rows(states=WAITS_FOR_RESULTS, devices=gpus)
    return rows | (waits & is_in(ledger.columns.event, results.row))


def sent_one_by_one(context: Context) -> tuple[BoolArray, int]:
    """The rows of the ledger in which devices send to each other outside of what is differentiated, and wait for that; how many do.

    Stages of a pipeline send what they make of a batch, and back the gradients of that. Two devices send no less in a collective.
    """
    trace, collectives, ledger = context.trace, context.collectives, context.ledger
    instructions, place = unique_inverse(trace.device_columns.instruction[collectives.sends])
    scopes = ["" if each == NONE else trace.instructions[each].scope for each in instructions]
    is_outside = [bool(scope) and "jvp(" not in scope for scope in scopes]
    chosen = collectives.sends[np.array(is_outside, dtype=np.bool_)[place]]
    of_chosen = collectives.collective[is_in(collectives.row, chosen)]
    count = int(collectives.device_count[of_chosen].max(initial=0))
    if count <= _FEW_SENDERS:
        return np.zeros(ledger.count, dtype=np.bool_), count
    return ledger.rows(states=(State.COMMUNICATION, State.DEVICE_WAIT), events=chosen), count
