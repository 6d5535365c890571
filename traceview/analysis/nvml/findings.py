"""Finds GPUs that are shared with other jobs, throttled, or busier by NVML than by the trace or the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.base import Evidence, Finding, Rule
from traceview.analysis.nvml.result import Nvml, NvmlRow, OtherProcess
from traceview.document import numbers

GPU_SHARED: Final = Rule(
    "gpu-shared",
    starts_at="another process with at least {shared_ratio} of the GPU's memory or of its time",
    limits={"shared_ratio": 0.05},
    meaning=(
        "While the profile ran, a process of another job was on the GPU. A trace does not hold its kernels: they "
        "show only as kernels of this job that are slow or late. traceview capture finds it: it samples NVML, and "
        "needs process ids that are those of this system."
    ),
    evidence="other_processes in results.outside_view: memory_ratio and utilization_ratio of each",
    advice=(
        "List the processes with nvidia-smi. Give each job GPUs of its own with CUDA_VISIBLE_DEVICES or "
        "the scheduler; nvidia-smi -c EXCLUSIVE_PROCESS keeps other jobs away."
    ),
    example="GPU:1 is shared with another process holding 21.5 GB",
)

GPU_THROTTLED: Final = Rule(
    "gpu-throttled",
    starts_at=(
        "clocks held back in at least {throttled_ratio} of the samples; low confidence below {steady_count} samples"
    ),
    limits={"throttled_ratio": 0.10, "steady_count": 10},
    meaning=(
        "The driver lowered the clocks for power, heat or another limit, so that all kernels took longer. Idle "
        "GPUs and clocks that somebody set do not count."
    ),
    evidence="throttled_ratio and throttle_reasons in results.outside_view",
    advice=(
        "For a power cap look at the limit (nvidia-smi -q -d POWER) and raise it if the rack allows. For heat "
        "look at fans, airflow and neighbours (nvidia-smi -q -d TEMPERATURE). Compare GPUs only while "
        "none is throttled."
    ),
    example="GPU:2 is throttled 43.3% of the time: hardware thermal slowdown",
)

NVML_DISAGREES: Final = Rule(
    "nvml-disagrees",
    starts_at="NVML and the trace differ by at least {difference_ratio} in how busy a GPU was",
    limits={"difference_ratio": 0.2},
    meaning=(
        "NVML counts the time with a kernel, whichever process runs it and whatever the tracer lost. It is compared "
        "with the kernels and with all activity of the trace in the same periods; the nearer value counts. A "
        "difference that another process on the GPU explains belongs to gpu-shared."
    ),
    evidence="nvml_busy_ratio, trace_busy_ratio and difference_ratio in results.outside_view",
    advice=(
        "Look for dropped events and for other processes on the GPU, capture again with fewer steps, and trust "
        "neither number until they agree."
    ),
    example="GPU:0 is 93.0% busy by NVML and 20.0% by the trace",
)

RULES: Final = (GPU_SHARED, GPU_THROTTLED, NVML_DISAGREES)


def diagnose(result: Nvml) -> list[Finding]:
    """GPUs that are shared or throttled, or of which NVML and the trace disagree."""
    shared = [row for row in result.devices if _sharers(row)]
    limit = GPU_THROTTLED.limits["throttled_ratio"]
    throttled = [row for row in result.devices if (row.throttled_ratio or 0) >= limit]
    # NVML counts the kernels of another process, the trace does not: that is no second finding.
    disagreeing = [
        row for row in result.devices if _differs(row) and not (row in shared and _is_busier(row))
    ]
    return [
        *([_shared(shared)] if shared else []),
        *([_throttled(throttled)] if throttled else []),
        *([_disagreeing(disagreeing)] if disagreeing else []),
    ]


# gpu-shared


def _sharers(row: NvmlRow) -> list[OtherProcess]:
    limit = GPU_SHARED.limits["shared_ratio"]
    return [
        process
        for process in row.other_processes or ()
        if (process.memory_ratio or 0) >= limit or _computes(process)
    ]


def _computes(process: OtherProcess) -> bool:
    return (process.utilization_ratio or 0) >= GPU_SHARED.limits["shared_ratio"]


def _shared(rows: Sequence[NvmlRow]) -> Finding:
    devices = [row.device for row in rows]
    sharers = [(row.host, process) for row in rows for process in _sharers(row)]
    count = len({(host, process.pid) for host, process in sharers})
    held_bytes = sum(process.memory_bytes or 0 for _, process in sharers)
    verb = "is" if len(rows) == 1 else "are"
    who = "another process" if count == 1 else f"{count} other processes"
    memory = f" holding {numbers.size(held_bytes)}" if held_bytes else ""
    do_compute = any(_computes(process) for _, process in sharers)
    return GPU_SHARED.finding(
        f"{numbers.listed(devices)} {verb} shared with {who}{memory}",
        [evidence for row in rows for evidence in _shared_evidence(row)],
        confidence=("high", "NVML measured their use of the GPU")
        if do_compute
        else ("medium", "NVML lists the processes, but not how much they compute"),
        explanation=(
            "Other processes run kernels there too: the GPU switches between the jobs, and this trace "
            "shows that only as kernels that are slow or late."
            if do_compute
            else "A larger batch cannot use the memory that other processes hold, and this job waits whenever they "
            "run kernels. In this recording they computed little."
        ),
        devices=devices,
    )


def _shared_evidence(row: NvmlRow) -> list[Evidence]:
    limit = GPU_SHARED.limits["shared_ratio"]
    evidence = []
    for process in _sharers(row):
        where = row.device if process.pid is None else f"{row.device}, process {process.pid}"
        for metric in ("memory_ratio", "utilization_ratio"):
            value = getattr(process, metric)
            if value is not None and value >= limit:
                evidence.append(Evidence(metric, value, limit, where))
    if _differs(row) and _is_busier(row):
        evidence.append(_difference(row))
    return evidence


# gpu-throttled


def _throttled(rows: Sequence[NvmlRow]) -> Finding:
    worst = max(rows, key=lambda row: row.throttled_ratio or 0)
    reasons = list(dict.fromkeys(name for row in rows for name in row.throttle_reasons))
    devices = [row.device for row in rows]
    fewest = min(row.sample_count for row in rows)
    samples = f"{numbers.plural(fewest, 'sample')} of NVML"
    is_steady = fewest >= GPU_THROTTLED.limits["steady_count"]
    verb, at_most = ("is", "") if len(rows) == 1 else ("are", "up to ")
    return GPU_THROTTLED.finding(
        f"{numbers.listed(devices)} {verb} throttled {at_most}{numbers.share(worst.throttled_ratio)} of the time: "
        f"{numbers.listed(reasons)}",
        [evidence for row in rows for evidence in _throttled_evidence(row)],
        confidence=("high", f"judged by {samples}") if is_steady else ("low", f"only {samples}"),
        explanation=(
            f"The driver ran the clocks lower than the GPU can.{_clocks(worst)} All kernels take longer, "
            "and with MirroredStrategy every replica waits for the slowest GPU."
        ),
        devices=devices,
    )


def _throttled_evidence(row: NvmlRow) -> tuple[Evidence, Evidence]:
    limit = GPU_THROTTLED.limits["throttled_ratio"]
    reasons = ", ".join(
        f"{name} {numbers.share(ratio)}" for name, ratio in row.throttle_reasons.items()
    )
    return (
        Evidence("throttled_ratio", row.throttled_ratio or 0, limit, row.device),
        Evidence("throttle_reasons", reasons, None, row.device),
    )


def _clocks(row: NvmlRow) -> str:
    if row.sm_clock_hz is None or row.sm_clock_max_hz is None:
        return ""
    return (
        f" {row.device} ran at {row.sm_clock_hz / 1e6:.0f} MHz (median) of at most "
        f"{row.sm_clock_max_hz / 1e6:.0f} MHz."
    )


# nvml-disagrees


def _differs(row: NvmlRow) -> bool:
    return (row.difference_ratio or 0) >= NVML_DISAGREES.limits["difference_ratio"]


def _is_busier(row: NvmlRow) -> bool:
    """Whether the GPU was busier by NVML than by the trace."""
    return (row.nvml_busy_ratio or 0) > (row.trace_busy_ratio or 0)


def _difference(row: NvmlRow) -> Evidence:
    limit = NVML_DISAGREES.limits["difference_ratio"]
    return Evidence("difference_ratio", row.difference_ratio or 0, limit, row.device)


def _disagreeing(rows: Sequence[NvmlRow]) -> Finding:
    worst = max(rows, key=lambda row: row.difference_ratio or 0)
    others = f"; {numbers.plural(len(rows) - 1, 'more GPU')} likewise" if len(rows) > 1 else ""
    evidence: list[Evidence] = []
    for row in rows:
        evidence += [
            _difference(row),
            Evidence("nvml_busy_ratio", row.nvml_busy_ratio or 0, None, row.device),
            Evidence("trace_busy_ratio", row.trace_busy_ratio or 0, None, row.device),
        ]
    return NVML_DISAGREES.finding(
        f"{worst.device} is {numbers.share(worst.nvml_busy_ratio or 0)} busy by NVML and "
        f"{numbers.share(worst.trace_busy_ratio or 0)} by the trace{others}",
        evidence,
        confidence=("medium", "NVML averages over periods whose length is not known exactly"),
        explanation=(
            "NVML measured kernels that the trace does not hold: events were lost, another process ran on the "
            "GPU, or work of this process was not traced."
            if _is_busier(worst)
            else "The trace holds more activity than NVML measured: its times may be on another clock, or the work "
            "was of kinds that NVML does not count."
        ),
        devices=[row.device for row in rows],
    )
