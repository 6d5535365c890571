"""Measures how many floating-point operations per second the compute of each device does, and how far it is from the peak."""

from __future__ import annotations

from typing import Final

import numpy as np

from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.flops import DeviceFlops, flops_by_device, label_flops
from traceview.analysis.measures.roofline import roof_by_device
from traceview.analysis.rules.finding import OfDevice, Skipped
from traceview.base.record import LARGEST, Count, Ratio, Record, Share
from traceview.base.units import PS_PER_S
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown
from traceview.document.columns import table as shown_table
from traceview.trace.device.table import Table, record_columns, table


class DeviceEfficiency(OfDevice, frozen=True):
    """The floating-point operations (FLOPs) of one device in the used steps, or without steps in the window.

    Only products count: of matrices, convolutions and attention, each product with its sum as two. All figures are of
    known products, so they are lower bounds where unknown_ratio is not 0.

    Attributes:
        flops_per_second: FLOPs over the time in which ops run; on a CPU short ops are a part of that time.
        unknown_ratio: Share of the time of ops whose FLOPs are not known.
        flops_per_step: FLOPs of a step, mean; without steps, of the window.
        programs_ratio: Share of them that XLA programs state; the rest is of the graphs that the capture looked at.
        peak_flops_per_second: What the device can do at most at the precision of these FLOPs; null where the device or
            a precision is not known.
        mfu_ratio: Model FLOPs utilization: FLOPs over what the device could have done in the whole step at that precision; null
            where the peak is.
    """

    flops_per_second: Count
    unknown_ratio: Share
    flops_per_step: Count
    programs_ratio: Share
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
    of_device = context.once(flops_by_device)
    if not of_device:
        return Skipped("no device computed in the used steps")
    if not any(of.known_flops.any() for of in of_device.values()):
        return Skipped("no program and no capture says the FLOPs of what ran")
    return Efficiency(tuple(_row(context, device, of) for device, of in of_device.items()))


def _row(context: Context, device: int, of: DeviceFlops) -> DeviceEfficiency:
    ledger, labels = context.ledger, context.trace.once(label_flops)
    flops = of.known_flops
    whole, duration_ps = float(flops.sum()), int(of.duration_ps.sum())
    unknown_ps = int(of.duration_ps[np.isnan(of.flops)].sum())
    at_peak_ps = _at_peak_ps(context, device)
    step_ps = ledger.gpu_ps_by_device[device]
    return DeviceEfficiency(
        *context.trace.identity(device),
        flops_per_second=_whole(whole / of.ran_ps * PS_PER_S) if of.ran_ps else 0,
        unknown_ratio=unknown_ps / duration_ps if duration_ps else 0.0,
        flops_per_step=_whole(whole / (ledger.steps_of_device[device] or 1)),
        programs_ratio=min(float(flops[labels.is_program].sum()) / whole, 1) if whole else 0.0,
        peak_flops_per_second=_whole(whole / at_peak_ps * PS_PER_S) if at_peak_ps else None,
        mfu_ratio=at_peak_ps / step_ps if at_peak_ps and step_ps else None,
    )


def _whole(number: float) -> int:
    return round(min(number, LARGEST))


def _at_peak_ps(context: Context, device: int) -> float | None:
    """How long the products would take at the peak of their precision; None where that is not known of all."""
    compute_ps = context.once(roof_by_device)[device].compute_ps
    of_products = compute_ps[context.once(flops_by_device)[device].known_flops > 0]
    return None if np.isnan(of_products).any() else float(of_products.sum())


def efficiency_table(result: Efficiency | None) -> Table:
    """A row per device."""
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
    rows, others = view.split(result.devices)
    remark = None
    if others:
        rates = sorted(row.flops_per_second for row in others)
        count = numbers.plural(len(others), "other device")
        remark = f"{count}: {numbers.flop_rate(rates[0])} to {numbers.flop_rate(rates[-1])}."
    what = (
        "FLOPs are those of matrix products, convolutions and attention; what is elementwise counts 0. MFU is of the whole step, "
        "with all that is no compute."
    )
    blocks = shown_table("Efficiency", rows, _COLUMNS, most_rows=view.most_rows)
    return doc.Section(
        "efficiency", "Efficiency", (*blocks, *doc.remarks(remark, what)), lead=_lead(result)
    )


def _lead(result: Efficiency) -> str:
    rows = result.devices
    rate = numbers.flop_rate(sum(row.flops_per_second for row in rows) / len(rows))
    mfus = [row.mfu_ratio for row in rows if row.mfu_ratio is not None]
    mfu = f", MFU {numbers.share_range(mfus)}" if len(mfus) == len(rows) else ""
    unknown = numbers.share_range(row.unknown_ratio for row in rows)
    is_known = not any(row.unknown_ratio for row in rows)
    rest = "" if is_known else f" The FLOPs of {unknown} of the time of ops are not known."
    return f"{rate} while a device computes{mfu}.{rest}"


ANALYSIS: Final = Analysis[Efficiency]("efficiency", compute=compute, sections=(section,))
