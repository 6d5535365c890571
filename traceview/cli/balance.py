"""`traceview balance`: how evenly the devices worked, which one is late, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from traceview.cli.garbage import collect_no_garbage
from traceview.cli.options import (
    Baseline,
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


def balance(
    logdir: Logdir,
    run: Run = None,
    format_: FormatChoice = None,
    output: Output = None,
    force: Force = False,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    device: Devices = None,
    baseline: Baseline = None,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """Compare the devices: who takes longest, and who comes last.

    A row for each device that computed, with what ran on it. A terminal also shows what a step would take at least if they were balanced, and with --baseline how much
    faster the run is than on one device. analyze --format json holds all of it.

    Example: traceview balance logs/ --baseline logs_of_one_gpu/
    """
    collect_no_garbage()
    from traceview.analysis.balance.table import BalanceLine, balance_table
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
        report = analyze(trace, window=window.value, steps=chosen_steps, top=0, baseline=baseline)
    wanted = chosen_devices(trace, device)
    found, scaling = report.results.balance, report.results.scaling
    lines = balance_table(found) if found else []
    rows = [line for line in lines if line.device in wanted]

    def add_rows(page: Page) -> None:
        from traceview.render.balance import add_comparison, add_scaling

        if found is not None:
            chosen = wanted if device else set(standing_out(report).shown)
            add_comparison(page, found, chosen=chosen)
        if scaling is not None:
            add_scaling(page, scaling)

    def frame() -> pd.DataFrame:
        from traceview.trace.frames import rows_frame

        return rows_frame(rows, BalanceLine)

    table = Table(
        trace=trace,
        selection=select(trace, window.value, chosen_steps),
        row=BalanceLine,
        rows=rows,
        left_out_count=len(lines) - len(rows),
        remarks=(),
        add_rows=add_rows,
        frame=frame,
    )
    write(target, format_, table, width)
    reasons = [report.skipped[name] for name in ("balance", "scaling") if name in report.skipped]
    for reason in reasons if baseline is not None else reasons[:-1]:
        typer.echo(f"traceview: {reason}", err=True)
