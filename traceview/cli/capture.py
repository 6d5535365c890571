"""`traceview capture`: record chosen steps of a training script, without editing it."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NoReturn, TextIO

import typer

from traceview.capture.demo.injection import Illness
from traceview.cli.demo import check_demo
from traceview.cli.output import abandon_stdout
from traceview.cli.remote import capture_running, check_together
from traceview.cli.shell_quote import is_plain, shell_quote
from traceview.document.sanitize import sanitize
from traceview.errors import CaptureError, TraceviewError, UsageError

CONTEXT_SETTINGS: Final = {"allow_interspersed_args": False}
"""Everything after SCRIPT is the script's."""
DEFAULT_STEPS: Final = "10:15"


def capture(
    context: typer.Context,
    script: Annotated[
        str | None,
        typer.Argument(metavar="SCRIPT", help="The Python file to run.", show_default=False),
    ] = None,
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
    run: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the run. Without it the workers of a cluster find one together, and others get a new "
            "one by the time.",
            show_default=False,
        ),
    ] = None,
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
    nvml: Annotated[
        bool,
        typer.Option(
            "--nvml/--no-nvml",
            help="Sample clocks, power, load and other processes of the GPUs in the window.",
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
    serve: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="PORT",
            help="Offer TensorFlow's profiler server in the script, for captures with --remote.",
            show_default=False,
        ),
    ] = None,
    remote: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Instead of running a script, record a job that offers a profiler server. Several are joined by "
            "commas.",
            show_default=False,
        ),
    ] = None,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="How long to record with --remote: 500ms, 2s, 1m.")
    ] = "2s",
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait for servers to come up.")
    ] = "60s",
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Instead of a script, train a small model on all GPUs, or on logical CPU devices, and print "
            "the report.",
        ),
    ] = False,
    devices: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Devices of --demo: the first N GPUs, or N logical CPU devices. By default all GPUs, or 2.",
            show_default=False,
        ),
    ] = None,
    illness: Annotated[
        list[Illness] | None,
        typer.Option(
            help="Make --demo slow in this way. May be repeated.",
            show_default=False,
        ),
    ] = None,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Print the report of what was recorded.")
    ] = False,
) -> None:
    """Run a training script and record some of its steps.

    The script runs in this process as if Python had been started with it, with its own exit code. The trace
    is DIR/plugins/profile/RUN/HOST.xplane.pb; the last line names the run. The workers of a cluster share one
    run if they share DIR. With --remote a job that runs already is recorded, for a --duration.

    Example: traceview capture --steps 100:110 --out logs train.py --epochs 3
    """
    check_together(context, is_remote=remote is not None)
    console = _Console(sys.stdout, sys.stderr)
    if remote is not None:
        asked = capture_running(
            remote, out=out, run=run, duration=duration, timeout=timeout, say=console.say
        )
        code = asked.problem.exit_code if asked.problem else 0
        _end(console, asked.run, asked.problem, code, analyze)
    check_demo(context, is_demo=demo)
    if script is None and not demo:
        raise UsageError("missing argument 'SCRIPT'", hint="traceview capture --help")
    from traceview.capture.demo.run import capture_demo
    from traceview.capture.preflight import cheap_failures
    from traceview.capture.recording import Settings
    from traceview.capture.script import Script
    from traceview.capture.session import capture_script
    from traceview.capture.window import StepWindow

    for check in cheap_failures([] if module or script is None else [Path(script)]):
        console.say(f"{check.name}: {check.found}")
        console.say(f"fix: {check.fix}")
    settings = Settings(
        out=out,
        window=StepWindow.parse(steps),
        is_synchronised=sync,
        max_events=max_events,
        run=run,
        is_nvml_sampled=nvml,
    )
    if script is None:
        trained = capture_demo(settings, say=console.say, devices=devices, illnesses=illness or ())
        _end(console, trained.run, trained.problem, trained.code, analyze=True)
    done = capture_script(
        Script(script, arguments or [], is_module=module),
        settings,
        say=console.say,
        step_functions=step_function or (),
        serve=serve,
    )
    _end(console, done.run, done.problem, done.code, analyze)


@dataclass(frozen=True)
class _Console:
    """The streams that the command began with: a script may close its own, or put anything in their place."""

    out: TextIO | None
    err: TextIO | None

    @property
    def is_watched(self) -> bool:
        """Whether a person reads along."""
        with suppress(ValueError):
            return self.err is not None and self.err.isatty()
        return False

    def say(self, line: str) -> None:
        """A line for the user, behind what the script has printed."""
        self.print(f"traceview: {sanitize(line)}")

    def say_error(self, error: CaptureError) -> None:
        """The same for what went wrong, with what helps."""
        self.say(error.message)
        if error.hint:
            self.say(f"hint: {error.hint}")

    def name(self, run: Path) -> None:
        """The last line: the folder of a run, to be read by a person or a script."""
        encoding = getattr(self.err, "encoding", None) or "utf-8"
        if is_plain(run, encoding):
            self.print(str(run))
            return
        self.say("note: the name of the run is quoted, as bash and zsh read it")
        self.print(shell_quote(run))

    def print(self, line: str) -> None:
        """Print the line. Where nobody can read it the run goes on all the same."""
        with suppress(Exception):
            sys.stdout.flush()
        if self.err is not None:
            with suppress(OSError, ValueError):
                typer.echo(line, file=self.err)


def _end(
    console: _Console, run: Path | None, problem: CaptureError | None, code: int, analyze: bool
) -> NoReturn:
    """Say what went wrong and where the run is; a script that failed by itself decides on the exit code."""
    if problem is not None and run is None and code == 0:
        raise problem
    if problem is not None:
        console.say_error(problem)
    if run is not None:
        if analyze:
            _print_report(console, run)
        elif console.is_watched:
            console.say(
                "traceview analyze shows what is in this run, traceview report writes it down:"
            )
        console.name(run)
    raise typer.Exit(code)


def _print_report(console: _Console, run: Path) -> None:
    """The report of a run; the script has ended, and its exit code is what counts."""
    from traceview.cli.analyze import TERMINAL_TOP
    from traceview.cli.output import Target
    from traceview.report.build import analyze

    if console.out is None or console.out.closed:
        console.say("note: no report: standard output is closed")
        return
    with redirect_stdout(console.out):
        try:
            Target(None).write_report(analyze(run, top=TERMINAL_TOP), None)
        except TraceviewError as error:
            console.say(f"note: no report: {error.message}")
        except BrokenPipeError:
            # Who reads along has read enough, and the run has still to be named.
            abandon_stdout()
