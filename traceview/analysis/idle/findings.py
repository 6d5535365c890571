"""Concludes from the idle time of each host which causes are worth a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from traceview.analysis.base import (
    Evidence,
    Finding,
)
from traceview.analysis.cost import Cost, mean_ps
from traceview.analysis.idle.blocking_ops import blocking_ops
from traceview.analysis.idle.device_finding import finding_of
from traceview.analysis.idle.first_call import FirstCall, first_call
from traceview.analysis.idle.ops_between_steps import OpsBetweenSteps, ops_between_steps
from traceview.analysis.idle.outside_of_graphs import outside_of_graphs
from traceview.analysis.idle.profiler_time import PROFILER_PS, profiler_time
from traceview.analysis.idle.result import Idle
from traceview.analysis.idle.retracing import Retraced, retraced_calls
from traceview.analysis.idle.rules import (
    CALLBACK_STALL,
    CHECKPOINT_STALL,
    COMPILE_IN_WINDOW,
    CPU_HEAVY_OP,
    CPU_OPS,
    D2H_SYNC,
    FIRST_CALL,
    HOST_BOUND,
    LAUNCH_BOUND,
    MANY_SMALL_OPS,
    PYTHON_STALL,
    RETRACING,
    VALIDATION_STALL,
    IdleRule,
)
from traceview.analysis.idle.waiting_device import Waiting, waiting_device
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.document.vocabulary import CAUSES, look_of, thread_words
from traceview.trace.cause import Cause
from traceview.trace.model import Trace

_LISTED_CALLS: Final = 4

_TRACED_BY: Final[Mapping[tuple[str, ...], tuple[str | None, str | None]]] = {
    ("python",): (
        "Its graphs differ in a value of Python, such as a number.",
        (
            "Pass a tensor instead of a Python number: tf.constant(number), or a tf.Variable that the loop assigns. One graph then "
            "serves every value. reduce_retracing=True does not help here."
        ),
    ),
    ("shape",): (
        "Its graphs differ in the shape of a tensor.",
        (
            "Let one graph serve every shape: tf.function(train_step, reduce_retracing=True), or an input_signature with None for each "
            "size that changes. Or give all batches one shape: dataset.batch(n, drop_remainder=True) if only the last one is "
            "smaller, else padding to few lengths."
        ),
    ),
}
"""By what differs between the graphs of all functions that were traced again: a sentence, and what to change."""

_WITH_PYTHON: Final = CHECKPOINT_STALL.title.replace(
    "checkpoints", "checkpoints and the Python around them"
)
_AROUND_A_SAVE: Final = "Tables of idle time show the Python around a save as Python between steps."


def diagnose(
    trace: Trace, result: Idle, attribution: IdleAttribution, selection: Selection
) -> list[Finding]:
    """What devices wait for, for the device of each host that is idle least."""
    return [
        finding
        for host in selection.windows
        if (waiting := waiting_device(trace, result, attribution, selection, host)) is not None
        for finding in _findings_of_host(trace, waiting, attribution, selection, host)
    ]


def _findings_of_host(
    trace: Trace,
    waiting: Waiting,
    attribution: IdleAttribution,
    selection: Selection,
    host: int,
) -> Iterator[Finding]:
    yield from _by_cause(D2H_SYNC, waiting)
    ops = ops_between_steps(trace, waiting, attribution.states[host], selection, host)
    yield from _by_cause(CALLBACK_STALL, waiting, ops)
    yield from _saves(waiting)
    yield from _evaluation(waiting)
    if waiting.is_replica:
        outside = list(outside_of_graphs(trace, waiting, selection, host))
        yield from outside or (
            *_by_cause(PYTHON_STALL, waiting),
            *_between_ops(trace, waiting, attribution),
        )
    else:
        yield from _by_cause(PYTHON_STALL, waiting)
        yield from _by_cause(LAUNCH_BOUND, waiting)
        heavy_ops = list(_heavy_ops(trace, waiting, attribution, selection))
        yield from heavy_ops or _by_cause(HOST_BOUND, waiting)
    call = first_call(trace, attribution.states[host], selection, host)
    ratio = waiting.cost(waiting.idle_of(FIRST_CALL)).ratio or 0.0
    if call is not None and ratio >= FIRST_CALL.limits["critical_ratio"]:
        yield _first_call(call, waiting)
        return
    retraced = retraced_calls(trace, selection, host)
    yield from _retracing(retraced, waiting) if retraced else _by_cause(COMPILE_IN_WINDOW, waiting)


def _first_call(call: FirstCall, waiting: Waiting) -> Finding:
    types = f", most of them {numbers.listed(call.types)}" if call.types else ""
    copies = numbers.plural(call.copy_count, "constant")
    return finding_of(
        FIRST_CALL,
        waiting,
        waiting.idle_of(FIRST_CALL),
        [
            Evidence("constant_copy_count", call.copy_count, None, waiting.key),
            Evidence("kernel_count", call.kernel_count, None, "all devices"),
        ],
        severity="critical",
        confidence=("high", "only the preparation of a graph copies its constants"),
        explanation=(
            f"{FIRST_CALL.meaning} The host copied {copies} to devices meanwhile; the devices ran "
            f"{numbers.plural(call.kernel_count, 'kernel')}{types}."
        ),
    )


def _by_cause(
    rule: IdleRule, waiting: Waiting, ops: OpsBetweenSteps | None = None
) -> Iterator[Finding]:
    idle_ps = waiting.idle_of(rule)
    ratio = waiting.cost(idle_ps).ratio or 0.0
    severity = rule.severity_of(ratio)
    if severity is not None:
        metric, title = f"idle_{rule.cause.key}_ratio", None
        if rule is CALLBACK_STALL and waiting.has_other_python:
            metric, title = "other_callback_ratio", rule.title.replace("for", "for other", 1)
        evidence = Evidence(metric, ratio, rule.limits["warning_ratio"], waiting.key)
        meaning = CPU_OPS if rule is HOST_BOUND else None
        yield finding_of(
            rule,
            waiting,
            idle_ps,
            [evidence, *(ops.evidence(waiting.key) if ops else ())],
            severity=severity,
            of_steps=waiting.idle_ps[rule.cause],
            title=title,
            explanation=f"{rule.meaning} {ops.sentence}" if ops else meaning,
            advice=ops.advice if ops else None,
        )


def _saves(waiting: Waiting) -> Iterator[Finding]:
    """Saves and the Python around them, which tables of idle time show as Python between steps."""
    rule, of_steps = CHECKPOINT_STALL, waiting.idle_ps[CHECKPOINT_STALL.cause]
    if not waiting.around_saves_ps.any():
        yield from _by_cause(rule, waiting)
        return
    idle_ps, python_ps = mean_ps(of_steps), mean_ps(waiting.around_saves_ps)
    saving_ps = mean_ps(of_steps - waiting.around_saves_ps)
    ratio = waiting.cost(idle_ps).ratio or 0.0
    severity = rule.severity_of(ratio)
    if severity is not None:
        yield finding_of(
            rule,
            waiting,
            idle_ps,
            [
                Evidence("checkpoint_ratio", ratio, rule.limits["warning_ratio"], waiting.key),
                Evidence("saving_ps", saving_ps, None, waiting.key),
                Evidence("saving_python_ps", python_ps, None, waiting.key),
            ],
            severity=severity,
            of_steps=of_steps,
            title=_WITH_PYTHON,
            explanation=f"{rule.meaning} {_AROUND_A_SAVE}",
            parts=[
                (look_of(CAUSES, Cause.CHECKPOINT.key).words, saving_ps),
                ("Python around them", python_ps),
            ],
        )


def _evaluation(waiting: Waiting) -> Iterator[Finding]:
    """An evaluation costs its whole time, for a device that is busy with it does not train."""
    rule, of_steps = VALIDATION_STALL, waiting.evaluation_ps
    if not of_steps.any():
        return
    idle_ps = mean_ps(of_steps)
    ratio = waiting.cost(idle_ps).ratio or 0.0
    severity = rule.severity_of(ratio)
    if severity is not None:
        evidence = Evidence("evaluation_ratio", ratio, rule.limits["warning_ratio"], waiting.key)
        yield finding_of(
            rule,
            waiting,
            idle_ps,
            [evidence],
            severity=severity,
            of_steps=of_steps,
            # Not what is said of other Python between steps.
            explanation=rule.meaning,
        )


def _heavy_ops(
    trace: Trace, waiting: Waiting, attribution: IdleAttribution, selection: Selection
) -> Iterator[Finding]:
    rule, step_count = CPU_HEAVY_OP, waiting.idle_ps.shape[1]
    for op in blocking_ops(trace, attribution, selection, waiting.device):
        idle_ps = op.idle_ps // step_count
        ratio = waiting.cost(idle_ps).ratio or 0.0
        if rule.severity_of(ratio) is not None:
            yield finding_of(
                rule,
                waiting,
                idle_ps,
                (
                    Evidence("cpu_op_idle_ratio", ratio, rule.limits["warning_ratio"], waiting.key),
                    Evidence("op", op.name, None, thread_words(op.thread)),
                ),
                words={"op": op.type},
                explanation=(
                    f"{op.name} ran {numbers.plural(op.count, 'time')} on the CPU while the device had nothing "
                    "to do."
                ),
            )


def _between_ops(trace: Trace, waiting: Waiting, attribution: IdleAttribution) -> Iterator[Finding]:
    """A step in a graph whose replicas wait for the host between ops: information, for short steps always do."""
    rule, idle_ps = HOST_BOUND, waiting.idle_of(HOST_BOUND)
    cost, recording, metric = waiting.cost(idle_ps), "", "idle_host_compute_ratio"
    of_profiler: list[Evidence] = []
    title = "{device} waits {span} while the host dispatches ops ({share})"
    host = trace.device_list[waiting.device].host
    gaps = attribution.gaps[waiting.device]
    spent = profiler_time(
        trace, waiting.selection, host, gaps.start_ps, gaps.end_ps, gaps.of_cause(HOST_BOUND.cause)
    )
    if spent is not None and cost.ps_per_step is not None:
        recorded_ps, idle_ps = idle_ps, max(idle_ps - spent.idle_ps, 0)
        whole = (
            f"{numbers.time(recorded_ps)} of {numbers.time(waiting.selection.mean_step_ps or 0)}"
        )
        title = f"without the profiler {{device}} would wait about {{span}} while the host dispatches ops ({{share}}); recorded: {whole}"
        step_ps = (waiting.selection.mean_step_ps or 0) - spent.step_ps
        cost = Cost.per_step("mean", idle_ps, step_ps)
        metric = "unprofiled_dispatch_ratio"
        of_profiler = [Evidence(PROFILER_PS, spent.idle_ps, None, waiting.key)]
        recording = f" {spent.sentence}"
    ratio, least_ratio = cost.ratio or 0.0, rule.limits["replica_ratio"]
    if ratio >= least_ratio:
        yield finding_of(
            rule,
            waiting,
            idle_ps,
            [Evidence(metric, ratio, least_ratio, waiting.key), *of_profiler],
            severity="info",
            title=title,
            explanation=(
                "The host dispatches ops one by one, or converts values for them, while the replica runs none. Steps "
                f"of a few milliseconds and ops that work row by row show this.{recording}"
            ),
            advice=rule.advice_where[MANY_SMALL_OPS],
            cost=cost,
        )


def _retracing(retraced: Sequence[Retraced], waiting: Waiting) -> Iterator[Finding]:
    causes = {call.traced_by for call in retraced if call.traced_by}
    why, advice = _TRACED_BY.get(causes.pop() if len(causes) == 1 else (), (None, None))
    yield finding_of(
        RETRACING,
        waiting,
        waiting.idle_of(RETRACING),
        [
            Evidence("traced_call_count", call.count, None, call.where)
            for call in retraced[:_LISTED_CALLS]
        ],
        of_steps=waiting.idle_ps[RETRACING.cause],
        words={
            "functions": numbers.listed([call.function for call in retraced], 3),
            "times": numbers.plural(sum(call.count for call in retraced), "time"),
        },
        explanation=f"{RETRACING.meaning} {why}" if why else None,
        advice=advice,
    )
