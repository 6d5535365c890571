"""Makes the report that `analyze` and `report` show: of a run, or a saved one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import typer
from msgspec import Struct

from traceview.base.errors import UsageError
from traceview.base.location import Location
from traceview.base.timing import stage
from traceview.cli.options import finding_codes, given_options, hosts_read_by, step_range
from traceview.report.given import is_saved_report

if TYPE_CHECKING:
    from traceview.analysis.measures.context import Context
    from traceview.report.model import Report
    from traceview.trace.model import Trace

_OF_RUNS: Final = ("run", "steps", "window", "select", "ignore", "salvage", "workers")
"""Options that a saved report can no longer follow."""


def _import_next() -> None:
    """Import what comes after reading. What fails here fails again, and is said, where it is needed."""
    with suppress(BaseException):
        import_module("traceview.report.build")


class Source(Struct, frozen=True):
    """What LOGDIR names and the options that choose a part of it; made before any work, so that errors come first."""

    logdir: Location
    is_saved: bool
    run: str | None
    salvage: bool
    workers: str | None
    choices: dict[str, Any]

    @classmethod
    def of(cls, context: typer.Context, logdir: Location) -> Source:
        """Read the options of a command; raises `UsageError` for one that cannot be read, or that a saved report cannot follow."""
        given = context.params
        is_saved = is_saved_report(logdir)
        for name, shown in given_options(context) if is_saved else ():
            if name in _OF_RUNS:
                raise UsageError(
                    f"{shown} needs a trace, and {logdir} is a saved report",
                    hint="give the log directory instead",
                )
        hosts_read_by(given["workers"])
        select_codes, ignore_codes = finding_codes(given.get("select"), given.get("ignore"))
        choices = {
            "window": given["window"],
            "steps": step_range(given["steps"]),
            "select_codes": select_codes or None,
            "ignore_codes": ignore_codes,
        }
        return cls(logdir, is_saved, given["run"], given["salvage"], given["workers"], choices)

    def report(
        self, *, top: int | None = None, lanes: bool = False, is_for_screen: bool = False
    ) -> Report:
        """The report. `top`: rows of ops per device; `lanes`: with a timeline; `is_for_screen`: what the first screen shows.

        Raises what loading raises.
        """
        if self.is_saved:
            from traceview.report.saved import load_report

            return load_report(self.logdir)
        return self._analyzed(top, lanes=lanes, is_for_screen=is_for_screen)

    @contextmanager
    def trace(self) -> Iterator[Trace]:
        """The run, while its progress is shown."""
        with stage("importing"):
            from traceview.cli.progress import reading
            from traceview.trace.reading.load import load

        # Files are decoded without Python's lock, so that what comes next is imported meanwhile.
        with suppress(RuntimeError):
            Thread(target=_import_next, daemon=True).start()
        readers = hosts_read_by(self.workers)
        with reading(self.logdir, self.run, is_here=readers is None):
            yield load(self.logdir, run=self.run, salvage=self.salvage, readers=readers)

    def _analyzed(self, top: int | None, *, lanes: bool, is_for_screen: bool) -> Report:
        with self.trace() as trace:
            with stage("importing"):
                from traceview.analysis.measures.context import TOP_OPS
                from traceview.report.build import analyze

            rows = TOP_OPS if top is None else top
            report = analyze(
                trace,
                top=rows,
                lanes=lanes,
                is_for_screen=is_for_screen,
                **self.choices,
            )
        if self.salvage and lanes:
            from msgspec.structs import replace

            return replace(report, command=(*report.command, "--salvage"))
        return report

    @contextmanager
    def analyzed_context(self) -> Iterator[tuple[Context, Report]]:
        """What an export draws: everything computed of the window, and its report."""
        with self.trace() as trace:
            from traceview.analysis.facts.selection import select
            from traceview.analysis.measures.context import Context, Options
            from traceview.report.build import report_of

            window, steps = self.choices["window"], self.choices["steps"]
            context = Context(trace, select(trace, window, steps), Options(top=0))
            # Of the report the findings are drawn; tables have devices, steps and input, which a screen needs, too.
            report = report_of(context, window=window, steps=steps, is_for_screen=True)
            yield context, report
