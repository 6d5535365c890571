"""How far can this capture be trusted, and what is missing from it?"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np

from traceview.analysis.base import Evidence, Finding, Severity
from traceview.analysis.capture import tracer_options
from traceview.document import numbers
from traceview.ids import unique_ids
from traceview.intervals import BoolArray
from traceview.record import Count, Hostname, Integer, Picoseconds, Record, Share
from traceview.trace.model import NONE, Host, HostClock, Problem, SourceFile, Trace
from traceview.trace.roles import Role, missing_steps, missing_tasks, role_of, unrecorded_tasks
from traceview.xplane.planes import ActivityClass

Quality: TypeAlias = Literal["ok", "degraded", "unusable"]

INVERSION_RATIO: Final = 0.05
"""Share of device events that start before their launch from which the clocks are said to disagree."""

UNLINKED_RATIO: Final = 0.05
"""Share of kernels without a recorded launch from which the host side cannot be relied on."""

_NAMED: Final = 8
"""Of more steps or processes the first are named."""


class HostCapture(Record, frozen=True):
    """One host: Unix nanoseconds of the profile, its length, and what the tracer says of itself.

    Attributes:
        host: Name of the host.
        profile_start_ns: Start of the profile, Unix nanoseconds; null if not recorded.
        profile_stop_ns: End of the profile, Unix nanoseconds; null if not recorded.
        duration_ps: Length of the profile, picoseconds; null if not recorded.
        event_count: Events in the file of the host.
        device_event_count: Events on its devices that count as activity.
        dropped_event_count: Events that the tracer says it dropped.
        unlinked_ratio: Share of kernels and collectives whose launch is not recorded; null without any.
        errors: Errors that the profiler wrote into the trace.
        warnings: Warnings that the profiler wrote into the trace.
        overhead_ratio: How much longer a step took with the profiler than without, over the latter, as
            traceview capture measured; null without such a measurement.
        clock_inversion_count: GPU events that start before the call that launched them.
        tracer_levels: Levels of the tracers in force by name, as the trace holds them; null where it does not.
        role: Task of the cluster, such as worker 1; null where nothing tells.
        clock: How its times were set beside those of the other hosts; null in a run of one host.
        missing_steps: Recorded numbers of steps that a host which makes them together with it has and it has
            not.
    """

    host: Hostname
    profile_start_ns: Integer | None
    profile_stop_ns: Integer | None
    duration_ps: Picoseconds | None
    event_count: Count
    device_event_count: Count
    dropped_event_count: Count
    unlinked_ratio: Share | None
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    overhead_ratio: float | None = None
    clock_inversion_count: Count = 0
    tracer_levels: dict[str, Integer] | None = None
    role: str | None = None
    clock: HostClock | None = None
    missing_steps: tuple[Integer, ...] = ()


class Capture(Record, frozen=True):
    """`quality`: ok, degraded (a number may be incomplete) or unusable (nothing can be said of devices).

    Attributes:
        quality: ok; degraded: a number may be incomplete; unusable: nothing can be said of devices.
        problems: What limits what can be said.
        hosts: What the tracer says of itself, host by host.
        unrecorded_tasks: Tasks of the cluster, such as ps 0, that no host of the run is.
    """

    quality: Quality
    problems: tuple[Problem, ...]
    hosts: tuple[HostCapture, ...]
    unrecorded_tasks: tuple[str, ...] = ()


def compute(trace: Trace) -> Capture:
    """What the capture holds and lacks, host by host."""
    missing = missing_steps(trace)
    hosts = tuple(_host(trace, index, missing[index]) for index in range(len(trace.hosts)))
    missing_workers = _known_to_lack(trace, missing_tasks(trace.hosts))
    others = [
        task for task in unrecorded_tasks(trace.hosts) if task not in missing_tasks(trace.hosts)
    ]
    problems = [*trace.problems, *map(_missing_host, missing_workers), *map(_apart, others)]
    for index, host in enumerate(trace.hosts):
        problems += _host_problems(trace, index, host, hosts[index])
    absent = tuple(str(task) for task in (*missing_workers, *others))
    return Capture(_quality(trace, problems), tuple(problems), hosts, absent)


def _host(trace: Trace, index: int, missing: tuple[int, ...]) -> HostCapture:
    host = trace.hosts[index]
    role = role_of(host)
    columns = trace.device_columns
    devices = [i for i, device in enumerate(trace.device_list) if device.host == index]
    mine = np.isin(columns.device, devices)
    kernels = mine & (columns.class_ <= ActivityClass.COLLECTIVE)
    kernel_count = int(kernels.sum())
    unlinked = int((columns.launch[kernels] == NONE).sum())
    return HostCapture(
        host=host.name,
        profile_start_ns=host.profile_start_ns,
        profile_stop_ns=host.profile_stop_ns,
        duration_ps=None if host.stop_ps is None else host.stop_ps - host.start_ps,
        event_count=host.event_count,
        device_event_count=int(mine.sum()),
        dropped_event_count=host.dropped_event_count,
        unlinked_ratio=unlinked / kernel_count if kernel_count else None,
        errors=host.errors,
        warnings=host.warnings,
        overhead_ratio=None if host.sidecar is None else host.sidecar.overhead_ratio,
        clock_inversion_count=_clock_inversions(trace, mine),
        tracer_levels=host.tracer_levels,
        role=None if role is None else str(role),
        clock=host.clock,
        missing_steps=missing,
    )


def _clock_inversions(trace: Trace, mine: BoolArray) -> int:
    columns = trace.device_columns
    rows = np.flatnonzero(mine & (columns.launch != NONE))
    launched = trace.host_columns.start_ps[columns.launch[rows]]
    return int((columns.start_ps[rows] < launched).sum())


def _host_problems(trace: Trace, index: int, host: Host, capture: HostCapture) -> list[Problem]:
    found = []
    devices = [d for d in trace.device_list if d.host == index]
    planes = [d for d in devices if d.kind != "replica"]
    if not planes and _is_damaged(trace, host):
        text = "the file is damaged before any device plane: what its GPUs did is not known"
        found.append(Problem("devices-unknown", text, host.name))
    elif not planes:
        found.append(Problem("no-gpu-plane", "no GPU plane was recorded", host.name))
    elif capture.device_event_count == 0:
        text = f"{numbers.plural(len(planes), 'device plane')}, none with an event"
        found.append(Problem("gpu-planes-empty", text, host.name))
    if host.dropped_event_count:
        text = f"the tracer dropped {numbers.plural(host.dropped_event_count, 'event')}"
        found.append(Problem("events-dropped", text, host.name))
    found += [Problem("profiler-error", text, host.name) for text in host.errors]
    if capture.unlinked_ratio is not None and capture.unlinked_ratio > UNLINKED_RATIO:
        text = f"{capture.unlinked_ratio:.0%} of the kernels have no recorded launch"
        found.append(Problem("unlinked-kernels", text, host.name))
    if capture.clock_inversion_count > INVERSION_RATIO * capture.device_event_count:
        text = f"{numbers.plural(capture.clock_inversion_count, 'GPU event')} start before their launch: "
        text += "the clocks of host and GPU disagree, so launch delays cannot be trusted"
        found.append(Problem("clock-inversion", text, host.name))
    if capture.missing_steps:
        text = f"{_steps(capture.missing_steps)} recorded on other hosts and not on this one"
        found.append(Problem("missing-steps", text, host.name))
    for option in tracer_options.ignored_options(trace, index):
        found.append(Problem("options-ignored", f"TensorFlow ignored {option}", host.name))
    return found + _cut_steps(trace, index, host)


def _steps(numbers: tuple[int, ...]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = len(numbers) - _NAMED
    verb = "is" if len(numbers) == 1 else "are"
    noun = "step" if len(numbers) == 1 else "steps"
    return f"{noun} {named}" + (f" and {more} more {verb}" if more > 0 else f" {verb}")


def _known_to_lack(trace: Trace, tasks: tuple[Role, ...]) -> tuple[Role, ...]:
    """Tasks without a file; one whose file cannot be read is no missing host but a damaged one."""
    unread = sum(file.sha256 is None for file in trace.files)
    return tasks[: max(len(tasks) - unread, 0)] if unread else tasks


def _missing_host(task: Role) -> Problem:
    return Problem("missing-host", f"{task} of the cluster was not recorded")


def _apart(task: Role) -> Problem:
    text = f"{task} of the cluster was not recorded; it makes no step together with the others"
    return Problem("unrecorded-task", text)


def _is_damaged(trace: Trace, host: Host) -> bool:
    return any(p.code == "damaged-file" and p.host == host.name for p in trace.problems)


def _cut_steps(trace: Trace, index: int, host: Host) -> list[Problem]:
    """Work of the first step launched before the capture, and of the last one still queued at its end."""
    columns, calls = trace.device_columns, trace.host_columns
    devices = [i for i, d in enumerate(trace.device_list) if d.host == index and d.kind == "gpu"]
    rows = np.flatnonzero(np.isin(columns.device, devices))
    linked = rows[columns.launch[rows] != NONE]
    if linked.size == 0:
        return []
    found = []
    early = rows[columns.launch[rows] == NONE]
    early = early[columns.start_ps[early] < calls.start_ps[columns.launch[linked]].min()]
    if early.size:
        text = f"{early.size} device events were launched before the capture began"
        found.append(Problem("cut-first-step", text, host.name))
    with_id = calls.stat("correlation_id").row
    with_id = with_id[calls.host[with_id] == index]
    launches = unique_ids(calls.name[columns.launch[linked]])
    unanswered = with_id[
        ~np.isin(with_id, columns.launch[linked]) & np.isin(calls.name[with_id], launches)
    ]
    last_answered = calls.start_ps[columns.launch[linked]].max()
    late = unanswered[calls.start_ps[unanswered] > last_answered]
    if late.size:
        text = f"{late.size} launches at the end have no device event: their work was still queued"
        found.append(Problem("cut-last-step", text, host.name))
    return found


def _quality(trace: Trace, problems: list[Problem]) -> Quality:
    codes = {problem.code for problem in problems}
    if trace.device_columns.count == 0:
        return "unusable"
    expected_missing = any(
        problem.code == "no-gpu-plane" and _gpus_expected(trace, problem.host)
        for problem in problems
    )
    sanitize = {
        "no-gpu-plane",
        "duplicate-host-file",
        "repeated-lines",
        "clock-inversion",
        "missing-steps",
        "options-ignored",
        "sidecar-fields",
        "unrecorded-task",
    }
    return "degraded" if expected_missing or codes - sanitize else "ok"


def _gpus_expected(trace: Trace, host: str | None) -> bool:
    return any((h.gpus_expected or bool(h.errors)) for h in trace.hosts if h.name == host)


def diagnose(trace: Trace, result: Capture) -> list[Finding]:
    """Findings about the capture itself."""
    found = []
    for problem in result.problems:
        if problem.code == "no-gpu-plane":
            found.append(_no_gpu_plane(problem, expected=_gpus_expected(trace, problem.host)))
        elif problem.code == "gpu-planes-empty":
            found.append(_gpu_planes_empty(problem))
    found += [_duplicate(file) for file in trace.files if file.duplicate_of]
    damage: dict[str | None, list[Problem]] = {}
    for problem in result.problems:
        if problem.code == "damaged-file":
            damage.setdefault(problem.host, []).append(problem)
    unread = {file.host: file.name for file in trace.files if file.sha256 is None}
    found += [
        _left_out(unread[host], problems) if host in unread else _damaged(problems)
        for host, problems in damage.items()
    ]
    absent = _known_to_lack(trace, missing_tasks(trace.hosts))
    if absent:
        found.append(_missing(absent, len(result.hosts)))
    dropped = [host for host in result.hosts if host.dropped_event_count]
    if dropped:
        found.append(_dropped(dropped))
    with_errors = [host for host in result.hosts if host.errors]
    if with_errors:
        found.append(_profiler_error(with_errors))
    return found + tracer_options.diagnose(trace)


def _finding(
    code: str,
    severity: Severity,
    title: str,
    explanation: str,
    advice: str,
    evidence: tuple[Evidence, ...],
    confidence_reason: str = "recorded in the trace",
) -> Finding:
    return Finding(code, severity, title, explanation, advice, "high", confidence_reason, evidence)


def _no_gpu_plane(problem: Problem, *, expected: bool) -> Finding:
    where = problem.host or ""
    if expected:
        return _finding(
            "no-gpu-plane",
            "critical",
            f"no GPU plane was recorded on {where}, though GPUs were in use",
            "TensorFlow ran threads for GPUs or reported a profiler error, but the GPU tracer recorded "
            "nothing. No number about a GPU can be given.",
            "Check that CUPTI loads and may be used: the driver must not restrict profiling to "
            "administrators, and no other profiler (nsys, DCGM) may hold CUPTI.",
            (Evidence("device_plane_count", 0, None, where),),
        )
    return _finding(
        "no-gpu-plane",
        "info",
        f"{where} recorded a CPU-only run",
        "There is no GPU plane and no thread that serves a GPU. What its CPU ran stands in this report as "
        "replica:0, and as replica:1 and so on if a strategy has more devices there.",
        "If this job should run on GPUs, check tf.config.list_physical_devices('GPU').",
        (Evidence("device_plane_count", 0, None, where),),
    )


def _gpu_planes_empty(problem: Problem) -> Finding:
    where = problem.host or ""
    return _finding(
        "gpu-planes-empty",
        "critical",
        f"the GPU planes of {where} hold no event",
        "The GPU tracer started and recorded nothing: either no GPU ran anything, or its events were lost.",
        "Capture while steps run, for more than one step, and read the profiler's log for CUPTI errors.",
        (Evidence("device_event_count", 0, None, where),),
    )


def _duplicate(file: SourceFile) -> Finding:
    return _finding(
        "duplicate-host-file",
        "warning",
        "one host's trace is in the run twice",
        f"{file.name} is byte for byte {file.duplicate_of}. It was counted once, as one host.",
        "Remove the copy; if two hosts were meant, one of them wrote the other's trace.",
        (Evidence("sha256", file.sha256 or "", None, f"{file.name} and {file.duplicate_of}"),),
        "the bytes of the files say so",
    )


def _damaged(problems: list[Problem]) -> Finding:
    """One finding per file, however many places in it are damaged."""
    return _finding(
        "damaged-file",
        "warning",
        f"the trace of {problems[0].host} is damaged in {numbers.plural(len(problems), 'place')}; "
        "what is readable was used",
        "What could not be read is missing from every number of this report.",
        "Copy the file again, or capture again and let the profiler finish before copying.",
        tuple(Evidence("damage", one.text, None, one.host or "") for one in problems),
        "the bytes of the files say so",
    )


def _left_out(name: str, problems: list[Problem]) -> Finding:
    return _finding(
        "damaged-file",
        "warning",
        f"{name} could not be read and was left out",
        "Nothing is known of that host: no number of this report includes it.",
        "Copy the file again, or capture again and let the profiler finish before copying.",
        tuple(Evidence("damage", one.text, None, one.host or "") for one in problems),
        "the bytes of the file say so",
    )


def _missing(tasks: tuple[Role, ...], there: int) -> Finding:
    names = [str(task) for task in tasks[:_NAMED]]
    more = len(tasks) - len(names)
    named = numbers.listed([*names, f"{more} more"] if more else names)
    return _finding(
        "missing-host",
        "warning",
        f"{len(tasks)} of {len(tasks) + there} processes of the cluster "
        f"{'was' if len(tasks) == 1 else 'were'} not recorded: {named}",
        "TF_CONFIG names more processes that train together than the run has files of. What their devices did is "
        "not known; a device that all others wait for may be one of theirs.",
        "Capture on all of them at the same steps, into one folder: start every process with traceview capture "
        "--out DIR, or copy the missing files beside the others.",
        tuple(Evidence("role", str(task), None, "TF_CONFIG") for task in tasks[:_NAMED]),
        "the sidecar holds the size of the cluster",
    )


def _dropped(hosts: list[HostCapture]) -> Finding:
    count = sum(host.dropped_event_count for host in hosts)
    return _finding(
        "events-dropped",
        "warning",
        f"the tracer dropped {numbers.plural(count, 'event')}",
        f"Its buffers were full on {numbers.listed([host.host for host in hosts])}. Times and counts after that "
        "moment are too low; steps from there on are left out of the statistics.",
        "Capture fewer steps.",
        tuple(
            Evidence("dropped_event_count", host.dropped_event_count, 0, host.host)
            for host in hosts
        ),
        "the tracer's own warning",
    )


def _profiler_error(hosts: list[HostCapture]) -> Finding:
    errors = [(host.host, error) for host in hosts for error in host.errors]
    return _finding(
        "profiler-error",
        "warning",
        f"the profiler reported {numbers.plural(len(errors), 'error')}",
        "What it could not record is missing here.",
        "Read the message: missing privileges and a second profiler are the usual reasons.",
        tuple(Evidence("error", error, None, host) for host, error in errors),
        "the profiler's own message",
    )
