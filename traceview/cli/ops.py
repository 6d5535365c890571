"""Defines `traceview ops`: the whole table of ops and kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.cli.options import word_of
from traceview.cli.table import Answer, Request, table_command
from traceview.document.vocabulary import CLASSES, look_of

if TYPE_CHECKING:
    from traceview.document.model import Section
    from traceview.trace.table import Table


class Sort(str, Enum):
    """What the rows of a device may be sorted by, the largest first."""

    by_total = "total"
    by_self = "self"
    by_count = "count"


_SORT_COLUMNS: Final = {Sort.by_total: "total_ps", Sort.by_self: "self_ps", Sort.by_count: "count"}


@table_command()
def ops(
    request: Request,
    class_: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            parser=word_of("--class", CLASSES),
            metavar=f"<{'|'.join(CLASSES)}>",
            help="Only this class of activity. May be repeated.",
            show_default=False,
        ),
    ] = None,
    sort: Annotated[Sort, typer.Option(help="What comes first on each device.")] = Sort.by_total,
    top: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Only the first N rows of each device.", show_default=False
        ),
    ] = None,
) -> Answer:
    """List every op and kernel of every device with its times.

    In CSV a name that a spreadsheet would run as a formula (it begins with = + - or @) gets an apostrophe
    in front.

    Example: traceview ops logs/ --device GPU:0 -o ops.csv
    """
    from traceview.analysis.ops import table_in_window
    from traceview.trace import event_tables
    from traceview.trace.table import table, texts

    groups = table_in_window(request.trace, request.selection)
    rows = event_tables.ops(request.trace, groups)
    rows = table(
        rows.name,
        *(
            texts(column.name, column.cells()) if column.kind == "category" else column
            for column in rows.columns
        ),
    )
    shown = rows.at(_order(rows, request.devices, class_ or CLASSES, sort, top))
    return Answer(
        rows=shown,
        sections=lambda: _sections(shown),
        left_out_count=rows.count - shown.count,
        order="share is of the device's compute time",
        remarks=() if rows.count else ("the trace holds no device event in the window",),
    )


def _order(
    rows: Table, devices: Collection[str], classes: Collection[str], sort: Sort, top: int | None
) -> list[int]:
    """The places of the rows to show: by device, then the largest first."""
    of_device: dict[str, list[int]] = {}
    for place, (device, class_) in enumerate(zip(rows["device"], rows["class"], strict=True)):
        if device in devices and class_ in classes:
            of_device.setdefault(device, []).append(place)
    sizes = rows[_SORT_COLUMNS[sort]]
    return [
        place
        for places in of_device.values()
        for place in sorted(places, key=lambda place: -sizes[place])[:top]
    ]


def _sections(rows: Table) -> Iterator[Section]:
    """A table for each device."""
    from traceview.analysis.ops import SHARE_ABOVE_ALL
    from traceview.document.model import Section, counts, looks, names, remarks, shares, times
    from traceview.document.model import table as table_block

    for device in dict.fromkeys(rows["device"]):
        of_device = rows.where("device", (device,))
        kernels = [kernel and kernel.removeprefix("void ") for kernel in of_device["kernel"]]
        shares_of_compute = of_device["share_ratio"]
        columns = (
            names("op", of_device["op"]),
            names("kernel", kernels),
            times("total", of_device["total_ps"]),
            shares("share", shares_of_compute),
            counts("count", of_device["count"], priority=1),
            looks("class", [look_of(CLASSES, key) for key in of_device["class"]], priority=2),
        )
        overlaps = any(share is not None and share > 1 for share in shares_of_compute)
        remark = SHARE_ABOVE_ALL if overlaps else None
        yield Section(
            f"ops-{device}",
            device,
            (*table_block("Ops and kernels", columns), *remarks(remark)),
        )
