"""Which op asked for each collective, with which keys, for how many bytes, and when?

TensorFlow runs a collective far from the op that asks for it, and leaves three traces on the way
(`base_collective_executor.cc`, `nccl_manager.cc`). On a replica of a CPU-only run:

    CollectiveOpV2Kernel::Run ─▸ RunClosure … ExecuteAsync ─▸ scope/CollectiveReduceV2:CollectiveReduceV2
      the replica arrives                                       group_key, instance_key; the data moves

On GPUs the last replica to ask schedules the collective for all, one launching thread per GPU runs it, and
around the launch stands what NCCL was called with:

    scope/CollectiveReduceV2:… ⊃ Schedule Collective ─▸ Run Collective ⊃ ncclAllReduce ⊃ launch
      group_key, instance_key                             per GPU          buffer_size

So from the launch it goes outwards to what is around it, and from there to what produced that, until the keys
are found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from traceview.ids import unique_inverse
from traceview.intervals import Int32Array, Int64Array
from traceview.trace.correlation import innermost_value, threads
from traceview.trace.model import NONE, UNKNOWN_BYTES, HostColumns, HostStat, Recording

_CALL: Final = b"nccl"
_ARRIVAL: Final = b"CollectiveOpV2Kernel::Run"
_MOST_HANDOVERS: Final = 4
"""From launch or op to what asked for it; two are known."""


@dataclass(frozen=True, eq=False)
class CollectiveCalls:
    """What the host tells of some device events; int64 arrays, one entry per event.

    `op`: host row of the op that holds the keys, `NONE` without; `group`, `instance`: its keys. `call`: host
    row of the call of NCCL around the launch; `bytes`: of the buffer it was called with. `arrival`: host row
    at whose start a replica handed the op over, `NONE` on GPUs.
    """

    op: Int64Array
    group: Int64Array
    instance: Int64Array
    call: Int64Array
    bytes: Int64Array
    arrival: Int64Array


def collective_calls(recording: Recording, rows: Int64Array) -> CollectiveCalls:
    """The calls behind the device events at `rows`."""
    host = recording.host_columns
    op, call, arrival = (np.full(rows.size, NONE, dtype=np.int64) for _ in range(3))
    at = recording.device_columns.launch[rows]
    group, instance, size = (host.stat(key) for key in ("group_key", "instance_key", "buffer_size"))
    if (at != NONE).any() and instance.row.size + size.row.size:
        thread = threads(recording.lines)[host.line]
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
        group=_values(group, op, NONE),
        instance=_values(instance, op, NONE),
        call=call,
        bytes=_values(size, call, UNKNOWN_BYTES),
        arrival=arrival,
    )


def _values(stat: HostStat, rows: Int64Array, default: int) -> Int64Array:
    """The value of a stat at each of a few host rows, `default` where they have none."""
    place = np.searchsorted(stat.row, rows)
    found = np.append(stat.row, NONE)[place] == rows
    return np.where(found & (rows != NONE), np.append(stat.value, default)[place], default)


def _fill(
    found: Int64Array, at: Int64Array, carriers: Int64Array, host: HostColumns, thread: Int32Array
) -> None:
    """Where nothing is found yet, the innermost of `carriers` around the host row `at`."""
    asked = np.flatnonzero((found == NONE) & (at != NONE))
    if asked.size and carriers.size:
        found[asked] = innermost_value(at[asked], carriers, carriers, host, thread)


def _producers_around(host: HostColumns, at: Int64Array, thread: Int32Array) -> Int64Array:
    """For each host row what produced the innermost consumer around it, else `NONE`."""
    result = np.full(at.size, NONE, dtype=np.int64)
    asked = np.flatnonzero(at != NONE)
    types, ids = host.stat("consumer_type"), host.stat("consumer_id")
    if asked.size == 0 or ids.row.size == 0:
        return result
    times = np.sort(host.start_ps[at[asked]])
    start, end = host.start_ps[ids.row], host.end_ps[ids.row]
    # Only what holds one of the rows is worth sorting; a row may be a consumer itself.
    around = ids.row[np.searchsorted(times, start) < np.searchsorted(times, end)]
    consumer = innermost_value(at[asked], around, around, host, thread)
    asked, consumer = asked[consumer != NONE], consumer[consumer != NONE]
    wanted = [host.host[consumer].astype(np.int64)] + [
        _values(stat, consumer, NONE) for stat in (types, ids)
    ]
    made_type, made_id = host.stat("producer_type"), host.stat("producer_id")
    rows = made_id.row[np.isin(made_id.value, wanted[2])]
    made = [host.host[rows].astype(np.int64)] + [
        _values(stat, rows, NONE) for stat in (made_type, made_id)
    ]
    result[asked] = _first_equal(made, rows, wanted)
    return result


def _first_equal(
    keys: list[Int64Array], values: Int64Array, wanted: list[Int64Array]
) -> Int64Array:
    """For each wanted key the first of `values` that has it, else `NONE`; keys are given by column."""
    both = np.stack([np.concatenate(pair) for pair in zip(keys, wanted, strict=True)], axis=1)
    _, index = np.unique(both, axis=0, return_inverse=True)
    index = index.reshape(-1)
    first = np.full(both.shape[0] + 1, NONE, dtype=np.int64)
    # Reversed, so that of equal keys the first is the one that stays.
    first[index[: values.size][::-1]] = values[::-1]
    found: Int64Array = first[index[values.size :]]
    return found
