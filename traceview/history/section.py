"""Shows a history: the changes in sentences, the step times as a chart, and a row for each report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from traceview.comparison.difference import CONFIDENCE
from traceview.comparison.verdict import ratio_words
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.figures import Trend, TrendPoint
from traceview.document.vocabulary import STATES, look_of
from traceview.history.result import History, HistoryRow

_LEGEND = (
    "A change is marked where the runs before and after differ more than runs without a change do, in at most "
    f"{numbers.share(1 - CONFIDENCE)} of such series. The more runs differ among each other, the more of them it takes."
)


def history_section(history: History) -> doc.Section:
    """All series in one table; each has a chart of its own."""
    rows = history.rows
    has_series = max(row.series for row in rows) > 1
    columns = (
        doc.words("recorded", [numbers.date(row.started_ns) for row in rows], priority=2),
        doc.names("run", [row.run for row in rows], priority=4),
        doc.names("devices", [row.devices for row in rows], priority=3) if has_series else None,
        doc.counts("batch", [row.batch_size for row in rows], priority=6) if has_series else None,
        doc.times("step", [row.step_ps for row in rows]),
        doc.words("change", [_change(row) for row in rows]),
        doc.shares("compute", [row.compute_ratio for row in rows], priority=1),
        doc.numbers("examples/s", [row.examples_per_second for row in rows], priority=5),
        doc.words("costs most", [row.finding or "" for row in rows], priority=3),
    )
    return doc.Section(
        "history",
        "History",
        (
            *_charts(history),
            *doc.table("The reports, oldest first", columns),
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


def _notes(history: History) -> Iterator[str]:
    for row in history.changes:
        assert row.change_ratio is not None
        before = row.level_ps / (1 + row.change_ratio) if row.level_ps else None
        yield (
            f"{ratio_words(row.change_ratio)} from {row.run} on: {numbers.time(before)} before, "
            f"{numbers.time(row.level_ps)} since, medians of the reports{_state_words(row)}."
        )
    for file in history.unreadable:
        yield f"{file.file} is left out: {file.reason}."
    if history.repeated:
        names = numbers.listed([PurePath(name).name for name in history.repeated])
        yield f"Left out, for another file has a report on the same trace: {names}."


def _state_words(row: HistoryRow) -> str:
    """`; input: +4.00 ms`."""
    if row.state is None:
        return ""
    return f"; {look_of(STATES, row.state).words}: {numbers.signed_time(row.state_change_ps)}"


def _charts(history: History) -> Iterator[doc.Block]:
    for series in sorted({row.series for row in history.rows}):
        rows = [row for row in history.rows if row.series == series and row.step_ps]
        if len(rows) < 2:
            continue
        batch = f", batch {rows[0].batch_size}" if rows[0].batch_size else ""
        yield Trend(
            f"Step time: {rows[0].devices or 'no device known'}{batch}",
            "time",
            tuple(
                TrendPoint(
                    numbers.date(row.started_ns) or row.run,
                    row.step_ps or 0,
                    row.level_ps,
                    "" if row.change_ratio is None else ratio_words(row.change_ratio),
                )
                for row in rows
            ),
        )
