"""Counts launches that eager ops made, outside of any graph.

TensorFlow marks the run of an eager op with `EagerKernelExecute`. A call of a `tf.function` is such an op, too; the
graph inside is marked with `FunctionRun` and `ExecutorState::Process`. The innermost of these marks around a launch
decides. `KernelAndDeviceFunc::Run` is in every eager op, graph or not (TensorFlow 2.21, measured).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from traceview.ids import unique_ids
from traceview.intervals import Int32Array, Int64Array, nesting
from traceview.trace.model import NONE, HostColumns, Names

EAGER: Final = b"EagerKernelExecute"
GRAPH: Final = (b"FunctionRun", b"ExecutorState::Process")


class EagerScopes:
    """The spans of eager ops and of graphs on every thread; `thread`: the thread of each line."""

    def __init__(self, host: HostColumns, names: Names, thread: Int32Array) -> None:
        self._host = host
        self._thread = thread
        wanted = [index for index, name in enumerate(names) if name == EAGER or name in GRAPH]
        is_wanted = np.zeros(max(len(names), 1), dtype=np.bool_)
        is_wanted[wanted] = True
        self._rows = np.flatnonzero(is_wanted[host.name])
        self._is_eager = names.matching(host.name[self._rows], [EAGER])
        self._thread_of_row = thread[host.line[self._rows]]

    def count(self, calls: Int64Array) -> int | None:
        """How many of these host rows ran in an eager op; None where none of them lies in a recorded scope."""
        host, in_scope, eager = self._host, 0, 0
        thread_of_call = self._thread[host.line[calls]]
        for thread in unique_ids(thread_of_call).tolist():
            scopes = np.flatnonzero(self._thread_of_row == thread)
            rows = self._rows[scopes]
            nest = nesting(host.start_ps[rows], host.end_ps[rows])
            inner = nest.innermost(host.start_ps[calls[thread_of_call == thread]])
            inner = inner[inner != NONE]
            in_scope += inner.size
            eager += int(self._is_eager[scopes[inner]].sum())
        return eager if in_scope else None
