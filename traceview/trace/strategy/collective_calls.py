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

from traceview.trace.device.correlation import EventsAround, ProducerConsumerLinks
from traceview.trace.model import (
    NONE,
    UNKNOWN_BYTES,
    CollectiveCalls,
    DeviceColumns,
    HostColumns,
    LineInfo,
    Names,
    threads,
)
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
        thread = threads(lines)
        is_call = names.where(host.name[size.row], lambda name: name.startswith(_CALL))
        keyed, sized = instance.row, size.row[is_call]
        searched = [
            (result, carriers, EventsAround(carriers, host, thread))
            for result, carriers in ((op, keyed), (call, sized))
        ]
        links = ProducerConsumerLinks(host, thread, slice(0, host.count))
        for _ in range(_MOST_HANDOVERS):
            for result, carriers, around in searched:
                missing = np.flatnonzero((result == NONE) & (at != NONE))
                result[missing] = np.append(carriers, NONE)[around.innermost(at[missing])]
            known = np.flatnonzero(at != NONE)
            at[known] = links.producer_of(at[known])
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
