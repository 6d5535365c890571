"""`traceview collectives`: every collective, how long each device was in it, and who came last."""

from __future__ import annotations

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
from traceview.cli.table import Format, FormatChoice, Table, chosen_devices, chosen_format, write

if TYPE_CHECKING:
    import pandas as pd

    from traceview.document.page import Page

TERMINAL_TOP = 10


def collectives(
    logdir: Logdir,
    run: Run = None,
    format_: FormatChoice = None,
    output: Output = None,
    force: Force = False,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    device: Devices = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Only the N collectives with the longest waiting; by default "
            f"{TERMINAL_TOP} on a terminal, else all in the order in which they began.",
            show_default=False,
        ),
    ] = None,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """List the collectives: how long each took, and who waited.

    A row for each device in each. The shortest time that any device was in a collective is its transfer; what others were in it longer they
    waited.

    Example: traceview collectives logs/ --steps 10:12 -o collectives.csv
    """
    collect_no_garbage()
    from traceview.analysis.activity import activities
    from traceview.analysis.base import Skipped
    from traceview.analysis.collectives import compute as analysis
    from traceview.analysis.collectives.table import CollectiveRow, collective_table
    from traceview.analysis.device_time import compute as device_time
    from traceview.analysis.selection import select
    from traceview.cli.progress import reading
    from traceview.report.standing_out import standing_out_of
    from traceview.trace.collectives import collectives_of
    from traceview.trace.load import load

    target = Target.of(output, force=force)
    chosen_steps = step_range(steps)
    format_ = chosen_format(format_, target)
    if top is None and format_ is Format.terminal:
        top = TERMINAL_TOP
    with reading(logdir, run):
        trace = load(logdir, run=run, salvage=salvage)
        selection = select(trace, window.value, chosen_steps)
        found = collectives_of(trace)
        unions = tuple(activities(trace))
        result = analysis.compute(trace, selection, unions, found)
        times = device_time.compute(trace, selection, unions)
        keys = chosen_devices(trace, device)
        rows, left_out = collective_table(trace, selection, found, keys, top)

    def add_rows(page: Page) -> None:
        from traceview.render.collectives import add_rows as add
        from traceview.render.collectives import add_summary

        chosen = keys if device else set(standing_out_of(times.devices).shown)
        if not isinstance(result, Skipped):
            add_summary(page, result, has_steps=bool(selection.used_steps), chosen=chosen)
        add(page, [row for row in rows if row.device in chosen or row.is_last])

    def frame() -> pd.DataFrame:
        from traceview.trace.frames import rows_frame

        return rows_frame(rows, CollectiveRow)

    table = Table(
        trace=trace,
        selection=selection,
        row=CollectiveRow,
        rows=rows,
        left_out_count=left_out,
        remarks=("longest waiting first",) if top is not None and left_out else (),
        add_rows=add_rows,
        frame=frame,
    )
    write(target, format_, table, width)
    if not rows and isinstance(result, Skipped):
        typer.echo(f"traceview: {result.reason}", err=True)
