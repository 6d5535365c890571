"""Finds what makes a capture incomplete: missing GPU planes, hosts and events, damaged files, ignored options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.base import Evidence, Finding, Rule
from traceview.analysis.capture import tracer_options
from traceview.analysis.capture.result import (
    NAMED_STEPS_OR_TASKS,
    Capture,
    HostCapture,
    gpus_expected,
    tasks_without_file,
)
from traceview.document import numbers
from traceview.trace.damage import is_damaged_throughout
from traceview.trace.model import Problem, SourceFile, Trace

NO_GPU_PLANE: Final = Rule(
    "no-gpu-plane",
    starts_at="a host without any device plane; critical where GPUs were in use, information on a CPU-only run",
    severities=("critical", "info"),
    meaning=(
        "The GPU tracer did not start, so the trace says nothing about GPUs. TensorFlow leaves no other sign "
        "of this in the file. Of a run without GPUs the replicas on the CPU are reported."
    ),
    evidence="no plane /device:GPU:n, while threads are named after GPUs or the profiler reported an error",
    advice=(
        "Check that CUPTI loads and may be used: the driver must not restrict profiling to "
        "administrators, and no other profiler (nsys, DCGM) may hold CUPTI."
    ),
    example="no GPU plane was recorded on host0, though GPUs were in use",
)

GPU_PLANES_EMPTY: Final = Rule(
    "gpu-planes-empty",
    is_of_absence=True,
    starts_at="GPU planes, none with an event",
    severities=("critical",),
    meaning=(
        "The GPU tracer started and recorded nothing: either no GPU ran anything, or its events were lost."
    ),
    evidence="planes /device:GPU:n without activity on all of them",
    advice=(
        "Capture while steps run, for more than one step, and read the profiler's log for CUPTI errors."
    ),
    example="the GPU planes of host0 hold no event",
)

EVENTS_DROPPED: Final = Rule(
    "events-dropped",
    starts_at="any dropped event",
    meaning=(
        "The tracer's buffers were full: from that moment on times and counts are too low, and steps are left "
        "out of the statistics."
    ),
    evidence="the tracer's warning in the trace",
    advice="Capture fewer steps.",
    example="the tracer dropped 1200 events",
)

CUPTI_MISSING: Final = Rule(
    "cupti-missing",
    starts_at="the error `Failed to load libcupti` in the trace of a host",
    severities=("critical",),
    meaning=(
        "TensorFlow records GPU events through CUPTI, NVIDIA's profiling library, and could not load it. The trace says "
        "nothing about GPUs."
    ),
    evidence="the error message of the profiler",
    advice=(
        "Install the CUPTI of the CUDA that TensorFlow was built with: pip install 'tensorflow[and-cuda]', or only "
        "nvidia-cuda-cupti-cu12. With a CUDA toolkit: export "
        "LD_LIBRARY_PATH=/usr/local/cuda/extras/CUPTI/lib64:$LD_LIBRARY_PATH. traceview doctor checks it."
    ),
    example="CUPTI did not load on host0: no GPU event was recorded",
)

PROFILER_ERROR: Final = Rule(
    "profiler-error",
    starts_at="any error of the profiler in the trace",
    meaning="The profiler wrote an error into the trace; what it could not record is missing.",
    evidence="the error message",
    advice="Read the message: missing privileges and a second profiler are the usual reasons.",
    example="the profiler reported 1 error",
)

DAMAGED_FILE: Final = Rule(
    "damaged-file",
    starts_at="any trace file that cannot be read as a whole; critical where no host of the run has a whole one",
    severities=("warning", "critical"),
    meaning=(
        "A trace file is cut off or damaged. What could not be read is missing from every number of the report. That a "
        "device, a step or an op is not there shows nothing about it, and no finding is made of it."
    ),
    evidence="file and byte offset",
    advice="Copy the file again, or capture again and let the profiler finish before copying.",
    example="the file of host1 is cut off, so events and whole devices may be lost; what is readable was used",
)

DUPLICATE_HOST_FILE: Final = Rule(
    "duplicate-host-file",
    starts_at="any two host files with the same bytes",
    meaning="Two host files hold the same bytes. They were counted once, as one host.",
    evidence="file names and their SHA-256",
    advice="Remove the copy; if two hosts were meant, one of them overwrote the other's trace.",
    example="the run holds the trace of one host twice",
)

MISSING_HOST: Final = Rule(
    "missing-host",
    starts_at="any worker or chief of the cluster without a file in the run",
    meaning=(
        "TF_CONFIG names more processes that train together than the run has files for. What their devices did is "
        "unknown; the device that all others wait for may be among them. Only a profile that traceview capture recorded shows it."
    ),
    evidence="sizes of the cluster and tasks of the hosts in the sidecars",
    advice=(
        "Capture on all of them at the same steps, into one folder: start every process with traceview capture "
        "--out DIR, or copy the missing files into the folder of the run."
    ),
    example="1 of 4 processes of the cluster was not recorded: worker 3",
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
    tracer_options.OPTIONS_IGNORED,
)


def diagnose(trace: Trace, result: Capture) -> Iterator[Finding]:
    """Findings about the capture itself."""
    without_cupti = [
        host
        for host in result.hosts
        if any(map(_is_about_cupti, host.errors)) and not _has_plane_events(trace, host.host)
    ]
    yield from _cupti_missing(without_cupti)
    explained = {host.host for host in without_cupti}
    for problem in result.problems:
        if problem.host in explained:
            continue
        if problem.code == "no-gpu-plane":
            yield _no_gpu_plane(trace, problem.host or "")
        elif problem.code == "gpu-planes-empty":
            yield _gpu_planes_empty(problem.host or "")
    yield from (_duplicate(file) for file in trace.files if file.duplicate_of)
    yield from _damaged(trace, result.problems)
    yield from _missing(trace, len(result.hosts))
    yield from _dropped([host for host in result.hosts if host.dropped_event_count])
    yield from _profiler_error([host for host in result.hosts if host.host not in explained])
    yield from tracer_options.diagnose(trace)


def _cpu_ops(trace: Trace, host: str) -> str:
    """Where the report shows what the CPU of a host ran."""
    if not any(trace.hosts[device.host].name == host for device in trace.device_list):
        return "No op that ran inside of a graph was recorded on the CPU either, so the report has no device."
    return (
        "The report shows what the CPU ran as replica:0, and as replica:1 and so on if a strategy has more devices "
        "there."
    )


def _no_gpu_plane(trace: Trace, host: str) -> Finding:
    evidence = [Evidence("device_plane_count", 0, None, host)]
    confidence: Final = ("high", "recorded in the trace")
    if gpus_expected(trace, host):
        return NO_GPU_PLANE.finding(
            f"no GPU plane was recorded on {host}, though GPUs were in use",
            evidence,
            confidence=confidence,
            explanation=(
                "TensorFlow ran threads for GPUs or reported a profiler error, but the GPU tracer recorded "
                "nothing. The report cannot give any number about a GPU."
            ),
        )
    return NO_GPU_PLANE.finding(
        f"{host} recorded a CPU-only run",
        evidence,
        severity="info",
        confidence=confidence,
        explanation=f"There is no GPU plane and no thread that serves a GPU. {_cpu_ops(trace, host)}",
        advice="If this job should run on GPUs, check tf.config.list_physical_devices('GPU').",
    )


def _gpu_planes_empty(host: str) -> Finding:
    return GPU_PLANES_EMPTY.finding(
        f"the GPU planes of {host} hold no event",
        [Evidence("device_event_count", 0, None, host)],
        confidence=("high", "recorded in the trace"),
    )


def _duplicate(file: SourceFile) -> Finding:
    where = f"{file.name} and {file.duplicate_of}"
    return DUPLICATE_HOST_FILE.finding(
        "the run holds the trace of one host twice",
        [Evidence("sha256", file.sha256 or "", None, where)],
        confidence=("high", "the files hold the same bytes"),
    )


def _damaged(trace: Trace, problems: Sequence[Problem]) -> Iterator[Finding]:
    """One finding per file, however many places in it are damaged."""
    damage: dict[str | None, list[Problem]] = {}
    for problem in problems:
        if problem.code == "damaged-file":
            damage.setdefault(problem.host, []).append(problem)
    unread = {file.host: file.name for file in trace.files if file.sha256 is None}
    for host, places in damage.items():
        evidence = [Evidence("damage", place.text, None, place.host or "") for place in places]
        if host in unread:
            yield DAMAGED_FILE.finding(
                f"{unread[host]} could not be read and was left out",
                evidence,
                confidence=("high", "the file cannot be decoded"),
                explanation="Nothing is known of that host: no number of this report includes it.",
            )
        else:
            yield DAMAGED_FILE.finding(
                f"the file of {host} is {_damage(places)}, so {_lost(trace, host)}",
                evidence,
                severity="critical" if is_damaged_throughout(trace) else None,
                confidence=("high", "the file cannot be decoded as a whole"),
            )


def _damage(places: Sequence[Problem]) -> str:
    if any("cut off" in place.text for place in places):
        return "cut off"
    return f"damaged in {numbers.plural(len(places), 'place')}"


def _lost(trace: Trace, host: str | None) -> str:
    """What the file no longer shows."""
    has_planes = any(
        device.kind != "replica" and trace.hosts[device.host].name == host
        for device in trace.device_list
    )
    if has_planes:
        return "events and whole devices may be lost; what is readable was used"
    return "what its GPUs did, if it had any, is lost; what is readable was used"


def _missing(trace: Trace, host_count: int) -> Iterator[Finding]:
    tasks = tasks_without_file(trace)
    if not tasks:
        return
    names = [str(task) for task in tasks]
    verb = "was" if len(tasks) == 1 else "were"
    yield MISSING_HOST.finding(
        f"{len(tasks)} of {len(tasks) + host_count} processes of the cluster {verb} not recorded: "
        f"{numbers.listed(names, NAMED_STEPS_OR_TASKS)}",
        [Evidence("role", name, None, "TF_CONFIG") for name in names[:NAMED_STEPS_OR_TASKS]],
        confidence=("high", "the sidecar holds the size of the cluster"),
    )


def _dropped(hosts: Sequence[HostCapture]) -> Iterator[Finding]:
    if not hosts:
        return
    count = sum(host.dropped_event_count for host in hosts)
    yield EVENTS_DROPPED.finding(
        f"the tracer dropped {numbers.plural(count, 'event')}",
        [Evidence("dropped_event_count", host.dropped_event_count, 0, host.host) for host in hosts],
        confidence=("high", "the tracer's own warning"),
        explanation=(
            f"The tracer's buffers were full on {numbers.listed([host.host for host in hosts])}. Times and counts "
            "after that moment are too low; steps from there on are left out of the statistics."
        ),
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


def _cupti_missing(hosts: Sequence[HostCapture]) -> Iterator[Finding]:
    if hosts:
        yield CUPTI_MISSING.finding(
            f"CUPTI did not load on {numbers.listed([host.host for host in hosts])}: no GPU event was recorded",
            [Evidence("error", error, None, host.host) for host in hosts for error in host.errors],
            confidence=("high", "the profiler's own message"),
        )


def _profiler_error(hosts: Sequence[HostCapture]) -> Iterator[Finding]:
    errors = [Evidence("error", error, None, host.host) for host in hosts for error in host.errors]
    if errors:
        yield PROFILER_ERROR.finding(
            f"the profiler reported {numbers.plural(len(errors), 'error')}",
            errors,
            confidence=("high", "the profiler's own message"),
        )
