"""Steps: how long each took, how they were found, whether some take longer, and how much of each the devices computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.device_report import Environment
from traceview.analysis.measures.step_report import (
    SLOW_RATIO,
    SLOW_SPREADS,
    SlowSteps,
    StepDevice,
    StepRow,
    Steps,
    compute,
    longest_by_number,
    slow_steps,
    state_growth,
    step_rows,
)
from traceview.analysis.rules.finding import Evidence, Finding, Skipped
from traceview.analysis.rules.rule import Rule, finding_loss
from traceview.analysis.rules.words import Argument, Number, Quantity, Slower, StateName
from traceview.base.text import enumerated
from traceview.document import columns, numbers
from traceview.document import model as doc
from traceview.document.columns import Shown
from traceview.document.figures import StepBar, StepTimes
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import STATES, STEP_KINDS, STEP_METHODS, Look, look_of
from traceview.ledger.states import BY_KEY, KEYS, State
from traceview.trace.device.table import Table, device_keys, integers, record_columns, table, texts
from traceview.trace.host.thread_clocks import STOPPED

FEW_STEPS: Final = Rule(
    code="few-steps",
    title="only {count:is/are} in the statistics",
    titles={
        "none": "no step is in the statistics",
        "stopped": "the process was stopped in {stopped} of {all}: too few are left",
    },
    meaning="That is too few to tell a typical step from an exception: {all} in the window, {left_out} left out.",
    action="Capture at least five steps after the warm-up.",
    actions={
        "jax": (
            "Record five steps or more after the warm-up.",
            "`jax.profiler.start_trace('logs')` before them, `jax.profiler.stop_trace()` after them.",
        )
    },
    starts_at="fewer than {used_step_count} used steps; critical where stops of the process leave less than two",
    limits={"used_step_count": 3},
    metrics={"used_count": "used steps"},
    severity="info",
    other_severities=("critical",),
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
    metrics={"slow_step_count": "slow steps", "usual_step_ps": "other step"},
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


def diagnose(context: Context, result: Steps) -> Iterator[Finding]:
    """Captures with too few steps, or with steps that nothing marks."""
    stopped = Number(sum(step.excluded == STOPPED for step in result.steps))
    is_stopped = context.selection.has_few_steps and stopped.value > 0
    used_count, least_count = result.used_count, int(FEW_STEPS.limits["used_step_count"])
    if used_count < least_count:
        yield FEW_STEPS.finding(
            arguments={
                "count": Number(used_count, "step"),
                "all": Number(result.count, "step"),
                "left_out": Number(result.count - used_count),
                **({"stopped": stopped} if is_stopped else {}),
            },
            evidence=[Evidence("used_count", used_count, least_count, "")],
            title="stopped" if is_stopped else "" if used_count else "none",
            severity="critical" if is_stopped else None,
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
    lacks_cores = any(row.loss and State.NO_CORE.key in row.loss.states for row in findings)
    if on_cpu and (lacks_cores or state == State.COMPUTE):
        # Cores that others have now and then make any step long.
        return
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
        arguments["period"] = Quantity(slow.period, "place")
    return arguments


# The section

TITLE: Final = "Steps"

_PARAMETER_SERVER: Final = "ParameterServerStrategy"
_WIDEST_NAME: Final = 40
_MOST_NAMED: Final = 6

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
            *doc.notes(
                _times(result) if result.median_ps is not None else None,
                *_bound_notes(result),
                *_coordinator_notes(view, result),
                *_longer_steps(result),
            ),
            *step_blocks(view, step_table(result.steps, devices), view.few_rows, _named(result)),
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
    if steps.method == "marker" and (steps.steps_per_call or steps.loop_function):
        return f"{count} marked by traceview capture"
    return f"{count} found {look_of(STEP_METHODS, steps.method).words}"


def _bound_notes(result: Steps) -> Iterator[str]:
    """Notes on the bounds that a reader needs to read the numbers per step."""
    if result.reliability == "low":
        yield UNSURE
    if result.basis in _BASES and result.method != "period":
        yield _BASES[result.basis]
    most, function = result.steps_per_call, result.loop_function
    if (most or 1) > 1 or function is not None:
        # Another loop may run inside that of the training.
        of = f" of {shortened(function, _WIDEST_NAME)}" if function is not None else ""
        yield (
            f"One step here is one call{of} that runs {f'up to {most}' if most else 'several'} training steps in its "
            "graph; numbers per step are of the whole call."
        )


def _coordinator_notes(view: View, result: Steps) -> Iterator[str]:
    """Which steps of parameter server training are counted: a coordinator hands them out in a thread for each worker."""
    environment = view.record("environment", Environment)
    classes = [] if environment is None else [host.strategy.class_ for host in environment.hosts]
    is_coordinated = any((class_ or "").startswith(_PARAMETER_SERVER) for class_ in classes)
    if is_coordinated and result.method == "marker":
        yield "The steps here are those of one worker of ClusterCoordinator; others run more in this time."


def _longer_steps(result: Steps) -> Iterator[str]:
    """Steps that take longer than others because they do more."""
    if result.evaluated_steps:
        yield f"An evaluation ran after some steps, whose time holds it ({_listed(result.evaluated_steps)})."
    if result.accumulation_steps:
        yield f"The optimizer updates in one of {result.accumulation_steps} steps. Gradients accumulate in the others."


def _listed(steps: Sequence[int]) -> str:
    return numbers.listed([str(step) for step in steps], most=_MOST_NAMED)


# The chart

_NAMED_STEPS: Final = 8
"""Slow steps that the sentence below the chart names; the chart marks all."""


def step_times(view: View, steps: Steps) -> StepTimes | None:
    """A bar per step, of several hosts the longest, of those that count if any does; None where no step counts."""
    if steps.median_ps is None:
        return None
    slow = slow_steps(steps)
    longest = longest_by_number(steps.steps)
    bars = []
    for number in sorted(longest):
        row = longest[number]
        is_slow = slow is not None and number in slow.numbers
        bars.append(
            StepBar(
                number=number,
                duration_ps=row.duration_ps,
                look=STEP_KINDS[row.kind if row.used else "excluded"],
                excess_ps=row.duration_ps - slow.typical_ps if slow and is_slow else 0,
                cause=_grown_state(steps, (number,), slow) if slow and is_slow else None,
                span=_step_span(view, row),
            )
        )
    return StepTimes(tuple(bars), steps.median_ps, _times(steps))


def _grown_state(steps: Steps, numbers_: Sequence[int], slow: SlowSteps) -> Look | None:
    """The state that devices are in for longer than in usual steps, by most; None where there is none."""
    growth = state_growth(steps.steps, numbers_, slow.usual)
    total = {state: sum(of_device.values()) for state, of_device in growth.items()}
    state = max(total, key=lambda state: total[state], default=None)
    return look_of(STATES, state) if state is not None and total[state] > 0 else None


def _times(steps: Steps) -> str:
    """How long the steps take, and which take longer than others for what."""
    median_ps, slow = steps.median_ps or 0, slow_steps(steps)
    median = numbers.time(median_ps)
    if slow is None:
        longest = longest_by_number(steps.steps)
        used_ps = [row.duration_ps for row in longest.values() if row.used]
        if len(used_ps) < 2:
            return f"Only 1 step to look at: {median}."
        varies = max(used_ps) - median_ps >= SLOW_RATIO * median_ps
        which = "Step times vary without a clear outlier" if varies else "No slow step"
        return f"{which}: {numbers.time_range(used_ps)}, median {median}."
    named = enumerated([str(number) for number in slow.numbers], _NAMED_STEPS)
    which = "Step" if len(slow.numbers) == 1 else "Steps"
    takes = "takes" if len(slow.numbers) == 1 else "take"
    every = f", every {numbers.ordinal(slow.period)} step" if slow.period else ""
    times = numbers.part_of(slow.slow_ps, slow.usual_ps, "instead of")
    state = _grown_state(steps, slow.numbers, slow)
    cause = f" Most of the extra time: {state.words}." if state else ""
    return f"{which} {named} {takes} {times}{every}.{cause}"


def _step_span(view: View, row: StepRow) -> doc.Span | None:
    """The step on the first device of its host, with the others."""
    if not row.devices or row.host not in view.window_start_ps:
        return None
    begin_ps = row.start_ps - view.window_start_ps[row.host]
    first, *others = (part.device for part in row.devices)
    return doc.Span(first, begin_ps, begin_ps + row.duration_ps, tuple(others))


# The table

MOST_STEPS: Final = 40
"""So many steps of a host have a row on a terminal; of more the first and the last are shown."""


def step_table(steps: Iterable[StepRow], devices: Collection[str]) -> Table:
    """A row per step, in time order, and device of its host that is in `devices`; one without a device if the host has none.

    The states from `compute_ps` to `unknown_ps` add up to the part of the step inside the window. `python`: the line that
    the host was in while it kept a device waiting.
    """
    rows = [
        (step, part)
        for step in steps
        for part in step.devices or (None,)
        if part is None or part.device in devices
    ]
    of_step = [field for field in StepRow.__struct_fields__ if field not in ("devices", "python")]
    return table(
        "steps",
        *record_columns(StepRow, [step for step, _ in rows], of_step),
        *record_columns(StepDevice, [part for _, part in rows], ("device",)),
        *(
            integers(f"{key}_ps", [part.states.get(key, 0) if part else None for _, part in rows])
            for key in KEYS
        ),
        texts("python", [step.python.line if step.python else None for step, _ in rows]),
    )


def _named(steps: Steps) -> Collection[int]:
    """The slow steps that a sentence names."""
    slow = slow_steps(steps)
    return slow.numbers[:_NAMED_STEPS] if slow else ()


def first_and_last(rows: Table, most_steps: int = MOST_STEPS, named: Collection[int] = ()) -> Table:
    """The rows of the first and the last steps of each host, so many steps of each in all, and of those that are named."""
    kept = {(host, number) for host in rows["host"] for number in named}
    places = list(zip(rows["host"], rows["number"], strict=True))
    for host in dict.fromkeys(rows["host"]):
        steps = [place for place in dict.fromkeys(places) if place[0] == host]
        kept.update(steps[: most_steps - most_steps // 2] + steps[-(most_steps // 2) :])
    return rows.at([at for at, place in enumerate(places) if place in kept])


def _hidden_words(hidden: Sequence[int]) -> str:
    """`Steps 11 to 16`, or where some between are shown `5 of steps 11 to 16`."""
    if hidden[-1] - hidden[0] < len(hidden):
        return f"Steps {hidden[0]} to {hidden[-1]}"
    return f"{len(hidden)} of steps {hidden[0]} to {hidden[-1]}"


def step_blocks(
    view: View, rows: Table, most_rows: int | None = None, named: Collection[int] = ()
) -> tuple[doc.Block, ...]:
    """A row per step and device with the share of each state; of devices that are much alike only a range.

    `most_rows`: of so many rows the first and the last steps are shown; without it `MOST_STEPS` of them. `named`: further
    steps.
    """
    own = rows.at([at for at, key in enumerate(rows["device"]) if key not in view.others])
    device_count = len({*own["device"]}) or 1
    kept = first_and_last(
        own, MOST_STEPS if most_rows is None else max(most_rows // device_count, 2), named
    )
    shown = list(kept.rows())
    hidden = sorted({*rows["number"]} - {*kept["number"]})
    left = rows.where("device", view.others)
    compute = list(map(doc.ratio, left["compute_ps"], left["duration_ps"]))
    others = numbers.plural(len({*left["device"]}), "other device")
    command = f"{view.command('show steps')} -o steps.csv"
    remarks = [
        f"{_hidden_words(hidden)} are not shown. All steps:" if hidden else "",
        f"{others}: compute {numbers.share_range(compute)} of a step. All devices:"
        if compute
        else "",
    ]
    return (
        *columns.table("Steps", shown, _columns(view, shown)),
        *(doc.Remark(remark, command) for remark in remarks if remark),
    )


def _columns(view: View, rows: Sequence[Mapping[str, Any]]) -> Iterator[Shown]:
    """What a step is, and the share of each state that occurs, the largest first."""
    # The key of a device names its host.
    yield Shown("host", lambda row: None if row["device"] else row["host"], 3, "name")
    yield Shown("step", itemgetter("number"), kind="ordinal")
    yield Shown("recorded as", _recorded_as, 4, "ordinal", "the number in the marker")
    yield Shown("device", itemgetter("device"), kind="device")
    yield Shown("", lambda row: _span(view, row), kind="span")
    yield Shown("time", itemgetter("duration_ps"), kind="time")
    totals = {key: sum(row[f"{key}_ps"] or 0 for row in rows) for key in KEYS}
    for priority, key in enumerate(sorted(filter(totals.get, KEYS), key=lambda key: -totals[key])):
        yield _share_of(key, priority)
    yield Shown("line of Python", itemgetter("python"), 1, "name")
    yield Shown("remark", _remark, 1)


def _remark(row: Mapping[str, Any]) -> str:
    words_of_kind = "" if row["kind"] == "train" else look_of(STEP_KINDS, row["kind"]).words
    excluded = row["excluded"] and f"left out: {row['excluded']}"
    return "; ".join(filter(None, (words_of_kind, excluded)))


def _recorded_as(row: Mapping[str, Any]) -> int | None:
    return None if row["recorded_number"] == row["number"] else row["recorded_number"]


def _span(view: View, row: Mapping[str, Any]) -> doc.Span | None:
    if row["device"] is None or row["host"] not in view.window_start_ps:
        return None
    begin_ps = row["start_ps"] - view.window_start_ps[row["host"]]
    return doc.Span(row["device"], begin_ps, begin_ps + row["duration_ps"])


def _share_of(key: str, priority: int) -> Shown:
    def share(row: Mapping[str, Any]) -> float | None:
        return doc.ratio(row[f"{key}_ps"], row["duration_ps"])

    return Shown(STATES[key].words, share, priority, "share")


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
