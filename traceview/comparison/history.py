"""Puts saved reports in order, finds where the step time changed, and keeps baselines.

The series is split where runs without a change would least often differ as much; the split is kept if they would in at most
5% of series, however many places there are to split at (Bonferroni). Both parts are then split in the same way.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import exp
from pathlib import Path
from statistics import median
from typing import Final, Literal

from msgspec.structs import replace

from traceview.base.errors import (
    ComparisonError,
    TraceFormatError,
    TraceNotFoundError,
    TraceviewError,
)
from traceview.base.location import Location
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
)
from traceview.base.text import did_you_mean, enumerated
from traceview.base.version import VERSION
from traceview.comparison.noise import (
    CONFIDENCE,
    DEVICE_SPREAD,
    StepLevels,
    difference,
)
from traceview.comparison.sides import (
    batch_size_of,
    capture_steps,
    setup_of,
    step_time_ps,
    why_no_step,
)
from traceview.comparison.verdict import ratio_words
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.sanitize import encoded
from traceview.report.formats import is_saved_report, report_at
from traceview.report.model import Report, devices_of, started_ns, traces_of
from traceview.report.saved import load_report
from traceview.store.address import location_of

FEWEST_RUNS: Final = 3
"""Of a level: one or two slow runs may be outliers."""
LEAST_CHANGE_RATIO: Final = 0.01
"""Runs that differ by less are on one level: nobody acts on it. A choice of ours."""


def change_points(levels: Sequence[StepLevels]) -> list[int]:
    """The places at which a new level begins, in order; empty where no change is shown. `levels`: of the step, by run."""
    places = range(FEWEST_RUNS, len(levels) - FEWEST_RUNS + 1)
    typical = [of.typical for of in levels]
    chances = [
        (change.chance, place)
        for place in places
        if (change := difference(typical[:place], typical[place:], DEVICE_SPREAD)).chance
        is not None
        and abs(change.value) >= LEAST_CHANGE_RATIO
    ]
    chance, place = min(chances, default=(1.0, 0))
    if not chances or chance * len(places) > 1 - CONFIDENCE:
        return []
    behind = (place + later for later in change_points(levels[place:]))
    return [*change_points(levels[:place]), place, *behind]


HISTORY_SCHEMA_VERSION: Final = 3


class HistoryRow(Record, frozen=True):
    """One report.

    Attributes:
        file: File of the report.
        run: Name of the run.
        started_ns: When it was recorded, Unix nanoseconds; null where that is not known.
        devices: The devices in use.
        batch_size: Examples of one step; null where not known.
        step_ps: Mean of the used steps, picoseconds; null without any.
        step_count: Used steps.
        level_ps: Median of the typical step, the mean without the slowest third, over the reports of the same devices and batch
            size from one change to the next, picoseconds; null without any.
        change_ratio: Where a new level begins, its change against the level before; null elsewhere.
        compute_ratio: Share of the GPU time of all visible devices in which they compute; null without any.
        examples_per_second: Examples of all devices; null where the batch size is not known.
        finding: Code of the finding about what costs most; null without any.
    """

    file: PathName
    run: RunName
    started_ns: Integer | None
    devices: str
    batch_size: Count | None
    step_ps: Picoseconds | None
    step_count: Count
    level_ps: Picoseconds | None
    change_ratio: float | None
    compute_ratio: Share | None
    examples_per_second: Ratio | None
    finding: str | None


class History(Record, frozen=True):
    """The reports of a folder, oldest first.

    Attributes:
        schema_version: Version of this schema.
        traceview_version: Version of traceview that made it.
        folder: The folder.
        rows: One row per report.
        left_out: Files without a row, and why, in sentences.
    """

    schema_version: Literal[3]
    traceview_version: VersionText
    folder: PathName
    rows: tuple[HistoryRow, ...]
    left_out: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[HistoryRow, ...]:
        """The rows at which a new level begins."""
        return tuple(row for row in self.rows if row.change_ratio is not None)


def history_of(folder: Path) -> History:
    """The reports in their order, with the changes of the step time in each series of alike runs.

    Raises what `saved_reports` raises.
    """
    reports, left_out = saved_reports(folder)
    series: dict[tuple[str, int | None], dict[Path, Report]] = {}
    for path, report in reports.items():
        series.setdefault(setup_of(report), {})[path] = report
    rows = {row.file: row for alike in series.values() for row in _rows(alike)}
    return History(
        schema_version=HISTORY_SCHEMA_VERSION,
        traceview_version=VERSION,
        folder=str(folder),
        rows=tuple(rows[str(path)] for path in reports),
        left_out=tuple(left_out),
    )


def _rows(series: Mapping[Path, Report]) -> Iterator[HistoryRow]:
    steps = [*map(capture_steps, series.values())]
    known = [(place, of) for place, own in enumerate(steps) if own and (of := own.levels)]
    level_ps: dict[int, int] = {}
    change_ratio: dict[int, float] = {}
    begins = change_points([levels for _, levels in known])
    for first, last in pairwise([0, *begins, len(known)] if known else ()):
        level = round(exp(median(levels.typical.value for _, levels in known[first:last])))
        if first:
            change_ratio[known[first][0]] = level / level_ps[known[first - 1][0]] - 1
        level_ps |= {place: level for place, _ in known[first:last]}
    for place, ((path, report), own) in enumerate(zip(series.items(), steps, strict=True)):
        found, balance = report.results.steps, report.results.balance
        yield HistoryRow(
            file=str(path),
            run=report.source.run,
            started_ns=started_ns(report),
            devices=devices_of(report),
            batch_size=batch_size_of([report]),
            step_ps=round(own.mean_ps) if own else None,
            step_count=found.used_count if found else 0,
            level_ps=level_ps.get(place),
            change_ratio=change_ratio.get(place),
            compute_ratio=report.verdict.compute_ratio,
            examples_per_second=balance.throughput.examples_per_second if balance else None,
            finding=report.verdict.finding,
        )


def earlier_levels(folder: Path, like: Sequence[Report]) -> list[list[StepLevels]]:
    """The steps of the saved runs that are set up like these and are none of them, in groups without a change.

    Raises what `saved_reports` raises.
    """
    known = {traces_of(report) for report in like}
    setups = {setup_of(report) for report in like}
    reports, _ = saved_reports(folder)
    levels = [
        of
        for report in reports.values()
        if setup_of(report) in setups and traces_of(report) not in known
        if (steps := capture_steps(report)) and (of := steps.levels)
    ]
    return [
        levels[first:last] for first, last in pairwise([0, *change_points(levels), len(levels)])
    ]


_SIDECAR: Final = ".traceview.json"


def saved_reports(folder: Path) -> tuple[dict[Path, Report], list[str]]:
    """The reports in a folder and in the folders in it by their files, oldest first; those without a time come last.

    The sentences are on files with an ending of reports that are none, or whose run another file has a report on. Raises
    `TraceNotFoundError` where there is no report, and `TraceFormatError` where none can be read.
    """
    if not folder.is_dir():
        problem = (
            "a file, where a folder of files is needed" if folder.exists() else "no such folder"
        )
        raise TraceNotFoundError(
            f"{folder}: {problem}", hint="traceview history DIR, a folder with saved reports"
        )
    reports: dict[Path, Report] = {}
    left_out: list[str] = []
    damage: list[TraceviewError] = []
    for path in sorted((*folder.glob("*"), *folder.glob("*/*"))):
        if not is_saved_report(path) or not path.is_file() or path.name.endswith(_SIDECAR):
            continue
        try:
            reports[path] = load_report(path)
        except (TraceFormatError, TraceNotFoundError) as error:
            damage.append(error)
            left_out.append(f"{path} is left out: {error.message.removeprefix(f'{path}: ')}.")
    if not reports:
        nothing = TraceNotFoundError(
            f"{folder}: no saved report in it",
            hint="traceview report LOGDIR --format json -o FOLDER/NAME.json saves one",
        )
        raise [*damage, nothing][0]

    def age(path: Path) -> tuple[bool, int, str]:
        started = started_ns(reports[path])
        return started is None, started or 0, str(path)

    once: dict[object, Path] = {}
    left_out += [
        f"{path} is left out: another file has a report on its trace."
        for path in sorted(reports, key=age)
        if once.setdefault(traces_of(reports[path]) or path, path) != path
    ]
    return {path: reports[path] for path in once.values()}, left_out


_LEGEND = (
    "The typical step is the mean without the slowest third. A change is marked where it differs before and after more than in "
    f"runs without a change, in at most {numbers.share(1 - CONFIDENCE)} of such series. The more runs differ among each other, "
    "the more of them it takes."
)


_BAR_WIDTH: Final = 24


def history_section(history: History) -> doc.Section:
    """All series in one table, each step as a bar beside the longest one."""
    longest_ps = max((row.step_ps or 0 for row in history.rows), default=0) or 1

    def bar(row: HistoryRow) -> str:
        return "█" * round(_BAR_WIDTH * (row.step_ps or 0) / longest_ps)

    columns = (*_COLUMNS, Shown("", bar, 4))
    return doc.Section(
        "history",
        "History",
        (
            *table("The reports, oldest first", history.rows, columns),
            *doc.notes(*_notes(history)),
            *doc.remarks(_LEGEND),
        ),
        lead=f"{headline(history)}.",
        is_folded=False,
    )


def headline(history: History) -> str:
    """How many reports there are, and how often the step time changed."""
    reports = numbers.plural(len(history.rows), "report")
    count = len(history.changes)
    if not count:
        return f"{reports}: no change of the step time shown"
    often = {1: "once", 2: "twice"}.get(count, f"{count} times")
    return f"{reports}: the step time changed {often}"


def _change(row: HistoryRow) -> str:
    return "" if row.change_ratio is None else ratio_words(row.change_ratio)


_COLUMNS: Final = (
    Shown("recorded", lambda row: numbers.date(row.started_ns), 2),
    Shown("run", "run", 4),
    Shown("devices", "devices", 3, "name", if_several=True),
    Shown("batch", "batch_size", 6, "count", if_several=True),
    Shown("step", "step_ps"),
    Shown("change", _change),
    Shown("compute", "compute_ratio", 1),
    Shown("examples/s", "examples_per_second", 5, "number"),
    Shown("costs most", lambda row: row.finding or "", 3),
)


def _notes(history: History) -> Iterator[str]:
    for row in history.changes:
        before = row.level_ps / (1 + (row.change_ratio or 0.0)) if row.level_ps else None
        yield (
            f"{_change(row)} from {row.run} on: {numbers.time(before)} before, "
            f"{numbers.time(row.level_ps)} since, medians of the typical steps."
        )
    yield from history.left_out


# Baselines: a folder of saved reports under a name, a capture a file, small enough to be committed

DEFAULT_FOLDER: Final = Path(".traceview") / "baselines"
"""Where a baseline is that has a name and no path: below the working directory, as other tools keep theirs."""

FILES: Final = tuple(f"{number}.json.gz" for number in range(1, 100))
"""The files of a baseline, in the order of its captures."""


def baseline_place(text: str) -> Location:
    """The folder of the baseline of this name; a text with a slash, or of dots alone, is a path."""
    return location_of(text) if "/" in text or not text.strip(".") else DEFAULT_FOLDER / text


def file_content(report: Report) -> bytes:
    """A capture as a file of a baseline, the same for the same report.

    Raises `ComparisonError` where there are no steps to compare with.
    """
    if step_time_ps(report) is None:
        raise ComparisonError(f"the run has no step times to compare with: {why_no_step(report)}")
    # Nothing is compared of a timeline, which is most of a report that has one.
    small = replace(report, results=replace(report.results, lanes=None))
    return gzip.compress(encoded(small), mtime=0)


def baseline_at(text: str) -> tuple[Report, ...]:
    """The captures of the baseline of this name or at this path, or the report that the path leads to.

    Raises `TraceNotFoundError` if there is none, with the names that are near, and `TraceFormatError` if a file of it is
    damaged.
    """
    place = baseline_place(text)
    paths = [path for file in FILES if (path := place / file).is_file()]
    if paths:
        return tuple(map(load_report, paths))
    if "/" in text:
        return (report_at(place),)
    known = sorted(path.parent.name for path in DEFAULT_FOLDER.glob(f"*/{FILES[0]}"))
    hint = "traceview gate LOGDIR --save NAME makes one; a path has a slash: ./NAME"
    if known:
        hint = did_you_mean(text, known, f"there is {enumerated(known, 8)}")
    raise TraceNotFoundError(f"no baseline is called {text} in {DEFAULT_FOLDER}", hint=hint)
