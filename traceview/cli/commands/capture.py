"""Defines `traceview capture`: record chosen steps of a training script or command, without editing it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from enum import Enum
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, TextIO

import typer
from msgspec import Struct

from traceview.base.errors import CaptureError, TraceviewError, UsageError
from traceview.base.text import in_bytes, is_plain
from traceview.capture.demo.injection import Slowdown
from traceview.capture.launch.environment_variable import VARIABLE
from traceview.capture.launch.variable import switches
from traceview.capture.process.termination import end_by_signal
from traceview.capture.record.destination import DEFAULT_OUT
from traceview.capture.window.ranges import DEFAULT_STEPS
from traceview.cli import ScriptInterrupted
from traceview.cli.hang import hang_settings
from traceview.cli.options import (
    argument,
    flag,
    given_options,
    listed,
    option,
    output_folder,
    word_of,
)
from traceview.cli.output import abandon_stdout
from traceview.cli.progress import waiting
from traceview.document.sanitize import sanitize

if TYPE_CHECKING:
    from traceview.capture.launch.script_capture import ScriptCapture
    from traceview.capture.launch.variable import Request
    from traceview.capture.remote.jobs import RemoteCapture


_REMOTE_ONLY: Final = ("duration", "timeout")
_WITH_REMOTE: Final = ("remote", *_REMOTE_ONLY, "out", "run", "analyze")
_DEMO_ONLY: Final = ("devices", "slowdown")
_CHECK_ONLY: Final = ("format_",)
_WITH_CHECK: Final = ("check", "format_", "script", "arguments", "out", "without")
_SCRIPT_ONLY: Final = ("script", "module", "step_function", "serve", "on_hang", "seconds")


def check_mode(context: typer.Context, *, is_demo: bool, is_remote: bool, is_check: bool) -> None:
    """Raise `UsageError` for a given option or argument that the mode does not take."""
    for name, shown in given_options(context):
        if is_check and name not in _WITH_CHECK:
            raise UsageError(
                f"{shown} cannot be combined with --check",
                hint="--check records nothing; to record a run, omit --check",
            )
        if not is_check and name in _CHECK_ONLY:
            raise UsageError(f"{shown} needs --check")
        if is_remote and name not in _WITH_REMOTE:
            raise UsageError(
                f"{shown} cannot be combined with --remote",
                hint="--remote records a running job for a --duration; to record steps of a script, omit --remote",
            )
        if not is_remote and name in _REMOTE_ONLY:
            raise UsageError(
                f"{shown} needs --remote", hint="--remote HOST:PORT names a running job"
            )
        if is_demo and name in _SCRIPT_ONLY:
            raise UsageError(
                f"{shown} cannot be combined with --demo",
                hint="--demo runs traceview's own training script; to record another one, omit --demo",
            )
        if not is_demo and not is_remote and name in _DEMO_ONLY:
            raise UsageError(f"{shown} needs --demo", hint="--demo runs traceview's own training")


def capture_running(
    remote: Sequence[str],
    *,
    out: Path,
    run: str | None,
    duration: str,
    timeout: str,
    say: Callable[[str], None],
) -> RemoteCapture:
    """Capture the job behind the servers `remote`; raises what `capture_remote` raises."""
    from traceview.capture.process.script import terminable
    from traceview.capture.remote.jobs import capture_remote
    from traceview.capture.remote.profiler_service import parse_addresses
    from traceview.capture.window.ranges import parse_duration

    addresses = parse_addresses(remote)
    duration_ms = parse_duration("--duration", duration)
    timeout_ms = parse_duration("--timeout", timeout)
    # A batch system that ends the wait leaves no more behind than Ctrl-C does.
    with terminable(), waiting() as show:
        return capture_remote(
            addresses,
            out,
            duration_ms=duration_ms,
            timeout_ms=timeout_ms,
            say=say,
            progress=lambda text: show(sanitize(text)),
            run=run,
        )


class CheckFormat(str, Enum):
    """What the checks can be written as."""

    terminal = "terminal"
    json = "json"


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
    seconds: Annotated[
        str | None, option("A:B", "Record these seconds after training began.")
    ] = None,
    out: Annotated[
        Path, option("DIR", "Log directory for the runs.", parser=output_folder, show_default=True)
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
            "Omit sync (waiting for idle devices), nvml (GPU clocks), python (stacks) or, with --check, tensorflow.",
        ),
    ] = None,
    max_events: Annotated[
        int | None, option("N", "Stop before more events than this.", min=1)
    ] = None,
    on_hang: Annotated[
        str | None, option("TIME", "If no step ends for TIME (10m), report where it hangs.")
    ] = None,
    serve: Annotated[
        int | None, option("PORT", "Serve the profiler for --remote.", min=1, max=65535)
    ] = None,
    analyze: Annotated[bool, flag("Analyze the recorded run.", "--analyze")] = False,
    remote: Annotated[
        list[str] | None, option("HOST:PORT", "Record a running job instead.")
    ] = None,
    duration: Annotated[
        str, option("TIME", "How long --remote records.", show_default=True)
    ] = "2s",
    timeout: Annotated[str, option("TIME", "How long --remote waits.", show_default=True)] = "60s",
    demo: Annotated[bool, flag("Train and analyze a small model instead.", "--demo")] = False,
    devices: Annotated[int | None, option("N", "Devices of --demo.", min=1)] = None,
    slowdown: Annotated[
        list[str] | None,
        option(
            "KIND",
            f"Slow --demo down: {', '.join(kind.value for kind in Slowdown)}.",
            parser=word_of("--slowdown", [kind.value for kind in Slowdown]),
        ),
    ] = None,
    check: Annotated[
        bool, flag("Check instead whether a capture would work here.", "--check")
    ] = False,
    format_: Annotated[
        CheckFormat, option("NAME", "Write --check as terminal or json.", "--format")
    ] = CheckFormat.terminal,
) -> None:
    """Run a training script and record some of its steps.

    The script keeps its exit code; the last line of the output names the run. Of a command every process below it that
    trains is captured. --check reads the scripts, runs none, and exits with 8 if a check failed.

    Example: traceview capture --steps 100:110 --out logs train.py --epochs 3
    """
    check_mode(context, is_demo=demo, is_remote=remote is not None, is_check=check)
    switched = switches(without or (), also=("tensorflow",) if check else ())
    if check:
        from traceview.cli.commands.capture_check import show_checks

        # TensorFlow is only imported to ask for its GPUs, which is no training.
        os.environ.pop(VARIABLE, None)
        scripts = [Path(name) for name in (script, *(arguments or ())) if name is not None]
        has_tensorflow = "tensorflow" not in listed(without)
        show_checks(
            scripts, out, asks_tensorflow=has_tensorflow, as_json=format_ is CheckFormat.json
        )
        return
    console = _Console(sys.stdout, sys.stderr)
    if remote is not None:
        received = capture_running(
            remote, out=out, run=run, duration=duration, timeout=timeout, say=console.say
        )
        code = received.problem.exit_code if received.problem else 0
        _end(console, received.run, received.problem, code, analyze)
    if script is None and not demo:
        raise UsageError("missing argument 'SCRIPT'", hint="traceview capture --help")
    from traceview.capture.check import cheap_failures
    from traceview.capture.demo.run import capture_demo
    from traceview.capture.launch.launched import disarm
    from traceview.capture.launch.programs import command_of
    from traceview.capture.launch.script_capture import capture_script
    from traceview.capture.launch.variable import Request, hang_seconds, windows
    from traceview.capture.process.script import Script
    from traceview.capture.record.capture import Settings

    # The options of this command count, not those of TRACEVIEW_CAPTURE.
    disarm()

    steps_asked, seconds_asked = windows(steps, seconds)
    on_hang_s = None if on_hang is None else hang_seconds(on_hang)
    command = None if module or script is None else command_of(script, arguments or [])
    is_file = script is not None and not module and command is None
    for failure in cheap_failures([Path(str(script))] if is_file else []):
        console.say(f"{failure.name}: {failure.detail}")
        console.say(f"fix: {failure.fix}")
    settings = Settings(
        out=out,
        steps=steps_asked,
        max_events=max_events,
        run=run,
        seconds=seconds_asked,
        **switched,
    )
    if command is not None:
        asked = Request(settings, tuple(step_function or ()), serve, on_hang_s)
        _launch(console, command, asked, analyze)
    if script is None:
        captured = capture_demo(
            settings,
            say=console.say,
            devices=devices,
            slowdowns=[Slowdown(kind) for kind in slowdown or ()],
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
    from traceview.capture.launch.command import capture_command

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
        from traceview.capture.sidecar.secrets import masked_message

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
    from traceview.cli.commands.analyze import TERMINAL_TOP
    from traceview.cli.output import Target
    from traceview.report.build import analyze
    from traceview.report.summary import Invocation

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
