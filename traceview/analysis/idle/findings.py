"""Concludes from the idle time of each host which causes are worth a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.base import (
    FEWEST_STEPS,
    Confidence,
    Evidence,
    Finding,
    Severity,
)
from traceview.analysis.idle.blocking_ops import blocking_ops
from traceview.analysis.idle.eager_ops import eager_ops
from traceview.analysis.idle.first_call import FirstCall, first_call
from traceview.analysis.idle.result import Gap, Idle
from traceview.analysis.idle.retracing import Retraced, retraced_calls
from traceview.analysis.idle.rules import (
    CALLBACK_STALL,
    CHECKPOINT_STALL,
    COMPILE_IN_WINDOW,
    CPU_HEAVY_OP,
    D2H_SYNC,
    FIRST_CALL,
    HOST_BOUND,
    INPUT_BOUND,
    LAUNCH_BOUND,
    PYTHON_STALL,
    RETRACING,
    IdleRule,
)
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.intervals import Int64Array
from traceview.robust import median_ps
from traceview.trace.cause import Cause
from traceview.trace.model import Trace

AS_LONG_RATIO: Final = 0.8
"""A device that waits this share of the time of another waits as long."""

MOSTLY_IN_ONE_STEP_RATIO: Final = 0.5
"""A step with more than this of what a cause takes in all steps, three or more, is named in the title."""

_LISTED_CALLS: Final = 4


class _Waiting(Struct, frozen=True, eq=False):
    """The device of a host whose waiting makes steps longer: the one that is idle least.

    `idle_ps`: by cause and used step, int64 `[causes, steps]`; without steps one column for the whole window.
    `others`: the same of the other devices in use. `step_numbers`: of the columns. `step_ps`: the length that shares
    are of. `gaps`: its longest gaps.
    """

    device: int
    key: str
    is_replica: bool
    idle_ps: Int64Array
    others: Mapping[str, Int64Array]
    step_numbers: tuple[int, ...]
    step_ps: int
    gaps: tuple[Gap, ...]

    @property
    def has_steps(self) -> bool:
        """Whether times are per step, not of the whole window."""
        return bool(self.step_numbers)

    def cost_ps(self, rule: IdleRule) -> int:
        """What the cause of a rule costs a step."""
        of_steps = self.idle_ps[rule.cause]
        return (median_ps(of_steps) or 0) if rule.is_typical else int(of_steps.mean())

    def waiting_as_long(self, cause: Cause) -> list[str]:
        """The other devices that wait nearly as long for the same cause, or longer."""
        least_ps = AS_LONG_RATIO * float(self.idle_ps[cause].sum())
        return [key for key, idle_ps in self.others.items() if idle_ps[cause].sum() >= least_ps]

    def step_with_most(self, cause: Cause) -> int | None:
        """The number of the step with most of what a cause takes; None where it is spread over several."""
        of_steps = self.idle_ps[cause]
        is_spread = of_steps.max() <= MOSTLY_IN_ONE_STEP_RATIO * of_steps.sum()
        if len(self.step_numbers) < 3 or is_spread:
            return None
        return self.step_numbers[int(of_steps.argmax())]


def diagnose(
    trace: Trace, result: Idle, attribution: IdleAttribution, selection: Selection
) -> list[Finding]:
    """What devices wait for, for the device of each host that is idle least."""
    return [
        finding
        for host in selection.windows
        if (waiting := _waiting(trace, result, attribution, selection, host)) is not None
        for finding in _findings_of_host(trace, waiting, attribution, selection, host)
    ]


def _waiting(
    trace: Trace, result: Idle, attribution: IdleAttribution, selection: Selection, host: int
) -> _Waiting | None:
    devices = [
        device
        for device, gaps in attribution.gaps.items()
        if trace.device_list[device].host == host and not gaps.cause_ps[Cause.UNUSED].any()
    ]
    if not devices:
        return None
    used = np.array([step.excluded is None for step in selection.steps[host]], dtype=np.bool_)
    idle_ps = {device: attribution.causes_of_steps[device][:, used] for device in devices}
    step_ps = selection.median_step_ps
    if not used.any() or step_ps is None:
        idle_ps = {
            device: attribution.gaps[device].cause_ps.sum(axis=1, keepdims=True)
            for device in devices
        }
        step_ps = selection.windows[host].length_ps
    if step_ps == 0:
        return None
    device = min(devices, key=lambda device: int(idle_ps[device].sum()))
    key = trace.device_key(device)
    return _Waiting(
        device=device,
        key=key,
        is_replica=trace.device_list[device].kind == "replica",
        idle_ps=idle_ps.pop(device),
        others={trace.device_key(other): causes for other, causes in idle_ps.items()},
        step_numbers=tuple(step.number for step in selection.used_of(host)),
        step_ps=step_ps,
        gaps=next(row.gaps for row in result.devices if row.device == key),
    )


def _findings_of_host(
    trace: Trace,
    waiting: _Waiting,
    attribution: IdleAttribution,
    selection: Selection,
    host: int,
) -> Iterator[Finding]:
    for rule in (INPUT_BOUND, D2H_SYNC, CALLBACK_STALL, CHECKPOINT_STALL):
        yield from _by_cause(rule, waiting)
    if waiting.is_replica:
        outside = list(_outside_of_graphs(trace, waiting, selection, host))
        yield from outside or _by_cause(PYTHON_STALL, waiting)
    else:
        yield from _by_cause(PYTHON_STALL, waiting)
        yield from _by_cause(LAUNCH_BOUND, waiting)
        heavy_ops = list(_heavy_ops(trace, waiting, attribution, selection))
        yield from heavy_ops or _by_cause(HOST_BOUND, waiting)
    call = first_call(trace, attribution.states[host], selection, host)
    if call is not None and waiting.cost_ps(FIRST_CALL) >= (
        FIRST_CALL.limits["critical_ratio"] * waiting.step_ps
    ):
        yield _first_call(call, waiting)
        return
    retraced = retraced_calls(trace, selection, host)
    yield from _retracing(retraced, waiting) if retraced else _by_cause(COMPILE_IN_WINDOW, waiting)


def _first_call(call: FirstCall, waiting: _Waiting) -> Finding:
    types = f", most of them {numbers.listed(call.types)}" if call.types else ""
    copies = numbers.plural(call.copy_count, "constant")
    return _finding(
        FIRST_CALL,
        waiting,
        waiting.cost_ps(FIRST_CALL),
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


def _by_cause(rule: IdleRule, waiting: _Waiting) -> Iterator[Finding]:
    cost_ps = waiting.cost_ps(rule)
    ratio = cost_ps / waiting.step_ps
    severity = rule.severity_of(ratio)
    if severity is not None:
        metric = f"idle_{rule.cause.key}_ratio"
        evidence = Evidence(metric, ratio, rule.limits["warning_ratio"], waiting.key)
        yield _finding(rule, waiting, cost_ps, [evidence], severity=severity)


def _heavy_ops(
    trace: Trace, waiting: _Waiting, attribution: IdleAttribution, selection: Selection
) -> Iterator[Finding]:
    rule, step_count = CPU_HEAVY_OP, waiting.idle_ps.shape[1]
    for op in blocking_ops(trace, attribution, selection, waiting.device):
        cost_ps = op.idle_ps // step_count
        ratio = cost_ps / waiting.step_ps
        if rule.severity_of(ratio) is not None:
            yield _finding(
                rule,
                waiting,
                cost_ps,
                (
                    Evidence("cpu_op_idle_ratio", ratio, rule.limits["warning_ratio"], waiting.key),
                    Evidence("op", op.name, None, f"thread {op.thread}"),
                ),
                words={"op": op.type},
                explanation=(
                    f"{op.name} ran {numbers.plural(op.count, 'time')} on the CPU while the device had nothing "
                    "to do."
                ),
            )


def _outside_of_graphs(
    trace: Trace, waiting: _Waiting, selection: Selection, host: int
) -> Iterator[Finding]:
    """Steps of a CPU-only run without a graph: replicas look idle while the host runs their ops."""
    rule, ops = HOST_BOUND, eager_ops(trace, selection, host)
    least_count = rule.limits["ops_per_step_count"]
    if ops is None or not waiting.has_steps or ops.count_per_step < least_count:
        return
    ops_ratio = min(ops.ps_per_step, waiting.cost_ps(rule)) / waiting.step_ps
    if rule.severity_of(ops_ratio) is None:
        return
    between_ps = waiting.idle_ps[[Cause.HOST_COMPUTE, Cause.PYTHON]].sum(axis=0)
    count = numbers.count(ops.count_per_step)
    yield _finding(
        rule,
        waiting,
        median_ps(between_ps) or 0,
        (
            Evidence("eager_ops_ratio", ops_ratio, rule.limits["warning_ratio"], waiting.key),
            Evidence("eager_ops_per_step", ops.count_per_step, int(least_count), waiting.key),
        ),
        title=f"{count} ops per step run one by one outside of any tf.function: {{span}} ({{share}})",
        explanation=(
            f"The host runs them from Python, most often {numbers.listed(ops.types)}. On CPU devices the trace does "
            "not say for which replica, so this report does not count the time as compute. The cost is an upper "
            "bound: all that the host does between the ops of the replicas, with the work of the ops themselves."
        ),
        advice=(
            "Put the step into a graph: @tf.function on the function that calls strategy.run; in Keras "
            "run_eagerly=False."
        ),
    )


def _retracing(retraced: Sequence[Retraced], waiting: _Waiting) -> Iterator[Finding]:
    yield _finding(
        RETRACING,
        waiting,
        waiting.cost_ps(RETRACING),
        [
            Evidence("traced_call_count", call.count, None, call.where)
            for call in retraced[:_LISTED_CALLS]
        ],
        words={
            "functions": numbers.listed([call.function for call in retraced], 3),
            "times": numbers.plural(sum(call.count for call in retraced), "time"),
        },
    )


# Findings of one device


def _finding(
    rule: IdleRule,
    waiting: _Waiting,
    cost_ps: int,
    evidence: Sequence[Evidence],
    *,
    severity: Severity | None = None,
    title: str | None = None,
    words: Mapping[str, str] | None = None,
    explanation: str | None = None,
    advice: str | None = None,
    confidence: tuple[Confidence, str] | None = None,
) -> Finding:
    """A finding with the share of the step and the longest gap. `words`: for `title`, besides those of every title."""
    ratio = cost_ps / waiting.step_ps
    confidence = confidence or _confidence(waiting)
    devices = waiting.waiting_as_long(rule.cause)
    if devices:
        verb = "waits" if len(devices) == 1 else "wait"
        explanation = (
            f"{explanation or rule.meaning} {numbers.listed(devices)} {verb} as long or longer."
        )
    return rule.finding(
        (title or rule.title).format(
            device=waiting.key,
            span=_span(rule, waiting, cost_ps),
            share=numbers.share(ratio),
            **(words or {}),
        )
        + _main_step(rule, waiting, cost_ps),
        (*evidence, *_longest_gap(waiting, rule.cause)),
        severity="info" if confidence[0] == "low" else severity,
        confidence=confidence,
        explanation=explanation,
        advice=advice,
        devices=(waiting.key, *devices),
        cost_ps_per_step=cost_ps if waiting.has_steps else None,
        cost_ratio=ratio,
    )


def _span(rule: IdleRule, waiting: _Waiting, cost_ps: int) -> str:
    """How much of what a device waits."""
    time, whole = numbers.time(cost_ps), numbers.time(waiting.step_ps)
    if not waiting.has_steps:
        return f"{time} of {whole}"
    return f"{time} of each {whole} step" if rule.is_typical else f"{time} per step on average"


def _main_step(rule: IdleRule, waiting: _Waiting, cost_ps: int) -> str:
    """The step with most of what a cause costs: a mean says little of the others then."""
    if rule.is_typical or cost_ps != waiting.cost_ps(rule):
        return ""
    number = waiting.step_with_most(rule.cause)
    return "" if number is None else f", most of it in step {number}"


def _longest_gap(waiting: _Waiting, cause: Cause) -> Iterator[Evidence]:
    """The longest gap of that cause, and the host event in it."""
    gap = next((gap for gap in waiting.gaps if gap.cause == cause.key), None)
    if gap is None:
        return
    where = "outside of steps" if gap.step is None else f"step {gap.step}"
    yield Evidence("longest_gap_ps", gap.duration_ps, None, where)
    if gap.host_event is not None:
        yield Evidence("host_event", gap.host_event, None, f"thread {gap.thread}")


def _confidence(waiting: _Waiting) -> tuple[Confidence, str]:
    if not waiting.has_steps:
        return "low", "no steps were found, so shares are of the whole window"
    if len(waiting.step_numbers) < FEWEST_STEPS:
        return "low", "only one step was measured"
    unknown_ps = int(waiting.idle_ps[Cause.UNATTRIBUTED].sum())
    idle_ps = int(waiting.idle_ps.sum())
    if unknown_ps * 2 > idle_ps:
        return (
            "medium",
            f"{numbers.share(unknown_ps / idle_ps)} of the idle time has no recorded cause",
        )
    return "high", f"attributed from host events over {len(waiting.step_numbers)} steps"
