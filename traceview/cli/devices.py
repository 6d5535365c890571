"""`traceview devices`: every device, how busy it was, with what, and how it compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def devices(
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
    """List every device with the parts of its time.

    Each is compared with the others. A terminal shows the columns that fit, and of very many devices those that stand out; the other formats hold all. Which devices ran work in which step
    is in the DataFrame traceview.load(LOGDIR).active_devices.

    Example: traceview devices logs/ -o devices.csv
    """
    collect_no_garbage()
    from traceview.analysis.device_time.table import DeviceLine, device_table
    from traceview.analysis.selection import select
    from traceview.cli.progress import reading
    from traceview.report.build import analyze
    from traceview.report.standing_out import standing_out
    from traceview.trace.load import load

    target = Target.of(output, force=force)
    chosen_steps = step_range(steps)
    format_ = chosen_format(format_, target)
    with reading(logdir, run):
        trace = load(logdir, run=run, salvage=salvage)
        report = analyze(trace, window=window.value, steps=chosen_steps, top=0)
    wanted = chosen_devices(trace, device)
    results = report.results
    lines = device_table(results.device_time, results.balance) if results.device_time else []
    rows = [line for line in lines if line.device in wanted]

    def add_rows(page: Page) -> None:
        from traceview.render.device_table import add_device_lines
        from traceview.render.placement import changes_of_devices

        add_device_lines(page, rows, standing_out(report).others if device is None else ())
        if results.placement is not None:
            for told in changes_of_devices(results.placement):
                page.prose(f"{told[:1].upper()}{told[1:]}.")

    def frame() -> pd.DataFrame:
        from traceview.trace.frames import rows_frame

        return rows_frame(rows, DeviceLine)

    table = Table(
        trace=trace,
        selection=select(trace, window.value, chosen_steps),
        row=DeviceLine,
        rows=rows,
        left_out_count=len(lines) - len(rows),
        remarks=(),
        add_rows=add_rows,
        frame=frame,
    )
    write(target, format_, table, width)
