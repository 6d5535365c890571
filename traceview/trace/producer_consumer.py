"""Which host event made ready what another thread did?"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from traceview.ids import unique_ids
from traceview.intervals import Int32Array, Int64Array, Nesting, nesting
from traceview.trace.correlation import linked_events
from traceview.trace.model import NONE, HostColumns


class ProducerConsumerLinks:
    """Producers (`_pt`, `_p`) and consumers (`_ct`, `_c`) of one host; `thread` is that of each line."""

    def __init__(self, columns: HostColumns, thread: Int32Array, host: int) -> None:
        self._columns = columns
        self._thread = thread
        self._host = host
        self._nests: dict[int, tuple[Int64Array, Nesting]] = {}

    def producer_of(self, rows: Int64Array) -> Int64Array:
        """For each host row the first producer of the innermost consumer around it; `NONE` without one."""
        columns = self._columns
        result = np.full(rows.size, NONE, dtype=np.int64)
        thread = self._thread[columns.line[rows]]
        for one in unique_ids(thread).tolist():
            consumers, nest = self._consumers_on(one)
            if consumers.size == 0:
                continue
            mine = np.flatnonzero(thread == one)
            inner = nest.innermost(columns.start_ps[rows[mine]])
            hit = inner != NONE
            result[mine[hit]] = self._producers[consumers[inner[hit]]]
        return result

    def _consumers_on(self, thread: int) -> tuple[Int64Array, Nesting]:
        """Indices of the consumers on a thread, and how they lie in each other."""
        if thread not in self._nests:
            row, _ = self._consumers
            mine = np.flatnonzero(self._thread[self._columns.line[row]] == thread)
            spans = self._columns.start_ps[row[mine]], self._columns.end_ps[row[mine]]
            self._nests[thread] = mine, nesting(*spans)
        return self._nests[thread]

    @cached_property
    def _consumers(self) -> tuple[Int64Array, Int64Array]:
        """Host rows of the consumers whose producer was recorded, and the row of that producer."""
        producers, producer_key, consumers, consumer_key = linked_events(self._columns)
        order = np.lexsort((self._columns.start_ps[producers], producer_key))
        keys = producer_key[order]
        if keys.size == 0:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        place = np.minimum(np.searchsorted(keys, consumer_key), keys.size - 1)
        found = (keys[place] == consumer_key) & (self._columns.host[consumers] == self._host)
        return consumers[found], producers[order][place[found]]

    @property
    def _producers(self) -> Int64Array:
        return self._consumers[1]
