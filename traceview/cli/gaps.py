"""`traceview gaps`: every span in which a device did nothing, and why."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from traceview.cli.durations import picoseconds
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
from traceview.cli.table import (
    Format,
    FormatChoice,
    Table,
    chosen_devices,
    chosen_format,
    write,
)

if TYPE_CHECKING:
    import pandas as pd

TERMINAL_TOP = 20


class CauseChoice(str, Enum):
    """What a device may have waited for."""

    input = "input"
    h2d = "h2d"
    compile = "compile"
    sync = "sync"
    checkpoint = "checkpoint"
    launch = "launch"
    callback = "callback"
    host_compute = "host_compute"
    peer = "peer"
    dependency = "dependency"
    latency = "latency"
    unattributed = "unattributed"
    unused = "unused"


def gaps(
    logdir: Logdir,
    run: Run = None,
    format_: FormatChoice = None,
    output: Output = None,
    force: Force = False,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    device: Devices = None,
    cause: Annotated[
        list[CauseChoice] | None,
        typer.Option(
            help="Only gaps of which this is the largest part. May be repeated.", show_default=False
        ),
    ] = None,
    least: Annotated[
        str, typer.Option("--min", metavar="TIME", help="Only gaps from this length on, as 50us.")
    ] = "0us",
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Only the N longest; by default {TERMINAL_TOP} on a terminal, else all.",
            show_default=False,
        ),
    ] = None,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """List when a device did nothing, longest first, and why.

    A cause is shown by the host event that the launching thread was in; what nothing shows is unattributed.

    Example: traceview gaps logs/ --device GPU:0 --cause input --min 50us
    """
    collect_no_garbage()
    from traceview.analysis.idle.result import idle_time
    from traceview.analysis.idle.table import GapRow, gap_table
    from traceview.analysis.selection import select
    from traceview.cli.progress import reading
    from traceview.render.idle import add_gap_rows
    from traceview.trace.load import load

    target = Target.of(output, force=force)
    chosen_steps = step_range(steps)
    least_ps = picoseconds("--min", least)
    format_ = chosen_format(format_, target)
    if top is None and format_ is Format.terminal:
        top = TERMINAL_TOP
    with reading(logdir, run):
        trace = load(logdir, run=run, salvage=salvage)
        selection = select(trace, window.value, chosen_steps)
        idle = idle_time(trace, selection)
        rows, left_out = gap_table(
            trace,
            selection,
            idle,
            devices=chosen_devices(trace, device),
            causes=[one.value for one in cause or ()],
            least_ps=least_ps,
            top=top,
        )

    def frame() -> pd.DataFrame:
        from traceview.trace.frames import rows_frame

        return rows_frame(rows, GapRow)

    table = Table(
        trace=trace,
        selection=selection,
        row=GapRow,
        rows=rows,
        left_out_count=left_out,
        remarks=("longest first",),
        add_rows=lambda page: add_gap_rows(page, rows),
        frame=frame,
    )
    write(target, format_, table, width)
    if not idle.gaps:
        typer.echo("traceview: no device recorded an event", err=True)
