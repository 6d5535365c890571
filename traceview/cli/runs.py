"""`traceview runs`: which runs are there?"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from traceview.cli.options import Logdir, Width
from traceview.cli.output import Target
from traceview.errors import TraceFormatError


class Format(str, Enum):
    """What the list can be written as."""

    terminal = "terminal"
    json = "json"


def runs(
    logdir: Logdir,
    format_: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.terminal,
    width: Width = None,
) -> None:
    """List the runs below LOGDIR: hosts, devices and sizes.

    Nothing but names and metadata is read. The run that analyze would take is marked;
    if none can be read, the exit code is 4.

    Example: traceview runs logs/
    """
    from traceview.render.runs import render, render_json
    from traceview.trace.locate import find_runs, newest_readable, summarize

    target = Target(None)
    summaries = [summarize(run) for run in find_runs(logdir)]
    newest = newest_readable(summaries)
    chosen = None if newest is None else summaries[newest].name
    if format_ is Format.json:
        target.write(render_json(summaries, chosen).encode())
    else:
        target.write(
            render(
                summaries,
                chosen,
                width=target.width(width),
                color=target.has_color,
                unicode=target.has_unicode,
            )
        )
    if chosen is None:
        raise typer.Exit(TraceFormatError.exit_code)
