"""Finds when the thread of the step waited for another thread of Python: for the lock that it held, or what it makes.

A call of TensorFlow from Python, `TFE_Py_…`, gives the lock back while it works, and needs it again to return. What it
records ends before that, so the rest of the call is the wait (TensorFlow 2.21, measured: at most 22 µs in five
recordings without another thread that runs Python, up to 9.6 ms beside a generator). Between its calls the thread runs
Python and records nothing. While another thread runs Python, it is silent for longer, for it shares the lock: what it is
silent more than at other times is due to that thread.

One thread at a time runs Python. One that computes gives the lock to another only after 5 ms. The samples of the stacks
show such a thread: the sampling waits for the lock as well, so rounds come late, while the thread takes processor time.
Threads of the input pipeline do not count here; Python did not start them.

Where the thread of the step waits in Python, and uses no processor, it waits for what another thread makes, if one computes
meanwhile: for a batch in a queue, or for its end.

A thread that computes without the lock, as NumPy does on large arrays, takes a core and nothing else.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.python import HostPython, PythonShare, shared
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import covered_ps
from traceview.base.intervals import Int64Array, IntervalSet, largest_between, union
from traceview.trace.host.cause import Cause
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.python_lines import OFF_CORE_PS
from traceview.trace.host.state_timeline import intersection, without_holes
from traceview.trace.model import Trace

_CALLS: Final = b"TFE_Py_"
SILENT: Final = (Cause.UNKNOWN, Cause.PYTHON)
"""Causes of idle time in which the thread of the step records nothing."""

_HELD_RATIO: Final = 0.5
"""Of the time that a thread computes: the line of one that keeps the lock, or the step waiting, for less is that of all it computes."""

LOCKED: Final = (*SILENT, Cause.HOST_OPS, Cause.LAUNCH)
"""Causes of idle time that get longer while another thread keeps Python's lock."""


def lock_waits(context: Run, device: int) -> IntervalSet:
    """The idle time of a device while the thread of the step waited for the lock, whoever held it."""
    trace, gaps = context.trace, context.idle.gaps[device]
    returns = _returns(trace, context.idle.states[trace.device_list[device].host])
    return intersection(union(gaps.start_ps, gaps.end_ps), union(*returns))


def _returns(trace: Trace, states: HostStates) -> tuple[Int64Array, Int64Array]:
    """From the last event inside each call of TensorFlow to its end; nothing for a call without events inside."""
    columns = trace.host_columns
    rows = states.rows_of_thread(states.caller)
    rows = rows[np.argsort(columns.start_ps[rows], kind="stable")]
    calls = np.flatnonzero(trace.names.where(columns.name[rows], _is_call))
    start, end = columns.start_ps[rows], columns.end_ps[rows]
    last = np.searchsorted(start, end[calls])
    inside = largest_between(end, calls + 1, last, 0)
    returned = np.where(last > calls + 1, np.minimum(inside, end[calls]), end[calls])
    return returned, end[calls]


def _is_call(name: bytes) -> bool:
    return name.startswith(_CALLS)


class ThreadAtWork(Struct, frozen=True, eq=False):
    """A thread of the script that computes beside the step, by its number and name, and the Python that it ran.

    `kept`: when it kept the lock. `awaited`: when the thread of the step waited meanwhile. `computed`: when it computed, with
    the lock or without. The times are of the window.
    """

    number: int
    thread: str
    kept: IntervalSet
    kept_ps: int
    awaited: IntervalSet
    awaited_ps: int
    computed: IntervalSet
    computed_ps: int
    python: PythonShare


def threads_at_work(context: Run, host: int) -> list[ThreadAtWork]:
    """The threads of one host, the one that the step may have waited for longest first."""
    python, window = context.idle.python[host], context.selection.windows[host]
    waits = python.lines.at_rest(python.caller, in_native=False)
    found = []
    for number, name in python.lines.started_by_python:
        if number == python.caller or number in _that_call_tensorflow(context, host, python):
            continue
        kept = python.lines.lock_kept(number)
        computed = without_holes(python.lines.computing(number), OFF_CORE_PS)
        awaited = intersection(waits, python.lines.at_work(number))
        kept_ps, awaited_ps, computed_ps = (
            covered_ps(spans, window) for spans in (kept, awaited, computed)
        )
        chosen = kept if kept_ps >= awaited_ps else awaited
        if max(kept_ps, awaited_ps) < _HELD_RATIO * computed_ps:
            chosen = computed
        line = python.lines.at(number, chosen.start, chosen.end)
        if chosen.start.size and line is not None:
            times = kept, kept_ps, awaited, awaited_ps, computed, computed_ps
            found.append(ThreadAtWork(number, name, *times, shared(line)))
    return sorted(found, key=lambda row: -max(row.kept_ps, row.awaited_ps))


def _that_call_tensorflow(context: Run, host: int, python: HostPython) -> set[int]:
    """The sampled threads that call TensorFlow: replicas outside of graphs, for which the thread of the step waits."""
    lines = context.idle.states[host].lines_of_python
    return {python.lines.thread_of(line) for line in lines}
