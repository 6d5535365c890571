"""Hand-made reports for the tests of the renderers, with small, round numbers; and builders of their parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from tests.charts import HOST, MS
from traceview.analysis.measures.device_report import (
    ActivityTime,
    DeviceTimeRow,
    HostEnvironment,
)
from traceview.analysis.measures.step_report import StepDevice, StepRow
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Evidence, Finding, FindingLoss
from traceview.analysis.rules.rule import rendered
from traceview.analysis.rules.words import Among, Number
from traceview.analysis.workload.ops import OpRow
from traceview.document.figures import Lanes, UtilizationStrip
from traceview.report.model import Report
from traceview.report.saved import load_report
from traceview.trace.sidecar.environment import RecordedEnvironment, read_as
from traceview.xplane.planes import CLASS_KEYS

GOLDEN = Path(__file__).parent / "golden"


@cache
def full_report() -> Report:
    """Six GPUs, two at work, four empty; four steps, one left out; findings of every severity."""
    return load_report(GOLDEN / "full_report.json")


@cache
def bare_report() -> Report:
    """Nothing could be measured: no steps, no numbers, no timeline, no ops."""
    return load_report(GOLDEN / "bare_report.json")


def strip(device: str) -> UtilizationStrip:
    """Ten parts of 10 ms: six compute, one communicates, one copies, one does little, one is idle."""
    timeline = full_report().results.timeline
    assert timeline is not None
    return replace(timeline.devices[0], device=device)


def lanes_of(*devices: str, rename: Callable[[str], str] = str) -> Lanes:
    """Per device the ten parts of `strip`; one slice stands for 12 kernels, one gap has two causes."""
    lanes = full_report().results.lanes
    assert lanes is not None
    (host,), like = lanes.hosts, lanes.devices[0]
    own = tuple(replace(lane, thread=lane.thread and rename(lane.thread)) for lane in host.lanes)
    return replace(
        lanes,
        hosts=(replace(host, host=rename(host.host), lanes=own),),
        devices=tuple(replace(like, device=name, host=rename(like.host)) for name in devices),
        names=tuple(map(rename, lanes.names)),
    )


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
