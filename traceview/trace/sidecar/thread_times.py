"""Reads how long threads ran and waited for a core, as `traceview capture` writes it to the group `threads` of the sidecar."""

from __future__ import annotations

import binascii
import zlib
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.base.intervals import Int64Array
from traceview.base.units import PS_PER_NS
from traceview.trace.sidecar.fields import LARGEST
from traceview.trace.sidecar.python_samples import unpacked

_COLUMNS: Final = 5
_ROW_BYTES: Final = 8 * _COLUMNS
_MOST_THREADS: Final = 1 << 15
"""No process that trains has more."""


class ThreadsRecord(Struct, frozen=True):
    """The group of the sidecar."""

    rows: str | None


class ThreadTimes(Struct, frozen=True, eq=False):
    """The clocks of the threads of one host, all int64 `[n]`, by thread and time.

    `t_ns`: Unix. `thread`: the kernel's numbers. `ident`: what pthread_self returns, 0 where not known. `ran_ns`, `waited_ns`:
    how long it had run until then, and how long it had been ready without a core.
    """

    t_ns: Int64Array
    thread: Int64Array
    ident: Int64Array
    ran_ns: Int64Array
    waited_ns: Int64Array


def thread_times(record: ThreadsRecord, wrong: list[str], path: str) -> ThreadTimes | None:
    """The clocks of a record; None without any. What is not readable is named in `wrong`, and nothing of it is kept."""
    if record.rows is None:
        return None
    try:
        content = unpacked(record.rows)
    except (binascii.Error, zlib.error, ValueError):
        wrong.append(f"{path}.rows")
        return None
    count, rest = divmod(len(content), _ROW_BYTES)
    differences = np.frombuffer(content, "<i8", _COLUMNS * count).reshape(_COLUMNS, count)
    t_ns, thread, ident, ran_ns, waited_ns = columns = np.cumsum(
        differences, axis=1, dtype=np.int64
    )
    new = np.diff(thread) != 0
    if (
        rest
        or new.sum() >= _MOST_THREADS
        or (columns < 0).any()
        or (columns[:3] > LARGEST).any()
        or (columns[3:] > LARGEST // PS_PER_NS).any()
        or (np.diff(thread) < 0).any()
        or any((np.diff(column)[~new] < 0).any() for column in (t_ns, ran_ns, waited_ns))
    ):
        wrong.append(f"{path}.rows")
        return None
    return ThreadTimes(t_ns, thread, ident, ran_ns, waited_ns) if count else None
