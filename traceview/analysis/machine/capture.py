"""Capture: how far the recording can be trusted: what makes it incomplete, its hosts and their clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

from traceview.analysis.measures.context import Analysis, View
from traceview.analysis.measures.device_report import Environment
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import CAPTURE_ALL, Rule
from traceview.analysis.rules.words import Names, Number
from traceview.base.record import Count, Hostname, Integer, Picoseconds, Record, TaskName
from traceview.base.text import enumerated
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.vocabulary import QUALITIES, look_of
from traceview.trace.columns import NONE
from traceview.trace.model import (
    Host,
    HostClock,
    Problem,
    Trace,
    damaged_hosts,
    is_damaged_throughout,
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

HARMLESS: Final = frozenset(
    (
        "no-gpu-plane",
        "duplicate-host-file",
        "repeated-lines",
        "clock-inversion",
        "missing-steps",
        "newer-run-unreadable",
        "process-stopped",
        "unrecorded-task",
    )
)
"""Codes of problems that leave every number complete."""


WITHOUT_DEVICE: Final = ("no-gpu-plane", "gpu-planes-empty", "devices-unknown")
"""Codes of problems that may leave nothing to say about devices."""


class HostCapture(Record, frozen=True):
    """One host: when it was profiled, its clock and steps, and what the tracer and the capture report about themselves.

    Attributes:
        host: Name of the host.
        profile_start_ns: Start of the profile, Unix nanoseconds; null if not recorded.
        dropped_event_count: Events that the tracer reports as dropped.
        overhead_ratio: How much longer a step took with the profiler than without, over the step without, as
            measured by traceview capture; null without a measurement.
        role: Task of the cluster, such as worker 1; null if unknown.
        clock: How its clock was aligned with those of the other hosts; null in a run of one host.
        missing_steps: Numbers of steps that other hosts training together with it recorded and it did not.
        stopped_ps: How long its process was stopped, so that no thread could run, picoseconds; null if not known.
    """

    host: Hostname
    profile_start_ns: Integer | None
    dropped_event_count: Count
    overhead_ratio: float | None = None
    role: TaskName | None = None
    clock: HostClock | None = None
    missing_steps: tuple[Integer, ...] = ()
    stopped_ps: Picoseconds | None = None


class Capture(Record, frozen=True):
    """How far the recording can be trusted.

    Attributes:
        quality: ok; degraded: a number may be incomplete; unusable: it holds no event of any device.
        problems: What limits the capture.
        hosts: How each host was recorded.
        absent_host_count: Hosts of the run that were not recorded or cannot be read.
    """

    quality: Quality
    problems: tuple[Problem, ...]
    hosts: tuple[HostCapture, ...]
    absent_host_count: Count = 0

    @property
    def hosts_text(self) -> str:
        """`9 of 64 hosts`, where not all hosts of the run are in the report; else empty."""
        read = len(self.hosts)
        return f"{read} of {read + self.absent_host_count} hosts" if self.absent_host_count else ""


def compute(trace: Trace) -> Capture:
    """What the capture holds and lacks, host by host."""
    hosts = tuple(map(_host, trace.hosts, missing_steps(trace)))
    of_steps = dict.fromkeys(missing_tasks(trace.hosts))
    others = [task for task in unrecorded_tasks(trace.hosts) if task not in of_steps]
    # A file without a checksum is one of which nothing can be read: that of one of the missing tasks.
    unread_count = sum(file.sha256 is None for file in trace.files)
    missing_workers = [*of_steps][: max(len(of_steps) - unread_count, 0)]
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
            Problem(code, text, host.host)
            for index, host in enumerate(hosts)
            for code, text in _host_problems(trace, index, host)
        ),
    )
    return Capture(
        quality=_quality(trace, problems),
        problems=problems,
        hosts=hosts,
        absent_host_count=unread_count + len(missing_workers),
    )


def _host(host: Host, missing: tuple[int, ...]) -> HostCapture:
    role = role_of(host)
    return HostCapture(
        host=host.name,
        profile_start_ns=host.profile_start_ns,
        dropped_event_count=host.dropped_event_count,
        overhead_ratio=host.captured.environment.overhead.ratio,
        role=None if role is None else str(role),
        clock=host.clock,
        missing_steps=missing,
        stopped_ps=None if host.stops is None else sum(end - start for start, end in host.stops),
    )


def _host_problems(trace: Trace, index: int, capture: HostCapture) -> Iterator[tuple[str, str]]:
    """The code and the text of each problem of one host."""
    host = trace.hosts[index]
    devices = [trace.device_list[device] for device in trace.devices_of_host[index]]
    plane_count = sum(device.kind != "replica" for device in devices)
    columns, rows = trace.device_columns, trace.device_rows(index)
    if not rows.size and host.name in damaged_hosts(trace):
        text = "the file is damaged before any device event: what its devices did is lost"
        yield "devices-unknown", text
    elif not plane_count:
        text = "the run used no GPU"
        if gpus_expected(trace, host.name):
            text = "no GPU plane was recorded"
        elif not rows.size:
            text += ", and no op ran inside of a graph: no device has times"
        yield "no-gpu-plane", text
    elif not rows.size:
        planes = numbers.plural(plane_count, "device plane")
        yield "gpu-planes-empty", f"{planes}, none with an event"
    if host.dropped_event_count:
        events = numbers.plural(host.dropped_event_count, "event")
        yield "events-dropped", f"the tracer dropped {events}"
    launch, is_kernel = columns.launch[rows], columns.class_[rows] <= ActivityClass.COLLECTIVE
    unlinked = int((is_kernel & (launch == NONE)).sum())
    if unlinked > UNLINKED_RATIO * is_kernel.sum():
        share = numbers.share(unlinked / int(is_kernel.sum()))
        yield "unlinked-kernels", f"{share} of the kernels have no recorded launch"
    linked = launch != NONE
    launched = trace.host_columns.start_ps[launch[linked]]
    inversion_count = int((columns.start_ps[rows][linked] < launched).sum())
    if inversion_count > INVERSION_RATIO * rows.size:
        events = numbers.plural(inversion_count, "GPU event")
        yield (
            "clock-inversion",
            f"{events} start before their launch: the clocks of host and GPU disagree, so launch delays cannot be trusted",
        )
    if capture.stopped_ps:
        yield "process-stopped", f"the process was stopped for {numbers.time(capture.stopped_ps)}"
    if capture.missing_steps:
        steps = numbers.plural(len(capture.missing_steps), "step")
        yield "missing-steps", f"{steps} recorded on other hosts and not on this one"


def _quality(trace: Trace, problems: Sequence[Problem]) -> Quality:
    is_gone = any(
        host.event_count == 0 or gpus_expected(trace, host.name) for host in trace.hosts
    ) or damaged_hosts(trace)
    if trace.device_columns.count == 0:
        # Without a GPU, ops outside of graphs are no device's.
        return "unusable" if is_gone or not trace.hosts or trace.device_list else "degraded"
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
    return "there was no GPU, and no op ran inside of a graph on the CPU; what runs outside of graphs belongs to no device"


def gpus_expected(trace: Trace, host: str | None) -> bool:
    """Whether threads for GPUs or errors of the profiler show that a host used GPUs."""
    return any((h.gpus_expected or bool(h.errors)) for h in trace.hosts if h.name == host)


# Findings

NO_GPU_PLANE: Final = Rule(
    code="no-gpu-plane",
    severity="critical",
    starts_at="a host whose GPUs were in use, without any device plane or with planes that hold no event, for instance because CUPTI did not load",
    title="No GPU plane was recorded on {hosts}, though GPUs were in use",
    titles={
        "empty": "The GPU planes of {hosts} hold no event",
        "cupti": "CUPTI did not load on {hosts}: no GPU event was recorded",
    },
    meaning="The trace says nothing about GPUs.",
    notes={
        "no-plane": "The GPU tracer did not start. Nothing else in the file shows that.",
        "empty": "The GPU tracer started and recorded nothing: either no GPU ran anything, or its events were lost.",
        "cupti": (
            "TensorFlow records GPU events through CUPTI, NVIDIA's profiling library, and could not load it."
        ),
    },
    action="Check that CUPTI loads and may be used: `traceview capture --check`.",
    advice=(
        "The driver must not restrict profiling to administrators, and no other profiler (nsys, DCGM) may hold CUPTI."
    ),
    actions={
        "empty": (
            "Capture while steps run, for more than one step.",
            "Read the profiler's log for errors of CUPTI.",
        ),
        "cupti": (
            "Install the CUPTI of the CUDA that TensorFlow was built with: `pip install 'tensorflow[and-cuda]'`.",
            (
                "Its package alone is `nvidia-cuda-cupti-cu12`. With a CUDA toolkit: `export "
                "LD_LIBRARY_PATH=/usr/local/cuda/extras/CUPTI/lib64:$LD_LIBRARY_PATH`. `traceview capture --check` checks it."
            ),
        ),
    },
    metrics={
        "device_plane_count": "GPU planes in the file",
        "device_event_count": "events on devices",
        "error": "message of the profiler",
    },
    example="No GPU plane was recorded on host0, though GPUs were in use",
)

EVENTS_DROPPED: Final = Rule(
    code="events-dropped",
    severity="warning",
    starts_at="any dropped event",
    title="The tracer dropped {count} on {hosts}",
    meaning=(
        "The tracer's buffers were full. From then on times and counts are too low. Steps that end later are left out of "
        "the statistics."
    ),
    action="Capture fewer steps.",
    metrics={"dropped_event_count": "dropped events"},
    example="The tracer dropped 1,200 events on host0",
)

DAMAGED_FILE: Final = Rule(
    code="damaged-file",
    severity="warning",
    other_severities=("critical",),
    starts_at="any trace file that cannot be read as a whole; critical where no host of the run has a whole one",
    title="The file of {hosts} is cut off: events and whole devices may be lost",
    titles={
        "damaged": "The file of {hosts} is damaged in {places}: events and whole devices may be lost",
        "unread": "{files} could not be read",
    },
    meaning=(
        "What could not be read is missing from every number of the report. A device, step or op that is not there may only "
        "be unreadable, so nothing is concluded from that."
    ),
    notes={
        "no-device": "What its GPUs did, if it has any, is lost.",
        "unread": "No number of this report includes that host.",
    },
    action="Copy the file again, or capture again and let the profiler finish before copying.",
    metrics={"damage": "damage"},
    example="The file of host1 is cut off: events and whole devices may be lost",
)

MISSING_HOST: Final = Rule(
    code="missing-host",
    severity="warning",
    starts_at="any worker or chief of the cluster without a file in the run",
    title="The run lacks {tasks}: {count} of {all} of the cluster",
    meaning=(
        "`TF_CONFIG` names more processes that train together than the run has files for. Nothing is known of their devices; "
        "one of them may be the straggler. Only `traceview capture` records the size of a cluster."
    ),
    action=CAPTURE_ALL,
    advice="Files that lie elsewhere can be copied into the folder of the run.",
    metrics={"role": "not recorded"},
    example="The run lacks worker 3: 1 of 4 processes of the cluster",
)


def diagnose(trace: Trace, result: Capture) -> Iterator[Finding]:
    """Findings about the capture itself: devices, files and workers that it lacks."""
    errors = {host.name: host.errors for host in trace.hosts}
    of_gpus: dict[str, list[Evidence]] = {"cupti": [], "": [], "empty": []}
    for problem in result.problems:
        host = problem.host or ""
        if problem.code not in _NO_EVENTS:
            continue
        if any("failed to load libcupti" in error.lower() for error in errors[host]):
            of_gpus["cupti"] += [
                Evidence("error", error, None, host, value_is="message") for error in errors[host]
            ]
        elif problem.code == "gpu-planes-empty":
            of_gpus["empty"].append(Evidence("device_event_count", 0, None, host))
        elif gpus_expected(trace, host):
            of_gpus[""].append(Evidence("device_plane_count", 0, None, host))
    for key, rows in of_gpus.items():
        if rows:
            names = tuple(dict.fromkeys(row.where for row in rows))
            yield NO_GPU_PLANE.finding(
                arguments={"hosts": Names(names, "host")},
                evidence=rows,
                title=key,
                action=key,
                notes=(key or "no-plane",),
            )
    yield from _damaged(trace, result.problems)
    yield from _missing(result)
    dropped = [host for host in result.hosts if host.dropped_event_count]
    if dropped:
        yield EVENTS_DROPPED.finding(
            arguments={
                "hosts": Names(tuple(host.host for host in dropped), "host"),
                "count": Number(sum(host.dropped_event_count for host in dropped), "event"),
            },
            evidence=[
                Evidence("dropped_event_count", host.dropped_event_count, 0, host.host)
                for host in dropped
            ],
        )


_NO_EVENTS: Final = ("no-gpu-plane", "gpu-planes-empty")
"""Codes of the problems that `NO_GPU_PLANE` is about."""


def _damaged(trace: Trace, problems: Sequence[Problem]) -> Iterator[Finding]:
    """One finding per file, however many places in it are damaged."""
    damage: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.code == "damaged-file":
            damage.setdefault(problem.host or "", []).append(problem)
    unread = {file.host: file.name for file in trace.files if file.sha256 is None}
    with_plane = {
        trace.hosts[device.host].name for device in trace.device_list if device.kind != "replica"
    }
    for host, places in damage.items():
        is_cut_off = any("cut off" in place.recorded for place in places)
        is_unread = host in unread
        yield DAMAGED_FILE.finding(
            title="unread" if is_unread else "" if is_cut_off else "damaged",
            notes=["unread"] if is_unread else [] if host in with_plane else ["no-device"],
            severity="critical" if not is_unread and is_damaged_throughout(trace) else None,
            arguments={
                "hosts": Names((host,), "host"),
                "places": Number(len(places), "place"),
                **({"files": Names((unread[host],), "file")} if is_unread else {}),
            },
            evidence=[
                Evidence(
                    "damage", place.recorded, None, host, place.text, value_is=place.recorded_is
                )
                for place in places
            ],
        )


_NAMED_TASKS: Final = 8


def _missing(result: Capture) -> Iterator[Finding]:
    tasks = tuple(row.recorded for row in result.problems if row.code == "missing-host")
    if tasks:
        yield MISSING_HOST.finding(
            arguments={
                "tasks": Names(tasks, "task"),
                "count": Number(len(tasks)),
                "all": Number(len(tasks) + len(result.hosts), "process"),
            },
            evidence=[
                Evidence("role", task, None, "", "TF_CONFIG", value_is="task")
                for task in tasks[:_NAMED_TASKS]
            ],
        )


# Sections

_SHOWN_STEPS: Final = 4
"""Numbers of steps that are listed; more of them are counted."""
_IN_JSON: Final = "the JSON report"
_CLOCK_METHODS: Final = {
    "collectives": "by collectives",
    "profile_start": "by profile start",
    "none": "not comparable",
}
_TOPICS: Final = {
    "input": "input pipeline",
    "lanes": "events of the timeline",
    "outside_view": "GPU clocks, load and other processes",
    "idle": "idle time",
}
"""What results are called where their key does not say it."""


def hosts_section(view: View, result: Capture) -> doc.Section | None:
    """A row per host of a run of several: its task, its missing steps, and how its clock was aligned."""
    hosts = result.hosts
    if len(hosts) < 2:
        return None
    # Those that lack steps, then those with the largest offset.
    first = sorted(hosts, key=lambda host: (not host.missing_steps, -abs(_offset(host) or 0)))
    shown = first[: view.few_rows]
    rows = table(
        "Hosts",
        [host for host in hosts if host in shown],
        _HOST_COLUMNS,
        row_count=len(hosts),
        rest=_IN_JSON,
    )
    return doc.Section("hosts", "Hosts", tuple(rows), lead=clock_sentence(hosts))


def clock_sentence(hosts: Sequence[HostCapture]) -> str:
    """How the clocks of the hosts were aligned, and how well the ends of collectives agree."""
    clocks = [host.clock for host in hosts if host.clock is not None]
    if any(clock.method == "none" for clock in clocks):
        return "Some clocks could not be aligned: times of those hosts cannot be compared with the others'."
    spreads = [clock.residual_ps for clock in clocks if clock.residual_ps is not None]
    if not spreads:
        return "Clocks aligned by the start of each profile; no collective shows how far they are apart."
    return f"Ends of collectives differ by {numbers.time(max(spreads))} between hosts."


def _offset(host: HostCapture) -> int | None:
    """What collectives added to the times of a host; None where its clock is not comparable."""
    return None if host.clock is None or host.clock.method == "none" else host.clock.offset_ps


_HOST_COLUMNS: Final = (
    Shown("host", "host"),
    Shown("role", "role", 1),
    Shown("clock aligned", lambda host: host.clock and _CLOCK_METHODS[host.clock.method], 2),
    Shown(
        "clock moved by",
        _offset,
        kind="time",
        meaning="what collectives added to the times of the host",
    ),
    Shown(
        "steps missing",
        lambda host: enumerated([str(step) for step in host.missing_steps], _SHOWN_STEPS),
    ),
)


def capture_section(view: View, result: Capture) -> doc.Section | None:
    """What limits the capture, and which results are absent and why."""
    is_limited = bool(result.problems) or result.quality != "ok"
    if view.is_brief and not is_limited and not _overheads(view):
        return None
    blocks: tuple[doc.Block, ...] = (
        *_problems(view, result),
        *doc.remarks(_cost_sentence(view)),
    )
    if not view.is_brief:
        absent = [
            f"{_TOPICS.get(of, of.replace('_', ' '))}: {why}" for of, why in view.skipped.items()
        ]
        blocks += (doc.Subheading("Not in this report"), *doc.notes(*absent)) if absent else ()
    quality = look_of(QUALITIES, result.quality).words
    lead = f"The capture is {quality}." if is_limited else "Nothing limits the capture."
    return doc.Section("capture", "Capture quality", blocks, lead=lead)


def _problems(view: View, result: Capture) -> tuple[doc.Block, ...]:
    shown = result.problems[: view.few_rows]
    has_several_hosts = len(result.hosts) > 1
    sentences = [
        problem.sentence + (f" (host {problem.host})" if has_several_hosts and problem.host else "")
        for problem in shown
    ]
    more = len(result.problems) - len(shown)
    rest = f"{numbers.plural(more, 'more problem')}: see {_IN_JSON}." if more else None
    return (*doc.notes(*sentences), *doc.remarks(rest))


_NOISY: Final = 0.5
"""Of a step: where steps vary by more, noise hides what matters; a choice of ours."""


def _cost_sentence(view: View) -> str | None:
    """The least overhead of the profiler on a host, or how much steps vary if that is more; None where it was not measured."""
    overheads, measured = _overheads(view), measured_overhead(view)
    if measured is not None:
        return f"Recorded steps are {numbers.share(measured)} longer than those before, which no profiler recorded."
    if not overheads:
        return None
    if view.is_disturbed:
        return "What recording costs is not known: the recorded steps lose too much to other processes."
    # The profiler makes no step shorter: where they were, they vary by that.
    vary = max(max(spread, -ratio) for ratio, spread in overheads)
    within = "is within noise" if vary < _NOISY else "is not known"
    return f"What recording costs {within}: the time from call to call of the step varies by {numbers.share(vary)}."


def measured_overhead(view: View) -> float | None:
    """The least overhead of a host, for others wait for each other; None below how much its steps vary, or where other processes may be why."""
    ratio, spread = min(_overheads(view), default=(0.0, 0.0))
    return ratio if ratio > spread and not view.is_disturbed else None


def _overheads(view: View) -> list[tuple[float, float]]:
    """By how much recorded steps of each host are longer, and how much its steps vary without the profiler, as shares."""
    recorded = view.record("environment", Environment)
    costs = [host.overhead for host in (recorded.hosts if recorded else ())]
    return [(cost.ratio, cost.spread_ratio or 0.0) for cost in costs if cost.ratio is not None]


ANALYSIS: Final = Analysis[Capture](
    "capture",
    compute=lambda context: compute(context.trace),
    rules=(NO_GPU_PLANE, EVENTS_DROPPED, DAMAGED_FILE, MISSING_HOST),
    diagnose=lambda context, result: diagnose(context.trace, result),
    sections=(hosts_section, capture_section),
)
