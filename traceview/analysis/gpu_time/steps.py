"""Steps: how long each took, how they were found, whether some take longer, and how much of each the devices computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.gpu_time.step_tables import step_blocks, step_table
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.step_report import (
    SLOW_RATIO,
    SLOW_SPREADS,
    SlowSteps,
    Steps,
    compute,
    slow_steps,
    state_growth,
    step_rows,
)
from traceview.analysis.rules.finding import Evidence, Finding, Skipped
from traceview.analysis.rules.rule import Rule, finding_loss
from traceview.analysis.rules.words import Argument, Number, Ordinal, Slower, StateName
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import STEP_METHODS, look_of
from traceview.ledger.states import BY_KEY, State
from traceview.trace.frames.event_tables import device_keys

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
    title="{count} of {of} steps take {times}: {state}",
    titles={
        "one": "step {worst} takes {times}: {state}",
        "period": "every {period} step takes {times}: {state}",
    },
    meaning=(
        "Steps of one training loop should take equally long. The slow ones spend more time in this state than the others; "
        "that extra time is the loss."
    ),
    action="Compare step {worst} with step {usual}, a usual one: `traceview show gaps LOGDIR` shows what each waits for.",
    advice="Capture more steps, and look for other jobs on the host, for garbage collection and for clock changes.",
    reasons={
        "cores": "everything else on the machine takes cores from the replicas",
        "measured": "the steps are measured; why the device takes longer is not known",
    },
    starts_at=(
        "slow steps lose {limit} of the GPU time in one state, compared with as many others. A step is slow if it exceeds the "
        "median step by {slow_ratio}, and by {slow_spreads} times what the lower quartile is below that"
    ),
    limits={"slow_ratio": SLOW_RATIO, "slow_spreads": SLOW_SPREADS},
    metrics={
        "slow_step_count": "slow steps",
        "slow_step_ps": "slow step",
        "usual_step_ps": "other step",
    },
    example="Every fifth step takes 24.5 instead of 19.1 ms: compute",
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
    State.NO_CORE,
    State.GARBAGE_COLLECTION,
)
"""States whose reason recorded events show; of others a machine that does something else may be the reason."""


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
            evidence=[Evidence("used_count", used_count, least_count, "")],
            title="" if used_count else "none",
        )
    if result.method not in _EXPLICIT_METHODS:
        yield NO_STEP_MARKER.finding(
            arguments={"count": Number(result.count, "step")},
            evidence=[Evidence("method", result.method, None, "", value_is="words")],
            title=result.method,
            notes=("inferred",),
        )


def diagnose_absent(_: Context) -> Iterator[Finding]:
    """A trace in which no step is found."""
    evidence = [Evidence("method", "none", None, "", value_is="words")]
    yield NO_STEP_MARKER.finding(evidence=evidence, notes=("none",))


def diagnose_unsteady(
    context: Context, result: Steps | Skipped, findings: Sequence[Finding]
) -> Iterator[Finding]:
    """Slow steps, unless one of the findings is about the state that they have more of."""
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
    state = BY_KEY[key]
    more = {
        device: max(growth[key].get(context.trace.device_key(device), 0), 0)
        for device in context.ledger.devices
    }
    lost = context.ledger.loss_of(more)
    if lost.share < UNSTEADY_STEPS.limit or state == State.UNKNOWN:
        return
    if any(row.loss and key in row.loss.states for row in findings):
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
            Evidence("slow_step_count", len(slow.numbers), None, ""),
            Evidence("slow_step_ps", slow.slow_ps, None, ""),
            Evidence("usual_step_ps", slow.usual_ps, None, ""),
        ),
        devices=lost.devices,
        steps=slow.numbers,
        title="period" if slow.period else "one" if len(slow.numbers) == 1 else "",
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
    return arguments


# The section

TITLE: Final = "Steps"

_WIDEST_NAME: Final = 40
_MOST_EVALUATIONS: Final = 4
_MOST_UPDATES: Final = 6

UNSURE: Final = (
    "Nothing marks these steps: their bounds come from what repeats and may be off. Times over the whole window are "
    "not affected."
)

_BASES: Final = {
    "device": "Each step starts at its first device event, because the host runs ahead of the devices.",
    "mixed": "The bounds of steps are cut differently on different hosts.",
}


def steps_section(view: View, result: Steps) -> doc.Section | None:
    """The statistics of the steps, and a row for each with the busy share of the devices."""
    used = ""
    devices = {part.device for row in result.steps for part in row.devices}
    if result.used_count < result.count:
        used = f", {numbers.count(result.used_count)} of them in the statistics"
    return doc.Section(
        "steps",
        TITLE,
        (
            *doc.facts(*_times(result)),
            *doc.notes(
                *_bound_notes(result),
                *_accumulation_notes(result),
                *_evaluation_notes(result),
            ),
            *step_blocks(view, step_table(result.steps, devices), view.few_rows),
        ),
        lead=f"{found_steps(result)}{used}.",
    )


def found_steps(steps: Steps) -> str:
    """How many steps there are, on how many hosts, and how they were found."""
    by_host = Counter(row.host for row in steps.steps)
    count = numbers.plural(steps.count, "step")
    if len(by_host) > 1 and len(set(by_host.values())) == 1:
        count = f"{numbers.plural(max(by_host.values()), 'step')} on each of {len(by_host)} hosts"
    elif len(by_host) > 1:
        count += f" on {len(by_host)} hosts"
    return f"{count} found {look_of(STEP_METHODS, steps.method).words}"


def _times(result: Steps) -> Iterator[str]:
    yield f"median {numbers.time(result.median_ps)}"
    used = [row.duration_ps for row in result.steps if row.used]
    if len(used) > 1:
        yield f"mean {numbers.time(sum(used) // len(used))}"
    least_count = int(FEW_STEPS.limits["used_step_count"])
    if len(used) < least_count:
        yield f"a spread needs {least_count} steps"
        return
    yield f"spread (IQR) {numbers.time(result.iqr_ps)}"


def _bound_notes(result: Steps) -> Iterator[str]:
    """Notes on the bounds that a reader needs to read the numbers per step."""
    if result.reliability == "low":
        yield UNSURE
    if result.basis in _BASES and result.method != "period":
        yield _BASES[result.basis]
    calls, function = result.steps_per_call or 1, result.loop_function
    if calls > 1 or function is not None:
        # Another loop may run inside that of the training.
        most = calls if calls > 1 else result.loop_iterations
        of = f" of {shortened(function, _WIDEST_NAME)}" if function is not None else ""
        yield (
            f"One step here is one call{of} that runs {f'up to {most}' if most else 'several'} training steps in its "
            "graph; numbers per step are of the whole call."
        )
    elif result.loop_iterations:
        yield (
            f"A loop in the graph runs {result.loop_iterations} times in each step. If it is the training loop, one "
            "step here is that many training steps, and numbers per step are of all of them."
        )


def _evaluation_notes(result: Steps) -> Iterator[str]:
    """Where validation ran, and which step holds its time."""
    for row in result.evaluations[:_MOST_EVALUATIONS]:
        names = numbers.listed([shortened(name, _WIDEST_NAME) for name in row.functions])
        yield (
            f"Evaluation ran between steps {row.after} and {row.after + 1}: {names}, "
            f"{numbers.plural(row.call_count, 'call')} in {numbers.time(row.duration_ps)}. The time of step "
            f"{row.after} holds it."
        )
    more = len(result.evaluations) - _MOST_EVALUATIONS
    if more > 0:
        yield f"It ran after {numbers.plural(more, 'step')} more."


def _accumulation_notes(result: Steps) -> Iterator[str]:
    """That steps with an update take longer than those that only accumulate gradients."""
    if result.optimizer_steps:
        updates = numbers.listed([str(step) for step in result.optimizer_steps], most=_MOST_UPDATES)
        yield f"The optimizer ran in some steps only ({updates}). Gradients accumulate in the others."


ANALYSIS: Final = Analysis[Steps](
    "steps",
    compute=compute,
    rules=RULES,
    diagnose=diagnose,
    if_absent=diagnose_absent,
    conclude=diagnose_unsteady,
    sections=(steps_section,),
    title_if_absent=TITLE,
    table=lambda context: step_table(step_rows(context), device_keys(context.trace)),
)
