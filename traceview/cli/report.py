"""Defines `traceview report`: everything about a run, for a ticket or for later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.cli.bundle import Bundle
from traceview.cli.document_choice import chosen_document
from traceview.cli.options import (
    Baseline,
    Ignore,
    Logdir,
    MaxMemory,
    Redact,
    Run,
    Salvage,
    Scheduler,
    Select,
    Steps,
    Window,
    WindowChoice,
    Workers,
    finding_codes,
    hosts_read_by,
    step_range,
)
from traceview.cli.output import Target, checked_place
from traceview.cli.timings import Timings
from traceview.errors import UsageError
from traceview.export.formats import TABLES, check_pyarrow
from traceview.location import Location
from traceview.report.formats import DOCUMENTS
from traceview.stages import stage
from traceview.store.address import location_of

if TYPE_CHECKING:
    from traceview.analysis.selection import Selection
    from traceview.report.model import Report
    from traceview.trace.model import Trace

TABLE_FILES: Final = {name: f"data/{name}.parquet" for name in TABLES}
"""The tables of the window, for further computation, by their names."""

_FILES: Final = (*(document.file_name for document in DOCUMENTS), *TABLE_FILES.values())


def report(
    logdir: Logdir,
    output: Annotated[
        Location | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            parser=location_of,
            help="Folder to write; with --format or a known ending, a single file.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(document.name for document in DOCUMENTS),
            help="Write only this document; without -o to standard output.",
            show_default=False,
        ),
    ] = None,
    with_data: Annotated[
        bool,
        typer.Option(
            "--with-data", help="Also write the tables of the window as Parquet, in data/."
        ),
    ] = False,
    redact: Redact = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    run: Run = None,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    baseline: Baseline = None,
    select: Select = None,
    ignore: Ignore = None,
    salvage: Salvage = False,
    workers: Workers = 1,
    scheduler: Scheduler = None,
    max_memory: MaxMemory = None,
    timings: Timings = False,
) -> None:
    """Write the report of a run as a folder of documents.

    All files are written or none. traceview render report.json shows a saved report again.

    Example: traceview report logs/ -o report
    """
    from traceview.cli.progress import reading
    from traceview.trace.load import load

    if output is not None:
        checked_place(output)
    document = chosen_document(format_, output)
    if document is None and output is None:
        raise UsageError(
            "no output is named", hint="-o DIR for all documents, --format for a single one"
        )
    target = Target.of(output, force=force, source=logdir) if document else None
    bundle = Bundle(output, _FILES, force) if output is not None and not document else None
    if bundle:
        bundle.check()
    if with_data:
        _check_data(redact=redact, has_folder=bundle is not None)
    chosen_steps = step_range(steps)
    hosts = hosts_read_by(workers, scheduler, are_asked=True)
    select_codes, ignore_codes = finding_codes(select, ignore)
    with hosts as readers, reading(logdir, run, is_here=readers is None):
        trace = load(logdir, run=run, salvage=salvage, readers=readers)
        from traceview.analysis.selection import select as selection_of
        from traceview.report.build import analyze

        made = analyze(
            trace,
            window=window.value,
            steps=chosen_steps,
            select_codes=select_codes or None,
            ignore_codes=ignore_codes,
            baseline=baseline,
            lanes=True,
            readers=readers,
        )
        made = _with_own_choices(made, salvage=salvage)
    if redact:
        from traceview.report.redaction import redacted

        made = redacted(made)
    with stage("writing"):
        if target and document:
            target.write(document.render(made).encode())
        elif bundle:
            _write(bundle, made, trace, selection_of(trace, window.value, chosen_steps), with_data)


def _check_data(*, redact: bool, has_folder: bool) -> None:
    if redact:
        raise UsageError(
            "--with-data and --redact exclude each other: the tables hold every name of the trace"
        )
    if not has_folder:
        raise UsageError("--with-data needs a folder: -o DIR, without --format")
    check_pyarrow("--with-data")


def _with_own_choices(made: Report, *, salvage: bool) -> Report:
    from msgspec.structs import replace

    return replace(made, command=(*made.command, "--salvage")) if salvage else made


def _write(
    bundle: Bundle, made: Report, trace: Trace, selection: Selection, with_data: bool
) -> None:
    files = {document.file_name: (document.render(made).encode(),) for document in DOCUMENTS}
    if with_data:
        from traceview.export import parquet
        from traceview.export.tables import window_tables

        tables = window_tables(trace, selection, made)
        files |= {TABLE_FILES[table.name]: (parquet.written(table),) for table in tables}
    bundle.write(files)
    typer.echo(f"traceview: wrote {', '.join(files)} to {bundle.folder}", err=True)
