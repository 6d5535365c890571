"""Defines `traceview crosscheck`: the numbers of XProf beside those of traceview, with the reasons for differences."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

import typer

from traceview.cli.options import FORMAT_OPTION, Force, Logdir, Output, Run, Width
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
        FORMAT_OPTION,
    ] = None,
    output: Output = None,
    force: Force = False,
    top: Annotated[
        int, typer.Option(min=0, metavar="N", help="Compare the N kernels that take longest.")
    ] = 10,
    width: Width = None,
) -> None:
    """Compare the numbers of XProf with those of traceview.

    Each difference comes with its reasons. The installed XProf makes its overview, input, op and kernel pages from a
    copy of the run. Then traceview counts by XProf's rules: a difference is explained where that gives XProf's
    number. A difference is no failure: the exit code is 0.

    Example: traceview crosscheck logs/
    """
    from traceview.capture.script import terminable
    from traceview.cli.progress import reading
    from traceview.crosscheck.comparison import compare
    from traceview.crosscheck.document import crosscheck_data, crosscheck_section, crosscheck_table
    from traceview.crosscheck.facts import facts_of
    from traceview.crosscheck.kernels import kernels_of
    from traceview.crosscheck.recount import recount
    from traceview.crosscheck.xprof import ask
    from traceview.report.build import analyze
    from traceview.trace.load import load
    from traceview.trace.locate import choose_run, find_runs
    from traceview.viewers.installed import xprof_module

    target = Target.of(output, force=force, source=logdir)
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
        from traceview.document.json_text import dumped

        target.write(dumped(crosscheck_data(str(trace.logdir), trace.run, asked.version, rows)))
    elif format_ is Format.csv:
        from traceview.export import csv

        target.write_parts(csv.written(crosscheck_table(rows), is_escaped=target.is_terminal))
    elif format_ is Format.markdown:
        from traceview.document.markdown import render_section

        target.write(render_section(crosscheck_section(trace.run, asked.version, rows)))
    else:
        target.write_section(crosscheck_section(trace.run, asked.version, rows), width)
