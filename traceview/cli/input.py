"""`traceview input`: what the input pipeline costs, and every stage of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from traceview.cli.garbage import collect_no_garbage
from traceview.cli.options import (
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
from traceview.cli.table import FormatChoice, Table, chosen_format, write

if TYPE_CHECKING:
    import pandas as pd

    from traceview.document.page import Page


def input_(
    logdir: Logdir,
    run: Run = None,
    format_: FormatChoice = None,
    output: Output = None,
    force: Force = False,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    top: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Only the first N stages.", show_default=False),
    ] = None,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """List the stages of tf.data, and how long the model waited.

    The self time of a stage is without that of the stages it calls on its thread; where it only waits for
    one on another thread, that share of it is waiting.

    Example: traceview input logs/ --steps 5:10 -o stages.csv
    """
    collect_no_garbage()
    from traceview.analysis.base import Skipped
    from traceview.analysis.idle.result import idle_time
    from traceview.analysis.input import compute as pipeline
    from traceview.analysis.selection import select
    from traceview.cli.progress import reading
    from traceview.trace.cause import Cause
    from traceview.trace.load import load
    from traceview.trace.pipeline import InputStage

    target = Target.of(output, force=force)
    chosen_steps = step_range(steps)
    format_ = chosen_format(format_, target)
    with reading(logdir, run):
        trace = load(logdir, run=run, salvage=salvage)
        selection = select(trace, window.value, chosen_steps)
        causes = idle_time(trace, selection).causes_of_steps
        idle = {device: of_steps[Cause.INPUT] for device, of_steps in causes.items()}
        found = pipeline.compute(trace, selection, idle, top)
    rows = () if isinstance(found, Skipped) else found.stages

    def add_rows(page: Page) -> None:
        from traceview.render.input import add_input_summary, add_stages

        if not isinstance(found, Skipped):
            add_input_summary(page, found)
            add_stages(page, rows)

    def frame() -> pd.DataFrame:
        from traceview.trace.frames import rows_frame

        return rows_frame(rows, InputStage)

    table = Table(
        trace=trace,
        selection=selection,
        row=InputStage,
        rows=rows,
        left_out_count=0 if isinstance(found, Skipped) else found.left_out_count,
        remarks=("by self time",),
        add_rows=add_rows,
        frame=frame,
    )
    write(target, format_, table, width)
    if isinstance(found, Skipped):
        typer.echo(f"traceview: {found.reason}", err=True)
