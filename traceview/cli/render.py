"""Defines `traceview render`: a saved report, shown again."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from traceview.cli.document_choice import document_called
from traceview.cli.options import Force, Full, Output, Redact, Width
from traceview.cli.output import Target, format_of
from traceview.location import Location
from traceview.report.formats import DOCUMENTS
from traceview.shell_quote import shell_path
from traceview.store.address import location_of

TERMINAL: Final = "terminal"


def render(
    report: Annotated[
        Location,
        typer.Argument(
            metavar="REPORT",
            parser=location_of,
            help="A report.json that traceview wrote.",
            show_default=False,
        ),
    ],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join((TERMINAL, *(document.name for document in DOCUMENTS))),
            help="By default what FILE ends with, else terminal.",
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
    redact: Redact = False,
    full: Full = False,
    width: Width = None,
) -> None:
    """Show a saved report without its trace.

    Example: traceview render report.json --format markdown -o report.md
    """
    from traceview.report.saved import load_report

    target = Target.of(output, force=force)
    if format_ is None:
        document = format_of(target.path, {known.suffix: known for known in DOCUMENTS}, None)
    else:
        document = None if format_.lower() == TERMINAL else document_called(format_)
    saved = load_report(report)
    if redact:
        from traceview.report.redaction import redacted

        saved = redacted(saved)
    if document is not None:
        target.write(document.render(saved).encode())
    else:
        from traceview.report.screen import Invocation

        place = "REPORT --redact" if redact else shell_path(report)
        command = f"traceview render {place} --full"
        target.write_report(saved, width, is_full=full, invocation=Invocation(full_command=command))
