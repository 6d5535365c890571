"""Defines a history: a row for each saved report, and where the step time changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import floor
from statistics import median as middle
from typing import Annotated, Final, Literal, NamedTuple

from traceview.base.record import (
    Count,
    Integer,
    PathName,
    Picoseconds,
    Ratio,
    Record,
    RunName,
    Share,
    VersionText,
    one_of,
)
from traceview.base.version import VERSION
from traceview.comparison.captures import CaptureSteps, capture_steps
from traceview.comparison.difference import (
    mean_level,
    most_chance,
    part_difference,
    step_level,
)
from traceview.history.change_points import change_points
from traceview.history.reports import Folder
from traceview.ledger.states import KEYS
from traceview.report.identity import devices_of, started_ns
from traceview.report.model import Report
from traceview.trace.table import Table, record_columns, table

HISTORY_SCHEMA_VERSION: Final = 1


class HistoryRow(Record, frozen=True):
    """One report.

    Attributes:
        file: File of the report.
        run: Name of the run.
        started_ns: When it was recorded, Unix nanoseconds; null where that is not known.
        devices: The devices in use.
        batch_size: Examples of one step; null where not known.
        series: Number of the series that it belongs to, from 1 on: reports of the same devices and batch size.
        step_ps: Mean of the used steps, picoseconds; null without any.
        step_count: Used steps.
        level_ps: Median of step_ps over the reports of the series from one change to the next, picoseconds; null as step_ps
            is.
        change_ratio: Where a new level begins, its change against the level before; null elsewhere.
        state: There, the state that differs most from the level before, of those shown to differ; null elsewhere.
        state_change_ps: The difference of its means over the reports of each level, picoseconds; null as state is.
        compute_ratio: Share of the GPU time of all visible devices in which they compute; null without any.
        examples_per_second: Examples of all devices; null where the batch size is not known.
        finding: Code of the finding about what costs most; null without any.
    """

    file: PathName
    run: RunName
    started_ns: Integer | None
    devices: str
    batch_size: Count | None
    series: Count
    step_ps: Picoseconds | None
    step_count: Count
    level_ps: Picoseconds | None
    change_ratio: float | None
    state: Annotated[str, one_of(*KEYS)] | None
    state_change_ps: Integer | None
    compute_ratio: Share | None
    examples_per_second: Ratio | None
    finding: str | None


class UnreadableFile(Record, frozen=True):
    """A file that is no report.

    Attributes:
        file: The file.
        reason: Why it cannot be read.
    """

    file: PathName
    reason: str


class History(Record, frozen=True):
    """The reports of a folder, oldest first.

    Attributes:
        schema_version: Version of this schema.
        traceview_version: Version of traceview that made it.
        folder: The folder.
        rows: One row per report.
        unreadable: Files that are no report.
        repeated: Files with a report on a run that has a row already.
    """

    schema_version: Literal[1]
    traceview_version: VersionText
    folder: PathName
    rows: tuple[HistoryRow, ...]
    unreadable: tuple[UnreadableFile, ...] = ()
    repeated: tuple[PathName, ...] = ()

    @property
    def changes(self) -> tuple[HistoryRow, ...]:
        """The rows at which a new level begins."""
        return tuple(row for row in self.rows if row.change_ratio is not None)


def history_of(folder: Folder) -> History:
    """The reports in their order, with the changes of the step time in each series of alike runs."""
    setups: dict[tuple[str, int | None], list[int]] = {}
    for place, saved in enumerate(folder.reports):
        setups.setdefault(_setup(saved.report), []).append(place)
    rows: dict[int, HistoryRow] = {}
    for number, places in enumerate(setups.values(), 1):
        reports = [folder.reports[place].report for place in places]
        steps = [capture_steps(report) for report in reports]
        for place, report, of_row, level in zip(
            places, reports, steps, _levels(steps), strict=True
        ):
            rows[place] = _row(str(folder.reports[place].path), report, number, of_row, level)
    return History(
        schema_version=HISTORY_SCHEMA_VERSION,
        traceview_version=VERSION,
        folder=str(folder.path),
        rows=tuple(rows[place] for place in sorted(rows)),
        unreadable=tuple(UnreadableFile(str(path), reason) for path, reason in folder.unreadable),
        repeated=tuple(map(str, folder.repeated)),
    )


def _setup(report: Report) -> tuple[str, int | None]:
    """What has to be the same for step times to be comparable."""
    return devices_of(report), _batch_size(report)


def _batch_size(report: Report) -> int | None:
    balance = report.results.balance
    return balance.throughput.batch_size if balance else None


class _Level(NamedTuple):
    """The level that a report is on; where it begins also its change, and the state that changed most."""

    ps: int | None = None
    change_ratio: float | None = None
    state: str | None = None
    state_change_ps: int | None = None


def _levels(reports: Sequence[CaptureSteps | None]) -> list[_Level]:
    """By report the level of its step time."""
    known = [
        (place, steps, level)
        for place, steps in enumerate(reports)
        if steps and (level := step_level(steps.lengths_ps))
    ]
    values = [floor(steps.mean_ps) for _, steps, _ in known]
    bounds = [0, *change_points([level for *_, level in known]), len(values)]
    levels = [_Level()] * len(reports)
    before: list[CaptureSteps] = []
    for first, last in pairwise(bounds):
        after = [steps for _, steps, _ in known[first:last]]
        ps = int(middle(values[first:last])) if after else None
        for place, *_ in known[first:last]:
            levels[place] = _Level(ps)
        if before and ps:
            old_ps = int(middle(floor(steps.mean_ps) for steps in before))
            state, change_ps = _changed_state(before, after)
            levels[known[first][0]] = _Level(ps, ps / old_ps - 1, state, change_ps)
        before = after
    return levels


def _changed_state(
    before: Sequence[CaptureSteps], after: Sequence[CaptureSteps]
) -> tuple[str | None, int | None]:
    """The state that makes most of a change, of those that are shown to have changed."""
    changes = {}
    for key in dict.fromkeys(key for steps in (*before, *after) for key in steps.states):
        old, new = (
            [
                level
                for steps in side
                if (level := mean_level(steps.state_lengths_ps.get(key, 0 * steps.lengths_ps)))
            ]
            for side in (before, after)
        )
        changes[key] = part_difference(old, new)
    most = most_chance(changes.values())
    shown = [key for key, change in changes.items() if (change.chance or 0.0) <= most]
    if not shown:
        return None, None
    key = max(shown, key=lambda key: abs(changes[key].value))
    return key, round(changes[key].value)


def _row(
    file: str, report: Report, series: int, of_row: CaptureSteps | None, level: _Level
) -> HistoryRow:
    steps, balance = report.results.steps, report.results.balance
    return HistoryRow(
        file=file,
        run=report.source.run,
        started_ns=started_ns(report),
        devices=devices_of(report),
        batch_size=_batch_size(report),
        series=series,
        step_ps=floor(of_row.mean_ps) if of_row else None,
        step_count=steps.used_count if steps else 0,
        level_ps=level.ps,
        change_ratio=level.change_ratio,
        state=level.state,
        state_change_ps=level.state_change_ps,
        compute_ratio=report.verdict.compute_ratio,
        examples_per_second=balance.throughput.examples_per_second if balance else None,
        finding=report.verdict.finding,
    )


def history_table(history: History) -> Table:
    """A row for each report, with the keys of the JSON; CSV is written from it."""
    return table("history", *record_columns(HistoryRow, history.rows))
