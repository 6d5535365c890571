"""Finds when threads run the Python of the input pipeline, and when they rest there; and the usual length of what recurs.

A function of the script, such as a generator or that of `tf.numpy_function`, is one op, whether it computes or waits for a
server. While it waits, as the processor time of its thread shows, it needs neither a core nor Python's lock, so that time is
left out.
"""

from __future__ import annotations

import numpy as np

from traceview.analysis.facts.idle_time import IdleAttribution
from traceview.base.ids import unique_ids
from traceview.base.intervals import Int64Array, IntervalSet, difference
from traceview.trace.host.state_timeline import intersection, joined_spans
from traceview.trace.model import NONE, Trace


def pipeline_python(trace: Trace, idle: IdleAttribution, host: int) -> IntervalSet:
    """When Python functions of the pipeline run, or wait for Python's lock."""
    states = idle.states[host]
    rest = _rest_by_thread(trace, idle, host)
    return joined_spans(
        difference(spans, rest[thread]) if thread in rest else spans
        for thread, spans in states.spans_by_thread(states.pipeline_python).items()
    )


def pipeline_rest(trace: Trace, idle: IdleAttribution, host: int) -> IntervalSet:
    """When a Python function of the pipeline waits, and none runs or waits for Python's lock."""
    waits = joined_spans(_rest_by_thread(trace, idle, host).values())
    return difference(waits, pipeline_python(trace, idle, host))


def _rest_by_thread(trace: Trace, idle: IdleAttribution, host: int) -> dict[int, IntervalSet]:
    """When each thread of the pipeline waits in a Python function; without samples that is not known."""
    if host not in idle.python:
        return {}
    states, sampled = idle.states[host], idle.python[host].lines
    line = unique_ids(trace.host_columns.line[states.pipeline_python])
    known = [each for each in line.tolist() if sampled.thread_of(each) != NONE]
    at_rest = {int(states.thread[each]): sampled.at_rest(sampled.thread_of(each)) for each in known}
    return {
        thread: intersection(spans, at_rest[thread])
        for thread, spans in states.spans_by_thread(states.pipeline_python).items()
        if thread in at_rest
    }


def usual_length(key: Int64Array, length_ps: Int64Array) -> Int64Array:
    """The median length of the things with the key of each, int64."""
    order = np.lexsort((length_ps, key))
    ordered = key[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: ordered.size])
    count = np.diff(np.append(first, ordered.size))
    low = length_ps[order][first + (count - 1) // 2]
    high = length_ps[order][first + count // 2]
    usual = np.empty_like(length_ps)
    usual[order] = np.repeat(low + (high - low) // 2, count)
    return usual
