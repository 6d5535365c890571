"""Finds when threads work for the input pipeline, and when they run its Python.

Work is an op, or an executor loop, in a function of the pipeline. A function of the script, such as a generator or that of
`tf.numpy_function`, is one op, whether it computes or waits for a server. While it waits, as the processor time of its thread
shows, it needs neither a core nor Python's lock, so that time is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.analysis.idle_attribution import IdleAttribution
from traceview.ids import is_in, unique_ids
from traceview.intervals import Int64Array, IntervalSet, difference, union
from traceview.trace.model import NONE, Trace
from traceview.trace.state_timeline import intersection


def pipeline_work(trace: Trace, idle: IdleAttribution, host: int) -> Iterator[IntervalSet]:
    """When each thread of a host works for its pipeline; cheap ops record no event."""
    yield from _by_thread(trace, idle, host, idle.states[host].pipeline_work)


def pipeline_python(trace: Trace, idle: IdleAttribution, host: int) -> IntervalSet:
    """When Python functions of the pipeline run, or wait for Python's lock."""
    spans = list(_by_thread(trace, idle, host, idle.states[host].pipeline_python))
    nothing = np.empty(0, dtype=np.int64)
    return union(
        np.concatenate([nothing, *(each.start for each in spans)]),
        np.concatenate([nothing, *(each.end for each in spans)]),
    )


def _by_thread(
    trace: Trace, idle: IdleAttribution, host: int, rows: Int64Array
) -> Iterator[IntervalSet]:
    """What some events of the pipeline cover on each thread, without what waits in Python."""
    states, line = idle.states[host], trace.host_columns.line
    thread = states.thread[line[rows]]
    is_python = is_in(rows, states.pipeline_python)
    for number in unique_ids(thread).tolist():
        is_own = thread == number
        spans = _spans(trace, rows[is_own])
        if host in idle.python:
            sampled = idle.python[host].lines
            python = _spans(trace, rows[is_own & is_python])
            for each in map(sampled.thread_of, unique_ids(line[rows[is_own]]).tolist()):
                if each != NONE:
                    spans = difference(spans, intersection(sampled.at_rest(each), python))
        yield spans


def _spans(trace: Trace, rows: Int64Array) -> IntervalSet:
    columns = trace.host_columns
    return union(columns.start_ps[rows], columns.end_ps[rows])
