"""Lists the commands, in the order in which the help shows them."""

from __future__ import annotations

from typing import Annotated

import typer

from traceview.cli import (
    analyze,
    balance,
    capture,
    collectives,
    crosscheck,
    devices,
    doctor,
    explain,
    export,
    gaps,
    ops,
    render,
    report,
    runs,
    schema,
    steps,
    transfers,
    version,
)
from traceview.cli import input as input_pipeline
from traceview.cli import open as open_in_browser
from traceview.cli.errors import Command, CommandGroup
from traceview.version import VERSION

app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
# In the order in which users need them; a trailing underscore keeps a name of Python free.
for panel, commands in {
    "Record a run": (capture.capture, doctor.doctor),
    "See what is wrong": (analyze.analyze, report.report, open_in_browser.open_, runs.runs),
    "Look closer": (
        steps.steps,
        gaps.gaps,
        input_pipeline.input_,
        transfers.transfers,
        collectives.collectives,
        devices.devices,
        balance.balance,
        ops.ops,
    ),
    "Share it": (render.render, export.export, crosscheck.crosscheck),
    "Look up": (explain.explain, schema.schema, version.version),
}.items():
    for command in commands:
        app.command(
            command.__name__.rstrip("_"),
            cls=Command,
            rich_help_panel=panel,
            context_settings=capture.CONTEXT_SETTINGS if command is capture.capture else None,
        )(command)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"traceview {VERSION}")
        raise typer.Exit


@app.callback()
def traceview(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    """Show how busy each GPU of a TensorFlow profile is, and what idle GPUs wait for.

    LOGDIR is the log directory of the profiler or of the TensorBoard callback, a run in it, or a single .xplane.pb
    file.

    Example: traceview analyze logs/
    """
