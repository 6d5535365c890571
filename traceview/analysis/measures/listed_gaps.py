"""Lists gaps: every span in which a device did nothing, with its states, what shows them, and the line of Python that ran."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.measures.context import Context
from traceview.base.ids import is_in, order_by, unique_inverse
from traceview.base.intervals import Int32Array, Int64Array
from traceview.base.units import PS_PER_US
from traceview.document import model as doc
from traceview.document.vocabulary import STATES, look_of, thread_name
from traceview.ledger.gaps import GapStates, gap_states
from traceview.ledger.states import BY_KEY, IDLE_STATES, KEYS, OF_CAUSE, State
from traceview.trace.device.table import Column, Table, category, table, whole
from traceview.trace.host.cause import Cause
from traceview.trace.host.gap_evidence import Surroundings, surroundings_of
from traceview.trace.host.gaps import Gaps, late_parts
from traceview.trace.host.python_lines import PythonLine
from traceview.trace.model import NONE, Trace

NAME_SEPARATOR: Final = " > "

_CAUSE_OF: Final = {state: cause for cause, state in OF_CAUSE.items()} | {
    State.EVALUATION: Cause.BETWEEN,
    State.BETWEEN_CALLS: Cause.PYTHON,
}
"""What shows a state on the host is what shows this cause; nothing shows the others."""

_CAUSES: Final = np.array([_CAUSE_OF.get(state, Cause.UNKNOWN) for state in State], dtype=np.int64)
"""The same by state."""

_LEAST_SAMPLED_PS: Final = 100 * PS_PER_US
"""Samples of stacks come every millisecond or so, and say little of shorter gaps."""


class ChosenGaps(Struct, frozen=True, eq=False):
    """Some gaps of one device: their numbers, lengths, and states with the largest part; int64 `[n]`."""

    gaps: Gaps
    states: GapStates
    number: Int64Array
    duration_ps: Int64Array
    state: Int64Array

    def at(self, places: Int64Array) -> ChosenGaps:
        """Those at some places."""
        return ChosenGaps(
            self.gaps,
            self.states,
            self.number[places],
            self.duration_ps[places],
            self.state[places],
        )


def gaps_of(context: Context, device: int) -> ChosenGaps:
    """All gaps of a device in time order."""
    gaps = context.idle.gaps[device]
    states = gap_states(context.ledger, gaps)
    start, end = gaps.spans
    return ChosenGaps(
        gaps, states, np.arange(gaps.count), end - start, states.largest.astype(np.int64)
    )


# What is known of them


def evidence_rows(context: Context, part: ChosenGaps) -> Int64Array:
    """The host row that shows the state of each gap, `NONE` without one."""
    trace, gaps, chosen = context.trace, part.gaps, part.number
    cause = _CAUSES[part.state]
    start, end = gaps.spans_of(chosen)
    after = gaps.after[chosen]
    launch = np.where(after != NONE, trace.device_columns.launch[after], NONE)
    is_known = ~is_in(cause, (Cause.NO_WORK, Cause.UNKNOWN))
    by_launch = is_in(cause, (Cause.LATENCY, Cause.DEPENDENCY))
    row = np.full(chosen.size, NONE, dtype=np.int64)
    asked = np.flatnonzero(is_known & ~by_launch)
    search = context.idle.evidence[trace.device_list[gaps.device].host]
    thread = gaps.thread[chosen[asked]]
    row[asked] = search.rows(cause[asked], thread, start[asked], end[asked])
    by_launch |= (cause == Cause.H2D) & (row == NONE)
    return np.where(by_launch, launch, row)


def surroundings(context: Context, part: ChosenGaps) -> Iterator[Surroundings]:
    """What the thread that was late recorded around the longest time in the state of each gap; nothing if none was late."""
    trace, gaps = context.trace, part.gaps
    states = context.idle.states[trace.device_list[gaps.device].host]
    start, end = part.states.longest_parts(part.number, part.state)
    late_end, handed_over = late_parts(trace, gaps, part.number)
    thread = np.where(start < handed_over, states.caller, gaps.thread[part.number])
    is_late = (part.state != State.NO_WORK) & (start < late_end)
    for late, *span in zip(
        is_late.tolist(), thread.tolist(), start.tolist(), end.tolist(), strict=True
    ):
        yield surroundings_of(trace, states, *span) if late else Surroundings()


def python_lines(context: Context, part: ChosenGaps) -> list[PythonLine | None]:
    """The line that ran in each gap while the device was in its state; None where none was sampled, or in short gaps."""
    host = context.trace.device_list[part.gaps.device].host
    python = context.idle.python.get(host)
    lines: list[PythonLine | None] = [None] * part.number.size
    if python is None:
        return lines
    is_long = part.duration_ps >= _LEAST_SAMPLED_PS
    for state in np.unique(part.state[is_long]).tolist():
        places = np.flatnonzero(is_long & (part.state == state))
        spans = part.states.parts_of(part.number[places], part.state[places])
        known = python.in_each(State(state), *spans, places.size)
        for place, line in zip(places.tolist(), known, strict=True):
            lines[place] = line
    return lines


def activity_names(trace: Trace, rows: Int32Array) -> tuple[list[str | None], Int64Array]:
    """Names, and the one of each device event: its op, or its kernel without one; None without an event."""
    columns, text = trace.device_columns, trace.names.text
    no_text = np.zeros(len(trace.names) + 1, dtype=np.bool_)
    no_text[NONE] = True
    no_text[:-1] = trace.names.are([b""])
    op, name = np.append(columns.op, NONE)[rows], np.append(columns.name, NONE)[rows]
    distinct, index = unique_inverse(np.where(no_text[op], name, op))
    return [text(number) for number in distinct.tolist()], index


def evidence_text(thread: str | None, event: str | None, next_event: str | None) -> str | None:
    """What a thread was in; where no event shows it, what it began next."""
    if event is None and next_event is not None:
        event = f"nothing until {next_event}"
    return ": ".join(part for part in (thread_name(thread), event) if part and event) or None


# As a table


def gap_table(
    context: Context,
    *,
    devices: Collection[str],
    states: Collection[str] = (),
    least_ps: int = 0,
    top: int | None = None,
) -> tuple[Table, int]:
    """The gaps of the devices, longest first, those without work last, and how many rows `top` leaves out.

    `devices`: keys as in the report. `states`: only gaps of which one of these is the largest part.
    `least_ps`: only gaps from this length on. The times by state of a gap add up to `duration_ps`. `host_outer`: the
    names of the events around `host_event` on its thread, outermost first. `previous_event` and `next_event`:
    what the thread recorded around the time in that state where no event shows it.
    """
    wanted = [int(BY_KEY[key]) for key in states]
    parts = [
        _chosen(gaps_of(context, device), wanted, least_ps)
        for device in sorted(context.idle.gaps)
        if context.trace.device_key(device) in devices
    ]
    if not parts:
        return _table(context, [], np.empty(0, dtype=np.int64)), 0
    # A device without work waited for nothing.
    no_work = np.concatenate([part.state == State.NO_WORK for part in parts])
    order = order_by(no_work, -np.concatenate([part.duration_ps for part in parts]))
    if top is None or top >= order.size:
        return _table(context, parts, order), 0
    shown = order[:top]
    kept = np.sort(shown)
    bounds = np.searchsorted(kept, np.cumsum([0, *(part.number.size for part in parts)]))
    begin = 0
    for place, part in enumerate(parts):
        low, high = bounds[place : place + 2].tolist()
        parts[place] = part.at(kept[low:high] - begin)
        begin += part.number.size
    rows = _table(context, parts, np.searchsorted(kept, shown))
    return rows, order.size - top


def _chosen(every: ChosenGaps, states: Sequence[int], least_ps: int) -> ChosenGaps:
    """The gaps of this length on, of which one of `states`, if there are any, is the largest part."""
    if not states and not least_ps:
        return every
    is_wanted = every.duration_ps >= least_ps
    if states:
        is_wanted &= is_in(every.state, states)
    return every.at(np.flatnonzero(is_wanted))


def _table(context: Context, parts: Sequence[ChosenGaps], order: Int64Array) -> Table:
    """A row per gap of the parts, one after the other, and then in this order."""
    columns = _Columns(order.size)
    begin = 0
    for part in parts:
        columns.fill(begin, context, part)
        begin += part.number.size
    texts = {name: column.at(order, name) for name, column in columns.texts.items()}
    nothing = np.zeros(order.size, dtype=np.int64)
    of_state = {state: lengths[order] for state, lengths in columns.state_ps.items()}
    return table(
        "gaps",
        texts["device"],
        whole("start_ps", columns.start_ps[order]),
        whole("duration_ps", columns.duration_ps[order]),
        whole("step", columns.step[order], columns.has_no_step[order]),
        category("state", columns.state[order], KEYS),
        *(texts[name] for name in ("before", "after", "thread", "host_event")),
        *(texts[name] for name in ("python", "python_inner")),
        Column("python_ratio", "float", columns.python_ratio[order]),
        *(texts[name] for name in ("host_outer", "previous_event", "next_event")),
        *(whole(f"{state.key}_ps", of_state.get(state, nothing)) for state in IDLE_STATES),
    )


class _Texts:
    """A column of texts, most of which repeat."""

    def __init__(self, count: int) -> None:
        self._codes = np.full(count, NONE, dtype=np.int32)
        self._known: dict[str, int] = {}

    def put(
        self, places: slice | Int64Array | int, texts: Sequence[str | None], index: Any = 0
    ) -> None:
        """Put `texts[index]` at some places."""
        codes = [
            NONE if text is None else self._known.setdefault(text, len(self._known))
            for text in texts
        ]
        self._codes[places] = np.array([*codes, NONE], dtype=np.int32)[index]

    def at(self, order: Int64Array, name: str) -> Column:
        """The column with its rows in this order."""
        return Column(name, "category", self._codes[order], labels=tuple(self._known))


class _Columns:
    """The columns of a table of gaps, of which devices fill their places."""

    def __init__(self, count: int) -> None:
        self.start_ps, self.duration_ps, self.step = np.zeros((3, count), dtype=np.int64)
        self.has_no_step = np.zeros(count, dtype=np.bool_)
        self.state: npt.NDArray[np.int8] = np.zeros(count, dtype=np.int8)
        self.state_ps: dict[int, Int64Array] = {}
        self.python_ratio = np.full(count, np.nan)
        self.texts = {
            name: _Texts(count)
            for name in (
                *("device", "before", "after", "thread", "host_event", "python", "python_inner"),
                *("host_outer", "previous_event", "next_event"),
            )
        }

    def fill(self, begin: int, context: Context, part: ChosenGaps) -> None:
        """The gaps of a device, at the places from `begin` on."""
        trace, gaps, chosen = context.trace, part.gaps, part.number
        host = trace.device_list[gaps.device].host
        place = slice(begin, begin + chosen.size)
        self.start_ps[place], self.duration_ps[place] = gaps.spans_of(chosen)[0], part.duration_ps
        self.state[place] = part.state
        for state, lengths in part.states.by_state.items():
            if state not in self.state_ps:
                self.state_ps[state] = np.zeros(self.step.size, dtype=np.int64)
            self.state_ps[state][place] = lengths[chosen]
        step = gaps.longest_steps[chosen]
        numbers = [step.number for step in context.selection.steps[host]]
        self.step[place] = np.array([*numbers, 0], dtype=np.int64)[step]
        self.has_no_step[place] = step == NONE
        self.texts["device"].put(place, [trace.device_key(gaps.device)])
        self.texts["before"].put(place, *activity_names(trace, gaps.before[chosen]))
        self.texts["after"].put(place, *activity_names(trace, gaps.after[chosen]))
        row = evidence_rows(context, part)
        shown = np.flatnonzero(row != NONE)
        stacks, index = context.idle.evidence[host].stacks(row[shown])
        joined = [NAME_SEPARATOR.join(stack[:-1]) or None for stack in stacks]
        lines = [line.name for line in trace.lines]
        self.texts["thread"].put(begin + shown, lines, trace.host_columns.line[row[shown]])
        self.texts["host_event"].put(begin + shown, [stack[-1] for stack in stacks], index)
        self.texts["host_outer"].put(begin + shown, joined, index)
        hidden = np.flatnonzero(row == NONE)
        around = surroundings(context, part.at(hidden))
        for at, known in zip((begin + hidden).tolist(), around, strict=True):
            self.texts["thread"].put(at, [known.thread])
            self.texts["previous_event"].put(at, [known.before])
            self.texts["next_event"].put(at, [known.after])
        for at, source in enumerate(python_lines(context, part), start=begin):
            if source:
                self.texts["python"].put(at, [str(source)])
                self.texts["python_inner"].put(at, [str(source.inner) if source.inner else None])
                self.python_ratio[at] = source.ratio


def gap_table_section(
    rows: Table, windows: Mapping[str, int], states: Collection[str] = ()
) -> doc.Section | None:
    """A row per gap: where it lies, its states, and what shows them; nothing without any.

    `windows`: by device its start. `states`: those whose columns stay longest where room is short.
    """
    if not rows.count:
        return None
    return doc.Section("gap-rows", "Gaps", doc.table("Gaps", _columns(rows, windows, states)))


def _columns(
    rows: Table, windows: Mapping[str, int], states: Collection[str]
) -> Iterator[doc.Column]:
    yield doc.devices("device", rows["device"])
    yield doc.times("length", rows["duration_ps"])
    yield doc.looks("mostly", [look_of(STATES, state) for state in rows["state"]])
    yield doc.counts("step", rows["step"], priority=2)
    starts = zip(rows["device"], rows["start_ps"], strict=True)
    yield doc.times(
        "start",
        [start - windows[device] for device, start in starts],
        priority=4,
        meaning="from the start of the window",
    )
    stacks = [
        event and NAME_SEPARATOR.join(filter(None, (outer, event)))
        for outer, event in zip(rows["host_outer"], rows["host_event"], strict=True)
    ]
    evidence = zip(rows["thread"], stacks, rows["next_event"], strict=True)
    yield doc.names("evidence on the host", [evidence_text(*row) for row in evidence], priority=1)
    if any(rows["python"]):
        yield doc.names("line of Python", rows["python"], priority=1)
    yield doc.names("previous op", rows["before"], priority=3)
    yield doc.names("next op", rows["after"], priority=5)
    parts = {state.key: rows[f"{state.key}_ps"] for state in IDLE_STATES if state != State.NO_WORK}
    totals = {key: sum(lengths) for key, lengths in parts.items()}
    ranked = sorted((key for key in parts if totals[key]), key=lambda key: -totals[key])
    if len(ranked) > 1:
        for place, key in enumerate(ranked, start=6):
            priority = 0 if key in states else place
            yield doc.times(look_of(STATES, key).words, parts[key], priority=priority)
