"""Selects the time span to analyze: windows, ranges of steps, and the step of an instant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from traceview.base.errors import UsageError
from traceview.base.ids import sorted_unique
from traceview.base.intervals import BoolArray, Int32Array, Int64Array, nesting, places
from traceview.trace.columns import NONE
from traceview.trace.model import HostSteps, Step, Trace

WindowKind: TypeAlias = Literal["auto", "steps", "devices", "trace"]
SpanKind: TypeAlias = Literal["steps", "devices", "trace"]
WINDOW_KINDS: Final[tuple[WindowKind, ...]] = ("auto", "steps", "devices", "trace")


class StepRange(Struct, frozen=True):
    """Steps from `first` up to but not including `last`, by number; None leaves an end open."""

    first: int | None
    last: int | None

    def holds(self, step: Step) -> bool:
        """Whether the range includes a step."""
        after = self.first is None or step.number >= self.first
        return after and (self.last is None or step.number < self.last)

    def __str__(self) -> str:
        first = "" if self.first is None else self.first
        return f"{first}:{'' if self.last is None else self.last}"


class StepBounds(Struct, frozen=True, eq=False):
    """Where steps of a host begin and end, sorted, int64 `[n]`, and the index of the step before the first, and after each.

    `step`, int32 `[n + 1]`: of several the last begun; `NONE` outside of steps.
    """

    time: Int64Array
    step: Int32Array

    @classmethod
    def of(cls, steps: Sequence[Step]) -> StepBounds:
        """The bounds of some steps of a host."""
        start = np.array([step.start_ps for step in steps], dtype=np.int64)
        end = np.array([step.end_ps for step in steps], dtype=np.int64)
        time = sorted_unique(np.concatenate((start, end)))
        step = np.append(NONE, nesting(start, end).innermost(time))
        return cls(time, step.astype(np.int32))


class Window(Struct, frozen=True):
    """The window of one host: `kind` is steps, devices or trace; `end_ps` is exclusive."""

    host: int
    kind: SpanKind
    start_ps: int
    end_ps: int

    @property
    def length_ps(self) -> int:
        """Length of the window."""
        return self.end_ps - self.start_ps


def step_numbers_at(
    steps_by_host: Sequence[HostSteps], host: Int64Array, time_ps: Int64Array
) -> tuple[Int64Array, BoolArray]:
    """The number of the step that each instant belongs to on its host, int64 `[n]`, and bool `[n]` whether it has one.

    `host`: index into the hosts, `[n]`. `time_ps`: since the origin of the run, `[n]`. `NONE` outside of all steps.
    """
    number = np.full(time_ps.size, NONE, dtype=np.int64)
    in_step = np.zeros(time_ps.size, dtype=np.bool_)
    by_host = np.argsort(host, kind="stable")
    bounds = np.searchsorted(host[by_host], np.arange(len(steps_by_host) + 1))
    for host_steps in steps_by_host:
        own = by_host[bounds[host_steps.host] : bounds[host_steps.host + 1]]
        if not host_steps.steps or not own.size:
            continue
        bounds_of_steps = StepBounds.of(host_steps.steps)
        index = bounds_of_steps.step[places(bounds_of_steps.time, time_ps[own], right=True)]
        numbers = np.array([*(step.number for step in host_steps.steps), NONE], dtype=np.int64)
        number[own], in_step[own] = numbers[index], index != NONE
    return number, in_step


def chosen_steps(host_steps: HostSteps, steps: StepRange | None) -> tuple[Step, ...]:
    """The steps of a host that the range includes."""
    return tuple(step for step in host_steps.steps if steps is None or steps.holds(step))


def windows_of(
    trace: Trace, kind: WindowKind = "auto", steps: StepRange | None = None
) -> dict[int, Window]:
    """The window of each host that has one.

    `auto`: steps if the host has any, else devices, else trace. `steps` narrows the window to these steps. Raises
    `UsageError` if no host has any of these steps, or a window of the requested `kind`.
    """
    every = {host: _window(trace, host, kind, steps) for host in range(len(trace.hosts))}
    windows = {host: window for host, window in every.items() if window is not None}
    if steps is not None and not windows:
        numbers = [step.number for host in trace.steps_by_host for step in host.steps]
        available = (
            f"it has steps {min(numbers)} to {max(numbers)}" if numbers else "it has no steps"
        )
        raise UsageError(f"--steps {steps}: the trace has none of them; {available}")
    if kind != "auto" and not windows:
        missing = {"steps": "steps", "devices": "device events"}.get(kind, "events")
        raise UsageError(f"--window {kind}: the trace has no {missing}", hint="try --window auto")
    return windows


def _window(trace: Trace, host: int, kind: WindowKind, steps: StepRange | None) -> Window | None:
    chosen = chosen_steps(trace.steps_by_host[host], steps)
    by_steps = _span(host, "steps", chosen)
    if kind in ("auto", "steps") and (by_steps or kind == "steps" or steps is not None):
        return by_steps
    window = None
    if kind in ("auto", "devices"):
        window = _device_window(trace, host)
    if window is None and kind in ("auto", "trace"):
        window = _trace_window(trace, host)
    if window is None or steps is None:
        return window
    if by_steps is None:
        return None
    start, end = max(window.start_ps, by_steps.start_ps), min(window.end_ps, by_steps.end_ps)
    return Window(host, window.kind, start, end) if start < end else None


def _span(host: int, kind: SpanKind, steps: tuple[Step, ...]) -> Window | None:
    if not steps:
        return None
    return Window(host, kind, min(s.start_ps for s in steps), max(s.end_ps for s in steps))


def _device_window(trace: Trace, host: int) -> Window | None:
    columns, rows = trace.device_columns, trace.device_rows(host)
    if rows.size == 0:
        return None
    return Window(
        host, "devices", int(columns.start_ps[rows].min()), int(columns.end_ps[rows].max())
    )


def _trace_window(trace: Trace, host: int) -> Window | None:
    entry = trace.hosts[host]
    if entry.stop_ps is not None:
        return Window(host, "trace", entry.start_ps, entry.stop_ps)
    columns = trace.host_columns
    rows = columns.rows_of_host(host)
    spans = [(columns.start_ps[rows], columns.end_ps[rows])] if rows.start < rows.stop else []
    devices = _device_window(trace, host)
    starts = [int(start.min()) for start, _ in spans] + ([devices.start_ps] if devices else [])
    ends = [int(end.max()) for _, end in spans] + ([devices.end_ps] if devices else [])
    return Window(host, "trace", min(starts), max(ends)) if starts else None
