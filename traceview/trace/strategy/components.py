"""Finds the components of graphs, the parts that run on one device each, and what loops over data sets call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from traceview.base.ids import is_in, labels, unique_inverse
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE, HostColumns, Names
from traceview.trace.device.correlation import innermost_value, linked_events
from traceview.trace.sidecar.sidecar import Sidecar, local_device


def component_of_rows(
    names: Names, host: HostColumns, runs_model: BoolArray, rows: Int64Array
) -> Int64Array:
    """The component that each op row runs in, if a call of a step function produced it; else `NONE`."""
    producers, producer_key, consumers, consumer_key = linked_events(host)
    runs = names.matching(host.name[producers], [b"FunctionRun"])
    calls = runs & runs_model[host.line[producers]]
    executes = names.matching(host.name[consumers], [b"ExecutorState::Process"])
    key = consumer_key[executes]
    component = np.where(is_in(key, producer_key[calls]), key, NONE)
    return innermost_value(rows, consumers[executes], component, host)


def components_around(names: Names, host: HostColumns) -> Int64Array:
    """By component the one in which its function was called, `NONE` where that is in none, int64 `[keys]`.

    An op that calls functions, such as a loop, calls the next one where the last one has ended (`ExecutorDoneCallback`).
    """
    producers, producer_key, consumers, consumer_key = linked_events(host)
    runs = names.matching(host.name[producers], [b"FunctionRun"])
    carries = names.matching(
        host.name[consumers], [b"ExecutorState::Process", b"ExecutorDoneCallback"]
    )
    known = np.where(is_in(consumer_key, producer_key[runs]), consumer_key, NONE)[carries]
    size = int(max(producer_key.max(initial=NONE), consumer_key.max(initial=NONE))) + 1
    around = np.full(size, NONE, dtype=np.int64)
    around[producer_key[runs]] = innermost_value(producers[runs], consumers[carries], known, host)
    return around


def most_frequent(group: Int64Array, value: Int64Array, group_count: int) -> Int64Array:
    """The most frequent value of each group, int64 `[group_count]`; of several the largest, 0 in an empty group."""
    pair = labels(group, value)
    count = np.bincount(pair)
    # Of equal indices the last one is kept: that of the most frequent pair, of several the largest.
    order = np.lexsort((value, count[pair], group))
    result = np.zeros(group_count, dtype=np.int64)
    result[group[order]] = value[order]
    return result


# Logical CPU devices

MOST_LOGICAL: Final = 64
"""Devices that a process makes of its CPU; of more nothing is said."""

_LOGICAL: Final = lazy_pattern(r"CPU:(\d{1,4})")


def logical_cpus(captured: Sidecar) -> list[int]:
    """The numbers of the logical CPU devices for which ops of step functions ask, ascending."""
    task = captured.environment.cluster
    asked = {
        local_device(name, task.role, task.index)
        for graph in captured.placement.functions
        for name, count in graph.ops_per_device.items()
        if count
    }
    return sorted(int(match[1]) for name in asked if (match := _LOGICAL.fullmatch(name)))


def logical_device_of_rows(
    names: Names, host: HostColumns, runs_model: BoolArray, rows: Int64Array, logical: Sequence[int]
) -> Int64Array:
    """The logical CPU device of each op row, `NONE` outside of components: the parts of a graph that one call starts.

    What a component sends has its device in the key. The others have those that are left, in the order in which they start.
    """
    producers, key, _, _ = linked_events(host)
    is_call = names.matching(host.name[producers], [b"FunctionRun"])
    is_call &= runs_model[host.line[producers]]
    started, key = producers[is_call], key[is_call]
    order = np.argsort(host.start_ps[started], kind="stable")
    _, call = unique_inverse(host.stat("id").at(started[order], NONE))
    components, key = np.unique(key[order], return_index=True)
    # Of each component, in the order of their keys: when it started, and in which call.
    order, call = np.argsort(key), call[key]
    sent = host.stat("rendezvous_key")
    sender = names.every(_sender, np.int64)[sent.value]
    of_sent = component_of_rows(names, host, runs_model, sent.row)
    numbers = np.array(logical, dtype=np.int64)
    place = np.searchsorted(numbers, sender)
    is_known = (of_sent != NONE) & (np.append(numbers, NONE)[place] == sender)
    component = np.searchsorted(components, of_sent[is_known])
    device = np.full(components.size, NONE, dtype=np.int64)
    device[component] = most_frequent(component, place[is_known], components.size)[component]
    is_taken = np.zeros((call.max(initial=0) + 1, len(logical)), dtype=np.bool_)
    is_taken[call[device != NONE], device[device != NONE]] = True
    rest = order[device[order] == NONE]
    rest = rest[np.argsort(call[rest], kind="stable")]
    first = np.searchsorted(call[rest], call[rest])
    rank = np.arange(rest.size) - first
    is_left = ~is_taken[call[rest]]
    device[rest] = (is_left & (np.cumsum(is_left, axis=1) == rank[:, None] + 1)).argmax(axis=1)
    own = component_of_rows(names, host, runs_model, rows)
    place = np.searchsorted(components, own)
    return np.where(own != NONE, np.append(numbers[device], NONE)[place], NONE)


_SENDER: Final = lazy_pattern(rb"[^;]{0,256}/device:CPU:(\d{1,4});")


def _sender(key: bytes) -> int:
    """The number of the logical CPU device that sends under a key, `NONE` of another device."""
    match = _SENDER.match(key)
    return int(match[1]) if match else NONE


# Loops over data sets

_FUNCTION: Final = b"InstantiatedCapturedFunction::Run"
_STAGE: Final = lazy_pattern(rb"ReduceDatasetOp::DoCompute|(?:Reduce)?Iterator::.*")
_BODY: Final = lazy_pattern(
    rb"ReduceDatasetOp::DoCompute|ReduceIterator::Root(?:::(?:Prefetch|TakeWhile|MaxIntraOpParallelism|PrivateThreadPool))*::Scan"
)
"""What calls the body of a loop over a data set: the reduction, or the scan that it asks, perhaps ahead (TensorFlow 2.21)."""


def functions_of_loops(names: Names, host: HostColumns) -> Int64Array:
    """Host rows of the calls of functions that are the body of a loop of a graph over a data set."""
    calls = np.flatnonzero(names.matching(host.name[:], [_FUNCTION]))
    stages = np.flatnonzero(names.where(host.name[:], _STAGE.fullmatch)) if calls.size else calls
    is_body = names.where(host.name[stages], _BODY.fullmatch).astype(np.int64)
    result: Int64Array = calls[innermost_value(calls, stages, is_body, host) == 1]
    return result


def ops_of_loops(
    names: Names, host: HostColumns, runs_model: BoolArray, is_work: BoolArray
) -> Int64Array:
    """The ops on threads of tf.data that are in the body of a loop of a graph."""
    calls, id_ = functions_of_loops(names, host), host.stat("id")
    runs = id_.row[is_in(id_.value, id_.at(calls, NONE))] if calls.size else calls
    if not runs.size:
        return runs
    rows = np.flatnonzero(is_work & ~runs_model[host.line])
    result: Int64Array = rows[innermost_value(rows, runs, runs, host) != NONE]
    return result
