"""Defines `traceview steps`: how long each step took, and what every device did in it."""

from __future__ import annotations

from traceview.cli.table import Answer, Request, table_command


@table_command()
def steps(request: Request) -> Answer:
    """List every step with its time, and what it went into.

    For each device: the parts of its time in the step, and the causes of its idle time.

    Example: traceview steps logs/ -o steps.csv
    """
    from traceview.analysis import steps as topic
    from traceview.analysis.base import Skipped
    from traceview.analysis.steps.table import (
        first_and_last,
        idle_in_steps,
        step_sections,
        step_table,
    )
    from traceview.document.numbers import plural

    context = request.context
    result = context.result(topic.ANALYSIS)
    idle = idle_in_steps(request.trace, request.selection)
    rows = step_table(context.record(topic.ANALYSIS), idle, request.devices)
    shown = first_and_last(rows) if request.is_terminal else rows
    remarks: tuple[str, ...] = ()
    if isinstance(result, Skipped):
        remarks = (result.reason,)
    elif not rows.count:
        count = plural(result.count, "step")
        remarks = (
            f"{count}, but no device was recorded; traceview analyze shows how long they took",
        )
    return Answer(
        rows=shown,
        sections=lambda: step_sections(rows, request.others()),
        left_out_count=rows.count - shown.count,
        remarks=remarks,
    )
