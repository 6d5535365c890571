"""Defines `traceview export`: the events of a run, and what traceview computed, for other programs."""

from __future__ import annotations

from collections.abc import Iterator
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
    place,
    reads_run,
)
from traceview.cli.output import ENDINGS, Target, check_folder, say, write_folder
from traceview.cli.report_source import Source
from traceview.report.tables import check_pyarrow, csv_of, parquet_of

if TYPE_CHECKING:
    from traceview.analysis.measures.context import Context
    from traceview.trace.model import Trace


_NAMES: Final = {"perfetto": "trace.pftrace", "parquet": "tables", "csv": "tables"}
"""Formats of a run, and the name of the file or folder."""


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
        place(
            "PATH",
            "File to write, - for standard output; for tables a folder. By default "
            + ", ".join(f"{name} ({to})" for to, name in _NAMES.items())
            + ".",
            "--output",
            "-o",
        ),
    ] = None,
    force: Annotated[bool, flag("Replace what exists.", "--force")] = False,
) -> None:
    """Write a run for Perfetto, or as tables.

    A trace holds every event that overlaps the window, and tracks of findings, steps, collectives, and the state of each
    device with its cause. Names are not redacted.

    Example: traceview export logs/ --steps 5:8 -o trace.pftrace
    """
    asked = Path(_NAMES[to]) if output is None else output
    if to == "perfetto":
        trace = _write_trace(context, logdir, asked, force=force)
    else:
        trace = _write_tables(context, logdir, asked, to, force=force)
    if trace.other_runs and context.params["run"] is None:
        count = len(trace.other_runs) + 1
        say(f"run {trace.run} of {count} runs; --run NAME chooses another")
    if str(asked) != "-":
        advice = ": open it at https://ui.perfetto.dev" if to == "perfetto" else ""
        say(f"wrote {asked}{advice}")


def _write_trace(
    context: typer.Context, logdir: Location, output: Location, *, force: bool
) -> Trace:
    if output.suffix.lower() in (*ENDINGS, ".gz"):
        raise UsageError(
            f"-o {output}: a trace has another format",
            hint="-o trace.pftrace; --to csv or --to parquet, and -o DIR, for tables",
        )
    target = Target.of(output, logdir, force=force)
    if target.is_terminal:
        raise UsageError("a terminal cannot show a trace", hint="write it to a file: -o FILE")
    source = Source.of(context, logdir)
    with source.analyzed_context() as (drawn_from, report), stage("writing"):
        from traceview.export import perfetto
        from traceview.export.draw import drawn

        target.write_parts(perfetto.written(drawn(drawn_from, report)))
        return drawn_from.trace


def _write_tables(
    context: typer.Context, logdir: Location, folder: Location, to: str, *, force: bool
) -> Trace:
    from traceview.report.tables import TABLE_NAMES

    if str(folder) == "-":
        raise UsageError("tables need a folder: -o DIR")
    check_folder(folder, [f"{name}.{to}" for name in TABLE_NAMES], force=force)
    if to == "parquet":
        check_pyarrow("--to parquet")
    source = Source.of(context, logdir)
    with source.context() as made_from, stage("writing"):
        write_folder(folder, {f"{name}.{to}": _table(to, made_from, name) for name in TABLE_NAMES})
        return made_from.trace


def _table(to: str, context: Context, name: str) -> Iterator[bytes]:
    """The content of a table, which is made when it is written: there is never more than one."""
    from traceview.report.tables import table_of

    rows = table_of(context, name)
    if to == "parquet":
        yield parquet_of(rows)
    else:
        yield from csv_of(rows)
