"""Recomputes launches and precision, kernel by kernel (docs/method.md, "Launches" and "Precision")."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.oracle.classes import Activity
from tests.oracle.intervals import Interval, clip, length, overlaps, subtract, union
from tests.oracle.model import Device, HostAnswer, Row, device_name
from tests.oracle.reading import Event
from tests.oracle.steps import median

# Narrowest first: of kernels that run at the same time the narrowest counts. Names are searched in this order.
SPELLINGS = {
    "fp16": r"\bEigen::half\b|\b__half\b|_fp16_|_HHS_",
    "bf16": r"bf16|_BBS_",
    "fp32": r"sgemm|\bfloat\b",
    "fp64": r"dgemm|\bdouble\b",
}
TENSOR_CORES = r"_xmma_gemm_bf16|_MI16x16x16"


def launch_rows(answers: list[HostAnswer], several: bool) -> list[Row]:
    """One row per GPU with compute in its window, by host and ordinal."""
    return [
        _row(answer, device, several)
        for answer in answers
        for device in answer.devices
        if device.kind == "gpu" and _inside(device, answer.window)
    ]


def _inside(device: Device, window: Interval) -> list[Activity]:
    return [a for a in device.of_class("compute") if overlaps(a.span, window)]


def _row(answer: HostAnswer, device: Device, several: bool) -> Row:
    compute = _inside(device, answer.window)
    kernels = [a for a in compute if not a.kernel.startswith("CudaGraphExec:")]
    of_call: dict[Event, list[Activity]] = defaultdict(list)
    for kernel in kernels:
        # Where several host events carry the id, the first in time is the launch.
        calls = sorted(answer.links.calls(kernel.event), key=lambda e: (e.start, e.order))
        if calls:
            of_call[calls[0]].append(kernel)
    delays = [min(k.event.start for k in own) - call.start for call, own in of_call.items()]
    clamped = sorted(max(delay, 0) for delay in delays)
    short = [
        sum(k.event.end - k.event.start for k in own) < call.end - call.start
        for call, own in of_call.items()
    ]
    steps = [(step.start, step.end) for step in answer.steps if step.used]
    graph_count = sum("CudaGraph:" in call.name for call in of_call)
    opaque = len(compute) - len(kernels)
    return {
        **device_name(device, several),
        "kernel_count": len(kernels),
        "kernels_per_step": median(
            [sum(a <= k.event.start < b for k in kernels) for a, b in steps]
        ),
        "kernel_median_ps": median([k.event.end - k.event.start for k in kernels]),
        "call_count": len(of_call),
        "call_median_ps": median([call.end - call.start for call in of_call]),
        "delay_p50_ps": median(clamped),
        # The nearest rank: the first that at least 95 % do not exceed.
        "delay_p95_ps": next(
            (d for n, d in enumerate(clamped, start=1) if 100 * n >= 95 * len(clamped)), None
        ),
        "short_kernel_ratio": sum(short) / len(short) if short else None,
        "blocked_call_count": sum(call.end - call.start > 100_000_000 for call in of_call),
        "graph_count": graph_count + opaque,
        "opaque_count": opaque,
        "precision": _precision(compute, answer.window),
    }


def _precision(compute: list[Activity], window: Interval) -> Row:
    spans: dict[str, list[Interval]] = defaultdict(list)
    for kernel in compute:
        formats = [name for name, text in SPELLINGS.items() if re.search(text, kernel.kernel)]
        spans[formats[0] if formats else "unknown"].append(kernel.span)
    times, above = {}, list[Interval]()
    for name in (*SPELLINGS, "unknown"):
        times[name] = length(clip(subtract(union(spans[name]), above), window))
        above += spans[name]
    on_tensor_cores = [a.span for a in compute if re.search(TENSOR_CORES, a.kernel)]
    return {
        "precision_ps": {name: ps for name, ps in times.items() if ps},
        "tensor_core_ps": length(clip(on_tensor_cores, window)),
    }
