"""`traceview crosscheck`: what does XProf say of a run, and why is it not what traceview says?"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

import typer

from traceview.cli.garbage import collect_no_garbage
from traceview.cli.options import Force, Logdir, Output, Run, Width
from traceview.cli.output import Target, format_of


class Format(str, Enum):
    """What the comparison can be written as."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    json = "json"


_BY_SUFFIX: Final = {".md": Format.markdown, ".csv": Format.csv, ".json": Format.json}


def crosscheck(
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
    top: Annotated[
        int, typer.Option(min=0, metavar="N", help="Compare the N kernels that take longest.")
    ] = 10,
    width: Width = None,
) -> None:
    """Set what XProf says of a run beside what traceview says.

    Differences come with their reasons. XProf's overview, input, op and kernel pages are made by the XProf that is installed, on a copy of the run. Then
    the trace is counted as XProf counts: a difference is explained where that gives XProf's number. A
    difference is no failure: the exit code is 0.

    Example: traceview crosscheck logs/
    """
    collect_no_garbage()
    from traceview.capture.script import terminable
    from traceview.cli.progress import reading
    from traceview.crosscheck.asking import ask
    from traceview.crosscheck.comparison import compare
    from traceview.crosscheck.facts import facts_of
    from traceview.crosscheck.kernels import kernels_of
    from traceview.crosscheck.recount import recount
    from traceview.report.build import analyze
    from traceview.trace.load import load
    from traceview.trace.locate import choose_run, find_runs
    from traceview.viewers.installed import xprof_module

    target = Target.of(output, force=force)
    format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
    xprof_module()
    with terminable(), reading(logdir, run):
        trace = load(logdir, run=run)
        asked = ask(choose_run(find_runs(logdir), run))
        rows = compare(
            analyze(trace, top=0),
            kernels_of(trace),
            asked.answer,
            recount(trace),
            facts_of(trace),
            top,
        )
    if format_ is Format.json:
        from traceview.render.crosscheck import render_json

        text = render_json(str(trace.logdir), trace.run, asked.version, rows)
        target.write(text.encode())
    elif format_ is Format.csv:
        from traceview.render.crosscheck import render_csv

        target.write(render_csv(rows, escaped=target.is_terminal).encode())
    elif format_ is Format.markdown:
        from traceview.render.markdown.crosscheck import render as render_markdown

        target.write(render_markdown(trace.run, asked.version, rows))
    else:
        from traceview.render.crosscheck import render

        target.write(
            render(
                trace.run,
                asked.version,
                rows,
                width=target.width(width),
                color=target.has_color,
                unicode=target.has_unicode,
            )
        )
