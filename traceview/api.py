"""Gives the public objects: a `Trace` with its tables as DataFrames, a `Report` and a `Comparison` with their documents."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import asdict

from traceview.analysis.measures.context import TOP_OPS
from traceview.base.errors import UsageError
from traceview.comparison import build as comparing
from traceview.comparison import document as comparison_document
from traceview.comparison import model as comparison_model
from traceview.comparison.build import Source, reports_of
from traceview.document.json_text import dumped
from traceview.report import build, formats, model, saved
from traceview.trace import model as trace_model
from traceview.trace.frames import event_tables
from traceview.trace.reading import load as loading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from traceview.ledger.table import Ledger
    from traceview.trace.device.table import Table
    from traceview.trace.windows import StepRange, WindowKind


class Trace(trace_model.Trace, frozen=True, eq=False, dict=True):
    """One run: everything its hosts recorded, on one clock; its tables are made when they are first asked for."""

    def ledger(
        self, *, window: WindowKind = "auto", steps: StepRange | slice | range | None = None
    ) -> Ledger:
        """Where every picosecond of every device went: one row a segment; `.to_frame()` gives a DataFrame.

        `window`, `steps`: as for `analyze`, and with its errors.
        """
        return build.ledger_of(self, window=window, steps=steps)

    def layers(
        self, *, window: WindowKind = "auto", steps: StepRange | slice | range | None = None
    ) -> pd.DataFrame:
        """One row per device and layer of the model, with the layers inside of it, and per line of Python in a layer.

        Columns are `device` and the fields of `traceview.analysis.workload.layers.LayerTime`: `layer`, `source_line`
        (text, missing where no name shows it); `gpu_time_ratio` (float64); `compute_ps_per_step`, `own_ps_per_step`,
        `forward_ps_per_step`, `backward_ps_per_step`, `optimizer_ps_per_step`, `other_ps_per_step` (int64);
        `flops_per_second` (Int64), `unknown_ratio`, `flops_per_byte`, `roof_ratio` (float64) and `bound` (text), missing where
        not known. The own times of a device sum to its compute. No row where no name shows a layer. `window`, `steps`: as for `analyze`.
        """
        return _frame_of(build.layers_of(self, window=window, steps=steps))

    def memory(
        self, *, window: WindowKind = "auto", steps: StepRange | slice | range | None = None
    ) -> pd.DataFrame:
        """One row per GPU and op: what is in use at the peak of the GPU's memory, the most first.

        Columns are the fields of `traceview.analysis.measures.device_memory.HeldBytes`: `device`, `layer`, `op` (text, missing
        where not recorded), `kind`, `phase` (text), `bytes`, `count` (int64). The rows of a GPU sum to its peak; one of the kind
        `before` is what was in use before the capture. No row where no allocator of a GPU was recorded. `window`, `steps`: as for
        `analyze`.
        """
        return _frame_of(build.memory_of(self, window=window, steps=steps))

    def efficiency(
        self, *, window: WindowKind = "auto", steps: StepRange | slice | range | None = None
    ) -> pd.DataFrame:
        """One row per device that computes, with its FLOP/s and MFU; none where no FLOPs are known.

        Columns are the fields of `traceview.analysis.workload.efficiency.DeviceEfficiency`: `host`, `device` (text),
        `ordinal`, `flops_per_second`, `flops_per_step` (int64), `unknown_ratio`, `programs_ratio` (float64),
        `peak_flops_per_second` (Int64) and `mfu_ratio` (float64), missing where not known. `window`, `steps`: as for `analyze`.
        """
        return _frame_of(build.efficiency_of(self, window=window, steps=steps))

    @cached_property
    def devices(self) -> pd.DataFrame:
        """One row per device, also of those that did nothing.

        Columns: `device` (key as in the report), `host`, `ordinal` (int64), `kind`, `model`, `event_count`
        (int64), `memory_held_bytes`, `memory_peak_bytes`, `memory_capacity_bytes` (Int64, missing where not
        recorded).
        """
        return _frame_of(event_tables.devices(self))

    @cached_property
    def device_events(self) -> pd.DataFrame:
        """One row per device event that counts as activity, sorted by device and start.

        Columns: `device`, `stream`, `class`, `name`, `op` (categories; `op` as recorded, missing without);
        `start_ps`, `duration_ps` (int64, picoseconds since the origin of the run); `bytes`, `correlation_id`,
        `launch` (Int64; `launch` is the row in `host_events` of the call that launched it, of a replica that of the op), `step` (Int64: the
        number of the step in which it starts), `p2p`, `opaque` (bool).
        """
        return _frame_of(event_tables.device_events(self)).drop(columns="row")

    @cached_property
    def copies(self) -> pd.DataFrame:
        """One row per copy between host and device or among devices, sorted by device and start.

        Columns: `device`, `direction` (h2d, d2h, d2d), `stream` (categories); `start_ps`, `duration_ps` (int64,
        picoseconds since the origin of the run); `bytes` (Int64); `host_memory` (category: pageable, pinned,
        missing where not recorded); `p2p` (bool: to another GPU); `op` (category: the op that issued it, as
        recorded or around its launch), `thread` (category: the thread that did), `step` (Int64: the number of the step in which it starts).
        """
        return _frame_of(event_tables.copies(self)).drop(columns="row")

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """One row per collective and device that took part, sorted by collective and device.

        Columns: `collective` (int64, numbered in the order in which they began); `device`, `kind` (all_reduce …),
        `name`, `op` (categories; `op` missing where not recorded); `start_ps`, `duration_ps` (int64, of a replica
        from where it hands the op over), `wait_ps` (Int64: longer than the shortest; missing where a device is), `last`
        (bool: started after all others), `bytes` (Int64, of the collective), `step` (Int64), `by_keys` (bool:
        matched by recorded keys).
        """
        return _frame_of(event_tables.collectives(self))

    @cached_property
    def host_events(self) -> pd.DataFrame:
        """One row per host event, in the order of hosts, threads and file; `device_events.launch` points here.

        Columns: `host`, `thread`, `name` (categories); `start_ps`, `duration_ps` (int64, picoseconds since the
        origin of the run); `correlation_id` (Int64), `step` (Int64: the number of the step in which it starts).
        """
        return _frame_of(event_tables.host_events(self)).drop(columns="row")

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per step and host, in time order.

        Columns: `host`, `number` (int64), `recorded_number` (Int64), `kind`, `start_ps`, `duration_ps` (int64),
        `used` (bool: takes part in statistics), `excluded` (why not).
        """
        return _frame_of(event_tables.steps(self))

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """One row per span without activity of every device, in the window `auto`, by device and start.

        Columns: `device`, `start_ps`, `duration_ps` (int64); `step` (Int64: the number of the step in which it starts);
        `state` (category: what the device waited for most of it); `before`, `after` (Int64: rows of `device_events`);
        `thread` (the one that was late); one column `<state>_ps` (int64) per state of the ledger.
        """
        from traceview.analysis.facts.selection import select
        from traceview.analysis.measures.context import Context
        from traceview.ledger.gaps import gap_events

        context = Context(self, select(self))
        rows = gap_events(context.ledger, context.idle.gaps)
        return _frame_of(rows).astype({"thread": "string"})

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per device, class, op and kernel over the whole recording, by device and falling total.

        Columns: `device`, `class`, `op`, `op_type`, `kernel`, `source_line`; `count`, `total_ps`, `self_ps`, `mean_ps`,
        `median_ps`, `p95_ps` (int64); `share_ratio` (float64, of the device's compute; missing for other
        classes), `bytes` (Int64).
        """
        frame = _frame_of(event_tables.ops(self))
        return frame.astype({"device": "string", "class": "string"})

    @cached_property
    def active_devices(self) -> pd.DataFrame:
        """One row per step of each host: which of its devices computed or communicated in it.

        Columns: `host`, `step` (int64, its number), `start_ps` (int64), `device_count` (int64); `devices`, `joined`,
        `left` (text: keys of devices with commas between; what changed against the step before it).
        """
        return _frame_of(event_tables.active_devices(self))

    @cached_property
    def input_stages(self) -> pd.DataFrame:
        """One row per stage of the input pipelines over the whole recording, by host and falling self time.

        Columns are the fields of `traceview.trace.host.pipeline.InputStage`: `host`, `name`, `threads` (text);
        `blocking`, `injected` (bool); `calls`, `total_ps`, `self_ps`, `waiting_ps`, `slow_count`, `parallelism`,
        `buffer_limit`, `buffered_median` (Int64); `empty_ratio` (float64).
        """
        return _frame_of(event_tables.input_stages(self))


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


class Comparison(comparison_model.Comparison, frozen=True, dict=True):
    """What differs between two sides, with its tables as DataFrames and the documents that show it."""

    def __repr__(self) -> str:
        return f"<Comparison: {self.verdict}>"

    @cached_property
    def states_frame(self) -> pd.DataFrame:
        """One row per state, with the keys of `states` as columns."""
        return _frame(self.states)

    @cached_property
    def devices_frame(self) -> pd.DataFrame:
        """One row per device and state, with the keys of `devices` and of their states as columns."""
        return _frame(
            {"device": device.device, "status": device.status, **asdict(row)}
            for device in self.devices
            for row in device.states
        )

    @cached_property
    def ops_frame(self) -> pd.DataFrame:
        """One row per op and kernel, with the keys of `ops` as columns."""
        return _frame(self.ops)

    @cached_property
    def findings_frame(self) -> pd.DataFrame:
        """One row per finding that came, went or changed, with the keys of `findings` as columns."""
        return _frame(self.findings)

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


def _frame_of(table: Table) -> pd.DataFrame:
    from traceview.trace.frames.frames import frame_of

    return frame_of(table)


def _frame(rows: Iterable[Any]) -> pd.DataFrame:
    from traceview.trace.frames.frames import records_frame

    return records_frame(row if isinstance(row, dict) else asdict(row) for row in rows)


def _public(report: model.Report) -> Report:
    return Report(*(getattr(report, name) for name in report.__struct_fields__))
