"""Finds the host event that shows the cause of a gap, and the events around a span that nothing shows."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from traceview.base.ids import is_in
from traceview.trace.host.cause import Cause
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import NONE, Trace
from traceview.xplane.host_names import HostNameKind

_SHOWN_BY: Final[dict[Cause, tuple[HostNameKind, ...]]] = {
    Cause.INPUT: (HostNameKind.INPUT, HostNameKind.ASYNC_INPUT),
    Cause.H2D: (HostNameKind.H2D,),
    Cause.COMPILE: (HostNameKind.COMPILE,),
    Cause.SYNC: (HostNameKind.SYNC, HostNameKind.D2H),
    Cause.CHECKPOINT: (HostNameKind.CHECKPOINT,),
    Cause.LAUNCH: (HostNameKind.OP, HostNameKind.OTHER, HostNameKind.DISPATCH),
    Cause.HOST_OPS: (HostNameKind.OP, HostNameKind.DISPATCH, HostNameKind.EXECUTOR),
    Cause.DEVICE_WAIT: (HostNameKind.OP,),
}
SHOWS: Final = np.ones((len(Cause), max(HostNameKind) + 1), dtype=np.bool_)
"""Which kinds of names show a cause, by cause and kind; any kind if `_SHOWN_BY` lists none."""
for _cause, _kinds in _SHOWN_BY.items():
    SHOWS[_cause] = is_in(np.arange(SHOWS.shape[1]), _kinds)
NEARLY: Final = 0.8
"""An event that covers this share of what the longest one covers shows the same cause, more precisely."""


class HostEvidence(Struct, frozen=True):
    """One host event, with the names of the events around it on its thread, outermost first, its own last."""

    row: int
    thread: str
    stack: tuple[str, ...]

    @property
    def event(self) -> str:
        """The name of the event."""
        return self.stack[-1]


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
    return Surroundings(trace.lines[states.line_of(thread)].name, *names)


def evidence_at(trace: Trace, states: HostStates, row: int) -> HostEvidence:
    """A host event as evidence."""
    start = int(trace.host_columns.start_ps[row])
    return _evidence(trace, states, row, start, start + 1)


def _evidence(
    trace: Trace, states: HostStates, row: int, start_ps: int, end_ps: int
) -> HostEvidence:
    columns = trace.host_columns
    line = int(columns.line[row])
    moment = max(int(columns.start_ps[row]), start_ps)
    around = states.open_in(int(states.thread[line]), moment, moment + 1)
    # Events open at that moment, up to the event itself.
    is_outer = (columns.start_ps[around] <= columns.start_ps[row]) & (
        columns.end_ps[around] >= columns.end_ps[row]
    )
    outer = around[is_outer & (around != row)]
    outer = outer[np.lexsort((-columns.end_ps[outer], columns.start_ps[outer]))]
    names = [trace.names.text(int(name)) or "" for name in columns.name[[*outer.tolist(), row]]]
    return HostEvidence(row, trace.lines[line].name, tuple(names))
