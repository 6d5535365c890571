"""CPU devices of XLA programs (docs/method.md, "Replicas")."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.oracle.classes import Activity, classify_tpu, is_loop_of_ops
from tests.oracle.reading import Event, Host
from tests.oracle.replicas import has_gpu_evidence


def find_xla_devices(host: Host) -> dict[int, list[Activity]]:
    """The ops of each device by `device_ordinal`."""
    if has_gpu_evidence(host):
        return {}
    events = host.host_events()
    ends: dict[int, int] = {}
    for event in events:
        number = event.integer("_c")
        if event.name.startswith("end: ") and number is not None:
            ends[number] = max(event.end, ends.get(number, event.end))
    meetings = [one for one in events if one.name in ("Rendezvous", "InvokeRendezvous")]
    by_device: dict[int, list[Event]] = {}
    for event in events:
        ordinal = event.integer("device_ordinal")
        if ordinal is not None and re.fullmatch(r"[A-Za-z_][\w.\-]*", event.name, re.ASCII):
            by_device.setdefault(ordinal, []).append(event)
    found = {}
    for ordinal, ops in sorted(by_device.items()):
        activities = [_activity(op, ends, meetings) for op in ops if not is_loop_of_ops(op, ops)]
        collectives = [a.span for a in activities if a.cls == "collective"]
        found[ordinal] = [_cut(activity, collectives) for activity in activities]
    return found


def _cut(activity: Activity, collectives: list[tuple[int, int]]) -> Activity:
    """An op that is left to other threads counts until the device is in a collective."""
    own_end = activity.event.end
    later = [start for start, end in collectives if end > own_end]
    if activity.cls == "collective" or not later:
        return activity
    return replace(activity, end=max(own_end, min(activity.span[1], *later)))


def _activity(event: Event, ends: dict[int, int], meetings: list[Event]) -> Activity:
    """Collectives, as named or where devices meet inside, and compute; an op ends where its `end:` is, if that is later."""
    is_collective = classify_tpu(event).cls == "collective" or any(
        one.line is event.line and event.start <= one.start < event.end for one in meetings
    )
    end = ends.get(event.integer("_p") or -1, event.end)
    return Activity(
        event,
        "collective" if is_collective else "compute",
        "",
        event.name,
        "",
        self_ps_children=True,
        end=max(end, event.end),
    )
