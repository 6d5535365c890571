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
from traceview.analysis.cost import Cost, mean_ps
from traceview.analysis.idle.between_markers import between_markers
from traceview.analysis.idle.blocking_ops import blocking_ops
from traceview.analysis.idle.eager_ops import EagerOps, eager_ops
from traceview.analysis.idle.first_call import FirstCall, first_call
from traceview.analysis.idle.profiler_time import profiler_time
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
    LAUNCH_BOUND,
    PYTHON_STALL,
    RETRACING,
    VALIDATION_STALL,
    IdleRule,
)
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.idle_python import PythonShare
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.intervals import Int64Array
from traceview.trace.cause import Cause
from traceview.trace.model import Trace

AS_LONG_RATIO: Final = 0.8
"""A device that waits this share of the time of another waits as long."""

AFFECTED_RATIO: Final = 0.2
"""A step with this share of the most that a cause takes in any step is affected by it."""

_FEWEST_TO_COMPARE: Final = 3
"""Of fewer steps none is told from the others."""

_LISTED_CALLS: Final = 4

_EAGER_TITLE: Final = (
    "{count} ops per step run one by one outside of any tf.function, which takes {span} ({share})"
)
_EAGER_ADVICE: Final = "Put the step into a graph: run_eagerly=False in Keras, or @tf.function on the function that runs the step."

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


class _Affected(Struct, frozen=True):
    """The numbers of the steps that something makes longer, and their mean cost."""

    steps: tuple[int, ...]
    ps: int


class Waiting(Struct, frozen=True, eq=False):
    """The device of a host whose waiting makes steps longer: the one that is idle least.

    `idle_ps`: by cause and used step, int64 `[causes, steps]`; without steps one column for the whole window.
    `others`: the same of the other devices in use. `evaluation_ps`: by step, how long the host evaluates between
    markers. `step_numbers`: of the columns. `window_ps`: the length of the window. `gaps`: its longest gaps.
    `python`: the Python that ran in its idle time, by cause.
    """

    device: int
    key: str
    is_replica: bool
    idle_ps: Int64Array
    others: Mapping[str, Int64Array]
    step_numbers: tuple[int, ...]
    window_ps: int
    selection: Selection
    evaluation_ps: Int64Array
    gaps: tuple[Gap, ...]
    python: Mapping[str, PythonShare]

    @property
    def has_steps(self) -> bool:
        """Whether times are per step, not of the whole window."""
        return bool(self.step_numbers)

    def idle_of(self, rule: IdleRule) -> int:
        """The idle time by the cause of a rule, mean over the steps, without steps all of it."""
        return mean_ps(self.idle_ps[rule.cause])

    def cost(self, idle_ps: int) -> Cost:
        """What so much idle time per step costs."""
        if not self.has_steps:
            return Cost.of_window(idle_ps / self.window_ps)
        return self.selection.cost("mean", idle_ps)

    def waiting_as_long(self, cause: Cause) -> list[str]:
        """The other devices that wait nearly as long for the same cause, or longer."""
        least_ps = AS_LONG_RATIO * float(self.idle_ps[cause].sum())
        return [key for key, idle_ps in self.others.items() if idle_ps[cause].sum() >= least_ps]

    def affected(self, of_steps: Int64Array) -> _Affected | None:
        """The steps that take a cost which most steps do not have; None where no step differs so."""
        is_affected = of_steps >= max(AFFECTED_RATIO * int(of_steps.max()), 1)
        count = int(is_affected.sum())
        if len(self.step_numbers) < _FEWEST_TO_COMPARE or not 0 < 2 * count <= of_steps.size:
            return None
        chosen = zip(self.step_numbers, is_affected.tolist(), strict=True)
        return _Affected(
            tuple(number for number, is_one in chosen if is_one),
            int(of_steps[is_affected].sum()) // count,
        )


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


def diagnose_without_devices(trace: Trace, selection: Selection) -> Iterator[Finding]:
    """Steps without a graph on one CPU, where no event shows a device: what the host does beside its ops."""
    for host in selection.windows:
        ops, steps = eager_ops(trace, selection, host), selection.used_of(host)
        if ops is None or ops.count_per_step < HOST_BOUND.limits["ops_per_step_count"]:
            continue
        lengths = np.array([step.duration_ps for step in steps], dtype=np.int64)
        cost = selection.cost("mean", mean_ps(lengths - ops.ps_of_steps))
        severity = HOST_BOUND.severity_of(cost.ratio or 0.0)
        if severity is None or cost.ps_per_step is None:
            continue
        span = cost.words
        name = trace.hosts[host].name
        yield HOST_BOUND.finding(
            _EAGER_TITLE.format(
                count=numbers.count(ops.count_per_step), span=span, share=numbers.share(cost.ratio)
            ),
            _eager_evidence(ops, cost.ratio, name),
            severity="info" if selection.few_steps else severity,
            confidence=selection.few_steps or ("high", f"measured over {len(steps)} steps"),
            explanation=(
                f"Python calls each of them by itself, most often {numbers.listed(ops.types)}. The cost is an upper "
                "bound: all time of the step in which no op runs."
            ),
            advice=_EAGER_ADVICE,
            cost=cost,
        )


