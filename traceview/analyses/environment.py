"""What did the job run in: which command, strategy, batch, versions and devices?

A trace does not tell; `traceview capture` writes it down beside the trace.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceview.analyses.finding import Skipped
from traceview.trace.environment import RecordedEnvironment
from traceview.trace.model import Trace


@dataclass(frozen=True)
class HostEnvironment(RecordedEnvironment):
    """What one process ran in, as recorded."""

    host: str


@dataclass(frozen=True)
class Environment:
    """The hosts with a sidecar; `unknown`: those without one."""

    hosts: tuple[HostEnvironment, ...]
    unknown: tuple[str, ...]


def compute(trace: Trace) -> Environment | Skipped:
    """The sidecars of all hosts."""
    hosts = tuple(
        HostEnvironment(**vars(host.sidecar.environment), host=host.name)
        for host in trace.hosts
        if host.sidecar is not None
    )
    if not hosts:
        return Skipped("no sidecar: only traceview capture writes one beside the trace")
    return Environment(hosts, tuple(host.name for host in trace.hosts if host.sidecar is None))
