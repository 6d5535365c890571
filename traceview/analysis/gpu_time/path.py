"""Shows the critical path: what made the steps as long as they were, by state, step and longest part."""

from __future__ import annotations

from collections.abc import Mapping
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
from traceview.document import numbers
from traceview.document.model import (
    Bar,
    Part,
    Section,
    Span,
    Table,
    bars,
    devices,
    looks,
    names,
    ordinals,
    remarks,
    shares,
    spans,
    table,
    times,
)
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


def section(view: View, result: CriticalPath) -> Section:
    """What made the steps as long as they were."""
    brief = view.is_brief
    return Section(
        "path",
        "Critical path",
        (
            *_by_state(view, result),
            *(() if brief else _step_table(view, result)),
            *_longest_table(view, result),
            *remarks(
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


def _by_state(view: View, result: CriticalPath) -> tuple[Table, ...]:
    keys = list(result.share_by_state)[: _BRIEF if view.is_brief else None]
    ratios = [result.share_by_state[key] for key in keys]
    return table(
        "The critical path by state",
        (
            looks("on the path", [look_of(STATES, key) for key in keys]),
            shares("share", ratios, meaning="of all steps together"),
            bars(
                "",
                [_bar({key: ratio}, 1.0) for key, ratio in zip(keys, ratios, strict=True)],
                priority=3,
            ),
            times(
                "mean per step" if _has_steps(result) else "mean",
                [result.states.get(key, 0) for key in keys],
            ),
        ),
        row_count=len(result.share_by_state),
        rest=f"{view.command('report')} -o report",
    )


def _bar(by_state: Mapping[str, float], whole: float) -> Bar:
    total = sum(by_state.values())
    parts = tuple(Part(look_of(STATES, key), value / total) for key, value in by_state.items())
    return Bar(parts, total / whole if whole else 0.0)


def _step_table(view: View, result: CriticalPath) -> tuple[Table, ...]:
    """A bar per step, as long as the step beside the longest one."""
    rows = result.steps[: view.most_rows]
    if len(rows) == 1 and not _has_steps(result):
        return ()
    longest = max((row.duration_ps for row in rows), default=0)
    hosts = {row.host for row in result.steps}
    return table(
        "The critical path of each step",
        (
            ordinals("step", [row.step for row in rows]),
            names("host", [row.host for row in rows]) if len(hosts) > 1 else None,
            times("step time", [row.duration_ps for row in rows]),
            bars("by state", [_bar(row.states, longest) for row in rows]),
        ),
        row_count=len(result.steps),
        rest="the JSON report",
    )


def _longest_table(view: View, result: CriticalPath) -> tuple[Table, ...]:
    rows = result.longest[: _BRIEF if view.is_brief else view.most_rows]
    return table(
        "The longest parts of the critical path",
        (
            devices("longest parts", [row.device for row in rows]),
            spans("", [_span(view, row) for row in rows]),
            ordinals("step", [row.step for row in rows], priority=3),
            times("length", [row.duration_ps for row in rows]),
            looks("state", [look_of(STATES, row.state) for row in rows]),
            names("op, or the next op", [row.op for row in rows], priority=1),
        ),
        row_count=len(rows),
    )


def _span(view: View, row: PathPart) -> Span | None:
    start_ps = view.window_start_ps.get(row.host)
    if start_ps is None:
        return None
    begin = row.start_ps - start_ps
    return Span(row.device, begin, begin + row.duration_ps)


ANALYSIS: Final = Analysis[CriticalPath]("path", compute=compute, sections=(section,))
