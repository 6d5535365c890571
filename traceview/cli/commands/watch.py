"""Defines `traceview watch`: a line for each new run of log directories, and metrics for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct

from traceview.base.errors import (
    OutputExistsError,
    StoreError,
    TraceviewError,
    UsageError,
)
from traceview.base.location import Location
from traceview.cli.errors import say
from traceview.cli.options import argument, flag, logdir_of, option
from traceview.cli.output import Target, write_file
from traceview.document.sanitize import sanitize
from traceview.store.address import is_remote, location_of

if TYPE_CHECKING:
    from traceview.watch.follow import Follower, News, Unreadable
    from traceview.watch.metrics import NewestRun


_QUIET: Final = "its files have not grown for two minutes"


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
    prometheus: Annotated[
        Location | None,
        option(
            "FILE",
            "Keep what the newest run says in FILE, for Prometheus' text-file collector.",
            "--prometheus",
            parser=location_of,
        ),
    ] = None,
) -> None:
    """Print a line for each new run as it lands, until Ctrl-C.

    A line has the median step time, how much of the GPU time is compute, whether the step takes longer than in the runs
    before, and the verdict; with several log directories it begins with the job. Files that still grow or are cut off are
    waited for; of those that do not grow any more traceview says once that they stay incomplete.

    Example: traceview watch train=/data/a/logs eval=/data/b/logs --prometheus /var/lib/node_exporter/traceview.prom
    """
    from traceview.capture.window.ranges import parse_duration
    from traceview.cli.termination import terminable
    from traceview.trace.reading.locate import find_runs
    from traceview.watch.follow import Follower

    interval_s = parse_duration("--every", every) / 1000
    if prometheus is not None:
        _check_own(prometheus)
    jobs = [_Job(name, Follower(logdir, last)) for name, logdir in _named(logdirs)]
    outputs = _Outputs(jobs, prometheus, once)
    with terminable():
        for job in jobs:
            job.follower.begin()
            if once and not job.follower.has_runs:
                find_runs(job.follower.logdir)  # raises, and says why there is none
            if not job.follower.has_runs:
                say(f"no run below {job.follower.logdir} yet; waiting")
        pause = Event()
        while True:
            pause.wait(interval_s)
            outputs.look()
            if once:
                return


def _named(texts: Sequence[str]) -> list[tuple[str, Location]]:
    """The jobs and their log directories: `train=/data/logs`, or `/data/train`."""
    jobs: dict[str, Location] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or "/" in name:
            name, path = "", text
        logdir = logdir_of(path)
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
        return NewestRun(self.name, self.logdir, news.facts, news.change, *counts)


class _Outputs(Struct):
    """Where the news of the log directories go. `unwritten`: why the file of metrics is older than what was reported."""

    jobs: list[_Job]
    prometheus: Location | None
    is_once: bool = False
    unwritten: TraceviewError | None = None

    def look(self) -> None:
        """Report what has come. What does not answer or cannot be written ends the command only if this is the only look."""
        answered = [self.look_at(job) for job in self.jobs]
        if self.is_once:
            for job in self.jobs:
                for run in job.follower.incomplete:
                    say(f"{self.prefix(job)}{run} is not complete yet")
        if self.unwritten is not None and any(answered):
            self.renew_metrics()
        if self.unwritten is not None and self.is_once:
            raise self.unwritten

    def look_at(self, job: _Job) -> bool:
        """Report what has come of one job; whether its store answered."""
        from traceview.store.ranges import forget
        from traceview.watch.follow import Unreadable

        try:
            for news in job.follower.look():
                if isinstance(news, Unreadable):
                    job.unreadable_count += 1
                    say(self.unreadable(job, news))
                    self.renew_metrics()
                else:
                    self.report(job, news)
                if is_remote(job.follower.logdir):
                    forget()
        except StoreError as error:
            if self.is_once:
                raise
            if error.message != job.trouble:
                say(f"{error.message}; trying again")
            job.trouble = error.message
            return False
        if job.trouble:
            say("the store answers again")
        job.trouble = ""
        return True

    def prefix(self, job: _Job) -> str:
        """What begins a line about a job: its name, where there are several."""
        return f"{job.name}: " if len(self.jobs) > 1 else ""

    def report(self, job: _Job, news: News) -> None:
        """Print the line of a run, then run commands and renew metrics."""
        from traceview.watch.facts import line_of

        facts = news.facts
        job.run_count += 1
        job.newest = news
        line = line_of(facts, news.change, is_again=news.is_again)
        line = sanitize(f"{self.prefix(job)}{line}")
        # No line begins with what CI takes for a command.
        Target(None).write(f"{' ' if line.startswith('::') else ''}{line}\n")
        if news.damage:
            say(
                f"{facts.run} stays incomplete: {_QUIET}; its line is of what is readable; {news.damage}"
            )
        self.renew_metrics()

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
        """Replace the file of metrics, if there is one and a run to write of. A failure is said once; the next look tries again."""
        newest = [job.run(job.newest) for job in self.jobs if job.newest is not None]
        if self.prometheus is None or not newest:
            return
        from traceview.watch.metrics import metrics_text

        before, self.unwritten = self.unwritten, None
        try:
            write_file(self.prometheus, [metrics_text(newest).encode()])
        except (StoreError, UsageError) as error:
            self.unwritten = error
            is_new = before is None or before.message != error.message
            if is_new and not self.is_once:
                say(f"{error.message}; trying again")
            return
        if before is not None:
            say(f"{self.prometheus} is written again")


def _check_own(path: Location) -> None:
    """Raise `OutputExistsError` for a file that is none of ours: it is replaced without being asked for."""
    from traceview.watch.metrics import FIRST_LINE

    Target.of(path, force=True)
    if path.is_file() and not _first_bytes(path, len(FIRST_LINE)) == FIRST_LINE.encode():
        raise OutputExistsError(
            f"{path} exists, and is no file of metrics by traceview", hint="choose another file"
        )


def _first_bytes(path: Location, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)
