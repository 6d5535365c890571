"""Links events: a device event to the host call that launched it, and host events across threads up to their step.

A launch and the device events that it started share a `correlation_id`, unique per host. A producer (`_pt`, `_p`) and its
consumers on other threads (`_ct`, `_c`) share a type and an id (openxla/xla `group_events.cc`). Inside a graph a copy is a `_Recv`
or `_HostRecv`, named after the op whose result it brings (TensorFlow, `graph_partition.cc`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import is_in, labels, unique_ids, unique_inverse
from traceview.base.intervals import Int32Array, Int64Array, Nesting, nesting, places
from traceview.base.sweeping import SWEEPS
from traceview.trace.columns import NONE, HostColumns, kept
from traceview.trace.model import Recording
from traceview.xplane.columns import joined
from traceview.xplane.planes import ActivityClass, op_type

_LONGEST_CHAIN: Final = 16
"""Threads hand the work of a step on a few times; more links are ids that agree by chance."""


def find_launches(correlation_id: Int64Array, host: HostColumns) -> Int64Array:
    """For each device event the host row with the same correlation id, all of one host; `NONE` where there is none.

    One launch may start many device events. Where several host calls carry one id, the first in time is the launch.
    Tracers number launches from 1 on; 0 means that there was none, and links nothing.
    """
    calls = host.stat("correlation_id")
    if calls.row.size == 0:
        return np.full(correlation_id.size, NONE, dtype=np.int64)
    ids, call = unique_inverse(calls.value)
    first = SWEEPS.earliest(call, host.start_ps.take(calls.row), 0, ids.size)
    place = np.minimum(places(ids, correlation_id), ids.size - 1)
    result = np.where(ids[place] == correlation_id, calls.row[first[place]], NONE)
    result[correlation_id == 0] = NONE
    return result


class EventsAround:
    """Some events of hosts, and which of them is the innermost around others; each thread is nested on first use.

    `rows`: of the events, int64. `thread_of_line`: int32; lines of one thread nest together, without it each by itself.
    """

    def __init__(
        self, rows: Int64Array, host: HostColumns, thread_of_line: Int32Array | None = None
    ) -> None:
        self._rows = rows
        self._host = host
        self._thread_of_line = thread_of_line
        self._thread = self._threads(rows)

    def _threads(self, rows: Int64Array) -> Int32Array:
        lines = self._host.line[rows]
        return lines if self._thread_of_line is None else self._thread_of_line[lines]

    def innermost(self, rows: Int64Array) -> Int64Array:
        """The index of the innermost event around the start of each host row on its thread, `NONE` without one."""
        result = np.full(rows.size, NONE, dtype=np.int64)
        if not self._rows.size:
            return result
        thread = self._threads(rows)
        for number in unique_ids(thread).tolist():
            indices, nest = self._on_thread(number)
            if indices.size:
                chosen = np.flatnonzero(thread == number)
                inner = nest.innermost(self._host.start_ps[rows[chosen]])
                result[chosen] = np.concatenate((indices, (NONE,)))[inner]
        return result

    @kept
    def _on_thread(self, thread: int) -> tuple[Int64Array, Nesting]:
        """The indices of the events on a thread, and how they nest."""
        indices = np.flatnonzero(self._thread == thread)
        rows = self._rows[indices]
        return indices, nesting(self._host.start_ps[rows], self._host.end_ps[rows])


def innermost_value(
    rows: Int64Array,
    carriers: Int64Array,
    values: npt.NDArray[np.integer],
    host: HostColumns,
    thread_of_line: Int32Array | None = None,
) -> Int64Array:
    """For each host row the value of the innermost carrier around its start on its thread; else `NONE`.

    `carriers`: host rows, each with one of `values`. `thread_of_line`: as of `EventsAround`.
    """
    around = EventsAround(carriers, host, thread_of_line).innermost(rows)
    return np.concatenate((values, (NONE,)))[around].astype(np.int64, copy=False)


class Roots(Struct, frozen=True, eq=False):
    """Host rows at which steps start, and the step of each; both int64 `[n]`."""

    row: Int64Array
    step: Int64Array


def steps_of_rows(
    rows: Int64Array, roots: Roots, host: HostColumns, thread_of_line: Int32Array
) -> Int64Array:
    """The step of each row of one host: that of the innermost root around it, or around what handed it on; else `NONE`."""
    links = ProducerConsumerLinks(host, thread_of_line, slice(0, host.count))
    around = EventsAround(roots.row, host, thread_of_line)
    result, step_of_root = np.full(rows.size, NONE), np.append(roots.step, NONE)
    open_, current = np.arange(rows.size), rows
    for _ in range(_LONGEST_CHAIN):
        result[open_] = step_of_root[around.innermost(current)]
        producer = np.where(result[open_] == NONE, links.producer_of(current), NONE)
        open_, current = open_[producer != NONE], producer[producer != NONE]
        if not open_.size:
            break
    return result


def linked_events(
    host: HostColumns, among: slice = slice(0, None)
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Producers and consumers as rows of one host, each with a key that is equal for equal types and ids.

    `among`: the rows of the host, by default all.
    """
    among = slice(among.start, host.count if among.stop is None else among.stop)
    sides = []
    for side in ("producer", "consumer"):
        types, ids = host.stat(f"{side}_type").among(among), host.stat(f"{side}_id").among(among)
        typed, numbered = is_in(types.row, ids.row), is_in(ids.row, types.row)
        sides.append((types.row[typed], types.value[typed], ids.value[numbered]))
    rows, types_, ids_ = (np.concatenate(parts) for parts in zip(*sides, strict=True))
    key, split = labels(types_, ids_), sides[0][0].size
    return rows[:split], key[:split], rows[split:], key[split:]


