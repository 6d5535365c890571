"""Makes the table of gaps: every span in which a device did nothing, with its causes and their evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from traceview.analysis.idle.result import surroundings
from traceview.analysis.idle.section import evidence_text
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.idle_python import python_in_gaps
from traceview.analysis.selection import Selection
from traceview.document import model as doc
from traceview.document.vocabulary import CAUSES, look_of
from traceview.ids import is_in, order_by, unique_inverse
from traceview.intervals import Int32Array, Int64Array
from traceview.trace.cause import Cause
from traceview.trace.gaps import Gaps
from traceview.trace.many_evidence import ManyEvidence
from traceview.trace.model import NONE, Trace
from traceview.trace.table import Column, Table, category, table, whole

NAME_SEPARATOR: Final = " > "


def gap_table(
    trace: Trace,
    selection: Selection,
    idle: IdleAttribution,
    *,
    devices: Collection[str],
    causes: Collection[str] = (),
    least_ps: int = 0,
    top: int | None = None,
) -> tuple[Table, int]:
    """The gaps of the devices, longest first, those of unused devices last, and how many rows `top` leaves out.

    `devices`: keys as in the report. `causes`: only gaps of which one of these is the largest part.
    `least_ps`: only gaps from this length on. The times by cause of a gap add up to `duration_ps`. `host_outer`: the
    names of the events around `host_event` on its thread, outermost first. `previous_event` and `next_event`:
    what the thread recorded around the gap's cause where no event shows it.
    """
    wanted = [Cause[name.upper()] for name in causes]
    parts = [
        _chosen(device, gaps, wanted, least_ps)
        for device, gaps in sorted(idle.gaps.items())
        if trace.device_key(device) in devices
    ]
    if not parts:
        return _table(trace, selection, idle, [], np.empty(0, dtype=np.int64)), 0
    # A device that was not used waited for nothing: its one gap comes last.
    unused = np.concatenate([part.cause == Cause.UNUSED for part in parts])
    order = order_by(unused, -np.concatenate([part.duration_ps for part in parts]))
    if top is None or top >= order.size:
        return _table(trace, selection, idle, parts, order), 0
    shown = order[:top]
    kept = np.sort(shown)
    bounds = np.searchsorted(kept, np.cumsum([0, *(part.number.size for part in parts)]))
    begin = 0
    for place, part in enumerate(parts):
        low, high = bounds[place : place + 2].tolist()
        parts[place] = part.at(kept[low:high] - begin)
        begin += part.number.size
    rows = _table(trace, selection, idle, parts, np.searchsorted(kept, shown))
    return rows, order.size - top


class _Chosen(Struct, frozen=True, eq=False):
    """The gaps of one device that are rows: their numbers, lengths, largest causes, and times by cause; all `[n]`."""

    device: int
    number: Int64Array
    duration_ps: Int64Array
    cause: Int64Array
    cause_ps: dict[int, Int64Array]

    def at(self, places: Int64Array) -> _Chosen:
        """Those at some places."""
        return _Chosen(
            self.device,
            self.number[places],
            self.duration_ps[places],
            self.cause[places],
            {cause: lengths[places] for cause, lengths in self.cause_ps.items()},
        )


def _chosen(device: int, gaps: Gaps, causes: Sequence[Cause], least_ps: int) -> _Chosen:
    """The gaps of a device of this length on, of which one of `causes`, if there are any, is the largest part."""
    start, end = gaps.spans
    cause_ps = gaps.of_gaps()
    cause, most_ps = np.zeros((2, gaps.count), dtype=np.int64)
    for number, lengths in cause_ps.items():
        is_more = lengths > most_ps
        cause[is_more], most_ps[is_more] = number, lengths[is_more]
    every = _Chosen(device, np.arange(gaps.count), end - start, cause, cause_ps)
    if not causes and not least_ps:
        return every
    is_wanted = every.duration_ps >= least_ps
    if causes:
        is_wanted &= is_in(cause, causes)
    return every.at(np.flatnonzero(is_wanted))


def _table(
    trace: Trace,
    selection: Selection,
    idle: IdleAttribution,
    parts: Sequence[_Chosen],
    order: Int64Array,
) -> Table:
    """A row per gap of the parts, one after the other, and then in this order."""
    columns = _Columns(order.size)
    many: dict[int, ManyEvidence] = {}
    begin = 0
    for part in parts:
        host = trace.device_list[part.device].host
        evidence = many.setdefault(host, ManyEvidence(trace, idle.states[host]))
        columns.fill(begin, trace, selection, idle, part, evidence)
        begin += part.number.size
    texts = {name: column.at(order, name) for name, column in columns.texts.items()}
    nothing = np.zeros(order.size, dtype=np.int64)
    of_cause = {cause: lengths[order] for cause, lengths in columns.cause_ps.items()}
    return table(
        "gaps",
        texts["device"],
        whole("start_ps", columns.start_ps[order]),
        whole("duration_ps", columns.duration_ps[order]),
        whole("step", columns.step[order], columns.has_no_step[order]),
        category("cause", columns.cause[order], [cause.key for cause in Cause]),
        *(texts[name] for name in ("before", "after", "thread", "host_event")),
        *(texts[name] for name in ("python", "python_inner")),
        Column("python_ratio", "float", columns.python_ratio[order]),
        *(texts[name] for name in ("host_outer", "previous_event", "next_event")),
        *(whole(f"{cause.key}_ps", of_cause.get(cause, nothing)) for cause in Cause),
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
        self.cause = np.zeros(count, dtype=np.int8)
        self.cause_ps: dict[int, Int64Array] = {}
        self.python_ratio = np.full(count, np.nan)
        self.texts = {
            name: _Texts(count)
            for name in (
                *("device", "before", "after", "thread", "host_event", "python", "python_inner"),
                *("host_outer", "previous_event", "next_event"),
            )
        }

    def fill(
        self,
        begin: int,
        trace: Trace,
        selection: Selection,
        idle: IdleAttribution,
        part: _Chosen,
        many: ManyEvidence,
    ) -> None:
        """The gaps of a device, at the places from `begin` on."""
        gaps, host = idle.gaps[part.device], trace.device_list[part.device].host
        states, steps = idle.states[host], selection.steps[host]
        chosen, cause = part.number, part.cause
        place = slice(begin, begin + chosen.size)
        self.start_ps[place], self.duration_ps[place] = gaps.spans_of(chosen)[0], part.duration_ps
        self.cause[place] = cause
        for number, lengths in part.cause_ps.items():
            if number not in self.cause_ps:
                self.cause_ps[number] = np.zeros(self.step.size, dtype=np.int64)
            self.cause_ps[number][place] = lengths
        step = gaps.longest_steps[chosen]
        step_numbers = np.array([*(step.number for step in steps), 0], dtype=np.int64)
        self.step[place], self.has_no_step[place] = step_numbers[step], step == NONE
        self.texts["device"].put(place, [trace.device_key(part.device)])
        self.texts["before"].put(place, *_activity_names(trace, gaps.before[chosen]))
        self.texts["after"].put(place, *_activity_names(trace, gaps.after[chosen]))
        row = _evidence_rows(trace, gaps, part, many)
        shown = np.flatnonzero(row != NONE)
        stacks, index = many.stacks(row[shown])
        joined = [NAME_SEPARATOR.join(stack[:-1]) or None for stack in stacks]
        lines = [line.name for line in trace.lines]
        line = trace.host_columns.line[row[shown]]
        self.texts["thread"].put(begin + shown, lines, line)
        self.texts["host_event"].put(begin + shown, [stack[-1] for stack in stacks], index)
        self.texts["host_outer"].put(begin + shown, joined, index)
        hidden = np.flatnonzero(row == NONE)
        around = surroundings(trace, gaps, states, chosen[hidden], cause[hidden])
        for at, found in zip((begin + hidden).tolist(), around, strict=True):
            self.texts["thread"].put(at, [found.thread])
            self.texts["previous_event"].put(at, [found.before])
            self.texts["next_event"].put(at, [found.after])
        python = idle.python.get(host)
        if python is None:
            return
        of_gaps = python_in_gaps(trace, gaps, states, python, chosen, cause)
        for at, source in enumerate(of_gaps, start=begin):
            if source:
                self.texts["python"].put(at, [str(source)])
                self.texts["python_inner"].put(at, [str(source.inner) if source.inner else None])
                self.python_ratio[at] = source.ratio


def _evidence_rows(trace: Trace, gaps: Gaps, part: _Chosen, many: ManyEvidence) -> Int64Array:
    """The host row that shows the cause of each gap, as `evidence_in_gap` finds it; `NONE` without one."""
    chosen, cause = part.number, part.cause
    start, end = gaps.spans_of(chosen)
    after = gaps.after[chosen]
    launch = np.where(after != NONE, trace.device_columns.launch[after], NONE)
    is_known = ~is_in(cause, (Cause.UNUSED, Cause.UNATTRIBUTED))
    by_launch = is_in(cause, (Cause.LATENCY, Cause.DEPENDENCY))
    row = np.full(chosen.size, NONE, dtype=np.int64)
    asked = np.flatnonzero(is_known & ~by_launch)
    thread = gaps.thread[chosen[asked]]
    row[asked] = many.rows(cause[asked], thread, start[asked], end[asked])
    by_launch |= (cause == Cause.H2D) & (row == NONE)
    return np.where(by_launch, launch, row)


def _activity_names(trace: Trace, rows: Int32Array) -> tuple[list[str | None], Int64Array]:
    """Names, and the one of each device event: its op, or its kernel without one; None without an event."""
    columns, text = trace.device_columns, trace.names.text
    no_text = np.zeros(len(trace.names) + 1, dtype=np.bool_)
    no_text[NONE] = True
    no_text[:-1] = trace.names.are([b""])
    op, name = np.append(columns.op, NONE)[rows], np.append(columns.name, NONE)[rows]
    distinct, index = unique_inverse(np.where(no_text[op], name, op))
    return [text(one) for one in distinct.tolist()], index


def gap_table_section(rows: Table, windows: Mapping[str, int]) -> doc.Section | None:
    """A row per gap: where it lies, its causes, and what shows them; nothing without any. `windows`: by device its start."""
    if not rows.count:
        return None
    return doc.Section("gap-rows", "Gaps", doc.table("Gaps", _columns(rows, windows)))


def _columns(rows: Table, windows: Mapping[str, int]) -> Iterator[doc.Column]:
    yield doc.devices("device", rows["device"])
    yield doc.times("length", rows["duration_ps"])
    yield doc.looks("mostly", [look_of(CAUSES, cause) for cause in rows["cause"]])
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
    parts = {cause: rows[f"{cause}_ps"] for cause in CAUSES if cause != "unused"}
    totals = {cause: sum(lengths) for cause, lengths in parts.items()}
    ranked = sorted((cause for cause in parts if totals[cause]), key=lambda cause: -totals[cause])
    if len(ranked) > 1:
        for priority, cause in enumerate(ranked, start=6):
            yield doc.times(CAUSES[cause].words, parts[cause], priority=priority)
