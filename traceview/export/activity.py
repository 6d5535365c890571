"""What did hosts and devices record in the window? The slices of their threads and streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceview.analysis.selection import Selection, rows_in
from traceview.export.scene import Argument, Arrows, Labels, Slices, Track, labelled
from traceview.export.tracks import tracks_of
from traceview.ids import unique_ids
from traceview.intervals import Int64Array
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.xplane.planes import ActivityClass


@dataclass(frozen=True, eq=False)
class Launched:
    """The arrows from host events to device events, of those in the window.

    Per device row: int64 `number` of its arrow, `NONE` without. Per host row: int64 `first` and `count` of those that
    begin there.
    """

    number: Int64Array
    first: Int64Array
    count: Int64Array

    def of_launches(self, rows: Int64Array) -> Arrows:
        """The arrows that begin at host rows."""
        return Arrows(self.first[rows], count=self.count[rows])

    def of_launched(self, trace: Trace, rows: Int64Array) -> Arrows:
        """The arrows that end at device rows."""
        number = self.number[rows]
        launch = trace.device_columns.launch[rows]
        return Arrows(np.where(number == NONE, NONE, self.first[launch]), number=number)


def device_rows(trace: Trace, selection: Selection, device: int) -> Int64Array:
    """The rows of a device that overlap the window of its host."""
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    window = selection.window_of_device(trace, device)
    if window is None:
        return np.empty(0, dtype=np.int64)
    found: Int64Array = rows.start + rows_in(columns.start_ps[rows], columns.end_ps[rows], window)
    return found


def host_rows(trace: Trace, selection: Selection, host: int) -> Int64Array:
    """The rows of a host that overlap its window."""
    columns = trace.host_columns
    first, last = np.searchsorted(columns.host, [host, host + 1])
    window = selection.windows.get(host)
    if window is None:
        return np.empty(0, dtype=np.int64)
    inside = rows_in(columns.start_ps[first:last], columns.end_ps[first:last], window)
    found: Int64Array = first + inside
    return found


def launched(trace: Trace, selection: Selection) -> Launched:
    """Which launch started which device event, of those that are both shown.

    Clocks of host and device differ by microseconds: where the launch seems to follow what it started there is no arrow.
    The events of a replica are host events themselves.
    """
    columns, host = trace.device_columns, trace.host_columns
    is_shown = np.zeros(host.count, dtype=np.bool_)
    for one in range(len(trace.hosts)):
        is_shown[host_rows(trace, selection, one)] = True
    shown = [
        device_rows(trace, selection, device)
        for device, entry in enumerate(trace.device_list)
        if entry.kind != "replica"
    ]
    rows = np.concatenate([np.empty(0, dtype=np.int64), *shown])
    rows = rows[columns.launch[rows] != NONE]
    launch = columns.launch[rows]
    follows = is_shown[launch] & (columns.start_ps[rows] >= host.start_ps[launch])
    rows, launch = rows[follows], launch[follows]
    order = np.argsort(launch, kind="stable")
    number = np.full(columns.count, NONE, dtype=np.int64)
    number[rows[order]] = np.arange(rows.size)
    count = np.bincount(launch, minlength=host.count).astype(np.int64)
    return Launched(number, np.cumsum(count) - count, count)


def device_tracks(
    trace: Trace, selection: Selection, device: int, arrows: Launched, labels: Labels
) -> Iterator[Track]:
    """One track per stream, more where events of it overlap."""
    columns = trace.device_columns
    rows = device_rows(trace, selection, device)
    classes = np.array([labels.add(one.name.lower()) for one in ActivityClass], dtype=np.int64)
    nests = trace.device_list[device].kind != "gpu"
    for line in unique_ids(columns.line[rows]).tolist():
        mine = rows[columns.line[rows] == line]
        slices = Slices(
            start_ps=columns.start_ps[mine],
            end_ps=columns.end_ps[mine],
            name=columns.name[mine].astype(np.int64),
            category=classes[columns.class_[mine]],
            arguments=(
                labelled("op", columns.op[mine]),
                Argument("bytes", columns.bytes[mine], columns.bytes[mine] != UNKNOWN_BYTES),
                Argument(
                    "correlation_id", columns.correlation_id[mine], columns.has_correlation[mine]
                ),
            ),
            arrows=arrows.of_launched(trace, mine),
        )
        yield from tracks_of(_line_name(trace, line), "thread", slices, nests=nests)


def host_tracks(
    trace: Trace, selection: Selection, host: int, arrows: Launched, labels: Labels
) -> Iterator[Track]:
    """One track per thread with events, more where they overlap without nesting."""
    columns = trace.host_columns
    rows = host_rows(trace, selection, host)
    category = labels.add("host")
    correlation = columns.stat("correlation_id")
    known = np.zeros(columns.count, dtype=np.bool_)
    known[correlation.row] = True
    correlation_id = correlation.dense(columns.count, 0)
    bounds = np.searchsorted(columns.line[rows], np.arange(len(trace.lines) + 1))
    for line in np.flatnonzero(np.diff(bounds)).tolist():
        mine = rows[bounds[line] : bounds[line + 1]]
        slices = Slices(
            start_ps=columns.start_ps[mine],
            end_ps=columns.end_ps[mine],
            name=columns.name[mine].astype(np.int64),
            category=np.full(mine.size, category, dtype=np.int64),
            arguments=(Argument("correlation_id", correlation_id[mine], known[mine]),),
            arrows=arrows.of_launches(mine),
        )
        yield from tracks_of(_line_name(trace, line), "thread", slices, nests=True)


def _line_name(trace: Trace, line: int) -> str:
    info = trace.lines[line]
    return info.name or f"line {info.id}"
