"""Recomputes the precision of the compute, kernel by kernel (docs/method.md, "Precision")."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.oracle.classes import Activity
from tests.oracle.intervals import Interval, clip, length, overlaps, subtract, union
from tests.oracle.model import Device, HostAnswer, Row, device_name

# Narrowest first: of kernels that run at the same time the narrowest counts. Names are searched in this order.
SPELLINGS = {
    "fp16": r"\bEigen::half\b|\b__half\b|_fp16_|_HHS_",
    "bf16": r"bf16|_BBS_",
    "fp32": r"sgemm|\bfloat\b",
    "fp64": r"dgemm|\bdouble\b",
}
TENSOR_CORES = r"_xmma_gemm_bf16|_MI16x16x16"


def precision_rows(answers: list[HostAnswer], several: bool) -> list[Row]:
    """One row per GPU with compute in its window, by host and ordinal."""
    return [
        {
            **device_name(device, several),
            **_precision(_inside(device, answer.window), answer.window),
        }
        for answer in answers
        for device in answer.devices
        if device.kind == "gpu" and _inside(device, answer.window)
    ]


def _inside(device: Device, window: Interval) -> list[Activity]:
    return [a for a in device.of_class("compute") if overlaps(a.span, window)]


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
        "opaque_count": sum(a.kernel.startswith("CudaGraphExec:") for a in compute),
    }
