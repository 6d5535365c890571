"""Chooses the part of a trace that is analysed: the window of each host and the steps in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.base.intervals import Int64Array, IntervalSet, overlapping
from traceview.base.record import Hostname, Integer, Record
from traceview.base.stats import median_ps
from traceview.trace.model import (
    SpanKind,
    Step,
    StepRange,
    Trace,
    Window,
    WindowKind,
    chosen_steps,
    windows_of,
)

_FEWEST_STEPS: Final = 2


class ReportWindow(Record, frozen=True):
    """The span that times and counts of a host refer to.

    Attributes:
        host: Name of the host.
        kind: steps: first step start to last step end; devices: first to last device event; trace: the whole profile.
        start_ps: Start, picoseconds since the origin of the run.
        end_ps: End, picoseconds since the origin of the run.
    """

    host: Hostname
    kind: SpanKind
    start_ps: Integer
    end_ps: Integer


class Selection(Struct, frozen=True, eq=False, dict=True):
    """`windows` by host index; `steps`: those of each host that lie in its window, in time order."""

    windows: dict[int, Window]
    steps: dict[int, tuple[Step, ...]]

    def window_of_device(self, trace: Trace, device: int) -> Window | None:
        """The window of the host of a device of the device list."""
        return self.windows.get(trace.device_list[device].host)

    def shown(self, trace: Trace) -> tuple[ReportWindow, ...]:
        """The windows as a report and the tables state them."""
        return tuple(
            ReportWindow(trace.hosts[host].name, window.kind, window.start_ps, window.end_ps)
            for host, window in self.windows.items()
        )

    def used_of(self, host: int) -> tuple[Step, ...]:
        """The steps of a host that take part in statistics."""
        return tuple(step for step in self.steps.get(host, ()) if step.excluded is None)

    @property
    def used_steps(self) -> tuple[Step, ...]:
        """The steps of all hosts that take part in statistics."""
        return tuple(step for host in self.steps for step in self.used_of(host))

    @property
    def has_few_steps(self) -> bool:
        """Whether too few steps were recorded to conclude anything about speed."""
        return len(self.used_steps) < _FEWEST_STEPS

    @cached_property
    def median_step_ps(self) -> int | None:
        """Median duration of the used steps, rounded down; None without any."""
        return median_ps([step.duration_ps for step in self.used_steps])

    @cached_property
    def mean_step_ps(self) -> int | None:
        """Mean duration of the used steps, rounded down; None without any."""
        lengths = [step.duration_ps for step in self.used_steps]
        return sum(lengths) // len(lengths) if lengths else None


def select(trace: Trace, kind: WindowKind = "auto", steps: StepRange | None = None) -> Selection:
    """The windows of all hosts and the steps that lie in them; raises `UsageError` as `windows_of` does."""
    windows = windows_of(trace, kind, steps)
    inside = {
        host: tuple(
            step
            for step in chosen_steps(trace.steps_by_host[host], steps)
            if step.start_ps < window.end_ps and step.end_ps > window.start_ps
        )
        for host, window in windows.items()
    }
    return Selection(windows, inside)


def step_bounds(steps: Sequence[Step | Window]) -> tuple[Int64Array, Int64Array]:
    """When each step, or window, begins and ends, int64 `[steps]`."""
    return (
        np.array([step.start_ps for step in steps], dtype=np.int64),
        np.array([step.end_ps for step in steps], dtype=np.int64),
    )


def covered_ps(spans: IntervalSet, window: Window) -> int:
    """How much of a window the spans cover."""
    if not spans.start.size:
        return 0
    before, until = spans.before((window.start_ps, window.end_ps)).tolist()
    return int(until - before)


def rows_in(start: Int64Array, end: Int64Array, window: Window) -> Int64Array:
    """Indices of the events that overlap a window; empty events count if they start in it."""
    return overlapping(start, end, window.start_ps, window.end_ps)
