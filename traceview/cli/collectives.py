"""Defines `traceview collectives`: every collective, how long each device was in it, and which one came last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.cli.table import Answer, Request, table_command, topic_sections

if TYPE_CHECKING:
    from traceview.document.model import Section

TERMINAL_TOP: Final = 10
"""The longest ones, with room for the rest of the answer."""


@table_command()
def collectives(
    request: Request,
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
) -> Answer:
    """List the collectives: their times, and which devices waited.

    One row per device in each. The shortest time that a device is in a collective is its transfer; the others waited
    for the rest of their time in it.

    Example: traceview collectives logs/ --steps 10:12 -o collectives.csv
    """
    from traceview.analysis import collectives as topic
    from traceview.analysis.base import Skipped
    from traceview.analysis.collectives.table import collective_rows_section, collective_table

    if top is None and request.is_terminal:
        top = TERMINAL_TOP
    context = request.context
    rows, left_out_count = collective_table(
        request.trace, request.selection, context.collectives, request.devices, top
    )
    result = context.result(topic.ANALYSIS)

    def sections() -> Iterator[Section | None]:
        yield from topic_sections(request, topic.ANALYSIS, context.record(topic.ANALYSIS))
        others = request.others()
        places = zip(rows["device"], rows["is_last"], strict=True)
        shown = [at for at, (key, is_last) in enumerate(places) if is_last or key not in others]
        yield collective_rows_section(rows.at(shown))

    return Answer(
        rows=rows,
        sections=sections,
        left_out_count=left_out_count,
        order="longest waiting first" if top is not None and left_out_count else "",
        remarks=(result.reason,) if isinstance(result, Skipped) and not rows.count else (),
    )
