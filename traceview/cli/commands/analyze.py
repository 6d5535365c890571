"""Defines `traceview analyze`: how busy every device was, and what to change."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from traceview.base.errors import TraceNotFoundError
from traceview.base.text import shell_path
from traceview.base.timing import stage
from traceview.cli.options import (
    Force,
    Full,
    Output,
    Redact,
    Subject,
    Width,
    format_option,
    reads_run,
)
from traceview.cli.output import Target, format_of
from traceview.cli.report_source import Source, show_hangs

TERMINAL_TOP: Final = 5
"""Op rows per device on a terminal, where every row costs a line or two."""


_FORMATS: Final = ("terminal", "json")


@reads_run
def analyze(
    context: typer.Context,
    logdir: Subject,
    full: Full = False,
    format_: Annotated[str | None, format_option(*_FORMATS)] = None,
    output: Output = None,
    force: Force = False,
    redact: Redact = False,
    width: Width = None,
) -> None:
    """Show how busy each device was, with what, and what to change.

    Example: traceview analyze logs/ --steps 5:10
    """
    target = Target.of(output, logdir, force=force, width=width)
    as_json = format_of(format_, target.path, _FORMATS) == "json"
    source = Source.of(context, logdir)
    try:
        report = source.report(
            top=None if as_json else TERMINAL_TOP,
            is_for_screen=not (as_json or full or redact or target.path),
        )
    except TraceNotFoundError:
        # A job that hangs before its window has no trace, but says where it hangs.
        if show_hangs(target, logdir, as_json=as_json, is_redacted=redact):
            return
        raise
    if redact:
        from traceview.report.redaction import redacted

        report = redacted(report)
    with stage("writing"):
        if as_json:
            from traceview.report.saved import to_json

            target.write(to_json(report).encode())
            return
        from traceview.report.document import Invocation

        options = " --redact" if redact else ""
        if source.is_saved:
            place = "REPORT" if redact else shell_path(logdir)
            asked = Invocation(full_command=f"traceview analyze {place}{options} --full")
        else:
            place = "" if redact else str(logdir)
            asked = Invocation(logdir=place, is_salvaged=source.salvage, options=options)
        target.write_report(report, is_full=full, invocation=asked)
