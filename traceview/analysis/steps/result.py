"""Measures how long each step took, and what each device did in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from traceview.analysis.activity import DeviceActivity, Parts
from traceview.analysis.base import Skipped
from traceview.analysis.idle_python import PythonShare
from traceview.analysis.selection import Selection, step_bounds
from traceview.analysis.steps.accumulation import accumulation
from traceview.analysis.steps.updates import updates_per_step
from traceview.record import (
    LARGEST,
    Count,
    DeviceKey,
    FunctionName,
    Hostname,
    Integer,
    Picoseconds,
    Record,
    one_of,
)
from traceview.robust import median_ps, quartile_range
from traceview.trace.model import Step, Trace
from traceview.trace.sidecar import Sidecar
from traceview.units import PS_PER_NS

_RELIABILITIES: Final = ("high", "medium", "low")
_RELIABILITY: Final = {
    "marker": "high",
    "keras": "high",
    "group": "medium",
    "function": "medium",
    "iterator": "low",
    "period": "low",
}


class StepDevice(Parts, frozen=True):
    """The exclusive parts of one step on one device; they sum to the length of the step.

    Attributes:
        device: Key of the device.
    """

    device: DeviceKey


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
        devices: The parts of the step on every device of the host.
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
    excluded: str | None
    devices: tuple[StepDevice, ...]
    python: PythonShare | None = None


class StepEvaluation(Record, frozen=True):
    """An evaluation between two steps, such as validation. The time of the step before it holds it.

    Attributes:
        host: Name of the host.
        after: Number in the marker of the step before it.
        functions: Names of the functions that were called.
        call_count: Calls of them.
        duration_ps: From the first call to the return of the last, picoseconds.
    """

    host: Hostname
    after: Integer
    functions: tuple[FunctionName, ...]
    call_count: Count
    duration_ps: Picoseconds


class Steps(Record, frozen=True):
    """The steps in the window.

    Attributes:
        method: How the steps were found; mixed where hosts differ.
        reliability: How sure the bounds of steps are: high (markers), medium (stored groups, function calls), low
            (input calls or kernels that repeat).
        basis: marker: cut at the recorded bounds; device: at the first device event of each, because the host
            runs ahead; mixed where hosts differ.
        loop_iterations: How often a loop in the graph ran per step (median), or how often the graph of a step calls
            Strategy.run. If that is the training loop, one step here is several training steps. Null without one.
        updates_per_step: How often the optimizer ran in a step (median), where a loop does; null without a loop, or where
            no op shows the optimizer. Once: the loop is a layer, such as an LSTM, and not the training loop.
        steps_per_call: The most training steps that one call made of those that the capture marked as steps,
            such as steps_per_execution of Keras; null where the sidecar does not say.
        count: Steps in the window, over all hosts.
        used_count: Steps that take part in the statistics.
        median_ps: Median duration of the used steps, picoseconds; null without any.
        iqr_ps: Interquartile range of the durations of the used steps, picoseconds, rounded down; null for
            fewer than two.
        cv_ratio: Standard deviation over mean of the durations of the used steps; null for fewer than two.
        steps: The steps, host by host in time order.
        loop_function: Step function of which the capture knows that each call runs several training steps in its
            graph; null where it knows of none.
        evaluations: Evaluations between the steps, as the capture saw them.
        optimizer_steps: Numbers of the steps in which the optimizer updated the variables, where gradients accumulate
            in the others; empty where it runs in each step, or nothing shows when it runs.
        accumulated_steps: Over how many steps gradients accumulate; null where they do not, or that is not known.
    """

    method: Annotated[
        str, one_of("marker", "keras", "group", "function", "iterator", "period", "mixed")
    ]
    reliability: Annotated[str, one_of("high", "medium", "low")]
    basis: Annotated[str, one_of("marker", "device", "mixed")]
    loop_iterations: Annotated[int, Meta(ge=2, le=LARGEST)] | None
    steps_per_call: Annotated[int, Meta(ge=1, le=LARGEST)] | None
    count: Count
    used_count: Count
    median_ps: Picoseconds | None
    iqr_ps: Picoseconds | None
    cv_ratio: float | None
    steps: tuple[StepRow, ...]
    loop_function: FunctionName | None = None
    evaluations: tuple[StepEvaluation, ...] = ()
    optimizer_steps: tuple[Integer, ...] = ()
    accumulated_steps: Annotated[int, Meta(ge=2, le=LARGEST)] | None = None
    updates_per_step: Annotated[int, Meta(ge=1, le=LARGEST)] | None = None

    @property
    def trains_in_loop(self) -> bool | None:
        """Whether the loop in the graph is the training loop; None where nothing shows it."""
        if self.loop_iterations is None:
            return False
        return None if self.updates_per_step is None else self.updates_per_step > 1


def compute(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    python: Mapping[int, Sequence[PythonShare | None]],
) -> Steps | Skipped:
    """The steps of every host, with the time of its devices cut at their bounds; `python`: by host, per step."""
    steps_by_host = {host: steps for host, steps in selection.steps.items() if steps}
    if not steps_by_host:
        return Skipped("no steps: nothing marks them, and nothing repeats")
    methods = [trace.steps_by_host[host] for host in steps_by_host]
    rows = [
        row
        for host, steps in steps_by_host.items()
        for row in _rows(trace, host, steps, activities, python.get(host, [None] * len(steps)))
    ]
    accumulated = accumulation(trace, selection)
    function, runs = _training_loop(trace, selection)
    loop_iterations = runs or _loop_iterations(trace, selection)
    used = np.array([row.duration_ps for row in rows if row.used], dtype=np.int64)
    return Steps(
        method=_common([steps.method for steps in methods]),
        reliability=max(
            (_RELIABILITY[steps.method] for steps in methods), key=_RELIABILITIES.index
        ),
        loop_iterations=loop_iterations,
        steps_per_call=_steps_per_call(trace, selection),
        basis=_common([steps.basis for steps in methods]),
        count=len(rows),
        used_count=int(used.size),
        median_ps=selection.median_step_ps,
        iqr_ps=int(quartile_range(used)) if used.size > 1 else None,
        cv_ratio=float(used.std() / used.mean()) if used.size > 1 and used.mean() else None,
        steps=tuple(rows),
        loop_function=function,
        evaluations=tuple(_evaluations(trace, selection)),
        optimizer_steps=accumulated.updates if accumulated else (),
        accumulated_steps=accumulated.every if accumulated else None,
        updates_per_step=updates_per_step(trace, selection) if loop_iterations else None,
    )


def _loop_iterations(trace: Trace, selection: Selection) -> int | None:
    """The median over the steps of the most iterations that one executor in it ran; None if none ran two."""
    columns = trace.host_columns
    numbers = columns.stat("iter_num")
    executes = trace.names.matching(columns.name[numbers.row], [b"ExecutorState::Process"])
    row, iteration = numbers.row[executes], numbers.value[executes]
    start, host = columns.start_ps[row], columns.host[row]
    most = []
    for step in (step for steps in selection.steps.values() for step in steps):
        inside = (host == step.host) & (start >= step.start_ps) & (start < step.end_ps)
        most.append(int(iteration[inside].max(initial=0)))
    median = median_ps(most) or 0
    # In the iteration after the last one only the condition of the loop runs.
    return median if median > 1 else None


def _training_loop(trace: Trace, selection: Selection) -> tuple[str | None, int | None]:
    """The step function whose calls run several training steps, and how many if its graph repeats them without a loop."""
    for sidecar in _sidecars(trace, selection):
        if max(sidecar.steps_per_call, default=1) > 1:
            continue
        for function in sidecar.placement.functions:
            if function.step is not None and (function.training_loop or function.replica_runs):
                return function.step, None if function.training_loop else function.replica_runs
    return None, None


def _evaluations(trace: Trace, selection: Selection) -> Iterator[StepEvaluation]:
    for host, steps in selection.steps.items():
        sidecar = trace.hosts[host].sidecar
        if sidecar is None or trace.steps_by_host[host].method != "marker":
            continue
        shown = {step.recorded_number for step in steps}
        for recorded in sidecar.evaluations:
            if recorded.after is not None and recorded.after in shown and recorded.functions:
                begun_ns, ended_ns = recorded.begun_ns or 0, recorded.ended_ns or 0
                yield StepEvaluation(
                    host=trace.hosts[host].name,
                    after=recorded.after,
                    functions=tuple(recorded.functions),
                    call_count=min(sum(recorded.functions.values()), LARGEST),
                    duration_ps=min(max(ended_ns - begun_ns, 0) * PS_PER_NS, LARGEST),
                )


def _sidecars(trace: Trace, selection: Selection) -> Iterator[Sidecar]:
    """The sidecars of hosts whose steps the capture marked."""
    for host, steps in selection.steps.items():
        sidecar = trace.hosts[host].sidecar
        if steps and sidecar is not None and trace.steps_by_host[host].method == "marker":
            yield sidecar


def _steps_per_call(trace: Trace, selection: Selection) -> int | None:
    """The most training steps per call in the sidecars of hosts whose steps the capture marked."""
    marked = _sidecars(trace, selection)
    most = max((count for sidecar in marked for count in sidecar.steps_per_call), default=0)
    return most if most > 0 else None


def _common(values: list[str]) -> str:
    return values[0] if len(set(values)) == 1 else "mixed"


def _rows(
    trace: Trace,
    host: int,
    steps: tuple[Step, ...],
    activities: Sequence[DeviceActivity],
    python: Sequence[PythonShare | None],
) -> list[StepRow]:
    bounds = step_bounds(steps)
    devices = [
        (trace.device_key(index), activities[index].parts(*bounds))
        for index, device in enumerate(trace.device_list)
        if device.host == host
    ]
    return [
        StepRow(
            host=trace.hosts[host].name,
            number=step.number,
            recorded_number=step.recorded_number,
            kind=step.kind,
            start_ps=step.start_ps,
            duration_ps=step.duration_ps,
            used=step.excluded is None,
            excluded=step.excluded,
            devices=tuple(StepDevice(*(*parts[:, place].tolist(), key)) for key, parts in devices),
            python=python[place],
        )
        for place, step in enumerate(steps)
    ]
