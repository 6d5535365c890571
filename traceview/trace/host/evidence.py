"""Finds the host events that show the causes of gaps, and those around a span that nothing shows (docs/method.md, "Keys of gaps")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import labels, sorted_unique, unique_first, unique_ids, unique_inverse
from traceview.base.intervals import Int32Array, Int64Array, nesting, union
from traceview.base.sweeping import SWEEPS
from traceview.trace.columns import NONE
from traceview.trace.host.cause import Cause
from traceview.trace.host.host_events import ByStart
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import Trace
from traceview.xplane.planes import HostNameKind

_Bits = npt.NDArray[np.uint16]

_SHOWN_BY: Final[dict[Cause, tuple[HostNameKind, ...]]] = {
    Cause.INPUT: (HostNameKind.INPUT, HostNameKind.ASYNC_INPUT),
    Cause.H2D: (HostNameKind.H2D,),
    Cause.COMPILE: (HostNameKind.COMPILE,),
    Cause.SYNC: (HostNameKind.SYNC, HostNameKind.D2H),
    Cause.CHECKPOINT: (HostNameKind.CHECKPOINT,),
    Cause.LAUNCH: (
        *(HostNameKind.OP, HostNameKind.OTHER),
        *(HostNameKind.DISPATCH, HostNameKind.LAUNCH),
    ),
    Cause.HOST_OPS: (
        *(HostNameKind.OP, HostNameKind.OTHER),
        *(HostNameKind.DISPATCH, HostNameKind.EXECUTOR),
    ),
    Cause.DEVICE_WAIT: (HostNameKind.OP,),
}
_SHOWN_CAUSES: Final = np.array(
    [
        sum(1 << cause for cause in Cause if kind in _SHOWN_BY.get(cause, HostNameKind))
        for kind in HostNameKind
    ],
    dtype=np.uint16,
)
"""The causes that a kind of name shows, a bit for each; any kind shows those that `_SHOWN_BY` does not list."""
_LEAST_SHOWN_RATIO: Final = 0.1
"""Of a span between steps: an event that covers less does not show what the host did."""
_NEARLY: Final = 0.8
"""An event that covers this share of what the longest one covers shows the same cause, more precisely."""


class Surroundings(Struct, frozen=True):
    """What a thread recorded around a span: names of events, None without any; all None without a thread.

    `inside`: the innermost event that was open when the span began; `before`, `after`: the last event that ended by
    then, and the first that began from its end on, of those that show what the thread does.
    """

    thread: str | None = None
    inside: str | None = None
    before: str | None = None
    after: str | None = None


def surroundings_of(
    trace: Trace, states: HostStates, thread: int, start_ps: int, end_ps: int
) -> Surroundings:
    """What a thread recorded around a span."""
    if thread == NONE:
        return Surroundings()
    columns = trace.host_columns
    open_ = states.open_in(thread, start_ps, start_ps + 1)
    open_ = open_[~states.is_marker(open_)]
    inside = int(open_[-1]) if open_.size else NONE
    rows = (inside, states.last_before(thread, start_ps), states.first_after(thread, end_ps))
    names = (None if row == NONE else trace.names.text(int(columns.name[row])) for row in rows)
    return Surroundings(trace.lines[thread].name, *names)


class ManyEvidence:
    """The evidence on one host, for many spans at once."""

    def __init__(self, trace: Trace, states: HostStates) -> None:
        self._trace = trace
        self._states = states

    def rows(
        self,
        cause: npt.NDArray[np.integer],
        thread: Int32Array,
        start_ps: Int64Array,
        end_ps: Int64Array,
    ) -> Int64Array:
        """The host row that shows the cause of each span, `NONE` without one."""
        result = np.full(start_ps.size, NONE, dtype=np.int64)
        wanted = (1 << cause.astype(np.int64)).astype(np.uint16)
        states = self._states
        for number in unique_ids(thread).tolist():
            chosen = np.flatnonzero(thread == number)
            spans = start_ps[chosen], end_ps[chosen], wanted[chosen]
            # The thread and the one that calls graphs are searched first.
            near = [states.by_start(each) for each in dict.fromkeys((number, states.caller))]
            result[chosen] = self._found(near, *spans)
        missing = np.flatnonzero(result == NONE)
        if missing.size:
            rest = start_ps[missing], end_ps[missing], wanted[missing]
            result[missing] = self._found([states.model_by_start], *rest)
        columns = self._trace.host_columns
        covered = np.minimum(columns.end_ps[result], end_ps) - np.maximum(
            columns.start_ps[result], start_ps
        )
        # Whatever runs between steps shows that the host is there, and a moment of it shows nothing more.
        is_short = (cause == Cause.BETWEEN) & (covered < _LEAST_SHOWN_RATIO * (end_ps - start_ps))
        result[is_short] = NONE
        return result

    def stacks(self, rows: Int64Array) -> tuple[list[tuple[str, ...]], Int64Array]:
        """The distinct stacks at some rows, and which one each row has.

        A stack has the names of the events around one on its thread, outermost first, and its own last.
        """
        distinct, place_of_row = unique_inverse(rows)
        names = self._outer_names(distinct)
        index = labels(*names.T)
        _, first, _ = unique_first(index)
        text = self._trace.names.text
        stacks = [
            tuple(text(name) or "" for name in names[place].tolist() if name != NONE)
            for place in first.tolist()
        ]
        return stacks, index[place_of_row]

    def _outer_names(self, rows: Int64Array) -> Int32Array:
        """The names around each row and its own, `NONE` before them, int32 `[rows, depth]`."""
        columns, states = self._trace.host_columns, self._states
        chains: list[Int64Array] = []
        thread = states.thread[columns.line[rows]]
        for number in unique_ids(thread).tolist():
            chosen = np.flatnonzero(thread == number)
            own = sorted_unique(np.concatenate((states.rows_of_thread(number), rows[chosen])))
            nest = nesting(columns.start_ps[own], columns.end_ps[own])
            end_ps = columns.end_ps[rows[chosen]]
            depth = 0
            above = nest.parent[np.searchsorted(own, rows[chosen])]
            while (above != NONE).any():
                if depth == len(chains):
                    chains.append(np.full(rows.size, NONE, dtype=np.int64))
                outer = own[above]
                is_outer = (above != NONE) & (columns.end_ps[outer] >= end_ps)
                chains[depth][chosen[is_outer]] = outer[is_outer]
                above = np.where(above == NONE, NONE, nest.parent[above])
                depth += 1
        names = np.stack([*reversed(chains), rows], axis=1)
        return np.where(names == NONE, NONE, columns.name[names])

    def _found(
        self,
        searched: Sequence[ByStart],
        start_ps: Int64Array,
        end_ps: Int64Array,
        wanted: _Bits,
    ) -> Int64Array:
        """The row that shows what is wanted of each span, of several the first searched; `NONE` without one."""
        columns, spans = self._trace.host_columns, union(start_ps, end_ps)
        # What events show is asked for a few gaps out of many.
        rows = np.concatenate([events.touching(spans.start, spans.end) for events in searched])
        if len(searched) > 1:
            rows = rows[np.argsort(columns.start_ps[rows], kind="stable")]
        order = np.argsort(start_ps, kind="stable")
        end_of_row = columns.end_ps[rows]
        found = np.empty(order.size, dtype=np.int64)
        found[order] = SWEEPS.clearest(
            columns.start_ps[rows],
            end_of_row,
            SWEEPS.reaches(end_of_row),
            self._shown_by(rows),
            start_ps[order],
            end_ps[order],
            wanted[order],
            _NEARLY,
        )
        return np.append(rows, NONE)[found]

    def _shown_by(self, rows: Int64Array) -> _Bits:
        """The causes that each row shows, a bit for each."""
        states = self._states
        bits = _SHOWN_CAUSES[states.kind_of(rows)]
        for cause, is_shown in (
            (Cause.BETWEEN, ~states.is_in_step(rows)),
            (Cause.PYTHON, ~states.is_spoken(rows)),
        ):
            bit = np.uint16(1 << cause)
            bits = np.where(is_shown, bits | bit, bits & ~bit)
        has_call = self._trace.host_columns.stat("tf_function_call").has(rows)
        bits = np.where(has_call, bits | np.uint16(1 << Cause.COMPILE), bits)
        return np.where(states.is_marker(rows), np.uint16(0), bits)
