"""`traceview capture`: record chosen steps of a training script, without editing it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from traceview.errors import CaptureError, TraceviewError
from traceview.render.harmless import harmless

CONTEXT_SETTINGS: Final = {"allow_interspersed_args": False}
"""Everything after SCRIPT is the script's."""
DEFAULT_STEPS: Final = "10:15"


def capture(
    script: Annotated[
        str,
        typer.Argument(metavar="SCRIPT", help="The Python file to run.", show_default=False),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Its arguments.", show_default=False),
    ] = None,
    module: Annotated[
        bool,
        typer.Option("-m", "--module", help="SCRIPT is the name of a module, as in python -m."),
    ] = False,
    steps: Annotated[
        str,
        typer.Option(metavar="A:B", help="Steps to record: A up to but not including B, from 1."),
    ] = DEFAULT_STEPS,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Log directory; each capture is a new run in it.")
    ] = Path("logs"),
    step_function: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Count the calls of this function as steps; without it, of all that compute gradients. "
            "May be repeated.",
            show_default=False,
        ),
    ] = None,
    sync: Annotated[
        bool,
        typer.Option(
            "--sync/--no-sync",
            help="Wait for all devices before the first and after the last step.",
        ),
    ] = True,
    max_events: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="End the window early rather than record more events. By default only what the tracer "
            "of GPUs can hold is kept to.",
            show_default=False,
        ),
    ] = None,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Print the report of what was recorded.")
    ] = False,
) -> None:
    """Run a training script and record some of its steps.

    The script runs in this process as if Python had been started with it, with its own exit code. The trace
    is DIR/plugins/profile/RUN/HOST.xplane.pb; the last line names the run.

    Example: traceview capture --steps 100:110 --out logs train.py --epochs 3
    """
    from traceview.capture.preflight import cheap_failures
    from traceview.capture.recording import Settings
    from traceview.capture.script import Script
    from traceview.capture.session import capture_script
    from traceview.capture.window import StepWindow

    for check in cheap_failures([] if module else [Path(script)]):
        _say(f"{check.name}: {check.found}")
        _say(f"fix: {check.fix}")
    settings = Settings(
        out=out,
        window=StepWindow.parse(steps),
        is_synchronised=sync,
        max_events=max_events,
    )
    done = capture_script(
        Script(script, arguments or [], is_module=module),
        settings,
        say=_say,
        step_functions=step_function or (),
    )
    if done.problem is not None and done.code == 0:
        raise done.problem
    if done.problem is not None:
        _say_error(done.problem)
    if done.run is not None:
        if analyze:
            _print_report(done.run)
        typer.echo(str(done.run), err=True)
    raise typer.Exit(done.code)


def _print_report(run: Path) -> None:
    from traceview.cli.analyze import TERMINAL_TOP
    from traceview.cli.output import Target
    from traceview.render.terminal import render
    from traceview.report.build import analyze

    target = Target(None)
    try:
        target.write(
            render(
                analyze(run),
                width=target.width(None),
                color=target.has_color,
                unicode=target.has_unicode,
                top=TERMINAL_TOP,
            )
        )
    except TraceviewError as error:
        # The script has run, and its exit code is what counts.
        _say(f"note: no report: {error.message}")


def _say(line: str) -> None:
    sys.stdout.flush()
    typer.echo(f"traceview: {harmless(line)}", err=True)


def _say_error(error: CaptureError) -> None:
    _say(error.message)
    if error.hint:
        _say(f"hint: {error.hint}")
