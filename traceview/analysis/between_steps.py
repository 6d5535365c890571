"""What did the host do between the steps: save, write summaries, evaluate, read values, or run Python?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis
from traceview.analysis.selection import Selection
from traceview.ids import unique_ids
from traceview.intervals import Int64Array, IntervalSet, union
from traceview.record import Count, Hostname, OpName, Picoseconds, Record
from traceview.trace.host_states import HostStates
from traceview.trace.model import Trace
from traceview.xplane.host_names import HostNameKind

MOST_NAMES: Final = 3
"""So many names are given for each kind of work."""
KINDS: Final = (
    "checkpoint",
    "summary",
    "compile",
    "value_read",
    "input",
    "graph_call",
    "eager_op",
    "python",
)
"""In the order in which one is preferred to the next; python is what left no event."""
_OF_KIND: Final[Mapping[HostNameKind, str]] = {
    HostNameKind.CHECKPOINT: "checkpoint",
    HostNameKind.COMPILE: "compile",
    HostNameKind.SYNC: "value_read",
    HostNameKind.D2H: "value_read",
    HostNameKind.INPUT: "input",
    HostNameKind.ASYNC_INPUT: "input",
    HostNameKind.CALL: "graph_call",
    HostNameKind.DISPATCH: "eager_op",
    HostNameKind.OP: "eager_op",
}
_SUMMARY: Final = b"Summary"


class BetweenSteps(Record, frozen=True):
    """The time of one host's calling thread outside of step markers, from the first to the last marker.

    Attributes:
        host: Host.
        count: Spans between markers.
        total_ps: Their length, picoseconds; the parts sum to it.
        parts_ps: Time by kind of work, picoseconds: checkpoint, summary, compile, value_read, input,
            graph_call, eager_op, and python, which left no event.
        names: The events with most of the time of each kind.
    """

    host: Hostname
    count: Count
    total_ps: Picoseconds
    parts_ps: dict[str, Picoseconds]
    names: dict[str, tuple[OpName, ...]]


class BetweenAllSteps(Record, frozen=True):
    """Hosts with explicit step markers, in their order.

    Attributes:
        hosts: Hosts with explicit step markers.
    """

    hosts: tuple[BetweenSteps, ...]


def compute(
    trace: Trace, selection: Selection, states: Mapping[int, HostStates]
) -> BetweenAllSteps | Skipped:
    """Split the time between markers of every host that has them."""
    found = [
        one
        for host, state in states.items()
        if (one := _between(trace, selection, host, state)) is not None
    ]
    return BetweenAllSteps(tuple(found)) if found else Skipped("no step is marked explicitly")


def _between(
    trace: Trace, selection: Selection, host: int, states: HostStates
) -> BetweenSteps | None:
    markers, window = states.markers, selection.windows[host]
    start = np.maximum(markers.end[:-1], window.start_ps)
    end = np.minimum(markers.start[1:], window.end_ps)
    holes = union(start, end)
    if not holes.start.size:
        return None
    rows = states.rows_of_thread(states.caller)
    columns = trace.host_columns
    inside = holes.within(columns.start_ps[rows], columns.end_ps[rows]) > 0
    rows = rows[inside]
    kind = _kinds(trace, states, rows)
    parts: dict[str, int] = {}
    covered = 0
    chosen = np.zeros(rows.size, dtype=np.bool_)
    for index, name in enumerate(KINDS[:-1]):
        chosen |= kind == index
        so_far = _covered(holes, columns.start_ps[rows[chosen]], columns.end_ps[rows[chosen]])
        parts[name], covered = so_far - covered, so_far
    parts[KINDS[-1]] = holes.length - covered
    return BetweenSteps(
        host=trace.hosts[host].name,
        count=int(holes.start.size),
        total_ps=holes.length,
        parts_ps={name: length for name, length in parts.items() if length},
        names=_names(trace, rows, kind),
    )


def _kinds(trace: Trace, states: HostStates, rows: Int64Array) -> Int64Array:
    """The kind of work of each row, as an index of `KINDS`; that of python where its name says nothing."""
    of_name = np.full(len(trace.names), len(KINDS) - 1, dtype=np.int64)
    kinds = states.kind_of(rows)
    name_of = trace.host_columns.name[rows]
    for one, word in _OF_KIND.items():
        of_name[name_of[kinds == one]] = KINDS.index(word)
    for name in unique_ids(name_of).tolist():
        if _SUMMARY in trace.names[name]:
            of_name[name] = KINDS.index("summary")
    result: Int64Array = of_name[name_of]
    return result


def _covered(holes: IntervalSet, start: Int64Array, end: Int64Array) -> int:
    work = union(start, end)
    return int(holes.within(work.start, work.end).sum())


def _names(trace: Trace, rows: Int64Array, kind: Int64Array) -> dict[str, tuple[str, ...]]:
    columns = trace.host_columns
    found = {}
    for index, word in enumerate(KINDS):
        mine = rows[kind == index]
        if mine.size:
            total = np.bincount(columns.name[mine], weights=columns.duration_ps[mine])
            longest = np.argsort(-total, kind="stable")[:MOST_NAMES]
            found[word] = tuple(
                trace.names.text(int(name)) or "" for name in longest if total[name]
            )
    return {word: names for word, names in found.items() if names}


ANALYSIS: Final = Analysis[BetweenAllSteps](
    "between_steps",
    compute=lambda context: compute(context.trace, context.selection, context.idle.states),
)
