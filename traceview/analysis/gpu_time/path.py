"""Shows the critical path: what made the steps as long as they were, by state and longest part."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Annotated, Final

import numpy as np

from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Skipped
from traceview.base.ids import unique_ids
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


class CriticalPath(Record, frozen=True):
    """What made the used steps as long as they were.

    Attributes:
        states: Picoseconds by state, mean over the steps, rounded down, largest first.
        share_by_state: Share of all steps together, by state.
        longest: The longest single parts of all steps.
        step_count: Steps whose path was walked; in a run without used steps 0, and the window of each host is one.
    """

    states: dict[Words, Count]
    share_by_state: dict[Words, Share]
    longest: tuple[PathPart, ...]
    step_count: Count


def compute(context: Context) -> CriticalPath | Skipped:
    """The path of every used step, what it consists of, and its longest parts."""
    if not context.idle.gaps:
        return Skipped("the trace holds no device event")
    trace, ledger = context.trace, context.ledger
    path = ledger.path
    if not path.row.size:
        return Skipped("no device ran a kernel in the window")
    # Without steps, the window of each host is one.
    walks = path.step if ledger.has_steps else trace.host_of_device[ledger.device[path.row]]
    count = unique_ids(walks).size
    state = ledger.columns.state[path.row]
    total = totals(state, path.duration_ps, len(State))
    whole = int(total.sum())
    return CriticalPath(
        states=by_size(total // count),
        share_by_state={key: ps / whole for key, ps in by_size(total).items()},
        longest=_longest(ledger),
        step_count=count if ledger.has_steps else 0,
    )


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


def _by_state(view: View, result: CriticalPath) -> tuple[doc.Table, ...]:
    shown = (
        Shown("on the path", lambda row: look_of(STATES, row[0]), kind="look"),
        Shown("share", itemgetter(1), kind="share", meaning="of all steps together"),
        Shown("", lambda row: doc.Bar((doc.Part(look_of(STATES, row[0]), 1.0),), row[1]), 3, "bar"),
        Shown(
            "mean per step" if result.step_count else "mean",
            lambda row: result.states.get(row[0], 0),
            kind="time",
        ),
    )
    return table(
        "The critical path by state",
        list(result.share_by_state.items()),
        shown,
        most_rows=view.few_rows,
        rest=f"{view.command('report')} -o report",
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
    rows = result.longest[: view.few_rows]
    return table("The longest parts of the critical path", rows, shown)


def _span(view: View, row: PathPart) -> doc.Span | None:
    start_ps = view.window_start_ps.get(row.host)
    if start_ps is None:
        return None
    begin = row.start_ps - start_ps
    return doc.Span(row.device, begin, begin + row.duration_ps)


ANALYSIS: Final = Analysis[CriticalPath]("path", compute=compute, sections=(section,))
