"""`traceview ops`: the whole table of ops and kernels."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from traceview.cli.garbage import collect_no_garbage
from traceview.cli.options import (
    Devices,
    Force,
    Logdir,
    Output,
    Run,
    Salvage,
    Steps,
    Width,
    Window,
    WindowChoice,
    step_range,
)
from traceview.cli.output import Target
from traceview.cli.table import FormatChoice, Table, chosen_devices, chosen_format, write

if TYPE_CHECKING:
    import pandas as pd

    from traceview.analysis.ops import OpRow
    from traceview.document.page import Page


class Class(str, Enum):
    """The classes of device activity."""

    compute = "compute"
    collective = "collective"
    h2d = "h2d"
    d2h = "d2h"
    d2d = "d2d"
    memset = "memset"


class Sort(str, Enum):
    """What the rows of a device may be sorted by, the largest first."""

    by_total = "total"
    by_self = "self"
    by_count = "count"


def ops(
    logdir: Logdir,
    run: Run = None,
    format_: FormatChoice = None,
    output: Output = None,
    force: Force = False,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    device: Devices = None,
    class_: Annotated[
        list[Class] | None,
        typer.Option(
            "--class", help="Only this class of activity. May be repeated.", show_default=False
        ),
    ] = None,
    sort: Annotated[Sort, typer.Option(help="What comes first on each device.")] = Sort.by_total,
    top: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Only the first N rows of each device.", show_default=False
        ),
    ] = None,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """List every op and kernel of every device with its times.

    In CSV a name that a spreadsheet would run as a formula (it begins with = + - or @) gets an apostrophe
    in front.

    Example: traceview ops logs/ --device GPU:0 -o ops.csv
    """
    collect_no_garbage()
    from traceview.analysis.base import Skipped
    from traceview.analysis.ops import OpRow, compute, table_in_window
    from traceview.analysis.selection import select
    from traceview.cli.progress import reading
    from traceview.trace.load import load

    target = Target.of(output, force=force)
    chosen_steps = step_range(steps)
    format_ = chosen_format(format_, target)
    with reading(logdir, run):
        trace = load(logdir, run=run, salvage=salvage)
        selection = select(trace, window.value, chosen_steps)
        result = compute(trace, selection, None)
    rows = () if isinstance(result, Skipped) else result.rows
    order = _order(
        rows, chosen_devices(trace, device), {one.value for one in class_ or Class}, sort, top
    )
    shown = [rows[i] for i in order]

    def frame() -> pd.DataFrame:
        from traceview.trace.frames import ops_frame

        return ops_frame(trace, table_in_window(trace, selection)).iloc[order]

    table = Table(
        trace=trace,
        selection=selection,
        row=OpRow,
        rows=shown,
        left_out_count=len(rows) - len(shown),
        remarks=("share is of the device's compute time",),
        add_rows=lambda page: _add_rows(page, shown),
        frame=frame,
    )
    write(target, format_, table, width)
    if not rows:
        typer.echo("traceview: no device recorded an event in the window", err=True)


def _add_rows(page: Page, rows: Sequence[OpRow]) -> None:
    from traceview.render.ops import add_op_tables

    add_op_tables(page, rows)


def _order(
    rows: Sequence[OpRow], devices: set[str], classes: set[str], sort: Sort, top: int | None
) -> list[int]:
    """Which rows to show, and in which order: by device, then the largest first."""
    of_device: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        if row.device in devices and row.class_ in classes:
            of_device.setdefault(row.device, []).append(index)
    return [
        index
        for places in of_device.values()
        for index in sorted(places, key=lambda i: -_largeness(rows[i], sort))[:top]
    ]


def _largeness(row: OpRow, sort: Sort) -> int:
    if sort is Sort.by_count:
        return row.count
    return row.self_ps if sort is Sort.by_self else row.total_ps
