"""Attributes the idle time of the devices to causes, gap by gap."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain

from msgspec import Struct

from traceview.analysis.facts.of_hosts import by_device
from traceview.analysis.facts.python import HostPython, python_of_hosts
from traceview.analysis.facts.selection import Selection, step_bounds
from traceview.base.intervals import Int64Array
from traceview.trace.device.side_by_side import for_devices
from traceview.trace.host.gap_evidence import ManyEvidence
from traceview.trace.host.gaps import Gaps, gaps_of_device
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.state_timeline import StateTimeline
from traceview.trace.model import Trace
from traceview.trace.reading.host_of_run import first_numbers, gaps_in_run


class IdleAttribution(Struct, frozen=True, eq=False):
    """The gaps of each device with their causes, by device index; the states of the hosts and their Python, by host index."""

    gaps: Mapping[int, Gaps]
    states: Mapping[int, HostStates]
    causes_of_steps: Mapping[int, Int64Array]
    """By device index: idle picoseconds by cause and step, int64 `[causes, steps of the host]`."""
    python: Mapping[int, HostPython]
    """Only of hosts whose stacks were sampled."""
    evidence: Mapping[int, ManyEvidence]
    """The search for the host events that show causes, by host index."""

    @classmethod
    def of(
        cls,
        trace: Trace,
        gaps: Mapping[int, Gaps],
        states: Mapping[int, HostStates],
        causes_of_steps: Mapping[int, Int64Array],
    ) -> IdleAttribution:
        """The attribution of these gaps."""
        evidence = {host: ManyEvidence(trace, of_host) for host, of_host in states.items()}
        return cls(gaps, states, causes_of_steps, python_of_hosts(trace, states), evidence)


def attribute_idle_time(trace: Trace, selection: Selection) -> IdleAttribution:
    """The gaps of every device whose host recorded device events."""
    states: dict[int, HostStates] = {}
    found: dict[int, Gaps] = {}
    of_steps: dict[int, Int64Array] = {}
    for host, window in selection.windows.items():
        devices = trace.devices_of_host[host]
        if not devices or host not in trace.hosts_with_device_events:
            continue
        states[host] = HostStates(trace, host)
        bounds = step_bounds(selection.steps[host])
        find = partial(gaps_of_device, trace, window=window, steps=bounds, states=states[host])
        # With the first device is made what all of them need.
        made = chain((find(devices[0]),), for_devices(trace, find, devices[1:]))
        for device, own in zip(devices, made, strict=True):
            found[device], of_steps[device] = own, own.of_steps(*bounds)
    gaps = {device: found[device] for device in sorted(found)}
    return IdleAttribution.of(trace, gaps, states, of_steps)


class IdleOfHost(Struct, frozen=True, eq=False):
    """The gaps of one host and their causes by step, by device, and the timelines of its threads, in its own numbers."""

    gaps: Mapping[int, Gaps]
    causes_of_steps: Mapping[int, Int64Array]
    timelines: Mapping[int, StateTimeline]

    @classmethod
    def of(cls, attribution: IdleAttribution) -> IdleOfHost:
        """What is known of a run of one host."""
        states = attribution.states.get(0)
        timelines = states.timelines if states else {}
        return cls(attribution.gaps, attribution.causes_of_steps, timelines)


def joined_idle_time(trace: Trace, hosts: Mapping[int, IdleOfHost]) -> IdleAttribution:
    """The idle time of a run from that of its hosts, by index."""
    gaps: dict[int, Gaps] = {}
    of_steps: dict[int, Int64Array] = {}
    states: dict[int, HostStates] = {}
    for host in by_device(trace, hosts):
        idle, first = hosts[host], first_numbers(trace, host)
        for device, of_device in idle.gaps.items():
            gaps[first.device + device] = gaps_in_run(of_device, first)
            of_steps[first.device + device] = idle.causes_of_steps[device]
        if idle.gaps:
            timelines = {first.line + thread: known for thread, known in idle.timelines.items()}
            states[host] = HostStates(trace, host, timelines)
    return IdleAttribution.of(trace, gaps, states, of_steps)
