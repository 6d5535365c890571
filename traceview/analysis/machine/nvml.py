"""NVML: what the driver, or the profiler, sampled of the GPUs while the trace was recorded: shared, or throttled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import Final, TypeVar

from traceview.analysis.facts.devices import hardware_of
from traceview.analysis.facts.run import batch_size
from traceview.analysis.machine.samples import samples_of_steps
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Confidence, Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Number, Part, Size
from traceview.base.record import (
    Count,
    Hostname,
    Integer,
    Message,
    Ratio,
    Record,
    Share,
    Words,
)
from traceview.base.stats import low_median
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown, table
from traceview.trace.device.counters import counters_of_nvml
from traceview.trace.sidecar.sidecar import NvmlGpu, NvmlSamples

_Number = TypeVar("_Number", int, float)

MOST_DEVICES: Final = 64
"""Of one host; traceview capture writes no more."""

SHARED_RATIO: Final = 0.05
"""Of a GPU's memory or of its time: a process that uses so much of it shares it."""

THROTTLED_RATIO: Final = 0.10
"""Of the samples: a GPU whose clocks are held back in so many is throttled."""

NOT_SAMPLED: Final = "not recorded: only traceview capture samples NVML"


class OtherProcess(Record, frozen=True):
    """A process of another job on a GPU of this job.

    Attributes:
        pid: Its process id.
        memory_bytes: The most memory that it held.
        memory_ratio: The same over the memory of the GPU.
        utilization_ratio: Mean share of the time in which its kernels ran.
    """

    pid: Integer | None
    memory_bytes: Count | None
    memory_ratio: Share | None
    utilization_ratio: Share | None


class NvmlRow(OfDevice, frozen=True):
    """One GPU, in the whole recording.

    Attributes:
        sample_count: Number of samples.
        nvml_busy_ratio: Mean of NVML's utilisation, the share of time with a kernel of any process.
        memory_used_bytes: The most memory in use, of all processes together.
        memory_total_bytes: Memory of the GPU.
        sm_clock_hz: Median clock of the multiprocessors.
        sm_clock_max_hz: The highest clock that they can have.
        power_watts: Mean power.
        temperature_celsius: Highest temperature that the trace holds.
        power_limit_watts: The limit that is enforced.
        throttled_ratio: Share of the samples in which something held the clocks back; an idle GPU and clocks that
            somebody set do not count. Where the trace has clocks and nothing says why they are low: share of the samples in compute
            with less than the highest clock.
        throttle_reasons: What held them back, to the share of the samples in which it did.
        sampled_step_count: Used steps with a sample; null where times of samples and steps cannot be compared.
        throttled_step_count: Those of them with a sample in which something held the clocks back; null likewise.
        joules_per_step: Energy of a used step: mean power in them times their mean length. Null of steps that last less than a
            second together, for power is the mean of up to a second, and of fewer than five samples in steps.
        sm_active_ratio: While it computes, how much of the time multiprocessors were active, mean of the samples in the trace.
        dram_ratio: While it computes, what it reads and writes of its memory over the peak of that, mean likewise.
        nvlink_ratio: In used steps, what it sends or receives by NVLink, whichever is more, over the peak, mean likewise.
        other_processes: Processes of other jobs; null if unknown.
        others_unknown: Why they are unknown; null if they are known.
    """

    sample_count: Count
    nvml_busy_ratio: Share | None
    memory_used_bytes: Count | None
    memory_total_bytes: Count | None
    sm_clock_hz: Count | None
    sm_clock_max_hz: Count | None
    power_watts: Ratio | None
    temperature_celsius: Ratio | None
    power_limit_watts: Ratio | None
    throttled_ratio: Share | None
    throttle_reasons: dict[Words, Share]
    sampled_step_count: Count | None
    throttled_step_count: Count | None
    joules_per_step: Ratio | None
    sm_active_ratio: Share | None
    dram_ratio: Share | None
    nvlink_ratio: Share | None
    other_processes: tuple[OtherProcess, ...] | None
    others_unknown: Message | None


