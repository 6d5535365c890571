"""`traceview report`: everything about a run, for a ticket or for later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.cli.bundle import Bundle
from traceview.cli.documents import chosen_document, content_of
from traceview.cli.garbage import collect_no_garbage
from traceview.cli.options import (
    Baseline,
    Logdir,
    Redact,
    Run,
    Salvage,
    Steps,
    Window,
    WindowChoice,
    finding_codes,
    step_range,
)
from traceview.cli.output import Target
from traceview.cli.window_tables import NAMES, check_parquet, file_name, window_tables
from traceview.errors import UsageError
from traceview.render.formats import DOCUMENTS

if TYPE_CHECKING:
    from traceview.analysis.selection import Selection
    from traceview.report.model import Report
    from traceview.trace.model import Trace

_FILES: Final = (*(one.file_name for one in DOCUMENTS), *map(file_name, NAMES))


def report(
    logdir: Logdir,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="The folder to write; with --format, or a known ending, one file.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(one.name for one in DOCUMENTS),
            help="Write this one document, to the terminal without -o.",
            show_default=False,
        ),
    ] = None,
    with_data: Annotated[
        bool,
        typer.Option("--with-data", help="Add the tables of the window as Parquet, in data/."),
    ] = False,
    redact: Redact = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    run: Run = None,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    baseline: Baseline = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODE", help="Report only these findings, comma-separated.", show_default=False
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODE",
            help="Do not report these findings, comma-separated.",
            show_default=False,
        ),
    ] = None,
    salvage: Salvage = False,
) -> None:
    """Write the report of a run as a folder of documents.

    All files are written or none. report.json can be shown again later: traceview render report.json.

    Example: traceview report logs/ -o report
    """
    collect_no_garbage()
    from traceview.analysis.selection import select as selection_of
    from traceview.cli.progress import reading
    from traceview.report.build import analyze
    from traceview.trace.load import load

    document = chosen_document(format_, output)
    if document is None and output is None:
        raise UsageError(
            "nothing says where to write", hint="-o DIR for all documents, --format for one"
        )
    target = Target.of(output, force=force) if document else None
    bundle = Bundle(output, _FILES, force) if output is not None and not document else None
    if bundle:
        bundle.check()
    if with_data:
        _check_data(redact=redact, has_folder=bundle is not None)
    chosen_steps = step_range(steps)
    select_codes, ignore_codes = finding_codes(select, ignore)
    with reading(logdir, run):
        trace = load(logdir, run=run, salvage=salvage)
        made = analyze(
            trace,
            window=window.value,
            steps=chosen_steps,
            select_codes=select_codes or None,
            ignore_codes=ignore_codes,
            baseline=baseline,
            lanes=True,
        )
        made = _with_own_choices(made, salvage=salvage)
    if redact:
        from traceview.report.redaction import redacted

        made = redacted(made)
    if target and document:
        target.write(content_of(document, made))
    elif bundle:
        _write(bundle, made, trace, selection_of(trace, window.value, chosen_steps), with_data)


def _check_data(*, redact: bool, has_folder: bool) -> None:
    if redact:
        raise UsageError(
            "--with-data and --redact do not go together: the tables hold every name of the trace"
        )
    if not has_folder:
        raise UsageError("--with-data needs a folder: -o DIR, without --format")
    check_parquet()


def _with_own_choices(made: Report, *, salvage: bool) -> Report:
    from dataclasses import replace

    return replace(made, command=(*made.command, "--salvage")) if salvage else made


def _write(
    bundle: Bundle, made: Report, trace: Trace, selection: Selection, with_data: bool
) -> None:
    files = {one.file_name: content_of(one, made) for one in DOCUMENTS}
    if with_data:
        files |= window_tables(trace, selection, made)
    bundle.write(files)
    typer.echo(f"traceview: wrote {', '.join(files)} to {bundle.folder}", err=True)
