"""Recomputes what devices did: the table of ops, ops in the used steps, directions of copies, precisions of the compute.

docs/method.md, "Ops", "Step ops", "Transfers", "Precision".
"""

from __future__ import annotations

import re
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

from tests.oracle.classes import COPY_CLASSES, Activity
from tests.oracle.intervals import Interval, clip, length, overlaps, subtract
from tests.oracle.model import Device, HostAnswer, Row, device_name
from tests.oracle.segments import Ledger, Segment


def op_rows(answers: list[HostAnswer], several: bool) -> list[Row]:
    """One row per device, class, op, kernel and program of events that overlap the window; durations are whole."""
    rows = []
    for answer in answers:
        for device in answer.devices:
            groups: dict[tuple[str, ...], list[Activity]] = {}
            inside = [a for a in device.activities if overlaps(a.span, answer.window)]
            for a in inside:
                # Programs of different functions have instructions of the same names.
                module = str(a.event.stats.get("hlo_module", ""))
                groups.setdefault((a.cls, a.op, a.op_type, a.kernel, module), []).append(a)
            for key, own in sorted(groups.items()):
                times = sorted(a.span[1] - a.span[0] for a in own)
                total = sum(times)
                rows.append(
                    {
                        **device_name(device, several),
                        **dict(zip(("class", "op", "op_type", "kernel"), key[:4], strict=True)),
                        "count": len(own),
                        "total_ps": total,
                        "mean_ps": total // len(own),
                        # The nearest rank.
                        "p95_ps": times[-(-95 * len(times) // 100) - 1],
                        "bytes": _op_bytes(own),
                    }
                )
    return rows


def _op_bytes(own: list[Activity]) -> int | None:
    """None for kernels: a trace does not record the bytes that they move."""
    known = [a.bytes for a in own if a.bytes is not None]
    return sum(known) if known else None


def stem_of(kernel: str) -> str:
    short = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    return re.sub(r"[<(].*", "", short, flags=re.DOTALL).strip() or kernel


def error_of(series: list[int]) -> float:
    """The standard error of the mean, as many neighbours as are alike counting as one."""
    count = len(series)
    mean = sum(series) / count
    squares = sum((value - mean) ** 2 for value in series)
    if not squares:
        return 0.0
    together = sum((one - mean) * (other - mean) for one, other in pairwise(series)) / squares
    alike = together + (1 + 4 * max(0, together)) / count
    alike = min(0.9, max(0, alike))
    independent = max(2, count * (1 - alike) / (1 + alike))
    return float((squares / count / (independent - 1)) ** 0.5)


def _key_of(activity: Activity) -> tuple[str, str, str, str]:
    kernel = stem_of(activity.kernel) if activity.kernel else ""
    return activity.cls, activity.op, activity.op_type, kernel


def op_step_rows(ledger: Ledger, answers: list[HostAnswer], paths: list[Row]) -> list[Row]:
    """One row per class, op and kernel, over all devices; each instant is of the event that began first."""
    numbers = sorted({step.number for answer in answers for step in answer.steps if step.used})
    groups: dict[tuple[str, str, str, str], list[tuple[int, int, Segment]]] = {}
    for place, device in enumerate(ledger.devices):
        for segment in ledger.segments[id(device)]:
            if segment.activity is not None and segment.step is not None and segment.step.used:
                row = (segment.step.number, place, segment)
                groups.setdefault(_key_of(segment.activity), []).append(row)
    on_path: dict[tuple[str, str, str, str], int] = {}
    for path in paths:
        for segment, low, high in path["spans"]:
            if segment.activity is not None:
                key = _key_of(segment.activity)
                on_path[key] = on_path.get(key, 0) + high - low
    rows = []
    for key in groups.keys() | (on_path.keys() if numbers else set()):
        parts = groups.get(key, [])
        by_step = dict.fromkeys(numbers, 0)
        for number, _, segment in parts:
            by_step[number] += segment.length
        series = list(by_step.values())
        events = {id(segment.activity) for _, _, segment in parts}
        rows.append(
            {
                **dict(zip(("class", "op", "op_type", "kernel"), key, strict=True)),
                "device_count": len({place for _, place, _ in parts}),
                "count": len(events),
                "ps_per_step": sum(series) // len(numbers),
                "error_ps": error_of(series) if len(numbers) > 1 else None,
                "path_ps": on_path.get(key, 0),
            }
        )
    return rows


BEFORE = {
    "h2d": ("compute", "collective"),
    "d2h": ("compute", "collective", "h2d"),
    "d2d": ("compute", "collective", "h2d", "d2h"),
}


def transfer_rows(answers: list[HostAnswer], several: bool) -> list[Row]:
    """One row per GPU of hosts that recorded a device event, by host and ordinal."""
    return [
        {
            **device_name(device, several),
            **{cls: _direction(answer, device, cls) for cls in COPY_CLASSES},
        }
        for answer in answers
        if any(device.activities for device in answer.devices)
        for device in answer.devices
        if device.kind in ("gpu", "tpu")
    ]


def _exposed(device: Device, cls: str, window: Interval) -> int:
    own = [a.span for a in device.of_class(cls)]
    return length(clip(subtract(own, [a.span for a in device.of_class(*BEFORE[cls])]), window))


def _direction(answer: HostAnswer, device: Device, cls: str) -> Row:
    copies = [a for a in device.of_class(cls) if overlaps(a.span, answer.window)]
    sizes = [a.bytes for a in copies if a.bytes is not None]
    is_known = bool(sizes) or not copies
    busy_ps = length(clip([a.span for a in copies], answer.window))
    exposed_ps = _exposed(device, cls, answer.window)
    low, high = answer.window
    steps = [(max(s.start, low), min(s.end, high)) for s in answer.steps if s.used]
    per_step = [_exposed(device, cls, step) for step in steps]
    window_ps = answer.window[1] - answer.window[0]
    whole_ps = sum(b - a for a, b in steps)
    parts = (sum(per_step), whole_ps) if whole_ps else (exposed_ps, window_ps)
    ratio = Fraction(*parts) if parts[1] else None
    return {
        "bytes": sum(sizes) if is_known else None,
        "count": len(copies),
        "busy_ps": busy_ps,
        "exposed_ps": exposed_ps,
        "exposed_ratio": None if ratio is None else float(ratio),
        "bytes_per_second": (
            sum(sizes) * 10**12 // busy_ps
            if busy_ps and sum(sizes) and len(sizes) == len(copies)
            else None
        ),
    }


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
            (segment.activity, segment.length)
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
