"""Measures how many floating-point operations per second the compute of each device does, and how far it is from the peak.

Where that is far, it says what the time of the step goes to: no op, ops that multiply nothing, small ops, casts, or products
that are slower than they could be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import numpy as np

from traceview.analysis.facts.kernels import cast_labels
from traceview.analysis.facts.layers import label_places
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.op_work import (
    DeviceFlops,
    counted_events,
    flops_by_device,
    label_flops,
    label_precisions,
    roof_of,
    time_by_label,
)
from traceview.analysis.measures.peaks import peaks_of
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Argument, Ops, Part
from traceview.base.intervals import Int64Array
from traceview.base.record import LARGEST, Count, Ratio, Record, Share, one_of
from traceview.base.units import PS_PER_S, PS_PER_US
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown
from traceview.trace.device.table import Table, record_columns, table
from traceview.xplane.kernel_names import NumberFormat


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
        peak_source: Where that is from: plane, what the trace says of the device, or table, what its maker says of the model; null
            where it is not known.
        mfu_ratio: Model FLOPs utilization: FLOPs over what the device could have done in the whole step at that precision; null
            where the peak is.
    """

    flops_per_second: Count
    unknown_ratio: Share
    flops_per_step: Count
    peak_flops_per_second: Count | None
    peak_source: Annotated[str, one_of("plane", "table")] | None
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
        peak_source=peaks_of(context.trace, device).source if at_peak_ps else None,
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


# What the time goes to

_SMALL_PS: Final = 5 * PS_PER_US
_IDLE: Final = "idle"
_PARTS: Final = ("unknown", "float32", "product", "cast", "small", "memory")
"""What ops are: those whose FLOPs are not known; products whose kernels show float32, where tensor units take TF32 or 16 bits; other
products; conversions between types; other ops that multiply nothing, short ones and long ones, which mostly wait for memory."""


def _parts_of(context: Context, device: int) -> dict[str, float]:
    """The shares of the GPU time of a device that go to no op and to each of the parts; empty without any time."""
    of, whole_ps = context.once(flops_by_device)[device], context.ledger.gpu_ps_by_device[device]
    if not whole_ps:
        return {}
    part = _part_of_label(context, device, of)
    times = context.once(time_by_label)[device].every
    by_part = np.bincount(part, times, len(_PARTS)) / whole_ps
    shares = dict(zip(_PARTS, by_part.tolist(), strict=True))
    return {_IDLE: max(1 - sum(shares.values()), 0.0), **shares}


def _part_of_label(context: Context, device: int, of: DeviceFlops) -> Int64Array:
    """By label the place of its part among `_PARTS`: the first that it is one of."""
    peaks = peaks_of(context.trace, device).flops
    fastest = max((peaks.get(each, 0) for each in _OF_TENSOR_UNITS), default=0)
    has_units = fastest > peaks.get(NumberFormat.FP32, fastest)
    multiplies, precision = of.known_flops > 0, context.trace.once(label_precisions)
    is_small = of.duration_ps.every <= _SMALL_PS * of.count.every
    conditions = (
        np.isnan(of.of_label.flops),
        multiplies & has_units & (precision == NumberFormat.FP32),
        multiplies,
        context.trace.once(cast_labels),
        is_small,
    )
    return np.select(conditions, range(len(conditions)), len(conditions))


_OF_TENSOR_UNITS: Final = (NumberFormat.TF32, NumberFormat.BF16, NumberFormat.FP16)


# Finding

