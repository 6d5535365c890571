"""NVML: what the driver measured of the GPUs while the trace was recorded, and when they are shared or throttled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.nvml import (
    SHARED_RATIO,
    THROTTLED_RATIO,
    Nvml,
    NvmlRow,
    OtherProcess,
    nvml_of,
    sharers,
)
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import Rule, devices_argument
from traceview.analysis.rules.words import Argument, Number, Part, Size
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown, table

GPU_SHARED: Final = Rule(
    code="gpu-shared",
    severity="warning",
    limits={"shared_ratio": SHARED_RATIO},
    starts_at="another process with at least {shared_ratio} of the GPU's memory or of its time",
    title="{who:is/are} shared with {others}[ holding {memory}]",
    meaning=(
        "While the profile ran, processes of other jobs were on the GPU. A trace does not hold their kernels: they show "
        "only as kernels of this job that are slow or late."
    ),
    notes={
        "computes": "They run kernels, so the GPU switches between the jobs.",
        "holds": (
            "They computed little in this recording, but a larger batch cannot use the memory that they hold, and this job "
            "waits whenever they run kernels."
        ),
    },
    action="Give each job GPUs of its own, with `CUDA_VISIBLE_DEVICES` or the scheduler; `nvidia-smi` lists the processes.",
    advice="`nvidia-smi -c EXCLUSIVE_PROCESS` keeps other jobs away.",
    reasons={
        "computes": "NVML measured their use of the GPU",
        "holds": "NVML lists the processes, but not how much they compute",
    },
    metrics={
        "memory_ratio": "share of the GPU's memory that another process holds",
        "utilization_ratio": "share of the time in which another process computes",
        "difference_ratio": "difference between NVML and the trace",
    },
    example="GPU:1 is shared with 1 other process holding 21.5 GB",
)

_HEAT: Final = (
    "Check the cooling: fans, airflow and neighbours (`nvidia-smi -q -d TEMPERATURE`).",
    "Compare GPUs only while none is throttled.",
)
_POWER: Final = (
    "Look at the power limit (`nvidia-smi -q -d POWER`), and raise it if the rack allows.",
    "Compare GPUs only while none is throttled.",
)

GPU_THROTTLED: Final = Rule(
    code="gpu-throttled",
    severity="warning",
    limits={"throttled_ratio": THROTTLED_RATIO, "steady_count": 10},
    starts_at=(
        "clocks held back in at least {throttled_ratio} of the samples; low confidence below {steady_count} samples"
    ),
    title="{who:is/are} throttled {ratio} of the time",
    titles={
        "heat": "{who:is/are} throttled {ratio} of the time (heat)",
        "power": "{who:is/are} throttled {ratio} of the time (power)",
    },
    meaning=(
        "The driver lowered the clocks, so that all kernels took longer, and with a strategy every replica waits for the "
        "slowest GPU. Idle GPUs and clocks that somebody set do not count."
    ),
    notes={"clock": "The clocks of the slowest were {clock} of what they can be (median)."},
    action="Look for what lowers the clocks: `nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE`.",
    advice="Compare GPUs only while none is throttled.",
    actions={"heat": _HEAT, "power": _POWER},
    reasons={"many": "judged by {samples} of NVML", "few": "only {samples} of NVML"},
    metrics={
        "throttled_ratio": "share of the samples in which the clocks were held back",
        "throttle_reasons": "what held them back",
    },
    example="GPU:2 is throttled 43% of the time (heat)",
)

NVML_DISAGREES: Final = Rule(
    code="nvml-disagrees",
    severity="warning",
    limits={"difference_ratio": 0.2},
    starts_at="NVML and the trace differ by at least {difference_ratio} in how busy a GPU was",
    title="{who:is/are} {by_nvml} busy by NVML and {by_trace} by the trace",
    meaning=(
        "NVML counts the time with a kernel, whichever process runs it and whatever the tracer lost. It is compared "
        "with the kernels and with all activity of the trace in the same periods; the nearer value counts."
    ),
    notes={
        "lacking": (
            "NVML measured kernels that the trace does not hold: events were lost, another process ran on the GPU, or work "
            "of this process was not traced."
        ),
        "more": (
            "The trace holds more activity than NVML measured: its times may be on another clock, or the work was of kinds "
            "that NVML does not count."
        ),
    },
    action="Look for dropped events and for other processes on the GPU, and capture again with fewer steps.",
    advice="Trust neither number until they agree.",
    reasons={"periods": "NVML averages over periods whose length is not known exactly"},
    metrics={
        "difference_ratio": "difference between NVML and the trace",
        "nvml_busy_ratio": "busy by NVML",
        "trace_busy_ratio": "busy by the trace",
    },
    example="GPU:0 is 93% busy by NVML and 20% by the trace",
)

_STEADY_SAMPLES: Final = int(GPU_THROTTLED.limits["steady_count"])
_HEAT_WORDS: Final = ("thermal",)
_POWER_WORDS: Final = ("power",)


def diagnose(context: Context, result: Nvml) -> Iterator[Finding]:
    """GPUs that are shared or throttled, or of which NVML and the trace disagree."""
    shared = [row for row in result.devices if sharers(row)]
    if shared:
        yield _shared(context, shared)
    throttled = [row for row in result.devices if (row.throttled_ratio or 0) >= THROTTLED_RATIO]
    if throttled:
        yield _throttled(context, throttled)
    # NVML counts the kernels of another process, the trace does not: that is no second finding.
    disagreeing = [
        row for row in result.devices if _differs(row) and not (row in shared and _is_busier(row))
    ]
    if disagreeing:
        yield _disagreeing(context, disagreeing)


def _shared(context: Context, rows: Sequence[NvmlRow]) -> Finding:
    keys = [row.device for row in rows]
    processes = [(row, process) for row in rows for process in sharers(row)]
    held_bytes = sum(process.memory_bytes or 0 for _, process in processes)
    computes = any((process.utilization_ratio or 0) >= SHARED_RATIO for _, process in processes)
    arguments: dict[str, Argument] = {
        "who": devices_argument(context, keys),
        "others": Number(len({(row.host, of.pid) for row, of in processes}), "other process"),
    }
    if held_bytes:
        arguments["memory"] = Size(held_bytes)
    return GPU_SHARED.finding(
        arguments=arguments,
        confidence=("high", "computes") if computes else ("medium", "holds"),
        evidence=[evidence for row in rows for evidence in _shared_evidence(row)],
        devices=keys,
        notes=("computes" if computes else "holds",),
    )


def _shared_evidence(row: NvmlRow) -> Iterator[Evidence]:
    for process in sharers(row):
        where = row.device if process.pid is None else f"{row.device}, process {process.pid}"
        for metric, value in _shares(process):
            if value is not None and value >= SHARED_RATIO:
                yield Evidence(metric, value, SHARED_RATIO, where)
    if _differs(row) and _is_busier(row):
        yield _difference(row)


def _shares(process: OtherProcess) -> tuple[tuple[str, float | None], ...]:
    return (
        ("memory_ratio", process.memory_ratio),
        ("utilization_ratio", process.utilization_ratio),
    )


def _throttled(context: Context, rows: Sequence[NvmlRow]) -> Finding:
    keys = [row.device for row in rows]
    ratios = [row.throttled_ratio or 0.0 for row in rows]
    fewest = min(row.sample_count for row in rows)
    kind = _kind_of_throttling(rows)
    arguments: dict[str, Argument] = {
        "who": devices_argument(context, keys),
        "ratio": Part(sum(ratios) / len(ratios)),
        "samples": Number(fewest, "sample"),
    }
    clocks = [
        row.sm_clock_hz / row.sm_clock_max_hz
        for row in rows
        if row.sm_clock_hz is not None and row.sm_clock_max_hz
    ]
    if clocks:
        arguments["clock"] = Part(min(clocks))
    return GPU_THROTTLED.finding(
        arguments=arguments,
        confidence=("high", "many") if fewest >= _STEADY_SAMPLES else ("low", "few"),
        evidence=[evidence for row in rows for evidence in _throttled_evidence(row)],
        devices=keys,
        title=kind,
        action=kind,
        notes=("clock",) if clocks else (),
    )


def _kind_of_throttling(rows: Sequence[NvmlRow]) -> str:
    """What holds the clocks back in at least half of the samples in which something does; "" where it is neither."""
    of_heat, of_power, whole = 0.0, 0.0, sum(row.throttled_ratio or 0.0 for row in rows)
    for row in rows:
        for reason, ratio in row.throttle_reasons.items():
            of_heat += ratio * any(word in reason for word in _HEAT_WORDS)
            of_power += ratio * any(word in reason for word in _POWER_WORDS)
    if max(of_heat, of_power) < whole / 2:
        return ""
    return "heat" if of_heat >= of_power else "power"


def _throttled_evidence(row: NvmlRow) -> tuple[Evidence, Evidence]:
    reasons = ", ".join(
        f"{name} {numbers.share(ratio)}" for name, ratio in row.throttle_reasons.items()
    )
    return (
        Evidence("throttled_ratio", row.throttled_ratio or 0, THROTTLED_RATIO, row.device),
        Evidence("throttle_reasons", reasons, None, row.device),
    )


def _differs(row: NvmlRow) -> bool:
    return (row.difference_ratio or 0) >= NVML_DISAGREES.limits["difference_ratio"]


def _is_busier(row: NvmlRow) -> bool:
    """Whether the GPU was busier by NVML than by the trace."""
    return (row.nvml_busy_ratio or 0) > (row.trace_busy_ratio or 0)


def _difference(row: NvmlRow) -> Evidence:
    limit = NVML_DISAGREES.limits["difference_ratio"]
    return Evidence("difference_ratio", row.difference_ratio or 0, limit, row.device)


def _disagreeing(context: Context, rows: Sequence[NvmlRow]) -> Finding:
    keys = [row.device for row in rows]
    by_nvml = [row.nvml_busy_ratio or 0.0 for row in rows]
    by_trace = [row.trace_busy_ratio or 0.0 for row in rows]
    evidence: list[Evidence] = []
    for row, nvml_ratio, trace_ratio in zip(rows, by_nvml, by_trace, strict=True):
        evidence += [
            _difference(row),
            Evidence("nvml_busy_ratio", nvml_ratio, None, row.device),
            Evidence("trace_busy_ratio", trace_ratio, None, row.device),
        ]
    return NVML_DISAGREES.finding(
        arguments={
            "who": devices_argument(context, keys),
            "by_nvml": Part(sum(by_nvml) / len(rows)),
            "by_trace": Part(sum(by_trace) / len(rows)),
        },
        confidence=("medium", "periods"),
        evidence=evidence,
        devices=keys,
        notes=("lacking" if sum(by_nvml) > sum(by_trace) else "more",),
    )


# Section

BRIEF_GPUS: Final = 16
"""GPUs with a row in a brief document: those of two usual hosts."""
BRIEF_REASONS: Final = 4
"""Reasons for missing numbers in a brief document; mostly all GPUs have the same."""


_COLUMNS: Final = (
    DEVICE,
    Shown("NVML busy", "nvml_busy_ratio"),
    Shown("trace busy", "trace_busy_ratio", 1),
    Shown("throttled", "throttled_ratio"),
    Shown("SM clock", lambda row: _of_most(row.sm_clock_hz, row.sm_clock_max_hz, 1e6, "MHz"), 2),
    Shown("power", lambda row: _of_most(row.power_watts, row.power_limit_watts, 1, "W"), 4),
    Shown(
        "memory",
        lambda row: doc.ratio(row.memory_used_bytes, row.memory_total_bytes),
        5,
        "share",
        "in use, of all processes together",
    ),
    Shown("memory used", "memory_used_bytes", 6),
    Shown(
        "other processes",
        lambda row: None if row.other_processes is None else len(row.other_processes),
        3,
        "count",
    ),
)


def nvml_section(view: View, result: Nvml) -> doc.Section | None:
    """A row per GPU, and why numbers are missing; nothing where NVML was not sampled."""
    if not result.devices:
        return None
    reasons = [
        *_reasons("NVML not compared with the trace", result.devices, "not_compared"),
        *_reasons("Other processes unknown", result.devices, "others_unknown"),
        *(f"No samples of {host}: {reason}." for host, reason in result.absent.items()),
    ]
    samples = () if view.is_brief else (Shown("samples", "sample_count"),)
    rows = table(
        "GPUs by their driver",
        result.devices,
        (*_COLUMNS, *samples),
        most_rows=BRIEF_GPUS if view.is_brief else view.most_rows,
        rest="the JSON report",
    )
    remarks = doc.remarks(*reasons[: BRIEF_REASONS if view.is_brief else view.most_rows])
    counts = sorted({row.sample_count for row in result.devices})
    few = "" if len(counts) == 1 else f"{counts[0]} to "
    return doc.Section(
        "nvml",
        "GPU clocks, load and other processes",
        (*rows, *remarks),
        lead=f"Measured by NVML over the whole recording, {few}{numbers.plural(counts[-1], 'sample')} per GPU.",
    )


def _of_most(value: float | None, most: float | None, unit: float, name: str) -> str | None:
    """`1200 of 1980 MHz`: a value, and the highest that it can have."""
    if value is None:
        return None
    limit = f" of {most / unit:.0f}" if most is not None else ""
    return f"{value / unit:.0f}{limit} {name}"


def _reasons(label: str, rows: Sequence[NvmlRow], field: str) -> Iterator[str]:
    """Each reason once, with all devices that have it."""
    keys: dict[str, list[str]] = {}
    for row in rows:
        if reason := getattr(row, field):
            keys.setdefault(reason, []).append(row.device)
    for reason, same in keys.items():
        yield f"{label} on {numbers.joined_devices(same)}: {reason}."


ANALYSIS: Final = Analysis[Nvml](
    "outside_view",
    compute=lambda context: context.once(nvml_of),
    rules=(GPU_SHARED, GPU_THROTTLED, NVML_DISAGREES),
    diagnose=diagnose,
    sections=(nvml_section,),
)
