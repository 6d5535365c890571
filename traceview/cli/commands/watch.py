"""Defines `traceview watch`: a line for each new run of log directories, and alarms and metrics for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING, Annotated, Final, cast

from msgspec import Struct, field

from traceview.base.errors import (
    OutputExistsError,
    StoreError,
    TraceFormatError,
    TraceviewError,
    UsageError,
)
from traceview.base.location import Location
from traceview.cli.options import argument, flag, option, place
from traceview.cli.output import Target, say, write_file
from traceview.document.sanitize import sanitize
from traceview.store.address import location_of

if TYPE_CHECKING:
    from traceview.watch.follow import Follower, Memory, News, OnFinding, Telemetry, Unreadable

PAIRS: Final = ("on_finding",)
"""Options of two values."""
_QUIET: Final = "its files have not grown for two minutes"
"""As long as the follower waits for a file that is cut off."""


def watch(
    logdirs: Annotated[
        list[str],
        argument("[JOB=]LOGDIR...", "Log directories. JOB names one, by default its folder."),
    ],
    every: Annotated[
        str, option("TIME", "How often to look: 30s, 5m.", "--every", show_default=True)
    ] = "10s",
    once: Annotated[bool, flag("Report once, and exit; for cron.", "--once")] = False,
    last: Annotated[
        int,
        option(
            "N",
            "Compare a run with the N before it; begin with the N newest.",
            min=1,
            show_default=True,
        ),
    ] = 5,
    on_finding: Annotated[
        list[str] | None,  # pairs, see PAIRS: Typer knows no list of tuples
        option(
            "CODE COMMAND",
            "Run this shell command if a new run has this finding. Repeatable.",
            "--on-finding",
        ),
    ] = None,
    prometheus: Annotated[
        Location | None,
        place("FILE", "Write metrics of the newest run to FILE, for Prometheus.", "--prometheus"),
    ] = None,
    otel: Annotated[
        bool,
        flag("Send OpenTelemetry metrics of runs to OTEL_EXPORTER_OTLP_ENDPOINT.", "--otel"),
    ] = False,
    state: Annotated[
        Location | None,
        place("FILE", "Remember the reported runs in FILE; a later call continues.", "--state"),
    ] = None,
) -> None:
    """Print a line for each new run, until Ctrl-C.

    A line has the mean step time, how much of it is compute, the change against earlier runs, and the verdict. COMMAND
    gets the finding in variables such as TRACEVIEW_TITLE; the command env prints them all.

    Example: traceview watch logs/ --on-finding input-bound 'notify-send "$TRACEVIEW_TITLE"'
    """
    from traceview.base.units import parse_duration
    from traceview.cli.output import terminable
    from traceview.watch.follow import Follower, Telemetry

    interval_s = parse_duration("--every", every) / 1000
    commands = _commands(cast("Sequence[Sequence[str]] | None", on_finding))
    if prometheus is not None:
        _check_own(prometheus)
    known = {} if state is None else _read_state(state)
    jobs = [
        Follower(name, logdir, known.get(str(logdir)), last) for name, logdir in _named(logdirs)
    ]
    telemetry = Telemetry() if otel else None
    watching = _Watch(jobs, commands, prometheus, state, known, telemetry, is_once=once)
    with terminable():
        try:
            watching.begin()
            pause = Event()
            while True:
                pause.wait(interval_s)
                watching.look()
                if once:
                    watching.end()
                    return
        finally:
            if telemetry is not None:
                telemetry.close()


def _named(texts: Sequence[str]) -> list[tuple[str, Location]]:
    """The jobs and their log directories: `train=/data/logs`, or `/data/train`."""
    jobs: dict[str, Location] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or "/" in name:
            name, path = "", text
        logdir = location_of(path)
        name = name or logdir.name or str(logdir)
        if name in jobs:
            raise UsageError(f"two log directories are called {name}", hint="JOB=LOGDIR names them")
        jobs[name] = logdir
    return list(jobs.items())


class _Watch(Struct):
    """The jobs, and where their news go. `others`: the state of log directories that this call does not watch."""

    jobs: list[Follower]
    commands: tuple[OnFinding, ...]
    prometheus: Location | None
    state: Location | None
    others: dict[str, Memory]
    telemetry: Telemetry | None
    is_once: bool
    missed: dict[str, TraceviewError] = field(default_factory=dict)
    """By place what went wrong with it: a store does not answer, or a disk is full."""
    written: dict[Location, bytes] = field(default_factory=dict)

    def begin(self) -> None:
        """Look for the first time. A place that does not answer ends the command; of one look only at its end."""
        from traceview.trace.reading.locate import find_runs

        for job in self.jobs:
            try:
                job.begin()
                if self.is_once and not job.has_runs:
                    find_runs(job.logdir)  # raises, and says why there is none
            except TraceviewError as error:
                if not self.is_once:
                    raise
                self.missed[str(job.logdir)] = error
                continue
            if not job.has_runs:
                say(f"no run below {job.logdir} yet; waiting")

    def end(self) -> None:
        """Raise what went wrong at the only look."""
        errors = list(self.missed.values())
        for error in errors[1:]:
            say(error.message)
        if errors:
            raise errors[0]

    def look(self) -> None:
        """Report what has come."""
        for job in self.jobs:
            if self.is_once and str(job.logdir) in self.missed:
                continue
            try:
                for news in job.look():
                    self.report(job, news)
                    self.write_files()
                self.missed.pop(str(job.logdir), None)
            except StoreError as error:
                self.miss(str(job.logdir), error)
            for run in job.incomplete if self.is_once else ():
                say(f"{self.prefix(job)}{run} is not complete yet")
        self.write_files()

    def miss(self, place: str, error: TraceviewError) -> None:
        """Say what went wrong, once; the next look tries again."""
        before = self.missed.get(place)
        self.missed[place] = error
        if not self.is_once and (before is None or before.message != error.message):
            say(f"{error.message}; trying again")

    def prefix(self, job: Follower) -> str:
        """The beginning of a line about a job: its name, where there are several."""
        return f"{job.name}: " if len(self.jobs) > 1 else ""

    def report(self, job: Follower, news: News | Unreadable) -> None:
        """Print the line of a run, then run commands and send metrics."""
        from traceview.analysis.rules.sentences import RunCommands
        from traceview.watch.follow import Unreadable, line_of, run_commands

        if isinstance(news, Unreadable):
            command = RunCommands(str(job.logdir), news.run, is_only=False).command("analyze")
            why = f"{news.run} stays unreadable: {_QUIET}; {news.reason}"
            say(f"{self.prefix(job)}{why}. What is readable of it: {command} --salvage")
            return
        line = sanitize(f"{self.prefix(job)}{line_of(news)}")
        # No line begins with what CI takes for a command.
        Target(None).write(f"{' ' if line.startswith('::') else ''}{line}\n")
        if self.is_once or self.state is not None or not news.is_history:
            for wrong in run_commands(self.commands, job, news.report):
                say(wrong)
        name = news.report.source.run
        if news.damage:
            say(
                f"{name} stays incomplete: {_QUIET}; its line is of what is readable; {news.damage}"
            )
        if self.telemetry is not None and not self.telemetry.send(job):
            say(f"the metrics of {name} were not sent: the collector did not answer")

    def write_files(self) -> None:
        """Renew the files of metrics and of the state where they changed, and let go of what was read from stores."""
        import json

        from msgspec import to_builtins

        from traceview.watch.follow import metrics_text

        if self.prometheus is not None:
            text = metrics_text(self.jobs)
            self._write(self.prometheus, text.encode())
        if self.state is not None:
            # One that is away for a call is known to the next.
            own = {
                str(job.logdir): job.memory for job in self.jobs if job.has_runs or not self.is_once
            }
            # Names of runs need not be UTF-8; here every character beyond ASCII is escaped.
            content = json.dumps(to_builtins({**self.others, **own}))
            self._write(self.state, content.encode())

    def _write(self, path: Location, content: bytes) -> None:
        if not content or self.written.get(path) == content:
            return
        try:
            write_file(path, [content])
        except (StoreError, UsageError) as error:
            self.miss(str(path), error)
            return
        self.written[path] = content
        self.missed.pop(str(path), None)


def _commands(pairs: Sequence[Sequence[str]] | None) -> tuple[OnFinding, ...]:
    from traceview.analysis.registry import RULES
    from traceview.watch.follow import OnFinding

    commands = tuple(OnFinding(code.lower(), command) for code, command in pairs or ())
    for command in commands:
        if command.code not in RULES:
            what = f"no finding is called {command.code!r}"
            raise UsageError(what, hint="traceview explain lists them")
        if not command.command.strip():
            raise UsageError(f"--on-finding {command.code}: the command is empty")
    return commands


def _check_own(path: Location) -> None:
    """Raise `OutputExistsError` for a file that is none of ours: it is replaced without being asked for."""
    from traceview.watch.follow import FIRST_LINE

    Target.of(path, force=True)
    if not path.is_file():
        return
    with path.open("rb") as file:
        if file.read(len(FIRST_LINE)) != FIRST_LINE.encode():
            raise OutputExistsError(
                f"{path} exists, and is no file of metrics by traceview", hint="choose another file"
            )


def _read_state(path: Location) -> dict[str, Memory]:
    """The memory of an earlier call, by log directory; empty without one. Raises `TraceFormatError` for another file."""
    import json

    from msgspec import ValidationError, convert

    from traceview.watch.follow import Memory

    Target.of(path, force=True)
    if not path.is_file():
        return {}
    try:
        return convert(json.loads(path.read_bytes()), dict[str, Memory])
    except (ValueError, ValidationError, RecursionError) as error:
        raise TraceFormatError(path, f"not a state of traceview watch: {error}") from None
