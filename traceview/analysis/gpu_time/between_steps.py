"""Splits the time between step markers by what the host did: save, write summaries, evaluate, read values, or Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from traceview.analysis.facts.python import HostPython, PythonShare, shared
from traceview.analysis.facts.selection import Selection
from traceview.analysis.measures.context import Analysis, View
from traceview.analysis.rules.finding import Skipped
from traceview.base.ids import unique_ids
from traceview.base.intervals import Int64Array, IntervalSet, difference, union
from traceview.base.record import Count, Hostname, OpName, Picoseconds, Record, Share, Words
from traceview.document import model as doc
from traceview.document import numbers
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import Trace
from traceview.trace.sidecar.python_samples import PythonState
from traceview.xplane.host_names import HostNameKind

TITLE: Final = "Between steps"

MOST_NAMES: Final = 3
"""Events that are named for each kind of work."""
KINDS: Final = {
    "checkpoint": "saving or restoring",
    "summary": "writing summaries",
    "compile": "tracing or compiling",
    "value_read": "reading values",
    "input": "asking for input",
    "graph_call": "calling graphs",
    "eager_op": "running eager ops",
    "waiting": "waiting for threads, files or timers",
    "native": "in calls of TensorFlow",
    "python": "running Python",
}
"""Kinds of work, the preferred ones first, with their display names; the last three left no event."""

WORTH_A_SENTENCE_RATIO: Final = 0.05
"""From this share of the time on, a document says in a sentence what ran between steps."""

_ORDER: Final = tuple(KINDS)
_OF_STATE: Final[Mapping[PythonState, str]] = {"waits": "waiting", "native": "native"}
_WITHOUT_EVENT: Final = (*_OF_STATE.values(), "python")
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
_NAMED_KINDS: Final = ("graph_call", "checkpoint", "summary")
_SHOWN_NAMES: Final = 2
"""Of one kind, those with most time: a third one hardly matters."""


class BetweenSteps(Record, frozen=True):
    """The time of one host's calling thread outside of step markers, from the first to the last marker.

    Attributes:
        host: Host.
        count: Spans between markers.
        total_ps: Their length, picoseconds; the parts sum to it.
        ratio: The same as a share of the time from the first to the last marker in the window.
        parts_ps: Time by kind of work, picoseconds: checkpoint, summary, compile, value_read, input,
            graph_call, eager_op, and what left no event: waiting (for another thread, a process or a file) and native (in
            calls of TensorFlow), as far as samples of the stacks show it, and python.
        names: The events with most of the time of each kind.
        python: The Python that the thread was in between steps; null where no stack was sampled there.
    """

    host: Hostname
    count: Count
    total_ps: Picoseconds
    ratio: Share
    parts_ps: dict[Words, Picoseconds]
    names: dict[Words, tuple[OpName, ...]]
    python: PythonShare | None = None


class BetweenAllSteps(Record, frozen=True):
    """What the hosts did between steps.

    Attributes:
        hosts: Hosts with explicit step markers, in their order.
    """

    hosts: tuple[BetweenSteps, ...]


def compute(
    trace: Trace,
    selection: Selection,
    states: Mapping[int, HostStates],
    python: Mapping[int, HostPython],
) -> BetweenAllSteps | Skipped:
    """Split the time between markers of every host that has them."""
    hosts = tuple(
        between
        for host, state in states.items()
        if (between := _between(trace, selection, host, state, python.get(host))) is not None
    )
    return BetweenAllSteps(hosts) if hosts else Skipped("no step is marked explicitly")


def _between(
    trace: Trace,
    selection: Selection,
    host: int,
    states: HostStates,
    python: HostPython | None,
) -> BetweenSteps | None:
    markers, window = states.markers, selection.windows[host]
    start = np.maximum(markers.end[:-1], window.start_ps)
    end = np.minimum(markers.start[1:], window.end_ps)
    holes = union(start, end)
    if not holes.start.size:
        return None
    begins_ps = max(int(markers.start[0]), window.start_ps)
    ends_ps = min(int(markers.end[-1]), window.end_ps)
    rows = states.rows_of_thread(states.caller)
    columns = trace.host_columns
    inside = holes.within(columns.start_ps[rows], columns.end_ps[rows]) > 0
    rows = rows[inside]
    kind = _kinds(trace, states, rows)
    parts: dict[str, int] = {}
    covered = 0
    chosen = np.zeros(rows.size, dtype=np.bool_)
    for index, name in enumerate(_ORDER):
        if name in _WITHOUT_EVENT:
            continue
        chosen |= kind == index
        so_far = _covered(holes, columns.start_ps[rows[chosen]], columns.end_ps[rows[chosen]])
        parts[name], covered = so_far - covered, so_far
    silent = difference(holes, union(columns.start_ps[rows[chosen]], columns.end_ps[rows[chosen]]))
    parts |= _silent_parts(silent, python)
    line = python and python.of_caller(holes.start, holes.end)
    return BetweenSteps(
        host=trace.hosts[host].name,
        count=int(holes.start.size),
        total_ps=holes.length,
        ratio=holes.length / (ends_ps - begins_ps),
        parts_ps={name: length for name, length in parts.items() if length},
        names=_names(trace, rows, kind),
        python=shared(line) if line else None,
    )


def _silent_parts(silent: IntervalSet, python: HostPython | None) -> dict[str, int]:
    """The time without an event by what the samples in it show; they share it out in proportion."""
    times = {} if python is None else python.time_of_caller(silent.start, silent.end)
    sampled_ps = max(sum(times.values()), 1)
    parts = {
        kind: silent.length * times.get(state, 0) // sampled_ps for state, kind in _OF_STATE.items()
    }
    return {**parts, "python": silent.length - sum(parts.values())}


def _kinds(trace: Trace, states: HostStates, rows: Int64Array) -> Int64Array:
    """The kind of work of each row, as an index of `_ORDER`; that of python where its name says nothing."""
    of_name = np.full(len(trace.names), len(KINDS) - 1, dtype=np.int64)
    kinds = states.kind_of(rows)
    name_of = trace.host_columns.name[rows]
    for name_kind, kind in _OF_KIND.items():
        of_name[name_of[kinds == name_kind]] = _ORDER.index(kind)
    for name in unique_ids(name_of).tolist():
        if _SUMMARY in trace.names[name]:
            of_name[name] = _ORDER.index("summary")
    result: Int64Array = of_name[name_of]
    return result


def _covered(holes: IntervalSet, start: Int64Array, end: Int64Array) -> int:
    work = union(start, end)
    return int(holes.within(work.start, work.end).sum())


def _names(trace: Trace, rows: Int64Array, kind: Int64Array) -> dict[str, tuple[str, ...]]:
    columns = trace.host_columns
    names_by_kind = {}
    for index, key in enumerate(_ORDER):
        of_kind = rows[kind == index]
        if of_kind.size:
            total = np.bincount(columns.name[of_kind], weights=columns.duration_ps[of_kind])
            longest = np.argsort(-total, kind="stable")[:MOST_NAMES]
            names_by_kind[key] = tuple(
                trace.names.text(int(name)) or "" for name in longest if total[name]
            )
    return {key: names for key, names in names_by_kind.items() if names}


def section(view: View, result: BetweenAllSteps) -> doc.Section | None:
    """What each host did between steps; in a brief document only where it takes a share of the step."""
    several = len(result.hosts) > 1
    sentences = [
        _sentence(host, several=several)
        for host in result.hosts
        if host.ratio >= WORTH_A_SENTENCE_RATIO
    ]
    parts = [
        (host, kind, length_ps)
        for host in result.hosts
        for kind, length_ps in _longest_first(host.parts_ps)
        if length_ps
    ]
    shown = [] if view.is_brief else parts[: view.most_rows]
    blocks: tuple[doc.Block, ...] = (
        *doc.notes(*sentences[: view.most_rows]),
        *doc.table(
            "What ran between steps",
            (
                doc.names("host", [host.host if several else None for host, _, _ in shown]),
                doc.words("what ran", [KINDS.get(kind, kind) for _, kind, _ in shown]),
                doc.times(
                    "each time",
                    [length_ps // host.count for host, _, length_ps in shown],
                    meaning="mean over the spans between steps",
                ),
                doc.shares(
                    "share", [doc.ratio(length_ps, host.total_ps) for host, _, length_ps in shown]
                ),
                doc.counts("spans", [host.count for host, _, _ in shown], priority=1),
                doc.names(
                    "longest events",
                    [", ".join(host.names.get(kind, ())[:_SHOWN_NAMES]) for host, kind, _ in shown],
                    priority=2,
                ),
            ),
            row_count=len(parts),
        ),
    )
    return doc.Section("between-steps", TITLE, blocks) if blocks else None


def _mean_ps(host: BetweenSteps) -> int:
    return host.total_ps // host.count


def _longest_first(parts_ps: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(parts_ps.items(), key=lambda part: -part[1])


def _sentence(host: BetweenSteps, *, several: bool) -> str:
    parts = []
    for kind, length_ps in _longest_first(host.parts_ps):
        longest = host.names.get(kind, ())[:1] if kind in _NAMED_KINDS else ()
        if host.python is not None and kind == _OF_STATE.get(host.python.state, "python"):
            longest = (host.python.line,)
        name = f" ({longest[0]})" if longest else ""
        parts.append(f"{numbers.time(length_ps // host.count)} {KINDS.get(kind, kind)}{name}")
    subject = host.host if several else "The host"
    return f"{subject} spends {numbers.time(_mean_ps(host))} between steps: {', '.join(parts)}."


ANALYSIS: Final = Analysis[BetweenAllSteps](
    "between_steps",
    compute=lambda context: compute(
        context.trace, context.selection, context.idle.states, context.idle.python
    ),
    sections=(section,),
)
