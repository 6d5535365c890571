"""Makes the slices of threads and streams: what hosts and devices recorded in the window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceview.analysis.selection import Selection, rows_in
from traceview.base.ids import unique_ids
from traceview.base.intervals import Int64Array
from traceview.document.vocabulary import CLASSES
from traceview.export.scene import Argument, Arrows, Labels, Slices, Track, labelled, tracks_of
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.xplane.planes import ActivityClass


@dataclass(frozen=True, eq=False)
class Launched:
    """The arrows from host events to device events in the window.

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
        first = np.full(rows.size, NONE, dtype=np.int64)
        has_arrow = number != NONE
        first[has_arrow] = self.first[trace.device_columns.launch[rows[has_arrow]]]
        return Arrows(first, number=number)


def device_rows(trace: Trace, selection: Selection, device: int) -> Int64Array:
    """The rows of a device that overlap the window of its host."""
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    window = selection.window_of_device(trace, device)
    if window is None:
        return np.empty(0, dtype=np.int64)
    inside: Int64Array = rows.start + rows_in(columns.start_ps[rows], columns.end_ps[rows], window)
    return inside


def host_rows(trace: Trace, selection: Selection, host: int) -> Int64Array:
    """The rows of a host that overlap its window."""
    columns = trace.host_columns
    rows = columns.rows_of_host(host)
    window = selection.windows.get(host)
    if window is None:
        return np.empty(0, dtype=np.int64)
    inside: Int64Array = rows.start + rows_in(columns.start_ps[rows], columns.end_ps[rows], window)
    return inside


def launched(trace: Trace, selection: Selection) -> Launched:
    """The launch of each device event, where both are shown.

    Clocks of host and device differ by microseconds: a launch that seems to follow what it started has no arrow.
    The events of a replica are host events themselves.
    """
    columns, host = trace.device_columns, trace.host_columns
    is_shown = np.zeros(host.count, dtype=np.bool_)
    for index in range(len(trace.hosts)):
        is_shown[host_rows(trace, selection, index)] = True
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
    """One track per stream, more where its events overlap."""
    columns = trace.device_columns
    rows = device_rows(trace, selection, device)
    classes = np.array(
        [labels.add(CLASSES[class_.name.lower()].words) for class_ in ActivityClass], dtype=np.int64
    )
    nests = trace.device_list[device].kind != "gpu"
    for line in unique_ids(columns.line[rows]).tolist():
        of_line = rows[columns.line[rows] == line]
        slices = Slices(
            start_ps=columns.start_ps[of_line],
            end_ps=columns.end_ps[of_line],
            name=columns.name[of_line].astype(np.int64),
            category=classes[columns.class_[of_line]],
            arguments=(
                labelled("op", columns.op[of_line]),
                Argument("bytes", columns.bytes[of_line], columns.bytes[of_line] != UNKNOWN_BYTES),
                Argument(
                    "correlation_id",
                    columns.correlation_id[of_line],
                    columns.has_correlation[of_line],
                ),
            ),
            arrows=arrows.of_launched(trace, of_line),
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
        of_line = rows[bounds[line] : bounds[line + 1]]
        slices = Slices(
            start_ps=columns.start_ps[of_line],
            end_ps=columns.end_ps[of_line],
            name=columns.name[of_line].astype(np.int64),
            category=np.full(of_line.size, category, dtype=np.int64),
            arguments=(Argument("correlation_id", correlation_id[of_line], known[of_line]),),
            arrows=arrows.of_launches(of_line),
        )
        yield from tracks_of(_line_name(trace, line), "thread", slices, nests=True)


def _line_name(trace: Trace, line: int) -> str:
    info = trace.lines[line]
    return info.name or f"line {info.id}"
