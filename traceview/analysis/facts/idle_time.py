"""Attributes the idle time of the devices to causes, gap by gap."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from traceview.analysis.facts.python import HostPython, python_of_hosts
from traceview.analysis.facts.selection import Selection, step_bounds
from traceview.base.intervals import Int64Array
from traceview.trace.host.gap_evidence import ManyEvidence
from traceview.trace.host.gaps import Gaps, gaps_of_device
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import Trace


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


def attribute_idle_time(trace: Trace, selection: Selection) -> IdleAttribution:
    """The gaps of every device whose host recorded device events."""
    recorded = trace.hosts_with_device_events
    states: dict[int, HostStates] = {}
    gaps: dict[int, Gaps] = {}
    of_steps: dict[int, Int64Array] = {}
    for device, entry in enumerate(trace.device_list):
        window = selection.window_of_device(trace, device)
        if window is None or entry.host not in recorded:
            continue
        if entry.host not in states:
            states[entry.host] = HostStates(trace, entry.host)
        bounds = step_bounds(selection.steps[entry.host])
        gaps[device] = gaps_of_device(trace, device, window, bounds, states[entry.host])
        of_steps[device] = gaps[device].of_steps(*bounds)
    evidence = {host: ManyEvidence(trace, of_host) for host, of_host in states.items()}
    return IdleAttribution(gaps, states, of_steps, python_of_hosts(trace, states), evidence)
