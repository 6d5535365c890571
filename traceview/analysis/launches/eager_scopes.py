"""Which launches were made by ops that ran one by one, outside of any graph?

TensorFlow marks the run of an eagerly executed op with `EagerKernelExecute`. A call of a `tf.function` is such an op,
too, so that what lies inside must not be a graph: `FunctionRun` and `ExecutorState::Process` are. The innermost of
them around a launch tells. `KernelAndDeviceFunc::Run` is in every eager op, graph or not (TensorFlow 2.21, measured).
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
        host, told, eager = self._host, 0, 0
        thread = self._thread[host.line[calls]]
        for one in unique_ids(thread).tolist():
            mine = np.flatnonzero(self._thread_of_row == one)
            spans = self._rows[mine]
            nest = nesting(host.start_ps[spans], host.end_ps[spans])
            inner = nest.innermost(host.start_ps[calls[thread == one]])
            inner = inner[inner != NONE]
            told += inner.size
            eager += int(self._is_eager[mine[inner]].sum())
        return eager if told else None
