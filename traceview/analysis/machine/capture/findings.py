"""Finds what makes a capture incomplete: missing GPU planes, hosts and events, damaged files, ignored options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.machine.capture.result import (
    DEFAULT_LEVELS,
    NAMED_STEPS_OR_TASKS,
    Capture,
    HostCapture,
    IgnoredOption,
    gpus_expected,
    ignored_options,
    tasks_without_file,
)
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Files, Hosts, Number, Settings, Tasks
from traceview.trace.model import Problem, SourceFile, Trace, is_damaged_throughout

NO_GPU_PLANE: Final = Rule(
    code="no-gpu-plane",
    severity="critical",
    other_severities=("info",),
    starts_at="a host without any device plane; information on a run without GPUs",
    title="No GPU plane was recorded on {hosts}, though GPUs were in use",
    titles={"cpu": "{hosts} recorded a run on CPUs only"},
    meaning=(
        "The GPU tracer did not start, so the trace says nothing about GPUs. Nothing else in the file shows that."
    ),
    notes={
        "cpu": "No thread serves a GPU. The report shows what ran on the CPU of each host as devices.",
        "no-op": "No op that ran inside of a graph was recorded on a CPU either, so the report has no device there.",
    },
    action="Check that CUPTI loads and may be used: `traceview capture --check`.",
    advice=(
        "The driver must not restrict profiling to administrators, and no other profiler (nsys, DCGM) may hold CUPTI."
    ),
    actions={
        "cpu": (
            "If this job should run on GPUs, check `tf.config.list_physical_devices('GPU')`.",
            "",
        ),
        "jax-cpu": ("If this job should run on GPUs, check `jax.devices()`.", ""),
    },
    metrics={"device_plane_count": "GPU planes in the file"},
    example="No GPU plane was recorded on host0, though GPUs were in use",
)

GPU_PLANES_EMPTY: Final = Rule(
    code="gpu-planes-empty",
    is_of_absence=True,
    severity="critical",
    starts_at="GPU planes of a host, none with an event",
    title="The GPU planes of {hosts} hold no event",
    meaning="The GPU tracer started and recorded nothing: either no GPU ran anything, or its events were lost.",
    action="Capture while steps run, for more than one step.",
    advice="Read the profiler's log for errors of CUPTI.",
    metrics={"device_event_count": "events on devices"},
    example="The GPU planes of host0 hold no event",
)

EVENTS_DROPPED: Final = Rule(
    code="events-dropped",
    severity="warning",
    starts_at="any dropped event",
    title="The tracer dropped {count} on {hosts}",
    meaning=(
        "The tracer's buffers were full. From then on times and counts are too low; these steps are left out of the "
        "statistics."
    ),
    action="Capture fewer steps.",
    metrics={"dropped_event_count": "dropped events"},
    example="The tracer dropped 1,200 events on host0",
)

CUPTI_MISSING: Final = Rule(
    code="cupti-missing",
    severity="critical",
    starts_at="the error `Failed to load libcupti` in the trace of a host",
    title="CUPTI did not load on {hosts}: no GPU event was recorded",
    meaning=(
        "TensorFlow records GPU events through CUPTI, NVIDIA's profiling library, and could not load it. The trace says "
        "nothing about GPUs."
    ),
    action="Install the CUPTI of the CUDA that TensorFlow was built with: `pip install 'tensorflow[and-cuda]'`.",
    advice=(
        "Its package alone is `nvidia-cuda-cupti-cu12`. With a CUDA toolkit: `export "
        "LD_LIBRARY_PATH=/usr/local/cuda/extras/CUPTI/lib64:$LD_LIBRARY_PATH`. `traceview capture --check` checks it."
    ),
    metrics={"error": "message of the profiler"},
    example="CUPTI did not load on host0: no GPU event was recorded",
)

PROFILER_ERROR: Final = Rule(
    code="profiler-error",
    severity="warning",
    starts_at="any error of the profiler in the trace",
    title="The profiler reported {count} on {hosts}",
    meaning="The profiler wrote an error into the trace; what it could not record is missing.",
    action="Read the message: missing privileges and a second profiler are the usual reasons.",
    metrics={"error": "message of the profiler"},
    example="The profiler reported 1 error on host0",
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
        "What could not be read is missing from every number of the report. That a device, a step or an op is not "
        "there shows nothing about it, and no finding is made of it."
    ),
    notes={
        "no-device": "What its GPUs did, if it has any, is lost.",
        "unread": "No number of this report includes that host.",
    },
    action="Copy the file again, or capture again and let the profiler finish before copying.",
    metrics={"damage": "damage"},
    example="The file of host1 is cut off: events and whole devices may be lost",
)

DUPLICATE_HOST_FILE: Final = Rule(
    code="duplicate-host-file",
    severity="warning",
    starts_at="any two host files with the same bytes",
    title="{files} hold the same bytes and count as one host",
    meaning="A file was copied, or one host overwrote the trace of another.",
    action="Remove the copy; if two hosts were meant, capture again with a file name for each.",
    metrics={"sha256": "SHA-256"},
    example="a.xplane.pb and b.xplane.pb hold the same bytes and count as one host",
)

MISSING_HOST: Final = Rule(
    code="missing-host",
    severity="warning",
    starts_at="any worker or chief of the cluster without a file in the run",
    title="The run lacks {tasks}: {count} of {all} of the cluster",
    meaning=(
        "`TF_CONFIG` names more processes that train together than the run has files for. What their devices did is "
        "unknown; the device that all others wait for may be among them. Only `traceview capture` records the size of "
        "a cluster."
    ),
    action="Capture on all of them at the same steps, into one folder: `traceview capture --out DIR`.",
    advice="Files that lie elsewhere can be copied into the folder of the run.",
    metrics={"role": "not recorded"},
    example="The run lacks worker 3: 1 of 4 processes of the cluster",
)

OPTIONS_IGNORED: Final = Rule(
    code="options-ignored",
    severity="info",
    starts_at="any tracer level in force that differs from the level asked for",
    title="TensorFlow ignored the profiler's {options}",
    meaning=(
        "The profile was recorded with other levels than the capture asked for: events of the levels asked for may be "
        "missing, and events of the levels in force may be in it unasked."
    ),
    reasons={
        "inferred": "the release and the events show it, the levels in force are not recorded"
    },
    action="Leave the options at their defaults with TensorFlow 2.20 and 2.21, which ignore them; 2.19 honours them.",
    metrics={name: f"{name} in force" for name in DEFAULT_LEVELS},
    example="TensorFlow ignored the profiler's python_tracer_level",
)

RULES: Final = (
    NO_GPU_PLANE,
    GPU_PLANES_EMPTY,
    EVENTS_DROPPED,
    CUPTI_MISSING,
    PROFILER_ERROR,
    DAMAGED_FILE,
    DUPLICATE_HOST_FILE,
    MISSING_HOST,
    OPTIONS_IGNORED,
)


def diagnose(trace: Trace, result: Capture) -> Iterator[Finding]:
    """Findings about the capture itself."""
    of_problem = {
        code: [row.host or "" for row in result.problems if row.code == code]
        for code in ("no-gpu-plane", "gpu-planes-empty")
    }
    without_cupti = [
        host
        for host in result.hosts
        if any(map(_is_about_cupti, host.errors)) and not _has_plane_events(trace, host.host)
    ]
    explained = {host.host for host in without_cupti}
    if without_cupti:
        yield CUPTI_MISSING.finding(
            arguments={"hosts": _hosts(without_cupti)}, evidence=_errors(without_cupti)
        )
    without_plane = [host for host in of_problem["no-gpu-plane"] if host not in explained]
    yield from _no_gpu_plane(trace, without_plane)
    empty = [host for host in of_problem["gpu-planes-empty"] if host not in explained]
    if empty:
        yield GPU_PLANES_EMPTY.finding(
            arguments={"hosts": Hosts(tuple(empty))},
            evidence=[Evidence("device_event_count", 0, None, host) for host in empty],
        )
    yield from (_duplicate(file) for file in trace.files if file.duplicate_of)
    yield from _damaged(trace, result.problems)
    yield from _missing(trace, len(result.hosts))
    yield from _dropped([host for host in result.hosts if host.dropped_event_count])
    failed = [host for host in result.hosts if host.errors and host.host not in explained]
    if failed:
        errors = _errors(failed)
        yield PROFILER_ERROR.finding(
            arguments={"hosts": _hosts(failed), "count": Number(len(errors), "error")},
            evidence=errors,
        )
    yield from _ignored(
        [option for host in range(len(trace.hosts)) for option in ignored_options(trace, host)]
    )


def _hosts(hosts: Sequence[HostCapture]) -> Hosts:
    return Hosts(tuple(host.host for host in hosts))


def _errors(hosts: Sequence[HostCapture]) -> list[Evidence]:
    return [Evidence("error", error, None, host.host) for host in hosts for error in host.errors]


def _no_gpu_plane(trace: Trace, hosts: Sequence[str]) -> Iterator[Finding]:
    """One finding about hosts that used GPUs, and one about those that have none."""
    using = [host for host in hosts if gpus_expected(trace, host)]
    cpu_only = [host for host in hosts if host not in using]
    with_device = {trace.hosts[device.host].name for device in trace.device_list}
    for chosen, key in ((using, ""), (cpu_only, "cpu")):
        if chosen:
            yield NO_GPU_PLANE.finding(
                title=key,
                action=key,
                notes=[] if not key else ["cpu" if with_device.issuperset(chosen) else "no-op"],
                severity="info" if key else None,
                arguments={"hosts": Hosts(tuple(chosen))},
                evidence=[Evidence("device_plane_count", 0, None, host) for host in chosen],
            )


def _duplicate(file: SourceFile) -> Finding:
    names = (file.name, file.duplicate_of or "")
    return DUPLICATE_HOST_FILE.finding(
        arguments={"files": Files(names)},
        evidence=[Evidence("sha256", file.sha256 or "", None, " and ".join(names))],
    )


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
        is_cut_off = any("cut off" in place.text for place in places)
        is_unread = host in unread
        yield DAMAGED_FILE.finding(
            title="unread" if is_unread else "" if is_cut_off else "damaged",
            notes=["unread"] if is_unread else [] if host in with_plane else ["no-device"],
            severity="critical" if not is_unread and is_damaged_throughout(trace) else None,
            arguments={
                "hosts": Hosts((host,)),
                "places": Number(len(places), "place"),
                **({"files": Files((unread[host],))} if is_unread else {}),
            },
            evidence=[Evidence("damage", place.text, None, host) for place in places],
        )


def _missing(trace: Trace, host_count: int) -> Iterator[Finding]:
    tasks = tuple(map(str, tasks_without_file(trace)))
    if tasks:
        yield MISSING_HOST.finding(
            arguments={
                "tasks": Tasks(tasks),
                "count": Number(len(tasks)),
                "all": Number(len(tasks) + host_count, "process"),
            },
            evidence=[
                Evidence("role", task, None, "TF_CONFIG") for task in tasks[:NAMED_STEPS_OR_TASKS]
            ],
        )


def _dropped(hosts: Sequence[HostCapture]) -> Iterator[Finding]:
    if hosts:
        count = sum(host.dropped_event_count for host in hosts)
        yield EVENTS_DROPPED.finding(
            arguments={"hosts": _hosts(hosts), "count": Number(count, "event")},
            evidence=[
                Evidence("dropped_event_count", host.dropped_event_count, 0, host.host)
                for host in hosts
            ],
        )


def _is_about_cupti(error: str) -> bool:
    return "failed to load libcupti" in error.lower()


def _has_plane_events(trace: Trace, host: str) -> bool:
    """Whether a GPU or TPU of the host recorded an event."""
    return any(
        device.kind != "replica"
        and trace.hosts[device.host].name == host
        and trace.device_columns.rows_of(index).stop > trace.device_columns.rows_of(index).start
        for index, device in enumerate(trace.device_list)
    )


def _ignored(options: Sequence[IgnoredOption]) -> Iterator[Finding]:
    """One finding for all hosts and options."""
    if not options:
        return
    is_recorded = all(option.in_force is not None for option in options)
    yield OPTIONS_IGNORED.finding(
        arguments={"options": Settings(tuple(dict.fromkeys(option.name for option in options)))},
        evidence=[
            Evidence(
                option.name,
                "not recorded" if option.in_force is None else option.in_force,
                None,
                f"{option.host}, {option.asked} asked",
            )
            for option in options
        ],
        confidence=("high", "") if is_recorded else ("medium", "inferred"),
    )
