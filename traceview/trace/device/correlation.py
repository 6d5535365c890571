"""Links events: a device event to the host call that launched it, and host events across threads up to their step.

A trace holds two kinds of links. A launch and the device events that it started share a `correlation_id`, unique per
host. A producer (`_pt`, `_p`) and its consumers on other threads (`_ct`, `_c`) share a type and an id. From a step
marker the chain goes `train` → `FunctionRun` → `ExecutorState::Process` → op → launch, by nesting on one thread and
by such ids across threads (openxla/xla `group_events.cc`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import Int32Array, Int64Array, Nesting, nesting
from traceview.base.sweeping import SWEEPS
from traceview.trace.model import NONE, HostColumns, HostStat
from traceview.xplane.columns import SmallIntArray

_DENSE_PER_CALL: Final = 8
"""Tracers number calls one after the other. A table of so many ids per call is made in less time than ids are sorted."""
_LONGEST_CHAIN: Final = 16
"""Threads hand the work of a step on a few times; more links are ids that agree by chance."""


def find_launches(
    correlation_id: SmallIntArray,
    has_correlation: np.ndarray[tuple[int], np.dtype[np.bool_]],
    host: HostColumns,
) -> Int64Array:
    """For each device event the host row with the same correlation id, all of one host; `NONE` where there is none.

    One launch may start many device events. Where several host calls carry one id, the first in time is the launch.
    Tracers number launches from 1 on; 0 means that there was none, and links nothing.
    """
    calls = host.stat("correlation_id")
    if calls.row.size == 0:
        return np.full(correlation_id.size, NONE, dtype=np.int64)
    result = _first_calls(calls, host.start_ps.take(calls.stored_row), correlation_id)
    is_linked = has_correlation & (correlation_id != 0)
    if not is_linked.all():
        result[~is_linked] = NONE
    return result


def _first_calls(calls: HostStat, start_ps: Int64Array, wanted: SmallIntArray) -> Int64Array:
    """The row of the first call with each of the wanted ids, `NONE` where there is none."""
    ids = np.ascontiguousarray(calls.value)
    least, most = int(ids.min()), int(ids.max())
    if most - least <= _DENSE_PER_CALL * ids.size:
        call_of = SWEEPS.earliest(ids, start_ps, least, most - least + 1)
        # `NONE` is the last place.
        row_of = np.append(calls.row, NONE).take(call_of)
        result: Int64Array = SWEEPS.looked_up(row_of, wanted, least, NONE)
        return result
    order = np.lexsort((start_ps, ids))
    in_order = ids[order]
    place = np.minimum(np.searchsorted(in_order, wanted), ids.size - 1)
    return np.where(in_order[place] == wanted, calls.row[order][place], NONE)


class Roots(Struct, frozen=True, eq=False):
    """Host rows at which steps start, and the step of each; both int64 `[n]`."""

    row: Int64Array
    step: Int64Array


def steps_of_rows(
    rows: Int64Array, roots: Roots, host: HostColumns, thread_of_line: Int32Array
) -> Int64Array:
    """The step of each host row: that of the innermost root or linked consumer around it; else `NONE`."""
    thread = thread_of_line[host.line]
    producers, producer_key, consumers, consumer_key = linked_events(host)
    step_of_producer = np.full(producers.size, NONE, dtype=np.int64)
    # The first producer whose step is known gives a consumer key its step.
    step_of_key = np.full(
        int(max(producer_key.max(initial=-1), consumer_key.max(initial=-1))) + 1, NONE
    )
    carriers, carrier_step = roots.row, roots.step
    consumer_done = np.zeros(consumers.size, dtype=np.bool_)
    for _ in range(_LONGEST_CHAIN):
        open_ = np.flatnonzero(step_of_producer == NONE)
        step = innermost_value(producers[open_], carriers, carrier_step, host, thread)
        hit = step != NONE
        step_of_producer[open_[hit]] = step[hit]
        keys = producer_key[open_[hit]]
        fresh = step_of_key[keys] == NONE
        # Assigned in reverse, so that the first producer of a key remains.
        step_of_key[keys[fresh][::-1]] = step[hit][fresh][::-1]
        ready = np.flatnonzero(~consumer_done & (step_of_key[consumer_key] != NONE))
        if ready.size == 0:
            break
        consumer_done[ready] = True
        carriers = np.concatenate((carriers, consumers[ready]))
        carrier_step = np.concatenate((carrier_step, step_of_key[consumer_key[ready]]))
    return innermost_value(rows, carriers, carrier_step, host, thread)


def linked_events(
    host: HostColumns, among: slice | None = None
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Producers and consumers as host rows, each with a key that is equal for equal (host, type, id).

    `among`: only those in this range of rows.
    """
    sides = []
    for side in ("producer", "consumer"):
        types, ids = host.stat(f"{side}_type"), host.stat(f"{side}_id")
        if among is not None:
            types, ids = types.among(among), ids.among(among)
        typed, numbered = is_in(types.row, ids.row), is_in(ids.row, types.row)
        sides.append((types.row[typed], types.value[typed], ids.value[numbered]))
    rows, type_, id_ = (np.concatenate(parts) for parts in zip(*sides, strict=True))
    order = np.lexsort((id_, type_, host.host[rows]))
    columns = [host.host[rows].astype(np.int64)[order], type_[order], id_[order]]
    changes = np.zeros(order.size, dtype=np.int64)
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    key = np.empty(order.size, dtype=np.int64)
    key[order] = np.cumsum(changes)
    split = sides[0][0].size
    return rows[:split], key[:split], rows[split:], key[split:]


