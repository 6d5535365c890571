"""How busy was each device, with what, and when?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from traceview.analysis.device_time.compute import DeviceTimeRow
from traceview.document import numbers
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import GAP, Column, add_columns, add_left_out, fitting, room_beside
from traceview.render.device_names import joined
from traceview.render.strip import fitting_length, legend, strip
from traceview.report.model import Report
from traceview.report.standing_out import StandingOut, standing_out

FOLD_FROM: Final = 4
"""So many devices that recorded nothing are one line rather than a row each."""

WIDEST_NAME: Final = 24
INLINE_STRIP: Final = 40
"""With this much room beside the table the timeline stands in it, else below."""

STATUS_WORDS: Final = {
    "active": ("active", "green"),
    "marginal": ("marginal", "yellow"),
    "copy_only": ("copies only", "yellow"),
    "memory_only": ("memory only", "red"),
    "empty": ("empty", "red"),
}
_KIND_NOUNS: Final = {
    "gpu": "GPU",
    "tpu": "TPU",
    "replica": "replica on the host",
    "other": "device",
}


def add_devices(page: Page, report: Report) -> None:
    """The device table, the timelines, and what was folded."""
    found = report.results.device_time
    if found is None:
        page.heading("Devices", f"{numbers.ABSENT} {report.skipped.get('device_time', '')}")
        return
    page.heading("Devices", _roster(found.devices) or f"{numbers.ABSENT} none was recorded")
    chosen = standing_out(report)
    folded = _folded(found.devices)
    rows = [row for row in found.devices if row.device in chosen and row not in folded]
    _add_table(page, report, rows, folded)
    if chosen.others:
        page.prose(page.styled(_others(found.devices, chosen), "dim"))
    unknown = sum(row.unknown_direction_count or 0 for row in found.devices)
    if unknown:
        copies = numbers.plural(sum(row.copy_count or 0 for row in found.devices), "copy", "copies")
        told = f"{numbers.count(unknown)} of {copies}: direction not recorded, counted as d2d"
        page.prose(page.styled(told, "dim"))
    outside = [
        f"{numbers.plural(row.outside_window_count, 'event')} of {page.text(row.device)}"
        for row in found.devices
        if row.outside_window_count
    ]
    if outside:
        told = f"Outside the window: {numbers.listed(outside)}; --window devices takes them in."
        page.prose(page.styled(told, "dim"))
    for one in found.shared:
        where = f" on {one.host}" if len(found.shared) > 1 else ""
        page.prose(
            page.styled(
                f"Host ops that no replica owns{where}: {numbers.time(one.compute_ps)}", "dim"
            )
        )


def _roster(rows: Sequence[DeviceTimeRow]) -> str:
    kinds = []
    for kind in dict.fromkeys(row.kind for row in rows):
        same = [row for row in rows if row.kind == kind]
        models = " and ".join(dict.fromkeys(row.model for row in same if row.model))
        noun = _KIND_NOUNS.get(kind, kind)
        if kind == "replica" and len(rows) == 1:
            kinds.append(f"the CPU, as {rows[0].device}")
            continue
        if kind == "replica" and len(same) > 1:
            noun = "replicas on the host"
        elif len(same) > 1:
            noun += "s"
        kinds.append(f"{len(same)} {noun}" + (f", {models}" if models else ""))
    return "; ".join(kinds)


def _others(rows: Sequence[DeviceTimeRow], chosen: StandingOut) -> str:
    """What the devices without a row have in common: between which shares each of their parts lies."""
    others = [row for row in rows if row.device in chosen.others]
    parts = {
        "busy": [row.busy_ratio for row in others],
        "compute": [row.compute_ratio for row in others],
        "comm": [_ratio(row.exposed_collective_ps, row) for row in others],
        "copies": [_ratio(_copies_ps(row), row) for row in others],
    }
    told = ", ".join(f"{name} {numbers.shares(ratios)}" for name, ratios in parts.items())
    return f"{numbers.plural(len(others), 'other')}: {told}. traceview devices LOGDIR -o FILE.csv has all."


def _ratio(part_ps: int | None, row: DeviceTimeRow) -> float | None:
    return None if part_ps is None or not row.window_ps else part_ps / row.window_ps


def _folded(rows: Sequence[DeviceTimeRow]) -> list[DeviceTimeRow]:
    empty = [
        row
        for row in rows
        if row.status == "empty" and row.memory_held_bytes is None and row.memory_peak_bytes is None
    ]
    return empty if len(empty) >= FOLD_FROM else []


def _add_folded(page: Page, folded: Sequence[DeviceTimeRow]) -> None:
    for _, rows in groupby(folded, key=lambda row: row.host):
        _add_empty(page, list(rows))


def _add_empty(page: Page, rows: Sequence[DeviceTimeRow]) -> None:
    word, style = STATUS_WORDS["empty"]
    known = any(row.busy_ps is not None for row in rows)
    why = (
        "no event in the whole recording" if known else "nothing was recorded, so nothing is known"
    )
    names = page.text(joined([row.device for row in rows]))
    page.prose(Text.assemble((word, style), " ", (names, "bold"), f": {why}"))


def _add_table(
    page: Page, report: Report, rows: Sequence[DeviceTimeRow], folded: Sequence[DeviceTimeRow]
) -> None:
    columns = _columns(page, rows) if rows else []
    kept = fitting(page, columns)
    timeline = report.results.timeline
    strips = {one.device: one for one in timeline.devices} if timeline else {}
    known = [row for row in rows if row.device in strips and row.busy_ps is not None]
    slice_count = timeline.slice_count if timeline and known else 0
    length = fitting_length(slice_count, room_beside(page, kept))
    inline = length >= INLINE_STRIP
    if not inline:
        length = fitting_length(slice_count, page.width - _name_width(page, known) - GAP)
    drawn = {row.device: strip(page, strips[row.device], length) for row in known if length}
    if inline:
        absent = page.styled(numbers.ABSENT)
        kept.append(Column(_timeline_title(known), [drawn.get(row.device, absent) for row in rows]))
    add_columns(page, kept)
    add_left_out(page, columns, kept)
    _add_folded(page, folded)
    if drawn and not inline:
        page.gap()
        names = [page.middle(row.device, WIDEST_NAME) for row in known]
        add_columns(
            page,
            [
                Column("", [Text(name, "bold") for name in names]),
                Column(_timeline_title(known), list(drawn.values())),
            ],
        )
    if rows:
        _add_legend(page, list(drawn.values()), known, length)


def _columns(page: Page, rows: Sequence[DeviceTimeRow]) -> list[Column]:
    def numeric(heading: str, texts: list[str], droppable: int = 0) -> Column:
        return Column(
            heading, [page.styled(text) for text in texts], right=True, droppable=droppable
        )

    statuses = [STATUS_WORDS.get(row.status, (row.status, "")) for row in rows]
    columns = [
        Column("device", [Text(page.middle(row.device, WIDEST_NAME), "bold") for row in rows]),
        Column("status", [page.styled(*status) for status in statuses], droppable=4),
        numeric("busy", [numbers.share(row.busy_ratio) for row in rows]),
        numeric("busy time", [numbers.time(row.busy_ps) for row in rows], 3),
        numeric("compute", [numbers.share(row.compute_ratio) for row in rows], 1),
        numeric(
            "comm", [numbers.part(row.exposed_collective_ps, row.window_ps) for row in rows], 2
        ),
        numeric("copies", [numbers.part(_copies_ps(row), row.window_ps) for row in rows], 3),
        numeric("idle", [numbers.part(row.idle_ps, row.window_ps) for row in rows]),
    ]
    if any(row.memory_peak_bytes is not None for row in rows):
        columns.append(
            numeric("peak mem", [numbers.size(row.memory_peak_bytes) for row in rows], 5)
        )
    return columns


def _copies_ps(row: DeviceTimeRow) -> int | None:
    parts = (row.exposed_h2d_ps, row.exposed_d2h_ps, row.exposed_d2d_ps, row.exposed_memset_ps)
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _name_width(page: Page, rows: Sequence[DeviceTimeRow]) -> int:
    return max((cell_len(page.middle(row.device, WIDEST_NAME)) for row in rows), default=0)


def _timeline_title(rows: Sequence[DeviceTimeRow]) -> str:
    lengths = {row.window_ps for row in rows}
    return f"timeline of {numbers.time(lengths.pop())}" if len(lengths) == 1 else "timeline"


def _add_legend(
    page: Page, drawn: Sequence[Text], rows: Sequence[DeviceTimeRow], length: int
) -> None:
    lengths = {row.window_ps for row in rows}
    window = lengths.pop() if len(lengths) == 1 else None
    if drawn:
        used = set("".join(text.plain for text in drawn))
        page.facts(
            legend(page, used, window // length if window is not None else None), between="   "
        )
    page.prose(
        page.styled(
            "Shares are of the window. Communication and copies count only while nothing computes; "
            "the rest is hidden under compute.",
            "dim",
        )
    )
