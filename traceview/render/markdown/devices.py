"""How busy was each device, with what, and when?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.device_time.compute import DeviceTimeRow
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.device_names import joined
from traceview.render.devices import STATUS_WORDS
from traceview.render.markdown.blocks import Column, Section, bullets, fenced, table
from traceview.render.markdown.inline import code, plain
from traceview.render.strip import fitting_length, legend, strip
from traceview.report.model import Report
from traceview.report.standing_out import MOST, standing_out

STRIP_LENGTH: Final = 60
"""Characters of a timeline: a block of code in a ticket is not wider."""

_WIDEST_NAME: Final = 30


def devices_section(report: Report) -> Section | None:
    """A row per device whose parts add up to the window."""
    found = report.results.device_time
    if found is None:
        return Section("Devices", (plain(report.skipped.get("device_time", "")),), folded=False)
    if not found.devices:
        return Section("Devices", ("No device was recorded.",), folded=False)
    rows = [row for row in found.devices if row.device in shown_devices(report)]
    remarks = list(_others(report, found.devices))
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
    return Section("Devices", (_table(rows), told, bullets(remarks)), folded=False)


def shown_devices(report: Report) -> frozenset[str]:
    """All devices of a report, of very many those that stand out."""
    found = report.results.device_time
    every = [row.device for row in found.devices] if found else []
    return frozenset(every if len(every) <= MOST else standing_out(report).shown)


def _others(report: Report, rows: Sequence[DeviceTimeRow]) -> Iterator[str]:
    """What the devices without a row of their own have in common."""
    shown = shown_devices(report)
    others = [row for row in rows if row.device not in shown]
    empty = [row.device for row in others if row.status == "empty"]
    busy = [row.busy_ratio for row in others if row.status != "empty"]
    if busy:
        yield (
            f"{numbers.plural(len(busy), 'other device')}: busy {plain(numbers.shares(busy))}; "
            "each of them: `traceview devices`"
        )
    if empty:
        yield f"nothing was recorded on {numbers.plural(len(empty), 'device')}: {code(joined(empty))}"


def _table(rows: list[DeviceTimeRow]) -> str:
    def shares(heading: str, parts: list[int | None], *, is_seldom: bool = False) -> Column:
        """A column of its own for what is seldom only where there is any of it."""
        if is_seldom and not any(parts):
            return Column(heading, ("",) * len(rows))
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
            shares("h2d", [row.exposed_h2d_ps for row in rows], is_seldom=True),
            shares("d2h", [row.exposed_d2h_ps for row in rows], is_seldom=True),
            shares("d2d", [row.exposed_d2d_ps for row in rows], is_seldom=True),
            shares("fills", [row.exposed_memset_ps for row in rows], is_seldom=True),
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
    chosen = shown_devices(report)
    known = {row.device for row in found.devices if row.busy_ps and row.device in chosen}
    shown = [one for one in timeline.devices if one.device in known]
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
