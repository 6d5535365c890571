"""Draws a run: findings and steps first, then every device with what it did, then the hosts."""

from __future__ import annotations

from traceview.analysis.context import Context
from traceview.analysis.selection import Selection
from traceview.export.activity import Launched, device_tracks, host_tracks, launched
from traceview.export.conclusions import (
    busy_counter,
    collective_tracks,
    finding_tracks,
    state_tracks,
    step_tracks,
)
from traceview.export.scene import Labels, Process, Scene
from traceview.report.model import Report
from traceview.trace.model import Trace


def drawn(context: Context, report: Report) -> Scene:
    """The scene of the window: the events that overlap it, in whole, and the conclusions of `report`."""
    trace, selection = context.trace, context.selection
    labels = Labels(trace.names)
    arrows = launched(trace, selection)
    conclusions = Process(
        "traceview",
        (
            *finding_tracks(trace, selection, report.findings, labels),
            *step_tracks(trace, selection, labels),
        ),
    )
    devices = [
        Process(
            _device_name(trace, device),
            (
                *state_tracks(context.ledger, device, labels),
                *collective_tracks(trace, selection, device, context.collectives, labels),
                *device_tracks(trace, selection, device, arrows, labels),
            ),
            tuple(busy_counter(trace, selection, device)),
        )
        for device in range(len(trace.device_list))
    ]
    hosts = [_host(trace, selection, host, arrows, labels) for host in range(len(trace.hosts))]
    return Scene((conclusions, *devices, *hosts), labels)


def _host(
    trace: Trace, selection: Selection, host: int, arrows: Launched, labels: Labels
) -> Process:
    tracks = tuple(host_tracks(trace, selection, host, arrows, labels))
    return Process(f"host {trace.hosts[host].name}", tracks)


def _device_name(trace: Trace, device: int) -> str:
    model = trace.device_list[device].model
    key = trace.device_key(device)
    return f"{key} ({model})" if model else key
