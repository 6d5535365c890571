"""Defines `traceview input`: what the input pipeline costs, and every stage of it."""

from __future__ import annotations

from typing import Annotated

import typer

from traceview.cli.table import Answer, Request, table_command, topic_sections


@table_command(has_devices=False)
def input_(
    request: Request,
    top: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Only the first N stages.", show_default=False),
    ] = None,
) -> Answer:
    """List the stages of tf.data, and how long the model waited.

    The work of a stage is the time in its calls without the stages that it calls on its thread, and without its
    waiting for stages on other threads.

    Example: traceview input logs/ --steps 5:10 -o stages.csv
    """
    from traceview.analysis import input as topic
    from traceview.analysis.base import Skipped
    from traceview.analysis.input.result import compute
    from traceview.trace.pipeline import InputStage
    from traceview.trace.table import record_columns, table

    context = request.context
    result = compute(request.trace, request.selection, context.input_idle, top)
    record = None if isinstance(result, Skipped) else result
    return Answer(
        rows=table("input_stages", *record_columns(InputStage, record.stages if record else ())),
        sections=lambda: topic_sections(request, topic.ANALYSIS, record),
        left_out_count=record.left_out_count if record else 0,
        order="most work first",
        remarks=(result.reason,) if isinstance(result, Skipped) else (),
    )