def innermost_value(
    rows: Int64Array,
    carriers: Int64Array,
    values: Int64Array,
    host: HostColumns,
    thread: Int32Array,
) -> Int64Array:
    """For each host row the value of the innermost carrier around its start on its thread; else `NONE`.

    `carriers`: host rows, each with one of `values`. `thread`: the thread of every host row.
    """
    result = np.full(rows.size, NONE, dtype=np.int64)
    by_thread = np.argsort(thread[rows], kind="stable")
    sorted_thread = thread[rows][by_thread]
    for carrier_thread in unique_ids(thread[carriers]).tolist():
        # Bounds of another type would convert the whole column.
        bounds = np.array((carrier_thread, carrier_thread + 1), dtype=sorted_thread.dtype)
        first, last = np.searchsorted(sorted_thread, bounds).tolist()
        if first == last:
            continue
        on_thread = np.flatnonzero(thread[carriers] == carrier_thread)
        nest = nesting(host.start_ps[carriers[on_thread]], host.end_ps[carriers[on_thread]])
        targets = by_thread[first:last]
        inner = nest.innermost(host.start_ps[rows[targets]])
        hit = inner != NONE
        result[targets[hit]] = values[on_thread[inner[hit]]]
    return result


class ProducerConsumerLinks:
    """The links from producers to consumers of one host; `thread`: the thread of each line."""

    def __init__(self, columns: HostColumns, thread: Int32Array, host: int) -> None:
        self._columns = columns
        self._thread = thread
        self._host = host
        self._nests: dict[int, tuple[Int64Array, Nesting]] = {}

    def producer_of(self, rows: Int64Array) -> Int64Array:
        """For each host row the first producer of the innermost consumer around it; `NONE` without one."""
        columns = self._columns
        _, producers = self._consumers
        result = np.full(rows.size, NONE, dtype=np.int64)
        thread_of_row = self._thread[columns.line[rows]]
        for thread in unique_ids(thread_of_row).tolist():
            consumers, nest = self._consumers_on(thread)
            if consumers.size == 0:
                continue
            on_thread = np.flatnonzero(thread_of_row == thread)
            inner = nest.innermost(columns.start_ps[rows[on_thread]])
            hit = inner != NONE
            result[on_thread[hit]] = producers[consumers[inner[hit]]]
        return result

    def _consumers_on(self, thread: int) -> tuple[Int64Array, Nesting]:
        """Indices of the consumers on a thread, and how they nest."""
        if thread not in self._nests:
            row, _ = self._consumers
            on_thread = np.flatnonzero(self._thread[self._columns.line[row]] == thread)
            spans = self._columns.start_ps[row[on_thread]], self._columns.end_ps[row[on_thread]]
            self._nests[thread] = on_thread, nesting(*spans)
        return self._nests[thread]

    @cached_property
    def _consumers(self) -> tuple[Int64Array, Int64Array]:
        """Host rows of the consumers whose producer was recorded, and the row of that producer."""
        rows = self._columns.rows_of_host(self._host)
        producers, producer_key, consumers, consumer_key = linked_events(self._columns, rows)
        order = np.lexsort((self._columns.start_ps[producers], producer_key))
        keys = producer_key[order]
        if keys.size == 0:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        place = np.minimum(np.searchsorted(keys, consumer_key), keys.size - 1)
        linked = keys[place] == consumer_key
        return consumers[linked], producers[order][place[linked]]
