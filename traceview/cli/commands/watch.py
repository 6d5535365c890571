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
from traceview.store.address import is_remote, location_of

if TYPE_CHECKING:
    from traceview.watch.follow import Follower, Memory, News, Unreadable
    from traceview.watch.metrics import NewestRun, OnFinding, Telemetry

PAIRS: Final = ("on_finding",)
"""Options of two values."""
_QUIET: Final = "its files have not grown for two minutes"
"""As long as the follower waits for a file that is cut off."""


def watch(
    logdirs: Annotated[
        list[str],
        argument("[JOB=]LOGDIR...", "Log directories; JOB names one, else its last folder does."),
    ],
    every: Annotated[
        str, option("TIME", "Time between two looks: 30s, 5m.", "--every", show_default=True)
    ] = "10s",
    once: Annotated[bool, flag("End after two looks, for cron and for tests.", "--once")] = False,
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
        place(
            "FILE",
            "Keep what the newest run says in FILE, for Prometheus' text-file collector.",
            "--prometheus",
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
        place(
            "FILE",
            "Keep in FILE which runs were reported, so that a later call goes on from there.",
            "--state",
        ),
    ] = None,
) -> None:
    """Print a line for each new run, until Ctrl-C.

    A line has the median step time, the share of compute, the change against earlier runs, and the verdict. docs/runs.md
    lists TRACEVIEW_TITLE and the other variables that commands read.

    Example: traceview watch logs/ --on-finding input-bound 'notify-send "$TRACEVIEW_TITLE"'
    """
    from traceview.base.units import parse_duration
    from traceview.cli.output import terminable
    from traceview.trace.reading.locate import find_runs
    from traceview.watch.follow import Follower
    from traceview.watch.metrics import Telemetry

    interval_s = parse_duration("--every", every) / 1000
    commands = _commands(cast("Sequence[Sequence[str]] | None", on_finding))
    if prometheus is not None:
        _check_own(prometheus)
    known = {} if state is None else _read_state(state)
    jobs = [
        _Job(name, Follower(logdir, known.get(str(logdir)), last))
        for name, logdir in _named(logdirs)
    ]
    telemetry = Telemetry() if otel else None
    outputs = _Outputs(jobs, commands, prometheus, state, known, telemetry, is_once=once)
    with terminable():
        try:
            for job in jobs:
                try:
                    job.follower.begin()
                    if once and not job.follower.has_runs:
                        find_runs(job.follower.logdir)  # raises, and says why there is none
                except TraceviewError as error:
                    # Of the others the only look reports nevertheless.
                    if not once or len(outputs.missed) == len(jobs) - 1:
                        raise
                    outputs.missed[job.name] = error
                    continue
                if not job.follower.has_runs:
                    say(f"no run below {job.follower.logdir} yet; waiting")
            pause = Event()
            outputs.jobs = [job for job in jobs if job.name not in outputs.missed]
            while True:
                pause.wait(interval_s)
                outputs.look()
                if once:
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


class _Job(Struct):
    """A log directory and what has come of it. `trouble`: the message about a store that does not answer, printed once."""

    name: str
    follower: Follower
    newest: News | None = None
    run_count: int = 0
    unreadable_count: int = 0
    trouble: str = ""

    @property
    def logdir(self) -> str:
        """The log directory as it was given."""
        return str(self.follower.logdir)

    def run(self, news: News) -> NewestRun:
        """A run with what metrics say of its job."""
        from traceview.watch.metrics import NewestRun

        counts = (self.run_count, self.unreadable_count)
        return NewestRun(self.name, self.logdir, news.report, news.change, *counts)


