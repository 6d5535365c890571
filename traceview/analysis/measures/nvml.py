"""Compares what NVML measured of each GPU with the trace, and adds what a trace does not hold.

`traceview capture` samples NVML while the profile runs: how busy each GPU was, its clocks and what held them
back, its power, and other processes on it. All of it is about the whole recording, not a part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.activity import DeviceActivity
from traceview.analysis.rules.finding import Skipped
from traceview.base.ids import unique_ids
from traceview.base.intervals import IntervalSet
from traceview.base.record import (
    Count,
    DeviceKey,
    Hostname,
    Integer,
    Message,
    Ratio,
    Record,
    Share,
    Words,
)
from traceview.base.stats import low_median
from traceview.trace.model import Host, Trace
from traceview.trace.sidecar.nvml import NvmlGpu
from traceview.xplane.planes import ActivityClass

if TYPE_CHECKING:
    from traceview.analysis.measures.context import Context

PERIODS_NS: Final = (1_000_000_000 // 6, 1_000_000_000)
"""NVML's utilisation is of the last period, between these two by product (nvml.h, nvmlUtilization_t)."""

LONGEST_NS: Final = 10**15
"""Eleven days: the times of a longer recording are wrong."""

FEWEST_COMPARED: Final = 5
"""Samples whose period lies in the recording; the mean of fewer says little."""

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


class NvmlRow(Record, frozen=True):
    """One GPU, in the whole recording.

    Attributes:
        host: Name of the host.
        device: Key of the device, as in device_time: GPU:3, or host/GPU:3 in a run of several hosts.
        ordinal: CUDA's number of the GPU in the process.
        sample_count: Number of samples.
        nvml_busy_ratio: Mean of NVML's utilisation, the share of time with a kernel of any process.
        trace_busy_ratio: The same mean by the trace, over the periods before the samples, of all activity.
        trace_kernel_ratio: The same of kernels and collectives alone, since NVML counts no copies.
        difference_ratio: How far nvml_busy_ratio is from the nearer of the two; null where they are not
            compared.
        not_compared: Why they are not compared; null if they are.
        memory_utilization_ratio: Mean share of time in which the GPU's memory was read or written.
        memory_used_bytes: The most memory in use, of all processes together.
        memory_total_bytes: Memory of the GPU.
        sm_clock_hz: Median clock of the multiprocessors.
        sm_clock_max_hz: The highest clock that they can have.
        memory_clock_hz: Median clock of the memory.
        power_watts: Mean power.
        power_limit_watts: The limit that is enforced.
        pcie_rx_bytes_per_second: Mean of what the GPU received over PCIe.
        pcie_tx_bytes_per_second: Mean of what it sent.
        throttled_ratio: Share of the samples in which something held the clocks back; an idle GPU and clocks that
            somebody set do not count.
        throttle_reasons: What held them back, to the share of the samples in which it did.
        other_processes: Processes of other jobs; null if unknown.
        others_unknown: Why they are unknown; null if they are known.
    """

    host: Hostname
    device: DeviceKey
    ordinal: Count
    sample_count: Count
    nvml_busy_ratio: Share | None
    trace_busy_ratio: Share | None
    trace_kernel_ratio: Share | None
    difference_ratio: Share | None
    not_compared: Words | None
    memory_utilization_ratio: Share | None
    memory_used_bytes: Count | None
    memory_total_bytes: Count | None
    sm_clock_hz: Count | None
    sm_clock_max_hz: Count | None
    memory_clock_hz: Count | None
    power_watts: Ratio | None
    power_limit_watts: Ratio | None
    pcie_rx_bytes_per_second: Count | None
    pcie_tx_bytes_per_second: Count | None
    throttled_ratio: Share | None
    throttle_reasons: dict[Words, Share]
    other_processes: tuple[OtherProcess, ...] | None
    others_unknown: Words | None


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


def nvml_of(context: Context) -> Nvml | Skipped:
    """What NVML measured, compared with the trace; `Context.once` keeps it."""
    return compute(context.trace, context.activities)


def compute(trace: Trace, activities: Sequence[DeviceActivity]) -> Nvml | Skipped:
    """Compare the samples of each GPU with the trace; `activities` by device index."""
    rows: list[NvmlRow] = []
    absent: dict[str, str] = {}
    traced = {trace.device_list[device].host for device in unique_ids(trace.device_columns.device)}
    for index, host in enumerate(trace.hosts):
        view = host.sidecar.outside_view if host.sidecar is not None else None
        if view is None or not view.devices:
            absent[host.name] = (view.reason if view else None) or NOT_SAMPLED
            continue
        planes = {
            device.ordinal: activities[place]
            for place, device in enumerate(trace.device_list)
            if (device.host, device.kind) == (index, "gpu") and index in traced
        }
        for gpu in _numbered(view.devices):
            key = f"GPU:{gpu.ordinal}"
            name = f"{host.name}/{key}" if len(trace.hosts) > 1 else key
            rows.append(_row(host, name, gpu, planes.get(gpu.ordinal or 0)))
    if not rows:
        return Skipped("; ".join(dict.fromkeys(absent.values())) or "no host")
    return Nvml(tuple(rows), absent)


def _numbered(gpus: Sequence[NvmlGpu]) -> list[NvmlGpu]:
    """The GPUs with a number of their own, in its order."""
    by_number: dict[int, NvmlGpu] = {}
    for gpu in gpus[:MOST_DEVICES]:
        if gpu.ordinal is not None and gpu.ordinal >= 0:
            by_number.setdefault(gpu.ordinal, gpu)
    return [by_number[number] for number in sorted(by_number)]


