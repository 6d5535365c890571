"""Makes the table of gaps: every span in which a device did nothing, with its causes and their evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from traceview.analysis.idle.result import surroundings
from traceview.analysis.idle.section import evidence_text
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.idle_python import python_in_gaps
from traceview.analysis.selection import Selection
from traceview.document import model as doc
from traceview.document.vocabulary import CAUSES, look_of
from traceview.ids import is_in, unique_ids, unique_inverse
from traceview.intervals import Int32Array, Int64Array
from traceview.trace.cause import Cause
from traceview.trace.gaps import Gaps
from traceview.trace.many_evidence import ManyEvidence
from traceview.trace.model import NONE, Trace
from traceview.trace.table import Column, Table, table, whole

STACK_SEPARATOR: Final = " > "


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
    `least_ps`: only gaps from this length on. The times by cause of a gap add up to `duration_ps`. `host_stack`: the
    names of the host events open at the one that shows the cause, outermost first. `previous_event` and `next_event`:
    what the thread recorded around the gap's cause where no event shows it.
    """
    wanted = {Cause[name.upper()] for name in causes} or set(Cause)
    parts = [np.empty((0, 4), dtype=np.int64)]
    for device, gaps in idle.gaps.items():
        if trace.device_key(device) not in devices:
            continue
        start, end = gaps.spans
        lengths = gaps.causes_of(np.arange(gaps.count))
        is_wanted = is_in(lengths.argmax(axis=0), list(wanted)) if lengths.size else start == end
        chosen = np.flatnonzero(is_wanted & (end - start >= least_ps))
        # A device that was not used waited for nothing: its one gap comes last.
        unused = (lengths[Cause.UNUSED] > 0)[chosen]
        of_device = np.full(chosen.size, device)
        parts.append(np.stack((unused, (start - end)[chosen], of_device, chosen), axis=1))
    every = np.concatenate(parts)
    shown = every[np.lexsort(every.T[::-1])][:top]
    return _table(trace, selection, idle, shown[:, 2], shown[:, 3]), len(every) - len(shown)


def _table(
    trace: Trace,
    selection: Selection,
    idle: IdleAttribution,
    device: Int64Array,
    number: Int64Array,
) -> Table:
    """A row per gap, given by its device and its number there."""
    columns = _Columns(number.size)
    many: dict[int, ManyEvidence] = {}
    for of_device in unique_ids(device).tolist():
        place = np.flatnonzero(device == of_device)
        host = trace.device_list[of_device].host
        evidence = many.setdefault(host, ManyEvidence(trace, idle.states[host]))
        columns.fill(place, trace, selection, idle, of_device, number[place], evidence)
    keys = _objects([trace.device_key(index) for index in range(len(trace.device_list))])
    return table(
        "gaps",
        Column("device", "text", keys[device]),
        whole("start_ps", columns.start_ps),
        whole("duration_ps", columns.end_ps - columns.start_ps),
        whole("step", columns.step, columns.has_no_step),
        Column("cause", "text", _objects([cause.key for cause in Cause])[columns.cause]),
        *(Column(name, "text", texts) for name, texts in columns.texts.items()),
        Column("python_ratio", "float", columns.python_ratio),
        *(Column(name, "text", texts) for name, texts in columns.around.items()),
        *(whole(f"{cause.key}_ps", columns.cause_ps[cause]) for cause in Cause),
    )


class _Columns:
    """The columns of a table of gaps, of which devices fill their places."""

    def __init__(self, count: int) -> None:
        self.start_ps, self.end_ps, self.step = np.zeros((3, count), dtype=np.int64)
        self.has_no_step = np.zeros(count, dtype=np.bool_)
        self.cause = np.zeros(count, dtype=np.int64)
        self.cause_ps = np.zeros((len(Cause), count), dtype=np.int64)
        self.python_ratio = np.full(count, np.nan)
        self.texts = {
            name: np.full(count, None, dtype=np.object_)
            for name in ("before", "after", "thread", "host_event", "python", "python_inner")
        }
        self.around = {
            name: np.full(count, None, dtype=np.object_)
            for name in ("host_stack", "previous_event", "next_event")
        }

    def fill(
        self,
        place: Int64Array,
        trace: Trace,
        selection: Selection,
        idle: IdleAttribution,
        device: int,
        chosen: Int64Array,
        many: ManyEvidence,
    ) -> None:
        """The gaps of a device with the numbers `chosen`, at these places of the columns."""
        gaps, host = idle.gaps[device], trace.device_list[device].host
        states, steps = idle.states[host], selection.steps[host]
        start, end = gaps.spans_of(chosen)
        causes = gaps.causes_of(chosen)
        cause = causes.argmax(axis=0)
        self.start_ps[place], self.end_ps[place] = start, end
        self.cause[place], self.cause_ps[:, place] = cause, causes
        step = gaps.longest_steps[chosen]
        step_numbers = np.array([*(step.number for step in steps), 0], dtype=np.int64)
        self.step[place], self.has_no_step[place] = step_numbers[step], step == NONE
        self.texts["before"][place] = _activity_names(trace, gaps.before[chosen])
        self.texts["after"][place] = _activity_names(trace, gaps.after[chosen])
        row = _evidence_rows(trace, gaps, cause, chosen, many)
        shown = np.flatnonzero(row != NONE)
        stacks, index = many.stacks(row[shown])
        joined = [STACK_SEPARATOR.join(stack) or None for stack in stacks]
        lines = _objects([line.name for line in trace.lines])
        self.texts["thread"][place[shown]] = lines[trace.host_columns.line[row[shown]]]
        self.texts["host_event"][place[shown]] = _objects([stack[-1] for stack in stacks])[index]
        self.around["host_stack"][place[shown]] = _objects(joined)[index]
        hidden = np.flatnonzero(row == NONE)
        around = surroundings(trace, gaps, states, chosen[hidden], cause[hidden])
        for at, found in zip(place[hidden].tolist(), around, strict=True):
            self.texts["thread"][at] = found.thread
            self.around["previous_event"][at] = found.before
            self.around["next_event"][at] = found.after
        python = idle.python.get(host)
        if python is None:
            return
        of_gaps = python_in_gaps(trace, gaps, states, python, chosen, cause)
        for at, line in zip(place.tolist(), of_gaps, strict=True):
            if line:
                self.texts["python"][at] = str(line)
                self.texts["python_inner"][at] = str(line.inner) if line.inner else None
                self.python_ratio[at] = line.ratio


def _evidence_rows(
    trace: Trace, gaps: Gaps, cause: Int64Array, chosen: Int64Array, many: ManyEvidence
) -> Int64Array:
    """The host row that shows the cause of each gap, as `evidence_in_gap` finds it; `NONE` without one."""
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


def _activity_names(trace: Trace, rows: Int32Array) -> npt.NDArray[np.object_]:
    """The op of each device event, or its kernel without one; None without an event."""
    columns, text = trace.device_columns, trace.names.text
    no_text = np.zeros(len(trace.names) + 1, dtype=np.bool_)
    no_text[NONE] = True
    no_text[:-1] = trace.names.are([b""])
    op, name = np.append(columns.op, NONE)[rows], np.append(columns.name, NONE)[rows]
    distinct, index = unique_inverse(np.where(no_text[op], name, op))
    return _objects([text(one) for one in distinct.tolist()])[index]


def _objects(values: Sequence[str | None]) -> npt.NDArray[np.object_]:
    cells = np.empty(len(values), dtype=np.object_)
    cells[:] = list(values)
    return cells


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
    evidence = zip(rows["thread"], rows["host_stack"], rows["next_event"], strict=True)
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