LOW_MFU: Final = Rule(
    code="low-mfu",
    severity="info",
    limits={"mfu_ratio": 0.20, "unknown_ratio": 0.20, "part_ratio": 0.10, "compute_ratio": 0.50},
    starts_at=(
        "an MFU below {mfu_ratio} over used steps in which ops compute for at least {compute_ratio}, with the FLOPs known of all but "
        "{unknown_ratio} of the time of ops; it names what takes at least {part_ratio} of the step"
    ),
    title="{who:reaches/reach} {mfu} of the peak FLOP/s (MFU)",
    meaning=(
        "Model FLOPs utilization is what the products of a step would take at the peak of the GPU, over the whole step. Large "
        "products in 16 bits reach half of it; a small model cannot."
    ),
    notes={
        "idle": "For {idle} of the step nothing computes, or launches of small kernels take the time.",
        "float32": "{float32} of the step is products in float32, which the tensor units do not take.",
        "product": "{product} of the step is products, which would take {mfu} of it at the peak.",
        "cast": "{cast} of the step is conversions between types.",
        "small": "{small} of the step is ops of at most 5 µs that multiply nothing.",
        "memory": "{memory} of the step is longer ops that multiply nothing and wait for memory[, most in {layer}].",
    },
    action="Look at which layers are far from the peak: `traceview show layers LOGDIR`.",
    advice=(
        "Larger products come nearer to the peak: a larger batch, and dimensions that are multiples of 64."
    ),
    actions={
        "idle": (
            "Look first at what the GPUs wait for while no op computes.",
            "`traceview show gaps LOGDIR` lists the gaps with their causes.",
        ),
        "float32": (
            'Train in mixed precision: `tf.keras.mixed_precision.set_global_policy("mixed_float16")`.',
            "Or leave TF32 on, on GPUs that have it: `tf.config.experimental.enable_tensor_float_32_execution(True)`.",
        ),
        "jax-float32": (
            "Compute in 16 bits: arrays and parameters with dtype `jnp.bfloat16`, or `jnp.float16` on older GPUs.",
            "Layers take `dtype=jnp.bfloat16`.",
        ),
        "cast": (
            "Keep one type throughout: a conversion reads and writes the whole tensor.",
            "`traceview show ops LOGDIR` lists the conversions.",
        ),
        "small": (
            "Use a larger batch per GPU: ops of a few µs take little longer with more work.",
            "`jit_compile=True` on the function inside `strategy.run` makes few ops of many.",
        ),
        "jax-small": (
            "Use a larger batch per GPU: ops of a few µs take little longer with more work.",
            "Compile the whole step in one `jax.jit`, which makes few ops of many.",
        ),
        "memory": (
            "Fuse ops that multiply nothing: `jit_compile=True` on the function inside `strategy.run`.",
            "In 16 bits they take half the memory traffic.",
        ),
        "jax-memory": (
            "Compute what multiplies nothing in 16 bits: it takes half the memory traffic.",
            "Inside of one `jax.jit` XLA fuses it with what it uses.",
        ),
    },
    metrics={
        "mfu_ratio": "MFU",
        **{f"{key}_ratio": f"share of the step: {words}" for key, words in {
            "idle": "no op computes", "unknown": "FLOPs not known", "float32": "products in float32",
            "product": "other products", "cast": "conversions", "small": "small ops", "memory": "longer ops without products",
        }.items()},
    },
    example="All 4 GPUs reach 8.3% of the peak FLOP/s (MFU)",
)  # fmt: skip


def diagnose(context: Context, result: Efficiency) -> Iterator[Finding | None]:
    """Devices far from the peak, and what the time of their steps goes to."""
    limits = LOW_MFU.limits
    if not context.ledger.has_steps:
        return
    of_key = {context.trace.device_key(device): device for device in context.ledger.devices}
    parts = {
        row.device: _parts_of(context, of_key[row.device])
        for row in result.devices
        if row.mfu_ratio is not None
        and row.mfu_ratio < limits["mfu_ratio"]
        and row.unknown_ratio <= limits["unknown_ratio"]
    }
    far = [
        row
        for row in result.devices
        if 1 - parts.get(row.device, {}).get(_IDLE, 1.0) >= limits["compute_ratio"]
    ]
    if not far:
        return
    mfu = sum(row.mfu_ratio or 0.0 for row in far) / len(far)
    mean = {key: sum(parts[row.device][key] for row in far) / len(far) for key in LOW_MFU.notes}
    # Products take as long as they have to, as far as they run at the peak.
    excess = {**mean, "product": mean["product"] - mfu}
    ranked = sorted(excess, key=lambda key: -excess[key])
    named = [key for key in ranked if excess[key] >= limits["part_ratio"]]
    arguments: dict[str, Argument] = {"mfu": Part(mfu), **{key: Part(mean[key]) for key in named}}
    layer = _memory_layer(context, [of_key[row.device] for row in far])
    if layer:
        arguments["layer"] = Ops((layer,))
    yield LOW_MFU.about(
        context,
        far,
        arguments,
        "mfu_ratio",
        limits["mfu_ratio"],
        evidence=[
            Evidence(f"{key}_ratio", share, None, row.device)
            for row in far
            for key, share in parts[row.device].items()
            if share
        ],
        action=named[0] if named and named[0] != "product" else "",
        notes=named[:_MOST_NOTES],
    )


_MOST_NOTES: Final = 3


def _memory_layer(context: Context, devices: Iterable[int]) -> str:
    """The layer of most time in longer ops that multiply nothing; empty where no name shows one."""
    places = context.trace.once(label_places)
    total = np.zeros(len(places.places))
    for device in devices:
        part = _part_of_label(context, device, context.once(flops_by_device)[device])
        times = np.where(part == len(_PARTS) - 1, context.once(time_by_label)[device].every, 0)
        total += np.bincount(places.place, times, total.size)
    if not total.any():
        return ""
    return "/".join(places.places[int(total.argmax())].scopes)


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
