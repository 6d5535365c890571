"""Shows what NVML measured of each GPU: load, clocks, power, memory and other processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from traceview.analysis.context import View
from traceview.analysis.nvml.result import Nvml, NvmlRow
from traceview.document import model as doc
from traceview.document import numbers

BRIEF_GPUS: Final = 16
"""GPUs with a row in a brief document: those of two usual hosts."""
BRIEF_REASONS: Final = 4
"""Reasons for missing numbers in a brief document; mostly all GPUs have the same."""


def nvml_section(view: View, result: Nvml) -> doc.Section | None:
    """A row per GPU, and why numbers are missing; nothing where NVML was not sampled."""
    if not result.devices:
        return None
    rows = result.devices[: BRIEF_GPUS if view.is_brief else view.most_rows]
    reasons = [
        *_reasons(
            "NVML not compared with the trace",
            ((row.device, row.not_compared) for row in result.devices),
        ),
        *_reasons(
            "Other processes unknown", ((row.device, row.others_unknown) for row in result.devices)
        ),
        *(f"No samples of {host}: {reason}." for host, reason in result.absent.items()),
    ]
    return doc.Section(
        "nvml",
        "GPU clocks, load and other processes",
        (
            *doc.table(
                "GPUs by their driver",
                _columns(view, rows),
                row_count=len(result.devices),
                rest="the JSON report",
            ),
            *doc.remarks(*reasons[: BRIEF_REASONS if view.is_brief else view.most_rows]),
        ),
        lead=f"Measured by NVML over the whole recording, {_samples(result.devices)} per GPU.",
    )


def _samples(rows: Sequence[NvmlRow]) -> str:
    fewest, most = min(row.sample_count for row in rows), max(row.sample_count for row in rows)
    return numbers.plural(most, "sample") if fewest == most else f"{fewest} to {most} samples"


def _columns(view: View, rows: Sequence[NvmlRow]) -> Iterator[doc.Column]:
    yield doc.devices("device", [row.device for row in rows])
    yield doc.shares("NVML busy", [row.nvml_busy_ratio for row in rows])
    yield doc.shares("trace busy", [row.trace_busy_ratio for row in rows], priority=1)
    yield doc.shares("throttled", [row.throttled_ratio for row in rows])
    clocks = [_of_most(row.sm_clock_hz, row.sm_clock_max_hz, 1e6, "MHz") for row in rows]
    yield doc.words("SM clock", clocks, priority=2)
    powers = [_of_most(row.power_watts, row.power_limit_watts, 1, "W") for row in rows]
    yield doc.words("power", powers, priority=4)
    used = [doc.ratio(row.memory_used_bytes, row.memory_total_bytes) for row in rows]
    yield doc.shares("memory", used, priority=5, meaning="in use, of all processes together")
    yield doc.sizes("memory used", [row.memory_used_bytes for row in rows], priority=6)
    others = [None if row.other_processes is None else len(row.other_processes) for row in rows]
    yield doc.counts("other processes", others, priority=3)
    if not view.is_brief:
        yield doc.counts("samples", [row.sample_count for row in rows])


def _of_most(value: float | None, most: float | None, unit: float, name: str) -> str | None:
    """`1200 of 1980 MHz`: a value, and the highest that it can have."""
    if value is None:
        return None
    limit = f" of {most / unit:.0f}" if most is not None else ""
    return f"{value / unit:.0f}{limit} {name}"


def _reasons(label: str, reasons: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    """Each reason once, with all devices that have it."""
    keys: dict[str, list[str]] = {}
    for device, reason in reasons:
        if reason:
            keys.setdefault(reason, []).append(device)
    for reason, same in keys.items():
        yield f"{label} on {numbers.joined_devices(same)}: {reason}."
