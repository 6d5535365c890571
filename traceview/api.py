"""Gives the public objects: a `Trace` with its tables as DataFrames, a `Report` and a `Comparison` with their documents."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from msgspec.structs import asdict

from traceview.analysis.measures.context import TOP_OPS
from traceview.base.errors import UsageError
from traceview.comparison import build as comparing
from traceview.comparison import document as comparison_document
from traceview.comparison import model as comparison_model
from traceview.comparison.build import Source, reports_of
from traceview.document.sanitize import dumped
from traceview.report import build, formats, model, saved, tables
from traceview.trace import model as trace_model
from traceview.trace.device import table as event_tables
from traceview.trace.reading import load as loading

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from traceview.ledger.table import Ledger
    from traceview.trace.model import StepRange, WindowKind


class Trace(trace_model.Trace, frozen=True, eq=False, dict=True):
    """One run: everything its hosts recorded, on one clock; its tables are made when they are first asked for."""

    def ledger(
        self, *, window: WindowKind = "auto", steps: StepRange | slice | range | None = None
    ) -> Ledger:
        """Where every picosecond of every device went: one row a segment; `.to_frame()` gives a DataFrame.

        `window`, `steps`: as for `analyze`, and with its errors.
        """
        return build.context_of(self, window=window, steps=steps).ledger

    def table(
        self,
        name: str,
        *,
        window: WindowKind = "auto",
        steps: StepRange | slice | range | None = None,
    ) -> pd.DataFrame:
        """A table of `traceview show` by its name, with all rows and columns of its CSV, or the events of the window.

        `name`: gaps, steps, devices, ops, layers, efficiency, memory, input, copies, collectives or balance, whose columns are
        keys of the report; device_events, host_events or copy_events, whose `row` and `launch` are rows of `device_events`
        and `host_events`. Numbers that may be missing have pandas' types for that. `window`, `steps`: as for `analyze`.

        Raises `UsageError` for another name, and as `analyze` does.
        """
        context = build.context_of(self, window=window, steps=steps)
        return event_tables.frame_of(tables.table_of(context, name))

    @cached_property
    def device_events(self) -> pd.DataFrame:
        """One row per device event that counts as activity, sorted by device and start.

        Columns: `device`, `stream`, `class`, `name`, `op` (categories; `op` as recorded, missing without);
        `start_ps`, `duration_ps` (int64, picoseconds since the origin of the run); `bytes`, `correlation_id`,
        `launch` (Int64; `launch` is the row in `host_events` of the call that launched it, of a replica that of the op), `step` (Int64: the
        number of the step in which it starts), `p2p` (bool).
        """
        return event_tables.frame_of(event_tables.device_events(self)).drop(columns="row")

    @cached_property
    def host_events(self) -> pd.DataFrame:
        """One row per host event, in the order of hosts, threads and file; `device_events.launch` points here.

        Columns: `host`, `thread`, `name` (categories); `start_ps`, `duration_ps` (int64, picoseconds since the
        origin of the run); `correlation_id` (Int64), `step` (Int64: the number of the step in which it starts).
        """
        return event_tables.frame_of(event_tables.host_events(self)).drop(columns="row")


def load(path: str | Path, *, run: str | None = None, salvage: bool = False) -> Trace:
    """Read a run.

    `path`: a log directory, a directory in it, one run's directory or a single `*.xplane.pb`. `run`
    chooses among several; without it the newest is read. `salvage` accepts damaged files and keeps what is
    readable; a damaged file beside good ones is salvaged in any case. Damage stands in `Trace.problems`.

    Raises `TraceNotFoundError` (nothing there), `TraceFormatError` (nothing readable).
    """
    return Trace(**asdict(loading.load(path, run=run, salvage=salvage)))


class Report(model.Report, frozen=True):
    """Everything said about one run, with the documents that show it."""

    def __repr__(self) -> str:
        return f"<Report on run {self.source.run!r}: {self.verdict.headline}>"

    def to_json(self) -> str:
        """The report as `traceview report` writes it to report.json; `load_report` reads it again."""
        return saved.to_json(self)

    def to_markdown(self) -> str:
        """The report as a page for a ticket, in at most 60 kB."""
        return formats.markdown(self)

    def to_html(self) -> str:
        """The report as a page for a browser, complete in one file; with a timeline if there are `lanes`."""
        return formats.html(self)

    def _repr_markdown_(self) -> str:
        """What a notebook shows."""
        return self.to_markdown()


def analyze(
    trace: trace_model.Trace | str | Path,
    *,
    window: WindowKind = "auto",
    steps: StepRange | slice | range | None = None,
    top: int | None = TOP_OPS,
    lanes: bool = False,
) -> Report:
    """Say for every device how busy it was, with what, what it waited for, and what to change.

    `trace`: a loaded trace, or a path for `load`. `window`: the time span that numbers refer to. `steps`: only these,
    by number, half-open: `slice(5, 10)` or `range(5, 10)`. `top`: op rows per device, None for all. `lanes`: also what the
    timeline of a document draws; tables and texts do without.

    Raises what `load` raises, and `UsageError` for arguments of another kind and steps that are not there.
    """
    return _public(build.analyze(trace, window=window, steps=steps, top=top, lanes=lanes))


def load_report(path: Path | str) -> Report:
    """The report in a file that `traceview report` or `traceview analyze -o report.json` wrote.

    Raises `TraceNotFoundError` where there is no such file and `TraceFormatError` for one that holds anything
    else: with the byte where it stops being JSON, or the key that is not what it should be.
    """
    return _public(saved.load_report(path))


class Comparison(comparison_model.Comparison, frozen=True):
    """What differs between two sides, with its tables as DataFrames and the documents that show it."""

    def __repr__(self) -> str:
        return f"<Comparison: {self.verdict}>"

    def frame(self, name: Literal["states", "devices", "ops", "findings"]) -> pd.DataFrame:
        """One row per state, device and state, op, or finding that came, went or changed; columns are the keys of the JSON."""
        import pandas as pd

        rows = [asdict(row) for row in getattr(self, name)]
        if name == "devices":
            rows = [
                {"device": device.device, "status": device.status, **asdict(row)}
                for device in self.devices
                for row in device.states
            ]
        return pd.DataFrame(rows)

    def to_json(self) -> str:
        """The comparison as `traceview compare --format json` writes it."""
        return dumped(self).decode()

    def to_markdown(self) -> str:
        """A page for a ticket or a pull request."""
        return comparison_document.to_markdown(self)

    def to_html(self) -> str:
        """A page for a browser, complete in one file."""
        return comparison_document.to_html(self)


def compare(
    before: Source | Sequence[Source], after: Source | Sequence[Source], *, force: bool = False
) -> Comparison:
    """Say how much the step differs between two sides, how sure that is, and why.

    `before`, `after`: a trace, a report, a path for `load` or of a saved report; or several of them, each a capture of
    that side. `force`: compare runs on other devices or of another batch, too.

    Raises what `load` and `load_report` raise, and `ComparisonError` for runs without steps and for such that are not
    the same work on the same devices.
    """
    sides = [_listed(side) for side in (before, after)]
    for name, side in zip(("before", "after"), sides, strict=True):
        if not side:
            raise UsageError(f"compare: no capture of the side {name}")
    made = comparing.compare(reports_of(sides[0]), reports_of(sides[1]), force=force)
    return Comparison(*(getattr(made, name) for name in made.__struct_fields__))


def _listed(side: Source | Sequence[Source]) -> list[Source]:
    if isinstance(side, (list, tuple)):
        return list(side)
    return [cast("Source", side)]


def _public(report: model.Report) -> Report:
    return Report(*(getattr(report, name) for name in report.__struct_fields__))
