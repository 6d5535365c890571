"""Defines `traceview capture`: record chosen steps of a training script or command, without editing it."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, TextIO

import typer
from msgspec import Struct

from traceview.capture.demo.injection import Slowdown
from traceview.capture.destination import DEFAULT_OUT
from traceview.capture.ending import end_by_signal
from traceview.capture.step_range import DEFAULT_STEPS
from traceview.cli import ScriptInterrupted
from traceview.cli.capture_modes import check_mode
from traceview.cli.hang import hang_settings
from traceview.cli.options import output_folder
from traceview.cli.output import abandon_stdout
from traceview.cli.remote import capture_running
from traceview.document.sanitize import sanitize
from traceview.errors import CaptureError, TraceviewError, UsageError
from traceview.shell_quote import in_bytes, is_plain

if TYPE_CHECKING:
    from traceview.capture.script_capture import ScriptCapture
    from traceview.capture.variable import Request

CONTEXT_SETTINGS: Final = {"allow_interspersed_args": False}
"""Everything after SCRIPT belongs to the script."""


def capture(
    context: typer.Context,
    script: Annotated[
        str | None,
        typer.Argument(
            metavar="SCRIPT",
            help="The Python file to run, or a command that starts Python: -- bash train.sh",
            show_default=False,
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Arguments of the script.", show_default=False),
    ] = None,
    module: Annotated[
        bool,
        typer.Option("-m", "--module", help="Run SCRIPT as a module, as python -m does."),
    ] = False,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="Record steps A to B-1. Steps count from 0; step 0 cannot be recorded.  [default: "
            f"{DEFAULT_STEPS}]",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="Record by time instead: from A to B seconds after training began. Where steps are recognized, the "
            "whole steps that take about as long.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            parser=output_folder,
            help="Log directory; each capture becomes a run in it.",
        ),
    ] = DEFAULT_OUT,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the run; by default the current time. Workers of one cluster share a run.",
            show_default=False,
        ),
    ] = None,
    step_function: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Count calls of this function as steps, instead of all functions that compute gradients. Can be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    sync: Annotated[
        bool,
        typer.Option(
            "--sync/--no-sync",
            help="Wait until all devices are idle before the first and after the last step.",
        ),
    ] = True,
    nvml: Annotated[
        bool,
        typer.Option(
            "--nvml/--no-nvml",
            help="Sample clocks, power, load and other processes of the GPUs while recording.",
        ),
    ] = True,
    python: Annotated[
        bool,
        typer.Option(
            "--python/--no-python",
            help="Sample the Python stacks of the threads while recording, so that gaps name lines of the script.",
        ),
    ] = True,
    max_events: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Stop early rather than record more events than this. By default, stop before the buffers of the "
            "GPU tracer are half full.",
            show_default=False,
        ),
    ] = None,
    on_hang: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="If no step ends for TIME (60s, 10m), write where every thread, device and worker is. The script "
            "goes on.",
            show_default=False,
        ),
    ] = None,
    serve: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="PORT",
            help="Start TensorFlow's profiler server in the script, so that --remote can record it.",
            show_default=False,
        ),
    ] = None,
    remote: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Instead of running a script, record a running job through its profiler server. Separate several "
            "servers by commas.",
            show_default=False,
        ),
    ] = None,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="How long --remote records: 500ms, 2s, 1m.")
    ] = "2s",
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long --remote waits for servers to start.")
    ] = "60s",
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Instead of a script, train a small model on all GPUs (without GPUs: on logical CPU devices) and "
            "print the report.",
        ),
    ] = False,
    devices: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Devices for --demo: the first N GPUs, or N logical CPU devices. By default all GPUs, or 2.",
            show_default=False,
        ),
    ] = None,
    slowdown: Annotated[
        list[Slowdown] | None,
        typer.Option(help="Slow --demo down in this way. Can be repeated.", show_default=False),
    ] = None,
    illness: Annotated[list[Slowdown] | None, typer.Option(hidden=True)] = None,
    analyze: Annotated[
        bool,
        typer.Option("--analyze", help="Print what `traceview analyze` says of the recorded run."),
    ] = False,
) -> None:
    """Run a training script and record some of its steps.

    The script runs as with python SCRIPT ARGS, and its exit code is kept. The trace is written to
    DIR/plugins/profile/RUN/HOST.xplane.pb, and the last line of the output names the run. Workers of a cluster that
    share DIR share one run. Instead of a script, any command can be given that starts Python: bash, srun, python. Every
    process below it that trains is captured. --remote records a running job instead, for a --duration.

    Example: traceview capture --steps 100:110 --out logs train.py --epochs 3
    """
    check_mode(context, is_demo=demo, is_remote=remote is not None)
    console = _Console(sys.stdout, sys.stderr)
    if remote is not None:
        received = capture_running(
            remote, out=out, run=run, duration=duration, timeout=timeout, say=console.say
        )
        code = received.problem.exit_code if received.problem else 0
        _end(console, received.run, received.problem, code, analyze)
    if script is None and not demo:
        raise UsageError("missing argument 'SCRIPT'", hint="traceview capture --help")
    from traceview.capture.capture import Settings
    from traceview.capture.demo.run import capture_demo
    from traceview.capture.launched import disarm
    from traceview.capture.preflight import cheap_failures
    from traceview.capture.programs import command_of
    from traceview.capture.script import Script
    from traceview.capture.script_capture import capture_script
    from traceview.capture.variable import Request, hang_seconds, windows

    # The options of this command count, not those of TRACEVIEW_CAPTURE.
    disarm()
    if illness:
        console.say("note: --illness is deprecated and will be removed; use --slowdown")

    steps_asked, seconds_asked = windows(steps, seconds)
    on_hang_s = None if on_hang is None else hang_seconds(on_hang)
    command = None if module or script is None else command_of(script, arguments or [])
    is_file = script is not None and not module and command is None
    for check in cheap_failures([Path(str(script))] if is_file else []):
        console.say(f"{check.name}: {check.detail}")
        console.say(f"fix: {check.fix}")
    settings = Settings(
        out=out,
        steps=steps_asked,
        is_synchronised=sync,
        max_events=max_events,
        run=run,
        is_nvml_sampled=nvml,
        is_python_sampled=python,
        seconds=seconds_asked,
    )
    if command is not None:
        asked = Request(settings, tuple(step_function or ()), serve, on_hang_s)
        _launch(console, command, asked, analyze)
    if script is None:
        slowdowns = [*(slowdown or ()), *(illness or ())]
        captured = capture_demo(
            settings,
            say=console.say,
            devices=devices,
            slowdowns=slowdowns,
            before_death=console.say_capture,
        )
        _end_script(console, captured, analyze=True)
    captured = capture_script(
        Script(script, arguments or [], is_module=module),
        settings,
        say=console.say,
        step_functions=step_function or (),
        serve=serve,
        say_in_children=say_in_child,
        before_death=console.say_capture,
        on_hang=None if on_hang_s is None else hang_settings(on_hang_s),
    )
    _end_script(console, captured, analyze)


def say_in_child(line: str) -> None:
    """Print a line for the user in a process that the script has started."""
    _Console(sys.stdout, sys.stderr).say(line)


def _launch(console: _Console, command: list[str], request: Request, analyze: bool) -> NoReturn:
    """Run a command, name the runs of all processes below it, and end as it ended."""
    from traceview.capture.launch import capture_command

    launched = capture_command(command, request, say=console.say)
    if launched.problem is not None:
        console.say_error(launched.problem)
    for run in launched.runs:
        if analyze:
            _print_report(console, run)
    if len(launched.runs) > 1:
        console.say(f"{len(launched.runs)} runs were recorded:")
    for run in launched.runs:
        console.name(run)
    if launched.code < 0:
        end_by_signal(-launched.code)
    raise typer.Exit(launched.code)


class _Console(Struct, frozen=True):
    """The streams that the command began with, because a script may close or replace them."""

    out: TextIO | None
    err: TextIO | None

    @property
    def is_watched(self) -> bool:
        """Whether a person watches a terminal."""
        with suppress(ValueError):
            return self.err is not None and self.err.isatty()
        return False

    def say(self, line: str) -> None:
        """Print a line for the user, after what the script has printed."""
        from traceview.capture.secrets import masked_message

        self.print(f"traceview: {sanitize(masked_message(line))}")

    def say_error(self, error: CaptureError) -> None:
        """Print an error and its hint."""
        self.say(error.message)
        if error.hint:
            self.say(f"hint: {error.hint}")

    def say_capture(self, captured: ScriptCapture) -> None:
        """Print the outcome of a capture whose process is about to die: there is no time for a report."""
        if captured.problem is not None:
            self.say_error(captured.problem)
        if captured.run is not None:
            self.name(captured.run)

    def name(self, run: Path) -> None:
        """Print the last line: the folder of a run, for a person or a script."""
        encoding = getattr(self.err, "encoding", None) or "utf-8"
        if is_plain(run, encoding):
            self.print(str(run))
            return
        self.say("note: the path of the run is quoted for bash and zsh")
        self.print(in_bytes(run))

    def print(self, line: str) -> None:
        """Print a line; a closed or broken stream is ignored."""
        with suppress(Exception):
            sys.stdout.flush()
        if self.err is not None:
            with suppress(OSError, ValueError):
                typer.echo(line, file=self.err)


def _end_script(console: _Console, captured: ScriptCapture, analyze: bool) -> NoReturn:
    """End as the script ended: with its exit code, or by the signal that ended it."""
    try:
        _end(console, captured.run, captured.problem, captured.code, analyze)
    except typer.Exit:
        if captured.signal == SIGINT:
            raise ScriptInterrupted from None
        raise


def _end(
    console: _Console, run: Path | None, problem: CaptureError | None, code: int, analyze: bool
) -> NoReturn:
    """Print problems and the run, and exit; if the script itself failed, its exit code wins."""
    if problem is not None and run is None and code == 0:
        raise problem
    if problem is not None:
        console.say_error(problem)
    if run is not None:
        if analyze:
            _print_report(console, run)
        elif console.is_watched:
            console.say(
                "to see the report, pass this run to traceview analyze or traceview report:"
            )
        console.name(run)
    raise typer.Exit(code)


def _print_report(console: _Console, run: Path) -> None:
    """Print the report of a run; a failure here does not change the exit code."""
    from traceview.cli.analyze import TERMINAL_TOP
    from traceview.cli.output import Target
    from traceview.report.build import analyze
    from traceview.report.screen import Invocation

    if console.out is None or console.out.closed:
        console.say("note: no report: standard output is closed")
        return
    with redirect_stdout(console.out):
        try:
            report = analyze(run, top=TERMINAL_TOP)
            Target(None).write_report(report, None, invocation=Invocation(str(run)))
        except TraceviewError as error:
            console.say(f"note: no report: {error.message}")
        except BrokenPipeError:
            # The reader has closed the pipe; the run must still be named on stderr.
            abandon_stdout()
