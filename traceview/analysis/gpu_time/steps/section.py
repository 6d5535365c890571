"""Shows how long each step took, which steps are slow, and how much of each the devices computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import fsum
from typing import Final, TypeAlias

from traceview.analysis.gpu_time.steps.findings import FEW_STEPS
from traceview.analysis.measures.context import View
from traceview.analysis.measures.environment import Environment
from traceview.analysis.measures.step_report import (
    SLOW_RATIO,
    SlowSteps,
    StepRow,
    Steps,
    slow_steps,
    state_growth,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.figures import Span, StepBar, StepTimes
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import STATES, STEP_KINDS, STEP_METHODS, Look, look_of
from traceview.ledger.states import State

TITLE: Final = "Steps"

BRIEF_STEPS: Final = 12
"""Rows in a terminal: of more steps the first and the last."""

MOST_DEVICES: Final = 8
"""Devices with a column each; of more, the least busy one and the mean have a column."""

JOINED_FROM: Final = 3
"""From so many hosts on, all hosts of a step share a row."""

_PARAMETER_SERVER: Final = "ParameterServerStrategy"
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

_Hosts: TypeAlias = tuple[StepRow, ...]
"""The same step on one host or several, the shortest first: a row of the table."""


def steps_section(view: View, result: Steps) -> doc.Section | None:
    """The statistics of the steps, and a row for each with the busy share of the devices."""
    used = ""
    if result.used_count < result.count:
        used = f", {numbers.count(result.used_count)} of them in the statistics"
    return doc.Section(
        "steps",
        TITLE,
        (
            *doc.facts(*_typical(result), *_spread(result)),
            *doc.notes(
                *_bound_notes(result),
                *_coordinator_notes(view, result),
                *_accumulation_notes(result),
                *_evaluation_notes(result),
            ),
            *_table(view, result),
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


def _typical(result: Steps) -> Iterator[str]:
    yield f"median {numbers.time(result.median_ps)}"
    used = [row.duration_ps for row in result.steps if row.used]
    if len(used) > 1:
        yield f"mean {numbers.time(sum(used) // len(used))}"


def _spread(result: Steps) -> Iterator[str]:
    least_count = int(FEW_STEPS.limits["used_step_count"])
    if result.used_count < least_count:
        yield f"a spread needs {least_count} steps"
        return
    yield f"spread (IQR) {numbers.time(result.iqr_ps)}"
    if result.cv_ratio is not None:
        yield f"standard deviation {numbers.share(result.cv_ratio)} of the mean"


def _bound_notes(result: Steps) -> Iterator[str]:
    """What a reader has to know of the bounds to read the numbers per step."""
    if result.reliability == "low":
        yield UNSURE
    if result.basis in _BASES and result.method != "period":
        yield _BASES[result.basis]
    # A call of several steps is itself a loop in the graph.
    if result.steps_per_call is not None and result.steps_per_call > 1:
        yield (
            f"One step here is one call that runs up to {result.steps_per_call} training steps "
            "(steps_per_execution); numbers per step are of the whole call."
        )
    elif result.loop_function is not None:
        count = (
            f"{result.updates_per_step} training steps"
            if result.trains_in_loop
            else "several training steps"
            if result.loop_iterations is None
            # Another loop may run inside that of the training.
            else f"up to {result.loop_iterations} training steps"
        )
        yield (
            f"One call of {shortened(result.loop_function, _WIDEST_NAME)} runs {count} in its graph. A step of this "
            "report is such a call, and numbers per step are of the whole call."
        )
    elif result.trains_in_loop:
        yield (
            f"A loop in the graph runs {result.loop_iterations} times in each step, and the optimizer "
            f"{result.updates_per_step} times: one step here is several training steps, and numbers per step are of all of "
            "them."
        )
    elif result.trains_in_loop is None:
        yield (
            f"A loop in the graph runs {result.loop_iterations} times in each step. If it is the training loop, one "
            "step here is that many training steps, and numbers per step are of all of them."
        )


def _coordinator_notes(view: View, result: Steps) -> Iterator[str]:
    """Which steps of parameter server training are counted: a coordinator hands them out in a thread for each worker."""
    environment = view.record("environment", Environment)
    classes = [] if environment is None else [host.strategy.class_ for host in environment.hosts]
    is_coordinated = any((class_ or "").startswith(_PARAMETER_SERVER) for class_ in classes)
    if is_coordinated and result.method == "marker":
        yield (
            "ClusterCoordinator hands steps to each worker from a thread of its own. The steps here are those of one "
            "worker; with several workers the job runs more steps in this time."
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
    updates = numbers.listed([str(number) for number in result.optimizer_steps], most=_MOST_UPDATES)
    where = f" (step {updates})" if len(result.optimizer_steps) == 1 else f" (steps {updates})"
    if not result.optimizer_steps:
        return
    if result.accumulated_steps is None:
        yield f"The optimizer ran in some steps only{where}. Gradients accumulate in the others."
        return
    yield (
        f"The optimizer runs in every {numbers.ordinal(result.accumulated_steps)} step{where}. Gradients accumulate in the others, "
        "which take less time."
    )


def _table(view: View, result: Steps) -> Iterator[doc.Block]:
    every = sorted(result.steps, key=lambda row: row.number)
    is_joined = len({row.host for row in every}) >= JOINED_FROM and all(
        row.recorded_number == row.number for row in every
    )
    steps = _joined(every) if is_joined else [(row,) for row in every]
    most = BRIEF_STEPS if view.is_brief else view.most_rows
    shown = steps if len(steps) <= most else [*steps[: most - most // 2], *steps[-(most // 2) :]]
    columns = _columns_of_hosts(view, shown, every) if is_joined else _columns(view, shown)
    yield from doc.table("Steps", columns, row_count=len(steps), rest=view.command("show steps"))
    if len(shown) < len(steps):
        yield from doc.remarks("The first and the last steps are shown.")


def _joined(rows: Sequence[StepRow]) -> list[_Hosts]:
    by_number: dict[int, list[StepRow]] = {}
    for row in rows:
        by_number.setdefault(row.number, []).append(row)
    return [tuple(sorted(hosts, key=lambda row: row.duration_ps)) for hosts in by_number.values()]


def _columns(view: View, steps: Sequence[_Hosts]) -> Iterator[doc.Column]:
    rows = [row for hosts in steps for row in hosts]
    has_hosts = len({row.host for row in rows}) > 1
    yield doc.ordinals("step", [row.number for row in rows])
    yield doc.ordinals(
        "recorded as",
        [None if row.recorded_number == row.number else row.recorded_number for row in rows],
        priority=1,
        meaning="the number in the marker",
    )
    yield doc.names("host", [row.host if has_hosts else None for row in rows])
    yield doc.spans("", [_span(view, row) for row in rows])
    yield doc.times("time", [row.duration_ps for row in rows])
    yield from _computing(steps)
    yield doc.words("remark", [step_remark(row.kind, row.excluded) for row in rows], priority=1)


def _columns_of_hosts(
    view: View, steps: Sequence[_Hosts], every: Sequence[StepRow]
) -> Iterator[doc.Column]:
    """How long each step took on the fastest and on the slowest host."""
    host_count = len({row.host for row in every})
    unused_counts = [sum(not row.used for row in hosts) for hosts in steps]
    yield doc.ordinals("step", [hosts[0].number for hosts in steps])
    yield doc.words(
        "hosts",
        [
            f"{len(hosts)} of {host_count}" if len(hosts) < host_count else str(host_count)
            for hosts in steps
        ],
        priority=2,
    )
    yield doc.spans("", [_span(view, hosts[-1]) for hosts in steps])
    yield doc.times("shortest", [hosts[0].duration_ps for hosts in steps], priority=1)
    yield doc.times("longest", [hosts[-1].duration_ps for hosts in steps])
    yield doc.names("slowest host", [_slowest(hosts) for hosts in steps])
    yield from _computing(steps)
    yield doc.words(
        "remark",
        [
            f"left out on {numbers.plural(count, 'host')}" if count else ""
            for count in unused_counts
        ],
        priority=1,
    )


def _slowest(hosts: _Hosts) -> str | None:
    """The host on which the step took longest; None where several did."""
    is_tie = len(hosts) > 1 and hosts[-1].duration_ps == hosts[-2].duration_ps
    return None if is_tie else hosts[-1].host


def _computing(steps: Sequence[_Hosts]) -> Iterator[doc.Column]:
    """The share of each step that each device computes; of many devices, of the one that does least and on average."""
    ratios = [
        {
            part.device: part.states.get(State.COMPUTE.key, 0) / row.duration_ps
            for row in hosts
            if row.duration_ps
            for part in row.devices
        }
        for hosts in steps
    ]
    # Rows of one host each share the columns of devices with the same name.
    devices = list(dict.fromkeys(numbers.without_host(key) for row in ratios for key in row))
    is_one_host = all(len(hosts) == 1 for hosts in steps)
    if is_one_host and len(devices) <= MOST_DEVICES:
        by_name = [{numbers.without_host(key): row[key] for key in row} for row in ratios]
        for place, device in enumerate(devices):
            yield doc.shares(
                f"compute, {device}", [row.get(device) for row in by_name], priority=2 + place
            )
        return
    yield doc.shares(
        "compute, least", [min(row.values(), default=None) for row in ratios], priority=3
    )
    yield doc.shares(
        "compute, mean",
        [fsum(row.values()) / len(row) if row else None for row in ratios],
        priority=4,
    )
    yield doc.counts("devices", [len(row) for row in ratios], priority=5)


def step_remark(kind: str, excluded: str | None) -> str:
    """What is special about a step; mostly nothing."""
    words_of_kind = "" if kind == "train" else look_of(STEP_KINDS, kind).words
    return "; ".join(filter(None, (words_of_kind, excluded and f"left out: {excluded}")))


def _span(view: View, row: StepRow) -> doc.Span | None:
    """The step on the first device of its host."""
    if not row.devices or row.host not in view.window_start_ps:
        return None
    begin_ps = row.start_ps - view.window_start_ps[row.host]
    return doc.Span(row.devices[0].device, begin_ps, begin_ps + row.duration_ps)


# The chart of step times

_NAMED_STEPS: Final = 8
"""Slow steps that the sentence below the chart names; the chart marks all."""


def step_times(view: View, steps: Steps) -> StepTimes | None:
    """A bar per step, of several hosts the longest; None where no step counts."""
    if steps.median_ps is None:
        return None
    slow = slow_steps(steps)
    longest: dict[int, StepRow] = {}
    for row in steps.steps:
        known = longest.get(row.number)
        if known is None or row.duration_ps > known.duration_ps:
            longest[row.number] = row
    bars = []
    for row in sorted(longest.values(), key=lambda row: row.number):
        is_slow = slow is not None and row.number in slow.numbers
        bars.append(
            StepBar(
                number=row.number,
                duration_ps=row.duration_ps,
                look=STEP_KINDS[row.kind if row.used else "excluded"],
                excess_ps=row.duration_ps - slow.typical_ps if slow and is_slow else 0,
                cause=_grown_state(steps, (row.number,), slow) if slow and is_slow else None,
                span=_span_of_devices(view, row),
            )
        )
    used = [row.duration_ps for row in longest.values() if row.used]
    return StepTimes(tuple(bars), steps.median_ps, _lead(steps, slow, used))


def _grown_state(steps: Steps, numbers_: Sequence[int], slow: SlowSteps) -> Look | None:
    """The state that devices are in for longer than in usual steps, by most; None where there is none."""
    growth = state_growth(steps.steps, numbers_, slow.usual)
    total = {state: sum(of_device.values()) for state, of_device in growth.items()}
    state = max(total, key=lambda state: total[state], default=None)
    return look_of(STATES, state) if state is not None and total[state] > 0 else None


def _span_of_devices(view: View, row: StepRow) -> Span | None:
    """The step on the devices of its host."""
    if not row.devices or row.host not in view.window_start_ps:
        return None
    begin_ps = row.start_ps - view.window_start_ps[row.host]
    devices = tuple(part.device for part in row.devices)
    return Span(devices[0], begin_ps, begin_ps + row.duration_ps, devices[1:])


def _lead(steps: Steps, slow: SlowSteps | None, used_ps: Sequence[int]) -> str:
    median_ps = steps.median_ps or 0
    median = numbers.time(median_ps)
    if slow is None and max(used_ps) - median_ps >= SLOW_RATIO * median_ps:
        return f"Step times vary without a clear outlier: {numbers.time_range(used_ps)}, median {median}."
    if slow is None and len(used_ps) < 2:
        return f"Only 1 step to look at: {median}."
    if slow is None:
        return f"No slow step: {numbers.time_range(used_ps)}, median {median}."
    named = numbers.beginning([str(number) for number in slow.numbers], _NAMED_STEPS)
    which = "Step" if len(slow.numbers) == 1 else "Steps"
    takes = "takes" if len(slow.numbers) == 1 else "take"
    every = f", every {numbers.ordinal(slow.period)} step" if slow.period else ""
    times = numbers.part_of(slow.slow_ps, slow.usual_ps, "instead of")
    state = _grown_state(steps, slow.numbers, slow)
    cause = f" Most of the extra time: {state.words}." if state else ""
    return f"{which} {named} {takes} {times}{every}.{cause}"
