"""Load of the machine: how GPUs were shared or throttled while the trace was recorded, and how many cores other processes took."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import Final

from traceview.analysis.facts.python import shared
from traceview.analysis.facts.threads import CoreWaits, core_waits
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import CAPTURE_ALL, LIMIT, Rule
from traceview.analysis.rules.words import Names, Number, Quantity
from traceview.base.intervals import BoolArray
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
from traceview.base.text import lazy_pattern
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown, table
from traceview.ledger.columns import By
from traceview.ledger.states import State
from traceview.trace.model import Host, Trace, machine_of, missing_tasks
from traceview.trace.sidecar.environment import NvmlGpu

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
        power_limit_watts: The limit that is enforced.
        throttled_ratio: Share of the samples in which something held the clocks back; an idle GPU and clocks that
            somebody set do not count.
        throttle_reasons: What held them back, to the share of the samples in which it did.
        other_processes: Processes of other jobs; null if unknown.
    """

    sample_count: Count
    nvml_busy_ratio: Share | None
    memory_used_bytes: Count | None
    memory_total_bytes: Count | None
    sm_clock_hz: Count | None
    sm_clock_max_hz: Count | None
    power_watts: Ratio | None
    power_limit_watts: Ratio | None
    throttled_ratio: Share | None
    throttle_reasons: dict[Words, Share]
    other_processes: tuple[OtherProcess, ...] | None


class Nvml(Record, frozen=True):
    """What NVML measured of the GPUs.

    Attributes:
        devices: GPUs in the order of hosts and numbers.
        absent: Host to the reason why NVML was not sampled there.
    """

    devices: tuple[NvmlRow, ...]
    absent: dict[Hostname, Message]


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
    rows: list[NvmlRow] = []
    absent: dict[str, str] = {}
    for host in context.trace.hosts:
        view = host.captured.outside_view
        gpus = {gpu.ordinal: gpu for gpu in view.devices if gpu.ordinal is not None}
        if not gpus:
            absent[host.name] = view.reason or NOT_SAMPLED
        rows += (_row(context.trace, host, ordinal, gpus[ordinal]) for ordinal in sorted(gpus))
    if not rows:
        known = "; ".join(
            dict.fromkeys(reason for reason in absent.values() if reason != NOT_SAMPLED)
        )
        return Skipped("no samples", known) if known else Skipped(NOT_SAMPLED)
    return Nvml(tuple(rows), absent)


def _row(trace: Trace, host: Host, ordinal: int, gpu: NvmlGpu) -> NvmlRow:
    samples, key = gpu.samples, f"GPU:{ordinal}"
    held_back = [throttle_names(bits) for bits in samples.known(samples.throttle_reasons)]
    counts = Counter(name for names in held_back for name in names)
    return NvmlRow(
        *(host.name, f"{host.name}/{key}" if trace.has_others else key, ordinal),
        sample_count=len(samples.t_ns),
        nvml_busy_ratio=_mean(samples.known(samples.gpu_utilization_ratio, most=1)),
        memory_used_bytes=max(samples.known(samples.memory_used_bytes), default=None),
        memory_total_bytes=gpu.memory_total_bytes or None,
        sm_clock_hz=low_median(samples.known(samples.sm_clock_hz)),
        sm_clock_max_hz=gpu.sm_clock_max_hz or None,
        power_watts=_mean(samples.known(samples.power_watts)),
        power_limit_watts=max(gpu.power_limit_watts or 0.0, 0.0) or None,
        throttled_ratio=_mean([float(bool(names)) for names in held_back]),
        throttle_reasons={name: n / len(held_back) for name, n in counts.most_common()},
        other_processes=_others(gpu),
    )


