"""Defines `traceview watch`: a line for each new run of a log directory, and alarms and metrics for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer
from msgspec import Struct, field

from traceview.base.errors import (
    OutputExistsError,
    StoreError,
    TraceFormatError,
    TraceviewError,
    UsageError,
)
from traceview.base.location import Location
from traceview.cli.options import Logdir, flag, option
from traceview.cli.output import Target, write_file
from traceview.document.sanitize import sanitize
from traceview.store.address import is_remote, location_of

if TYPE_CHECKING:
    from traceview.watch.commands import OnFinding
    from traceview.watch.follow import Follower, Memory, News, Unreadable
    from traceview.watch.telemetry import Telemetry

PAIRS: Final = ("on_finding",)
"""Options of two values."""


def watch(
    logdir: Logdir,
    every: Annotated[
        str, option("TIME", "Time between two looks: 30s, 5m.", "--every", show_default=True)
    ] = "10s",
    once: Annotated[bool, flag("End after two looks, for cron and for tests.", "--once")] = False,
    incomplete_after: Annotated[
        str,
        option(
            "TIME",
            "Say of a cut-off file that it stays incomplete, once it has not grown for so long: 30s, 10m.",
            "--incomplete-after",
            show_default=True,
        ),
    ] = "2m",
    last: Annotated[
        int,
        option(
            "N",
            "Compare with the N runs before, and begin with the N newest runs.",
            min=1,
            show_default=True,
        ),
    ] = 5,
    on_finding: Annotated[
        list[str] | None,  # pairs, see PAIRS: Typer knows no list of tuples
        option(
            "CODE COMMAND",
            "Run this shell command if a new run has this finding. May be repeated.",
            "--on-finding",
        ),
    ] = None,
    prometheus: Annotated[
        Location | None,
        option(
            "FILE",
            "Keep what the newest run says in FILE, for Prometheus' text-file collector.",
            "--prometheus",
            parser=location_of,
        ),
    ] = None,
    otel: Annotated[
        bool,
        flag(
            "Send each run as OpenTelemetry metrics, to where OTEL_EXPORTER_OTLP_ENDPOINT leads.",
            "--otel",
        ),
    ] = False,
    state: Annotated[
        Location | None,
        option(
            "FILE",
            "Keep in FILE which runs were reported, so that a later call goes on from there.",
            "--state",
            parser=location_of,
        ),
    ] = None,
) -> None:
    """Print a line for each new run as it lands, until Ctrl-C.

    A line has the median step time, how much of the GPU time is compute, whether the step takes longer than in the runs
    before, and the verdict. Files that still grow or are cut off are waited for; of those that do not grow any more
    traceview says once that they stay incomplete. Commands get what is known of the run in variables:
    TRACEVIEW_RUN, TRACEVIEW_FINDING, TRACEVIEW_TITLE and others; they run for runs that come while traceview watches,
    with --once or --state for each run that gets a line.

    Example: traceview watch logs/ --on-finding input-bound 'notify-send "$TRACEVIEW_TITLE"'
    """
    from traceview.capture.window.ranges import parse_duration
    from traceview.cli.termination import terminable
    from traceview.trace.reading.locate import find_runs
    from traceview.watch.follow import Follower

    interval_s = parse_duration("--every", every) / 1000
    incomplete_after_s = parse_duration("--incomplete-after", incomplete_after) / 1000
    commands = _commands(cast("Sequence[Sequence[str]] | None", on_finding))
    if prometheus is not None:
        _check_own(prometheus)
    known = None if state is None else _read_state(state)
    follower = Follower(logdir, known, last, incomplete_after_s)
    outputs = _Outputs(
        str(logdir),
        commands,
        prometheus,
        state,
        once or state is not None,
        is_once=once,
        incomplete_after=incomplete_after,
    )
    if otel:
        from traceview.watch.telemetry import Telemetry

        outputs.telemetry = Telemetry()
    with terminable():
        try:
            follower.begin()
            if once and not follower.has_runs:
                find_runs(logdir)  # raises, and says why there is none
            if not follower.has_runs:
                _say(f"no run below {logdir} yet; waiting")
            pause = Event()
            while True:
                pause.wait(interval_s)
                outputs.look(follower)
                if once:
                    return
        finally:
            if outputs.telemetry is not None:
                outputs.telemetry.close()


class _Outputs(Struct):
    """Where the news of a log directory go."""

    logdir: str
    commands: tuple[OnFinding, ...]
    prometheus: Location | None
    state: Location | None
    is_all_new: bool
    is_once: bool = False
    incomplete_after: str = ""
    telemetry: Telemetry | None = None
    run_count: int = 0
    unreadable_count: int = 0
    newest: News | None = None
    trouble: str = ""
    """The message about a store that does not answer, which is printed once."""
    unwritten: dict[Location, TraceviewError] = field(default_factory=dict)
    """The files that are older than what was reported, and why: a disk is full, or a store does not answer."""

    def look(self, follower: Follower) -> None:
        """Report what has come. What does not answer or cannot be written ends the command only if this is the only look."""
        from traceview.watch.follow import Unreadable

        try:
            for news in follower.look():
                if isinstance(news, Unreadable):
                    self.unreadable_count += 1
                    _say(self.unreadable(news))
                    self.renew_metrics()
                else:
                    self.report(news)
                self.remember(follower)
            if self.trouble:
                _say("the store answers again")
            self.trouble = ""
        except StoreError as error:
            if self.is_once:
                raise
            if error.message != self.trouble:
                _say(f"{error.message}; trying again")
            self.trouble = error.message
            return
        if self.is_once:
            for run in follower.incomplete:
                _say(f"{run} is not complete yet")
        if self.is_once or self.state in self.unwritten:
            self.remember(follower)
        if self.prometheus in self.unwritten:
            self.renew_metrics()
        for wrong in self.unwritten.values() if self.is_once else ():
            raise wrong

    def report(self, news: News) -> None:
        """Print the line of a run, then run commands and renew metrics."""
        from traceview.watch.commands import run_commands
        from traceview.watch.facts import line_of

        facts, change = news.facts, news.change
        self.run_count += 1
        self.newest = news
        line = sanitize(line_of(facts, change, is_again=news.is_again))
        # No line begins with what CI takes for a command.
        Target(None).write(f"{' ' if line.startswith('::') else ''}{line}\n")
        if self.is_all_new or not news.is_history:
            for wrong in run_commands(self.commands, self.logdir, facts, change):
                _say(wrong)
        if news.damage:
            _say(
                f"{facts.run} stays incomplete: {self.quiet}; its line is of what is readable; {news.damage}"
            )
        self.renew_metrics()
        if self.telemetry is not None and not self.telemetry.send(self.logdir, facts, change):
            _say(f"the metrics of {facts.run} were not sent: the collector did not answer")

    def unreadable(self, news: Unreadable) -> str:
        """Why a run has no line, and what reads it nevertheless."""
        if not news.is_in_part:
            return f"{news.run} stays unreadable: {self.quiet}; {news.reason}"
        return (
            f"{news.run} stays incomplete: {self.quiet}, so its job may have ended while it wrote; {news.reason}. "
            f"What is readable of it: {self.salvage(news.run)}"
        )

    @property
    def quiet(self) -> str:
        """How long nothing was written."""
        return f"its files have not grown for {self.incomplete_after}"

    def salvage(self, run: str) -> str:
        """The command that reads a damaged run."""
        from traceview.analysis.rules.run_commands import RunCommands

        return f"{RunCommands(self.logdir, run, is_only=False).command('analyze')} --salvage"

    def renew_metrics(self) -> None:
        """Write the file of metrics, if there is one and a run to write of."""
        if self.prometheus is None or self.newest is None:
            return
        from traceview.watch.prometheus import metrics_text

        newest = self.newest
        counts = (self.run_count, self.unreadable_count)
        text = metrics_text(self.logdir, newest.facts, newest.change, *counts)
        self._write(self.prometheus, text.encode())

    def remember(self, follower: Follower) -> None:
        """Renew the file of the state, and let go of what was read from a store."""
        if self.state is not None:
            import json

            from msgspec import to_builtins

            # Names of runs need not be UTF-8; here every character beyond ASCII is escaped.
            self._write(self.state, json.dumps(to_builtins(follower.memory)).encode())
        if is_remote(follower.logdir):
            from traceview.store.ranges import forget

            forget()

    def _write(self, path: Location, content: bytes) -> None:
        """Replace a file. Where that fails, say so once; the next look tries again."""
        before = self.unwritten.pop(path, None)
        try:
            write_file(path, [content])
        except (StoreError, UsageError) as error:
            self.unwritten[path] = error
            is_new = before is None or before.message != error.message
            if is_new and not self.is_once:
                _say(f"{error.message}; trying again")
            return
        if before is not None:
            _say(f"{path} is written again")


def _commands(pairs: Sequence[Sequence[str]] | None) -> tuple[OnFinding, ...]:
    from traceview.report.build import check_codes
    from traceview.watch.commands import OnFinding

    commands = tuple(OnFinding(code.lower(), command) for code, command in pairs or ())
    check_codes([command.code for command in commands])
    for command in commands:
        if not command.command.strip():
            raise UsageError(f"--on-finding {command.code}: the command is empty")
    return commands


def _check_own(path: Location) -> None:
    """Raise `OutputExistsError` for a file that is none of ours: it is replaced without being asked for."""
    from traceview.watch.prometheus import FIRST_LINE

    Target.of(path, force=True)
    if path.is_file() and not _first_bytes(path, len(FIRST_LINE)) == FIRST_LINE.encode():
        raise OutputExistsError(
            f"{path} exists, and is no file of metrics by traceview", hint="choose another file"
        )


def _first_bytes(path: Location, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)


def _read_state(path: Location) -> Memory | None:
    """What an earlier call kept; None without one. Raises `TraceFormatError` for another file."""
    import json

    from msgspec import ValidationError, convert

    from traceview.watch.follow import Memory

    Target.of(path, force=True)
    if not path.is_file():
        return None
    try:
        memory = convert(json.loads(path.read_bytes()), Memory)
    except (ValueError, ValidationError, RecursionError) as error:
        raise TraceFormatError(path, f"not a state of traceview watch: {error}") from None
    if memory.version != Memory().version:
        raise TraceFormatError(path, f"a state of version {memory.version}")
    return memory


def _say(text: str) -> None:
    typer.echo(f"traceview: {sanitize(text)}", err=True)
