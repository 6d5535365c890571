"""Which causes of idle time cost enough to be changed?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from traceview.analysis.base import Confidence, Evidence, Finding, Severity, Skipped
from traceview.analysis.idle.blocking_ops import BlockingOp, blocking_ops
from traceview.analysis.idle.eager_ops import eager_ops
from traceview.analysis.idle.result import Idle
from traceview.analysis.idle.retracing import Retraced, retraced_calls
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.intervals import Int64Array
from traceview.robust import median_ps
from traceview.trace.cause import Cause
from traceview.trace.model import Trace

# Thresholds: shares of the median step (METRICS section 12; 0.20 and 0.05 are XProf's for input).
INPUT_BOUND: Final = (0.05, 0.20)
SYNC: Final = 0.05
LAUNCH_BOUND: Final = (0.10, 0.30)
HOST_BOUND: Final = 0.10
EAGER_OPS: Final = 100
"""Ops that run one by one in a step of a CPU-only run: from so many on the step is no graph; our own choice."""
CPU_HEAVY_OP: Final = 0.05
CALLBACK: Final = 0.05
CHECKPOINT: Final = 0.05
COMPILE: Final = 0.05
ALIKE: Final = 0.8
"""Another device whose waiting is this share of it waits as long."""
FEWEST_STEPS: Final = 2
"""Findings about speed from fewer used steps are information only."""
MOSTLY_IN_ONE: Final = 0.5
"""A step that holds more than this of what a cause takes in all steps, three or more, is named in the title."""


@dataclass(frozen=True)
class _Rule:
    """When one cause becomes a finding. `is_typical`: the median step counts, else the mean of all."""

    code: str
    cause: Cause
    warning: float
    critical: float | None
    is_typical: bool
    for_replicas: bool
    title: str
    explanation: str
    advice: str


_RULES: Final = (
    _Rule(
        "input-bound",
        Cause.INPUT,
        *INPUT_BOUND,
        is_typical=True,
        for_replicas=True,
        title="{device} waits {time} of each {step} step for input ({share})",
        explanation=(
            "The thread that runs the step asked for the next batch and got it late, with nothing left on the "
            "device to run meanwhile."
        ),
        advice=(
            "Let the pipeline run ahead of the step: dataset = dataset.map(f, "
            "num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE). traceview input names the stage "
            "that is slow."
        ),
    ),
    _Rule(
        "d2h-sync",
        Cause.SYNC,
        SYNC,
        None,
        is_typical=False,
        for_replicas=True,
        title="{device} is idle {time} of each {step} step while the host waits for a value ({share})",
        explanation=(
            "The host blocked until the device had finished, so nothing was queued behind it and the device "
            "ran dry."
        ),
        advice=(
            "Read results less often, and not in the step: if step % 100 == 0: print(float(loss)); keep "
            "metrics on the device (tf.keras.metrics) and read them at the end of an epoch."
        ),
    ),
    _Rule(
        "launch-bound",
        Cause.LAUNCH,
        *LAUNCH_BOUND,
        is_typical=True,
        for_replicas=False,
        title="{device} waits {time} of each {step} step for launches ({share})",
        explanation=(
            "The host launches ops one after the other more slowly than the device runs them: many small "
            "kernels, or Python between them."
        ),
        advice=(
            "Launch fewer and larger kernels: @tf.function(jit_compile=True) on the step, a larger batch per "
            "replica, steps_per_execution=10 in compile(); set TF_GPU_THREAD_MODE=gpu_private if executor "
            "threads compete."
        ),
    ),
    _Rule(
        "callback-stall",
        Cause.CALLBACK,
        CALLBACK,
        None,
        is_typical=False,
        for_replicas=True,
        title="{device} is idle {time} per {step} step between steps ({share})",
        explanation=(
            "The host was between step markers: Python callbacks, logging, metrics or evaluation ran while no "
            "step was in flight."
        ),
        advice=(
            "Do it less often or elsewhere: save_freq and update_freq of Keras callbacks, "
            "if step % 100 == 0: log(...), a thread for what needs no device."
        ),
    ),
    _Rule(
        "checkpoint-stall",
        Cause.CHECKPOINT,
        CHECKPOINT,
        None,
        is_typical=False,
        for_replicas=True,
        title="{device} is idle {time} per {step} step for checkpoints ({share})",
        explanation="Variables were saved or restored inside the window, and training waited for it.",
        advice=(
            "Save less often (save_freq of ModelCheckpoint) or in the background: "
            "tf.train.CheckpointOptions(enable_async=True)."
        ),
    ),
)


@dataclass(frozen=True, eq=False)
class _Waiting:
    """The device of a host whose idle time costs time: the one that is idle least.

    `of_steps`: its idle picoseconds by cause and used step, int64 `[causes, steps]`; without steps one column
    for the whole window; `others`: the same of the other devices in use. `numbers` are those of the steps. `step_ps`: the length that shares are of.
    """

    device: int
    key: str
    is_replica: bool
    of_steps: Int64Array
    others: Mapping[str, Int64Array]
    numbers: tuple[int, ...]
    step_ps: int
    has_steps: bool

    def cost_ps(self, cause: Cause, *, is_typical: bool) -> int:
        """What a cause costs a step."""
        of_steps = self.of_steps[cause]
        return (median_ps(of_steps) or 0) if is_typical else int(of_steps.mean())

    def alike(self, cause: Cause) -> list[str]:
        """The other devices that wait nearly as long for the same, or longer."""
        least = ALIKE * float(self.of_steps[cause].sum())
        return [key for key, of_steps in self.others.items() if of_steps[cause].sum() >= least]

    def step_of(self, cause: Cause) -> int | None:
        """The number of the one step with most of what a cause takes; None where it is spread over several."""
        of_steps = self.of_steps[cause]
        if len(self.numbers) < 3 or of_steps.max() <= MOSTLY_IN_ONE * of_steps.sum():
            return None
        return self.numbers[int(of_steps.argmax())]


def diagnose(
    trace: Trace, result: Idle | Skipped, found: IdleAttribution, selection: Selection
) -> list[Finding]:
    """What devices wait for, for the device of each host on which waiting costs time."""
    if isinstance(result, Skipped):
        return []
    findings: list[Finding] = []
    for host in selection.windows:
        waiting = _waiting(trace, found, selection, host)
        if waiting is None:
            continue
        findings += (one for rule in _RULES if (one := _by_rule(rule, waiting, result)) is not None)
        findings += _host_compute(trace, waiting, found, selection, result)
        findings += _compile(trace, waiting, selection, result, host)
    return findings


def _waiting(
    trace: Trace, found: IdleAttribution, selection: Selection, host: int
) -> _Waiting | None:
    devices = [
        device
        for device, gaps in found.gaps.items()
        if trace.device_list[device].host == host and not gaps.cause_ps[Cause.UNUSED].any()
    ]
    if not devices:
        return None
    used = np.array([step.excluded is None for step in selection.steps[host]], dtype=np.bool_)
    of_steps = {device: found.causes_of_steps[device][:, used] for device in devices}
    step_ps = selection.median_step_ps
    if not used.any() or step_ps is None:
        of_steps = {d: found.gaps[d].cause_ps.sum(axis=1, keepdims=True) for d in devices}
        step_ps = selection.windows[host].length_ps
    if step_ps == 0:
        return None
    chosen = min(devices, key=lambda device: int(of_steps[device].sum()))
    return _Waiting(
        device=chosen,
        key=trace.device_key(chosen),
        is_replica=trace.device_list[chosen].kind == "replica",
        of_steps=of_steps[chosen],
        others={trace.device_key(d): of_steps[d] for d in devices if d != chosen},
        numbers=tuple(s.number for s in selection.steps[host] if s.excluded is None),
        step_ps=step_ps,
        has_steps=bool(used.any()),
    )


def _by_rule(rule: _Rule, waiting: _Waiting, result: Idle) -> Finding | None:
    if waiting.is_replica and not rule.for_replicas:
        return None
    cost = waiting.cost_ps(rule.cause, is_typical=rule.is_typical)
    ratio = cost / waiting.step_ps if waiting.step_ps else 0.0
    if ratio < rule.warning:
        return None
    is_critical = rule.critical is not None and ratio >= rule.critical
    return _finding(
        waiting,
        result,
        code=rule.code,
        severity="critical" if is_critical else "warning",
        cost=cost,
        title=rule.title,
        explanation=rule.explanation,
        advice=rule.advice,
        evidence=(Evidence(_metric(rule.cause), ratio, rule.warning, waiting.key),),
        cause=rule.cause,
    )


def _metric(cause: Cause) -> str:
    return f"idle_{cause.key}_ratio"


def _finding(
    waiting: _Waiting,
    result: Idle,
    *,
    code: str,
    severity: Severity,
    cost: int,
    title: str,
    explanation: str,
    advice: str,
    evidence: tuple[Evidence, ...],
    cause: Cause,
) -> Finding:
    ratio = cost / waiting.step_ps
    confidence, reason = _confidence(waiting)
    alike = waiting.alike(cause)
    if alike:
        verb = "waits" if len(alike) == 1 else "wait"
        explanation += f" {numbers.listed(alike)} {verb} as long or longer."
    words = {"device": waiting.key, "time": numbers.time(cost), "share": f"{ratio:.0%}"}
    words["step"] = numbers.time(waiting.step_ps)
    if not waiting.has_steps:
        title = title.replace("of each {step} step", "of {step}").replace(
            "per {step} step", "of {step}"
        )
    # Of a mean, one step may be nearly all: then it says little of the others.
    elif "per {step} step" in title and (one := waiting.step_of(cause)) is not None:
        title = title.replace("per {step} step", "per step on average")
        title += f", most of it in step {one}"
    return Finding(
        code=code,
        severity=severity if confidence != "low" else "info",
        title=title.format(**words),
        explanation=explanation,
        advice=advice,
        confidence=confidence,
        confidence_reason=reason,
        evidence=(*evidence, *_shown_by(waiting, result, cause)),
        devices=(waiting.key, *alike),
        cost_ps_per_step=cost if waiting.has_steps else None,
        cost_ratio=ratio,
    )


def _shown_by(waiting: _Waiting, result: Idle, cause: Cause) -> Iterator[Evidence]:
    """The longest gap of that cause, and the host event in it."""
    row = next(row for row in result.devices if row.device == waiting.key)
    for gap in row.gaps:
        if gap.cause == cause.key:
            where = "outside of steps" if gap.step is None else f"step {gap.step}"
            yield Evidence("longest_gap_ps", gap.duration_ps, None, where)
            if gap.host_event is not None:
                yield Evidence("host_event", gap.host_event, None, f"thread {gap.thread}")
            return


def _confidence(waiting: _Waiting) -> tuple[Confidence, str]:
    steps = waiting.of_steps.shape[1]
    if not waiting.has_steps:
        return "low", "no steps were found, so shares are of the whole window"
    if steps < FEWEST_STEPS:
        return "low", "only one step to judge by"
    unknown = int(waiting.of_steps[Cause.UNATTRIBUTED].sum())
    idle = int(waiting.of_steps.sum())
    if unknown * 2 > idle:
        return "medium", f"{unknown / idle:.0%} of the idle time has no recorded cause"
    return "high", f"attributed from host events over {steps} steps"


# The host's own work


def _host_compute(
    trace: Trace, waiting: _Waiting, found: IdleAttribution, selection: Selection, result: Idle
) -> Iterator[Finding]:
    if waiting.is_replica:
        yield from _one_by_one(trace, waiting, selection, result)
        return
    heavy = blocking_ops(trace, found, selection, waiting.device)
    steps = max(waiting.of_steps.shape[1], 1)
    named = [op for op in heavy if op.idle_ps // steps >= CPU_HEAVY_OP * waiting.step_ps]
    for op in named:
        yield _heavy_op(op, op.idle_ps // steps, waiting, result)
    cost = waiting.cost_ps(Cause.HOST_COMPUTE, is_typical=True)
    if not named and cost >= HOST_BOUND * waiting.step_ps:
        yield _finding(
            waiting,
            result,
            code="host-bound",
            severity="warning",
            cost=cost,
            title="{device} waits {time} of each {step} step for CPU ops ({share})",
            explanation=(
                "Ops of the step that run on the CPU keep the device waiting; no single op is most of it."
            ),
            advice=(
                "See what was placed on the CPU with tf.debugging.set_log_device_placement(True), move "
                "preprocessing into dataset.map(...), and keep string and lookup ops out of the step."
            ),
            evidence=(
                Evidence(
                    _metric(Cause.HOST_COMPUTE), cost / waiting.step_ps, HOST_BOUND, waiting.key
                ),
            ),
            cause=Cause.HOST_COMPUTE,
        )


def _one_by_one(
    trace: Trace, waiting: _Waiting, selection: Selection, result: Idle
) -> Iterator[Finding]:
    """Steps of a CPU-only run without a graph: replicas look idle while the host runs their ops."""
    ops = eager_ops(trace, selection, trace.device_list[waiting.device].host)
    if ops is None or not waiting.has_steps or ops.count_per_step < EAGER_OPS:
        return
    cost = min(ops.ps_per_step, waiting.cost_ps(Cause.HOST_COMPUTE, is_typical=True))
    ratio = cost / waiting.step_ps
    if ratio < HOST_BOUND:
        return
    yield _finding(
        waiting,
        result,
        code="host-bound",
        severity="warning",
        cost=cost,
        title=(
            f"{ops.count_per_step:,} ops of each {{step}} step run one by one, outside of any tf.function: {{time}} "
            "({share})"
        ),
        explanation=(
            f"The host runs them from Python, most often {numbers.listed(ops.types)}. On CPU devices it is not recorded for "
            "which replica, so this time is no compute in this report. The cost is a bound: a part of it is the "
            "ops' own work."
        ),
        advice=(
            "Put the step into a graph: @tf.function on the function that calls strategy.run; in Keras "
            "run_eagerly=False."
        ),
        evidence=(
            Evidence("eager_ops_ratio", ratio, HOST_BOUND, waiting.key),
            Evidence("eager_ops_per_step", ops.count_per_step, EAGER_OPS, waiting.key),
        ),
        cause=Cause.HOST_COMPUTE,
    )


def _heavy_op(op: BlockingOp, cost: int, waiting: _Waiting, result: Idle) -> Finding:
    return _finding(
        waiting,
        result,
        code="cpu-heavy-op",
        severity="warning",
        cost=cost,
        title=f"{{device}} waits {{time}} of each {{step}} step for CPU op {op.type} ({{share}})",
        explanation=(
            f"{op.name} ran {numbers.plural(op.count, 'time')} on the CPU while the device had nothing to do."
        ),
        advice=(
            "Move it into the input pipeline (dataset.map(...)), give it a GPU kernel (dtype float32 and a "
            "tf.device('GPU:0') scope show whether there is one), or take it out of the step."
        ),
        evidence=(
            Evidence("cpu_op_idle_ratio", cost / waiting.step_ps, CPU_HEAVY_OP, waiting.key),
            Evidence("op", op.name, None, f"thread {op.thread}"),
        ),
        cause=Cause.HOST_COMPUTE,
    )


# Tracing and compilation


def _compile(
    trace: Trace, waiting: _Waiting, selection: Selection, result: Idle, host: int
) -> Iterator[Finding]:
    cost = waiting.cost_ps(Cause.COMPILE, is_typical=False)
    retraced = retraced_calls(trace, selection, host)
    if retraced:
        yield _retracing(retraced, cost, waiting, result)
    elif cost >= COMPILE * waiting.step_ps:
        yield _finding(
            waiting,
            result,
            code="compile-in-window",
            severity="warning",
            cost=cost,
            title="{device} is idle {time} per {step} step for compilation ({share})",
            explanation="XLA, autotuning or module loading ran inside the window.",
            advice=(
                "Capture later, when everything is compiled (traceview capture --steps 100:110); if it "
                "recurs, fix shapes: dataset.batch(n, drop_remainder=True)."
            ),
            evidence=(
                Evidence(_metric(Cause.COMPILE), cost / waiting.step_ps, COMPILE, waiting.key),
            ),
            cause=Cause.COMPILE,
        )


def _retracing(
    retraced: tuple[Retraced, ...], cost: int, waiting: _Waiting, result: Idle
) -> Finding:
    calls = sum(one.count for one in retraced)
    names = numbers.listed(
        [one.function.replace("{", "{{").replace("}", "}}") for one in retraced], 3
    )
    return _finding(
        waiting,
        result,
        code="retracing",
        severity="warning",
        cost=cost,
        title=f"{names} traced {numbers.plural(calls, 'time')} after the first step, {{time}} per {{step}} step",
        explanation=(
            "A tf.function is traced again for every new combination of shapes, dtypes and Python arguments; "
            "the devices wait meanwhile."
        ),
        advice=(
            "Give it one signature: dataset.batch(n, drop_remainder=True), "
            "@tf.function(input_signature=[tf.TensorSpec([None, 224, 224, 3])]) or reduce_retracing=True, and "
            "pass tensors instead of Python numbers."
        ),
        evidence=tuple(
            Evidence("traced_call_count", one.count, None, one.where) for one in retraced[:4]
        ),
        cause=Cause.COMPILE,
    )
