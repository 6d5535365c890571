"""Measures how many cores of a host its input pipeline keeps busy."""

from __future__ import annotations

from traceview.analysis.context import Context
from traceview.ids import unique_ids
from traceview.intervals import union


def busy_cores(context: Context, host: int) -> float:
    """Threads at work for the pipeline, mean over the window; work that records no event is not in it."""
    columns, window = context.trace.host_columns, context.selection.windows[host]
    states = context.idle.states.get(host)
    if states is None or not window.length_ps:
        return 0.0
    rows = states.pipeline_work
    thread = states.thread[columns.line[rows]]
    busy_ps = 0
    for number in unique_ids(thread).tolist():
        own = rows[thread == number]
        spans = union(columns.start_ps[own], columns.end_ps[own])
        busy_ps += int(spans.within(window.start_ps, window.end_ps))
    return busy_ps / window.length_ps