def _others(gpu: NvmlGpu) -> tuple[OtherProcess, ...] | None:
    if gpu.other_processes is None:
        return None
    total = gpu.memory_total_bytes or 0
    others = []
    for process in gpu.other_processes:
        held, used = process.memory_bytes or None, process.utilization_ratio
        ratio = held / total if held and held <= total else None
        is_share = used is not None and 0 <= used <= 1
        others.append(OtherProcess(process.pid, held, ratio, used if is_share else None))
    return tuple(others)


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None


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
        "low confidence below {steady_count} samples"
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
    reasons={
        "many": "judged by {samples} of NVML",
        "few": "only {samples} of NVML",
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
        {"others": others, **({"memory": Quantity(held_bytes, "bytes")} if held_bytes else {})},
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
    is_steady = fewest >= GPU_THROTTLED.limits["steady_count"]
    clocks = [
        row.sm_clock_hz / row.sm_clock_max_hz
        for row in rows
        if row.sm_clock_hz is not None and row.sm_clock_max_hz
    ]
    return GPU_THROTTLED.about(
        context,
        rows,
        {
            "ratio": Quantity(_mean([row.throttled_ratio or 0.0 for row in rows]) or 0.0, "ratio"),
            "samples": Number(fewest, "sample"),
            **({"clock": Quantity(min(clocks), "ratio")} if clocks else {}),
        },
        confidence=("high", "many") if is_steady else ("low", "few"),
        evidence=[evidence for row in rows for evidence in _throttled_evidence(row)],
        title=kind,
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
    Shown(
        "other processes",
        lambda row: None if row.other_processes is None else len(row.other_processes),
        3,
        "count",
    ),
)


def nvml_section(view: View, result: Nvml) -> doc.Section:
    """A row per GPU, and why numbers are missing."""
    reasons = [f"No samples of {host}: {reason}." for host, reason in result.absent.items()]
    samples = () if view.is_brief else (Shown("samples", "sample_count"),)
    rows = table(
        "GPUs by their driver",
        result.devices,
        (*_COLUMNS, *samples),
        most_rows=view.most_rows,
        rest="the JSON report",
    )
    remarks = doc.remarks(*reasons[: view.few_rows])
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


ANALYSIS: Final = Analysis[Nvml](
    "outside_view",
    compute=compute,
    rules=(GPU_SHARED, GPU_THROTTLED),
    diagnose=diagnose,
    sections=(nvml_section,),
)


# Cores

_STARTED: Final = "started"
"""The script started the processes."""
_ABSENT: Final = "absent"
"""They may be other processes of the run, which were not recorded."""
_PEERS: Final = "peers"
"""They are other processes of the run, on the same machine."""
_MAIN_RATIO: Final = 0.5
"""Of the time of other processes: those that have more of it are named. A choice of ours."""

OTHER_PROCESSES: Final = Rule(
    code="other-processes",
    title="{who:loses/lose} {loss} to other processes, which take {share} of the {cores}",
    titles={
        _STARTED: "{who:loses/lose} {loss} to processes that the script starts, which take {share} of the {cores}",
        _ABSENT: "{who:loses/lose} {loss} to other processes, perhaps {tasks}, which the run lacks: they take {share} of the {cores}",
        _PEERS: "{who:loses/lose} {loss} to other processes of this run on the machine, which take {share} of the {cores}",
    },
    meaning=(
        "Threads of the step were ready to run and had no core while other processes ran, as the kernel counted: ops on the "
        "CPU, dispatch and launches took longer."
    ),
    starts_at=(
        "{limit} of the GPU time in which ops on CPU devices, dispatch or launches wait for cores that other processes have, "
        "by the clocks of the threads, which the capture reads on Linux"
    ),
    states=(State.NO_CORE,),
    action="Record again while nothing else runs, or give the training cores of its own: `taskset`, or a limit for the others.",
    actions={
        _STARTED: "Start fewer of them, let them do less, or give them cores of their own: `os.sched_setaffinity` in each.",
        _ABSENT: CAPTURE_ALL,
        _PEERS: (
            "Run fewer of them on a machine, or take one with more cores for each.",
            "With cores of its own for each, such as `taskset -c 0-7` for the first, two workers on two cores took 6% less.",
        ),
    },
    reasons={"": "the kernel counts how long threads wait for a core"},
    metrics={
        "other_ratio": "share of the cores",
        "started_ratio": "of processes that the script started",
    },
    example="Both replicas lose 14.1 of 40.2 ms (35%) to other processes, which take 80% of the 2 cores",
)

FEW_CORES: Final = Rule(
    code="few-cores",
    title="{who:loses/lose} {loss} because the process may use {usable} of {cores}",
    meaning=(
        "Threads of the step were ready to run and had no core while other cores of the machine were idle: ops on the CPU, dispatch "
        "and launches took longer. The affinity of the process, or the quota of its container, allows no more."
    ),
    starts_at=(
        "{limit} of the GPU time in which ops on CPU devices, dispatch or launches wait for cores, most of it for those that the process "
        "may not use, by the clocks of the threads, which the capture reads on Linux"
    ),
    states=(State.NO_CORE,),
    action="Give it more cores: the affinity that a launcher sets (`taskset`, Slurm's `--cpus-per-task`), or the container's CPU limit.",
    reasons={"": "the kernel counts how long threads wait for a core"},
    example="Both replicas lose 20.4 of 42.7 ms (48%) because the process may use 1 of 2 cores",
)


_ONE_CALL: Final = (
    "Or limit one call with `threadpoolctl.threadpool_limits(1)`. OpenCV has `cv2.setNumThreads(0)`. A step that calls SciPy took "
    "7.7 instead of 12.2 ms with one thread of BLAS (two cores)."
)

_WITH_THREADS: Final = lazy_pattern(
    r"(?:numpy/linalg|scipy|sklearn|cv2|numba|numexpr|torch|statsmodels)/.*", re.DOTALL
)
"""Files and functions of libraries whose native code has threads of its own."""

NATIVE_THREADS: Final = Rule(
    code="native-threads",
    title="{who:loses/lose} {loss} to native threads of the process, which take {busy} of the time of a core",
    titles={
        "called": "{who:loses/lose} {loss} to native threads, which take {busy} of the time of a core[, after calls in {line}]"
    },
    meaning=(
        "Threads of the step were ready to run and had no core, while native threads of the same process ran. They record nothing, and "
        "Python did not start them; mostly NumPy's BLAS, OpenMP or OpenCV did. They may keep a core while they wait."
    ),
    starts_at=(
        "{limit} of the GPU time in which ops on CPU devices, dispatch or launches wait for cores that such threads have, by the clocks of "
        "the threads, which the capture reads on Linux"
    ),
    states=(State.NO_CORE,),
    action=(
        "If BLAS or OpenMP started them, limit it to one thread: `OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1` before the "
        "command."
    ),
    advice=_ONE_CALL,
    actions={
        "called": (
            "Limit BLAS and OpenMP to one thread: `OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1` before the command.",
            _ONE_CALL,
        ),
        "tf_data": (
            "See what the `tf.data` pipeline does in a step: its threads are among these, and JAX records nothing of them.",
            "BLAS and OpenMP start such threads, too: `OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1` before the command.",
        ),
    },
    reasons={
        "": "the kernel counts how long threads wait for a core; which library started them was not recorded"
    },
    example="CPU:0 loses 2.10 of 10.6 ms (20%) to native threads of the process, which take 75% of the time of a core",
)


def _load_of(host: Host) -> tuple[float, float | None] | None:
    """The share of the cores that all other processes took, and of those that the job has started, where known; None without a load."""
    load = host.captured.load
    if not load.elapsed_ns or not load.cores or load.busy_ns is None:
        return None
    whole, own = load.elapsed_ns * load.cores, load.own_ns or 0
    # Ticks are coarse: a share may come out above what the process leaves.
    other_ratio = min(max(load.busy_ns - own, 0), max(whole - own, 0)) / whole
    if not load.children_elapsed_ns or load.children_ns is None:
        return other_ratio, None
    of_children = load.children_ns / (load.children_elapsed_ns * load.cores)
    return other_ratio, min(of_children, other_ratio)


def _taken_by_peers(trace: Trace, host: Host) -> float:
    """The share of the cores of a machine that the other processes of the run take that were recorded there."""
    peers = (each for each in trace.hosts if machine_of(each) == machine_of(host))
    loads = (each.captured.load for each in peers if each is not host)
    return sum(
        (of.own_ns or 0) / (of.elapsed_ns * of.cores) for of in loads if of.elapsed_ns and of.cores
    )


def without_core(context: Context) -> Iterator[Finding | None]:
    """What devices lose because threads have no core: to threads of libraries, and on some hosts by a limit of the process, on others
    to other processes.
    """
    waits = {host: core_waits(context, host) for host in range(len(context.trace.hosts))}
    limited = {host: of for host, of in waits.items() if of is not None and of.is_limited}
    devices = [d for d in context.ledger.devices if context.trace.device_list[d].host in limited]
    rows = context.ledger.rows(states=FEW_CORES.states)
    to_natives = rows & (context.ledger.columns.by_kind == By.THREAD)
    if to_natives.any():
        yield _native_threads(context, to_natives, waits)
        rows &= ~to_natives
    by_limit = rows & context.ledger.rows(devices=devices)
    if limited:
        fewest = min(limited.values(), key=lambda of: of.cores)
        yield FEW_CORES.of_rows(
            context,
            by_limit,
            arguments={
                "usable": Number(fewest.cores),
                "cores": Number(fewest.machine_cores, "core"),
            },
            keeps_waiting=True,
        )
    yield _other_processes(context, rows & ~by_limit)


def _native_threads(
    context: Context, rows: BoolArray, waits: Mapping[int, CoreWaits | None]
) -> Finding | None:
    """What devices lose because threads of libraries have the cores, and how much of one these take on the host that has most."""
    windows = context.selection.windows
    took = [
        of.cores_of(of.natives, windows[host])
        for host, of in waits.items()
        if of is not None and host in windows
    ]
    line = None
    for host, of in context.idle.python.items():
        calling = of.lines.line_calling(_WITH_THREADS) if host in windows else None
        # What is called for less time explains no threads that cost so much.
        if calling and calling.sampled_ps >= LIMIT * windows[host].length_ps:
            line = max(filter(None, (line, calling)), key=lambda each: each.sampled_ps)
    return NATIVE_THREADS.of_rows(
        context,
        rows,
        arguments={
            "busy": Quantity(max(took, default=0.0), "ratio"),
            **({"line": shared(line).argument} if line else {}),
        },
        title="called" if line else "",
        action="called" if line else "tf_data" if _is_jax_with_tensorflow(context.trace) else "",
        confidence=("medium", ""),
        keeps_waiting=True,
        takes_cores=True,
    )


def _is_jax_with_tensorflow(trace: Trace) -> bool:
    """Whether a process that JAX recorded has loaded TensorFlow, as for `tf.data`."""
    versions = (host.captured.environment.versions for host in trace.hosts)
    return any(each.jax and each.tensorflow for each in versions)


def _other_processes(context: Context, rows: BoolArray) -> Finding | None:
    """What devices lose because other processes have the cores, with the loads of their hosts, that with most of it first."""
    trace = context.trace
    lost = context.ledger.by_device(rows).items()
    hosts = {trace.device_list[device].host for device, lost_ps in lost if lost_ps}
    loads = [(load, trace.hosts[host]) for host in hosts if (load := _load_of(trace.hosts[host]))]
    if not loads:
        return None
    loads.sort(key=lambda of: (-of[0][0], of[1].name))
    (other_ratio, started_ratio), host = loads[0]
    key = _STARTED if (started_ratio or 0.0) > _MAIN_RATIO * other_ratio else ""
    key = _PEERS if _taken_by_peers(trace, host) > _MAIN_RATIO * other_ratio else key
    tasks = () if key else missing_tasks(trace.hosts)
    key = _ABSENT if tasks else key
    absent = {"tasks": Names(tuple(map(str, tasks)), "task")} if tasks else {}
    return OTHER_PROCESSES.of_rows(
        context,
        rows,
        arguments={
            "share": Quantity(other_ratio, "ratio"),
            "cores": Number(host.captured.load.cores or 0, "core"),
            **absent,
        },
        evidence=[
            Evidence(metric, share, None, host.name)
            for load, host in loads
            for metric, share in zip(OTHER_PROCESSES.metrics, load, strict=True)
            if share is not None
        ],
        title=key,
        action=key,
        keeps_waiting=True,
    )
