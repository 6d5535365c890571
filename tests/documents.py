"""Documents for the tests of the printers: those of the saved reports, with other names and on more devices."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tests.charts import MS
from tests.hostile import with_texts
from tests.reports import (
    bare_report,
    device,
    device_rows,
    finding,
    full_report,
    known,
    lanes_of,
    loss,
    strip,
)
from traceview.document.model import Document
from traceview.report.document import document_of
from traceview.report.model import Report


def report_on(device_count: int | None = None) -> Report:
    """The full report with a finding that leads to the longest gap, which is where the lanes have it.

    `device_count`: so many GPUs do the same; each has a kernel more than the one before it.
    """
    report = full_report()
    results = report.results
    idle, times = known(results.idle), known(results.device_time)
    timeline = known(results.timeline)
    keys = [f"GPU:{ordinal}" for ordinal in range(device_count or 2)]
    (gap,) = idle.devices[0].gaps
    waiting = replace(idle.devices[0], gaps=(replace(gap, start_ps=90 * MS, duration_ps=10 * MS),))
    rows = []
    for ordinal in range(device_count or 0):
        row = device(ordinal)
        activity = known(row.activity)
        activity = {**activity, "compute": replace(activity["compute"], count=1234 + ordinal)}
        # The memory of one is known.
        peak = None if ordinal else row.memory_peak_bytes
        rows.append(replace(row, activity=activity, memory_peak_bytes=peak))
    results = replace(
        results,
        device_time=replace(times, devices=tuple(rows) or device_rows()),
        idle=replace(idle, devices=tuple(replace(waiting, device=key) for key in keys)),
        timeline=replace(timeline, devices=tuple(map(strip, keys))),
        lanes=lanes_of(*keys),
    )
    bound = finding(code="input-bound", devices=("GPU:1",), loss=loss(0.5, "input"))
    return replace(report, results=results, findings=(bound, *report.findings))


def full_document(
    rename: Callable[[str], str] = str, *, device_count: int | None = None, most_rows: int = 64
) -> Document:
    """Of a report that has all; `rename` stands in each place of a recorded text."""
    report = with_texts(report_on(device_count), lambda _, text: rename(text))
    return document_of(report, most_rows=most_rows)


def bare_document() -> Document:
    """Nothing could be measured."""
    return document_of(bare_report())
