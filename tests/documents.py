"""Documents for the tests of the printers: those of the saved reports, with other names and on more devices."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tests.hostile import with_texts
from tests.reports import bare_report, device, full_report, lanes_of, strip
from traceview.document.model import Document
from traceview.report.document import document_of
from traceview.report.model import Report


def report_on(device_count: int) -> Report:
    """The full report with so many GPUs that do the same; each has a kernel more than the one before it."""
    report = full_report()
    results = report.results
    times, idle, timeline = results.device_time, results.idle, results.timeline
    assert times is not None
    assert idle is not None
    assert timeline is not None
    keys = [f"GPU:{ordinal}" for ordinal in range(device_count)]
    rows = []
    for ordinal in range(device_count):
        row = device(ordinal)
        assert row.activity is not None
        compute = replace(row.activity["compute"], count=1234 + ordinal)
        # The memory of one is known.
        peak = None if ordinal else row.memory_peak_bytes
        activity = {**row.activity, "compute": compute}
        rows.append(replace(row, activity=activity, memory_peak_bytes=peak))
    results = replace(
        results,
        device_time=replace(times, devices=tuple(rows)),
        idle=replace(idle, devices=tuple(replace(idle.devices[0], device=key) for key in keys)),
        timeline=replace(timeline, devices=tuple(map(strip, keys))),
        lanes=lanes_of(*keys),
    )
    return replace(report, results=results)


def full_document(
    rename: Callable[[str], str] = str, *, device_count: int | None = None, most_rows: int = 64
) -> Document:
    """Of the full report, with all that a report can hold; `rename` stands in each place of a recorded text."""
    report = full_report() if device_count is None else report_on(device_count)
    return document_of(with_texts(report, lambda _, text: rename(text)), most_rows=most_rows)


def bare_document() -> Document:
    """Nothing could be measured."""
    return document_of(bare_report())
