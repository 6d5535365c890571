"""Hand-made reports for the tests of the renderers: small, round numbers, every part present."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec.structs import asdict, replace

from tests.charts import HOST, MS, lanes_of, strip
from traceview.analysis.exchange.balance import Balance, DeviceBalance, LateDevice
from traceview.analysis.exchange.collective_sums import (
    CollectiveOp,
    CollectiveResult,
    DeviceCollectives,
)
from traceview.analysis.facts.run import Throughput
from traceview.analysis.facts.selection import ReportWindow
from traceview.analysis.gpu_time.device_states import DeviceStates, LedgerSums
from traceview.analysis.machine.capture import Capture, HostCapture
from traceview.analysis.measures.device_report import (
    ActivityTime,
    DeviceTime,
    DeviceTimeRow,
    Environment,
    HostEnvironment,
)
from traceview.analysis.measures.idle_report import Gap, Idle, IdleRow
from traceview.analysis.measures.step_report import StepDevice, StepRow, Steps
from traceview.analysis.registry import RULES, Results
from traceview.analysis.rules.finding import Evidence, Finding, FindingLoss
from traceview.analysis.rules.rule import rendered
from traceview.analysis.rules.words import Among, Devices, Number, Size
from traceview.analysis.workload.efficiency import DevicePrecision, Precision
from traceview.analysis.workload.ops import OpRow, TopOps
from traceview.document.figures import UtilizationStrips
from traceview.report.model import Report, Source, Verdict
from traceview.trace.model import Problem, SourceFile
from traceview.trace.sidecar.environment import RecordedEnvironment, read_as
from traceview.xplane.planes import CLASS_KEYS


def device(
    ordinal: int, exposed_ps: Mapping[str, int] | None = None, **changes: Any
) -> DeviceTimeRow:
    """A GPU that computes 60 of 100 ms, communicates 10 and copies 5; `exposed_ps`: by class what is another time."""
    exposed = {"compute": 60 * MS, "collective": 10 * MS, "h2d": 3 * MS, "d2h": MS, "d2d": MS}
    exposed |= {"memset": 0} | dict(exposed_ps or {})
    counts = {"compute": 1234, "collective": 4, "h2d": 5, "d2h": 4, "d2d": 1, "memset": 0}
    sizes = {"h2d": 4_000_000, "d2h": 4000}
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
        "idle_ps": 25 * MS,
        "activity": {
            key: ActivityTime(counts[key], sizes.get(key), (1 + (key == "collective")) * ps, ps)
            for key, ps in exposed.items()
        },
        "unknown_direction_count": 0,
        "memory_held_bytes": 6_000_000_000,
        "memory_peak_bytes": 6_208_853_760,
    }
    return DeviceTimeRow(**row | changes)


def empty_device(ordinal: int, **changes: Any) -> DeviceTimeRow:
    """A visible GPU that recorded nothing."""
    nothing: dict[str, Any] = {
        "status": "empty",
        "busy_ps": 0,
        "busy_ratio": 0.0,
        "idle_ps": 100 * MS,
        "activity": dict.fromkeys(CLASS_KEYS, ActivityTime(0, 0, 0, 0)),
        "memory_held_bytes": None,
        "memory_peak_bytes": None,
    }
    return device(ordinal, **nothing | changes)


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
        devices=tuple(StepDevice(name, {"compute": compute, "input": idle}) for name in devices),
    )


def step_of_states(number: int, by_state: Mapping[str, int], host: str = HOST) -> StepRow:
    """A used step in which the device of a host has so much time in each state."""
    made = step(number, sum(by_state.values()), (), None)
    return replace(made, host=host, devices=(StepDevice(f"{host}/GPU:0", dict(by_state)),))


def op(name: str | None, kernel: str | None, total_ps: int, **changes: Any) -> OpRow:
    row: dict[str, Any] = {
        "device": "GPU:0",
        "class_": "compute",
        "op": name,
        "op_type": "MatMul",
        "kernel": kernel,
        "source_line": None,
        "count": 4,
        "total_ps": total_ps,
        "mean_ps": total_ps // 4,
        "p95_ps": total_ps // 4,
        "share_ratio": total_ps / (60 * MS),
        "bytes": None,
    }
    return OpRow(**row | changes)


def finding(**changes: Any) -> Finding:
    """A finding of a rule, by default that four of six GPUs are unused; `title`: what a test wants it to say."""
    parts: dict[str, Any] = {
        "code": "unused-gpu",
        "severity": "critical",
        "confidence": "high",
        "evidence": tuple(
            Evidence("status", "empty", None, f"GPU:{n}", value_is="words") for n in (2, 3, 4, 5)
        ),
        "devices": ("GPU:2", "GPU:3", "GPU:4", "GPU:5"),
        "loss": loss(2 / 3, "no_work"),
    } | changes
    rule = RULES[parts["code"]]
    if rule.code == "unused-gpu" and "arguments" not in parts:
        parts |= {"sentences": ("several",), "arguments": {"unused": Among(4, 6, "GPU")}}
    names = re.findall(r"\{(\w+)", repr(replace(rule, starts_at="")))
    known = {name: Number(2) for name in sorted(set(names))}
    parts["arguments"] = known | parts.get("arguments", {})
    said = {key: text for key, text in changes.items() if key != "arguments"}
    return replace(rendered(Finding(**parts), rule), **said)


def loss(ratio: float, *states: str, ps: int = 16 * MS) -> FindingLoss:
    """So much of a step of 24 ms on the devices named, and this share of the GPU time, in these states."""
    return FindingLoss(
        ps_per_step=ps,
        step_ps=24 * MS,
        ratio=ps / (24 * MS),
        gpu_time_ratio=ratio,
        gpu_time_ps=round(ratio * 144 * MS),
        bound_ps_per_step=0,
        states=states,
    )


def environment(host: str = HOST, **groups: Any) -> HostEnvironment:
    """Two GPUs of six in a MirroredStrategy; `groups` as a sidecar holds them."""
    fields: dict[str, Any] = {
        "state": "saved",
        "command": {"python": ["python3", "train.py"], "script": ["train.py", "--name", "a b"]},
        "cluster": {"missing": {"is_configured": "TF_CONFIG is not set"}},
        "versions": {"tensorflow": "2.21.0", "keras": "3.15.1", "cuda": "12.5", "python": "3.11.7"},
        "strategy": {
            "class": "MirroredStrategy",
            "found_by": "variables",
            "replicas": 2,
            "devices": [f"/job:localhost/replica:0/task:0/device:GPU:{n}" for n in (0, 1)],
            "cross_device_ops": "NcclAllReduce",
            "packs": 1,
        },
        "batch": {"global": 64, "per_replica": 32, "found_by": "dataset"},
        "training": {"trainable_variables": 8, "parameters": 1_234_567},
        "precision": {"policy": {"keras": "mixed_float16"}, "tf32": True},
        "xla": {"auto_jit": "off"},
        "variables": {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5"},
    }
    recorded = read_as(RecordedEnvironment, fields | groups, [])
    return HostEnvironment(**asdict(recorded), host=host)


def idle_of(name: str) -> IdleRow:
    """A quarter of the window idle, in four states in parts that no bar divides evenly; one gap is listed."""
    states = {"input": 13 * MS, "launch": 7 * MS, "latency": 4 * MS, "unknown": MS}
    longest = Gap(
        start_ps=30 * MS,
        duration_ps=9 * MS,
        state="input",
        states={"input": 8 * MS, "launch": MS},
        before="model/dense/MatMul:MatMul",
        after=None,
        step=1,
        thread="python",
        host_event="IteratorGetNextOp::DoCompute",
    )
    return IdleRow(
        host=HOST,
        device=name,
        ordinal=int(name[-1]),
        idle_ps=25 * MS,
        gap_count=17,
        longest_gap_ps=9 * MS,
        states=states,
        gaps=(longest,),
    )


def states_of(name: str, waits_for: str | None = None) -> DeviceStates:
    """A mean step of 24 ms, the mean of the three used steps; GPU:0 waits 2 ms in collectives, mostly for GPU:1."""
    wait_ps = 0 if waits_for is None else 2 * MS
    states = {
        "compute": 14_400 * MS // 1000,
        "communication": MS,
        "device_wait": wait_ps,
        "h2d": 600 * MS // 1000,
        "input": 5 * MS - wait_ps,
        "launch": 3 * MS,
    }
    return DeviceStates(
        host=HOST,
        device=name,
        ordinal=int(name[-1]),
        step_count=3,
        step_ps=24 * MS,
        states={key: ps for key, ps in states.items() if ps},
        waits_for=waits_for,
    )


def ledger_sums() -> LedgerSums:
    """Two devices of three used steps, of 24, 23 and 25 ms."""
    devices = states_of("GPU:0", "GPU:1"), states_of("GPU:1")
    total = {
        key: 3 * sum(device.states.get(key, 0) for device in devices) for key in devices[0].states
    }
    by_state = dict(sorted(total.items(), key=lambda item: -item[1]))
    whole = sum(by_state.values())
    return LedgerSums(
        gpu_time_ps=whole,
        by_state=by_state,
        share_by_state={key: ps / whole for key, ps in by_state.items()},
        devices=devices,
    )


def device_balance(ordinal: int) -> DeviceBalance:
    """GPU 1 of two computes 16 ms per step, GPU 0 15 ms and waits 1 ms for it."""
    return DeviceBalance(
        host=HOST,
        device=f"GPU:{ordinal}",
        ordinal=ordinal,
        compute_ps_per_step=(15 + ordinal) * MS,
        waits_ps_per_step=(1 - ordinal) * MS,
        waited_for_ps_per_step=ordinal * MS,
        model="Tesla V100",
    )


def balance_result() -> Balance:
    """Two of six GPUs in use, of which the later one has more to do."""
    return Balance(
        kind="gpu",
        concurrency_ratio=0.9,
        chance_ratio=0.6,
        is_serial=False,
        straggler=LateDevice(HOST, "GPU:1", 1, reason="work", share=1.0, kernels=("einsum",)),
        throughput=Throughput(5333.3, 2666.65, 128),
        devices=tuple(map(device_balance, (0, 1))),
    )


def precision_of(name: str) -> DevicePrecision:
    """Half of 60 ms in bfloat16 on tensor cores, a third in float32 off them, the rest unknown."""
    nothing = dict.fromkeys(("fp64", "tf32", "fp16", "fp8", "int8"), 0)
    return DevicePrecision(
        host=HOST,
        device=name,
        ordinal=int(name[-1]),
        compute_ps=60 * MS,
        precision_ps={"fp32": 20 * MS, "bf16": 30 * MS, "unknown": 10 * MS, **nothing},
        low_precision_ratio=0.5,
        unknown_ratio=1 / 6,
        has_tensor_cores=True,
        tensor_core_ps=30 * MS,
        tensor_core_ratio=0.5,
        occupancy_ratio=0.6,
        sparse_ps_per_step=2 * MS,
    )


def collective_result() -> CollectiveResult:
    """Each of two devices transfers for 2 ms a step and nothing hides it; before that the first one waits 1 ms."""
    devices = tuple(
        DeviceCollectives(
            host=HOST,
            device=f"GPU:{ordinal}",
            ordinal=ordinal,
            wait_ps=4 * wait,
            exposed_ps=8 * MS + 4 * wait,
            communication_ps=8 * MS,
            communication_per_step_ps=2 * MS,
            device_wait_per_step_ps=wait,
            last_count=8 * ordinal,
        )
        for ordinal, wait in enumerate((MS, 0))
    )
    ops = tuple(
        CollectiveOp(
            op=name,
            count_per_step=1,
            device_count=2,
            bytes=size,
            exposed_ps_per_step=exposed_ps,
            wait_ps_per_step=wait_ps,
        )
        for name, size, exposed_ps, wait_ps in (
            ("all-reduce.4", 90_000_000, 2 * MS, MS // 2),
            ("all-reduce", None, MS // 2, 0),
        )
    )
    return CollectiveResult(
        device_count=2,
        count=8,
        incomplete_count=0,
        count_per_step=2,
        matched_by="keys",
        transfer_ps=8 * MS,
        transfer_per_step_ps=2 * MS,
        devices=devices,
        ops=ops,
        overlap_ratio=0.25,
        bytes=100_000_000,
        bus_bytes_per_second=50_000_000_000,
    )


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
        schema_version=2,
        traceview_version="0.1.0",
        source=Source(
            "logs",
            "2026_01_02",
            ("2026_01_01",),
            (SourceFile(f"{HOST}.xplane.pb", HOST, 3_039_638, "0" * 64, 23_128, None),),
        ),
        capture=Capture(
            "degraded",
            (
                Problem("events-dropped", "the tracer dropped 15 events", HOST),
                Problem("unlinked-kernels", "9.1% of the kernels have no recorded launch", HOST),
            ),
            (HostCapture(HOST, 1_767_312_000_000_000_000, 15),),
        ),
        windows=(ReportWindow(HOST, "steps", 0, 100 * MS),),
        verdict=Verdict(
            "4 of 6 GPUs are unused.",
            "problem",
            finding="unused-gpu",
            compute_ratio=0.6,
            unknown_ratio=0.0,
        ),
        results=Results(
            device_time=DeviceTime((*map(device, (0, 1)), *map(empty_device, (2, 3, 4, 5)))),
            steps=Steps(
                "marker",
                "high",
                "marker",
                None,
                None,
                4,
                3,
                24 * MS,
                (
                    step(0, 28 * MS, working, "holds tracing or compilation"),
                    *(step(n, d * MS, working, None) for n, d in ((1, 24), (2, 23), (3, 25))),
                ),
            ),
            timeline=UtilizationStrips(240, tuple(map(strip, working))),
            ledger=ledger_sums(),
            idle=Idle(tuple(map(idle_of, working))),
            ops=TopOps(ops, 40),
            environment=Environment((environment(),), ()),
            collectives=collective_result(),
            balance=balance_result(),
            lanes=lanes_of(*working),
            precision=Precision(0.5, tuple(map(precision_of, working))),
        ),
        skipped={},
        findings=(
            finding(),
            finding(
                code="gpu-shared",
                severity="warning",
                confidence="medium",
                sentences=("", "", "holds", "holds"),
                arguments={
                    "who": Devices(("GPU:2",), 6),
                    "others": Number(1, "other process"),
                    "memory": Size(536_870_912),
                },
                evidence=(Evidence("memory_ratio", 0.1, 0.05, "GPU:2", "process 41"),),
                devices=("GPU:2",),
                loss=None,
            ),
            finding(
                code="few-steps",
                severity="info",
                arguments={
                    "count": Number(2, "used step"),
                    "all": Number(4, "step"),
                    "left_out": Number(1),
                },
                evidence=(Evidence("used_count", 2, 3, ""),),
                devices=(),
                loss=None,
            ),
        ),
        command=("traceview", "report", "logs", "--run", "2026_01_02", "-o", "report"),
    )


def of_run(report: Report, name: str) -> Report:
    """The same numbers of another run, with other traces."""
    files = tuple(
        replace(file, sha256=sha256(f"{name} {file.name}".encode()).hexdigest())
        for file in report.source.files
    )
    return replace(report, source=replace(report.source, run=name, files=files))


def with_steps(*steps_ms: float | Mapping[str, float]) -> Report:
    """The full report with these used steps: a device computes for so long, or is so long in each state."""
    report = full_report()
    steps = report.results.steps
    assert steps is not None
    every_state = [step if isinstance(step, Mapping) else {"compute": step} for step in steps_ms]
    rows = tuple(
        step_of_states(number, {key: int(length * MS) for key, length in states.items()})
        for number, states in enumerate(every_state)
    )
    changed = replace(steps, steps=rows, used_count=len(rows), count=len(rows))
    return replace(report, results=replace(report.results, steps=changed))


def bare_report() -> Report:
    """Nothing could be measured: no steps, no numbers, no timeline, no ops."""
    unknown = {
        key: None
        for key in asdict(device(0))
        if key.endswith(("_ps", "_count", "_bytes", "_ratio")) or key == "activity"
    }
    return Report(
        schema_version=2,
        traceview_version="0.1.0",
        source=Source("logs", "run1", (), (SourceFile("a.xplane.pb", "a", 887, None, 0, None),)),
        capture=Capture(
            "unusable",
            (Problem("gpu-planes-empty", "1 device planes, none with an event", "a"),),
            (),
        ),
        windows=(),
        verdict=Verdict("1 device visible, none with a recorded event.", "unusable"),
        results=Results(
            device_time=DeviceTime((device(0, status="empty", **unknown),)),
            steps=None,
            timeline=None,
            idle=None,
            ops=None,
        ),
        skipped={
            "steps": "no steps: nothing repeats",
            "timeline": "no devices",
            "ops": "no events",
        },
        findings=(),
    )
