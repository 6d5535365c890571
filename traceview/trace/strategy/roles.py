"""The role of each host in its cluster, and the groups of hosts that make their steps together.

TF_CONFIG gives every process a role and an index; a launcher such as mpirun gives it a rank. Workers and their
chief make the same steps at the same time. An evaluator does not. With parameter servers no two processes do: each works at its own pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from traceview.base.text import lazy_pattern
from traceview.trace.model import Host, HostSteps, Trace

_SERVER: Final = "ps"
_OUTSIDE: Final = "evaluator"
_LABEL: Final = lazy_pattern(r".+?_(w|worker|chief|master|ps|evaluator|r|p)(\d{1,6})(?:_p\d{1,6})?")
"""`traceview capture` adds this to the name of a host when it records several of its processes."""
_SHORT: Final = {"w": "worker", "r": "rank"}
_PROCESS: Final = "p"
"""One of several processes that nothing else tells apart."""
_MOST_TASKS: Final = 10_000
"""A damaged sidecar may hold any number."""


class Role(Struct, frozen=True):
    """One task of a cluster, as TF_CONFIG or the launcher names it; `index` None where it is not recorded."""

    name: str
    index: int | None

    def __str__(self) -> str:
        return self.name if self.index is None else f"{self.name} {self.index}"


def role_of(host: Host) -> Role | None:
    """The role in the sidecar, else the one in the name of the file; None if neither holds it."""
    task = None if host.sidecar is None else host.sidecar.environment.cluster
    if task is not None and task.role is not None:
        return Role(task.role, task.index)
    label = _LABEL.fullmatch(host.name)
    if label is None or label[1] == _PROCESS:
        return None
    return Role(_SHORT.get(label[1], label[1]), int(label[2]))


def machine_of(host: Host) -> str:
    """The machine of a host: its name without the label of the process."""
    label = _LABEL.fullmatch(host.name)
    return host.name if label is None else host.name[: label.start(1) - 1]


def part_in_training(host: Host) -> str:
    """The part of a host in the training: chief and workers do the same work, other roles do not."""
    role = role_of(host)
    return role.name if role is not None and role.name in (_SERVER, _OUTSIDE) else "worker"


def step_groups(hosts: Sequence[Host]) -> tuple[tuple[int, ...], ...]:
    """The hosts (by index) in groups that make their steps together; a host that works alone is its own group."""
    names = [None if role is None else role.name for role in map(role_of, hosts)]
    if _SERVER in names or _SERVER in _sizes(hosts):
        return tuple((index,) for index in range(len(hosts)))
    together = tuple(index for index, name in enumerate(names) if name != _OUTSIDE)
    alone = tuple((index,) for index, name in enumerate(names) if name == _OUTSIDE)
    return ((together,) if together else ()) + alone


def missing_tasks(hosts: Sequence[Host]) -> tuple[Role, ...]:
    """Tasks that make steps together with recorded tasks, but were not recorded themselves.

    The sidecars hold the sizes of the cluster; empty if none does.
    """
    if _SERVER in _sizes(hosts):
        return ()
    return tuple(role for role in unrecorded_tasks(hosts) if role.name != _OUTSIDE)


def unrecorded_tasks(hosts: Sequence[Host]) -> tuple[Role, ...]:
    """All tasks of the cluster that were not recorded, including parameter servers and evaluators."""
    recorded = {role for role in map(role_of, hosts) if role is not None}
    tasks = [
        Role(name, index)
        for name, count in sorted(_sizes(hosts).items())
        for index in range(min(count, _MOST_TASKS))
    ]
    return tuple(role for role in tasks if role not in recorded)


def _sizes(hosts: Sequence[Host]) -> dict[str, int]:
    """The number of tasks by role, from the sidecars."""
    sizes: dict[str, int] = {}
    for host in hosts:
        cluster = host.sidecar.environment.cluster if host.sidecar else None
        for name, count in ((cluster.sizes if cluster else None) or {}).items():
            sizes[name] = max(sizes.get(name, 0), count)
    return sizes


def missing_steps(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """For each host the recorded step numbers that other hosts of its group have and it lacks, sorted.

    Empty for a host whose steps have no recorded numbers, because they cannot be compared.
    """
    missing: list[tuple[int, ...]] = [()] * len(trace.hosts)
    for group in step_groups(trace.hosts):
        numbers = {host: _recorded_numbers(trace.steps_by_host[host]) for host in group}
        every = set().union(*(known for known in numbers.values() if known is not None))
        for host, known in numbers.items():
            if known is not None:
                missing[host] = tuple(sorted(every - known))
    return tuple(missing)


def _recorded_numbers(host_steps: HostSteps) -> set[int] | None:
    numbers = {step.recorded_number for step in host_steps.steps}
    return None if None in numbers else {number for number in numbers if number is not None}
