"""Defines `traceview gaps`: every span in which a device did nothing, and why."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from traceview.cli.options import picoseconds, word_of
from traceview.cli.table import Answer, Request, table_command
from traceview.document.vocabulary import CAUSES

TERMINAL_TOP: Final = 20
"""The longest ones, on one screen."""


@table_command()
def gaps(
    request: Request,
    cause: Annotated[
        list[str] | None,
        typer.Option(
            parser=word_of(
                "--cause", CAUSES, {look.words.lower(): look.key for look in CAUSES.values()}
            ),
            metavar=f"<{'|'.join(CAUSES)}>",
            help="Only gaps of which this is the largest part. May be repeated.",
            show_default=False,
        ),
    ] = None,
    least: Annotated[
        str, typer.Option("--min", metavar="TIME", help="Only gaps of at least this length: 50us.")
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
) -> Answer:
    """List when a device did nothing, longest first, and why.

    The host event that the launching thread was in shows the cause; a gap without such evidence has no recorded cause.

    Example: traceview gaps logs/ --device GPU:0 --cause input --min 50us
    """
    from traceview.analysis.idle.table import gap_table, gap_table_section

    least_ps = picoseconds("--min", least)
    if top is None and request.is_terminal:
        top = TERMINAL_TOP
    idle, trace = request.context.idle, request.trace
    windows = {
        trace.device_key(device): request.selection.windows[trace.device_list[device].host].start_ps
        for device in idle.gaps
    }
    rows, left_out_count = gap_table(
        request.trace,
        request.selection,
        idle,
        devices=request.devices,
        causes=cause or (),
        least_ps=least_ps,
        top=top,
    )
    return Answer(
        rows=rows,
        sections=lambda: [gap_table_section(rows, windows)],
        left_out_count=left_out_count,
        order="longest first",
        remarks=() if idle.gaps else ("the trace holds no device event",),
    )
