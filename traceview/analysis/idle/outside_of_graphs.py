"""Concludes that a run without GPUs runs the ops of its steps one by one, outside of any graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from traceview.analysis.base import Evidence, Finding
from traceview.analysis.cost import Cost, mean_ps
from traceview.analysis.idle.device_finding import finding_of
from traceview.analysis.idle.eager_ops import EagerOps, eager_ops
from traceview.analysis.idle.profiler_time import profiler_time
from traceview.analysis.idle.rules import HOST_BOUND, OUTSIDE_OF_GRAPHS
from traceview.analysis.idle.waiting_device import Waiting
from traceview.analysis.selection import Selection, step_bounds
from traceview.document import numbers
from traceview.intervals import Int64Array
from traceview.trace.cause import Cause
from traceview.trace.host_states import HostStates
from traceview.trace.model import Trace
from traceview.trace.state_timeline import complement

_EAGER_TITLE: Final = (
    "{count} ops per step run one by one outside of any tf.function, which takes {span} ({share})"
)
_AT_LEAST_TITLE: Final = _EAGER_TITLE.replace("takes {span}", "takes at least {span}")

_NOT_BETWEEN_OPS: Final = frozenset(
    (
        Cause.INPUT,
        Cause.COMPILE,
        Cause.SYNC,
        Cause.CHECKPOINT,
        Cause.CALLBACK,
        Cause.PEER,
        Cause.UNUSED,
    )
)
"""What keeps replicas idle for another reason than ops that run one by one."""


def diagnose_without_devices(trace: Trace, selection: Selection) -> Iterator[Finding]:
    """Steps without a graph on one CPU, where no event shows a device: what the host does between its ops."""
    for host in selection.windows:
        ops, steps = eager_ops(trace, selection, host), selection.used_of(host)
        if ops is None or ops.count_per_step < HOST_BOUND.limits["ops_per_step_count"]:
            continue
        between = _between_ops_ps(trace, host, ops, *step_bounds(steps))
        cost, recording = _unprofiled(trace, selection, host, ops, mean_ps(between))
        severity = HOST_BOUND.severity_of(cost.ratio or 0.0)
        if severity is None or cost.ps_per_step is None:
            continue
        span = f"{cost.words} without the profiler" if recording else cost.words
        name = trace.hosts[host].name
        yield HOST_BOUND.finding(
            _AT_LEAST_TITLE.format(
                count=numbers.count(ops.count_per_step), span=span, share=numbers.share(cost.ratio)
            ),
            _eager_evidence(ops, cost.ratio, name),
            severity="info" if selection.few_steps else severity,
            confidence=selection.few_steps or ("high", f"measured over {len(steps)} steps"),
            explanation=(
                f"Python calls each of them by itself, most often {numbers.listed(ops.types)}. The cost is a lower bound: "
                "the time of the step between the ops. A graph also merges ops, reuses memory and runs independent ops at "
                f"once; how much faster they are then does not show here.{recording}"
            ),
            advice=HOST_BOUND.advice_where[OUTSIDE_OF_GRAPHS],
            cost=cost,
        )


def outside_of_graphs(
    trace: Trace, waiting: Waiting, selection: Selection, host: int
) -> Iterator[Finding]:
    """Steps of a CPU-only run without a graph: replicas look idle while the host runs their ops."""
    rule, ops = HOST_BOUND, eager_ops(trace, selection, host)
    least_count = rule.limits["ops_per_step_count"]
    if ops is None or not waiting.has_steps or ops.count_per_step < least_count:
        return
    idle_ps = mean_ps(_beyond_a_graph(waiting, ops))
    ratio = waiting.cost(idle_ps).ratio or 0.0
    if rule.severity_of(ratio) is None:
        return
    yield finding_of(
        rule,
        waiting,
        idle_ps,
        _eager_evidence(ops, ratio, waiting.key),
        title=_EAGER_TITLE,
        words={"count": numbers.count(ops.count_per_step)},
        explanation=(
            f"Python calls each of them by itself, most often {numbers.listed(ops.types)}. On CPU devices the trace "
            "does not say for which replica, so their time is no compute here. The cost is the time between the ops, and "
            "of the ops themselves what replicas could run at the same time."
        ),
        advice=HOST_BOUND.advice_where[OUTSIDE_OF_GRAPHS],
    )


def _eager_evidence(ops: EagerOps, ratio: float | None, where: str) -> tuple[Evidence, ...]:
    limits = HOST_BOUND.limits
    return (
        Evidence("eager_ops_ratio", ratio or 0.0, limits["warning_ratio"], where),
        Evidence(
            "eager_ops_per_step", ops.count_per_step, int(limits["ops_per_step_count"]), where
        ),
    )


def _beyond_a_graph(waiting: Waiting, ops: EagerOps) -> Int64Array:
    """By step, what eager ops take longer than a graph would at best, in which the replicas run their ops at once."""
    between_ps = waiting.idle_ps[[cause not in _NOT_BETWEEN_OPS for cause in Cause]].sum(axis=0)
    replica_count = 1 + len(waiting.others)
    result: Int64Array = np.maximum(between_ps - ops.ps_of_steps // replica_count, 0)
    return result


def _between_ops_ps(
    trace: Trace, host: int, ops: EagerOps, start_ps: Int64Array, end_ps: Int64Array
) -> Int64Array:
    """By step, the time in which no op runs, without what the thread of the step does for another reason."""
    states = HostStates(trace, host)
    of_causes = states.timeline(states.caller).within(start_ps, end_ps)
    of_graph_ps = of_causes[[cause not in _NOT_BETWEEN_OPS for cause in Cause]].sum(axis=0)
    result: Int64Array = np.maximum(of_graph_ps - ops.ps_of_steps, 0)
    return result


def _unprofiled(
    trace: Trace, selection: Selection, host: int, ops: EagerOps, between_ps: int
) -> tuple[Cost, str]:
    """The cost without what the profiler took for its events, and a sentence that says so."""
    between = complement(ops.spans)
    spent = profiler_time(
        trace, selection, host, between.start, between.end, between.end - between.start
    )
    if spent is None:
        return selection.cost("mean", between_ps).as_bound("lower"), ""
    step_ps = (selection.mean_step_ps or 0) - spent.step_ps
    cost = Cost.per_step("mean", max(between_ps - spent.idle_ps, 0), step_ps)
    return cost.as_bound("lower"), f" {spent.sentence}"
