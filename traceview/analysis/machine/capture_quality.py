"""Judges how far a capture can be trusted: what is missing from it, and what that leaves complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

from traceview.base.record import (
    Count,
    Hostname,
    Integer,
    Picoseconds,
    Ratio,
    Record,
    Share,
    TaskName,
    Words,
)
from traceview.base.text import enumerated
from traceview.document import numbers
from traceview.trace.columns import NONE
from traceview.trace.model import (
    Host,
    HostClock,
    Problem,
    Trace,
    damaged_hosts,
    is_damaged_throughout,
)
from traceview.trace.strategy.roles import (
    Role,
    missing_steps,
    missing_tasks,
    role_of,
    unrecorded_tasks,
)
from traceview.xplane.planes import ActivityClass

Quality: TypeAlias = Literal["ok", "degraded", "unusable"]

INVERSION_RATIO: Final = 0.05
"""From this share of device events that start before their launch on, the clocks disagree."""

UNLINKED_RATIO: Final = 0.05
"""From this share of kernels without a recorded launch on, launches are incomplete."""

NAMED_STEPS_OR_TASKS: Final = 8
"""Of more steps or tasks than this, a sentence names the first."""

_COORDINATORS: Final = ("chief", "coordinator", "master")
_PARAMETER_SERVER: Final = "ParameterServerStrategy"

HARMLESS: Final = frozenset(
    (
        "no-gpu-plane",
        "duplicate-host-file",
        "repeated-lines",
        "clock-inversion",
        "missing-steps",
        "newer-run-unreadable",
        "sidecar-fields",
        "unrecorded-task",
    )
)
"""Codes of problems that leave every number complete."""


WITHOUT_DEVICE: Final = ("no-gpu-plane", "gpu-planes-empty", "devices-unknown")
"""Codes of problems that may leave nothing to say about devices."""


class HostCapture(Record, frozen=True):
    """One host: when it was profiled, how much was recorded, and what the tracer reports about itself.

    Attributes:
        host: Name of the host.
        profile_start_ns: Start of the profile, Unix nanoseconds; null if not recorded.
        duration_ps: Length of the profile, picoseconds; null if not recorded.
        event_count: Events in the file of the host.
        device_event_count: Events on its devices that count as activity.
        dropped_event_count: Events that the tracer reports as dropped.
        unlinked_ratio: Share of kernels and collectives whose launch is not recorded; null without any.
        overhead_ratio: How much longer a step took with the profiler than without, over the step without, as
            measured by traceview capture; null without a measurement.
        tracer_levels: Levels of the tracers in force, by name; null where the trace does not hold them.
        role: Task of the cluster, such as worker 1; null if unknown.
        clock: How its clock was aligned with those of the other hosts; null in a run of one host.
        missing_steps: Numbers of steps that other hosts training together with it recorded and it did not.
        python_cost_ratio: Processor time that sampling Python stacks took, over the time of the profile; null where
            none were sampled.
    """

    host: Hostname
    profile_start_ns: Integer | None
    duration_ps: Picoseconds | None
    event_count: Count
    device_event_count: Count
    dropped_event_count: Count
    unlinked_ratio: Share | None
    overhead_ratio: float | None = None
    tracer_levels: dict[Words, Integer] | None = None
    role: TaskName | None = None
    clock: HostClock | None = None
    missing_steps: tuple[Integer, ...] = ()
    python_cost_ratio: Ratio | None = None


class Capture(Record, frozen=True):
    """How far the recording can be trusted.

    Attributes:
        quality: ok; degraded: a number may be incomplete; unusable: it holds no event of any device.
        problems: What limits the capture.
        hosts: How each host was recorded.
        unrecorded_tasks: Tasks of the cluster, such as ps 0, that no host of the run recorded.
        absent_host_count: Hosts of the run that were not recorded or cannot be read.
    """

    quality: Quality
    problems: tuple[Problem, ...]
    hosts: tuple[HostCapture, ...]
    unrecorded_tasks: tuple[TaskName, ...] = ()
    absent_host_count: Count = 0

    @property
    def hosts_text(self) -> str:
        """`9 of 64 hosts`, where not all hosts of the run are in the report; else empty."""
        read = len(self.hosts)
        return f"{read} of {read + self.absent_host_count} hosts" if self.absent_host_count else ""


def compute(trace: Trace) -> Capture:
    """What the capture holds and lacks, host by host."""
    missing = missing_steps(trace)
    hosts = tuple(_host(trace, index, missing[index]) for index in range(len(trace.hosts)))
    of_steps = frozenset(missing_tasks(trace.hosts))
    missing_workers = tasks_without_file(trace)
    others = [task for task in unrecorded_tasks(trace.hosts) if task not in of_steps]
    lacks = "a task of the cluster was not recorded"
    apart = f"{lacks}, which makes no step together with the others"
    problems = (
        *trace.problems,
        *(Problem("missing-host", lacks, None, str(task), "task") for task in missing_workers),
        *(Problem("unrecorded-task", apart, None, str(task), "task") for task in others),
        *(
            Problem("profiler-error", "the profiler reports an error", host.name, error)
            for host in trace.hosts
            for error in host.errors
        ),
        *(
            Problem(code, text, host.name)
            for index, host in enumerate(trace.hosts)
            for code, text in _host_problems(trace, index, host, hosts[index])
        ),
    )
    # A file without a checksum is one of which nothing can be read.
    unread_count = sum(file.sha256 is None for file in trace.files)
    return Capture(
        quality=_quality(trace, problems),
        problems=problems,
        hosts=hosts,
        unrecorded_tasks=tuple(str(task) for task in (*missing_workers, *others)),
        absent_host_count=unread_count + len(missing_workers),
    )


def _host(trace: Trace, index: int, missing: tuple[int, ...]) -> HostCapture:
    host, columns = trace.hosts[index], trace.device_columns
    role, sidecar = role_of(host), host.sidecar
    devices = [columns.rows_of(device) for device in trace.devices_of_host[index]]
    kernel_count = unlinked = 0
    for rows in devices:
        is_kernel = columns.class_[rows] <= ActivityClass.COLLECTIVE
        kernel_count += int(is_kernel.sum())
        unlinked += int((is_kernel & (columns.launch[rows] == NONE)).sum())
    return HostCapture(
        host=host.name,
        profile_start_ns=host.profile_start_ns,
        duration_ps=None if host.stop_ps is None else host.stop_ps - host.start_ps,
        event_count=host.event_count,
        device_event_count=sum(rows.stop - rows.start for rows in devices),
        dropped_event_count=host.dropped_event_count,
        unlinked_ratio=unlinked / kernel_count if kernel_count else None,
        overhead_ratio=sidecar.environment.overhead.ratio if sidecar else None,
        tracer_levels=host.tracer_levels,
        role=None if role is None else str(role),
        clock=host.clock,
        missing_steps=missing,
        python_cost_ratio=sidecar.python.cost_ratio if sidecar and sidecar.python else None,
    )


def _clock_inversions(trace: Trace, index: int) -> int:
    """Device events of a host that start before the call that launched them."""
    columns, rows = trace.device_columns, trace.device_rows(index)
    rows = rows[columns.launch[rows] != NONE]
    launched = trace.host_columns.start_ps[columns.launch[rows]]
    return int((columns.start_ps[rows] < launched).sum())


def _host_problems(
    trace: Trace, index: int, host: Host, capture: HostCapture
) -> Iterator[tuple[str, str]]:
    """The code and the text of each problem of one host."""
    devices = [trace.device_list[device] for device in trace.devices_of_host[index]]
    plane_count = sum(device.kind != "replica" for device in devices)
    if not capture.device_event_count and host.name in damaged_hosts(trace):
        text = "the file is damaged before any device event: what its devices did is lost"
        yield "devices-unknown", text
    elif not plane_count:
        yield "no-gpu-plane", "no GPU plane was recorded"
    elif capture.device_event_count == 0:
        planes = numbers.plural(plane_count, "device plane")
        yield "gpu-planes-empty", f"{planes}, none with an event"
    if host.dropped_event_count:
        events = numbers.plural(host.dropped_event_count, "event")
        yield "events-dropped", f"the tracer dropped {events}"
    if capture.unlinked_ratio is not None and capture.unlinked_ratio > UNLINKED_RATIO:
        share = numbers.share(capture.unlinked_ratio)
        yield "unlinked-kernels", f"{share} of the kernels have no recorded launch"
    inversion_count = _clock_inversions(trace, index)
    if inversion_count > INVERSION_RATIO * capture.device_event_count:
        events = numbers.plural(inversion_count, "GPU event")
        yield (
            "clock-inversion",
            f"{events} start before their launch: the clocks of host and GPU disagree, so launch delays cannot be trusted",
        )
    if capture.missing_steps:
        steps = _step_list(capture.missing_steps)
        yield "missing-steps", f"{steps} recorded on other hosts and not on this one"


def _step_list(steps: tuple[int, ...]) -> str:
    noun, verb = ("step", "is") if len(steps) == 1 else ("steps", "are")
    return f"{noun} {enumerated([str(step) for step in steps], NAMED_STEPS_OR_TASKS)} {verb}"


def tasks_without_file(trace: Trace) -> tuple[Role, ...]:
    """Tasks that train together with the recorded hosts and have no file, not even an unreadable one."""
    tasks = missing_tasks(trace.hosts)
    unread = sum(file.sha256 is None for file in trace.files)
    return tasks[: max(len(tasks) - unread, 0)]


def _quality(trace: Trace, problems: Sequence[Problem]) -> Quality:
    if trace.device_columns.count == 0:
        return "unusable"
    is_limited = any(
        problem.code not in HARMLESS
        or (problem.code == "no-gpu-plane" and gpus_expected(trace, problem.host))
        for problem in problems
    )
    return "degraded" if is_limited else "ok"


def why_no_device(trace: Trace) -> str:
    """What explains that no device was recorded."""
    hosts = trace.hosts
    if is_damaged_throughout(trace):
        return "what the devices did is lost"
    if any(gpus_expected(trace, host.name) for host in hosts):
        return "nothing can be said about GPUs"
    if all(host.event_count == 0 for host in hosts):
        return "no op of TensorFlow ended while it was profiled"
    if all(map(_coordinates, hosts)):
        return (
            "this process hands the steps to its workers, which run the ops; record those with "
            "tf.profiler.experimental.client.trace"
        )
    return "there was no GPU, and no op ran inside of a graph on the CPU; what runs outside of graphs belongs to no device"


def _coordinates(host: Host) -> bool:
    """Whether it is the coordinator of workers that use parameter servers."""
    role, sidecar = role_of(host), host.sidecar
    class_ = None if sidecar is None else sidecar.environment.strategy.class_
    is_coordinator = role is not None and role.name in _COORDINATORS
    return is_coordinator and (class_ or "").startswith(_PARAMETER_SERVER)


def gpus_expected(trace: Trace, host: str | None) -> bool:
    """Whether threads for GPUs or errors of the profiler show that a host used GPUs."""
    return any((h.gpus_expected or bool(h.errors)) for h in trace.hosts if h.name == host)