def waiting_device(
    trace: Trace, result: Idle, attribution: IdleAttribution, selection: Selection, host: int
) -> Waiting | None:
    """The device of a host that is idle least; None without a device at work or without any time."""
    devices = [
        device
        for device, gaps in attribution.gaps.items()
        if trace.device_list[device].host == host and Cause.UNUSED not in gaps.by_cause
    ]
    if not devices:
        return None
    used = np.array([step.excluded is None for step in selection.steps[host]], dtype=np.bool_)
    idle_ps = {device: attribution.causes_of_steps[device][:, used] for device in devices}
    window_ps = selection.windows[host].length_ps
    if not used.any():
        idle_ps = {device: attribution.gaps[device].total_ps[:, np.newaxis] for device in devices}
    if window_ps == 0:
        return None
    between = between_markers(trace, attribution.states[host], selection, host)
    if used.any():
        # Python around a save or in an evaluation is a part of it.
        for causes in idle_ps.values():
            causes[Cause.CHECKPOINT] += np.where(between.is_saving, causes[Cause.CALLBACK], 0)
            causes[Cause.CALLBACK, between.is_saving | (between.evaluation_ps > 0)] = 0
    device = min(devices, key=lambda device: int(idle_ps[device].sum()))
    key = trace.device_key(device)
    row = next(row for row in result.devices if row.device == key)
    return Waiting(
        device=device,
        key=key,
        is_replica=trace.device_list[device].kind == "replica",
        idle_ps=idle_ps.pop(device),
        others={trace.device_key(other): causes for other, causes in idle_ps.items()},
        step_numbers=tuple(step.number for step in selection.used_of(host)),
        window_ps=window_ps,
        selection=selection,
        evaluation_ps=between.evaluation_ps,
        gaps=row.gaps,
        python=row.python,
    )


def _findings_of_host(
    trace: Trace,
    waiting: Waiting,
    attribution: IdleAttribution,
    selection: Selection,
    host: int,
) -> Iterator[Finding]:
    for rule in (D2H_SYNC, CALLBACK_STALL, CHECKPOINT_STALL):
        yield from _by_cause(rule, waiting)
    yield from _evaluation(waiting)
    if waiting.is_replica:
        outside = list(_outside_of_graphs(trace, waiting, selection, host))
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


def _by_cause(rule: IdleRule, waiting: Waiting) -> Iterator[Finding]:
    idle_ps = waiting.idle_of(rule)
    ratio = waiting.cost(idle_ps).ratio or 0.0
    severity = rule.severity_of(ratio)
    if severity is not None:
        metric = f"idle_{rule.cause.key}_ratio"
        evidence = Evidence(metric, ratio, rule.limits["warning_ratio"], waiting.key)
        of_steps = waiting.idle_ps[rule.cause]
        yield finding_of(rule, waiting, idle_ps, [evidence], severity=severity, of_steps=of_steps)


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
        yield finding_of(rule, waiting, idle_ps, [evidence], severity=severity, of_steps=of_steps)


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
                    Evidence("op", op.name, None, f"thread {op.thread}"),
                ),
                words={"op": op.type},
                explanation=(
                    f"{op.name} ran {numbers.plural(op.count, 'time')} on the CPU while the device had nothing "
                    "to do."
                ),
            )


def _outside_of_graphs(
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
            "does not say for which replica, so their time is no compute here. The cost is an upper bound: the time "
            "between the ops, and of the ops themselves what replicas could run at the same time."
        ),
        advice=_EAGER_ADVICE,
    )


