"""Defines `traceview runs`: the runs in a log directory."""

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

    Reads only names and metadata. A star marks the run that analyze reads by default. The exit code is 4 if no run
    can be read.

    Example: traceview runs logs/
    """
    from traceview.cli.run_list import run_data, run_section
    from traceview.document.json_text import dumped
    from traceview.trace.locate import find_runs, newest_readable, summarize

    target = Target(None)
    summaries = [summarize(run) for run in find_runs(logdir)]
    newest = newest_readable(summaries)
    chosen = None if newest is None else summaries[newest].name
    if format_ is Format.json:
        target.write(dumped(run_data(summaries, chosen)))
    else:
        target.write_section(run_section(summaries, chosen), width)
    if chosen is None:
        raise typer.Exit(TraceFormatError.exit_code)
