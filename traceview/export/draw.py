"""Draws a run for a viewer: findings and steps first, then every device with what it did, then the hosts.

Times are picoseconds since the origin of the run; Perfetto counts in nanoseconds. Both ends of a slice are rounded
down, so that slices stay inside of, or beside, each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from traceview.analysis.exchange.collectives import collective_table
from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.measures.context import Context
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.sentences import RunCommands, shown_finding
from traceview.analysis.workload.ops import device_rows
from traceview.base.ids import unique_ids
from traceview.base.intervals import Int64Array, nesting, union
from traceview.base.units import PS_PER_NS
from traceview.document.phrase import plain
from traceview.document.vocabulary import CLASSES, STATES, STEP_KINDS, look_of
from traceview.report.model import Report
from traceview.report.tables import findings_table, host_rows
from traceview.trace.columns import NONE, UNKNOWN_BYTES
from traceview.trace.device.table import Column, Table, category, integers, named, whole
from traceview.xplane.planes import CLASS_KEYS


@dataclass(frozen=True, eq=False)
class Slices:
    """Slices in drawing order; times int64 `[n]`.

    `name`, `category`: texts; `arguments`: what else is known of them, whole numbers, flags and texts. Columns of texts are
    categories. `launch`: int64 `[n]`, the number of the launch that an arrow leads from or to, `NONE` without; None where no
    slice has one.
    """

    start_ps: Int64Array
    end_ps: Int64Array
    name: Column
    category: Column
    arguments: tuple[Column, ...] = ()
    launch: Int64Array | None = None

    @property
    def count(self) -> int:
        """Number of slices."""
        return int(self.start_ps.size)

    def at(self, chosen: Int64Array) -> Slices:
        """Only the `chosen` slices, in their order."""
        return Slices(
            self.start_ps[chosen],
            self.end_ps[chosen],
            self.name.at(chosen),
            self.category.at(chosen),
            tuple(argument.at(chosen) for argument in self.arguments),
            None if self.launch is None else self.launch[chosen],
        )

    @cached_property
    def exact(self) -> tuple[Column, Column]:
        """Start and length in picoseconds of the slices that are not whole nanoseconds."""
        length = self.end_ps - self.start_ps
        is_whole = (self.start_ps % PS_PER_NS == 0) & (length % PS_PER_NS == 0)
        return whole("start_ps", self.start_ps, is_whole), whole("duration_ps", length, is_whole)


def labelled(name: str, texts: Iterable[str | None]) -> Column:
    """Texts of which many are the same, as a category."""
    places: dict[str, int] = {}
    codes = [NONE if text is None else places.setdefault(text, len(places)) for text in texts]
    return Column(name, "category", np.array(codes, dtype=np.int64), labels=tuple(places))


def same(text: str, count: int) -> Column:
    """The same text for all."""
    return category(text, np.zeros(count, dtype=np.int64), (text,))


def columns_of(rows: Table, names: Sequence[str]) -> tuple[Column, ...]:
    """Some columns of a table; texts as categories."""
    by_name = {column.name: column for column in rows.columns}
    chosen = (by_name[name] for name in names)
    return tuple(labelled(of.name, of.cells()) if of.kind == "text" else of for of in chosen)


class Track(NamedTuple):
    """A row of a viewer. Of any two of its slices that overlap one lies inside the other.

    `is_thread`: of a host, or a stream; else what traceview computed.
    """

    name: str
    is_thread: bool
    slices: Slices


class Process(NamedTuple):
    """A host, a device, or the findings."""

    name: str
    tracks: tuple[Track, ...]


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything that is drawn, in the order in which it is shown."""

    processes: tuple[Process, ...]

    @cached_property
    def shift_ps(self) -> int:
        """What to add to all times so that none is negative, which no viewer can show."""
        every = (track.slices for process in self.processes for track in process.tracks)
        first = min((int(slices.start_ps.min()) for slices in every if slices.count), default=0)
        return max(0, -(first // PS_PER_NS) * PS_PER_NS)

    def nanoseconds(self, time_ps: Int64Array) -> Int64Array:
        """Times on the axis of the viewer, rounded down."""
        return (time_ps + self.shift_ps) // PS_PER_NS


# Rows: a viewer draws the slices of one track as a stack, each inside the one below it; of two that overlap only in part
# Perfetto drops one

MOST_ROWS: Final = 32
"""Of a thread: what overlaps more events in part is left out; recordings need two."""


def in_drawing_order(start: Int64Array, end: Int64Array) -> Int64Array:
    """Indices by start, the longer first, of equal ones the earlier: what encloses comes before what is inside."""
    return np.lexsort((-end, start)).astype(np.int64)


def rows_nested(start: Int64Array, end: Int64Array) -> Int64Array:
    """The row of each event, int64 from 0, so that of two in one row that overlap one lies inside the other.

    `start`, `end`: int64 `[n]` in drawing order, no end before its start. An event goes to the first row whose innermost
    open event ends no earlier; `MOST_ROWS` for one that no row can take.
    """
    row = np.zeros(start.size, dtype=np.int64)
    parent = nesting(start, end).parent
    inner = np.flatnonzero(parent >= 0)
    sticks_out = inner[end[inner] > end[parent[inner]]]
    if not sticks_out.size:
        return row
    stretches = union(start, end)
    stretch = np.searchsorted(stretches.start, start, side="right")
    open_ends: list[list[int]] = [[] for _ in range(MOST_ROWS)]
    # All other stretches of overlapping events nest.
    for event in np.flatnonzero(np.isin(stretch, stretch[sticks_out])).tolist():
        row[event] = _row_for(int(start[event]), int(end[event]), open_ends)
    return row


def _row_for(start: int, end: int, open_ends: list[list[int]]) -> int:
    """The first row that can take an event, with which it is opened there."""
    for place, ends in enumerate(open_ends):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or ends[-1] >= end:
            ends.append(end)
            return place
    return MOST_ROWS


def tracks_of(name: str, slices: Slices, *, is_thread: bool = False) -> Iterator[Track]:
    """`stream 14`, and `stream 14 (2)` for the slices that overlap others there in part; slices in any order."""
    slices = slices.at(in_drawing_order(slices.start_ps, slices.end_ps))
    row = rows_nested(slices.start_ps, slices.end_ps)
    for number in range(min(int(row.max(initial=-1)) + 1, MOST_ROWS)):
        of_row = slices if not row.any() else slices.at(np.flatnonzero(row == number))
        yield Track(name if number == 0 else f"{name} ({number + 1})", is_thread, of_row)


# The run


def drawn(context: Context, report: Report) -> Scene:
    """The scene of the window: the events that overlap it, in whole, and the conclusions of `report`."""
    drawing, trace = _Drawing(context), context.trace
    conclusions = (*drawing.findings(report.findings), *drawing.steps())
    processes = [Process("traceview", conclusions)]
    for device, entry in enumerate(trace.device_list):
        key = trace.device_key(device)
        tracks = (*drawing.states(device), *drawing.collectives(device), *drawing.device(device))
        processes.append(Process(f"{key} ({entry.model})" if entry.model else key, tracks))
    for host, info in enumerate(trace.hosts):
        processes.append(Process(f"host {info.name}", tuple(drawing.host(host))))
    return Scene(tuple(processes))


_OF_COLLECTIVE: Final = (
    *("collective", "op", "name", "device_count"),
    *("bytes", "wait_ps", "transfer_ps", "is_last"),
)
"""Columns of the table of collectives that its slices have."""


class _Drawing:
    """Draws the tracks of one run.

    Clocks of host and device differ by microseconds: a launch that seems to follow what it started has no arrow, nor has
    one that is not shown. The events of a replica are host events themselves.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._trace = context.trace
        self._selection = context.selection
        host = context.trace.host_columns
        self._is_shown = np.zeros(host.count, dtype=np.bool_)
        for index in range(len(context.trace.hosts)):
            self._is_shown[host_rows(context.trace, context.selection, index)] = True
        self._launches = np.zeros(host.count, dtype=np.bool_)
        self._collectives = collective_table(context)

    def device(self, device: int) -> Iterator[Track]:
        """One track per stream, more where its events overlap in part."""
        trace, columns = self._trace, self._trace.device_columns
        rows = device_rows(trace, self._selection, device)
        classes = [CLASSES[key].words for key in CLASS_KEYS]
        for line in unique_ids(columns.line[rows]).tolist():
            of_line = rows[columns.line[rows] == line]
            size, correlation = columns.bytes[of_line], columns.correlation_id[of_line]
            slices = Slices(
                start_ps=columns.start_ps[of_line],
                end_ps=columns.end_ps[of_line],
                name=named("name", columns.name[of_line], trace.names),
                category=category("class", columns.class_[of_line], classes),
                arguments=(
                    named("op", columns.op[of_line], trace.names),
                    whole("bytes", size, size == UNKNOWN_BYTES),
                    whole("correlation_id", correlation, correlation == 0),
                ),
                launch=self._launched(device, of_line),
            )
            yield from tracks_of(self._line_name(line), slices, is_thread=True)

    def _launched(self, device: int, rows: Int64Array) -> Int64Array | None:
        """By event of a device the host event that an arrow comes from."""
        if self._trace.device_list[device].kind == "replica":
            return None
        columns, host = self._trace.device_columns, self._trace.host_columns
        launch = columns.launch[rows].astype(np.int64)
        known = np.flatnonzero(launch != NONE)
        of_known = launch[known]
        follows = columns.start_ps[rows[known]] >= host.start_ps[of_known]
        launch[known[~(follows & self._is_shown[of_known])]] = NONE
        self._launches[launch[launch != NONE]] = True
        return launch

    def host(self, host: int) -> Iterator[Track]:
        """One track per thread with events, more where they overlap without nesting; after all devices."""
        trace, columns = self._trace, self._trace.host_columns
        rows = host_rows(trace, self._selection, host)
        correlation = columns.stat("correlation_id")
        bounds = np.searchsorted(columns.line[rows], np.arange(len(trace.lines) + 1))
        for line in np.flatnonzero(np.diff(bounds)).tolist():
            of_line = rows[bounds[line] : bounds[line + 1]]
            slices = Slices(
                start_ps=columns.start_ps[of_line],
                end_ps=columns.end_ps[of_line],
                name=named("name", columns.name[of_line], trace.names),
                category=same("host", of_line.size),
                arguments=(
                    whole("correlation_id", correlation.at(of_line, 0), ~correlation.has(of_line)),
                ),
                launch=np.where(self._launches[of_line], of_line, NONE),
            )
            yield from tracks_of(self._line_name(line), slices, is_thread=True)

    def _line_name(self, line: int) -> str:
        info = self._trace.lines[line]
        return info.name or f"line {info.id}"

    def steps(self) -> Iterator[Track]:
        """The steps of each host; the name of the track has the host if there are several."""
        for host, info in enumerate(self._trace.hosts):
            steps = self._selection.steps.get(host, ())
            start, end = step_bounds(steps)
            slices = Slices(
                start_ps=start,
                end_ps=end,
                name=labelled("name", (f"step {step.number}" for step in steps)),
                category=same("step", len(steps)),
                arguments=(
                    integers("number", [step.number for step in steps]),
                    labelled("kind", (look_of(STEP_KINDS, step.kind).words for step in steps)),
                    labelled("left out of statistics", (step.excluded for step in steps)),
                ),
            )
            name = "steps" if len(self._trace.hosts) == 1 else f"steps of {info.name}"
            yield from tracks_of(name, slices)

    def states(self, device: int) -> Iterator[Track]:
        """What a device does or waits for: the rows of the ledger, each with what caused it.

        `event`: what runs, or after idle time what runs next.
        """
        ledger, trace = self._context.ledger, self._trace
        rows = ledger.rows_of(device)
        columns = ledger.columns
        op, name = trace.device_columns.names_at(columns.event[rows])
        slices = Slices(
            start_ps=columns.start_ps[rows],
            end_ps=columns.start_ps[rows] + columns.duration_ps[rows],
            name=category("name", columns.state[rows], [look.words for look in STATES.values()]),
            category=same("state", op.size),
            arguments=(
                *columns_of(ledger.table(rows), ("state", "step", "by")),
                named("event", np.where(op == NONE, name, op), trace.names),
            ),
        )
        yield from tracks_of("state", slices)

    def collectives(self, device: int) -> Iterator[Track]:
        """The collectives of a device, numbered alike on all devices, as in their table."""
        rows = self._collectives.where("device", (self._trace.device_key(device),))
        start_ps, duration_ps = columns_of(rows, ("start_ps", "duration_ps"))
        names = (f"{row['kind']} {row['collective']}" for row in rows.rows())
        slices = Slices(
            start_ps=start_ps.values,
            end_ps=start_ps.values + duration_ps.values,
            name=labelled("name", names),
            category=same("collective", rows.count),
            arguments=columns_of(rows, _OF_COLLECTIVE),
        )
        yield from tracks_of("collectives", slices)

    def findings(self, findings: Iterable[Finding]) -> Iterator[Track]:
        """The findings over the time that they refer to, in the order of the report: their steps, else the window."""
        trace = self._trace
        placed = [(finding, span) for finding in findings for span in self._spans(finding)]
        shown = [finding for finding, _ in placed]
        bounds = np.array([span for _, span in placed], dtype=np.int64).reshape(-1, 2)
        commands = RunCommands(str(trace.logdir), trace.run, not trace.other_runs)
        rows = findings_table(shown)
        advice = (shown_finding(1, row, RULES[row.code], commands).whole_advice for row in shown)
        slices = Slices(
            start_ps=bounds[:, 0],
            end_ps=bounds[:, 1],
            name=labelled("title", rows["title"]),
            category=labelled("severity", rows["severity"]),
            arguments=(
                *columns_of(rows, ("code", "severity", "ps_per_step", "devices")),
                labelled("advice", map(plain, advice)),
                labelled("explanation", (finding.explanation for finding in shown)),
                labelled("confidence", rows["confidence"]),
            ),
        )
        yield from tracks_of("findings", slices)

    def _spans(self, finding: Finding) -> Iterator[tuple[int, int]]:
        """Where a finding is shown: runs of its steps on the hosts of its devices, else the whole window."""
        trace, selection = self._trace, self._selection
        hosts = {
            entry.host
            for device, entry in enumerate(trace.device_list)
            if not finding.devices or trace.device_key(device) in finding.devices
        }
        steps = [
            step
            for host, of_host in selection.steps.items()
            if host in hosts
            for step in of_host
            if step.number in finding.steps
        ]
        windows = selection.windows.values()
        if steps:
            runs = union(*step_bounds(steps))
            yield from zip(runs.start.tolist(), runs.end.tolist(), strict=True)
        elif windows:
            yield min(each.start_ps for each in windows), max(each.end_ps for each in windows)
