"""Defines `traceview export`: the events of a run, and what traceview computed, for other programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.base.errors import UsageError
from traceview.base.location import Location
from traceview.base.timing import stage
from traceview.cli.options import (
    Logdir,
    choice,
    flag,
    option,
    reads_run,
)
from traceview.cli.output import Bundle, Target
from traceview.cli.report_source import Source
from traceview.document.sanitize import sanitize
from traceview.export.formats import TABLES, check_pyarrow
from traceview.store.address import location_of

if TYPE_CHECKING:
    from traceview.analysis.measures.context import Context
    from traceview.report.model import Report


_NAMES: Final = {"perfetto": "trace.pftrace", "parquet": "tables", "csv": "tables"}
"""What a run can be written as, and the name of the file or folder."""
_COMPRESSED: Final = ".gz"
_OF_TABLES: Final = (".csv", ".parquet")
_JSON: Final = ".json"


@reads_run
def export(
    context: typer.Context,
    logdir: Logdir,
    to: Annotated[
        str,
        choice("|".join(_NAMES), "What to write.", "--to", tuple(_NAMES), show_default=True),
    ] = "perfetto",
    output: Annotated[
        Location | None,
        option(
            "PATH",
            "File to write, - for standard output; for tables a folder. By default "
            + ", ".join(f"{name} ({to})" for to, name in _NAMES.items())
            + ".",
            "--output",
            "-o",
            parser=location_of,
        ),
    ] = None,
    force: Annotated[bool, flag("Replace what exists.", "--force")] = False,
) -> None:
    """Write a run for Perfetto, or as tables.

    A trace holds every event that overlaps the window and, on separate tracks, findings, steps, the state of each device
    with what caused it, and collectives. FILE.gz is compressed. Names are those recorded.

    Example: traceview export logs/ --steps 5:8 -o trace.pftrace
    """
    is_folder = to != "perfetto"
    if output is not None and not is_folder:
        _check_ending(output)
    output = Path(_NAMES[to]) if output is None else output
    bundle: Bundle | None = None
    target: Target | None = None
    if is_folder:
        if str(output) == "-":
            raise UsageError("tables need a folder: -o DIR")
        bundle = Bundle(output, [f"{name}.{to}" for name in TABLES], force)
        bundle.check()
    else:
        target = Target.of(output, logdir, force=force)
        if target.is_terminal:
            raise UsageError("a terminal cannot show a trace", hint="write it to a file: -o FILE")
    if to == "parquet":
        check_pyarrow("--to parquet")
    source = Source.of(context, logdir)
    with source.analyzed_context() as (analyzed, made), stage("writing"):
        trace = analyzed.trace
        if bundle:
            bundle.write(_tables(to, analyzed, made))
        elif target:
            target.write_parts(_parts(output, analyzed, made))
    if trace.other_runs and source.run is None:
        count = len(trace.other_runs) + 1
        typer.echo(
            f"traceview: run {sanitize(trace.run)} of {count} runs; --run NAME chooses another",
            err=True,
        )
    advice = "" if bundle else ": open it at https://ui.perfetto.dev"
    if bundle or (target and target.path):
        typer.echo(f"traceview: wrote {output}{advice}", err=True)


def _check_ending(output: Location) -> None:
    """Raise `UsageError` for the name of a file that would hold something else."""
    ending = Path(output.name.lower().removesuffix(_COMPRESSED)).suffix
    if ending in _OF_TABLES:
        raise UsageError(
            f"-o {output}: tables are several files, in a folder", hint=f"--to {ending[1:]} -o DIR"
        )
    if ending == _JSON:
        raise UsageError(f"-o {output}: a trace is no JSON", hint="-o trace.pftrace")


def _parts(output: Location, context: Context, report: Report) -> Iterator[bytes]:
    """The content of a trace, part by part."""
    from traceview.export import perfetto
    from traceview.export.draw import drawn
    from traceview.export.formats import compressed

    parts = perfetto.written(drawn(context, report))
    return compressed(parts) if output.name.lower().endswith(_COMPRESSED) else parts


def _tables(to: str, context: Context, report: Report) -> dict[str, Iterable[bytes]]:
    from traceview.export import csv, parquet
    from traceview.export.tables import window_tables

    tables = window_tables(context, report)
    if to == "parquet":
        return {f"{table.name}.parquet": (parquet.written(table),) for table in tables}
    return {f"{table.name}.csv": csv.written(table) for table in tables}
