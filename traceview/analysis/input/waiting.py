"""Concludes whether devices wait for input: from their idle time, unless the pipeline contradicts it.

A device may be idle in the call for the next batch although a batch is ready: the threads that hand it over wait for
a core. Full prefetch buffers, and stages that work little, show that. On the other hand a pipeline costs more than the
wait. A generator that works all the time holds Python's lock: the thread of the step waits for that, and records nothing
or is in a call that has done its work. On a host whose cores are the devices, any pipeline takes cores from them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.base import Evidence, Finding
from traceview.analysis.context import Context
from traceview.analysis.cost import mean_ps
from traceview.analysis.idle import ANALYSIS as IDLE
from traceview.analysis.idle.device_finding import finding_of
from traceview.analysis.idle.waiting_device import Waiting, waiting_device
from traceview.analysis.input.busy_cores import busy_cores
from traceview.analysis.input.result import Input, InputHost, keeps_waiting, work_words
from traceview.analysis.input.rules import INPUT_BOUND
from traceview.analysis.input.stretched import DISPATCH, Stretched, stretched_by_pipeline
from traceview.analysis.lock_waits import LOCKED, SILENT, idle_beside_python, idle_in_lock_waits
from traceview.analysis.pipeline_threads import pipeline_rest
from traceview.analysis.selection import covered_ps, step_bounds
from traceview.document import numbers
from traceview.document.vocabulary import CAUSES
from traceview.intervals import Int64Array
from traceview.robust import median_ps
from traceview.trace.cause import Cause
from traceview.trace.pipeline import GENERATOR

_SILENT: Final = tuple(cause.key for cause in SILENT)
_LOCKED: Final = tuple(cause.key for cause in LOCKED)
_LIMITING_WORK_RATIO: Final = INPUT_BOUND.limits["limiting_work_ratio"]


def diagnose(context: Context, result: Input | None) -> list[Finding]:
    """What the devices of each host wait for input; `result`: None where no iterator was recorded."""
    rows = {row.host: row for row in result.hosts} if result else {}
    return [
        finding
        for host in context.selection.windows
        for finding in _of_host(context, host, rows.get(context.trace.hosts[host].name), result)
    ]


class _Lost(Struct, frozen=True):
    """By step, int64 `[steps]`: what a pipeline costs the device that is idle least.

    `waiting_ps`: idle while the host asks for the next batch. `locked_ps`: idle for other causes, `locked_causes`, while
    the pipeline holds Python's lock. `ops_ps`, `dispatch_ps`: how much longer ops and what lies between them take
    because the pipeline has the cores.
    """

    waiting_ps: Int64Array
    locked_ps: Int64Array
    locked_causes: tuple[str, ...]
    ops_ps: Int64Array
    dispatch_ps: Int64Array

    @property
    def of_steps(self) -> Int64Array:
        """All of it."""
        return self.waiting_ps + self.locked_ps + self.ops_ps + self.dispatch_ps

    @property
    def is_only_waiting(self) -> bool:
        """Whether nothing but waiting for a batch is lost."""
        return not (self.of_steps - self.waiting_ps).any()

    @property
    def parts(self) -> list[tuple[str, str, Int64Array]]:
        """What the cost consists of: the metric of evidence, words, and the time by step."""
        parts = (
            ("input_wait_ps", "waiting for input", self.waiting_ps),
            ("lock_wait_ps", "waiting for Python's lock", self.locked_ps),
            ("slowed_ops_ps", "slower ops", self.ops_ps),
            ("slowed_dispatch_ps", "slower dispatch of ops", self.dispatch_ps),
        )
        return [part for part in parts if part[2].any()]

    @property
    def path_causes(self) -> tuple[str, ...] | None:
        """What it is on the critical path, beside compute; None where the usual cause is all."""
        causes = self.locked_causes if self.locked_ps.any() else ()
        if self.dispatch_ps.any():
            causes = tuple(cause.key for cause in DISPATCH)
        return ("input", *causes) if causes else None


def _of_host(
    context: Context, host: int, row: InputHost | None, result: Input | None
) -> Iterator[Finding]:
    idle = context.record(IDLE)
    waiting = idle and waiting_device(context.trace, idle, context.idle, context.selection, host)
    if not waiting:
        return
    is_short = row is None or keeps_waiting(row)
    lost = _lost(context, host, waiting, row, is_short=is_short)
    if lost is None:
        return
    idle_ps = mean_ps(lost.of_steps)
    ratio = waiting.cost(idle_ps).ratio or 0.0
    severity = INPUT_BOUND.severity_of(ratio)
    if severity is None:
        return
    bottleneck = result.bottleneck if result else None
    advice = bottleneck.advice if bottleneck and row and bottleneck.host == row.host else None
    yield finding_of(
        INPUT_BOUND,
        waiting,
        idle_ps,
        [*_of_cost(waiting, lost, ratio), *_of_pipeline(row, is_short=is_short)],
        severity=severity,
        of_steps=lost.of_steps,
        title=_title(lost),
        explanation=_explanation(context, host, waiting, row, lost, is_short=is_short),
        advice=advice,
        path_causes=lost.path_causes,
        parts=[(words, mean_ps(of_steps)) for _, words, of_steps in lost.parts],
    )


def _lost(
    context: Context, host: int, waiting: Waiting, row: InputHost | None, *, is_short: bool
) -> _Lost | None:
    """What the pipeline costs; None where the model does not wait for it."""
    window, steps = context.selection.windows[host], context.selection.used_of(host)
    whole = np.array([window.start_ps]), np.array([window.end_ps])
    bounds = step_bounds(steps) if steps else whole
    nothing = np.zeros(waiting.idle_ps.shape[1], dtype=np.int64)
    locked_ps = nothing
    causes: tuple[str, ...] = _SILENT
    least_lock_ratio = INPUT_BOUND.limits["lock_wait_ratio"]
    at_work_ratio = _at_work_ratio(context, host, row)
    if row is not None and _is_python(row) and at_work_ratio >= _LIMITING_WORK_RATIO:
        lock_ps = idle_in_lock_waits(context.trace, context.idle, waiting.device, *bounds)
        if (waiting.cost(mean_ps(lock_ps)).ratio or 0.0) >= least_lock_ratio:
            causes = _LOCKED
        if is_short or causes == _LOCKED:
            locked_ps = _locked_ps(waiting, at_work_ratio, causes)
    else:
        beside_ps = idle_beside_python(context.trace, context.idle, waiting.device, *bounds)
        # A thread that loses its core while it holds the lock makes a step long now and then.
        if (waiting.cost(median_ps(beside_ps) or 0).ratio or 0.0) >= least_lock_ratio:
            locked_ps, causes = beside_ps, _LOCKED
    if not is_short and not locked_ps.any():
        return None
    slowed = (
        stretched_by_pipeline(context, host, waiting.device, *bounds)
        if waiting.is_replica
        else Stretched(nothing, nothing)
    )
    return _Lost(
        waiting_ps=waiting.idle_ps[Cause.INPUT] * is_short,
        locked_ps=locked_ps,
        locked_causes=causes,
        ops_ps=slowed.ops_ps,
        dispatch_ps=nothing if locked_ps.any() else slowed.dispatch_ps,
    )


def _is_python(row: InputHost) -> bool:
    return (row.slowest_stage or "").endswith(GENERATOR)


def _is_at_its_limit(row: InputHost) -> bool:
    return (row.work_ratio or 0.0) >= _LIMITING_WORK_RATIO


def _at_work_ratio(context: Context, host: int, row: InputHost | None) -> float:
    """The share of the window that the slowest stage works, less that in which Python of the pipeline waits."""
    work_ratio, length_ps = row and row.work_ratio, context.selection.windows[host].length_ps
    if not work_ratio or not length_ps:
        return 0.0
    rest = pipeline_rest(context.trace, context.idle, host)
    return work_ratio - covered_ps(rest, context.selection.windows[host]) / length_ps


def _locked_ps(waiting: Waiting, work_ratio: float, causes: Collection[str]) -> Int64Array:
    """Idle time in each step that a generator makes longer, by the share of the window that it works."""
    idle_ps = waiting.idle_ps[[cause.key in causes for cause in Cause]].sum(axis=0)
    result: Int64Array = (min(work_ratio, 1.0) * idle_ps).astype(np.int64)
    return result


def _of_cost(waiting: Waiting, lost: _Lost, ratio: float) -> Iterator[Evidence]:
    metric = "idle_input_ratio" if lost.is_only_waiting else "input_cost_ratio"
    yield Evidence(metric, ratio, INPUT_BOUND.limits["warning_ratio"], waiting.key)
    if not lost.is_only_waiting:
        for part, _, of_steps in lost.parts:
            yield Evidence(part, mean_ps(of_steps), None, waiting.key)


def _of_pipeline(row: InputHost | None, *, is_short: bool) -> Iterator[Evidence]:
    if row is None or row.slowest_stage is None or row.work_ratio is None:
        return
    limits, where = INPUT_BOUND.limits, f"{row.host}, {row.slowest_stage}"
    if not is_short or row.empty_step_ratio is None:
        at_limit = not is_short and row.empty_step_ratio is not None and _is_at_its_limit(row)
        limit = _LIMITING_WORK_RATIO if at_limit else None
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


def _title(lost: _Lost) -> str:
    """Who waits, or loses time in another way as well."""
    title = INPUT_BOUND.title
    if not lost.is_only_waiting:
        title = title.replace("waits", "loses").replace("for input", "to the input pipeline")
    return title


def _explanation(
    context: Context,
    host: int,
    waiting: Waiting,
    row: InputHost | None,
    lost: _Lost,
    *,
    is_short: bool,
) -> str | None:
    sentences = []
    if row is not None and row.slowest_stage is not None and _is_at_its_limit(row):
        stage = row.slowest_stage.removeprefix("Iterator::")
        work = f"{stage} {work_words(row.work_ratio or 0.0)}."
        sentences.append(f"The pipeline is slower than the model: {work}" if is_short else work)
    if lost.locked_ps.any():
        sentences.append(
            f"Python of the input pipeline holds Python's lock: {numbers.time(mean_ps(lost.locked_ps))} of the cost is idle "
            f"time in which the thread of the step waits for that. Tables of idle time show it as {_shown_as(waiting, lost)}."
        )
    if lost.ops_ps.any() or lost.dispatch_ps.any():
        sentences.append(_slowed(context, host, waiting, lost))
    if not sentences:
        return None
    return " ".join(sentences if row is not None else (INPUT_BOUND.meaning, *sentences))


def _shown_as(waiting: Waiting, lost: _Lost) -> str:
    """The causes of idle time that hold waiting for the lock, most first."""
    idle_ps = {key: mean_ps(waiting.idle_ps[Cause[key.upper()]]) for key in lost.locked_causes}
    shown = sorted((key for key in idle_ps if idle_ps[key]), key=lambda key: -idle_ps[key])
    return numbers.listed([CAUSES[key].words for key in shown])


def _slowed(context: Context, host: int, waiting: Waiting, lost: _Lost) -> str:
    """How much longer ops take beside the pipeline, and what that leaves out."""
    sidecar, busy = context.trace.hosts[host].sidecar, busy_cores(context, host)
    cores = sidecar.environment.cores.usable_count if sidecar else None
    parts = [
        f"{words} {numbers.time(mean_ps(of_steps))}"
        for words, of_steps in (
            (f"the ops of {waiting.key} take", lost.ops_ps),
            ("the dispatch between ops takes", lost.dispatch_ps),
        )
        if of_steps.any()
    ]
    return (
        f"Ops in functions of the pipeline keep {numbers.number(busy)} of {cores} cores busy on average. While more threads have work than there are cores, "
        f"{' and '.join(parts)} longer per step than is usual, by the median of the same op; that is part of the cost. "
        "Ops that are always slowed are missed, so this is a lower estimate."
    )
