"""Attributes the idle time of the devices to causes, gap by gap."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from traceview.analysis.facts.python import HostPython, python_of_hosts
from traceview.analysis.facts.selection import Selection
from traceview.trace.host.gaps import Gaps, ManyEvidence, gaps_of_device
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import Trace
from traceview.trace.windows import StepBounds


class IdleAttribution(Struct, frozen=True, eq=False):
    """The gaps of each device with their causes, by device index; the states of the hosts and their Python, by host index."""

    gaps: Mapping[int, Gaps]
    states: Mapping[int, HostStates]
    python: Mapping[int, HostPython]
    """Only of hosts whose stacks were sampled."""
    evidence: Mapping[int, ManyEvidence]
    """The search for the host events that show causes, by host index."""


def attribute_idle_time(trace: Trace, selection: Selection) -> IdleAttribution:
    """The gaps of every device whose host recorded device events."""
    states: dict[int, HostStates] = {}
    found: dict[int, Gaps] = {}
    for host, window in selection.windows.items():
        devices = trace.devices_of_host[host]
        if not devices or host not in trace.hosts_with_device_events:
            continue
        states[host] = HostStates(trace, host)
        steps = StepBounds.of(selection.steps[host])
        for device in devices:
            found[device] = gaps_of_device(trace, device, window, steps, states[host])
    gaps = {device: found[device] for device in sorted(found)}
    evidence = {host: ManyEvidence(trace, of_host) for host, of_host in states.items()}
    return IdleAttribution(gaps, states, python_of_hosts(trace, states), evidence)
