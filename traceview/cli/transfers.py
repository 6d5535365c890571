"""Defines `traceview transfers`: what copies between the host and the GPUs cost, and what issues them."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from traceview.cli.options import word_of
from traceview.cli.table import Answer, Request, table_command, topic_sections

DIRECTIONS: Final = ("h2d", "d2h", "d2d")


@table_command()
def transfers(
    request: Request,
    direction: Annotated[
        list[str] | None,
        typer.Option(
            parser=word_of("--direction", DIRECTIONS),
            metavar=f"<{'|'.join(DIRECTIONS)}>",
            help="Only copies in this direction. May be repeated.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Only the first N sources of each device.", show_default=False
        ),
    ] = None,
) -> Answer:
    """List what issues copies between host and GPUs.

    One row per op, or whatever else issues copies, the longest exposed first. A copy is exposed while its GPU neither computes nor communicates.
    The DataFrame traceview.load(LOGDIR).copies has every single copy.

    Example: traceview transfers logs/ --direction h2d
    """
    from msgspec.structs import replace

    from traceview.analysis import transfers as topic
    from traceview.analysis.base import Skipped
    from traceview.analysis.transfers.result import CopySource, compute
    from traceview.trace.table import record_columns, table

    result = compute(request.trace, request.selection, request.context.activities, None)
    devices = () if isinstance(result, Skipped) else result.devices
    shown = tuple(
        replace(
            device,
            top_sources=tuple(
                source
                for source in device.top_sources
                if not direction or source.direction in direction
            )[:top],
        )
        for device in devices
        if device.device in request.devices
    )
    sources = [source for device in shown for source in device.top_sources]
    record = None if isinstance(result, Skipped) else replace(result, devices=shown)
    return Answer(
        rows=table("transfers", *record_columns(CopySource, sources)),
        sections=lambda: topic_sections(request, topic.ANALYSIS, record),
        left_out_count=sum(device.source_count for device in devices) - len(sources),
        order="longest exposed first",
        remarks=(result.reason,) if isinstance(result, Skipped) else (),
    )
