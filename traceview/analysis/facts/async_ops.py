"""Finds the asynchronous ops of graphs: how long each was in flight, and who ended it.

TensorFlow notes where an executor begins such an op (`ExecutorState::ProcessAsync::Start`), and where that ends (`::Done`), on any
thread. An executor with nothing else to run waits for it. Of most kinds other threads or devices record what they do. Of these not:

    MutexLock         waits for the device that has the lock of a `tf.CriticalSection`
    QueueDequeueV2    waits for who puts something in: a thread of Python, where one ends it (`threads.py`)
    others            wait for what is not known
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import permutations
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.run import Run
from traceview.base.ids import labels, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, Int64Array, IntervalSet, union
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import LONGEST_NAME
from traceview.trace.host.state_timeline import intersection
from traceview.trace.model import Trace
from traceview.trace.strategy.components import functions_of_loops
from traceview.trace.strategy.replicas import replica_in

_ENDED: Final = b"ExecutorState::ProcessAsync::Done"
"""What the thread records that ends an asynchronous op; its producer is where that began (TensorFlow 2.21)."""

_SHOWN_ELSEWHERE: Final = lazy_pattern(
    rb"_(?:Host)?Recv|RemoteCall|(?:Collective|Nccl).*|.*PartitionedCall|(?:Stateless)?(?:While|If|Case)"
    rb"|(?:MultiDevice)?IteratorGetNext.*"
)
"""Types of ops that wait for what other threads or devices record."""


_DATA_SET: Final = lazy_pattern(
    rb":(?:(?:Reduce|Save)Dataset(?:V\d+)?|DatasetToSingleElement|MakeIterator)$"
)

NO_ROWS: Final = np.empty(0, dtype=np.int64)


class AsyncOps(Struct, frozen=True, eq=False):
    """The asynchronous ops of one host, in the order in which they ended; int64 arrays `[n]`.

    `begun`, `ended`: host rows. `op`: the name `scope/name:Type`, `NONE` where not recorded.
    """

    begun: Int64Array
    ended: Int64Array
    op: Int64Array

    def spans(self, trace: Trace, chosen: BoolArray) -> IntervalSet:
        """When some of them were in flight."""
        start = trace.host_columns.start_ps
        return union(start[self.begun[chosen]], start[self.ended[chosen]])


def async_ops(run: Run) -> Mapping[int, AsyncOps]:
    """The asynchronous ops of each host of which nothing else shows what they wait for."""
    trace, found = run.trace, dict[int, AsyncOps]()
    columns = trace.host_columns
    types, names = columns.stat("kernel_type"), columns.stat("dataset_name")
    for host, states in run.idle.states.items():
        ended = trace.named_on(host, _is_end)
        ended = ended[~trace.names.where(types.at(ended, NONE), _SHOWN_ELSEWHERE.fullmatch)]
        ended = ended[np.argsort(columns.start_ps[ended], kind="stable")]
        begun = states.links.producer_of(ended)
        begun, ended = begun[begun != NONE], ended[begun != NONE]
        name, type_ = names.at(begun, NONE), types.at(begun, NONE)
        pairs, first, place = np.unique(labels(name, type_), return_index=True, return_inverse=True)
        named = (name[first] != NONE) & (type_[first] != NONE)
        op = np.full(pairs.size, NONE, dtype=np.int64)
        texts = (trace.names.read(of[first[named]], bytes) for of in (name, type_))
        op[named] = trace.names.add_all(map(b":".join, zip(*texts, strict=True)))
        found[host] = AsyncOps(begun, ended, op[place])
    return found


def _is_end(name: bytes) -> bool:
    return name == _ENDED


# Critical sections


class SectionWait(Struct, frozen=True, eq=False):
    """When a device waits in critical sections of `tf.CriticalSection` that another one has entered, both of the device list."""

    device: int
    holder: int
    spans: IntervalSet


def section_waits(run: Run) -> tuple[SectionWait, ...]:
    """The waits for locks. Who was given one has it until it is given to the next.

    A lock runs where it was made, and the name says which replica asks for it.
    """
    trace, found = run.trace, list[SectionWait]()
    for host, ops in run.once(async_ops).items():
        own = trace.names.where(ops.op, _is_lock)
        if not own.any():
            continue
        number = np.array(trace.names.read(ops.op[own], _replica_of), dtype=np.int64)
        start = trace.host_columns.start_ps
        begun, given = start[ops.begun[own]], start[ops.ended[own]]
        until = np.append(given[1:], given[-1:])
        for device, holder in permutations(trace.devices_of_host[host], 2):
            asks, holds = (number == trace.device_list[each].ordinal for each in (device, holder))
            waits, held = union(begun[asks], given[asks]), union(given[holds], until[holds])
            found.append(SectionWait(device, holder, intersection(waits, held)))
    return tuple(wait for wait in found if wait.spans.start.size)


def longest_section(run: Run) -> str:
    """The op, as `scope/name:Type`, that locked the section that devices waited for longest; "" without any."""
    start, waited = run.trace.host_columns.start_ps, Counter[int]()
    for ops in run.once(async_ops).values():
        own = run.trace.names.where(ops.op, _is_lock)
        names, place = unique_inverse(ops.op[own])
        took = SWEEPS.totals(place, start[ops.ended[own]] - start[ops.begun[own]], names.size)
        waited.update(dict(zip(names.tolist(), took.tolist(), strict=True)))
    ((name, _),) = waited.most_common(1) or ((NONE, 0),)
    return run.trace.names.text(name) or ""


def _is_lock(name: bytes) -> bool:
    return name.endswith(b":MutexLock")


def _replica_of(name: bytes) -> int:
    return replica_in(name[:LONGEST_NAME], 0) or 0


# Data sets


def _runs_data_set(name: bytes) -> bool:
    return _DATA_SET.search(name) is not None


def data_sets(run: Run, host: int) -> tuple[Mapping[int, IntervalSet], IntervalSet]:
    """When ops of graphs ran data sets that the graph made, by their name, and when these called the body of a loop."""
    trace, ops = run.trace, run.once(async_ops)[host]
    runs = trace.names.where(ops.op, _runs_data_set)
    columns = trace.host_columns
    calls = (
        functions_of_loops(trace.names, columns, columns.rows_of_host(host))
        if runs.any()
        else NO_ROWS
    )
    spans = {op: ops.spans(trace, ops.op == op) for op in unique_ids(ops.op[runs]).tolist()}
    return spans, union(columns.start_ps[calls], columns.end_ps[calls])
