"""Names the line of Python that ran while a device was idle, by the cause of the idle time.

Where the host is late, that is the line of the thread that runs the steps. Where input or an op on the host is late, it
is that of the other threads, which run generators and `tf.py_function`; those that wait themselves run nothing. Queued work waits for no Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.base import Evidence
from traceview.document import numbers
from traceview.ids import is_in
from traceview.intervals import BoolArray, Int64Array
from traceview.record import Record, Share, SourceLine
from traceview.trace.cause import Cause
from traceview.trace.gap_spans import CauseSpans, cause_spans
from traceview.trace.gaps import Gaps
from traceview.trace.host_states import HostStates
from traceview.trace.model import NONE, Trace
from traceview.trace.python_lines import PythonLine, PythonLines, python_lines
from traceview.trace.python_samples import PythonState
from traceview.trace.windows import Window

_QUEUED: Final = (Cause.PEER, Cause.DEPENDENCY, Cause.LATENCY, Cause.UNUSED)
_BY_OTHER_THREADS: Final = (Cause.INPUT, Cause.HOST_COMPUTE)

PYTHON_LINE: Final = "python_line"
"""The evidence that names a line; its place says how much of the sampled time was there."""


_SENTENCES: Final[dict[PythonState, str]] = {
    "runs": "Python was in",
    "waits": "the thread waited in",
    "native": "the thread was in TensorFlow, called in",
}


class PythonShare(Record, frozen=True):
    """The Python that a thread was in for most of some time, from samples of its stack.

    Attributes:
        line: The innermost line of the user's code.
        inner: The line of a library, called from there, that ran; null where the user's own line did.
        ratio: Share of the sampled time that was in the function of that line; a sample stands for the time since the
            one before it.
        state: runs: the thread ran Python there; waits: it waited for another thread, a process or a file; native: it was
            in native code of TensorFlow.
    """

    line: SourceLine
    inner: SourceLine | None
    ratio: Share
    state: PythonState = "runs"

    @property
    def sentence(self) -> str:
        """What a finding says about it."""
        inside = f", mostly inside {self.inner}" if self.inner else ""
        did = _SENTENCES[self.state]
        return f"For {numbers.share(self.ratio)} of the sampled time {did} {self.line}{inside}."

    @property
    def evidence(self) -> Evidence:
        """The line, and how sure it is."""
        return Evidence(
            PYTHON_LINE, self.line, None, f"{numbers.share(self.ratio)} of the sampled time"
        )


class HostPython(Struct, frozen=True, eq=False):
    """The samples of one host. `caller`: the number of the thread that runs the steps, `NONE` if it was not sampled."""

    lines: PythonLines
    caller: int

    def while_idle(
        self, cause: Cause, start_ps: Int64Array, end_ps: Int64Array
    ) -> PythonLine | None:
        """The line that ran in spans of idle time of this cause, in time order and apart; None if none was sampled."""
        if cause in _QUEUED:
            return None
        if cause in _BY_OTHER_THREADS:
            # Input waits for what loads it, even where that waits for a disk; an op waits for what computes.
            may_wait = cause == Cause.INPUT
            return self.lines.of_others(self.caller, start_ps, end_ps, may_wait=may_wait)
        return self.of_caller(start_ps, end_ps)

    def of_others(self, window: Window) -> PythonLine | None:
        """The line of the user's code that the other threads ran in a window."""
        start, end = np.array([window.start_ps]), np.array([window.end_ps])
        return self.lines.of_others(self.caller, start, end, may_wait=True)

    def of_caller(self, start_ps: Int64Array, end_ps: Int64Array) -> PythonLine | None:
        """The line in which the thread that runs the steps was in these spans."""
        return self.lines.at(self.caller, start_ps, end_ps)

    def time_of_caller(self, start_ps: Int64Array, end_ps: Int64Array) -> dict[PythonState, int]:
        """How long the thread that runs the steps did what in these spans, as far as it was sampled."""
        return self.lines.time_by_state(self.caller, start_ps, end_ps)


def python_of_hosts(trace: Trace, states: Mapping[int, HostStates]) -> dict[int, HostPython]:
    """The samples by host index, of the hosts that have any."""
    python = {}
    for host, of_host in states.items():
        lines = python_lines(trace, host)
        if lines is not None:
            callers = np.flatnonzero(of_host.thread == of_host.caller).tolist()
            known = [thread for thread in map(lines.thread_of, callers) if thread != NONE]
            python[host] = HostPython(lines, known[0] if known else NONE)
    return python


def shared(line: PythonLine) -> PythonShare:
    """A line as a record."""
    inner = str(line.inner) if line.inner else None
    return PythonShare(str(line), inner, line.ratio, line.state)


def python_in_gaps(
    trace: Trace,
    gaps: Gaps,
    states: HostStates,
    python: HostPython | None,
    chosen: Int64Array,
    causes: Int64Array,
) -> list[PythonLine | None]:
    """For each of the `chosen` gaps the line that ran while it was idle for its cause; None if none was sampled."""
    if python is None:
        return [None] * chosen.size
    spans = cause_spans(trace, gaps, states, chosen)
    lines = []
    for gap, cause in zip(chosen.tolist(), causes.tolist(), strict=True):
        lines.append(_in_spans(python, Cause(cause), spans, spans.gap == gap))
    return lines


def python_by_cause(
    trace: Trace, gaps: Gaps, states: HostStates, python: HostPython | None
) -> dict[str, PythonShare]:
    """The line that ran in all idle time of a device with each cause, by cause."""
    if python is None:
        return {}
    spans = cause_spans(trace, gaps, states, np.arange(gaps.count))
    anywhere = np.ones(spans.gap.size, dtype=np.bool_)
    lines = {cause: _in_spans(python, cause, spans, anywhere) for cause in Cause}
    return {cause.key: shared(line) for cause, line in lines.items() if line}


def python_in_steps(
    trace: Trace,
    gaps: Gaps,
    states: HostStates,
    python: HostPython,
    start_ps: Int64Array,
    end_ps: Int64Array,
) -> list[PythonShare | None]:
    """For each of these steps, what the thread that runs them was in while it kept the device of the gaps waiting."""
    spans = cause_spans(trace, gaps, states, np.arange(gaps.count))
    waits = np.flatnonzero(~is_in(spans.cause, (*_QUEUED, *_BY_OTHER_THREADS)))
    start, end = spans.start_ps[waits], spans.end_ps[waits]
    of_steps = []
    for begin_ps, until_ps in zip(start_ps.tolist(), end_ps.tolist(), strict=True):
        inside = slice(
            int(np.searchsorted(end, begin_ps, side="right")), int(np.searchsorted(start, until_ps))
        )
        line = python.of_caller(
            np.maximum(start[inside], begin_ps), np.minimum(end[inside], until_ps)
        )
        of_steps.append(shared(line) if line else None)
    return of_steps


def _in_spans(
    python: HostPython, cause: Cause, spans: CauseSpans, chosen: BoolArray
) -> PythonLine | None:
    rows = np.flatnonzero(chosen & (spans.cause == cause))
    return python.while_idle(cause, spans.start_ps[rows], spans.end_ps[rows]) if rows.size else None
