"""Defines a history: a row for each saved report, and where the step time changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median as middle
from typing import Final, Literal

from traceview.comparison.mean_step import step_time_ps
from traceview.history.change_points import change_points
from traceview.history.reports import Folder
from traceview.record import (
    Count,
    Integer,
    PathName,
    Picoseconds,
    Ratio,
    Record,
    RunName,
    Share,
    VersionText,
)
from traceview.report.identity import devices_of, started_ns
from traceview.report.model import Report
from traceview.version import VERSION

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
        least_busy_ratio: How busy the least busy device in use was; null where that was not measured.
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
    least_busy_ratio: Share | None
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
        levels = _levels([step_time_ps(report) for report in reports])
        for place, report, (level, change) in zip(places, reports, levels, strict=True):
            rows[place] = _row(str(folder.reports[place].path), report, number, level, change)
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


def _levels(steps_ps: Sequence[int | None]) -> list[tuple[int | None, float | None]]:
    """By report the level of its step time, and its change where one begins."""
    known = [(place, step_ps) for place, step_ps in enumerate(steps_ps) if step_ps]
    values = [step_ps for _, step_ps in known]
    bounds = [0, *change_points(values), len(values)]
    levels: list[tuple[int | None, float | None]] = [(None, None)] * len(steps_ps)
    before: int | None = None
    for first, last in pairwise(bounds):
        level = int(middle(values[first:last])) if first < last else None
        for place, _ in known[first:last]:
            change = level / before - 1 if level and before and place == known[first][0] else None
            levels[place] = (level, change)
        before = level
    return levels


def _row(
    file: str, report: Report, series: int, level_ps: int | None, change: float | None
) -> HistoryRow:
    steps, balance = report.results.steps, report.results.balance
    known = {number.key: number.value for number in report.verdict.numbers}
    return HistoryRow(
        file=file,
        run=report.source.run,
        started_ns=started_ns(report),
        devices=devices_of(report),
        batch_size=_batch_size(report),
        series=series,
        step_ps=step_time_ps(report),
        step_count=steps.used_count if steps else 0,
        level_ps=level_ps,
        change_ratio=change,
        least_busy_ratio=known.get("least_busy_ratio"),
        examples_per_second=balance.throughput.examples_per_second if balance else None,
        finding=report.verdict.finding,
    )
