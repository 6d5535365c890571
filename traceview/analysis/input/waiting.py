"""Concludes whether devices wait for input: from their idle time, unless the pipeline contradicts it.

A device may be idle in the call for the next batch although a batch is ready: the threads that hand it over wait for
a core. Full prefetch buffers, and stages that work little, show that. On the other hand a pipeline that works all the
time hides a part of the wait: the thread of the step waits for Python's lock, which a generator holds, or on a host
whose cores are the devices for a core. There it records nothing, or is in a call that has done its work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from traceview.analysis.base import Evidence, Finding
from traceview.analysis.context import Context
from traceview.analysis.cost import mean_ps
from traceview.analysis.idle import ANALYSIS as IDLE
from traceview.analysis.idle.findings import Waiting, finding_of, waiting_device
from traceview.analysis.input.busy_cores import busy_cores
from traceview.analysis.input.lock_waits import idle_in_lock_waits
from traceview.analysis.input.result import Input, InputHost, keeps_waiting
from traceview.analysis.input.rules import INPUT_BOUND
from traceview.analysis.selection import step_bounds
from traceview.document import numbers
from traceview.intervals import Int64Array
from traceview.trace.cause import Cause
from traceview.trace.pipeline import GENERATOR

_SILENT: Final = ("unattributed", "python")
"""Causes of idle time in which the thread of the step records nothing."""

_LOCKED: Final = (*_SILENT, "host_compute", "launch")
"""Causes of idle time that get longer while another thread holds Python's lock."""


def diagnose(context: Context, result: Input | None) -> list[Finding]:
    """What the devices of each host wait for input; `result`: None where no iterator was recorded."""
    rows = {row.host: row for row in result.hosts} if result else {}
    return [
        finding
        for host in context.selection.windows
        for finding in _of_host(context, host, rows.get(context.trace.hosts[host].name), result)
    ]


def _of_host(
    context: Context, host: int, row: InputHost | None, result: Input | None
) -> Iterator[Finding]:
    idle = context.record(IDLE)
    waiting = idle and waiting_device(context.trace, idle, context.idle, context.selection, host)
    if not waiting:
        return
    lock_ps = _lock_wait_ps(context, host, waiting, row)
    is_locked = _is_contended(waiting, lock_ps)
    is_short = row is None or keeps_waiting(row)
    of_steps = waiting.idle_ps[Cause.INPUT] * is_short
    hidden_ps, hidden_as = 0, _LOCKED if is_locked else _SILENT
    if is_short or is_locked:
        hidden = _hidden_ps(waiting, row, hidden_as)
        hidden_ps, of_steps = mean_ps(hidden), of_steps + hidden
    idle_ps = mean_ps(of_steps)
    ratio = waiting.cost(idle_ps).ratio or 0.0
    severity = INPUT_BOUND.severity_of(ratio)
    if severity is None:
        return
    bottleneck = result.bottleneck if result else None
    advice = bottleneck.advice if bottleneck and row and bottleneck.host == row.host else None
    limit = INPUT_BOUND.limits["warning_ratio"]
    metric = "idle_input_ratio" if is_short else "idle_lock_wait_ratio"
    yield finding_of(
        INPUT_BOUND,
        waiting,
        idle_ps,
        [Evidence(metric, ratio, limit, waiting.key), *_of_pipeline(row, is_short=is_short)],
        severity=severity,
        of_steps=of_steps,
        title=_title(waiting, "" if is_short or row is None else _held(row)),
        explanation=_explanation(context, host, waiting, row, hidden_ps, is_short=is_short),
        advice=advice,
        path_causes=("input", *hidden_as) if hidden_ps else None,
        names_all=True,
    )


def _is_python(row: InputHost) -> bool:
    return (row.slowest_stage or "").endswith(GENERATOR)


def _is_at_its_limit(row: InputHost) -> bool:
    return (row.work_ratio or 0.0) >= INPUT_BOUND.limits["limiting_work_ratio"]


def _lock_wait_ps(
    context: Context, host: int, waiting: Waiting, row: InputHost | None
) -> Int64Array:
    """Idle time in each step in which the thread of the step waits for a generator to give Python's lock back."""
    if row is None or not _is_at_its_limit(row) or not _is_python(row):
        return np.zeros(waiting.idle_ps.shape[1], dtype=np.int64)
    window, steps = context.selection.windows[host], context.selection.used_of(host)
    whole = np.array([window.start_ps]), np.array([window.end_ps])
    bounds = step_bounds(steps) if steps else whole
    return idle_in_lock_waits(context.trace, context.idle, waiting.device, *bounds)