class _Outputs(Struct):
    """Where the news of the log directories go."""

    jobs: list[_Job]
    commands: tuple[OnFinding, ...]
    prometheus: Location | None
    state: Location | None
    others: dict[str, Memory]
    """The state of log directories that this call does not watch."""
    telemetry: Telemetry | None
    is_once: bool
    unwritten: dict[Location, TraceviewError] = field(default_factory=dict)
    """The files that are older than what was reported, and why: a disk is full, or a store does not answer."""
    missed: dict[str, TraceviewError] = field(default_factory=dict)
    """The jobs that the only look could not ask about, and why."""

    def look(self) -> None:
        """Report what has come. What does not answer or cannot be written ends the command only if this is the only look."""
        answered = [job for job in self.jobs if self.look_at(job)]
        if self.is_once:
            for job in answered:
                for run in job.follower.incomplete:
                    say(f"{self.prefix(job)}{run} is not complete yet")
        if answered:
            if self.is_once or self.state in self.unwritten:
                self.remember()
            if self.prometheus in self.unwritten:
                self.renew_metrics()
        wrong = (*self.missed.values(), *self.unwritten.values()) if self.is_once else ()
        for error in wrong[1:]:
            say(error.message)
        if wrong:
            raise wrong[0]

    def look_at(self, job: _Job) -> bool:
        """Report what has come of one job; whether its store answered."""
        from traceview.watch.follow import Unreadable

        try:
            for news in job.follower.look():
                if isinstance(news, Unreadable):
                    job.unreadable_count += 1
                    say(self.unreadable(job, news))
                    self.renew_metrics()
                else:
                    self.report(job, news)
                self.remember()
        except StoreError as error:
            if self.is_once:
                self.missed[job.name] = error
                return False
            if error.message != job.trouble:
                say(f"{error.message}; trying again")
            job.trouble = error.message
            return False
        if job.trouble:
            say("the store answers again")
        job.trouble = ""
        return True

    def prefix(self, job: _Job) -> str:
        """The beginning of a line about a job: its name, where there are several."""
        return f"{job.name}: " if len(self.jobs) > 1 or self.missed else ""

    def report(self, job: _Job, news: News) -> None:
        """Print the line of a run, then run commands and renew metrics."""
        from traceview.watch.follow import line_of
        from traceview.watch.metrics import run_commands

        name = news.report.source.run
        job.run_count += 1
        job.newest = news
        line = sanitize(f"{self.prefix(job)}{line_of(news)}")
        # No line begins with what CI takes for a command.
        Target(None).write(f"{' ' if line.startswith('::') else ''}{line}\n")
        run = job.run(news)
        if self.is_once or self.state is not None or not news.is_history:
            for wrong in run_commands(self.commands, run):
                say(wrong)
        if news.damage:
            say(
                f"{name} stays incomplete: {_QUIET}; its line is of what is readable; {news.damage}"
            )
        self.renew_metrics()
        if self.telemetry is not None and not self.telemetry.send(run):
            say(f"the metrics of {name} were not sent: the collector did not answer")

    def unreadable(self, job: _Job, news: Unreadable) -> str:
        """Why a run has no line, and what reads it nevertheless."""
        from traceview.analysis.rules.sentences import RunCommands

        run = f"{self.prefix(job)}{news.run}"
        if not news.is_in_part:
            return f"{run} stays unreadable: {_QUIET}; {news.reason}"
        command = RunCommands(job.logdir, news.run, is_only=False).command("analyze")
        return (
            f"{run} stays incomplete: {_QUIET}, so its job may have ended while it wrote; {news.reason}. "
            f"What is readable of it: {command} --salvage"
        )

    def renew_metrics(self) -> None:
        """Write the file of metrics, if there is one and a run to write of."""
        newest = [job.run(job.newest) for job in self.jobs if job.newest is not None]
        if self.prometheus is None or not newest:
            return
        from traceview.watch.metrics import metrics_text

        self._write(self.prometheus, metrics_text(newest).encode())

    def remember(self) -> None:
        """Renew the file of the state, and let go of what was read from stores."""
        if self.state is not None:
            import json

            from msgspec import to_builtins

            own = {job.logdir: job.follower.memory for job in self.jobs}
            # Names of runs need not be UTF-8; here every character beyond ASCII is escaped.
            content = json.dumps(to_builtins({**self.others, **own}))
            self._write(self.state, content.encode())
        if any(is_remote(job.follower.logdir) for job in self.jobs):
            from traceview.store.remote import blocks_of

            blocks_of.cache_clear()

    def _write(self, path: Location, content: bytes) -> None:
        """Replace a file. Where that fails, say so once; the next look tries again."""
        before = self.unwritten.pop(path, None)
        try:
            write_file(path, [content])
        except (StoreError, UsageError) as error:
            self.unwritten[path] = error
            is_new = before is None or before.message != error.message
            if is_new and not self.is_once:
                say(f"{error.message}; trying again")
            return
        if before is not None:
            say(f"{path} is written again")


def _commands(pairs: Sequence[Sequence[str]] | None) -> tuple[OnFinding, ...]:
    from traceview.report.build import check_codes
    from traceview.watch.metrics import OnFinding

    commands = tuple(OnFinding(code.lower(), command) for code, command in pairs or ())
    check_codes([command.code for command in commands])
    for command in commands:
        if not command.command.strip():
            raise UsageError(f"--on-finding {command.code}: the command is empty")
    return commands


def _check_own(path: Location) -> None:
    """Raise `OutputExistsError` for a file that is none of ours: it is replaced without being asked for."""
    from traceview.watch.metrics import FIRST_LINE

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
