"""Finds the op that asked for each collective, its keys, its bytes and its time.

TensorFlow runs a collective far from the op that asks for it, and records three events on the way
(`base_collective_executor.cc`, `nccl_manager.cc`). On a replica of a CPU-only run:

    CollectiveOpV2Kernel::Run ─▸ RunClosure … ExecuteAsync ─▸ scope/CollectiveReduceV2:CollectiveReduceV2
      the replica arrives                                       group_key, instance_key; the data moves

On GPUs the last replica to ask schedules the collective for all, and one launching thread per GPU runs it. The call
of NCCL around the launch holds the size of the buffer:

    scope/CollectiveReduceV2:… ⊃ Schedule Collective ─▸ Run Collective ⊃ ncclAllReduce ⊃ launch
      group_key, instance_key                             per GPU          buffer_size

So the search goes from the launch to the events around it, from there to their producers, and on until it meets the
keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from traceview.base.ids import is_in, labels, unique_inverse
from traceview.base.intervals import Int32Array, Int64Array
from traceview.trace.device.correlation import innermost_value
from traceview.trace.model import (
    NONE,
    UNKNOWN_BYTES,
    DeviceColumns,
    HostColumns,
    LineInfo,
    Names,
)
from traceview.trace.per_host import CollectiveCalls
from traceview.trace.threads import threads
from traceview.xplane.planes import ActivityClass

_CALL: Final = b"nccl"
_ARRIVAL: Final = b"CollectiveOpV2Kernel::Run"
_MOST_HANDOVERS: Final = 4
"""Handovers between threads that are followed from a launch or an op; writers are known to make two."""


def find_collective_calls(
    device: DeviceColumns, host: HostColumns, names: Names, lines: Sequence[LineInfo]
) -> CollectiveCalls:
    """The host calls behind the collectives of one host."""
    rows = np.flatnonzero(device.class_ == ActivityClass.COLLECTIVE)
    op, call, arrival = (np.full(rows.size, NONE, dtype=np.int64) for _ in range(3))
    at = device.launch[rows].astype(np.int64)
    group, instance, size = (host.stat(key) for key in ("group_key", "instance_key", "buffer_size"))
    if (at != NONE).any() and instance.row.size + size.row.size:
        thread = threads(lines)[host.line]
        called, index = unique_inverse(host.name[size.row])
        is_call = np.array([names[int(n)].startswith(_CALL) for n in called], dtype=np.bool_)
        sized = size.row[is_call[index]]
        for _ in range(_MOST_HANDOVERS):
            _fill(op, at, instance.row, host, thread)
            _fill(call, at, sized, host, thread)
            at = _producers_around(host, at, thread)
            if (at == NONE).all():
                break
            arrives = at != NONE
            arrives[arrives] = names.matching(host.name[at[arrives]], [_ARRIVAL])
            arrival[arrives] = at[arrives]
    return CollectiveCalls(
        op=op,
        group=group.at(op, NONE),
        instance=instance.at(op, NONE),
        call=call,
        bytes=size.at(call, UNKNOWN_BYTES),
        arrival=arrival,
    )


def _fill(
    result: Int64Array, at: Int64Array, carriers: Int64Array, host: HostColumns, thread: Int32Array
) -> None:
    """Where the result is `NONE`, set it to the innermost of `carriers` around the host row `at`."""
    missing = np.flatnonzero((result == NONE) & (at != NONE))
    if missing.size and carriers.size:
        result[missing] = innermost_value(at[missing], carriers, carriers, host, thread)


def _producers_around(host: HostColumns, at: Int64Array, thread: Int32Array) -> Int64Array:
    """For each host row the producer of the innermost consumer around it, else `NONE`."""
    result = np.full(at.size, NONE, dtype=np.int64)
    known = np.flatnonzero(at != NONE)
    types, ids = host.stat("consumer_type"), host.stat("consumer_id")
    if known.size == 0 or ids.row.size == 0:
        return result
    times = np.sort(host.start_ps[at[known]])
    start, end = host.start_ps[ids.row], host.end_ps[ids.row]
    # Sorting only consumers around one of the rows saves time; a row may be a consumer itself.
    around = ids.row[np.searchsorted(times, start) < np.searchsorted(times, end)]
    consumer = innermost_value(at[known], around, around, host, thread)
    known, consumer = known[consumer != NONE], consumer[consumer != NONE]
    wanted = [
        types.at(consumer, NONE),
        ids.at(consumer, NONE),
    ]
    types, ids = host.stat("producer_type"), host.stat("producer_id")
    rows = ids.row[is_in(ids.value, wanted[1])]
    keys = [types.at(rows, NONE), ids.at(rows, NONE)]
    result[known] = _first_equal(keys, rows, wanted)
    return result


def _first_equal(
    keys: list[Int64Array], values: Int64Array, wanted: list[Int64Array]
) -> Int64Array:
    """For each wanted key the value of the first equal one of `keys`, else `NONE`; keys are given by column."""
    index = labels(*(np.concatenate(pair) for pair in zip(keys, wanted, strict=True)))
    first = np.full(index.size + 1, NONE, dtype=np.int64)
    # Assigned in reverse, so that of equal keys the first remains.
    first[index[: values.size][::-1]] = values[::-1]
    result: Int64Array = first[index[values.size :]]
    return result