class Nvml(Record, frozen=True):
    """What NVML measured of the GPUs, and what counters in the trace say of them.

    Attributes:
        devices: GPUs in the order of hosts and numbers.
        absent: Host to the reason why NVML was not sampled there.
        joules_per_example: Energy of all GPUs in a step over the examples of the global batch; null where a GPU has none, or the
            batch is not known.
    """

    devices: tuple[NvmlRow, ...]
    absent: dict[Hostname, Message]
    joules_per_example: Ratio | None = None


def sharers(row: NvmlRow) -> list[OtherProcess]:
    """The processes of other jobs that share a GPU."""
    return [
        process
        for process in row.other_processes or ()
        if (process.memory_ratio or 0) >= SHARED_RATIO
        or (process.utilization_ratio or 0) >= SHARED_RATIO
    ]


def compute(context: Context) -> Nvml | Skipped:
    """What was sampled of each GPU."""
    trace = context.trace
    rows: list[NvmlRow] = []
    absent: dict[str, str] = {}
    for number, host in enumerate(trace.hosts):
        view = host.sidecar.outside_view if host.sidecar is not None else None
        gpus = _by_number(view.devices if view else ())
        devices = {
            trace.device_list[place].ordinal: place
            for place in trace.devices_of_host[number]
            if trace.device_list[place].kind == "gpu"
        }
        with_counters = {
            ordinal for ordinal, place in devices.items() if trace.device_list[place].counters
        }
        if not gpus and not with_counters:
            absent[host.name] = (view.reason if view else None) or NOT_SAMPLED
        rows.extend(
            _row(context, number, ordinal, devices.get(ordinal), gpus.get(ordinal))
            for ordinal in sorted(gpus.keys() | with_counters)
        )
    if not rows:
        known = "; ".join(
            dict.fromkeys(reason for reason in absent.values() if reason != NOT_SAMPLED)
        )
        return Skipped("no samples", known) if known else Skipped(NOT_SAMPLED)
    return Nvml(tuple(rows), absent, _joules_per_example(context, rows, absent))


def _joules_per_example(
    context: Context, rows: Sequence[NvmlRow], absent: Mapping[str, str]
) -> float | None:
    """The energy of a step on all GPUs over its examples."""
    size = batch_size(context.trace)
    joules = [row.joules_per_step for row in rows if row.joules_per_step is not None]
    return fsum(joules) / size if size and not absent and len(joules) == len(rows) else None


def _by_number(gpus: Sequence[NvmlGpu]) -> dict[int, NvmlGpu]:
    """The GPUs with a number of their own."""
    by_number: dict[int, NvmlGpu] = {}
    for gpu in gpus[:MOST_DEVICES]:
        if gpu.ordinal is not None and gpu.ordinal >= 0:
            by_number.setdefault(gpu.ordinal, gpu)
    return by_number


