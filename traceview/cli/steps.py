"""`traceview steps`: how long each step took, and what every device did in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def steps(
    logdir: Logdir,
    run: Run = None,
    format_: FormatChoice = None,
    output: Output = None,
    force: Force = False,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    device: Devices = None,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """List every step with its time, and what it went into.

    For each device: the parts of its time in the step, and the causes of its idle time.

    Example: traceview steps logs/ -o steps.csv
    """
    collect_no_garbage()
    from traceview.analysis.activity import activities
    from traceview.analysis.base import Skipped
    from traceview.analysis.device_time import compute as device_time
    from traceview.analysis.idle import compute as idle
    from traceview.analysis.selection import select
    from traceview.analysis.steps import compute as step_times
    from traceview.analysis.steps.table import StepLine, in_whole_steps, step_table
    from traceview.cli.progress import reading
    from traceview.render.numbers import plural
    from traceview.render.step_table import add_step_lines, ends_of
    from traceview.report.standing_out import standing_out_of
    from traceview.trace.load import load

    target = Target.of(output, force=force)
    chosen_steps = step_range(steps)
    format_ = chosen_format(format_, target)
    with reading(logdir, run):
        trace = load(logdir, run=run, salvage=salvage)
        selection = select(trace, window.value, chosen_steps)
        unions = tuple(activities(trace))
        found = step_times.compute(trace, selection, unions)
        others = standing_out_of(device_time.compute(trace, selection, unions).devices).others
        whole = in_whole_steps(selection)
        waits = idle.compute(trace, whole, idle.idle_time(trace, whole), 0)
    keys = chosen_devices(trace, device)
    known = None if isinstance(waits, Skipped) else waits
    rows = [] if isinstance(found, Skipped) else step_table(found, known, keys)
    shown = ends_of(rows) if format_ is Format.terminal else rows

    def frame() -> pd.DataFrame:
        from traceview.trace.frames import rows_frame

        return rows_frame(rows, StepLine)

    table = Table(
        trace=trace,
        selection=selection,
        row=StepLine,
        rows=shown,
        left_out_count=len(rows) - len(shown),
        remarks=(),
        add_rows=lambda page: add_step_lines(page, rows, () if device else others),
        frame=frame,
    )
    write(target, format_, table, width)
    if isinstance(found, Skipped):
        typer.echo(f"traceview: {found.reason}", err=True)
    elif not rows:
        counted = plural(found.count, "step")
        typer.echo(
            f"traceview: {counted}, and no device was recorded; "
            "traceview analyze shows how long they took",
            err=True,
        )
