"""`traceview transfers`: what copies between the host and the GPUs cost, and who issues them."""

from __future__ import annotations

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

    from traceview.document.page import Page


class DirectionChoice(str, Enum):
    """Where copies may go."""

    h2d = "h2d"
    d2h = "d2h"
    d2d = "d2d"


def transfers(
    logdir: Logdir,
    run: Run = None,
    format_: FormatChoice = None,
    output: Output = None,
    force: Force = False,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    device: Devices = None,
    direction: Annotated[
        list[DirectionChoice] | None,
        typer.Option(help="Only copies that go this way. May be repeated.", show_default=False),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Only the first N sources of each device.", show_default=False
        ),
    ] = None,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """List what copies between host and GPUs, longest exposed first.

    A row for each op, or whatever else issued copies. A copy is exposed while nothing is computed or communicated on its GPU. Every single copy is in the
    DataFrame traceview.load(LOGDIR).copies.

    Example: traceview transfers logs/ --direction h2d
    """
    collect_no_garbage()
    from traceview.analysis.activity import activities
    from traceview.analysis.base import Skipped
    from traceview.analysis.selection import select
    from traceview.analysis.transfers import compute as analysis
    from traceview.cli.progress import reading
    from traceview.trace.load import load

    target = Target.of(output, force=force)
    chosen_steps = step_range(steps)
    format_ = chosen_format(format_, target)
    with reading(logdir, run):
        trace = load(logdir, run=run, salvage=salvage)
        selection = select(trace, window.value, chosen_steps)
        found = analysis.compute(trace, selection, tuple(activities(trace)), None)
    wanted = chosen_devices(trace, device)
    ways = {one.value for one in direction or DirectionChoice}
    devices = [] if isinstance(found, Skipped) else [d for d in found.devices if d.device in wanted]
    rows = [
        source
        for one in devices
        for source in [source for source in one.top_sources if source.direction in ways][:top]
    ]

    def add_rows(page: Page) -> None:
        from traceview.render.transfers import add_device_transfers, add_sources

        if devices:
            add_device_transfers(page, devices, has_steps=bool(selection.used_steps))
        add_sources(page, rows)

    def frame() -> pd.DataFrame:
        from traceview.trace.frames import rows_frame

        return rows_frame(rows, analysis.CopySource)

    of_all = 0 if isinstance(found, Skipped) else sum(d.source_count for d in found.devices)
    table = Table(
        trace=trace,
        selection=selection,
        row=analysis.CopySource,
        rows=rows,
        left_out_count=of_all - len(rows),
        remarks=("by exposed time",),
        add_rows=add_rows,
        frame=frame,
    )
    write(target, format_, table, width)
    if isinstance(found, Skipped):
        typer.echo(f"traceview: {found.reason}", err=True)
