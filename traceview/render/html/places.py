"""Where on the page, and when on the timeline, is what a finding or a gap speaks of?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from traceview.analysis.base import Finding
from traceview.analysis.idle.compute import Gap
from traceview.report.model import Report
from traceview.report.standing_out import standing_out

MOST_GAPS: Final = 100
"""Gaps of all devices together that have a row, the longest ones."""

_LINKED_GAPS: Final = 3
"""Gaps that a finding names; the others are in the table."""

_CAUSES: Final = {
    "input-bound": ("input",),
    "replica-starved": ("input",),
    "slow-input-stage": ("input",),
    "no-prefetch": ("input",),
    "h2d-exposed": ("h2d",),
    "h2d-pageable": ("h2d",),
    "h2d-small-copies": ("h2d",),
    "h2d-slow-link": ("h2d",),
    "d2h-sync": ("sync",),
    "launch-bound": ("launch",),
    "host-bound": ("host_compute",),
    "cpu-heavy-op": ("host_compute",),
    "callback-stall": ("callback",),
    "checkpoint-stall": ("checkpoint",),
    "retracing": ("compile",),
    "compile-in-window": ("compile",),
    "collective-wait": ("peer",),
    "straggler-gpu": ("peer",),
}
"""The causes of idle time that a finding is about; one with another code is not about gaps."""


@dataclass(frozen=True)
class Place:
    """A span of one device, in picoseconds from the start of its window."""

    device: str
    start_ps: int
    end_ps: int


@dataclass(frozen=True)
class NumberedGap:
    """A gap of the page: its number, from 1 on by length, and its place. Its id is `gap-N`."""

    number: int
    gap: Gap
    place: Place


def numbered_gaps(report: Report) -> tuple[NumberedGap, ...]:
    """The longest gaps of the devices that were used, numbered as the page numbers them."""
    idle = report.results.idle
    starts = window_starts(report)
    found = sorted(
        (
            (gap, row.device)
            for row in (idle.devices if idle else ())
            if "unused" not in row.causes and row.device in starts
            for gap in row.gaps
        ),
        key=lambda pair: -pair[0].duration_ps,
    )[:MOST_GAPS]
    return tuple(
        NumberedGap(number, gap, _place(device, gap.start_ps, gap.duration_ps, starts[device]))
        for number, (gap, device) in enumerate(found, start=1)
    )


def window_starts(report: Report) -> dict[str, int]:
    """When the window of each device starts, since the origin of the run."""
    of_host = {window.host: window.start_ps for window in report.windows}
    found = report.results.device_time
    return {
        row.device: of_host[row.host]
        for row in (found.devices if found else ())
        if row.host in of_host
    }


def device_ids(report: Report) -> dict[str, str]:
    """The id of the row of each device, in the order of the page: of very many those that stand out come first."""
    found = report.results.device_time
    chosen = standing_out(report)
    keys = [row.device for row in (found.devices if found else ())]
    if chosen.others:
        keys.sort(key=lambda device: device not in chosen.shown)
    return dict(zip(keys, device_row_ids(len(keys)), strict=True))


def device_row_ids(count: int) -> list[str]:
    """The ids of the rows of devices, in their order."""
    return [f"device-{number}" for number in range(1, count + 1)]


def gaps_of(finding: Finding, gaps: tuple[NumberedGap, ...]) -> list[NumberedGap]:
    """The longest of the gaps that a finding is about."""
    causes = _CAUSES.get(finding.code, ())
    return [
        one
        for one in gaps
        if one.gap.cause in causes
        and (not finding.devices or one.place.device in finding.devices)
        and (not finding.steps or one.gap.step in finding.steps)
    ][:_LINKED_GAPS]


def findings_of(report: Report, gaps: tuple[NumberedGap, ...]) -> dict[int, list[int]]:
    """By number of a gap the numbers of the findings that name it."""
    found: dict[int, list[int]] = {}
    for number, finding in enumerate(report.findings, start=1):
        for one in gaps_of(finding, gaps):
            found.setdefault(one.number, []).append(number)
    return found


def place_of(finding: Finding, report: Report, gaps: tuple[NumberedGap, ...]) -> Place | None:
    """What to look at for a finding: its longest gap, else its first step, else its device; None without any."""
    named = gaps_of(finding, gaps)
    if named:
        # Its title speaks of the first device.
        own = [one for one in named if one.place.device in finding.devices[:1]]
        return (own or named)[0].place
    found, starts = report.results.device_time, window_starts(report)
    rows = [row for row in (found.devices if found else ()) if row.device in starts]
    row = next((row for row in rows if row.device in finding.devices), None)
    if row is None and finding.steps:
        row = rows[0] if rows else None
    if row is None:
        return None
    steps = report.results.steps
    for step in steps.steps if steps else ():
        if step.host == row.host and step.number in finding.steps:
            return _place(row.device, step.start_ps, step.duration_ps, starts[row.device])
    return Place(row.device, 0, row.window_ps) if row.window_ps else None


def _place(device: str, start_ps: int, duration_ps: int, window_ps: int) -> Place:
    return Place(device, start_ps - window_ps, start_ps - window_ps + duration_ps)
