"""Hand-made reports for the tests of the renderers, with small, round numbers, and their parts with changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from msgspec import convert, json
from msgspec.structs import replace

from tests.charts import HOST, MS
from traceview.analysis.measures.device_report import (
    COPIES,
    DeviceTimeRow,
    HostEnvironment,
)
from traceview.analysis.measures.step_report import StepDevice, StepRow
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Evidence, Finding, FindingLoss
from traceview.analysis.rules.rule import rendered
from traceview.analysis.rules.words import Number
from traceview.document.figures import Lanes, UtilizationStrip
from traceview.report.model import Report
from traceview.report.saved import load_report

GOLDEN = Path(__file__).parent / "golden"
_T = TypeVar("_T")


def known(value: _T | None) -> _T:
    """A value that is there."""
    assert value is not None
    return value


def with_results(report: Report, **results: Any) -> Report:
    """The report with other results of some topics."""
    return replace(report, results=replace(report.results, **results))


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
    timeline = known(full_report().results.timeline)
    return replace(timeline.devices[0], device=device)


def lanes_of(*devices: str, rename: Callable[[str], str] = str) -> Lanes:
    """Per device the ten parts of `strip`; one slice stands for 12 kernels, one gap has two causes."""
    lanes = known(full_report().results.lanes)
    (host,), like = lanes.hosts, lanes.devices[0]
    own = tuple(replace(lane, thread=lane.thread and rename(lane.thread)) for lane in host.lanes)
    return replace(
        lanes,
        hosts=(replace(host, host=rename(host.host), lanes=own),),
        devices=tuple(replace(like, device=name, host=rename(like.host)) for name in devices),
        names=tuple(map(rename, lanes.names)),
    )


def device_rows() -> tuple[DeviceTimeRow, ...]:
    """Of the full report: two GPUs at work, and four that recorded nothing."""
    return known(full_report().results.device_time).devices


def device(
    ordinal: int, exposed_ps: Mapping[str, int] | None = None, **changes: Any
) -> DeviceTimeRow:
    """A GPU that computes 60 of 100 ms, communicates 10 and copies 5; `exposed_ps`: by class what is another time."""
    like = device_rows()[0]
    activity = dict(known(like.activity))
    for key, ps in (exposed_ps or {}).items():
        busy_ps = (1 + (key == "collective")) * ps
        activity[key] = replace(activity[key], busy_ps=busy_ps, exposed_ps=ps)
    parts = {
        "compute_ps": activity["compute"].exposed_ps,
        "communication_ps": activity["collective"].exposed_ps,
        "copies_ps": sum(activity[key].exposed_ps for key in (*COPIES, "memset")),
        "waiting_ps": 0,
    }
    named = {"device": f"GPU:{ordinal}", "ordinal": ordinal, "activity": activity} | parts
    return replace(like, **named | changes)


def empty_device(ordinal: int, **changes: Any) -> DeviceTimeRow:
    """A visible GPU that recorded nothing."""
    return replace(device_rows()[2], device=f"GPU:{ordinal}", ordinal=ordinal, **changes)


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
        parts |= {"sentences": ("several",), "arguments": {"unused": Number(4, "GPU", 6)}}
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
        gain_ps_per_step=0,
        states=states,
    )


def environment(host: str = HOST, **groups: Any) -> HostEnvironment:
    """Two GPUs of six in a MirroredStrategy; `groups` as a sidecar holds them."""
    environments = known(full_report().results.environment)
    fields = json.decode(json.encode(environments.hosts[0]))
    return convert(fields | groups | {"host": host}, HostEnvironment)


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
    steps = known(report.results.steps)
    every_state = [step if isinstance(step, Mapping) else {"compute": step} for step in steps_ms]
    rows = tuple(
        step_of_states(number, {key: int(length * MS) for key, length in states.items()})
        for number, states in enumerate(every_state)
    )
    changed = replace(steps, steps=rows, used_count=len(rows), count=len(rows))
    return with_results(report, steps=changed)