def _row(host: Host, name: str, gpu: NvmlGpu, activity: DeviceActivity | None) -> NvmlRow:
    samples = gpu.samples
    reasons = samples.integers(samples.throttle_reasons)
    held_back = [throttle_names(bits) for bits in reasons]
    counts = Counter(name for names in held_back for name in names)
    busy = _compared(host, gpu, activity)
    return NvmlRow(
        host=host.name,
        device=name,
        ordinal=gpu.ordinal or 0,
        sample_count=len(samples.t_ns),
        nvml_busy_ratio=busy.nvml,
        trace_busy_ratio=busy.trace,
        trace_kernel_ratio=busy.kernels,
        difference_ratio=busy.difference,
        not_compared=busy.reason,
        memory_utilization_ratio=_mean(
            [value for _, value in samples.shares(samples.memory_utilization_ratio)]
        ),
        memory_used_bytes=max(samples.integers(samples.memory_used_bytes), default=None),
        memory_total_bytes=_positive(gpu.memory_total_bytes),
        sm_clock_hz=low_median(samples.integers(samples.sm_clock_hz)),
        sm_clock_max_hz=_positive(gpu.sm_clock_max_hz),
        memory_clock_hz=low_median(samples.integers(samples.memory_clock_hz)),
        power_watts=_mean(samples.numbers(samples.power_watts)),
        power_limit_watts=gpu.power_limit_watts if (gpu.power_limit_watts or 0) > 0 else None,
        pcie_rx_bytes_per_second=_whole_mean(samples.integers(samples.pcie_rx_bytes_per_second)),
        pcie_tx_bytes_per_second=_whole_mean(samples.integers(samples.pcie_tx_bytes_per_second)),
        throttled_ratio=_mean([float(bool(names)) for names in held_back]),
        throttle_reasons={name: n / len(reasons) for name, n in counts.most_common()},
        other_processes=_others(gpu),
        others_unknown=(
            gpu.missing.get("other_processes", "not recorded")
            if gpu.other_processes is None
            else None
        ),
    )


class _Busy(Struct, frozen=True):
    """How busy by NVML and by the trace, and how far apart; or the reason why they are not compared."""

    nvml: float | None = None
    trace: float | None = None
    kernels: float | None = None
    difference: float | None = None
    reason: str | None = None


def _compared(host: Host, gpu: NvmlGpu, activity: DeviceActivity | None) -> _Busy:
    """How busy the GPU was in the period before each sample, by NVML and by the trace."""
    samples = gpu.samples
    known = samples.shares(samples.gpu_utilization_ratio)
    if not known:
        missing = gpu.missing.get("gpu_utilization_ratio") or gpu.missing.get("samples")
        return _Busy(reason=missing or "NVML gave no utilisation")
    start_ns, stop_ns = host.profile_start_ns, host.profile_stop_ns
    if start_ns is None or stop_ns is None or stop_ns - start_ns > LONGEST_NS:
        return _Busy(
            fsum(value for _, value in known) / len(known),
            reason="the trace does not say when it was recorded",
        )
    inside = [(t, value) for t, value in known if start_ns + PERIODS_NS[-1] <= t <= stop_ns]
    if len(inside) < FEWEST_COMPARED:
        seconds = (stop_ns - start_ns) / 1e9
        return _Busy(
            reason=f"the window of {seconds:.2g} s is too short: NVML's values are of up to 1 s each"
        )
    nvml = fsum(value for _, value in inside) / len(inside)
    if activity is None:
        return _Busy(nvml, reason="the trace holds no GPU event of this host")
    at_ps = np.array([t - start_ns for t, _ in inside], dtype=np.int64) * 1000 + host.start_ps
    any_activity = activity.up_to(max(ActivityClass))
    any_kernel = activity.up_to(ActivityClass.COLLECTIVE)
    activities = [_share_before(any_activity, at_ps, period) for period in PERIODS_NS]
    kernels = [_share_before(any_kernel, at_ps, period) for period in PERIODS_NS]
    # The period of this product is not known: the nearer value gives the benefit of the doubt.
    nearest = min(range(len(PERIODS_NS)), key=lambda i: _outside(nvml, kernels[i], activities[i]))
    difference = _outside(nvml, kernels[nearest], activities[nearest])
    return _Busy(nvml, activities[nearest], kernels[nearest], difference)


def _share_before(
    busy: IntervalSet, at_ps: np.ndarray[tuple[int], np.dtype[np.int64]], period_ns: int
) -> float:
    """Mean share of the period before each instant that is covered."""
    period_ps = period_ns * 1000
    return float(busy.within(at_ps - period_ps, at_ps).mean() / period_ps)


def _outside(value: float, low: float, high: float) -> float:
    """How far a value is outside a range."""
    return max(low - value, value - high, 0.0)


def _others(gpu: NvmlGpu) -> tuple[OtherProcess, ...] | None:
    if gpu.other_processes is None:
        return None
    total = _positive(gpu.memory_total_bytes)
    others = []
    for process in gpu.other_processes:
        held = _positive(process.memory_bytes)
        used = process.utilization_ratio
        others.append(
            OtherProcess(
                process.pid,
                held,
                held / total if held is not None and total is not None and held <= total else None,
                used if used is not None and 0 <= used <= 1 else None,
            )
        )
    return tuple(others)


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None


def _whole_mean(values: Sequence[int]) -> int | None:
    return sum(values) // len(values) if values else None


def _positive(value: int | None) -> int | None:
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
