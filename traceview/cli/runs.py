"""`traceview runs`: which runs are there?"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from traceview.cli.options import Logdir, Width
from traceview.cli.output import Target


class Format(str, Enum):
    """What the list can be written as."""

    terminal = "terminal"
    json = "json"


def runs(
    logdir: Logdir,
    format_: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.terminal,
    width: Width = None,
) -> None:
    """List the runs below LOGDIR with their hosts, devices and sizes.

    Nothing but names and metadata is read. The run that analyze would take is marked.

    Example: traceview runs logs/
    """
    from traceview.render.runs import render, render_json
    from traceview.trace.locate import choose_run, find_runs, summarize

    target = Target(None)
    found = find_runs(logdir)
    chosen = choose_run(found, None).name
    summaries = [summarize(run) for run in found]
    if format_ is Format.json:
        target.write(render_json(summaries, chosen).encode())
        return
    target.write(
        render(
            summaries,
            chosen,
            width=target.width(width),
            color=target.has_color,
            unicode=target.has_unicode,
        )
    )
