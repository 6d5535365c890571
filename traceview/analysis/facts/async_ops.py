"""Finds the asynchronous ops of graphs: how long each was in flight, and who ended it.

TensorFlow notes where an executor begins such an op (`ExecutorState::ProcessAsync::Start`), and where that ends (`::Done`), on any
thread. An executor with nothing else to run waits for it. Of most kinds other threads or devices record what they do. Of these not:

    MutexLock         waits for the device that has the lock of a `tf.CriticalSection`
    ReduceDataset     runs a data set that the graph made, on threads of tf.data, and calls the body of the loop over it
    QueueDequeueV2    waits for who puts something in: a thread of Python, where one ends it (`threads.py`)
    others            wait for what is not known
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice, permutations
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.run import Run
from traceview.base.ids import labels, unique_inverse
from traceview.base.intervals import NEVER, BoolArray, Int64Array, IntervalSet, union
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
        ended = trace.named_on(host, _ENDED.__eq__)
        ended = ended[~trace.names.where(types.at(ended, NONE), _SHOWN_ELSEWHERE.fullmatch)]
        ended = ended[np.argsort(columns.start_ps[ended], kind="stable")]
        begun = states.links.producer_of(ended)
        is_known = (begun != NONE) & (columns.start_ps[begun] <= columns.start_ps[ended])
        begun, ended = begun[is_known], ended[is_known]
        name, type_ = names.at(begun, NONE), types.at(begun, NONE)
        pairs, first, place = np.unique(labels(name, type_), return_index=True, return_inverse=True)
        named = (name[first] != NONE) & (type_[first] != NONE)
        op = np.full(pairs.size, NONE, dtype=np.int64)
        texts = (trace.names.read(of[first[named]], bytes) for of in (name, type_))
        op[named] = trace.names.add_all(map(b":".join, zip(*texts, strict=True)))
        found[host] = AsyncOps(begun, ended, op[place])
    return found


# Critical sections

_LOCK: Final = lazy_pattern(rb":MutexLock\Z")
_MOST_PAIRS: Final = 4096
"""Of the replicas of a host; of more nothing is said."""


def section_waits(run: Run) -> tuple[tuple[int, int, IntervalSet], ...]:
    """When a device waits in critical sections of `tf.CriticalSection` that another one has entered, and both of them.

    Who was given a lock has it until it is given to the next. A lock runs where it was made, and the name says which replica
    asks for it.
    """
    trace, found = run.trace, list[tuple[int, int, IntervalSet]]()
    start = trace.host_columns.start_ps
    for host, ops in run.once(async_ops).items():
        own = trace.names.where(ops.op, _LOCK.search)
        number = np.array(trace.names.read(ops.op[own], _replica_of), dtype=np.int64)
        begun, given = start[ops.begun[own]], start[ops.ended[own]]
        until = np.append(given[1:], given[-1:])
        asking = {*number.tolist()}
        every = trace.devices_of_host[host]
        devices = [each for each in every if trace.device_list[each].ordinal in asking]
        for device, holder in islice(permutations(devices, 2), _MOST_PAIRS):
            asks, holds = (number == trace.device_list[each].ordinal for each in (device, holder))
            waits, held = union(begun[asks], given[asks]), union(given[holds], until[holds])
            found.append((device, holder, intersection(waits, held)))
    return tuple(found)


def longest_section(run: Run) -> str:
    """The op, as `scope/name:Type`, that locked the section that devices waited for longest; "" without any."""
    names, start = run.trace.names, run.trace.host_columns.start_ps
    waited = Counter[int]()
    for ops in run.once(async_ops).values():
        own = names.where(ops.op, _LOCK.search)
        locks, place = unique_inverse(ops.op[own])
        took = SWEEPS.totals(place, start[ops.ended[own]] - start[ops.begun[own]], locks.size)
        waited.update(dict(zip(locks.tolist(), took.tolist(), strict=True)))
    return names.text(max(waited, key=waited.__getitem__, default=NONE)) or ""


def _replica_of(name: bytes) -> int:
    return replica_in(name[:LONGEST_NAME], 0) or 0


# Data sets


def data_sets(run: Run, host: int) -> tuple[BoolArray, IntervalSet]:
    """Which asynchronous ops of a host run data sets that their graphs made, and when these call the body of a loop."""
    columns, ops = run.trace.host_columns, run.once(async_ops)[host]
    runs = run.trace.names.where(ops.op, _DATA_SET.search)
    if not runs.any():
        return runs, NEVER
    calls = run.once(_bodies)
    calls = calls[columns.host[calls] == host]
    return runs, union(columns.start_ps[calls], columns.end_ps[calls])


def _bodies(run: Run) -> Int64Array:
    return functions_of_loops(run.trace.names, run.trace.host_columns)
