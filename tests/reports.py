"""Hand-made reports for the tests of the renderers: small, round numbers, every part present."""

from __future__ import annotations

from typing import Any

from traceview.analyses.capture import Capture, HostCapture
from traceview.analyses.device_time import DeviceTime, DeviceTimeRow, SharedTime
from traceview.analyses.finding import Evidence, Finding
from traceview.analyses.ops import OpRow, Ops
from traceview.analyses.steps import StepDevice, StepRow, Steps
from traceview.analyses.timeline import DeviceTimeline, Timeline
from traceview.report.model import (
    Report,
    ReportFile,
    ReportWindow,
    Results,
    Source,
    Verdict,
    VerdictNumber,
)
from traceview.trace.model import Problem

MS = 10**9
HOST = "worker0"


def device(ordinal: int, **changes: Any) -> DeviceTimeRow:
    """A GPU that computes 60 of 100 ms, communicates 10 and copies 5."""
    row: dict[str, Any] = {
        "host": HOST,
        "device": f"GPU:{ordinal}",
        "ordinal": ordinal,
        "kind": "gpu",
        "model": "Tesla V100",
        "status": "active",
        "window_ps": 100 * MS,
        "busy_ps": 75 * MS,
        "busy_ratio": 0.75,
        "compute_ps": 60 * MS,
        "compute_ratio": 0.6,
        "exposed_collective_ps": 10 * MS,
        "exposed_h2d_ps": 3 * MS,
        "exposed_d2h_ps": MS,
        "exposed_d2d_ps": MS,
        "exposed_memset_ps": 0,
        "idle_ps": 25 * MS,
        "total_ps": {
            "compute": 60 * MS,
            "collective": 20 * MS,
            "h2d": 3 * MS,
            "d2h": MS,
            "d2d": MS,
            "memset": 0,
        },
        "kernel_count": 1234,
        "collective_count": 4,
        "copy_count": 10,
        "memset_count": 0,
        "h2d_bytes": 4_000_000,
        "d2h_bytes": 4000,
        "d2d_bytes": None,
        "unknown_direction_count": 0,
        "opaque_count": 0,
        "memory_held_bytes": 6_000_000_000,
        "memory_peak_bytes": 6_208_853_760,
    }
    return DeviceTimeRow(**row | changes)


def empty_device(ordinal: int, **changes: Any) -> DeviceTimeRow:
    """A visible GPU that recorded nothing."""
    times = {
        key: 0
        for key in vars(device(0))
        if key.endswith(("_ps", "_count", "_bytes", "_ratio")) and key != "total_ps"
    }
    nothing: dict[str, Any] = {
        **times,
        "status": "empty",
        "window_ps": 100 * MS,
        "idle_ps": 100 * MS,
        "busy_ratio": 0.0,
        "compute_ratio": 0.0,
        "total_ps": dict.fromkeys(("compute", "collective", "h2d", "d2h", "d2d", "memset"), 0),
        "memory_held_bytes": None,
        "memory_peak_bytes": None,
    }
    return device(ordinal, **nothing | changes)


