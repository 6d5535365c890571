"""Python threads beside the step: which thread of the script keeps Python's lock, and how long the step waits for it.

One thread at a time runs Python. One that computes gives the lock to another only after 5 ms, and the thread of the step
needs it after each call of TensorFlow. The samples of the stacks show such a thread: the sampling waits for the lock as
well, so rounds come late, while the thread takes processor time. Threads of the input pipeline do not count
here; Python did not start them, and their cost belongs to the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.base import Evidence, Finding, Rule, Skipped
from traceview.analysis.context import Analysis, Context, View
from traceview.analysis.cost import mean_ps
from traceview.analysis.idle import ANALYSIS as IDLE
from traceview.analysis.idle.device_finding import naming
from traceview.analysis.idle.waiting_device import Waiting, waiting_device
from traceview.analysis.idle_python import HostPython, PythonShare, shared
from traceview.analysis.lock_waits import LOCKED, idle_of_causes, lock_waits
from traceview.analysis.selection import covered_ps, step_bounds
from traceview.document import model as doc
from traceview.document import numbers
from traceview.intervals import IntervalSet, union
from traceview.record import Hostname, Picoseconds, Record, Share, ThreadName
from traceview.trace.cause import Cause
from traceview.trace.state_timeline import intersection

_CAUSES: Final = (*LOCKED, Cause.CALLBACK)
"""Causes of idle time that get longer; callback is Python between steps, which needs the lock as well."""

PYTHON_THREAD: Final = Rule(
    "python-thread",
    starts_at="{warning_ratio} of the mean step lost while another thread keeps Python's lock; critical from {critical_ratio} on",
    conditions_of="only if all of these hold",
    conditions=(
        "stacks were sampled, and Python itself started the thread",
        "devices are idle while the step waits for the lock that the thread keeps, for {lock_wait_ratio} of the mean step",
    ),
    severities=("warning", "critical", "info"),
    # The third is that of input-bound, for the same reason.
    limits={"warning_ratio": 0.05, "critical_ratio": 0.20, "lock_wait_ratio": 0.02},
    meaning=(
        "A thread of the script computes in Python while the step runs. Only one thread at a time runs Python, and one that "
        "computes keeps the lock for 5 ms each time. The thread of the step needs the lock after each call of TensorFlow and "
        "for its own Python, and waits. The cost is the idle time of dispatch, launches and Python while the thread keeps the "
        "lock."
    ),
    evidence="threads in results.python_threads, and the wait for Python's lock",
    advice=(
        "Move the work to a process of its own: multiprocessing.get_context('spawn').Process(target=...). Or let the thread sleep "
        "between short pieces of work, or call code that releases the lock, such as NumPy on large arrays."
    ),
    example="replica:0 waits 45.8 ms of the mean 66.0 ms step while thread 'statistics' keeps Python's lock (69.4%)",
    explains=("host-bound", "python-stall", "callback-stall", "launch-bound"),
)


class ThreadBeside(Record, frozen=True):
    """A Python thread that computed beside the step.

    Attributes:
        host: Host.
        thread: Name of the thread in Python.
        kept_ps: Time in the window in which it kept Python's lock from others for long, picoseconds.
        kept_ratio: The same as a share of the window.
        python: The Python that it ran meanwhile.
    """

    host: Hostname
    thread: ThreadName
    kept_ps: Picoseconds
    kept_ratio: Share
    python: PythonShare


class PythonThreads(Record, frozen=True):
    """Python threads that computed beside the step.

    Attributes:
        threads: By host those that kept the lock longest first.
    """

    threads: tuple[ThreadBeside, ...]


class _Keeper(Struct, frozen=True, eq=False):
    """A thread, and when it kept the lock."""

    row: ThreadBeside
    kept: IntervalSet


def compute(context: Context) -> PythonThreads | Skipped:
    """The threads of every host that kept the lock."""
    if not context.idle.python:
        return Skipped("no Python stacks were sampled")
    rows = [keeper.row for host in context.idle.python for keeper in _keepers(context, host)]
    if not rows:
        return Skipped(
            "the samples show no thread of the script that computes in Python beside the step"
        )
    return PythonThreads(tuple(rows))


def _keepers(context: Context, host: int) -> list[_Keeper]:
    """The threads of one host, the one that kept the lock longest first."""
    python, window = context.idle.python[host], context.selection.windows[host]
    keepers = []
    for number, name in python.lines.started_by_python:
        if number == python.caller or number in _that_call_tensorflow(context, host, python):
            continue
        kept = python.lines.lock_kept(number)
        kept_ps = covered_ps(kept, window)
        line = python.lines.at(number, kept.start, kept.end)
        if kept_ps and line is not None:
            row = ThreadBeside(
                host=context.trace.hosts[host].name,
                thread=name,
                kept_ps=kept_ps,
                kept_ratio=kept_ps / window.length_ps,
                python=shared(line),
            )
            keepers.append(_Keeper(row, kept))
    return sorted(keepers, key=lambda keeper: -keeper.row.kept_ps)


def _that_call_tensorflow(context: Context, host: int, python: HostPython) -> set[int]:
    """The sampled threads that call TensorFlow: replicas outside of graphs, for which the thread of the step waits."""
    lines = context.idle.states[host].lines_of_python
    return {python.lines.thread_of(line) for line in lines}


def diagnose(context: Context, _: PythonThreads) -> Iterator[Finding]:
    """What the threads of each host cost its device that is idle least."""
    for host in context.idle.python:
        keepers, idle = _keepers(context, host), context.record(IDLE)
        waiting = idle and waiting_device(
            context.trace, idle, context.idle, context.selection, host
        )
        if keepers and waiting and waiting.has_steps:
            yield from _of_host(context, host, waiting, keepers)


def _of_host(
    context: Context, host: int, waiting: Waiting, keepers: list[_Keeper]
) -> Iterator[Finding]:
    bounds = step_bounds(context.selection.used_of(host))
    kept = union(
        np.concatenate([keeper.kept.start for keeper in keepers]),
        np.concatenate([keeper.kept.end for keeper in keepers]),
    )
    of = context.trace, context.idle, waiting.device
    limits, longest = PYTHON_THREAD.limits, keepers[0].row
    lock_ps = mean_ps(intersection(lock_waits(*of), kept).within(*bounds))
    lock_ratio = waiting.cost(lock_ps).ratio or 0.0
    lost = {
        cause: mean_ps(intersection(idle_of_causes(*of, (cause,)), kept).within(*bounds))
        for cause in _CAUSES
    }
    cost = waiting.cost(sum(lost.values()))
    severity = PYTHON_THREAD.severity_of(cost.ratio or 0.0)
    if severity is None or lock_ratio < limits["lock_wait_ratio"]:
        return
    few_steps = context.selection.few_steps
    others = waiting.waiting_as_long(Cause.HOST_COMPUTE)
    title = naming(
        "{device} waits {span} while thread '{thread}' keeps Python's lock ({share})",
        waiting,
        others,
    )
    yield PYTHON_THREAD.finding(
        title.format(
            device=waiting.key,
            span=cost.words,
            thread=longest.thread,
            share=numbers.share(cost.ratio),
        ),
        (
            Evidence("lock_cost_ratio", cost.ratio or 0.0, limits["warning_ratio"], waiting.key),
            Evidence("lock_wait_ratio", lock_ratio, limits["lock_wait_ratio"], waiting.key),
            *(
                Evidence("lock_kept_ratio", keeper.row.kept_ratio, None, keeper.row.thread)
                for keeper in keepers
            ),
            longest.python.evidence,
        ),
        severity="info" if few_steps else severity,
        confidence=few_steps
        or ("high", "the processor time of the thread and the wait for the lock agree"),
        explanation=f"{PYTHON_THREAD.meaning} {longest.python.sentence}",
        devices=sorted((waiting.key, *others)),
        cost=cost,
        path_causes=[cause.key for cause, ps in lost.items() if ps],
    )


def section(view: View, result: PythonThreads) -> doc.Section:
    """A row per thread."""
    rows = result.threads[: view.most_rows]
    several = len({row.host for row in result.threads}) > 1
    return doc.Section(
        "python-threads",
        "Python threads beside the step",
        doc.table(
            "Threads that kept Python's lock",
            (
                doc.names("host", [row.host if several else None for row in rows]),
                doc.names("thread", [row.thread for row in rows]),
                doc.times("kept the lock", [row.kept_ps for row in rows]),
                doc.shares("share of the window", [row.kept_ratio for row in rows]),
                doc.names("line of Python", [row.python.line for row in rows]),
            ),
            row_count=len(result.threads),
        ),
    )


ANALYSIS: Final = Analysis[PythonThreads](
    "python_threads",
    compute=compute,
    rules=(PYTHON_THREAD,),
    diagnose=diagnose,
    sections=(section,),
)
