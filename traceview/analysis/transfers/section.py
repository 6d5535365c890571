"""Shows what copies between host and GPUs cost, and the ops and threads that issue them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.context import View
from traceview.analysis.transfers.result import DeviceTransfers, Direction, Transfers
from traceview.analysis.transfers.rules import SMALL_SIZE
from traceview.analysis.transfers.speeds import speeds
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import CLASSES, VERDICTS, look_of, thread_name

BRIEF_ROUND_TRIPS: Final = 3
"""Round trips in a brief document."""

_Row = tuple[DeviceTransfers, str, Direction]


def section(view: View, result: Transfers) -> doc.Section | None:
    """The copies of each device by direction, reads that block the host, round trips, and what issues copies.

    A brief document leaves out what issues copies, and devices whose copies cost nothing.
    """
    relevant = [row for row in result.devices if not view.is_brief or _is_costly(row)]
    if not relevant:
        return None
    rows = _directions(relevant)
    if not rows:
        return doc.Section("transfers", "Transfers", (), lead="No copies in the window.")
    shown, others = (_directions(part) for part in view.split(relevant))
    return doc.Section(
        "transfers",
        "Transfers",
        (
            *speeds(relevant),
            *_copies(shown[: view.most_rows], len(shown), view.command("transfers")),
            *doc.remarks(_range(others)),
            *doc.notes(_blocking_reads(relevant)),
            *_round_trips(view, relevant),
            *(() if view.is_brief else _sources(view, relevant)),
        ),
        lead=_lead(rows),
        terms=("exposed",),
    )


def _directions(devices: Sequence[DeviceTransfers]) -> list[_Row]:
    """The devices and directions with copies."""
    return [
        (row, way, direction)
        for row in devices
        for way in row.directions.__struct_fields__
        if (direction := getattr(row.directions, way)).count
    ]


def _is_costly(row: DeviceTransfers) -> bool:
    costs_time = any(direction.verdict != "none" for _, _, direction in _directions([row]))
    return costs_time or bool(row.round_trips)


def _lead(rows: Sequence[_Row]) -> str:
    """The direction that costs most, on the device where it does."""
    row, way, direction = max(rows, key=lambda row: row[2].exposed_ratio or 0.0)
    step = "window" if direction.exposed_ps_per_step is None else "step"
    if not direction.exposed_ratio:
        return "Other work hides all copies."
    verdict = look_of(VERDICTS, direction.verdict).words
    copies = look_of(CLASSES, way).words.capitalize()
    share = numbers.share(direction.exposed_ratio)
    return f"{copies} are exposed for {share} of the {step} on {row.device} ({verdict})."


def _copies(rows: Sequence[_Row], row_count: int, rest: str) -> tuple[doc.Table, ...]:
    copies = [direction for _, _, direction in rows]
    return doc.table(
        "Copies by device and direction",
        (
            doc.devices("device", [row.device for row, _, _ in rows]),
            doc.looks("direction", [look_of(CLASSES, way) for _, way, _ in rows]),
            doc.shares(
                "exposed",
                [direction.exposed_ratio for direction in copies],
                meaning="share of the step, without steps of the window, in which nothing else ran on the device",
            ),
            doc.looks(
                "cost", [look_of(VERDICTS, direction.verdict) for direction in copies], priority=4
            ),
            doc.times("per step", [row.exposed_ps_per_step for row in copies], priority=3),
            doc.times("busy", [row.busy_ps for row in copies], priority=10),
            doc.counts("count", [row.count for row in copies], priority=7),
            doc.counts(f"below {SMALL_SIZE}", [row.small_count for row in copies], priority=8),
            doc.sizes("size", [row.bytes for row in copies], priority=5),
            doc.sizes("pageable", [row.pageable_bytes for row in copies], priority=6),
            doc.rates("rate", [row.bytes_per_second for row in copies], priority=2),
            doc.rates(
                "rate of the link", [row.link_bytes_per_second for row, _, _ in rows], priority=9
            ),
        ),
        row_count=row_count,
        rest=rest,
    )


def _range(rows: Sequence[_Row]) -> str | None:
    """Of the devices without a row, the least and the greatest exposed share of each direction."""
    if not rows:
        return None
    ranges: dict[str, list[float | None]] = {}
    for _, way, direction in rows:
        ranges.setdefault(way, []).append(direction.exposed_ratio)
    parts = [f"{look_of(CLASSES, way).words} {numbers.share_range(ranges[way])}" for way in ranges]
    count = len({row.device for row, _, _ in rows})
    return f"{numbers.plural(count, 'other GPU')}: exposed {numbers.listed(parts)}."


def _blocking_reads(rows: Sequence[DeviceTransfers]) -> str | None:
    reading = [row for row in rows if row.blocking_reads.count]
    if not reading:
        return None
    count = sum(row.blocking_reads.count for row in reading)
    waits = numbers.time_range(row.blocking_reads.wait_ps for row in reading)
    return (
        f"The host waited for {numbers.plural(count, 'copy', 'copies')} from "
        f"{numbers.joined_devices(row.device for row in reading)}: {waits}{' each' if len(reading) > 1 else ''}."
    )


def _round_trips(view: View, rows: Sequence[DeviceTransfers]) -> tuple[doc.Block, ...]:
    """Ops on the CPU between two ops on a GPU."""
    trips = [(row.device, trip) for row in rows for trip in row.round_trips]
    shown = trips[: BRIEF_ROUND_TRIPS if view.is_brief else view.most_rows]
    if not shown:
        return ()
    return (
        doc.Subheading(
            "CPU ops between two ops on a GPU", "their data is copied to the host and back"
        ),
        *doc.table(
            "CPU ops whose data is copied to the host and back",
            (
                doc.devices("device", [device for device, _ in shown]),
                doc.names("CPU op", [trip.op for _, trip in shown]),
                doc.names("type", [trip.op_type for _, trip in shown], priority=4),
                doc.times("total", [trip.total_ps for _, trip in shown]),
                doc.counts("count", [trip.count for _, trip in shown], priority=1),
                doc.names("copy to the host", [trip.d2h_op for _, trip in shown], priority=3),
                doc.names("copy back", [trip.h2d_op for _, trip in shown], priority=2),
            ),
            row_count=len(trips),
            rest=f"{view.command('analyze')} --format json",
        ),
    )


def _sources(view: View, rows: Sequence[DeviceTransfers]) -> tuple[doc.Block, ...]:
    sources = sorted(
        (source for row in rows for source in row.top_sources),
        key=lambda source: (-source.exposed_ps, -source.total_ps),
    )[: view.most_rows]
    if not sources:
        return ()
    count = sum(row.source_count for row in rows)
    return (
        doc.Subheading("Ops and threads that issue copies"),
        *doc.table(
            "Copies by the op and thread that issue them",
            (
                doc.devices("device", [source.device for source in sources]),
                doc.looks("direction", [look_of(CLASSES, source.direction) for source in sources]),
                doc.names("op", [source.op for source in sources]),
                doc.names("type", [source.op_type for source in sources], priority=6),
                doc.names("thread", [thread_name(source.thread) for source in sources], priority=4),
                doc.times("exposed", [source.exposed_ps for source in sources]),
                doc.times("total", [source.total_ps for source in sources], priority=5),
                doc.counts("count", [source.count for source in sources], priority=2),
                doc.sizes("size", [source.bytes for source in sources], priority=3),
            ),
            row_count=count,
            rest=view.command("transfers"),
        ),
    )
