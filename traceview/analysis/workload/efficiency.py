"""Measures how many floating-point operations per second the compute of each device does, and how far it is from the peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.op_work import (
    DeviceFlops,
    counted_events,
    flops_by_device,
    label_flops,
    roof_of,
    time_by_label,
)
from traceview.analysis.rules.finding import Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Part
from traceview.base.record import LARGEST, Count, Ratio, Record, Share
from traceview.base.units import PS_PER_S
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown
from traceview.trace.device.table import Table, record_columns, table


class DeviceEfficiency(OfDevice, frozen=True):
    """The floating-point operations (FLOPs) of one device in the used steps, or without steps in the window.

    Only products count: of matrices, convolutions and attention, each product with its sum as two. All figures are of
    known products, so they are lower bounds where unknown_ratio is not 0.

    Attributes:
        flops_per_second: FLOPs over the time in which ops run; on a CPU short ops are a part of that time.
        unknown_ratio: Share of the time of ops whose FLOPs are not known.
        flops_per_step: FLOPs of a step, mean; without steps, of the window.
        peak_flops_per_second: What the device can do at most at the precision of these FLOPs; null where the device or
            a precision is not known.
        mfu_ratio: Model FLOPs utilization: FLOPs over what the device could have done in the whole step at that precision; null
            where the peak is.
    """

    flops_per_second: Count
    unknown_ratio: Share
    flops_per_step: Count
    peak_flops_per_second: Count | None
    mfu_ratio: Ratio | None


class Efficiency(Record, frozen=True):
    """How close devices are to what their hardware can do.

    Attributes:
        devices: Devices that compute, in the order of the device list.
    """

    devices: tuple[DeviceEfficiency, ...]


def compute(context: Context) -> Efficiency | Skipped:
    """The FLOPs of each device."""
    if not any(counted_events(context, device).size for device in context.ledger.devices):
        return Skipped("no device computed in the used steps")
    is_known = context.trace.once(label_flops).flops > 0
    of_device = context.once(flops_by_device) if is_known.any() else {}
    if not any(of.runs.where(is_known).total for of in of_device.values()):
        return Skipped("no program and no capture says the FLOPs of what ran")
    return Efficiency(tuple(_row(context, device, of) for device, of in of_device.items()))


def _row(context: Context, device: int, of: DeviceFlops) -> DeviceEfficiency:
    ledger = context.ledger
    whole, duration_ps = float(of.known_flops.sum()), of.duration_ps.total
    unknown_ps = of.duration_ps.where(np.isnan(of.of_label.flops)).total
    at_peak_ps = _at_peak_ps(context, device, of)
    step_ps = ledger.gpu_ps_by_device[device]
    return DeviceEfficiency(
        *context.trace.identity(device),
        flops_per_second=_whole(whole / of.ran_ps * PS_PER_S) if of.ran_ps else 0,
        unknown_ratio=unknown_ps / duration_ps if duration_ps else 0.0,
        flops_per_step=_whole(whole / (ledger.steps_of_device[device] or 1)),
        peak_flops_per_second=_whole(whole / at_peak_ps * PS_PER_S) if at_peak_ps else None,
        mfu_ratio=at_peak_ps / step_ps if at_peak_ps and step_ps else None,
    )


def _whole(number: float) -> int:
    return round(min(number, LARGEST))


_KNOWN_RATIO: Final = 0.99
"""Share of the FLOPs whose precision has to be known; the others count as these do."""


def _at_peak_ps(context: Context, device: int, of: DeviceFlops) -> float | None:
    """How long the products would take at the peak of their precision; None where that is not known."""
    flops = of.known_flops
    compute_ps, _ = roof_of(context.trace, device, of)
    is_known, whole = ~np.isnan(compute_ps), float(flops.sum())
    known = float(flops[is_known].sum())
    if not known or known < _KNOWN_RATIO * whole:
        return None
    return float(compute_ps[is_known & (flops > 0)].sum()) * whole / known


# Finding

LOW_MFU: Final = Rule(
    code="low-mfu",
    severity="info",
    limits={"mfu_ratio": 0.20, "unknown_ratio": 0.20, "compute_ratio": 0.50},
    starts_at=(
        "an MFU below {mfu_ratio} over used steps in which ops compute for at least {compute_ratio}, with the FLOPs known of all but "
        "{unknown_ratio} of the time of ops"
    ),
    title="{who:reaches/reach} {mfu} of the peak FLOP/s (MFU)",
    meaning=(
        "Model FLOPs utilization is what the products of a step would take at the peak of the GPU, over the whole step. Large "
        "products in 16 bits reach half of it; a small model cannot."
    ),
    action="Look at which layers are far from the peak: `traceview show layers LOGDIR`.",
    advice=(
        "Larger products come nearer to the peak: a larger batch, and dimensions that are multiples of 64."
    ),
    metrics={"mfu_ratio": "MFU"},
    example="All 4 GPUs reach 8.3% of the peak FLOP/s (MFU)",
)


def diagnose(context: Context, result: Efficiency) -> Iterator[Finding | None]:
    """Devices that compute for most of the step, far from the peak."""
    limits, ledger = LOW_MFU.limits, context.ledger
    if not ledger.has_steps:
        return
    computing = {
        context.trace.device_key(device)
        for device, ps in context.once(time_by_label).items()
        if ps.total >= limits["compute_ratio"] * ledger.gpu_ps_by_device[device]
    }
    far = {
        row: row.mfu_ratio
        for row in result.devices
        if row.device in computing
        and row.mfu_ratio is not None
        and row.mfu_ratio < limits["mfu_ratio"]
        and row.unknown_ratio <= limits["unknown_ratio"]
    }
    if far:
        mean = Part(sum(far.values()) / len(far))
        yield LOW_MFU.about(context, list(far), {"mfu": mean}, "mfu_ratio", limits["mfu_ratio"])


def efficiency_table(context: Context) -> Table:
    """A row per device."""
    result = context.record(ANALYSIS)
    return table("efficiency", *record_columns(DeviceEfficiency, result.devices if result else ()))


_COLUMNS: Final = (
    DEVICE,
    Shown("FLOP/s", "flops_per_second", meaning="known FLOPs over the time in which ops run"),
    Shown("not known", "unknown_ratio", meaning="time of ops whose FLOPs are not known"),
    Shown("MFU", "mfu_ratio", meaning="FLOPs over the peak of the whole step"),
    Shown("peak", "peak_flops_per_second", 1, meaning="at the precision in use"),
    Shown("FLOPs", "flops_per_step", 2, meaning="of a step, without steps of the window"),
)


def section(view: View, result: Efficiency) -> doc.Section:
    """A row per device."""
    what = (
        "FLOPs are those of matrix products, convolutions and attention; what is elementwise counts 0. MFU is of the whole step, "
        "with all that is no compute."
    )
    blocks = view.device_table("Efficiency", result.devices, _COLUMNS, "efficiency")
    lead = _lead(result)
    return doc.Section("efficiency", "Efficiency", (*blocks, doc.Remark(what)), lead=lead)


def _lead(result: Efficiency) -> str:
    rows = result.devices
    rate = numbers.flop_rate(sum(row.flops_per_second for row in rows) / len(rows))
    mfus = [row.mfu_ratio for row in rows if row.mfu_ratio is not None]
    mfu = f", MFU {numbers.share_range(mfus)}" if len(mfus) == len(rows) else ""
    unknown = numbers.share_range(row.unknown_ratio for row in rows)
    is_known = not any(row.unknown_ratio for row in rows)
    rest = "" if is_known else f" The FLOPs of {unknown} of the time of ops are not known."
    return f"{rate} while a device computes{mfu}.{rest}"


ANALYSIS: Final = Analysis[Efficiency](
    "efficiency",
    compute=compute,
    rules=(LOW_MFU,),
    diagnose=diagnose,
    sections=(section,),
    table=efficiency_table,
)
