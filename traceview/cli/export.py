"""Defines `traceview export`: the events of a run, and what traceview computed, for other programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.cli.bundle import Bundle
from traceview.cli.options import (
    Logdir,
    MaxMemory,
    Run,
    Salvage,
    Scheduler,
    Steps,
    Window,
    WindowChoice,
    Workers,
    hosts_read_by,
    step_range,
)
from traceview.cli.output import Target
from traceview.cli.timings import Timings
from traceview.document.sanitize import sanitize
from traceview.errors import UsageError
from traceview.export.formats import TABLES, check_pyarrow
from traceview.location import Location
from traceview.stages import stage
from traceview.store.address import location_of

if TYPE_CHECKING:
    from traceview.analysis.selection import Selection
    from traceview.report.model import Report
    from traceview.trace.model import Trace


class Format(str, Enum):
    """What a run can be written as."""

    perfetto = "perfetto"
    chrome = "chrome"
    parquet = "parquet"
    csv = "csv"


_NAMES: Final = {
    Format.perfetto: "trace.pftrace",
    Format.chrome: "trace.json.gz",
    Format.parquet: "tables",
    Format.csv: "tables",
}
_BY_ENDING: Final = {
    ".pftrace": Format.perfetto,
    ".perfetto-trace": Format.perfetto,
    ".json": Format.chrome,
}
_COMPRESSED: Final = ".gz"
_OF_TABLES: Final = (".csv", ".parquet")


def export(
    logdir: Logdir,
    to: Annotated[
        Format | None,
        typer.Option(
            "--to", help="By default chrome for FILE.json, else perfetto.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Location | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            parser=location_of,
            help="File to write, - for standard output; for tables a folder. By default "
            + ", ".join(f"{name} ({to.value})" for to, name in _NAMES.items())
            + ".",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what exists.")] = False,
    run: Run = None,
    steps: Steps = None,
    window: WindowChoice = Window.auto,
    salvage: Salvage = False,
    workers: Workers = 1,
    scheduler: Scheduler = None,
    max_memory: MaxMemory = None,
    timings: Timings = False,
    redact: Annotated[bool, typer.Option("--redact", hidden=True)] = False,
) -> None:
    """Write a run for Perfetto, chrome://tracing, or as tables.

    A trace holds every event that overlaps the window and, on separate tracks, findings, steps, gaps with their causes
    and collectives. Events that overlap on one stream or thread are spread over several tracks. FILE.gz is
    compressed. Names are those recorded.

    Example: traceview export logs/ --steps 5:8 -o trace.pftrace
    """
    from traceview.cli.progress import reading
    from traceview.trace.load import load

    if redact:
        raise UsageError(
            "an export holds every name of the trace and cannot be redacted",
            hint="traceview report --redact writes a report with pseudonyms",
        )
    to = to or _format_of(output)
    output = Path(_NAMES[to]) if output is None else output
    is_folder = to in (Format.parquet, Format.csv)
    files = [f"{name}.{to.value}" for name in TABLES]
    bundle = _folder(output, files, force) if is_folder else None
    target = None if bundle else _file(output, force, logdir)
    if to is Format.parquet:
        check_pyarrow("--to parquet")
    chosen_steps = step_range(steps)
    hosts = hosts_read_by(workers, scheduler, are_asked=True)
    with hosts as readers, reading(logdir, run, is_here=readers is None):
        trace = load(logdir, run=run, salvage=salvage, readers=readers)
        from traceview.analysis.selection import select
        from traceview.report.build import analyze

        selection = select(trace, window.value, chosen_steps)
        report = analyze(trace, window=window.value, steps=chosen_steps, top=0, readers=readers)
        with stage("writing"):
            if bundle:
                bundle.write(_tables(to, trace, selection, report))
            elif target:
                target.write_parts(_parts(to, output, trace, selection, report))
    if trace.other_runs and run is None:
        count = len(trace.other_runs) + 1
        typer.echo(
            f"traceview: run {sanitize(trace.run)} of {count} runs; --run NAME chooses another",
            err=True,
        )
    if bundle or (target and target.path):
        typer.echo(f"traceview: wrote {output}{_advice(to)}", err=True)


def _format_of(output: Location | None) -> Format:
    name = "" if output is None else output.name.lower().removesuffix(_COMPRESSED)
    ending = Path(name).suffix
    if ending in _OF_TABLES:
        raise UsageError(
            f"-o {output}: tables are several files, in a folder", hint=f"--to {ending[1:]} -o DIR"
        )
    return _BY_ENDING.get(ending, Format.perfetto)


def _folder(output: Location, files: list[str], force: bool) -> Bundle:
    if str(output) == "-":
        raise UsageError("tables need a folder: -o DIR")
    bundle = Bundle(output, files, force)
    bundle.check()
    return bundle


def _file(output: Location, force: bool, logdir: Location) -> Target:
    target = Target.of(output, force=force, source=logdir)
    if target.is_terminal:
        raise UsageError("a terminal cannot show a trace", hint="write it to a file: -o FILE")
    return target


def _parts(
    to: Format, output: Location, trace: Trace, selection: Selection, report: Report
) -> Iterator[bytes]:
    """The content of a trace, part by part."""
    from traceview.export import chrome, perfetto
    from traceview.export.draw import drawn
    from traceview.export.formats import compressed

    write = chrome.written if to is Format.chrome else perfetto.written
    parts = write(drawn(trace, selection, report))
    return compressed(parts) if output.name.lower().endswith(_COMPRESSED) else parts


def _tables(
    to: Format, trace: Trace, selection: Selection, report: Report
) -> dict[str, Iterable[bytes]]:
    from traceview.export import csv, parquet
    from traceview.export.tables import window_tables

    tables = window_tables(trace, selection, report)
    if to is Format.parquet:
        return {f"{table.name}.parquet": (parquet.written(table),) for table in tables}
    return {f"{table.name}.csv": csv.written(table) for table in tables}


def _advice(to: Format) -> str:
    return {
        Format.perfetto: ": open it at https://ui.perfetto.dev",
        Format.chrome: ": open it at https://ui.perfetto.dev or chrome://tracing",
    }.get(to, "")
