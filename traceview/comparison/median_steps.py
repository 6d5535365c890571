"""Draws the median step of each side on one scale, from one start: what each device did when."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from traceview.analysis.base import Skipped
from traceview.analysis.facts.step_report import StepRow, median_step
from traceview.comparison.captures import SIDES
from traceview.comparison.model import StateDifference
from traceview.document import numbers
from traceview.document.chart import DeviceLanes, Lanes
from traceview.document.figures import AlignedSteps, StepLane
from traceview.document.vocabulary import Look
from traceview.report.absent import is_lost
from traceview.report.identity import devices_of
from traceview.report.model import Report

MOST_DEVICES: Final = 8
"""Of each side."""
_KINDS: Final = ("idle", "copies", "communication", "compute")
"""From what is covered to what covers: compute is shown wherever it runs."""


def aligned_steps(
    before: Sequence[Report], after: Sequence[Report], states: Sequence[StateDifference] = ()
) -> AlignedSteps | Skipped:
    """The devices of the median steps, before and after below each other; Skipped where a report has no timeline.

    Of several captures of a side the first stands for it. `states`: what differs beyond noise of them is marked.
    """
    marked = {row.state for row in states if row.is_shown}
    if "communication" in marked:
        marked.add("collective")
    sides = []
    for name, report in zip(SIDES, (before[0], after[0]), strict=True):
        of_side = dict(_lanes_of(name, report, marked))
        if not of_side:
            return Skipped(_why_no_lanes(name, report))
        sides.append(of_side)
    old, new = sides
    for device in old.keys() & new.keys():
        longer_ps = new[device].step_ps - old[device].step_ps
        new[device] = replace(new[device], note=numbers.signed_time(longer_ps))
    devices = list(dict.fromkeys([*old, *new]))[:MOST_DEVICES]
    lanes = [side[device] for device in devices for side in sides if device in side]
    label = "the median step of each side"
    if any(lane.marked for lane in lanes):
        label += "; higher: what differs beyond noise"
    return AlignedSteps(label, tuple(lanes))


def _why_no_lanes(name: str, report: Report) -> str:
    if report.results.lanes is None and (devices_of(report) or is_lost(report, "device_time")):
        return (
            f"the saved report {name} holds no timeline. "
            "Log directories do, and so do reports that traceview report wrote"
        )
    return f"no device was recorded in the median step {name}"


def _lanes_of(name: str, report: Report, marked: Container[str]) -> Iterator[tuple[str, StepLane]]:
    """By the name of the device without its host."""
    lanes, steps = report.results.lanes, report.results.steps
    step = median_step(steps.steps) if steps else None
    if lanes is None or step is None:
        return
    for device in lanes.devices:
        if device.host == step.host:
            key = device.device.rpartition("/")[2]
            pieces = tuple(_pieces(lanes, device, step))
            high = frozenset(look.key for *_, look in pieces if look.key in marked)
            yield key, StepLane(f"{name} {key}", step.duration_ps, pieces, marked=high)


def _pieces(lanes: Lanes, device: DeviceLanes, step: StepRow) -> Iterator[tuple[int, int, Look]]:
    """The slices of the device in the step, those that are drawn first first."""
    host = next(host for host in lanes.hosts if host.host == device.host)
    begin = step.start_ps - host.start_ps
    by_kind = {lane.kind: lane for lane in device.lanes}
    for lane in (by_kind[kind] for kind in _KINDS if kind in by_kind):
        for piece in lane.slices:
            start, end = max(piece.start_ps - begin, 0), min(piece.end_ps - begin, step.duration_ps)
            if start < end:
                main = max(piece.class_ps, key=lambda key: piece.class_ps[key])
                yield start, end, lane.look_of(main)
