"""Which steps exist on which host? Hosts that train together make the same steps, and number them alike."""

from __future__ import annotations

from traceview.trace.model import HostSteps, Trace
from traceview.trace.roles import step_groups


def missing_steps(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """For each host the recorded numbers of steps that others of its group have and it has not, sorted.

    Empty for a host whose steps carry no recorded numbers: which they are cannot be told.
    """
    missing: list[tuple[int, ...]] = [()] * len(trace.hosts)
    for group in step_groups(trace.hosts):
        numbers = {host: _recorded(trace.steps_by_host[host]) for host in group}
        every = set().union(*(known for known in numbers.values() if known is not None))
        for host, known in numbers.items():
            if known is not None:
                missing[host] = tuple(sorted(every - known))
    return tuple(missing)


def _recorded(found: HostSteps) -> set[int] | None:
    numbers = {step.recorded_number for step in found.steps}
    return None if None in numbers else {number for number in numbers if number is not None}
