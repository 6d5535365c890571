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

from typing import Final

import numpy as np
from msgspec import Struct

from traceview.ids import is_in, labels, unique_inverse
from traceview.intervals import Int32Array, Int64Array
from traceview.trace.correlation import innermost_value
from traceview.trace.model import NONE, UNKNOWN_BYTES, HostColumns, Recording

_CALL: Final = b"nccl"
_ARRIVAL: Final = b"CollectiveOpV2Kernel::Run"
_MOST_HANDOVERS: Final = 4
"""Handovers between threads that are followed from a launch or an op; writers are known to make two."""


class CollectiveCalls(Struct, frozen=True, eq=False):
    """The host calls behind some device events; int64 arrays, one entry per event.

    `op`: host row of the op that holds the keys, `NONE` without; `group`, `instance`: its keys. `call`: host
    row of the call of NCCL around the launch; `bytes`: size of its buffer. `arrival`: host row at whose start a
    replica handed the op over, `NONE` on GPUs.
    """

    op: Int64Array
    group: Int64Array
    instance: Int64Array
    call: Int64Array
    bytes: Int64Array
    arrival: Int64Array


def find_collective_calls(recording: Recording, rows: Int64Array) -> CollectiveCalls:
    """The host calls behind the device events at `rows`."""
    host = recording.host_columns
    op, call, arrival = (np.full(rows.size, NONE, dtype=np.int64) for _ in range(3))
    at = recording.device_columns.launch[rows].astype(np.int64)
    group, instance, size = (host.stat(key) for key in ("group_key", "instance_key", "buffer_size"))
    if (at != NONE).any() and instance.row.size + size.row.size:
        thread = recording.thread_of_line[host.line]
        names, index = unique_inverse(host.name[size.row])
        is_call = np.array(
            [recording.names[int(n)].startswith(_CALL) for n in names], dtype=np.bool_
        )
        sized = size.row[is_call[index]]
        for _ in range(_MOST_HANDOVERS):
            _fill(op, at, instance.row, host, thread)
            _fill(call, at, sized, host, thread)
            at = _producers_around(host, at, thread)
            if (at == NONE).all():
                break
            arrives = at != NONE
            arrives[arrives] = recording.names.matching(host.name[at[arrives]], [_ARRIVAL])
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
        host.host[consumer].astype(np.int64),
        types.at(consumer, NONE),
        ids.at(consumer, NONE),
    ]
    types, ids = host.stat("producer_type"), host.stat("producer_id")
    rows = ids.row[is_in(ids.value, wanted[2])]
    keys = [host.host[rows].astype(np.int64), types.at(rows, NONE), ids.at(rows, NONE)]
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