def timeline_of(name: str) -> DeviceTimeline:
    """Ten parts of 10 ms: six compute, one communicates, one copies, one does little, one is idle."""
    slice_ps = 100 * MS // 240
    kinds = "cccccc" + "m" + "o" + "l" + "i"

    def where(kind: str, share: float = 1.0) -> tuple[int, ...]:
        return tuple(round(slice_ps * share) * (kinds[i // 24] == kind) for i in range(240))

    little = where("l", 0.25)
    return DeviceTimeline(
        name,
        0,
        100 * MS,
        compute_ps=tuple(map(sum, zip(where("c"), little, strict=True))),
        collective_ps=where("m"),
        copy_ps=where("o"),
        idle_ps=tuple(map(sum, zip(where("i"), where("l", 0.75), strict=True))),
    )


def step(number: int, duration_ps: int, devices: tuple[str, ...], excluded: str | None) -> StepRow:
    compute, idle = duration_ps * 3 // 5, duration_ps - duration_ps * 3 // 5
    return StepRow(
        host=HOST,
        number=number,
        recorded_number=number,
        kind="train",
        start_ps=number * 25 * MS,
        duration_ps=duration_ps,
        used=excluded is None,
        excluded=excluded,
        devices=tuple(StepDevice(compute, 0, 0, 0, 0, 0, idle, name) for name in devices),
    )


def op(name: str | None, kernel: str | None, total_ps: int, **changes: Any) -> OpRow:
    row: dict[str, Any] = {
        "device": "GPU:0",
        "class_": "compute",
        "op": name,
        "op_type": "MatMul",
        "kernel": kernel,
        "count": 4,
        "total_ps": total_ps,
        "self_ps": total_ps,
        "mean_ps": total_ps // 4,
        "median_ps": total_ps // 4,
        "p95_ps": total_ps // 4,
        "share_ratio": total_ps / (60 * MS),
        "bytes": None,
    }
    return OpRow(**row | changes)


def finding(**changes: Any) -> Finding:
    parts: dict[str, Any] = {
        "code": "unused-gpu",
        "severity": "critical",
        "title": "4 of 6 visible GPUs recorded no event",
        "explanation": "GPU:2, GPU:3, GPU:4 and GPU:5 did nothing in the whole recording while "
        "other GPUs of the job worked.",
        "advice": "Let the strategy use them: tf.distribute.MirroredStrategy() takes every GPU.",
        "confidence": "high",
        "confidence_reason": "the tracer recorded other GPUs of the same process",
        "evidence": tuple(Evidence("status", "empty", None, f"GPU:{n}") for n in (2, 3, 4, 5)),
        "devices": ("GPU:2", "GPU:3", "GPU:4", "GPU:5"),
        "cost_ps_per_step": 16 * MS,
        "cost_ratio": 2 / 3,
    }
    return Finding(**parts | changes)


def full_report() -> Report:
    """Six GPUs, two at work, four empty; four steps, one left out; findings of every severity."""
    working = ("GPU:0", "GPU:1")
    long_op = "model/transformer/layer_11/self_attention/attention_output/einsum/Einsum"
    long_kernel = "void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_256x128>(Params)"
    ops = tuple(
        row
        for name in working
        for row in (
            op(long_op, long_kernel, 30 * MS, device=name),
            op("model/dense/MatMul", "sgemm_128x64", 20 * MS, device=name),
            op(None, "MemcpyH2D", 3 * MS, device=name, class_="h2d", share_ratio=None),
        )
    )
    return Report(
        schema_version=1,
        traceview_version="0.1.0",
        source=Source(
            "logs",
            "2026_01_02",
            ("2026_01_01",),
            (ReportFile(f"{HOST}.xplane.pb", HOST, 3_039_638, "0" * 64, 23_128, None),),
        ),
        capture=Capture(
            "degraded",
            (
                Problem("events-dropped", "the tracer dropped 15 events", HOST),
                Problem("cut-last-step", "3 launches at the end have no device event", HOST),
            ),
            (
                HostCapture(
                    HOST,
                    1_767_312_000_000_000_000,
                    1_767_312_000_100_000_000,
                    100 * MS,
                    23_128,
                    2500,
                    15,
                    0.0,
                    (),
                    ("Detected GPU events dropped",),
                ),
            ),
        ),
        windows=(ReportWindow(HOST, "steps", 0, 100 * MS),),
        verdict=Verdict(
            "2 of 6 GPUs ran kernels (GPU:0 and GPU:1); 4 recorded nothing.",
            (
                VerdictNumber("median_step_ps", "step time (median)", 24 * MS),
                VerdictNumber("least_busy_ratio", "busy, least busy device in use", 0.75),
                VerdictNumber("mean_busy_ratio", "busy, mean of devices in use", 0.75),
            ),
        ),
        results=Results(
            device_time=DeviceTime(
                (*map(device, (0, 1)), *map(empty_device, (2, 3, 4, 5))), shared=()
            ),
            steps=Steps(
                "marker",
                "marker",
                4,
                3,
                24 * MS,
                MS,
                0.04,
                (
                    step(0, 28 * MS, working, "holds tracing or compilation"),
                    *(step(n, d * MS, working, None) for n, d in ((1, 24), (2, 23), (3, 25))),
                ),
            ),
            timeline=Timeline(240, tuple(map(timeline_of, working))),
            ops=Ops(ops, 40, 34),
        ),
        skipped={},
        findings=(
            finding(),
            finding(
                code="memory-held-idle-gpu",
                severity="warning",
                title="0.5 GB of memory held on GPU:2",
                explanation="No kernel ran there.",
                advice="Hide it.",
                confidence="medium",
                confidence_reason="other processes may use it",
                evidence=(Evidence("memory_held_bytes", 536_870_912, 256_000_000, "GPU:2"),),
                cost_ps_per_step=None,
                cost_ratio=None,
            ),
            finding(
                code="few-steps",
                severity="info",
                title="only 2 steps to judge by",
                evidence=(Evidence("used_count", 2, 3, "steps"),),
                devices=(),
                cost_ps_per_step=None,
                cost_ratio=0.051,
            ),
        ),
    )


def bare_report() -> Report:
    """Nothing could be measured: no steps, no numbers, no timeline, no ops."""
    unknown = {
        key: None for key in vars(device(0)) if key.endswith(("_ps", "_count", "_bytes", "_ratio"))
    }
    return Report(
        schema_version=1,
        traceview_version="0.1.0",
        source=Source("logs", "run1", (), (ReportFile("a.xplane.pb", "a", 887, None, 0, None),)),
        capture=Capture(
            "unusable",
            (Problem("gpu-planes-empty", "1 device planes, none with an event", "a"),),
            (),
        ),
        windows=(),
        verdict=Verdict(
            "1 devices are visible and none recorded an event.",
            (
                VerdictNumber("median_step_ps", "step time (median)", None),
                VerdictNumber("least_busy_ratio", "busy, least busy device in use", None),
            ),
        ),
        results=Results(
            device_time=DeviceTime((device(0, status="empty", **unknown),), (SharedTime("a", MS),)),
            steps=None,
            timeline=None,
            ops=None,
        ),
        skipped={
            "steps": "no steps: nothing repeats",
            "timeline": "no devices",
            "ops": "no events",
        },
        findings=(),
    )
