"""Measures how long each step took, what each device did in it, and which steps are slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Final

import numpy as np
from msgspec import Meta, Struct

from traceview.analysis.facts.python import PythonShare, python_of_steps
from traceview.analysis.facts.selection import Selection
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Finding, Skipped
from traceview.base.record import (
    LARGEST,
    Count,
    DeviceKey,
    FunctionName,
    Hostname,
    Integer,
    Picoseconds,
    Record,
    Words,
    one_of,
)
from traceview.base.stats import low_median
from traceview.ledger.states import KEYS
from traceview.trace.model import Step, Trace
from traceview.trace.sidecar.sidecar import Sidecar

_RELIABILITY: Final = {
    "marker": "high",
    "keras": "high",
    "group": "medium",
    "function": "medium",
    "period": "low",
}


SLOW_RATIO: Final = 0.1
"""Of the typical step: what a slow step takes longer at least; a choice of ours."""
SLOW_SPREADS: Final = 4.0
"""Of the distance from the lower quartile to the median: the same. Normally distributed times pass that in 0.4 % of steps."""
FEWEST_SLOW: Final = 3
"""Slow steps of one distance that show a period."""


class StepDevice(Record, frozen=True):
    """One device in one step.

    Attributes:
        device: Key of the device.
        states: Picoseconds in each state that occurs, in the order of states; they sum to the part of the step inside the
            window.
    """

    device: DeviceKey
    states: dict[Words, Count]


class StepRow(Record, frozen=True):
    """One step of one host.

    Attributes:
        host: Name of the host.
        number: Number of the step within its host, as --steps takes it.
        recorded_number: Number in its marker; null without one.
        kind: train or eval.
        start_ps: Start, picoseconds since the origin of the run.
        duration_ps: Length, picoseconds.
        used: Whether it takes part in medians and verdicts.
        excluded: Why it takes no part in them; null if it does.
        devices: What every visible device of the host did in the step.
        python: The Python that the thread that runs the steps was in while it kept a device waiting: of the devices
            of the host the one that is idle least. Null where no stack was sampled then.
    """

    host: Hostname
    number: Integer
    recorded_number: Integer | None
    kind: Annotated[str, one_of("train", "eval")]
    start_ps: Integer
    duration_ps: Picoseconds
    used: bool
    excluded: Words | None
    devices: tuple[StepDevice, ...]
    python: PythonShare | None = None


class Steps(Record, frozen=True):
    """The steps in the window.

    Attributes:
        method: How the steps were found; mixed where hosts differ.
        reliability: How sure the bounds of steps are: high (markers), medium (stored groups, function calls), low
            (input calls or kernels that repeat).
        basis: marker: cut at the recorded bounds; device: at the first device event of each, because the host
            runs ahead; mixed where hosts differ.
        steps_per_call: The most training steps that one call made of those that the capture marked as steps, such as
            steps_per_execution of Keras, or for which the graph of a step calls Strategy.run; null where the sidecar does not say.
        count: Steps in the window, over all hosts.
        used_count: Steps that take part in the statistics.
        median_ps: Median duration of the used steps, picoseconds; null without any.
        steps: The steps, host by host in time order.
        loop_function: Step function of which the capture knows that each call runs several training steps in its
            graph; null where it knows of none.
        evaluated_steps: Numbers of the steps after which the model was evaluated, as the capture saw; their time holds it.
        accumulation_steps: Over how many steps the optimizer accumulates gradients, as the capture saw: one in so many updates the
            variables. Null where each does.
    """

    method: Annotated[str, one_of("marker", "keras", "group", "function", "period", "mixed")]
    reliability: Annotated[str, one_of("high", "medium", "low")]
    basis: Annotated[str, one_of("marker", "device", "mixed")]
    steps_per_call: Annotated[int, Meta(ge=1, le=LARGEST)] | None
    count: Count
    used_count: Count
    median_ps: Picoseconds | None
    steps: tuple[StepRow, ...]
    loop_function: FunctionName | None = None
    evaluated_steps: tuple[Integer, ...] = ()
    accumulation_steps: Count | None = None


_NO_STEPS: Final = "no steps: nothing marks them, and nothing repeats"
_NONE_INSIDE: Final = "no step lies in the window"


def why_no_steps(trace: Trace) -> str:
    """Why no step is in the window."""
    return _NONE_INSIDE if any(host.steps for host in trace.steps_by_host) else _NO_STEPS


def compute(context: Context) -> Steps | Skipped:
    """The steps, how they were found, and what the training does in each."""
    trace, selection = context.trace, context.selection
    steps_by_host = {host: steps for host, steps in selection.steps.items() if steps}
    if not steps_by_host:
        return Skipped(why_no_steps(trace))
    methods = [trace.steps_by_host[host] for host in steps_by_host]
    rows = tuple(step_rows(context))
    function, most = _training_loop(trace, selection)
    return Steps(
        method=_common([steps.method for steps in methods]),
        reliability=max(
            (_RELIABILITY[steps.method] for steps in methods), key=("high", "medium", "low").index
        ),
        steps_per_call=most,
        basis=_common([steps.basis for steps in methods]),
        count=len(rows),
        used_count=sum(row.used for row in rows),
        median_ps=selection.median_step_ps,
        steps=rows,
        loop_function=function,
        evaluated_steps=tuple(sorted(_evaluated(trace, selection))),
        accumulation_steps=_accumulation_steps(trace),
    )


def _training_loop(trace: Trace, selection: Selection) -> tuple[str | None, int | None]:
    """The step function whose graph runs several training steps, and the most that a call makes; None where not known."""
    sidecars = [sidecar for _, sidecar in _marked(trace, selection)]
    most = max((count for each in sidecars for count in each.window.steps_per_call), default=0)
    functions = (function for each in sidecars for function in each.placement.functions)
    for function in functions if most <= 1 else ():
        if function.step is not None and (function.training_loop or function.replica_runs):
            return function.step, None if function.training_loop else function.replica_runs
    return None, most or None


def _evaluated(trace: Trace, selection: Selection) -> set[int]:
    return {
        step.number
        for steps, sidecar in _marked(trace, selection)
        for recorded in sidecar.window.evaluations
        for step in steps
        if recorded.functions
        if recorded.after is not None and recorded.after == step.recorded_number
    }


def _marked(trace: Trace, selection: Selection) -> Iterator[tuple[Sequence[Step], Sidecar]]:
    """The steps and the sidecar of each host whose steps the capture marked."""
    for host, steps in selection.steps.items():
        sidecar = trace.hosts[host].sidecar
        if steps and sidecar is not None and trace.steps_by_host[host].method == "marker":
            yield steps, sidecar


def _common(values: list[str]) -> str:
    return values[0] if len(set(values)) == 1 else "mixed"


def step_rows(context: Context) -> Iterator[StepRow]:
    """The steps of every host, with the states of its devices."""
    trace, ledger = context.trace, context.ledger
    named = {device: trace.device_key(device) for device in ledger.devices}
    states = {device: ledger.states_of_steps(device).T.tolist() for device in ledger.devices}
    first: dict[int, int] = {}
    is_sampled = any(host.sidecar and host.sidecar.python for host in trace.hosts)
    python_of = (
        python_of_steps(ledger, context.selection.steps, context.idle.python) if is_sampled else {}
    )
    for number, step in enumerate(ledger.steps):
        place = number - first.setdefault(step.host, number)
        python = python_of.get(step.host)
        yield StepRow(
            host=trace.hosts[step.host].name,
            number=step.number,
            recorded_number=step.recorded_number,
            kind=step.kind,
            start_ps=step.start_ps,
            duration_ps=step.duration_ps,
            used=step.excluded is None,
            excluded=step.excluded,
            devices=tuple(
                StepDevice(
                    named[device],
                    {key: ps for key, ps in zip(KEYS, states[device][place], strict=True) if ps},
                )
                for device in trace.devices_of_host[step.host]
                if device in named
            ),
            python=python[place] if python else None,
        )


def _accumulation_steps(trace: Trace) -> int | None:
    """The number that the capture of a host saw, if it is more than one."""
    numbers = [host.captured.environment.training.accumulation_steps or 1 for host in trace.hosts]
    most = max(numbers, default=1)
    return most if most > 1 else None


# Slow steps


class SlowSteps(Struct, frozen=True):
    """Steps that take longer than the typical one; of several hosts a step takes as long as on the slowest.

    `numbers`: of these steps. `usual`: of the other ones. `slow_ps`, `usual_ps`: their mean lengths, rounded down.
    `typical_ps`: the median of all. `period`: one in so many steps is slow; None where their distances differ.
    """

    numbers: tuple[int, ...]
    usual: tuple[int, ...]
    slow_ps: int
    usual_ps: int
    typical_ps: int
    period: int | None


def slow_steps(result: Steps) -> SlowSteps | None:
    """The slow ones of the used steps; None without any.

    Steps that are expected to take longer are none: before an evaluation, and of accumulated gradients the updates.
    """
    longest = longest_by_number(
        row for row in result.steps if row.used and row.number not in result.evaluated_steps
    )
    numbers = sorted(longest)
    lengths = np.array([longest[number].duration_ps for number in numbers], dtype=np.int64)
    typical = low_median(lengths)
    if typical is None:
        return None
    ordered = np.sort(lengths)
    spread = typical - int(ordered[(ordered.size - 1) // 4])
    is_slow = lengths - typical >= max(SLOW_RATIO * typical, SLOW_SPREADS * spread, 1)
    if not is_slow.any():
        return None
    slow = [number for number, slow in zip(numbers, is_slow.tolist(), strict=True) if slow]
    every = result.accumulation_steps
    if every is not None and len({number % every for number in slow}) == 1:
        return None
    return SlowSteps(
        numbers=tuple(slow),
        usual=tuple(number for number in numbers if number not in slow),
        slow_ps=int(lengths[is_slow].sum()) // len(slow),
        usual_ps=int(lengths[~is_slow].sum()) // int((~is_slow).sum()),
        typical_ps=typical,
        period=distance_of(slow, numbers, FEWEST_SLOW),
    )


def distance_of(chosen: Sequence[int], numbers: Sequence[int], fewest: int) -> int | None:
    """The distance of some steps among others, if it is always the same and none is missing at either end."""
    distances = {later - number for number, later in pairwise(chosen)}
    if len(chosen) < fewest or len(distances) != 1:
        return None
    (distance,) = distances
    is_whole = chosen[0] - numbers[0] < distance and numbers[-1] - chosen[-1] < distance
    return distance if is_whole and distance > 1 else None


def state_growth(
    rows: Iterable[StepRow], numbers: Collection[int], usual: Collection[int]
) -> dict[str, dict[str, int]]:
    """By state and device, how much longer it takes in some used steps than in as many usual ones, exact and rounded down."""
    inside: Counter[tuple[str, str]] = Counter()
    outside: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[str, bool]] = Counter()
    numbers, usual = frozenset(numbers), frozenset(usual)
    for row in rows:
        is_inside = row.number in numbers
        if not row.used or not (is_inside or row.number in usual):
            continue
        for part in row.devices:
            counts[part.device, is_inside] += 1
            for state, ps in part.states.items():
                (inside if is_inside else outside)[state, part.device] += ps
    growth: dict[str, dict[str, int]] = {}
    for state, device in inside | outside:
        usual_ps = counts[device, True] * outside[state, device] // (counts[device, False] or 1)
        growth.setdefault(state, {})[device] = inside[state, device] - usual_ps
    return growth


# Steps worth looking at


def longest_by_number(rows: Iterable[StepRow]) -> dict[int, StepRow]:
    """By number the step on the host on which it takes longest, of used ones if any is."""
    longest: dict[int, StepRow] = {}
    for row in rows:
        known = longest.setdefault(row.number, row)
        if (row.used, row.duration_ps) > (known.used, known.duration_ps):
            longest[row.number] = row
    return longest


def median_step(rows: Sequence[StepRow]) -> StepRow | None:
    """The used step in the middle by length, the shorter of two; None without any."""
    used = sorted((row for row in rows if row.used), key=lambda row: (row.duration_ps, row.number))
    return used[(len(used) - 1) // 2] if used else None


def worst_step(rows: Iterable[StepRow], numbers: Collection[int]) -> StepRow | None:
    """The longest of some steps, by number; None where none of them is in the window."""
    chosen = (row for row in rows if row.number in numbers)
    return max(chosen, key=lambda row: row.duration_ps, default=None)


def detailed_steps(steps: Steps, findings: Iterable[Finding]) -> frozenset[int]:
    """Numbers of the steps that a timeline shows in full detail, on every host."""
    rows = steps.steps
    used = [row for row in rows if row.used]
    chosen = [median_step(rows), max(used, key=lambda row: row.duration_ps, default=None)]
    chosen += [worst_step(rows, finding.steps) for finding in findings if finding.steps]
    return frozenset(row.number for row in chosen if row is not None)
