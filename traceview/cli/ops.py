"""`traceview ops`: the whole table of ops and kernels."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Final

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
    device_names,
    step_range,
)
from traceview.cli.output import Target, format_of
from traceview.errors import UsageError

if TYPE_CHECKING:
    from traceview.analyses.ops import OpRow
    from traceview.analyses.selection import Selection
    from traceview.trace.model import Trace


class Format(str, Enum):
    """What the table can be written as."""

    terminal = "terminal"
    csv = "csv"
    parquet = "parquet"
    json = "json"


class Class(str, Enum):
    """The classes of device activity."""

    compute = "compute"
    collective = "collective"
    h2d = "h2d"
    d2h = "d2h"
    d2d = "d2d"
    memset = "memset"


class Sort(str, Enum):
    """What the rows of a device may be sorted by, the largest first."""

    by_total = "total"
    by_self = "self"
    by_count = "count"


_BY_SUFFIX: Final = {".csv": Format.csv, ".parquet": Format.parquet, ".json": Format.json}


def ops(
    logdir: Logdir,
    run: Run = None,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format", help="By default what FILE ends with, else terminal.", show_default=False
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    device: Devices = None,
    class_: Annotated[
        list[Class] | None,
        typer.Option(
            "--class", help="Only this class of activity. May be repeated.", show_default=False
        ),
    ] = None,
    sort: Annotated[Sort, typer.Option(help="What comes first on each device.")] = Sort.by_total,
    top: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Only the first N rows of each device.", show_default=False
        ),
    ] = None,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """List every op and kernel of every device with its times.

    In CSV a name that a spreadsheet would run as a formula (it begins with = + - or @) gets an apostrophe
    in front.

    Example: traceview ops logs/ --device GPU:0 -o ops.csv
    """
    collect_no_garbage()
    from traceview.analyses.finding import Skipped
    from traceview.analyses.ops import compute
    from traceview.analyses.selection import select
    from traceview.cli.progress import reading
    from traceview.trace.load import load

    target = Target.of(output, force=force)
    chosen_steps = step_range(steps)
    format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
    if format_ is Format.parquet:
        _check_parquet(target)
    with reading(logdir, run):
        trace = load(logdir, run=run, salvage=salvage)
        selection = select(trace, window.value, chosen_steps)
        table = compute(trace, selection, None)
    rows = () if isinstance(table, Skipped) else table.rows
    order = _order(
        rows, _device_keys(trace, device), {one.value for one in class_ or Class}, sort, top
    )
    if format_ is Format.parquet:
        target.write(_parquet(trace, selection, order))
    else:
        _write(target, format_, trace, selection, [rows[i] for i in order], len(rows), width)
    if not rows:
        typer.echo("traceview: no device recorded an event in the window", err=True)


def _check_parquet(target: Target) -> None:
    if find_spec("pyarrow") is None:
        raise UsageError("Parquet needs pyarrow", hint="pip install 'traceview[parquet]'")
    if target.is_terminal:
        raise UsageError(
            "a terminal cannot show Parquet", hint="write it to a file: -o ops.parquet"
        )


def _device_keys(trace: Trace, wanted: list[str] | None) -> set[str]:
    from traceview.report.filtering import chosen_devices

    known = [trace.device_key(index) for index in range(len(trace.roster))]
    return set(chosen_devices(known, device_names(wanted, known)) if wanted else known)


def _order(
    rows: Sequence[OpRow], devices: set[str], classes: set[str], sort: Sort, top: int | None
) -> list[int]:
    """Which rows to show, and in which order: by device, then the largest first."""
    of_device: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        if row.device in devices and row.class_ in classes:
            of_device.setdefault(row.device, []).append(index)
    return [
        index
        for places in of_device.values()
        for index in sorted(places, key=lambda i: -_largeness(rows[i], sort))[:top]
    ]


def _largeness(row: OpRow, sort: Sort) -> int:
    if sort is Sort.by_count:
        return row.count
    return row.self_ps if sort is Sort.by_self else row.total_ps


def _parquet(trace: Trace, selection: Selection, order: list[int]) -> bytes:
    from traceview.analyses.ops import table_in_window
    from traceview.trace.frames import ops_frame

    frame = ops_frame(trace, table_in_window(trace, selection)).iloc[order]
    buffer = BytesIO()
    frame.to_parquet(buffer, engine="pyarrow", index=False)
    return buffer.getvalue()


def _write(
    target: Target,
    format_: Format,
    trace: Trace,
    selection: Selection,
    rows: list[OpRow],
    row_count: int,
    width: int | None,
) -> None:
    from traceview.report.model import ReportWindow

    if format_ is Format.csv:
        from traceview.render.csv import render as render_csv

        target.write(render_csv(rows, escaped=target.is_terminal).encode())
        return
    windows = [
        ReportWindow(trace.hosts[host].name, one.kind, one.start_ps, one.end_ps)
        for host, one in selection.windows.items()
    ]
    left_out = row_count - len(rows)
    from traceview.render.op_table import render, render_json

    if format_ is Format.json:
        target.write(render_json(str(trace.logdir), trace.run, windows, rows, left_out).encode())
        return
    target.write(
        render(
            trace.run,
            windows,
            rows,
            left_out,
            width=target.width(width),
            color=target.has_color,
            unicode=target.has_unicode,
        )
    )