def _row(
    context: Context, number: int, ordinal: int, device: int | None, gpu: NvmlGpu | None
) -> NvmlRow:
    trace, host, known = context.trace, context.trace.hosts[number], gpu or _NOT_SAMPLED_GPU
    recorded = {} if device is None else trace.device_list[device].counters
    samples = known.samples
    counters = {**recorded, **counters_of_nvml(samples, host.profile_start_ns)}
    clock_max_hz = _positive(known.sm_clock_max_hz)
    # The clocks of CUDA and of NVML may differ for the same GPU.
    if gpu is None and device is not None:
        clock_max_hz = hardware_of(trace, device).clock_max_hz
    full_hz = GPU_THROTTLED.limits["full_clock_ratio"] * clock_max_hz if clock_max_hz else None
    of_steps = samples_of_steps(context, number, device, counters, throttle_names, full_hz)
    key = f"GPU:{ordinal}"
    reasons = samples.numbers(samples.throttle_reasons)
    held_back = [throttle_names(bits) for bits in reasons]
    counts = Counter(name for names in held_back for name in names)
    throttled, lowered = _mean([float(bool(names)) for names in held_back]), of_steps.lowered_ratio
    power, heat = recorded.get("power_watts"), recorded.get("temperature_celsius")
    is_unknown = gpu is not None and gpu.other_processes is None
    return NvmlRow(
        *(host.name, f"{host.name}/{key}" if len(trace.hosts) > 1 else key, ordinal),
        sample_count=len(samples.t_ns)
        or max((each.value.size for each in counters.values()), default=0),
        nvml_busy_ratio=_mean(
            [value for _, value in samples.shares(samples.gpu_utilization_ratio)]
        ),
        memory_used_bytes=max(samples.numbers(samples.memory_used_bytes), default=None),
        memory_total_bytes=_positive(known.memory_total_bytes),
        sm_clock_hz=low_median(samples.numbers(samples.sm_clock_hz)) or of_steps.clock_hz,
        sm_clock_max_hz=clock_max_hz,
        power_watts=_mean(
            samples.numbers(samples.power_watts) or (power.value.tolist() if power else ())
        ),
        temperature_celsius=float(heat.value.max()) if heat is not None else None,
        power_limit_watts=_positive(known.power_limit_watts),
        throttled_ratio=lowered if throttled is None else throttled,
        throttle_reasons=(
            {name: n / len(reasons) for name, n in counts.most_common()}
            if reasons or not lowered
            else {LOWERED: lowered}
        ),
        **of_steps.fields,
        other_processes=_others(known),
        others_unknown=known.missing.get("other_processes", "not recorded") if is_unknown else None,
    )


LOWERED: Final = "lower clock, for a reason that the trace does not hold"

_NOT_SAMPLED_GPU: Final = NvmlGpu(
    None, None, NvmlSamples((), (), (), (), (), ()), None, None, None, None, {}
)


def _others(gpu: NvmlGpu) -> tuple[OtherProcess, ...] | None:
    if gpu.other_processes is None:
        return None
    total = _positive(gpu.memory_total_bytes)
    others = []
    for process in gpu.other_processes:
        held, used = _positive(process.memory_bytes), process.utilization_ratio
        ratio = held / total if held and total and held <= total else None
        is_share = used is not None and 0 <= used <= 1
        others.append(OtherProcess(process.pid, held, ratio, used if is_share else None))
    return tuple(others)


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None


def _positive(value: _Number | None) -> _Number | None:
    return value if value is not None and value > 0 else None


# Why the driver lowered the clocks, which NVML gives as bits

IDLE_BIT: Final = 0x1
SETTING_BITS: Final = 0x2 | 0x100
"""Clocks that somebody set, for applications or for the display."""

REASONS: Final = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost with a slower GPU",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake from outside",
    0x200: "board limit",
    0x400: "reliability limit",
}
"""Clocks event reasons that hold a GPU back; nvml.h, nvmlClocksEventReason…."""

