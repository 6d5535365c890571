"""Collects what the processes ran in: command, strategy, batch, versions and devices.

A trace does not hold this; `traceview capture` writes it into a sidecar beside the trace.
"""

from __future__ import annotations

from msgspec.structs import asdict

from traceview.analysis.rules.finding import Skipped
from traceview.base.record import Hostname, Record
from traceview.trace.model import Trace
from traceview.trace.sidecar.environment import RecordedEnvironment


class HostEnvironment(RecordedEnvironment, frozen=True):
    """The environment of one process, as recorded.

    Attributes:
        host: Name of the host.
    """

    host: Hostname


class Environment(Record, frozen=True):
    """The environments of the processes.

    Attributes:
        hosts: Hosts with a sidecar.
        unknown: Hosts without a sidecar.
    """

    hosts: tuple[HostEnvironment, ...]
    unknown: tuple[Hostname, ...]


def compute(trace: Trace) -> Environment | Skipped:
    """The environments of all hosts with a sidecar."""
    hosts = tuple(
        HostEnvironment(**asdict(host.sidecar.environment), host=host.name)
        for host in trace.hosts
        if host.sidecar is not None
    )
    if not hosts:
        return Skipped("no sidecar: only traceview capture writes one beside the trace")
    return Environment(hosts, tuple(host.name for host in trace.hosts if host.sidecar is None))
