"""Which copies between the host and the GPUs cost time, how fast are they, and who issues them?"""

from __future__ import annotations

from typing import Final

from traceview.analysis.transfers.compute import DeviceTransfers
from traceview.render import numbers
from traceview.render.markdown.blocks import Column, Section, bullets, table
from traceview.render.markdown.inline import code, plain
from traceview.report.model import Report

SHOWN: Final = 96
"""Rows: one per device and direction in which anything was copied."""

SHOWN_SOURCES: Final = 12
SHOWN_ROUND_TRIPS: Final = 6


def transfers_section(report: Report) -> Section | None:
    """A row per device and direction, what issued the copies, and ops on the CPU between two of them."""
    found = report.results.transfers
    if found is None or not found.devices:
        return None
    lines = [
        (row, name, one)
        for row in found.devices
        for name, one in vars(row.directions).items()
        if one.count
    ][:SHOWN]
    if not lines:
        return Section("Transfers", ("No copies in the window.",))
    has_link = any(row.link_bytes_per_second is not None for row, _, _ in lines)
    links = [numbers.size(row.link_bytes_per_second) if has_link else "" for row, _, _ in lines]
    directions = [one for _, _, one in lines]

    def numeric(heading: str, cells: list[str]) -> Column:
        return Column(heading, cells, right=True)

    overview = table(
        [
            Column("device", [code(row.device) for row, _, _ in lines]),
            Column("copies", [name for _, name, _ in lines]),
            numeric("exposed", [plain(numbers.share(one.exposed_ratio)) for one in directions]),
            numeric("per step", [numbers.time(one.exposed_ps_per_step) for one in directions]),
            numeric("busy", [numbers.time(one.busy_ps) for one in directions]),
            numeric("count", [numbers.count(one.count) for one in directions]),
            numeric("under 64 KiB", [numbers.count(one.small_count) for one in directions]),
            numeric("size", [numbers.size(one.bytes) for one in directions]),
            numeric("pageable", [numbers.size(one.pageable_bytes) for one in directions]),
            numeric("per second", [numbers.size(one.bytes_per_second) for one in directions]),
            numeric("link carries", links),
        ]
    )
    told = "Exposed: nothing else runs meanwhile, as a share of the step (without steps: of the window)."
    rows = list(found.devices)
    return Section("Transfers", (overview, told, _remarks(rows), *_sources(rows)))


def _remarks(rows: list[DeviceTransfers]) -> str:
    waits = [
        f"{code(row.device)}: the host waited {numbers.time(row.blocking_reads.wait_ps)} for "
        f"{numbers.plural(row.blocking_reads.count, 'copy', 'copies')} from it"
        for row in rows
        if row.blocking_reads.count
    ]
    trips = [
        f"{code(row.device)}: {code(trip.op)} runs on the CPU between copies {code(trip.d2h_op or '')} and "
        f"{code(trip.h2d_op)}: {numbers.plural(trip.count, 'time')}, {numbers.time(trip.total_ps)}"
        for row in rows
        for trip in row.round_trips
    ]
    return bullets([*waits[:SHOWN], *trips[:SHOWN_ROUND_TRIPS]])


def _sources(rows: list[DeviceTransfers]) -> list[str]:
    every = [source for row in rows for source in row.top_sources]
    shown = sorted(every, key=lambda one: (-one.exposed_ps, -one.total_ps))[:SHOWN_SOURCES]
    if not shown:
        return []
    return [
        "What issued them:",
        table(
            [
                Column("device", [code(one.device) for one in shown]),
                Column("copies", [plain(one.direction) for one in shown]),
                Column("op", [code(one.op or "") for one in shown]),
                Column("thread", [code(one.thread or "", 40) for one in shown]),
                Column("count", [numbers.count(one.count) for one in shown], right=True),
                Column("size", [numbers.size(one.bytes) for one in shown], right=True),
                Column("exposed", [numbers.time(one.exposed_ps) for one in shown], right=True),
            ]
        ),
    ]