def _is_contended(waiting: Waiting, lock_ps: Int64Array) -> bool:
    """Whether the thread of the step waits for Python's lock."""
    cost = waiting.cost(mean_ps(lock_ps))
    return (cost.ratio or 0.0) >= INPUT_BOUND.limits["lock_wait_ratio"]


def _hidden_ps(waiting: Waiting, row: InputHost | None, causes: Collection[str]) -> Int64Array:
    """Idle time in each step that a pipeline at its limit makes longer, by the share of the window that it works."""
    hidden = np.zeros(waiting.idle_ps.shape[1], dtype=np.int64)
    if row is None or not _is_at_its_limit(row) or not (waiting.is_replica or _is_python(row)):
        return hidden
    for cause in Cause:
        if cause.key in causes:
            hidden += waiting.idle_ps[cause]
    return (min(row.work_ratio or 0.0, 1.0) * hidden).astype(np.int64)


def _of_pipeline(row: InputHost | None, *, is_short: bool) -> Iterator[Evidence]:
    if row is None or row.slowest_stage is None or row.work_ratio is None:
        return
    limits, where = INPUT_BOUND.limits, f"{row.host}, {row.slowest_stage}"
    if not is_short or row.empty_step_ratio is None:
        limit = None if is_short or row.empty_step_ratio is None else limits["limiting_work_ratio"]
        yield Evidence("work_ratio", row.work_ratio, limit, where)
        return
    least = limits["work_ratio"]
    if row.work_ratio >= least:
        yield Evidence("work_ratio", row.work_ratio, least, where)
    else:
        yield Evidence("work_of_wait_ratio", row.work_of_wait_ratio or 0.0, least, where)
    if row.work_ratio >= least and row.empty_step_ratio >= limits["empty_step_ratio"]:
        limit = limits["empty_step_ratio"]
        yield Evidence("empty_step_ratio", row.empty_step_ratio, limit, row.host)
    else:
        limit = limits["empty_wait_ratio"]
        yield Evidence("empty_wait_ratio", row.empty_wait_ratio or 0.0, limit, row.host)


def _held(row: InputHost) -> str:
    """What a pipeline at its limit holds, so that the thread of the step waits for it."""
    return "Python's lock" if _is_python(row) else "the cores"


def _title(waiting: Waiting, held: str) -> str:
    """`held`: what the devices wait for, if it is not the next batch itself."""
    title = INPUT_BOUND.title
    if held:
        title = title.replace("for input", f"while the input pipeline holds {held}")
    devices = sorted((waiting.key, *waiting.waiting_as_long(Cause.INPUT)))
    if len(devices) == 1:
        return title
    everyone = len(devices) == len(waiting.others) + 1
    noun = "replica" if waiting.is_replica else "device"
    who = (
        f"all {numbers.plural(len(devices), noun)}"
        if everyone and len(devices) > 2
        else numbers.listed(devices, 3)
    )
    return title.replace("{device} waits", f"{who} wait")


def _explanation(
    context: Context,
    host: int,
    waiting: Waiting,
    row: InputHost | None,
    hidden_ps: int,
    *,
    is_short: bool,
) -> str | None:
    if row is None or row.slowest_stage is None or not _is_at_its_limit(row):
        return None
    stage = row.slowest_stage.removeprefix("Iterator::")
    share = numbers.share(min(row.work_ratio or 0.0, 1.0))
    work = f"{stage} works {share} of the window."
    sentences = [f"The pipeline is slower than the model: {work}" if is_short else work]
    if hidden_ps:
        sentences.append(
            f"It holds {_held(row)} meanwhile: {numbers.time(hidden_ps)} of the cost is idle time in which the thread of "
            "the step waits for that. Tables of idle time show it under other causes than waiting for input."
        )
    if waiting.is_replica:
        sentences.append(_lower_estimate(context, host))
    return " ".join(sentences)


def _lower_estimate(context: Context, host: int) -> str:
    """Why replicas that share cores with a pipeline lose more than they wait."""
    sidecar, busy = context.trace.hosts[host].sidecar, busy_cores(context, host)
    cores = sidecar.environment.cores.usable_count if sidecar else None
    taken = (
        f"The pipeline keeps {numbers.number(busy)} of {cores} cores busy on average. "
        if cores and busy
        else ""
    )
    return (
        f"{taken}Replicas on the CPU compute more slowly beside it. One recording does not show by how much, so the cost is "
        "a lower estimate."
    )
