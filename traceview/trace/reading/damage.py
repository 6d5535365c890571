"""Tells which hosts have damaged files: what is readable of one shows what was there, and not what was not."""

from __future__ import annotations

from traceview.trace.model import Trace


def damaged_hosts(trace: Trace) -> frozenset[str]:
    """The names of the hosts whose files are cut off or damaged."""
    damaged = {problem.host for problem in trace.problems if problem.code == "damaged-file"}
    return frozenset(host.name for host in trace.hosts if host.name in damaged)


def is_damaged_throughout(trace: Trace) -> bool:
    """Whether no host has a whole file."""
    return len(damaged_hosts(trace)) == len(trace.hosts)
