"""Makes the reports that commands show and compare: of runs, saved ones, or those of hangs; says what a long one works on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import get_terminal_size
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import typer
from msgspec import Struct

from traceview.base.errors import UsageError
from traceview.base.location import Location
from traceview.base.timing import Stages, followed, stage
from traceview.cli.options import OF_RUN, given_options, hosts_read_by, step_range
from traceview.cli.output import Target
from traceview.report.formats import is_saved_report, report_at, report_in
from traceview.store.address import is_remote

if TYPE_CHECKING:
    from traceview.analysis.measures.context import Context
    from traceview.report.model import Report
    from traceview.trace.model import StepRange, Trace, WindowKind
    from traceview.trace.reading.load import Readers
    from traceview.trace.sidecar.hang import Hang


def reports_at(
    places: Sequence[Location], run: str | None = None, *, salvage: bool = False
) -> list[Report]:
    """The reports that log directories, runs, traces and saved reports lead to, while their progress is shown."""
    reports = []
    for place in places:
        with reading():
            reports.append(report_at(place, run=run, salvage=salvage))
    return reports


def redacted_alike(reports: Sequence[Report]) -> list[Report]:
    """The reports with pseudonyms, the same for the same name."""
    from traceview.report.redaction import Pseudonyms, redacted

    names = Pseudonyms()
    return [redacted(report, names) for report in reports]


class Source(Struct, frozen=True):
    """The run that LOGDIR names and the options that choose a part of it; read before any work, so that errors come first."""

    logdir: Location
    is_saved: bool
    run: str | None
    salvage: bool
    readers: Readers | None
    window: WindowKind
    steps: StepRange | None

    @classmethod
    def of(cls, context: typer.Context, logdir: Location) -> Source:
        """Read the options of a command; raises `UsageError` for one that cannot be read, or that a saved report cannot follow."""
        given = context.params
        logdir = report_in(logdir)
        is_saved = is_saved_report(logdir)
        for name, shown in given_options(context).items() if is_saved else ():
            if name in OF_RUN:
                raise UsageError(
                    f"{shown} needs a trace, and {logdir} is a saved report",
                    hint="give the log directory instead",
                )
        run, salvage, readers = given["run"], given["salvage"], hosts_read_by(given["workers"])
        steps = step_range(given["steps"])
        return cls(logdir, is_saved, run, salvage, readers, given["window"], steps)

    def report(
        self,
        *,
        top: int | None = None,
        lanes: bool = False,
        is_for_screen: bool = False,
        is_redacted: bool = False,
    ) -> Report:
        """The report. `top`: rows of ops per device; `lanes`: with a timeline; `is_for_screen`: what the first screen shows.

        Raises what loading raises.
        """
        if is_redacted:
            return redacted_alike([self.report(top=top, lanes=lanes)])[0]
        if self.is_saved:
            from traceview.report.saved import load_report

            return load_report(self.logdir)
        # No screen shows the digests of files.
        needed = ("traceview.report.build",)
        with self.trace(with_digests=not is_for_screen, needed=needed) as trace:
            with stage("importing"):
                from traceview.analysis.measures.context import TOP_OPS
                from traceview.report.build import analyze

            report = analyze(
                trace,
                top=TOP_OPS if top is None else top,
                lanes=lanes,
                is_for_screen=is_for_screen,
                window=self.window,
                steps=self.steps,
            )
        if self.salvage and lanes:
            from msgspec.structs import replace

            return replace(report, command=(*report.command, "--salvage"))
        return report

    @contextmanager
    def trace(self, *, with_digests: bool = True, needed: Sequence[str] = ()) -> Iterator[Trace]:
        """The run, while its progress is shown. `with_digests`: as of `load`; `needed`: modules to import meanwhile."""
        with stage("importing"):
            from traceview.base.sweeping import begin_imports
            from traceview.trace.reading.load import load

        with reading():
            begin_imports(needed)
            yield load(
                self.logdir,
                run=self.run,
                salvage=self.salvage,
                readers=self.readers,
                with_digests=with_digests,
            )

    @contextmanager
    def context(self, *, needed: Sequence[str] = ()) -> Iterator[Context]:
        """The context of all rows of the window, of files without digests: no table has them. `needed`: as of `trace`."""
        modules = ("traceview.analysis.measures.context", *needed)
        with self.trace(with_digests=False, needed=modules) as trace:
            # Not of `report.build`, which imports all topics.
            from traceview.analysis.facts.selection import select
            from traceview.analysis.measures.context import Context, Options

            yield Context(trace, select(trace, self.window, self.steps), Options(top=None))

    @contextmanager
    def analyzed_context(self) -> Iterator[tuple[Context, Report]]:
        """The context of the window with its report for a screen, which has all findings."""
        with self.context() as context:
            from traceview.report.build import report_of

            yield (
                context,
                report_of(context, window=self.window, steps=self.steps, is_for_screen=True),
            )


# Hangs


def show_hangs(target: Target, logdir: Location, *, as_json: bool, is_redacted: bool) -> bool:
    """Print the reports of hangs below a folder in which there is no trace; whether there are any.

    Raises `TraceFormatError` for a report that is none.
    """
    hangs = list(_hangs_below(logdir))
    if is_redacted:
        from traceview.report.redaction import redacted_record

        hangs = [redacted_record(hang) for hang in hangs]
    if not hangs:
        return False
    from traceview.analysis.machine.hang import content_of, hang_document

    if as_json:
        from traceview.document.sanitize import dumped

        target.write(dumped({"schema_version": 1, "hangs": list(map(content_of, hangs))}))
    else:
        target.write_sections(map(hang_document, hangs))
    return True


def _hangs_below(folder: Location) -> Iterator[Hang]:
    """The reports in a folder and those below it, and the stacks of processes in which no Python can run."""
    from traceview.trace.sidecar.hang import hang_files, hang_of_stacks, read_hang, stack_files

    if is_remote(folder):
        for below, _, _ in folder.walk():
            yield from map(read_hang, hang_files(below))
        return
    for directory, _, _ in sorted(os.walk(str(folder))):
        for path in hang_files(Path(directory)):
            yield read_hang(path)
        for path in stack_files(Path(directory)):
            yield hang_of_stacks(path)


# Progress


PATIENCE_SECONDS: Final = 1.0
"""Shorter work needs no word (the limit for an uninterrupted thought, Nielsen 1993)."""
_EVERY_SECONDS: Final = 0.2


@contextmanager
def reading() -> Iterator[None]:
    """Shows on standard error the stage of the work on a run, if that is a terminal and the work takes long."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    ended = Event()
    with followed() as stages, ExitStack() as stack:
        thread = Thread(target=_show, args=(stages, ended), daemon=True)
        # In a container for instance no more threads may be started.
        with suppress(RuntimeError):
            thread.start()
            stack.callback(thread.join)
        stack.callback(ended.set)
        yield


def _show(stages: Stages, ended: Event) -> None:
    """Renew the line until the work has ended, then take it back."""
    shown, pause = "", PATIENCE_SECONDS
    while not ended.wait(pause):
        name, detail = next(iter(stages[-1:]), ("reading", ""))
        # A line that wraps could not be taken back.
        text = f"{name} {detail}".strip()[: max(1, get_terminal_size().columns - 3)] + "..."
        sys.stderr.write(f"\r{text.ljust(len(shown))}")
        sys.stderr.flush()
        shown, pause = text, _EVERY_SECONDS
    sys.stderr.write(f"\r{' ' * len(shown)}\r" if shown else "")
    sys.stderr.flush()
