"""What does the view from outside say is wrong: a GPU shared, held back, or busy with what no trace holds?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.base import Evidence, Finding, Skipped
from traceview.analysis.nvml.result import OtherProcess, OutsideView, OutsideViewRow
from traceview.document import numbers

SHARED_RATIO: Final = 0.05
"""Share of a GPU's memory, or of its time, from which another process on it counts (METRICS: gpu-shared)."""

THROTTLED_RATIO: Final = 0.10
"""Share of samples with a reason for lower clocks from which a GPU is throttled (METRICS: gpu-throttled)."""

DISAGREEMENT_RATIO: Final = 0.2
"""How far NVML and the trace may differ in how busy a GPU was (METRICS: nvml-disagrees)."""

STEADY_SAMPLES: Final = 10
"""From so many samples on a share of them is steady."""


def diagnose(result: OutsideView | Skipped) -> list[Finding]:
    """GPUs that others use too, that were held back, or of which NVML says something else than the trace."""
    if isinstance(result, Skipped):
        return []
    shared = [row for row in result.devices if _sharers(row)]
    throttled = [row for row in result.devices if (row.throttled_ratio or 0) >= THROTTLED_RATIO]
    # What a neighbour runs is in NVML's number and not in the trace: that is no second finding.
    apart = [row for row in result.devices if _differs(row) and not _is_neighbours(row, shared)]
    return [
        *([_shared(shared)] if shared else []),
        *([_throttled(throttled)] if throttled else []),
        *([_disagreeing(apart)] if apart else []),
    ]


def _sharers(row: OutsideViewRow) -> list[OtherProcess]:
    return [
        one
        for one in row.other_processes or ()
        if (one.memory_ratio or 0) >= SHARED_RATIO or _is_used(one)
    ]


def _is_used(process: OtherProcess) -> bool:
    return (process.utilization_ratio or 0) >= SHARED_RATIO


def _differs(row: OutsideViewRow) -> bool:
    return (row.difference_ratio or 0) >= DISAGREEMENT_RATIO


def _is_neighbours(row: OutsideViewRow, shared: Sequence[OutsideViewRow]) -> bool:
    more = (row.nvml_busy_ratio or 0) > (row.trace_busy_ratio or 0)
    return more and row in shared


def _shared(rows: list[OutsideViewRow]) -> Finding:
    evidence: list[Evidence] = []
    for row in rows:
        for one in _sharers(row):
            where = row.device if one.pid is None else f"{row.device}, process {one.pid}"
            for metric, value in (
                ("memory_ratio", one.memory_ratio),
                ("utilization_ratio", one.utilization_ratio),
            ):
                if value is not None and value >= SHARED_RATIO:
                    evidence.append(Evidence(metric, value, SHARED_RATIO, where))
        if _differs(row) and _is_neighbours(row, rows):
            apart = row.difference_ratio or 0
            evidence.append(Evidence("difference_ratio", apart, DISAGREEMENT_RATIO, row.device))
    count = len({(row.host, one.pid) for row in rows for one in _sharers(row)})
    held = sum(one.memory_bytes or 0 for row in rows for one in _sharers(row))
    runs = any(_is_used(one) for row in rows for one in _sharers(row))
    who = "another process" if count == 1 else f"{count} other processes"
    devices = tuple(row.device for row in rows)
    return Finding(
        code="gpu-shared",
        severity="warning",
        title=f"{numbers.listed(devices)} shared with {who}"
        + (f" holding {numbers.size(held)}" if held else ""),
        explanation=(
            "Kernels of others run there too: the GPU goes back and forth between the jobs, and in this trace "
            "that shows only as kernels that are slow or late."
            if runs
            else "Memory that others hold is missing for a larger batch, and whenever they run kernels this job "
            "waits. In this recording none of them was seen to compute much."
        ),
        advice=(
            "See with nvidia-smi what they are. Give each job GPUs of its own with CUDA_VISIBLE_DEVICES or "
            "the scheduler; nvidia-smi -c EXCLUSIVE_PROCESS keeps others away."
        ),
        confidence="high" if runs else "medium",
        confidence_reason=(
            "NVML measured their use of the GPU"
            if runs
            else "NVML lists them; how much they compute it does not say"
        ),
        evidence=tuple(evidence),
        devices=devices,
    )


