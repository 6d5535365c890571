"""Recomputes the precision of the compute, kernel by kernel (docs/method.md, "Precision")."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.oracle.classes import Activity
from tests.oracle.model import Row, device_name
from tests.oracle.segments import Ledger

# Narrowest first. Names are searched in this order.
SPELLINGS = {
    "fp16": r"\bEigen::half\b|\b__half\b|_fp16_|_HHS_",
    "bf16": r"bf16|_BBS_",
    "fp32": r"sgemm|\bfloat\b",
    "fp64": r"dgemm|\bdouble\b",
}
TENSOR_CORES = r"_xmma_gemm_bf16|_MI16x16x16"


def precision_rows(ledger: Ledger, several: bool) -> list[Row]:
    """One row per GPU that computes, by host and ordinal."""
    rows = []
    for device in ledger.devices:
        parts = [
            (segment.activity, segment.end - segment.start)
            for segment in ledger.segments[id(device)]
            if ledger.counts(segment) and segment.state == "compute" and segment.activity
        ]
        if device.kind == "gpu" and parts:
            rows.append({**device_name(device, several), **_precision(parts)})
    return rows


def _precision(parts: list[tuple[Activity, int]]) -> Row:
    times: dict[str, int] = defaultdict(int)
    on_tensor_cores = 0
    for kernel, ps in parts:
        formats = [name for name, text in SPELLINGS.items() if re.search(text, kernel.kernel)]
        times[formats[0] if formats else "unknown"] += ps
        on_tensor_cores += ps * bool(re.search(TENSOR_CORES, kernel.kernel))
    return {
        "precision_ps": dict(times),
        "tensor_core_ps": on_tensor_cores,
    }
