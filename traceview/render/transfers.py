"""Which copies between the host and the GPUs cost time, how fast are they, and who issues them?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.transfers.compute import CopySource, DeviceTransfers, Direction
from traceview.analysis.transfers.round_trips import RoundTrip
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import (
    ROWS_IN,
    Column,
    add_columns,
    add_fitting,
    add_left_out,
    fitting,
    room_beside,
)
from traceview.render.ops import told_apart
from traceview.report.model import Report

SHOWN_ROUND_TRIPS: Final = 3
"""So many ops on the CPU are named per device."""

_NARROWEST_OP: Final = 20
_WIDEST_NAME: Final = 24
_VERDICT_STYLES: Final = {"high": "red", "moderate": "yellow", "none": ""}


def add_transfers(page: Page, report: Report) -> None:
    """Devices whose copies cost time of the step or go to the host for an op; nothing where none does."""
    found = report.results.transfers
    costly = [row for row in found.devices if _matters(row)] if found else []
    if costly:
        add_device_transfers(page, costly, has_steps=report.results.steps is not None)


def _matters(row: DeviceTransfers) -> bool:
    costs = any(one.verdict != "none" for one in _directions(row).values())
    return costs or bool(row.round_trips)


def _directions(row: DeviceTransfers) -> dict[str, Direction]:
    return vars(row.directions)


def add_device_transfers(page: Page, rows: Sequence[DeviceTransfers], *, has_steps: bool) -> None:
    """A row per device and direction with copies; below it what waited for copies, and round trips."""
    of = "the step" if has_steps else "the window"
    page.heading("Transfers", f"exposed: nothing else runs meanwhile, as a share of {of}")
    lines = [
        (row, name, one) for row in rows for name, one in _directions(row).items() if one.count
    ]
    if lines:
        add_fitting(page, _columns(page, lines))
    else:
        page.prose(page.styled("no copies in the window", "dim"))
    for row in rows:
        _add_remarks(page, row)


def _numeric(page: Page, heading: str, texts: list[str], droppable: int = 0) -> Column:
    return Column(heading, [page.styled(text) for text in texts], right=True, droppable=droppable)


def _columns(page: Page, lines: Sequence[tuple[DeviceTransfers, str, Direction]]) -> list[Column]:
    exposed = Column(
        "exposed",
        [
            page.styled(numbers.share(one.exposed_ratio), _VERDICT_STYLES[one.verdict])
            for _, _, one in lines
        ],
        right=True,
    )
    directions = [one for _, _, one in lines]
    name_width = min(_WIDEST_NAME, page.width // 2)
    columns = [
        Column(
            "device", [Text(page.middle(row.device, name_width), "bold") for row, _, _ in lines]
        ),
        Column("copies", [page.styled(name) for _, name, _ in lines]),
        exposed,
        _numeric(
            page, "per step", [numbers.time(one.exposed_ps_per_step) for one in directions], 3
        ),
        _numeric(page, "busy", [numbers.time(one.busy_ps) for one in directions], 9),
        _numeric(page, "count", [numbers.count(one.count) for one in directions], 6),
        _numeric(page, "< 64 KiB", [numbers.count(one.small_count) for one in directions], 7),
        _numeric(page, "size", [numbers.size(one.bytes) for one in directions], 4),
        _numeric(page, "pageable", [numbers.size(one.pageable_bytes) for one in directions], 5),
        _numeric(page, "per second", [numbers.size(one.bytes_per_second) for one in directions], 2),
    ]
    if any(row.link_bytes_per_second is not None for row, _, _ in lines):
        links = [numbers.size(row.link_bytes_per_second) for row, _, _ in lines]
        columns.append(_numeric(page, "link carries", links, 8))
    return columns


def _add_remarks(page: Page, row: DeviceTransfers) -> None:
    reads = row.blocking_reads
    if reads.count:
        copies = numbers.plural(reads.count, "copy", "copies")
        told = f"{row.device}: the host waited {numbers.time(reads.wait_ps)} for {copies} from it"
        page.prose(page.styled(told, "dim"))
    for trip in row.round_trips[:SHOWN_ROUND_TRIPS]:
        page.prose(page.styled(f"{row.device}: {round_trip(trip)}"))
    left = len(row.round_trips) - SHOWN_ROUND_TRIPS
    if left > 0:
        page.prose(page.styled(f"{row.device}: {numbers.plural(left, 'more op')} like that", "dim"))


def round_trip(trip: RoundTrip) -> str:
    """An op on the CPU between two copies, in a sentence."""
    type_ = f" ({trip.op_type})" if trip.op_type else ""
    return (
        f"{trip.op}{type_} runs on the CPU between copies {trip.d2h_op or numbers.ABSENT} and "
        f"{trip.h2d_op}: {numbers.plural(trip.count, 'time')}, {numbers.time(trip.total_ps)}"
    )


def add_sources(page: Page, sources: Sequence[CopySource]) -> None:
    """What issued the copies, device by device."""
    for device in dict.fromkeys(source.device for source in sources):
        page.heading(device, "copies by the op and thread that issued them")
        _add_device_sources(page, [source for source in sources if source.device == device])


def _add_device_sources(page: Page, sources: Sequence[CopySource]) -> None:
    threads = [page.middle(one.thread or numbers.ABSENT, _WIDEST_NAME) for one in sources]
    columns = [
        _numeric(page, "exposed", [numbers.time(one.exposed_ps) for one in sources]),
        _numeric(page, "total", [numbers.time(one.total_ps) for one in sources], 4),
        _numeric(page, "count", [numbers.count(one.count) for one in sources], 1),
        _numeric(page, "size", [numbers.size(one.bytes) for one in sources], 2),
        Column("copies", [page.styled(one.direction, "dim") for one in sources]),
        Column("thread", [Text(text) for text in threads], droppable=3),
    ]
    kept = fitting(page, [*columns, Column("x" * _NARROWEST_OP)])[:-1]
    room = max(room_beside(page, kept), _NARROWEST_OP)
    ops = told_apart(page, {one.op or numbers.ABSENT for one in sources}, room)
    named = Column("op", [Text(ops[one.op or numbers.ABSENT]) for one in sources])
    add_columns(page, [*kept, named])
    add_left_out(page, columns, kept, rest=ROWS_IN)
