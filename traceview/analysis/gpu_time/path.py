"""Shows the critical path: what made the steps as long as they were, by state, step and longest part."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from typing import Annotated, Final

import numpy as np

from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Skipped
from traceview.base.record import (
    Activity,
    Count,
    DeviceKey,
    Hostname,
    Integer,
    Picoseconds,
    Record,
    Share,
    Words,
    one_of,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.vocabulary import STATES, look_of
from traceview.ledger.states import KEYS, State
from traceview.ledger.table import Ledger, by_size, totals
from traceview.trace.model import NONE

_MOST_PARTS: Final = 10
_BRIEF: Final = 4
_NAMED: Final = 3
"""States that the first sentence names."""

StateKey = Annotated[str, one_of(*KEYS)]


class PathPart(Record, frozen=True):
    """A long part of the path: a segment of the ledger, or what the path has of it.

    Attributes:
        host: Host of the device.
        device: Device that the path is on.
        step: Number of the step; null in a run without steps.
        state: State of the device.
        start_ps: Start, picoseconds since the origin of the run.
        duration_ps: Length, picoseconds.
        op: Op, or kernel without one, that ran; of idle time the one that ended it; null at the end of the window.
    """

    host: Hostname
    device: DeviceKey
    step: Integer | None
    state: StateKey
    start_ps: Integer
    duration_ps: Picoseconds
    op: Activity | None


class StepPath(Record, frozen=True):
    """The path of one step.

    Attributes:
        host: Host of the step.
        step: Number of the step; null where the window of the host counts as one step.
        duration_ps: Length of the step inside the window, picoseconds.
        states: Picoseconds by state, largest first; they sum to the length.
    """

    host: Hostname
    step: Integer | None
    duration_ps: Picoseconds
    states: dict[Words, Count]


class CriticalPath(Record, frozen=True):
    """What made the used steps as long as they were.

    Attributes:
        states: Picoseconds by state, mean over the steps, rounded down, largest first.
        share_by_state: Share of all steps together, by state.
        longest: The longest single parts of all steps.
        steps: One entry per used step; in a run without used steps one per host, for its window.
    """

    states: dict[Words, Count]
    share_by_state: dict[Words, Share]
    longest: tuple[PathPart, ...]
    steps: tuple[StepPath, ...]


def compute(context: Context) -> CriticalPath | Skipped:
    """The path of every used step, what it consists of, and its longest parts."""
    if not context.idle.gaps:
        return Skipped("the trace holds no device event")
    ledger = context.ledger
    path = ledger.path
    if not path.row.size:
        return Skipped("no device ran a kernel in the window")
    steps = _steps(ledger)
    count = len(steps)
    state = ledger.columns.state[path.row]
    total = totals(state, path.duration_ps, len(State))
    whole = int(total.sum())
    return CriticalPath(
        states=by_size(total // count),
        share_by_state={key: ps / whole for key, ps in by_size(total).items()},
        longest=_longest(ledger),
        steps=steps,
    )


def _steps(ledger: Ledger) -> tuple[StepPath, ...]:
    trace, path = ledger.trace, ledger.path
    state = ledger.columns.state[path.row].astype(np.int64)
    if ledger.has_steps:
        number = path.step.astype(np.int64)
        size = len(ledger.steps)
    else:
        number = trace.host_of_device[ledger.device[path.row]].astype(np.int64)
        size = len(trace.hosts)
    flat = totals(number * len(State) + state, path.duration_ps, size * len(State))
    rows = []
    for index, of_step in enumerate(flat.reshape(size, len(State))):
        if of_step.any():
            step = ledger.steps[index] if ledger.has_steps else None
            host = trace.hosts[step.host if step else index].name
            known = step.number if step else None
            rows.append(StepPath(host, known, int(of_step.sum()), by_size(of_step)))
    return tuple(rows)


def _longest(ledger: Ledger) -> tuple[PathPart, ...]:
    trace, path, columns = ledger.trace, ledger.path, ledger.columns
    longest = np.argsort(-path.duration_ps, kind="stable")[:_MOST_PARTS]
    parts = []
    for place in longest.tolist():
        row = int(path.row[place])
        event, step = int(columns.event[row]), int(path.step[place])
        device = int(ledger.device[row])
        host, key, _ = trace.identity(device)
        op = NONE if event == NONE else int(trace.device_columns.op[event])
        if op == NONE and event != NONE:
            op = int(trace.device_columns.name[event])
        parts.append(
            PathPart(
                host=host,
                device=key,
                step=None if step == NONE else ledger.steps[step].number,
                state=KEYS[int(columns.state[row])],
                start_ps=int(path.start_ps[place]),
                duration_ps=int(path.duration_ps[place]),
                op=trace.names.text(op) if op != NONE else None,
            )
        )
    return tuple(parts)


# The section


def section(view: View, result: CriticalPath) -> doc.Section:
    """What made the steps as long as they were."""
    brief = view.is_brief
    return doc.Section(
        "path",
        "Critical path",
        (
            *_by_state(view, result),
            *(() if brief else _step_table(view, result)),
            *_longest_table(view, result),
            *doc.remarks(
                None
                if brief
                else "From the end of a step backwards: where a device waits for another one, the path goes on there. "
                "Its parts sum to the step."
            ),
        ),
        lead=_lead(result),
    )


def _lead(result: CriticalPath) -> str:
    named = [
        f"{look_of(STATES, key).words} {numbers.percent(ratio)}"
        for key, ratio in list(result.share_by_state.items())[:_NAMED]
    ]
    return f"The steps consist of {numbers.listed(named)}."


def _has_steps(result: CriticalPath) -> bool:
    return any(row.step is not None for row in result.steps)


def _by_state(view: View, result: CriticalPath) -> tuple[doc.Table, ...]:
    shown = (
        Shown("on the path", lambda row: look_of(STATES, row[0]), kind="look"),
        Shown("share", itemgetter(1), kind="share", meaning="of all steps together"),
        Shown("", lambda row: _bar(dict([row]), 1.0), 3, "bar"),
        Shown(
            "mean per step" if _has_steps(result) else "mean",
            lambda row: result.states.get(row[0], 0),
            kind="time",
        ),
    )
    return table(
        "The critical path by state",
        list(result.share_by_state.items()),
        shown,
        most_rows=_BRIEF if view.is_brief else None,
        rest=f"{view.command('report')} -o report",
    )


def _bar(by_state: Mapping[str, float], whole: float) -> doc.Bar:
    total = sum(by_state.values())
    parts = tuple(doc.Part(look_of(STATES, key), value / total) for key, value in by_state.items())
    return doc.Bar(parts, total / whole if whole else 0.0)


def _step_table(view: View, result: CriticalPath) -> tuple[doc.Table, ...]:
    """A bar per step, as long as the step beside the longest one."""
    rows = result.steps[: view.most_rows]
    if len(rows) == 1 and not _has_steps(result):
        return ()
    longest = max((row.duration_ps for row in rows), default=0)
    has_hosts = len({row.host for row in result.steps}) > 1
    shown = (
        Shown("step", "step", kind="ordinal"),
        *((Shown("host", "host"),) if has_hosts else ()),
        Shown("step time", "duration_ps"),
        Shown("by state", lambda row: _bar(row.states, longest), kind="bar"),
    )
    return table(
        "The critical path of each step",
        rows,
        shown,
        row_count=len(result.steps),
        rest="the JSON report",
    )


def _longest_table(view: View, result: CriticalPath) -> tuple[doc.Table, ...]:
    shown = (
        Shown("longest parts", "device"),
        Shown("", partial(_span, view), kind="span"),
        Shown("step", "step", 3, "ordinal"),
        Shown("length", "duration_ps"),
        Shown("state", lambda row: look_of(STATES, row.state), kind="look"),
        Shown("op, or the next op", "op", 1),
    )
    rows = result.longest[: _BRIEF if view.is_brief else view.most_rows]
    return table("The longest parts of the critical path", rows, shown)


def _span(view: View, row: PathPart) -> doc.Span | None:
    start_ps = view.window_start_ps.get(row.host)
    if start_ps is None:
        return None
    begin = row.start_ps - start_ps
    return doc.Span(row.device, begin, begin + row.duration_ps)


ANALYSIS: Final = Analysis[CriticalPath]("path", compute=compute, sections=(section,))