def _throttled(rows: list[OutsideViewRow]) -> Finding:
    worst = max(rows, key=lambda row: row.throttled_ratio or 0)
    reasons = list(dict.fromkeys(name for row in rows for name in row.throttle_reasons))
    devices = tuple(row.device for row in rows)
    steady = all(row.sample_count >= STEADY_SAMPLES for row in rows)
    samples = numbers.plural(min(row.sample_count for row in rows), "sample")
    evidence: list[Evidence] = []
    for row in rows:
        told = ", ".join(f"{name} {share:.0%}" for name, share in row.throttle_reasons.items())
        evidence += [
            Evidence("throttled_ratio", row.throttled_ratio or 0, THROTTLED_RATIO, row.device),
            Evidence("throttle_reasons", told, None, row.device),
        ]
    share = f"{worst.throttled_ratio or 0:.0%} of the time"
    if len(rows) > 1:
        share = f"up to {share}"
    return Finding(
        code="gpu-throttled",
        severity="warning",
        title=f"{numbers.listed(devices)} held back for {share}: {numbers.listed(reasons)}",
        explanation=(
            f"The driver ran the clocks lower than the GPU can.{_clocks(worst)} All kernels take longer for "
            "it, and with MirroredStrategy every replica waits for the slowest."
        ),
        advice=(
            "For a power cap look at the limit (nvidia-smi -q -d POWER) and raise it if the rack allows. For heat "
            "look at fans, airflow and neighbours (nvidia-smi -q -d TEMPERATURE). Compare GPUs only while "
            "none is held back."
        ),
        confidence="high" if steady else "low",
        confidence_reason=f"judged by {samples} of NVML" if steady else f"only {samples} of NVML",
        evidence=tuple(evidence),
        devices=devices,
    )


def _clocks(row: OutsideViewRow) -> str:
    if row.sm_clock_hz is None or row.sm_clock_max_hz is None:
        return ""
    return (
        f" {row.device} ran at {row.sm_clock_hz / 1e6:.0f} MHz (median) of at most "
        f"{row.sm_clock_max_hz / 1e6:.0f} MHz."
    )


def _disagreeing(rows: list[OutsideViewRow]) -> Finding:
    worst = max(rows, key=lambda row: row.difference_ratio or 0)
    more = (worst.nvml_busy_ratio or 0) > (worst.trace_busy_ratio or 0)
    rest = f", and {numbers.plural(len(rows) - 1, 'more GPU')} alike" if len(rows) > 1 else ""
    evidence: list[Evidence] = []
    for row in rows:
        evidence += [
            Evidence("difference_ratio", row.difference_ratio or 0, DISAGREEMENT_RATIO, row.device),
            Evidence("nvml_busy_ratio", row.nvml_busy_ratio or 0, None, row.device),
            Evidence("trace_busy_ratio", row.trace_busy_ratio or 0, None, row.device),
        ]
    return Finding(
        code="nvml-disagrees",
        severity="warning",
        title=(
            f"{worst.device} was busy {worst.nvml_busy_ratio or 0:.0%} of the time by NVML and "
            f"{worst.trace_busy_ratio or 0:.0%} by the trace{rest}"
        ),
        explanation=(
            "NVML saw kernels that the trace does not hold: events were lost, another process ran on the "
            "GPU, or work of this one was not traced."
            if more
            else "The trace holds more activity than NVML saw: its times may be on another clock, or the work "
            "was of kinds that NVML does not count."
        ),
        advice=(
            "Look for dropped events and for other processes on the GPU, capture again with fewer steps, and trust "
            "neither number until they agree."
        ),
        confidence="medium",
        confidence_reason="NVML averages over periods whose length is not known exactly",
        evidence=tuple(evidence),
        devices=tuple(row.device for row in rows),
    )
