"""`traceview doctor`: what would go wrong in a capture here?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from traceview.cli.options import Width
from traceview.cli.output import Target

FOUND_FAILURE: Final = 8


def doctor(
    scripts: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[SCRIPT]...",
            help="Python files of the training; they are read and never run.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Log directory that a capture would write to.")
    ] = Path("logs"),
    tensorflow: Annotated[
        bool,
        typer.Option(
            "--tensorflow/--no-tensorflow",
            help="Import TensorFlow in a process of its own and ask what it sees: 10 seconds or less.",
        ),
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    width: Width = None,
) -> None:
    """Check what a capture on this machine needs, before the run.

    Says of TensorFlow, the GPUs, the profiler's library and permissions, the output folder, TF_CONFIG and
    the scripts whether they are as a capture needs them, and what to do where not. Exit code 8 if a check failed.

    Example: traceview doctor train.py
    """
    from traceview.capture.preflight import examine
    from traceview.cli.doctor_checks import render, render_json

    target = Target(None)
    if tensorflow and sys.stderr.isatty():
        typer.echo("traceview: asking TensorFlow (--no-tensorflow leaves it out)", err=True)
    checks = examine(scripts or (), out=out, asks_tensorflow=tensorflow)
    if json:
        target.write(render_json(checks))
    else:
        target.write(
            render(
                checks,
                width=target.width(width),
                color=target.has_color,
                unicode=target.has_unicode,
            )
        )
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(FOUND_FAILURE)
