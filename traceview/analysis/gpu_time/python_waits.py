"""Concludes which Python devices wait for: in the step, between steps, between recorded calls, and in other threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from traceview.analysis.facts.python import PythonShare
from traceview.analysis.facts.python_lock import threads_at_work
from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.gpu_time import host_wait_rules as rules
from traceview.analysis.gpu_time.host_calls import EagerOps, eager_calls, eager_ops
from traceview.analysis.gpu_time.waits import Waits, event_evidence, line_argument
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.words import Line, Names, Number, Ops, Time
from traceview.base.units import PS_PER_US
from traceview.ledger.columns import IDLE
from traceview.ledger.states import State
from traceview.trace.host.state_timeline import complement, intersection, without_holes

_MOST_BETWEEN_PS: Final = 200 * PS_PER_US
"""Between two calls Python reads variables and checks arguments, which took 40 to 100 µs on two slow cores."""


def _instead(python: PythonShare | None) -> str:
    """The key of what is said where the thread runs no Python: what it waits for, where a module shows that."""
    if python is None or python.state == "runs":
        return ""
    inner = python.inner or ""
    known = (key for key, modules in rules.AWAITED_IN.items() if inner.startswith(modules))
    return next(known, python.state)


def python_in_step(waits: Waits) -> Iterator[Finding | None]:
    """Python on the thread of the steps, as samples or frames show it."""
    python = waits.python(State.PYTHON)
    instead = _instead(python)
    yield waits.finding(
        rules.PYTHON_STALL,
        arguments=line_argument(python),
        title=instead if instead in rules.PYTHON_STALL.titles else "",
        action=instead,
        notes=(instead,),
        # A pause inside a call of the framework is what that call takes.
        unsure="native" if instead == "native" else "",
    )


def between_calls(waits: Waits) -> Iterator[Finding | None]:
    """Silence between recorded calls, with the calls around the longest gap."""
    around: list[Evidence] = []
    longest = waits.gap(State.BETWEEN_CALLS)
    if longest is not None:
        _, gap = longest
        events = {"previous_event": gap.previous_event, "next_event": gap.next_event}
        around = [
            event_evidence(metric, event, gap)
            for metric, event in events.items()
            if event is not None
        ]
    python = waits.context.idle.python.get(waits.host)
    action = "sampled" if python is not None and python.is_sampled else ""
    yield waits.finding(rules.BETWEEN_CALLS, evidence=around, action=action, unsure="unseen")


def between_steps(waits: Waits) -> Iterator[Finding | None]:
    """Python between steps; the ops that it runs one by one where a graph would save most of the time."""
    python = waits.python(State.BETWEEN)
    arguments, key = line_argument(python), _instead(python) if python else "unseen"
    evidence: list[Evidence] = []
    ops = _ops_between_steps(waits)
    if ops is not None:
        key, (calls, running_ps, own_ps) = "ops", ops
        arguments |= {
            "count": Number(calls.count_per_step, "op"),
            "types": Ops(calls.types),
            "running": Time(running_ps),
            "own": Time(own_ps),
        }
        least = int(rules.CALLBACK_STALL.limits["least_op_count"])
        evidence.append(Evidence("eager_ops_per_step", calls.count_per_step, least, ""))
    yield waits.finding(
        rules.CALLBACK_STALL,
        arguments=arguments,
        evidence=evidence,
        title=key if key in rules.CALLBACK_STALL.titles else "",
        action=key,
        notes=(key,),
        unsure="short" if waits.loss.mean_ps < rules.CALLBACK_STALL.limits["short_ps"] else "",
    )


def _ops_between_steps(waits: Waits) -> tuple[EagerOps, int, int] | None:
    """The ops between step markers, how long they follow each other per step, and how long they run themselves.

    None if a graph would not save most of the time: histograms of weights, whose ops take longer than Python does, took
    as long in a graph; a moving average of 30 variables took 2 instead of 19 ms.
    """
    context, host = waits.context, waits.host
    trace, selection, markers = context.trace, context.selection, context.idle.states[host].markers
    if not markers.start.size or not selection.used_of(host):
        return None
    between = complement(markers)
    calls = eager_calls(trace, selection, host, between)
    limits = rules.CALLBACK_STALL.limits
    if calls is None or calls.count_per_step < limits["least_op_count"]:
        return None
    bounds = step_bounds(selection.used_of(host))
    ops, running = eager_ops(trace, selection, host), without_holes(calls.spans, _MOST_BETWEEN_PS)
    own_ps = int(np.sum(intersection(ops.spans, between).within(*bounds))) if ops else 0
    running_ps = int(np.sum(running.within(*bounds)))
    count = bounds[0].size
    if (running_ps - own_ps) // count < limits["saved_ratio"] * waits.loss.mean_ps:
        return None
    return calls, running_ps // count, own_ps // count


def _slows_ops(waits: Waits) -> bool:
    """Whether most of what is lost are ops that take longer: a thread that keeps the lock keeps none of them from running."""
    columns = waits.context.ledger.columns
    busy = waits.rows & (columns.activity != IDLE)
    lost_ps, busy_ps = (int(columns.duration_ps[rows].sum()) for rows in (waits.rows, busy))
    return 2 * busy_ps >= lost_ps


def python_thread(waits: Waits) -> Iterator[Finding | None]:
    """Waits for other threads of the script: for the lock of Python that they keep, what they make, or the cores that they take."""
    context = waits.context
    threads = [
        (thread, context.selection.windows[host].length_ps)
        for host in context.idle.python
        for thread in threads_at_work(context, host)
    ]
    if not threads:
        return
    longest, _ = max(threads, key=lambda pair: max(pair[0].kept_ps, pair[0].awaited_ps))
    key = "awaited" if longest.awaited_ps > longest.kept_ps else ""
    metric, shares = "lock_kept_ratio", [(row, row.kept_ps / window) for row, window in threads]
    if _slows_ops(waits):
        longest, window_ps = max(threads, key=lambda pair: pair[0].computed_ps)
        key, metric = "cores", "computed_ratio"
        shares = [(longest, longest.computed_ps / window_ps)]
    yield rules.PYTHON_THREAD.of_rows(
        context,
        waits.rows,
        arguments={"thread": Names((longest.thread,), "thread"), "line": Line(longest.python.line)},
        confidence=("high", "cores" if key == "cores" else ""),
        evidence=(
            *(
                Evidence(metric, share, None, row.thread, where_is="thread")
                for row, share in shares
            ),
            longest.python.evidence,
        ),
        title=key,
        action=key,
        notes=(key or "lock",),
        keeps_waiting=True,
    )