class ProducerConsumerLinks:
    """The links from producers to consumers of one host, whose rows are `among`."""

    def __init__(self, host: HostColumns, thread_of_line: Int32Array, among: slice) -> None:
        producers, producer_key, consumers, consumer_key = linked_events(host, among)
        order = np.lexsort((host.start_ps[producers], producer_key))
        keys = np.append(producer_key[order], NONE)
        index = np.searchsorted(keys[:-1], consumer_key)
        linked = keys[index] == consumer_key
        self._producers = producers[order[index[linked]]]
        self._consumers = EventsAround(consumers[linked], host, thread_of_line)

    def producer_of(self, rows: Int64Array) -> Int64Array:
        """For each row the first producer of the innermost consumer around it whose producer was recorded; else `NONE`."""
        return np.append(self._producers, NONE)[self._consumers.innermost(rows)]


class Copies(Struct, frozen=True, eq=False):
    """Every copy of a trace, in the order of the device columns; all arrays `[n]`.

    `row`: int64, in the device columns. `op`: int32, index into `Trace.names` of the op as recorded.
    `thread`: int32, index into `Trace.lines` of the thread that issued it. `NONE` where not recorded.
    """

    row: Int64Array
    op: Int32Array
    thread: Int32Array


def copies_of(trace: Recording) -> Copies:
    """The copies of all devices with their ops and threads."""
    columns, host = trace.device_columns, trace.host_columns
    is_copy = (columns.class_ >= ActivityClass.H2D) & (columns.class_ <= ActivityClass.D2D)
    row = np.flatnonzero(is_copy)
    op = columns.op[row]
    launch = columns.launch[row]
    thread = np.full(row.size, NONE, dtype=np.int32)
    linked = np.flatnonzero(launch != NONE)
    if linked.size:
        thread[linked] = trace.thread_of_line[host.line[launch[linked]]]
        nameless = linked[op[linked] == NONE]
        op[nameless] = _ops_around(trace, launch[nameless])
    return Copies(row, op, thread)


def _ops_around(trace: Recording, calls: Int64Array) -> Int32Array:
    """The name of the innermost op around each call on its thread; else `NONE`."""
    host, thread_of_line = trace.host_columns, trace.thread_of_line
    is_near = is_in(thread_of_line, unique_ids(thread_of_line[host.line[calls]]))
    lines = [host.rows_of(line) for line in np.flatnonzero(is_near).tolist()]
    rows = joined([np.arange(own.start, own.stop) for own in lines], np.int64)
    times = np.sort(host.start_ps[calls])
    # Sorting only events around one of the calls saves time.
    around = rows[places(times, host.start_ps[rows]) < places(times, host.end_ps[rows])]
    around = around[trace.names.where(host.name[around], op_type)]
    return innermost_value(calls, around, host.name[around], host, thread_of_line).astype(np.int32)


def _is_call_on_one_device(name: bytes) -> bool:
    return name.endswith(b"::ExecuteHelperOnSingleDevice")


def calls_of_runs(recording: Recording, host: int) -> dict[int, int]:
    """By the id of a run of a program on CPU devices of XLA, in time order, the host row of its call.

    Calls for one device have no id; what is left are their runs, in their order (docs/method.md, "Basis of steps"). If there
    are more runs, the first were called before the recording began; if fewer, the last began after it. No call for one
    device is known if a run began before its call.
    """
    columns = recording.host_columns
    run_id = columns.stat("run_id").among(columns.rows_of_host(host))
    is_op = columns.stat("device_ordinal").has(run_id.row)
    calls = dict(zip(run_id.value[~is_op].tolist(), run_id.row[~is_op].tolist(), strict=True))
    if not is_op.any():
        return calls
    single = recording.named_on(host, _is_call_on_one_device)
    single = single[np.argsort(columns.start_ps[single], kind="stable")]
    start_ps = columns.start_ps[run_id.row[is_op]]
    order = np.argsort(start_ps, kind="stable")
    runs, first = np.unique(run_id.value[is_op][order], return_index=True)
    # In the order in which they began.
    begins = dict(zip(first.tolist(), runs.tolist(), strict=True))
    begun = {
        run: int(start_ps[order[place]])
        for place, run in sorted(begins.items())
        if run not in calls
    }
    before = max(len(begun) - single.size, 0)
    ordered = dict(zip(list(begun)[before:], single.tolist(), strict=False))
    if all(columns.start_ps[row] <= begun[run] for run, row in ordered.items()):
        calls |= ordered
    return calls
