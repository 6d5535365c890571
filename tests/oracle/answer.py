"""Recomputes the windows, device_time, steps, idle, transfers, precision and ops of a report (docs/method.md)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.oracle.balance import balance_row
from tests.oracle.classes import (
    CLASSES,
    COPY_CLASSES,
    Activity,
    classify,
    classify_tpu,
    is_loop_of_ops,
    line_never_counts,
)
from tests.oracle.collectives import collective_answer, find_clocks
from tests.oracle.idle import idle_rows
from tests.oracle.intervals import Interval, clip, length, overlaps, subtract, union
from tests.oracle.ledger import busy_parts, ledger_answer, path_rows, plain_rows
from tests.oracle.links import Links
from tests.oracle.model import Device, HostAnswer, Row, device_name
from tests.oracle.ops import op_rows, op_step_rows, precision_rows, transfer_rows
from tests.oracle.reading import Host, Plane, read_hosts
from tests.oracle.repeating import periodic_steps
from tests.oracle.replicas import find_replicas, find_xla_devices, on_logical_devices
from tests.oracle.segments import Ledger
from tests.oracle.steps import (
    METHODS,
    begins_with_tracing,
    find_marks,
    group_steps,
    marked_steps,
    median,
    number_steps,
)

# Devices


def _gpu(host: Host, plane: Plane, ordinal: int, links: Links) -> Device:
    model = plane.stats.get("gpu_device_name")
    device = Device(host.name, "gpu", ordinal, model if isinstance(model, str) else None)
    for line in plane.lines:
        if line_never_counts(line):
            continue
        for event in line.events:
            activity = classify(event, links.calls(event))
            if activity is not None:
                device.activities.append(activity)
    return device


def _tpu(host: Host, plane: Plane, ordinal: int) -> Device:
    device = Device(host.name, "tpu", ordinal, None)
    for line in plane.lines:
        if line.name == "XLA Ops":
            device.activities += [
                classify_tpu(event)
                for event in line.events
                if not is_loop_of_ops(event, line.events)
            ]
    return device


def _memory(host: Host, devices: list[Device]) -> None:
    """The last `bytes_allocated` and the largest `peak_bytes_in_use` of `GPU_<n>_bfc`."""
    held: dict[int, list[tuple[int, int, int]]] = {}
    peaks: dict[int, list[int]] = {}
    for event in host.host_events():
        allocator = re.fullmatch(r"GPU_(\d+)_bfc", event.text("allocator_name"))
        if allocator is None or event.name not in ("MemoryAllocation", "MemoryDeallocation"):
            continue
        number = int(allocator.group(1))
        now, peak = event.integer("bytes_allocated"), event.integer("peak_bytes_in_use")
        if now is not None:
            held.setdefault(number, []).append((event.start, event.order, now))
        if peak is not None:
            peaks.setdefault(number, []).append(peak)
    gpus = {device.ordinal: device for device in devices if device.kind == "gpu"}
    # With virtual GPUs the numbers of allocators differ from those of planes. An allocator whose
    # number no GPU plane has shows that; then no allocator of the host is used.
    if (held.keys() | peaks.keys()) - gpus.keys():
        return
    for ordinal, device in gpus.items():
        if ordinal in held:
            device.held_bytes = max(held[ordinal])[2]
        if ordinal in peaks:
            device.peak_bytes = max(peaks[ordinal])


def _read(host: Host, files: list[Path]) -> HostAnswer:
    links = Links(host)
    devices: list[Device] = []
    for plane in host.planes.values():
        # Other device planes (CUSTOM, SparseCore, …) have no rows.
        match = re.fullmatch(r"/device:(GPU|TPU):(\d+)", plane.name)
        if match is None:
            continue
        ordinal = int(match.group(2))
        gpu = match.group(1) == "GPU"
        devices.append(_gpu(host, plane, ordinal, links) if gpu else _tpu(host, plane, ordinal))
    replicas, shared = find_replicas(host, links)
    numbers = _logical_cpus(_group(files, host.name, "placement"))
    model = None
    if set(replicas) == {0} and len(numbers) > 1:
        replicas, model = on_logical_devices(host, links, replicas[0], numbers), "CPU"
    devices += [Device(host.name, "replica", k, model, own) for k, own in replicas.items()]
    if not replicas:
        found = find_xla_devices(host)
        devices += [Device(host.name, "replica", k, "CPU", own) for k, own in found.items()]
        shared = [] if found else shared
    devices.sort(key=lambda device: (device.kind, device.ordinal))
    _memory(host, devices)
    return HostAnswer(host, links, devices, shared)


# Steps


def _find_steps(answers: list[HostAnswer]) -> tuple[str, str | None]:
    """Fill in the steps of all hosts; return method and basis.

    Method and basis are the same for the whole run. The first method with which any host has steps
    counts for all hosts; if one host runs ahead, the basis of all hosts is the devices.
    """
    for method in METHODS:
        if method in ("group", "period"):
            is_stored = method == "group"
            for answer in answers:
                answer.steps = (
                    group_steps(answer.host, answer.activities())
                    if is_stored
                    else periodic_steps(answer)
                )
                if answer.steps:
                    answer.steps[0].used &= not begins_with_tracing(answer.host, answer.steps)
            # Of stored steps nothing runs ahead (docs/method.md, "Steps without a marker"); repeating kernels are device
            # events, so their steps are cut at the devices.
            basis = "marker" if is_stored else "device"
        else:
            pairs = [
                marked_steps(a.host, a.links, find_marks(a.host, a.links, method), a.activities())
                for a in answers
            ]
            basis = "device" if any(shifted is not None for _, shifted in pairs) else "marker"
            for answer, (plain, shifted) in zip(answers, pairs, strict=True):
                answer.steps = plain if shifted is None else shifted
        if any(answer.steps for answer in answers):
            for answer in answers:
                number_steps(answer.steps)
                answer.step_method = method
            return method, basis
    # Without steps the method is "none", as in the truths of the scenarios, and there is no basis.
    return "none", None


# Windows


def _set_window(answer: HostAnswer, kind: str) -> None:
    """A window that the host cannot have falls back like `auto`."""
    host = answer.host
    spans = [activity.span for activity in answer.activities()]
    choices: dict[str, Interval] = {}
    if answer.steps:
        # Every step has a start and an end, so one step suffices.
        starts, ends = [s.start for s in answer.steps], [s.end for s in answer.steps]
        choices["steps"] = (min(starts), max(ends))
    if spans:
        choices["devices"] = (min(s for s, _ in spans), max(e for _, e in spans))
    if host.start_ns is not None and host.stop_ns is not None:
        stop = host.shift + (host.stop_ns - host.start_ns) * 1000
        choices["trace"] = (host.shift, stop)
    else:
        events = host.all_events()
        choices["trace"] = (
            min((e.start for e in events), default=0),
            max((e.end for e in events), default=0),
        )
    order = ["steps", "devices", "trace"]
    wanted = order if kind == "auto" else [kind, *order]
    answer.window_kind = next(name for name in wanted if name in choices)
    answer.window = choices[answer.window_kind]


def _narrow(answer: HostAnswer, chosen: tuple[int, int]) -> None:
    """`--steps A:B` selects by `number` (renumbered if the numbers restart) and narrows the window."""
    answer.steps = [s for s in answer.steps if chosen[0] <= s.number < chosen[1]]
    if not answer.steps:
        raise ValueError(f"{answer.host.name} has no step {chosen[0]}:{chosen[1]}")
    low = max(answer.window[0], min(s.start for s in answer.steps))
    high = min(answer.window[1], max(s.end for s in answer.steps))
    answer.window = (low, max(low, high))


# Device time


def _parts(device: Device, window: Interval) -> Row:
    """The exclusive parts of a window (docs/method.md, "Exposed time")."""
    inside = [a for a in device.activities if overlaps(a.span, window)]
    spans = {cls: union(clip([a.span for a in inside if a.cls == cls], window)) for cls in CLASSES}
    window_ps = window[1] - window[0]
    busy_ps = length(s for own in spans.values() for s in own)
    exposed: dict[str, int] = {}
    above: list[Interval] = []
    for cls in CLASSES:
        exposed[cls] = length(subtract(spans[cls], above))
        above += spans[cls]
    row: Row = {
        "window_ps": window_ps,
        "busy_ps": busy_ps,
        "busy_ratio": busy_ps / window_ps if window_ps else None,
        **{f"exposed_{cls}_ps": exposed[cls] for cls in CLASSES},
        "idle_ps": window_ps - busy_ps,
        "total_ps": {cls: length(spans[cls]) for cls in CLASSES},
        "kernel_count": sum(a.cls == "compute" for a in inside),
        "collective_count": sum(a.cls == "collective" for a in inside),
        "copy_count": sum(a.cls in COPY_CLASSES for a in inside),
        "memset_count": sum(a.cls == "memset" for a in inside),
        "unknown_direction_count": sum(a.unknown_direction for a in inside),
    }
    assert sum(exposed.values()) + row["idle_ps"] == window_ps
    for cls in COPY_CLASSES:
        row[f"{cls}_bytes"] = _bytes([a for a in inside if a.cls == cls])
    return row


def _bytes(activities: list[Activity]) -> int | None:
    """The sum of the known sizes; None if there are activities and no size is known."""
    known = [a.bytes for a in activities if a.bytes is not None]
    return None if activities and not known else sum(known)


def _status(device: Device, busiest_ps: int) -> str:
    """Over the whole recording, not the window."""
    compute = length(a.span for a in device.of_class("compute"))
    if device.of_class("compute", "collective"):
        # A device with collectives and no compute has a kernel: it is marginal.
        return "marginal" if 5 * compute < busiest_ps else "active"
    if device.activities:
        # Fills without a copy count as copies here.
        return "copy_only"
    return "memory_only" if device.held_bytes else "empty"


def _device_rows(answers: list[HostAnswer], ledger: Ledger, several: bool) -> list[Row]:
    # The busiest device of the whole run, not of the host.
    computes = [length(a.span for a in d.of_class("compute")) for x in answers for d in x.devices]
    busiest_ps = max(computes, default=0)
    rows = []
    for answer in answers:
        worked = any(device.activities for device in answer.devices)
        for device in answer.devices:
            parts = _parts(device, answer.window) | busy_parts(ledger, device)
            if not worked:
                # The numbers of such a device are None, except the length of the window.
                parts = {k: v if k == "window_ps" else None for k, v in parts.items()}
            rows.append(
                {
                    **device_name(device, several),
                    "model": device.model,
                    "status": _status(device, busiest_ps),
                    **parts,
                    "memory_held_bytes": device.held_bytes,
                    "memory_peak_bytes": device.peak_bytes,
                }
            )
    return rows


def _step_rows(answers: list[HostAnswer], ledger: Ledger, several: bool) -> list[Row]:
    return [
        {
            "host": step.host,
            "number": step.number,
            "recorded_number": step.recorded_number,
            "start_ps": step.start,
            "duration_ps": step.end - step.start,
            "kind": step.kind,
            "devices": [
                {
                    **device_name(device, several),
                    "states": ledger.states_of(device, step),
                }
                for device in answer.devices
            ],
        }
        for answer in answers
        for step in answer.steps
    ]


def _group(files: list[Path], host: str, name: str) -> dict[str, Any]:
    """A group of the sidecar of a host."""
    for file in files:
        sidecar = file.with_name(f"{host}.traceview.json")
        if file.name == f"{host}.xplane.pb" and sidecar.exists():
            group: dict[str, Any] = json.loads(sidecar.read_text("utf-8")).get(name) or {}
            return group
    return {}


def _logical_cpus(placement: dict[str, Any]) -> list[int]:
    """The numbers of the logical CPU devices for which ops of step functions ask."""
    asked = {
        re.search(r"CPU:(\d+)$", name)
        for function in placement.get("functions", [])
        for name, count in function.get("ops_per_device", {}).items()
        if count
    }
    return sorted({int(match.group(1)) for match in asked if match})


def run_answer(
    files: list[Path], window: str = "auto", steps: tuple[int, int] | None = None
) -> dict[str, Any]:
    """The answer that traceview should give for these `*.xplane.pb` files.

    `window` is auto, steps, devices or trace; `steps` is half-open, like `--steps A:B`.
    Times are ps since the run's origin.
    """
    answers = [_read(host, files) for host in read_hosts(files)]
    several = len(answers) > 1
    method, basis = _find_steps(answers)
    clocks, spreads = find_clocks(answers)
    if any(clocks.values()):
        answers = [_read(host, files) for host in read_hosts(files, clocks)]
        method, basis = _find_steps(answers)
    for answer in answers:
        answer.end_spread = spreads.get(answer.host.name, 0)
        answer.shares_ends = answer.host.name in spreads
        answer.cores = _group(files, answer.host.name, "cores").get("usable_count")
        untrained = _group(files, answer.host.name, "graphs").get("untrained_ops", [])
        answer.untrained = frozenset(untrained)
        if method == "marker":
            # Steps that a capture recorded on either side of the requested steps.
            edges = _group(files, answer.host.name, "window").get("edge_steps", [])
            answer.steps = [step for step in answer.steps if step.recorded_number not in edges]
            if edges and answer.steps:
                answer.steps[0].used &= not begins_with_tracing(answer.host, answer.steps)
        _set_window(answer, window)
        if steps is not None:
            _narrow(answer, steps)
        low, high = answer.window
        answer.steps = [step for step in answer.steps if step.start < high and step.end > low]
    used = [s.end - s.start for answer in answers for s in answer.steps if s.used]
    clusters = [_group(files, answer.host.name, "cluster") for answer in answers]
    has_servers = any("ps" in (cluster.get("sizes") or {}) for cluster in clusters)
    ops = op_rows(answers, several)
    ledger = Ledger(answers)
    paths = path_rows(ledger, answers)
    return {
        "windows": [
            {
                "host": answer.host.name,
                "kind": answer.window_kind,
                "start_ps": answer.window[0],
                "end_ps": answer.window[1],
            }
            for answer in answers
        ],
        "device_time": {"devices": _device_rows(answers, ledger, several)},
        "steps": {
            "method": method,
            "basis": basis,
            # The entries of `steps`, so that two hosts with four steps each count eight.
            "count": sum(len(answer.steps) for answer in answers),
            "used_count": len(used),
            "median_ps": median(used),
            "steps": _step_rows(answers, ledger, several),
        },
        "ops": ops,
        "op_steps": op_step_rows(ledger, answers, paths),
        "transfers": transfer_rows(answers, several),
        "collectives": collective_answer(answers, several),
        "precision": precision_rows(ledger, several),
        "idle": idle_rows(answers, several),
        "path": paths,
        "ledger": ledger_answer(ledger, several),
        "segments": plain_rows(ledger, several),
        # Processes that each work at their own pace, as with parameter servers, are not compared.
        "balance": None if several and has_servers else balance_row(answers, ledger, several),
    }
