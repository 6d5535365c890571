"""How busy was each device, with what, and when?"""

from __future__ import annotations

from typing import Final

from traceview.analyses.device_time import DeviceTimeRow
from traceview.render import numbers
from traceview.render.devices import STATUS_WORDS
from traceview.render.markdown.blocks import Column, Section, bullets, fenced, table
from traceview.render.markdown.inline import code, plain
from traceview.render.page import Page
from traceview.render.strip import fitting_length, legend, strip
from traceview.report.model import Report

SHOWN: Final = 64
"""Devices with a row each."""

STRIP_LENGTH: Final = 60
"""Characters of a timeline: a block of code in a ticket is not wider."""

_WIDEST_NAME: Final = 30


def devices_section(report: Report) -> Section | None:
    """A row per device whose parts add up to the window."""
    found = report.results.device_time
    if found is None:
        return Section("Devices", (plain(report.skipped.get("device_time", "")),), folded=False)
    rows = found.devices[:SHOWN]
    if not rows:
        return Section("Devices", ("No device was recorded.",), folded=False)
    remarks = []
    if len(found.devices) > SHOWN:
        left = len(found.devices) - SHOWN
        remarks.append(f"{numbers.plural(left, 'more device')}: in the JSON")
    unknown = sum(row.unknown_direction_count or 0 for row in found.devices)
    if unknown:
        remarks.append(f"{numbers.count(unknown)} copies without a direction count as d2d")
    outside = sum(row.outside_window_count or 0 for row in found.devices)
    if outside:
        remarks.append(f"{numbers.plural(outside, 'event')} outside the window")
    shared = sum(one.compute_ps for one in found.shared)
    if shared:
        remarks.append(f"host ops that no replica owns: {numbers.time(shared)}")
    told = "Shares are of the window. Communication and copies count only while nothing computes."
    return Section("Devices", (_table(list(rows)), told, bullets(remarks)), folded=False)


def _table(rows: list[DeviceTimeRow]) -> str:
    def shares(heading: str, parts: list[int | None]) -> Column:
        cells = [
            plain(numbers.part(part, row.window_ps)) for part, row in zip(parts, rows, strict=True)
        ]
        return Column(heading, cells, right=True)

    has_memory = any(row.memory_peak_bytes is not None for row in rows)
    memory = [numbers.size(row.memory_peak_bytes) if has_memory else "" for row in rows]
    return table(
        [
            Column("device", [code(row.device) for row in rows]),
            Column("model", [code(row.model, 40) if row.model else "" for row in rows]),
            Column(
                "status", [plain(STATUS_WORDS.get(row.status, (row.status,))[0]) for row in rows]
            ),
            shares("busy", [row.busy_ps for row in rows]),
            shares("compute", [row.compute_ps for row in rows]),
            shares("comm", [row.exposed_collective_ps for row in rows]),
            shares("h2d", [row.exposed_h2d_ps for row in rows]),
            shares("d2h", [row.exposed_d2h_ps for row in rows]),
            shares("d2d", [row.exposed_d2d_ps for row in rows]),
            shares("fills", [row.exposed_memset_ps for row in rows]),
            shares("idle", [row.idle_ps for row in rows]),
            Column("kernels", [numbers.count(row.kernel_count) for row in rows], right=True),
            Column("peak memory", memory, right=True),
        ]
    )


def timeline_section(report: Report) -> Section | None:
    """A strip of characters per device that did anything."""
    timeline, found = report.results.timeline, report.results.device_time
    if timeline is None or found is None:
        return None
    known = {row.device: row for row in found.devices if row.busy_ps}
    shown = [one for one in timeline.devices if one.device in known][:SHOWN]
    length = fitting_length(timeline.slice_count, STRIP_LENGTH)
    if not shown or not length:
        return None
    page = Page(200)
    names = [page.middle(one.device, _WIDEST_NAME) for one in shown]
    width = max(map(len, names))
    strips = [strip(page, one, length).plain for one in shown]
    lengths = {one.end_ps - one.start_ps for one in shown}
    window = lengths.pop() if len(lengths) == 1 else None
    meaning = legend(page, set("".join(strips)), window // length if window is not None else None)
    lines = [f"{name:{width}}  {drawn}" for name, drawn in zip(names, strips, strict=True)]
    whole = f" of {numbers.time(window)}" if window is not None else ""
    told = plain("; ".join(one.plain for one in meaning))
    return Section(f"Timeline{whole}", (fenced(lines), told), folded=False)
