"""Defines `traceview capture`: record chosen steps of a training script or command, without editing it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from traceview.base.errors import CaptureError, TraceviewError, UsageError
from traceview.capture.launch.command import become, command_of, end_as, run
from traceview.capture.process.saying import VARIABLE, name_runs, say
from traceview.capture.record.destination import DEFAULT_OUT, output_folder
from traceview.capture.record.settings import Settings
from traceview.capture.window.step_window import DEFAULT_STEPS
from traceview.cli.options import (
    argument,
    check_mode,
    choice,
    flag,
    option,
)
from traceview.cli.output import Target, abandon_stdout
from traceview.demo.run import Slowdown, demo_command

if TYPE_CHECKING:
    from traceview.capture.check.checks import Check
    from traceview.document.model import Section

_SLOWDOWNS: Final = tuple(kind.value for kind in Slowdown)
_OF_CHECK: Final = ("check", "script", "arguments", "out")
_OF_DEMO: Final = (
    *("demo", "devices", "slowdown", "steps", "out", "run", "without"),
    "analyze",
)
"""Options that `--check` and `--demo` take, which record no script."""


CONTEXT_SETTINGS: Final = {"allow_interspersed_args": False}
"""Everything after SCRIPT belongs to the script."""


def capture(
    context: typer.Context,
    script: Annotated[
        str | None,
        argument("SCRIPT", "A Python file, or a command that starts Python: -- bash train.sh"),
    ] = None,
    arguments: Annotated[list[str] | None, argument("ARGS", "Arguments of the script.")] = None,
    module: Annotated[bool, flag("Run SCRIPT as python -m does.", "-m", "--module")] = False,
    steps: Annotated[
        str | None, option("A:B", f"Record steps A to B-1, by default {DEFAULT_STEPS}.")
    ] = None,
    out: Annotated[
        Path,
        option(
            "DIR",
            "Log directory for the runs.",
            "--output",
            "-o",
            parser=output_folder,
            show_default=True,
        ),
    ] = DEFAULT_OUT,
    run: Annotated[
        str | None, option("NAME", "Name of the run; by default the current time.")
    ] = None,
    step_function: Annotated[
        list[str] | None, option("NAME", "Count calls of this function as steps. Repeatable.")
    ] = None,
    without: Annotated[
        list[str] | None,
        option(
            "NAMES",
            "Omit nvml (GPU clocks), python (stacks) or source (lines of ops of TensorFlow).",
        ),
    ] = None,
    on_hang: Annotated[
        str | None, option("TIME", "If no step ends for TIME (10m), report where it hangs.")
    ] = None,
    analyze: Annotated[bool, flag("Analyze the recorded run.", "--analyze")] = False,
    demo: Annotated[bool, flag("Train and analyze a small model instead.", "--demo")] = False,
    devices: Annotated[int | None, option("N", "Devices of --demo.", min=1)] = None,
    slowdown: Annotated[
        list[str] | None,
        choice("KIND", f"Slow --demo down: {', '.join(_SLOWDOWNS)}.", "--slowdown", _SLOWDOWNS),
    ] = None,
    check: Annotated[
        bool, flag("Only check whether a capture would work here.", "--check")
    ] = False,
) -> None:
    """Run a training script and record some of its steps.

    Each training process of the script or command is captured. The last line of the output names the run.
    --check runs no script, and exits with 8 if a check failed.

    Example: traceview capture --steps 100:110 --output logs train.py --epochs 3
    """
    if check:
        check_mode(context, "--check", _OF_CHECK)
        # TensorFlow is only imported to ask for its GPUs, which is no training.
        os.environ.pop(VARIABLE, None)
        show_checks(None if script is None else Path(script), out)
        return
    if demo:
        check_mode(context, "--demo", _OF_DEMO)
    elif devices or slowdown:
        raise UsageError(f"{'--devices' if devices else '--slowdown'} needs --demo")
    elif script is None:
        raise UsageError("missing argument 'SCRIPT'", hint="traceview capture --help")
    settings = Settings.of(out, steps, run, without, step_function, on_hang)
    if script is None:
        slowdowns = [Slowdown(kind) for kind in slowdown or ()]
        command = demo_command(settings.steps.last, devices, slowdowns)
    else:
        command = command_of(script, arguments or [], is_module=module)
    if analyze or demo:
        _run(command, settings)
    become(command, settings)


def _run(command: list[str], settings: Settings) -> NoReturn:
    """Run a command, print the reports of the runs below it, and end as it ended."""
    code, runs = run(command, settings)
    for folder in runs:
        _print_report(folder)
    with suppress(Exception):
        sys.stdout.flush()
    name_runs(runs)
    if not runs and code == 0:
        # The process that trains has said why.
        raise typer.Exit(CaptureError.exit_code)
    end_as(code)


def _print_report(run: Path) -> None:
    """Print the report of a run; a failure here does not change the exit code."""
    from traceview.cli.commands.report import TERMINAL_TOP
    from traceview.report.build import analyze
    from traceview.report.document import Invocation

    try:
        report = analyze(run, top=TERMINAL_TOP)
        Target(None).write_report(report, Invocation(str(run)))
    except TraceviewError as error:
        say(f"note: no report: {error.message}")
    except BrokenPipeError:
        # The reader has closed the pipe; the run must still be named on stderr.
        abandon_stdout()


# The checks of --check


FAILED_CHECK: Final = 8
_STATUSES: Final = ("failed", "warning", "ok", "not applicable")
"""The statuses of a check, worst first."""


def show_checks(script: Path | None, out: Path) -> None:
    """Run every check and print the result; ends the command with 8 if one failed. `script`: read, never run."""
    from traceview.capture.check.checks import examine

    target = Target(None)
    if sys.stderr.isatty():
        say("recording a trial profile")
    checks = list(examine(script, out))
    target.write_sections([check_section(checks)])
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(FAILED_CHECK)


def check_section(checks: Sequence[Check]) -> Section:
    """A note for each check with its fix, below the number of checks by status."""
    from traceview.document import model as doc
    from traceview.document import numbers
    from traceview.document.phrase import name, phrase

    counts = Counter[str](check.status for check in checks)
    by_status = (f"{counts[status]} {status}" for status in _STATUSES if counts[status])
    title = f"{numbers.plural(len(checks), 'check')}: {', '.join(by_status)}"
    has_problem = counts["failed"] or counts["warning"]
    notes = (
        phrase(
            f"{check.status}: {check.name}: ",
            name(check.detail),
            *(("; fix: ", name(check.fix)) if check.fix else ()),
        )
        for check in checks
    )
    lead = "" if has_problem else "No problem found."
    return doc.Section("checks", title, doc.notes(*notes), lead=lead)
