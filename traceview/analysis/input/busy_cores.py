"""Measures how many cores of a host its input pipeline keeps busy."""

from __future__ import annotations

from traceview.analysis.context import Context
from traceview.analysis.pipeline_threads import pipeline_work


def busy_cores(context: Context, host: int) -> float:
    """Threads at work for the pipeline, mean over the window; work that records no event is not in it."""
    window = context.selection.windows[host]
    if host not in context.idle.states or not window.length_ps:
        return 0.0
    busy_ps = sum(
        int(spans.within(window.start_ps, window.end_ps))
        for spans in pipeline_work(context.trace, context.idle, host)
    )
    return busy_ps / window.length_ps
