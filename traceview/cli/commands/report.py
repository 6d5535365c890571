"""Defines `traceview report`: everything about a run as documents, for a ticket, for later, or in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.base.errors import UsageError
from traceview.base.location import Location
from traceview.base.timing import stage
from traceview.cli.options import (
    Redact,
    Subject,
    choice,
    flag,
    option,
    reads_run,
)
from traceview.cli.output import Bundle, Target, checked_place
from traceview.cli.report_source import Source
from traceview.report.formats import DOCUMENTS, DocumentFormat
from traceview.store.address import location_of

if TYPE_CHECKING:
    from traceview.report.model import Report

_NAMES: Final = tuple(document.name for document in DOCUMENTS)
_FILES: Final = tuple(document.file_name for document in DOCUMENTS)


_VIEWERS: Final = ("report", "xprof", "tensorboard", "perfetto")


@reads_run
def report(
    context: typer.Context,
    logdir: Subject,
    output: Annotated[
        Location | None,
        option(
            "DIR",
            "Folder, or with --format or a known ending a file.",
            "--output",
            "-o",
            parser=location_of,
        ),
    ] = None,
    format_: Annotated[
        str | None,
        choice("NAME", f"One document: {', '.join(_NAMES)}.", "--format", _NAMES),
    ] = None,
    viewer: Annotated[
        str | None,
        choice("PROGRAM", f"In a browser: {', '.join(_VIEWERS)}.", "--open", _VIEWERS),
    ] = None,
    port: Annotated[int | None, option("N", "Serve --open at this port.", min=0, max=65535)] = None,
    redact: Redact = False,
    force: Annotated[bool, flag("Replace files that exist.", "--force")] = False,
) -> None:
    """Write the report of a run as documents, or open it in a browser.

    All files are written or none. --open report shows a temporary file; with --port, and for the other programs, the run
    is served to this machine alone until Ctrl-C.

    Example: traceview report logs/ -o report
    """
    source = Source.of(context, logdir)
    if viewer is not None:
        if output is not None or format_ is not None:
            raise UsageError("--open and -o or --format exclude each other")
        from traceview.cli.commands import viewing

        if viewer == "report":
            viewing.show_report(lambda: _made(source, redact), port)
        else:
            if source.is_saved:
                raise UsageError(f"--open {viewer} needs a trace, and {logdir} is a saved report")
            viewing.check_options(context, viewer)
            viewing.show_run(viewer, source, port)
        return
    if port is not None:
        raise UsageError("--port needs --open")
    if output is not None:
        checked_place(output)
    document = _chosen_document(format_, output)
    if document is None and output is None:
        raise UsageError(
            "no output is named", hint="-o DIR for all documents, --format for a single one"
        )
    if output is not None:
        _check_apart(output.parent if document else output, logdir, is_folder=not document)
    target = Target.of(output, logdir, force=force) if document else None
    bundle = Bundle(output, _FILES, force) if output is not None and not document else None
    if bundle:
        bundle.check()
    made = _made(source, redact)
    with stage("writing"):
        if target and document:
            target.write(document.render(made).encode())
        elif bundle:
            bundle.write({known.file_name: (known.render(made).encode(),) for known in DOCUMENTS})
            typer.echo(f"traceview: wrote {', '.join(_FILES)} to {bundle.folder}", err=True)


def _check_apart(folder: Location, logdir: Location, *, is_folder: bool) -> None:
    """Raise `UsageError` for a folder that holds the recorded runs."""
    place, read = folder.resolve(), logdir.resolve()
    recorded = read / "plugins"
    if (is_folder and place == read) or recorded == place or recorded in place.parents:
        raise UsageError(
            f"{folder} is the log directory that the command reads",
            hint="write to another folder, such as traceview-report",
        )


def _made(source: Source, is_redacted: bool) -> Report:
    made = source.report(lanes=True)
    if is_redacted:
        from traceview.report.redaction import redacted

        return redacted(made)
    return made


def _chosen_document(name: str | None, path: Location | None) -> DocumentFormat | None:
    """The document of `--format`, else of the ending of `path`; None where neither names one."""
    suffix = "" if path is None or path.is_dir() else path.suffix.lower()
    return next(
        (each for each in DOCUMENTS if name == each.name or (not name and each.suffix == suffix)),
        None,
    )
