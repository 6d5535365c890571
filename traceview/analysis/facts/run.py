"""Holds a trace, the part of it that is analysed, and what is made of them once, on demand, for whoever asks; and its examples per second."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.python import HostPython, python_of_hosts
from traceview.analysis.facts.selection import Selection
from traceview.base.intervals import IntervalSet, union
from traceview.base.record import LARGEST_RECORDED, Count, Ratio, Record
from traceview.base.sweeping import made_of_each
from traceview.base.timing import stage
from traceview.base.units import PS_PER_S
from traceview.trace.host.gaps import Gaps, gaps_of_device
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import Trace
from traceview.trace.strategy.collectives import Collectives, collectives_of
from traceview.xplane.planes import ActivityClass


class Throughput(Record, frozen=True):
    """Examples per second over the median step, in all and per device in use.

    Attributes:
        examples_per_second: Of all devices; null where the batch size is not known.
        per_gpu_per_second: The same per device in use.
        batch_size: Examples of one step of all replicas; null where not known.
    """

    examples_per_second: Ratio | None
    per_gpu_per_second: Ratio | None
    batch_size: Count | None


def throughput_of(trace: Trace, selection: Selection, device_count: int) -> Throughput:
    """From the batch size in the sidecars and the median step."""
    step_ps, size = selection.median_step_ps, batch_size(trace)
    if size is None or not step_ps:
        return Throughput(None, None, size)
    per_second = size * PS_PER_S / step_ps
    return Throughput(per_second, per_second / device_count, size)


def batch_size(trace: Trace) -> int | None:
    """Examples of one step over all hosts; None where a sidecar does not say, or a step is several training steps."""
    sidecars = [host.sidecar for host in trace.hosts]
    first = sidecars[0] if sidecars else None
    if first is None or None in sidecars:
        return None
    if any(graph.training_loop for graph in first.placement.functions):
        return None
    batch, strategy = first.environment.batch, first.environment.strategy
    if len(sidecars) == 1:
        return batch.global_
    size = (batch.per_replica or 0) * (strategy.replicas or 0)
    return size if 0 < size <= LARGEST_RECORDED else None


T = TypeVar("T")
R = TypeVar("R", bound="Run")


class IdleAttribution(Struct, frozen=True, eq=False):
    """The gaps of each device with their causes, by device index; the states of the hosts and their Python, by host index."""

    gaps: Mapping[int, Gaps]
    states: Mapping[int, HostStates]
    python: Mapping[int, HostPython]
    """Only of hosts whose stacks were sampled."""


class DeviceActivity(Struct, frozen=True, eq=False):
    """When a device did what, over the whole recording. `by_class[c]`: of class c."""

    by_class: tuple[IntervalSet, ...]

    @property
    def compute(self) -> IntervalSet:
        """When it computed."""
        return self.by_class[ActivityClass.COMPUTE]


def device_activity(trace: Trace, device: int) -> DeviceActivity:
    """The unions of one device over the whole recording."""
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    start, end, class_ = columns.start_ps[rows], columns.end_ps[rows], columns.class_[rows]
    counts = np.bincount(class_, minlength=len(ActivityClass)).tolist()
    of_class = [class_ == number if count else slice(0) for number, count in enumerate(counts)]
    return DeviceActivity(tuple(union(start[own], end[own]) for own in of_class))


class Run:
    """A trace, the part of it that is analysed, and the facts that need nothing but the trace.

    Each is computed once, on demand.
    """

    def __init__(self, trace: Trace, selection: Selection) -> None:
        self.trace = trace
        self.selection = selection
        self._made: dict[Hashable, Any] = {}

    @property
    def activities(self) -> tuple[DeviceActivity, ...]:
        """What each device did, by its index in the device list."""
        return self.once(_activities)

    @property
    def idle(self) -> IdleAttribution:
        """Every gap of every device whose host recorded device events, with its cause."""
        return self.once(_idle_time)

    @property
    def collectives(self) -> Collectives:
        """Collectives, matched across devices."""
        return self.once(_collectives)

    def once(self: R, make: Callable[[R], T]) -> T:
        """What a function makes of this run; it is called once."""
        return self._once(make, lambda: make(self))

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made


def _activities(run: Run) -> tuple[DeviceActivity, ...]:
    with stage("activity of devices"):
        count = len(run.trace.device_list)
        return tuple(device_activity(run.trace, device) for device in range(count))


def _collectives(run: Run) -> Collectives:
    with stage("matching collectives"):
        return collectives_of(run.trace)


def _idle_time(run: Run) -> IdleAttribution:
    trace, selection = run.trace, run.selection
    states: dict[int, HostStates] = {}
    found: dict[int, Gaps] = {}
    with stage("causes of idle time"):
        for host, window in selection.windows.items():
            devices = trace.devices_of_host[host]
            if not devices or host not in trace.hosts_with_device_events:
                continue
            states[host] = HostStates(trace, host)
            find = partial(gaps_of_device, trace, window=window, states=states[host])
            if trace.threads_beside:
                states[host].gather(trace.threads_beside)
            found |= made_of_each(find, devices, trace.threads_beside)
        gaps = {device: found[device] for device in sorted(found)}
        return IdleAttribution(gaps, states, python_of_hosts(trace, states))
