"""`traceview render`: a saved report, shown again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from traceview.cli.documents import content_of, document_called
from traceview.cli.options import Force, Output, Redact, Width
from traceview.cli.output import Target, format_of
from traceview.render.formats import DOCUMENTS

TERMINAL: Final = "terminal"
TERMINAL_TOP: Final = 5
"""Op rows per device on a terminal, as `traceview analyze` shows them."""


def render(
    report: Annotated[
        Path,
        typer.Argument(metavar="REPORT", help="A report.json of traceview.", show_default=False),
    ],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join((TERMINAL, *(one.name for one in DOCUMENTS))),
            help="By default what FILE ends with, else terminal.",
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
    redact: Redact = False,
    width: Width = None,
) -> None:
    """Show a saved report, without the trace it was made of.

    Example: traceview render report.json --format markdown -o report.md
    """
    from traceview.report.saved import load_report

    target = Target.of(output, force=force)
    if format_ is None:
        document = format_of(target.path, {one.suffix: one for one in DOCUMENTS}, None)
    else:
        document = None if format_.lower() == TERMINAL else document_called(format_)
    saved = load_report(report)
    if redact:
        from traceview.report.redaction import redacted

        saved = redacted(saved)
    if document is not None:
        target.write(content_of(document, saved))
        return
    from traceview.render.terminal import render as render_page

    target.write(
        render_page(
            saved,
            width=target.width(width),
            color=target.has_color,
            unicode=target.has_unicode,
            top=TERMINAL_TOP,
        )
    )
