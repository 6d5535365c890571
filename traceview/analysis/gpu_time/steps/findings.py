"""Concludes whether a capture holds enough marked steps, and whether some steps take longer than the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.measures.context import Context
from traceview.analysis.measures.step_report import (
    SLOW_RATIO,
    SLOW_SPREADS,
    SlowSteps,
    Steps,
    slow_steps,
    state_growth,
)
from traceview.analysis.rules.finding import Evidence, Finding, Skipped
from traceview.analysis.rules.rule import Rule, finding_loss
from traceview.analysis.rules.words import Argument, Line, Number, Ordinal, Slower, StateName
from traceview.document.vocabulary import STEP_METHODS
from traceview.ledger.states import BY_KEY, State
from traceview.ledger.table import AS_LONG_RATIO, Loss

FEW_STEPS: Final = Rule(
    code="few-steps",
    title="only {count:is/are} in the statistics",
    titles={"none": "no step is in the statistics"},
    meaning="That is too few to tell a typical step from an exception: {all} in the window, {left_out} left out.",
    action="Capture at least five steps after the warm-up.",
    actions={
        "jax": (
            "Record five steps or more after the warm-up.",
            "`jax.profiler.start_trace('logs')` before them, `jax.profiler.stop_trace()` after them.",
        )
    },
    starts_at="fewer than {used_step_count} used steps",
    limits={"used_step_count": 3},
    metrics={"used_count": "used steps"},
    severity="info",
    example="Only 1 step is in the statistics",
)

UNSTEADY_STEPS: Final = Rule(
    code="unsteady-steps",
    title="{count} of {of} steps take {times}: {state}[ in {line}]",
    titles={
        "one": "step {worst} takes {times}: {state}[ in {line}]",
        "period": "every {period} step takes {times}: {state}[ in {line}]",
    },
    meaning=(
        "Steps of one training loop should take equally long. The slow ones have more of this state than the others; no "
        "other finding is about it. The loss is what they have more."
    ),
    action="Compare step {worst} with step {usual}, a usual one: `traceview show gaps LOGDIR` shows what each waits for.",
    actions={
        "between": (
            "Do what runs after these steps less often, or on another thread.",
            "`traceview show gaps LOGDIR` shows what each waits for: step {worst} is slow, step {usual} a usual one.",
        )
    },
    advice="Capture more steps, and look for other jobs on the host, for garbage collection and for clock changes.",
    reasons={
        "cores": "everything else on the machine takes cores from the replicas",
        "measured": "the steps are measured; why the device takes longer is not known",
    },
    starts_at=(
        "slow steps have more of one state than as many others, for {limit} of the GPU time. A step is slow from {slow_ratio} "
        "above the median step on, and {slow_spreads} times as far as the lower quartile is below it"
    ),
    limits={"slow_ratio": SLOW_RATIO, "slow_spreads": SLOW_SPREADS},
    metrics={
        "slow_step_count": "slow steps",
        "slow_step_ps": "slow step",
        "usual_step_ps": "other step",
    },
    explains=("callback-stall", "python-stall", "between-calls"),
    example="Every fifth step takes 24.5 instead of 19.1 ms: Python between steps",
)

NO_STEP_MARKER: Final = Rule(
    code="no-step-marker",
    is_of_absence=True,
    title="no step was found",
    titles={
        method: f"{{count:is/are}} found {look.words}, without an explicit marker"
        for method, look in STEP_METHODS.items()
    },
    meaning="Nothing marks the steps.",
    notes={
        "none": "Nothing repeats once per step either, so no number is per step.",
        "inferred": "Their bounds are inferred, so step times may include or miss work at their edges.",
    },
    action="Mark the steps with `tf.profiler.experimental.Trace('train', step_num=step, _r=1)`.",
    advice="Put `next(iterator)` and the call of the training step in its `with` block.",
    actions={
        "jax": (
            "Mark the steps with `jax.profiler.StepTraceAnnotation('train', step_num=step)`.",
            "Put the call of the training step in its `with` block.",
        )
    },
    starts_at="steps that no explicit marker bounds, or no steps",
    metrics={"method": "how steps were found"},
    severity="info",
    example="6 steps are found by a function call that repeats, without an explicit marker",
)

RULES: Final = (FEW_STEPS, UNSTEADY_STEPS, NO_STEP_MARKER)

_EXPLICIT_METHODS: Final = ("marker", "keras")
_SHOWN_BY_EVENTS: Final = (
    State.INPUT,
    State.BETWEEN,
    State.EVALUATION,
    State.CHECKPOINT,
    State.COMPILE,
    State.PYTHON_THREAD,
)
"""States whose reason recorded events show; of others a machine that does something else may be the reason."""
_OF_PERIODS: Final = (State.BETWEEN, State.PYTHON, State.BETWEEN_CALLS)
"""States of which a period says more than the finding about them."""
_MOST_OF_STATE: Final = 0.8
"""Of the loss that another finding states: slow steps with so much of it are what it is about."""
_OF_PYTHON: Final = (
    State.PYTHON,
    State.BETWEEN_CALLS,
    State.BETWEEN,
    State.PYTHON_THREAD,
    State.UNKNOWN,
)
"""States in which the line of the thread that runs the steps says more."""


def diagnose(_: Context, result: Steps) -> Iterator[Finding]:
    """Captures with too few steps, or with steps that nothing marks."""
    used_count, least_count = result.used_count, int(FEW_STEPS.limits["used_step_count"])
    if used_count < least_count:
        yield FEW_STEPS.finding(
            arguments={
                "count": Number(used_count, "step"),
                "all": Number(result.count, "step"),
                "left_out": Number(result.count - used_count),
            },
            evidence=[Evidence("used_count", used_count, least_count, "steps")],
            title="" if used_count else "none",
        )
    if result.method not in _EXPLICIT_METHODS:
        yield NO_STEP_MARKER.finding(
            arguments={"count": Number(result.count, "step")},
            evidence=[Evidence("method", result.method, None, "steps")],
            title=result.method,
            notes=("inferred",),
        )


def diagnose_absent(_: Context) -> Finding:
    """A trace in which no step is found."""
    return NO_STEP_MARKER.finding(
        evidence=[Evidence("method", "none", None, "steps")],
        notes=("none",),
    )


def diagnose_unsteady(
    context: Context, result: Steps | Skipped, findings: Sequence[Finding]
) -> Iterator[Finding]:
    """Slow steps, unless one of the findings is about the state that they have more of, and they have no period."""
    if isinstance(result, Skipped) or result.reliability == "low":
        # What merely repeats need not be a step, and may come at any distance.
        return
    slow = slow_steps(result)
    if slow is None or len(slow.numbers) + len(slow.usual) < FEW_STEPS.limits["used_step_count"]:
        return
    growth = state_growth(result.steps, slow.numbers, slow.usual)
    key = max(growth, key=lambda key: sum(growth[key].values()), default=None)
    if key is None:
        return
    state, lost = BY_KEY[key], _loss(context, growth[key])
    if lost.share < UNSTEADY_STEPS.limit or state == State.UNKNOWN:
        return
    named_ps = [row.loss.gpu_time_ps for row in findings if row.loss and key in row.loss.states]
    says_more = slow.period is not None and state in _OF_PERIODS
    if named_ps and not (says_more and lost.ps >= _MOST_OF_STATE * max(named_ps)):
        return
    on_cpu = all(device.kind == "replica" for device in context.trace.device_list)
    worst = max(
        (row for row in result.steps if row.number in slow.numbers),
        key=lambda row: row.duration_ps,
    )
    yield UNSTEADY_STEPS.finding(
        arguments=_arguments(result, slow, state, worst.number),
        loss=finding_loss(lost, None, (state,)),
        confidence=("high", "")
        if state in _SHOWN_BY_EVENTS
        else ("low", "cores")
        if on_cpu
        else ("medium", "measured"),
        evidence=(
            Evidence("slow_step_count", len(slow.numbers), None, "steps"),
            Evidence("slow_step_ps", slow.slow_ps, None, "steps"),
            Evidence("usual_step_ps", slow.usual_ps, None, "steps"),
        ),
        devices=lost.devices,
        steps=slow.numbers,
        title="period" if slow.period else "one" if len(slow.numbers) == 1 else "",
        action=key,
    )


def _loss(context: Context, by_device: dict[str, int]) -> Loss:
    """The loss of what devices have more of a state in the slow steps, of all used steps."""
    ledger = context.ledger
    more = {
        device: max(by_device.get(context.trace.device_key(device), 0), 0)
        for device in ledger.devices
    }
    most = max(more.values(), default=0)
    named = [device for device, ps in more.items() if ps and ps >= AS_LONG_RATIO * most]
    whole = ledger.gpu_ps_by_device
    return Loss(
        ps=sum(more.values()),
        gpu_ps=sum(whole.values()),
        devices=ledger.keys(named),
        named_ps=sum(more[device] for device in named),
        named_gpu_ps=sum(whole[device] for device in named),
        named_steps=sum(ledger.steps_of_device[device] for device in named),
        step_count=max(ledger.steps_of_device.values(), default=0),
    )


def _arguments(result: Steps, slow: SlowSteps, state: State, worst: int) -> dict[str, Argument]:
    usual_ps = {row.number: row.duration_ps for row in result.steps if row.number in slow.usual}
    arguments: dict[str, Argument] = {
        "count": Number(len(slow.numbers)),
        "of": Number(len(slow.numbers) + len(slow.usual)),
        "times": Slower(slow.slow_ps, slow.usual_ps),
        "state": StateName(state.key),
        "worst": Number(worst),
        "usual": Number(min(usual_ps, key=lambda number: abs(usual_ps[number] - slow.usual_ps))),
    }
    if slow.period:
        arguments["period"] = Ordinal(slow.period)
    lines = Counter(
        row.python.line for row in result.steps if row.number in slow.numbers and row.python
    )
    if lines and state in _OF_PYTHON:
        arguments["line"] = Line(lines.most_common(1)[0][0])
    return arguments
