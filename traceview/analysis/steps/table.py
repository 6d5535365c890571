"""Every step on every device as one row: what `traceview steps` lists."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict

from traceview.analysis.idle.result import Idle
from traceview.analysis.selection import Selection
from traceview.analysis.steps.result import Steps
from traceview.trace.cause import Cause


@dataclass(frozen=True)
class StepLine:
    """One step on one device; all times in picoseconds.

    The parts from `compute_ps` to `idle_ps` sum to `duration_ps`, the causes after it to `idle_ps`; causes are
    missing where the device recorded nothing. `used`: takes part in medians; `excluded` says why not.
    """

    host: str
    number: int
    recorded_number: int | None
    kind: str
    start_ps: int
    duration_ps: int
    used: bool
    excluded: str | None
    device: str
    compute_ps: int
    exposed_collective_ps: int
    exposed_h2d_ps: int
    exposed_d2h_ps: int
    exposed_d2d_ps: int
    exposed_memset_ps: int
    idle_ps: int
    input_ps: int | None
    h2d_ps: int | None
    compile_ps: int | None
    sync_ps: int | None
    checkpoint_ps: int | None
    launch_ps: int | None
    callback_ps: int | None
    host_compute_ps: int | None
    peer_ps: int | None
    dependency_ps: int | None
    latency_ps: int | None
    unattributed_ps: int | None
    unused_ps: int | None


def in_whole_steps(selection: Selection) -> Selection:
    """The same steps in windows that hold each of them to its ends, so that the causes of all its idle time are told."""
    windows = {
        host: dataclasses.replace(
            window,
            start_ps=min(window.start_ps, *(step.start_ps for step in selection.steps[host])),
            end_ps=max(window.end_ps, *(step.end_ps for step in selection.steps[host])),
        )
        if selection.steps[host]
        else window
        for host, window in selection.windows.items()
    }
    return Selection(windows, selection.steps)


def step_table(steps: Steps, idle: Idle | None, devices: Collection[str]) -> list[StepLine]:
    """The steps in time order, each with the devices of its host that are in `devices`."""
    causes = {
        (row.device, step.number): step.causes
        for row in (idle.devices if idle else ())
        for step in row.steps
    }
    return [
        StepLine(
            host=step.host,
            number=step.number,
            recorded_number=step.recorded_number,
            kind=step.kind,
            start_ps=step.start_ps,
            duration_ps=step.duration_ps,
            used=step.used,
            excluded=step.excluded,
            **asdict(part),
            **_causes(causes.get((part.device, step.number))),
        )
        for step in steps.steps
        for part in step.devices
        if part.device in devices
    ]


def _causes(known: dict[str, int] | None) -> dict[str, Any]:
    return {
        f"{cause.key}_ps": None if known is None else known.get(cause.key, 0) for cause in Cause
    }