_NAMED_BITS: Final = sum(REASONS)
_EXPLAINED: Final = 0x8
"""NVML sets the bit of a hardware slowdown together with that of its reason, heat or power."""
_EXPLAINING: Final = 0x40 | 0x80


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of the reasons in `bits` that hold a GPU back; none if it is idle or runs at the clocks that were set."""
    if bits & _EXPLAINING:
        bits &= ~_EXPLAINED
    names = [name for bit, name in REASONS.items() if bits & bit]
    unknown = bits & ~(IDLE_BIT | SETTING_BITS | _NAMED_BITS)
    return (*names, *([f"reason {unknown:#x}"] if unknown else []))


# Rules

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
    limits={"throttled_ratio": THROTTLED_RATIO, "full_clock_ratio": 0.97, "steady_count": 10},
    starts_at=(
        "clocks held back in at least {throttled_ratio} of the samples, to less than {full_clock_ratio} of the highest clock (median); "
        "low confidence below {steady_count} samples, medium where only the trace has clocks, of samples in compute"
    ),
    title="{who:is/are} throttled {ratio} of the time",
    titles={
        "heat": "{who:is/are} throttled {ratio} of the time (heat)",
        "power": "{who:is/are} throttled {ratio} of the time (power)",
        "clock": "{who:computes/compute} {ratio} of the time below the highest clock",
    },
    meaning=(
        "The driver lowered the clocks, so that all kernels took longer, and with a strategy every replica waits for the "
        "slowest GPU. Idle GPUs and clocks that somebody set do not count."
    ),
    notes={"clock": "The clocks of the slowest were {clock} of what they can be (median)."},
    action="Look for what lowers the clocks: `nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE`.",
    advice="Compare GPUs only while none is throttled.",
    actions={"heat": _HEAT, "power": _POWER},
    reasons={
        "many": "judged by {samples} of NVML",
        "few": "only {samples} of NVML",
        "clock": "the trace holds clocks, and not why they are lower: somebody may have set them",
    },
    metrics={
        "throttled_ratio": "share of the samples in which the clocks were held back",
        "throttle_reasons": "what held them back",
    },
    example="GPU:2 is throttled 43% of the time (heat)",
)


def diagnose(context: Context, result: Nvml) -> Iterator[Finding | None]:
    """GPUs that are shared or throttled."""
    yield _shared(context, [row for row in result.devices if sharers(row)])
    throttled = [row for row in result.devices if (row.throttled_ratio or 0) >= THROTTLED_RATIO]
    yield _throttled(context, [row for row in throttled if not _has_full_clock(row)])


def _shared(context: Context, rows: Sequence[NvmlRow]) -> Finding | None:
    processes = [(row, process) for row in rows for process in sharers(row)]
    held_bytes = sum(process.memory_bytes or 0 for _, process in processes)
    computes = any((process.utilization_ratio or 0) >= SHARED_RATIO for _, process in processes)
    others = Number(len({(row.host, of.pid) for row, of in processes}), "other process")
    return GPU_SHARED.about(
        context,
        rows,
        {"others": others, **({"memory": Size(held_bytes)} if held_bytes else {})},
        confidence=("high", "computes") if computes else ("medium", "holds"),
        evidence=[evidence for row in rows for evidence in _shared_evidence(row)],
        notes=("computes" if computes else "holds",),
    )


def _shared_evidence(row: NvmlRow) -> Iterator[Evidence]:
    for process in sharers(row):
        which = "" if process.pid is None else f"process {process.pid}"
        for metric in ("memory_ratio", "utilization_ratio"):
            value: float = getattr(process, metric) or 0.0
            if value >= SHARED_RATIO:
                yield Evidence(metric, value, SHARED_RATIO, row.device, which)


def _has_full_clock(row: NvmlRow) -> bool:
    """Whether the clock is next to the highest one, whatever the driver says that holds it back."""
    if row.sm_clock_hz is None or not row.sm_clock_max_hz:
        return False
    return row.sm_clock_hz >= GPU_THROTTLED.limits["full_clock_ratio"] * row.sm_clock_max_hz


def _throttled(context: Context, rows: Sequence[NvmlRow]) -> Finding | None:
    if not rows:
        return None
    fewest, kind = min(row.sample_count for row in rows), _kind_of_throttling(rows)
    is_of_clocks = all(LOWERED in row.throttle_reasons for row in rows)
    sure: tuple[Confidence, str] = ("medium", "clock") if is_of_clocks else ("high", "many")
    clocks = [
        row.sm_clock_hz / row.sm_clock_max_hz
        for row in rows
        if row.sm_clock_hz is not None and row.sm_clock_max_hz
    ]
    return GPU_THROTTLED.about(
        context,
        rows,
        {
            "ratio": Part(_mean([row.throttled_ratio or 0.0 for row in rows]) or 0.0),
            "samples": Number(fewest, "sample"),
            **({"clock": Part(min(clocks))} if clocks else {}),
        },
        confidence=("low", "few") if fewest < GPU_THROTTLED.limits["steady_count"] else sure,
        evidence=[evidence for row in rows for evidence in _throttled_evidence(row)],
        title="clock" if is_of_clocks else kind,
        action=kind,
        notes=("clock",) if clocks else (),
    )


def _kind_of_throttling(rows: Sequence[NvmlRow]) -> str:
    """What holds the clocks back in at least half of the samples in which something does; "" where it is neither."""
    of_heat, of_power, whole = 0.0, 0.0, sum(row.throttled_ratio or 0.0 for row in rows)
    for row in rows:
        for reason, ratio in row.throttle_reasons.items():
            of_heat += ratio * ("thermal" in reason)
            of_power += ratio * ("power" in reason)
    if max(of_heat, of_power) < whole / 2:
        return ""
    return "heat" if of_heat >= of_power else "power"


def _throttled_evidence(row: NvmlRow) -> tuple[Evidence, Evidence]:
    reasons = ", ".join(
        f"{name} {numbers.share(ratio)}" for name, ratio in row.throttle_reasons.items()
    )
    return (
        Evidence("throttled_ratio", row.throttled_ratio or 0, THROTTLED_RATIO, row.device),
        Evidence("throttle_reasons", reasons, None, row.device, value_is="words"),
    )


# Section

_COLUMNS: Final = (
    DEVICE,
    Shown("NVML busy", "nvml_busy_ratio"),
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
    Shown("energy per step", lambda row: _joules(row.joules_per_step), 3),
    Shown("throttled steps", lambda row: _throttled_steps(row), 3),
    Shown("SMs active", "sm_active_ratio", 3, meaning="while it computes"),
    Shown("memory busy", "dram_ratio", 3, meaning="of its peak, while it computes"),
    Shown("NVLink busy", "nvlink_ratio", 4, meaning="of its peak, in steps"),
    Shown("hottest", lambda row: _of_most(row.temperature_celsius, None, 1, "°C"), 5),
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
        *_unknown(result.devices),
        *(f"No samples of {host}: {reason}." for host, reason in result.absent.items()),
    ]
    samples = () if view.is_brief else (Shown("samples", "sample_count"),)
    rows = table(
        "GPUs by their driver",
        result.devices,
        (*_COLUMNS, *samples),
        most_rows=view.most_rows,
        rest="the JSON report",
    )
    if result.joules_per_example is not None:
        reasons.insert(0, f"Energy of all GPUs: {_joules(result.joules_per_example)} per example.")
    remarks = doc.remarks(*reasons[: view.few_rows])
    counts = sorted({row.sample_count for row in result.devices})
    few = "" if len(counts) == 1 else f"{counts[0]} to "
    by_nvml = any(row.nvml_busy_ratio is not None for row in result.devices)
    source = "NVML" if by_nvml else "the profiler"
    return doc.Section(
        "nvml",
        "GPU clocks, load and other processes",
        (*rows, *remarks),
        lead=f"Measured by {source} over the whole recording, {few}{numbers.plural(counts[-1], 'sample')} per GPU.",
    )


def _joules(value: float | None) -> str | None:
    return None if value is None else f"{numbers.number(value)} J"


def _throttled_steps(row: NvmlRow) -> str | None:
    """`2 of 31` steps with a sample; nothing where none was throttled."""
    if not row.throttled_step_count:
        return None
    return f"{numbers.count(row.throttled_step_count)} of {numbers.count(row.sampled_step_count)}"


def _of_most(value: float | None, most: float | None, unit: float, name: str) -> str | None:
    """`1200 of 1980 MHz`: a value, and the highest that it can have."""
    if value is None:
        return None
    limit = f" of {most / unit:.0f}" if most is not None else ""
    return f"{value / unit:.0f}{limit} {name}"


def _unknown(rows: Sequence[NvmlRow]) -> Iterator[str]:
    """Each reason why other processes are unknown once, with all devices that have it."""
    keys: dict[str, list[str]] = {}
    for row in rows:
        if row.others_unknown:
            keys.setdefault(row.others_unknown, []).append(row.device)
    for reason, same in keys.items():
        yield f"Other processes unknown on {numbers.joined_devices(same)}: {reason}."


ANALYSIS: Final = Analysis[Nvml](
    "outside_view",
    compute=compute,
    rules=(GPU_SHARED, GPU_THROTTLED),
    diagnose=diagnose,
    sections=(nvml_section,),
)
