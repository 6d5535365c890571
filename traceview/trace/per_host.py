"""Lists what is computed from the events of one host alone when its file is read, for several topics ask for it later.

Each result is a record of arrays of equal length. The hosts of a run put theirs one after the other: columns named in
`HOST_ROWS` are rows of the host columns, or -1, and count on over the hosts.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from traceview.base.intervals import Int64Array

HOST_ROWS: Final = frozenset(("op", "call", "arrival"))


class CollectiveCalls(Struct, frozen=True, eq=False):
    """The host calls behind the device events of class collective; int64 arrays, one entry per event, in their order.

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


class PerHost(Struct, frozen=True, eq=False):
    """The results of a host, or of all hosts of a run."""

    collective_calls: CollectiveCalls