def _between_ops(trace: Trace, waiting: Waiting, attribution: IdleAttribution) -> Iterator[Finding]:
    """A step in a graph whose replicas wait for the host between ops: information, for short steps always do."""
    rule, idle_ps = HOST_BOUND, waiting.idle_of(HOST_BOUND)
    cost, recording = waiting.cost(idle_ps), ""
    spent = profiler_time(trace, attribution, waiting.selection, waiting.device)
    if spent is not None and cost.ps_per_step is not None:
        idle_ps = max(idle_ps - spent.idle_ps, 0)
        step_ps = (waiting.selection.mean_step_ps or 0) - spent.step_ps
        cost = Cost.per_step("mean", idle_ps, step_ps)
        recording = (
            f" The profiler recorded {numbers.plural(spent.event_count, 'event')} per step, which took "
            f"{numbers.time(spent.step_ps)} of it. The cost leaves that out, and is a share of the step without it."
        )
    ratio, least_ratio = cost.ratio or 0.0, rule.limits["replica_ratio"]
    if ratio >= least_ratio:
        yield finding_of(
            rule,
            waiting,
            idle_ps,
            [Evidence("idle_host_compute_ratio", ratio, least_ratio, waiting.key)],
            severity="info",
            title="{device} waits {span} while the host dispatches ops ({share})",
            explanation=(
                "The host dispatches ops one by one, or converts values for them, while the replica runs none. Steps "
                f"of a few milliseconds and ops that work row by row show this.{recording}"
            ),
            advice=(
                "Run fewer and larger ops in each step: a larger batch, ops on whole batches instead of tf.map_fn and "
                "loops over rows. Convert large constants once, with tf.constant before the loop."
            ),
            cost=cost,
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


def _retracing(retraced: Sequence[Retraced], waiting: Waiting) -> Iterator[Finding]:
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
    )


# Findings of one device


def finding_of(
    rule: IdleRule,
    waiting: Waiting,
    idle_ps: int,
    evidence: Sequence[Evidence],
    *,
    severity: Severity | None = None,
    of_steps: Int64Array | None = None,
    title: str | None = None,
    words: Mapping[str, str] | None = None,
    explanation: str | None = None,
    advice: str | None = None,
    confidence: tuple[Confidence, str] | None = None,
    path_causes: Sequence[str] | None = None,
    names_all: bool = False,
    cost: Cost | None = None,
) -> Finding:
    """A finding with the share of the step and the longest gap.

    `cost`: where it is not just the idle time over the step.

    `names_all`: the title names all devices that wait. `of_steps`: the cost by step, of what need not occur in all. `words`: for `title`, besides those of every title.
    """
    affected = None if of_steps is None else waiting.affected(of_steps)
    cost = cost or waiting.cost(idle_ps)
    confidence = confidence or _confidence(waiting)
    devices = waiting.waiting_as_long(rule.cause)
    if devices and not names_all:
        verb = "waits" if len(devices) == 1 else "wait"
        explanation = (
            f"{explanation or rule.meaning} {numbers.joined_devices(devices)} {verb} for the same reason, at "
            f"least {numbers.share(AS_LONG_RATIO)} as long."
        )
    python = waiting.python.get(rule.cause.key)
    if python is not None:
        explanation = f"{explanation or rule.meaning} {python.sentence}"
    return rule.finding(
        (title or rule.title).format(
            device=waiting.key,
            span=_span(waiting, idle_ps, cost),
            share=numbers.share(cost.ratio),
            **(words or {}),
        )
        + _in_steps(waiting, affected),
        (
            *evidence,
            *_of_affected(waiting, affected),
            *([python.evidence] if python else []),
            *_longest_gap(waiting, rule.cause),
        ),
        severity="info" if confidence[0] == "low" else severity,
        confidence=confidence,
        explanation=explanation,
        advice=advice,
        devices=(waiting.key, *devices),
        steps=affected.steps if affected else (),
        cost=cost,
        path_causes=path_causes,
    )


def _span(waiting: Waiting, idle_ps: int, cost: Cost) -> str:
    """How much of what a device waits."""
    if cost.statistic is None:
        return f"{numbers.time(idle_ps)} of the {numbers.time(waiting.window_ps)} window"
    return cost.words


def _in_steps(waiting: Waiting, affected: _Affected | None) -> str:
    """What an affected step takes, for a mean says little of it."""
    if affected is None:
        return ""
    time, count = numbers.time(affected.ps), len(affected.steps)
    if count == 1:
        return f"; {time} in step {affected.steps[0]}"
    return f"; {time} each in {count} of {len(waiting.step_numbers)} steps"


def _of_affected(waiting: Waiting, affected: _Affected | None) -> Iterator[Evidence]:
    if affected is not None:
        count = numbers.plural(len(waiting.step_numbers), "used step")
        yield Evidence("affected_step_count", len(affected.steps), None, f"of {count}")
        yield Evidence("affected_step_cost_ps", affected.ps, None, waiting.key)


def _longest_gap(waiting: Waiting, cause: Cause) -> Iterator[Evidence]:
    """The longest gap of that cause, and the host event in it."""
    gap = next((gap for gap in waiting.gaps if gap.cause == cause.key), None)
    if gap is None:
        return
    where = "outside of steps" if gap.step is None else f"step {gap.step}"
    yield Evidence("longest_gap_ps", gap.duration_ps, None, where)
    if gap.host_event is not None:
        yield Evidence("host_event", gap.host_event, None, f"thread {gap.thread}")


def _confidence(waiting: Waiting) -> tuple[Confidence, str]:
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
