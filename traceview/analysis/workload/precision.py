"""Precision: in which precision each GPU computed, and how much of it ran on tensor cores.

The precision of a kernel is read from its name (`xplane.kernel_names`). Where kernels of several precisions run at
once, the instant belongs to the narrowest, so that the times by precision add up exactly to the compute time. Kernels
whose names show no precision are `unknown`, as those made by XLA and CUDA graphs that are recorded as one event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Annotated, Final

from traceview.analysis.facts.kernels import computing_gpus, kernel_names
from traceview.analysis.facts.selection import covered_ps
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Number, Part
from traceview.base.ids import unique_ids
from traceview.base.intervals import BoolArray, Int64Array, union
from traceview.base.record import (
    Count,
    Picoseconds,
    Record,
    Share,
    one_of,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown
from traceview.trace.model import Device, Trace
from traceview.trace.windows import Window
from traceview.xplane.kernel_names import NumberFormat

FIRST_TENSOR_CORES: Final = 7.0
"""Compute capability of Volta, the first with tensor cores."""

_NO_TENSOR_CORES: Final = "GTX 16"
"""A series of compute capability 7.5 without tensor cores."""

FIRST_MATRIX_CORES: Final = 9.4
"""Capability of MI300 in ROCm. Older GPUs are 9.0, with matrix cores (MI100, MI200) and without (MI50)."""

PRECISIONS: Final = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "unknown")
LOW_PRECISIONS: Final = ("bf16", "fp16", "fp8", "int8")


class DevicePrecision(OfDevice, frozen=True):
    """The compute time of one GPU in its window, by precision.

    Attributes:
        compute_ps: Compute time in the window, picoseconds.
        precision_ps: Compute time by precision, picoseconds; of kernels that run at once the narrowest counts,
            so that the times add up to compute_ps. unknown: the name of the kernel shows no precision.
        low_precision_ratio: Share of the compute time in 16 bits or less.
        unknown_ratio: Share of the compute time in kernels whose name shows no precision.
        has_tensor_cores: Whether the GPU has tensor cores (AMD: matrix cores); null where that is not known.
        tensor_core_ps: Compute time of kernels whose names show that they use tensor cores, picoseconds.
        tensor_core_ratio: The same over the compute time.
        opaque_count: CUDA graphs recorded as one event, whose kernels are not known.
    """

    compute_ps: Picoseconds
    precision_ps: dict[Annotated[str, one_of(*PRECISIONS)], Picoseconds]
    low_precision_ratio: Share
    unknown_ratio: Share
    has_tensor_cores: bool | None
    tensor_core_ps: Picoseconds
    tensor_core_ratio: Share
    opaque_count: Count


class Precision(Record, frozen=True):
    """The precision of every GPU with compute in its window.

    Attributes:
        tensor_core_ratio: Share of the compute time of all GPUs in kernels whose names show that they use tensor
            cores.
        devices: GPUs in the order of hosts and ordinals.
    """

    tensor_core_ratio: Share
    devices: tuple[DevicePrecision, ...]


def compute(context: Context) -> Precision | Skipped:
    """The precision of the kernels of each GPU in its window."""
    computing = computing_gpus(context.trace, context.selection)
    if isinstance(computing, Skipped):
        return computing
    rows = tuple(_row(context, device, *of_gpu) for device, of_gpu in computing.items())
    whole = sum(row.compute_ps for row in rows)
    return Precision(_ratio(sum(row.tensor_core_ps for row in rows), whole), rows)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _row(context: Context, device: int, window: Window, kernels: Int64Array) -> DevicePrecision:
    trace, shown = context.trace, context.trace.once(kernel_names)
    events = trace.device_columns
    names = events.name[kernels]
    compute_ps = covered_ps(context.activities[device].compute, window)

    def lasted(which: BoolArray) -> int:
        if which.all():
            return compute_ps
        covered = union(events.start_ps[kernels[which]], events.end_ps[kernels[which]])
        return covered_ps(covered, window)

    precision = shown.precision[names]
    by_precision = dict.fromkeys(PRECISIONS, 0)
    before = 0
    for narrowest in unique_ids(precision).tolist():
        so_far = lasted(precision <= narrowest)
        by_precision[NumberFormat(narrowest).name.lower()] = so_far - before
        before = so_far
    tensor_core = shown.tensor_core[names]
    tensor_core_ps = lasted(tensor_core)
    has_cores = _has_tensor_cores(trace.device_list[device], is_shown=bool(tensor_core.any()))
    return DevicePrecision(
        *trace.identity(device),
        compute_ps=compute_ps,
        precision_ps=by_precision,
        low_precision_ratio=_ratio(sum(by_precision[name] for name in LOW_PRECISIONS), compute_ps),
        unknown_ratio=_ratio(by_precision["unknown"], compute_ps),
        has_tensor_cores=has_cores,
        tensor_core_ps=tensor_core_ps,
        tensor_core_ratio=_ratio(tensor_core_ps, compute_ps),
        opaque_count=int(events.opaque[kernels].sum()),
    )


# What the GPU has


def capability_of(device: Device) -> float | None:
    """The compute capability of a GPU; None where it is not recorded."""
    major, minor = (device.count(f"compute_cap_{part}") for part in ("major", "minor"))
    if major is None or minor is None:
        return None
    return major + minor / 10


def _has_tensor_cores(device: Device, *, is_shown: bool) -> bool | None:
    """Whether a GPU has tensor cores (AMD: matrix cores); `is_shown`: a kernel of it uses them.

    Without a recorded capability, and for AMD GPUs of 9.0, only such a kernel shows it.
    """
    capability = capability_of(device)
    if is_shown or capability is None:
        return is_shown or None
    if device.stats.get("device_vendor") == "AMD":
        return True if capability >= FIRST_MATRIX_CORES else None
    return capability >= FIRST_TENSOR_CORES and _NO_TENSOR_CORES not in (device.model or "")


# Finding

FIRST_BFLOAT16: Final = 8.0
"""Compute capability from which tensor cores support bfloat16 and TF32."""

_TRUSTED_UNKNOWN_RATIO: Final = 0.10
"""Up to this share of compute of unknown precision the finding is certain."""

LOW_PRECISION_UNUSED: Final = Rule(
    code="low-precision-unused",
    severity="info",
    # The first limit is that of XProf.
    limits={"low_precision_ratio": 0.10, "unknown_ratio": 0.50},
    starts_at=(
        "less than {low_precision_ratio} of the compute in 16 bits or less, on GPUs with tensor cores; not where the "
        "names of the kernels leave more than {unknown_ratio} of the compute unknown"
    ),
    title="{who:does/do} {ratio} of the compute in 16 bits",
    titles={"none": "{who:does/do} no compute in 16 bits"},
    meaning=(
        "Tensor cores multiply 16-bit numbers several times faster than float32, and 16-bit tensors take half the "
        "memory traffic."
    ),
    action='Train in mixed precision: `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")`.',
    advice=(
        "If it has to be float32, leave TF32 on: `tf.config.experimental.enable_tensor_float_32_execution(True)`."
    ),
    actions={
        "float16": (
            'Train in mixed precision: `tf.keras.mixed_precision.set_global_policy("mixed_float16")`.',
            "It applies loss scaling automatically in `Model.fit`; keep the last layer in float32.",
        ),
        "jax": (
            "Compute in bfloat16: arrays and parameters with dtype `jnp.bfloat16`.",
            "Layers take `dtype=jnp.bfloat16`.",
        ),
    },
    reasons={
        "names": "the names of the kernels show their precision",
        "unknown": "the names of kernels with {unknown} of the compute do not show it",
    },
    metrics={"low_precision_ratio": "share of the compute in 16 bits or less"},
    example="All 4 GPUs do no compute in 16 bits",
)


OPAQUE_CUDA_GRAPH: Final = Rule(
    code="opaque-cuda-graph",
    severity="info",
    starts_at="any CUDA graph that is recorded as one event",
    title="{who:runs/run} {graphs} recorded without kernels",
    meaning=(
        "The tracer recorded CUDA graphs without their kernels. They count as compute; which kernels, ops and "
        "collectives ran in them, and in which precision, is not in the trace."
    ),
    action="Capture once without graphs to see kernels: XLA's are off with `XLA_FLAGS=--xla_gpu_enable_command_buffer=`.",
    metrics={"opaque_count": "CUDA graphs recorded as one event"},
    example="GPU:0 runs 12 CUDA graphs recorded without kernels",
)


def _diagnose(context: Context, result: Precision) -> Iterator[Finding | None]:
    """CUDA graphs of which only the whole is recorded, and GPUs with tensor cores that compute in 32 bits or more."""
    opaque = [row for row in result.devices if row.opaque_count]
    yield OPAQUE_CUDA_GRAPH.about(
        context,
        opaque,
        {"graphs": Number(sum(row.opaque_count for row in opaque), "CUDA graph")},
        "opaque_count",
        0,
    )
    limits = LOW_PRECISION_UNUSED.limits
    rows = [
        row
        for row in result.devices
        if row.has_tensor_cores
        and row.compute_ps
        and row.unknown_ratio <= limits["unknown_ratio"]
        and row.low_precision_ratio < limits["low_precision_ratio"]
    ]
    low_ps = sum(row.precision_ps[name] for row in rows for name in LOW_PRECISIONS)
    unknown = max((row.unknown_ratio for row in rows), default=0.0)
    keys = frozenset(row.device for row in rows)
    yield LOW_PRECISION_UNUSED.about(
        context,
        rows,
        {
            "ratio": Part(_ratio(low_ps, sum(row.compute_ps for row in rows))),
            "unknown": Part(unknown),
        },
        "low_precision_ratio",
        limits["low_precision_ratio"],
        confidence=("low", "unknown") if unknown > _TRUSTED_UNKNOWN_RATIO else ("high", "names"),
        title="" if low_ps else "none",
        action="" if _have_bfloat16(context.trace, keys) else "float16",
    )


def _have_bfloat16(trace: Trace, keys: Collection[str]) -> bool:
    return all(
        (capability_of(device) or 0.0) >= FIRST_BFLOAT16
        for index, device in enumerate(trace.device_list)
        if trace.device_key(index) in keys
    )


# Section


def precision_section(view: View, result: Precision) -> doc.Section | None:
    """The compute time of each GPU by precision."""
    if not result.devices:
        return None
    shown = (*_COLUMNS, *_by_precision(result.devices))
    blocks = view.device_table("Compute time by precision", result.devices, shown)
    return doc.Section("precision", "Precision", blocks, lead=_lead(result))


def _lead(result: Precision) -> str:
    if all(row.has_tensor_cores is False for row in result.devices):
        return "The GPUs have no tensor cores."
    return f"{numbers.share(result.tensor_core_ratio)} of the compute runs on tensor cores."


_COLUMNS: Final = (
    DEVICE,
    Shown("compute", "compute_ps", 2),
    Shown(
        "tensor cores",
        lambda row: "none" if row.has_tensor_cores is False else row.tensor_core_ratio,
        kind="share",
        meaning="compute in kernels whose names show that they use tensor cores",
    ),
    Shown("16 bits or less", "low_precision_ratio", 1),
)


def _by_precision(rows: Sequence[DevicePrecision]) -> Iterator[Shown]:
    """A column per precision that occurs, the one with most compute time first."""

    def share_of(name: str) -> Callable[[DevicePrecision], float | None]:
        return lambda row: doc.ratio(row.precision_ps.get(name, 0), row.compute_ps)

    totals = {name: sum(row.precision_ps.get(name, 0) for row in rows) for name in PRECISIONS}
    ranked = sorted((name for name in totals if totals[name]), key=lambda name: -totals[name])
    for place, name in enumerate(ranked):
        yield Shown(name, share_of(name), place and place + 2, "share")


ANALYSIS: Final = Analysis[Precision](
    "precision",
    compute=compute,
    rules=(OPAQUE_CUDA_GRAPH, LOW_PRECISION_UNUSED),
    diagnose=_diagnose,
    sections=(precision_section,),
)
