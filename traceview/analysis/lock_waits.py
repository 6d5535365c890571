"""Finds when the thread of the step waited for Python's lock, which another thread held.

A call of TensorFlow from Python, `TFE_Py_…`, gives the lock back while it works, and needs it again to return. What it
records ends before that, so the rest of the call is the wait (TensorFlow 2.21, measured: at most 22 µs in five
recordings without another thread that runs Python, up to 9.6 ms beside a generator). Between its calls the thread runs
Python and records nothing. While another thread runs Python, it is silent for longer, for it shares the lock: what it is
silent more than at other times is due to that thread.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.pipeline_threads import pipeline_python
from traceview.intervals import Int64Array, IntervalSet, difference, union
from traceview.trace.cause import Cause
from traceview.trace.host_states import HostStates
from traceview.trace.model import Trace
from traceview.trace.state_timeline import intersection

_CALLS: Final = b"TFE_Py_"
SILENT: Final = (Cause.UNATTRIBUTED, Cause.PYTHON)
"""Causes of idle time in which the thread of the step records nothing."""

LOCKED: Final = (*SILENT, Cause.HOST_COMPUTE, Cause.LAUNCH)
"""Causes of idle time that get longer while another thread keeps Python's lock."""


def idle_in_lock_waits(
    trace: Trace,
    attribution: IdleAttribution,
    device: int,
    start_ps: Int64Array,
    end_ps: Int64Array,
) -> Int64Array:
    """The idle time of a device in each of some spans, while the thread of the step waited for the lock."""
    return lock_waits(trace, attribution, device).within(start_ps, end_ps)


def lock_waits(trace: Trace, attribution: IdleAttribution, device: int) -> IntervalSet:
    """The idle time of a device while the thread of the step waited for the lock, whoever held it."""
    idle, states = _idle_and_states(trace, attribution, device)
    return intersection(idle, union(*_returns(trace, states)))


def idle_of_causes(
    trace: Trace, attribution: IdleAttribution, device: int, causes: Collection[Cause]
) -> IntervalSet:
    """The idle time of a device while the thread of the step does what is idle time of these causes."""
    idle, states = _idle_and_states(trace, attribution, device)
    return intersection(idle, states.timeline(states.caller).spans_of(causes))


def idle_beside_python(
    trace: Trace,
    attribution: IdleAttribution,
    device: int,
    start_ps: Int64Array,
    end_ps: Int64Array,
) -> Int64Array:
    """The idle time of a device in each of some spans, while Python of the pipeline kept the lock from the step."""
    idle, states = _idle_and_states(trace, attribution, device)
    python = pipeline_python(trace, attribution, trace.device_list[device].host)
    returns = union(*_returns(trace, states))
    silent = difference(idle_of_causes(trace, attribution, device, SILENT), returns)
    waits_ps, silent_ps, beside_ps, python_ps = (
        part.within(start_ps, end_ps)
        for part in (
            intersection(intersection(idle, python), returns),
            silent,
            intersection(silent, python),
            python,
        )
    )
    usual_ratio = (silent_ps - beside_ps).sum() / max((end_ps - start_ps - python_ps).sum(), 1)
    usual_ps = usual_ratio * python_ps.sum()
    more_ratio = max(1 - usual_ps / max(beside_ps.sum(), 1), 0.0)
    result: Int64Array = waits_ps + (more_ratio * beside_ps).astype(np.int64)
    return result


def _idle_and_states(
    trace: Trace, attribution: IdleAttribution, device: int
) -> tuple[IntervalSet, HostStates]:
    gaps = attribution.gaps[device]
    host = trace.device_list[device].host
    return union(gaps.start_ps, gaps.end_ps), attribution.states[host]


def _returns(trace: Trace, states: HostStates) -> tuple[Int64Array, Int64Array]:
    """From the last event inside each call of TensorFlow to its end; nothing for a call without events inside."""
    columns = trace.host_columns
    rows = states.rows_of_thread(states.caller)
    rows = rows[np.argsort(columns.start_ps[rows], kind="stable")]
    is_call = np.array([name.startswith(_CALLS) for name in trace.names], dtype=np.bool_)
    calls = np.flatnonzero(is_call[columns.name[rows]])
    start, end = columns.start_ps[rows], columns.end_ps[rows]
    last = np.searchsorted(start, end[calls])
    returned = [
        int(end[call + 1 : until].max(initial=end[call] if until == call + 1 else 0))
        for call, until in zip(calls.tolist(), last.tolist(), strict=True)
    ]
    return np.minimum(np.array(returned, dtype=np.int64), end[calls]), end[calls]
