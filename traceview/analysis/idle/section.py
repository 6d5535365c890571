"""Shows what the devices waited for: their idle time by cause, and the longest gaps with the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from traceview.analysis import device_time
from traceview.analysis.base import LEAST_SHOWN_RATIO
from traceview.analysis.context import View
from traceview.analysis.idle.result import Gap, Idle, IdleRow
from traceview.analysis.python_lock import lock_wait_sentence
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import CAUSES, look_of, thread_name
from traceview.shell_quote import shell_word

MOST_GAPS: Final = 100
"""Gaps of all devices together that have a row, the longest ones."""

BRIEF_GAPS: Final = 5
"""Gaps in a brief document, the longest ones."""
TITLE: Final = "Why the devices waited"


class NumberedGap(Struct, frozen=True):
    """A gap of a document: its number, from 1 on by length, and where it lies."""

    number: int
    gap: Gap
    span: doc.Span


def idle_section(view: View, result: Idle) -> doc.Section | None:
    """The share of the window that each cause has on each device."""
    unused = [row.device for row in result.devices if "unused" in row.causes]
    no_kernel = f"No kernel ran on {numbers.joined_devices(unused)}." if unused else ""
    rows = [row for row in result.devices if row.idle_ps and "unused" not in row.causes]
    if not rows:
        return doc.Section("idle", TITLE, (), lead=no_kernel or "No device waited.")
    windows = _windows(view)
    ranked = _ranked(rows)
    outliers, others = view.split(rows)
    small = [cause for cause in ranked if not _is_shown(cause, outliers, windows)]
    small_words = numbers.listed([CAUSES[cause].words for cause in small])
    return doc.Section(
        "idle",
        TITLE,
        (
            *doc.table(
                "Idle time by cause",
                _columns(outliers[: view.most_rows], ranked, windows),
                row_count=len(outliers),
                rest=f"{view.command('gaps')} -o gaps.csv",
            ),
            *_other_devices(view, others, windows),
            *doc.remarks(
                no_kernel,
                f"Below {numbers.share(LEAST_SHOWN_RATIO)} on each device: {small_words}."
                if small
                else None,
                lock_wait_sentence(view.findings, _totals(rows)),
                "Shares are of the window; the causes of a device add up to its idle time.",
            ),
        ),
        lead=f"Idle {_idle_range(rows, windows)} of the window; the largest cause over all devices: {CAUSES[ranked[0]].words}.",
        terms=("idle", "gap"),
        is_folded=False,
    )


def _other_devices(
    view: View, others: Sequence[IdleRow], windows: dict[str, int | None]
) -> Iterator[doc.Remark]:
    """Between which shares the devices without a row were idle, and what shows why."""
    for first in others[:1]:
        yield doc.Remark(
            f"{numbers.plural(len(others), 'other device')}: idle {_idle_range(others, windows)}. "
            f"Why {first.device} was idle:",
            f"{view.command('gaps')} --device {shell_word(first.device)}",
        )


def _idle_range(rows: Sequence[IdleRow], windows: dict[str, int | None]) -> str:
    return numbers.share_range(doc.ratio(row.idle_ps, windows.get(row.device)) for row in rows)


def _windows(view: View) -> dict[str, int | None]:
    times = view.result(device_time.ANALYSIS)
    return {row.device: row.window_ps for row in times.devices} if times else {}


def _ranked(rows: Sequence[IdleRow]) -> list[str]:
    """The causes that occur, the largest first."""
    totals = _totals(rows)
    return sorted((cause for cause in totals if totals[cause]), key=lambda cause: -totals[cause])


def _totals(rows: Sequence[IdleRow]) -> dict[str, int]:
    return {cause: sum(row.causes.get(cause, 0) for row in rows) for cause in CAUSES}


def _columns(
    rows: Sequence[IdleRow], ranked: Sequence[str], windows: dict[str, int | None]
) -> Iterator[doc.Column]:
    yield doc.devices("device", [row.device for row in rows])
    yield doc.shares("idle", [doc.ratio(row.idle_ps, windows.get(row.device)) for row in rows])
    yield doc.bars("by cause", [_bar(row, ranked, windows.get(row.device)) for row in rows])
    shown = [cause for cause in ranked if _is_shown(cause, rows, windows)]
    for priority, cause in enumerate(shown):
        look = CAUSES[cause]
        parts = [doc.ratio(row.causes.get(cause, 0), windows.get(row.device)) for row in rows]
        yield doc.shares(
            look.words, parts, priority=priority and priority + 2, meaning=look.meaning
        )
    yield doc.counts("gaps", [row.gap_count for row in rows], priority=2)
    yield doc.times("longest gap", [row.longest_gap_ps for row in rows], priority=1)


def _is_shown(cause: str, rows: Sequence[IdleRow], windows: dict[str, int | None]) -> bool:
    """Whether some device waited for it for a share of the window that shows."""
    return any(
        row.causes.get(cause, 0) >= LEAST_SHOWN_RATIO * (windows.get(row.device) or 0)
        for row in rows
    )


def _bar(row: IdleRow, ranked: Sequence[str], window_ps: int | None) -> doc.Bar:
    """The idle time of a device; a bar is as long as the window."""
    return doc.Bar(
        tuple(
            doc.Part(CAUSES[cause], row.causes[cause] / row.idle_ps)
            for cause in ranked
            if row.causes.get(cause)
        ),
        row.idle_ps / window_ps if window_ps else 1.0,
    )


# Gaps


def numbered_gaps(view: View) -> tuple[NumberedGap, ...]:
    """The longest gaps of the devices that were used, numbered as documents number them."""
    result: Idle | None = view.results.get("idle")
    times = view.result(device_time.ANALYSIS)
    starts = {
        row.device: view.window_start_ps[row.host]
        for row in (times.devices if times else ())
        if row.host in view.window_start_ps
    }
    longest = sorted(
        (
            (gap, row.device)
            for row in (result.devices if result else ())
            if "unused" not in row.causes and row.device in starts
            for gap in row.gaps
        ),
        key=lambda pair: -pair[0].duration_ps,
    )[:MOST_GAPS]
    return tuple(
        NumberedGap(number, gap, _span(device, gap, starts[device]))
        for number, (gap, device) in enumerate(longest, start=1)
    )


def _span(device: str, gap: Gap, window_ps: int) -> doc.Span:
    begin = gap.start_ps - window_ps
    return doc.Span(device, begin, begin + gap.duration_ps)


def gaps_section(view: View, result: Idle) -> doc.Section | None:
    """The longest gaps of all devices, with the evidence for their cause."""
    numbered = numbered_gaps(view)[: BRIEF_GAPS if view.is_brief else view.most_rows]
    if not numbered:
        return None
    used = [row for row in result.devices if "unused" not in row.causes]
    gaps = [row.gap for row in numbered]
    return doc.Section(
        "gaps",
        "Longest gaps",
        doc.table(
            "The longest gaps",
            (
                doc.ordinals("gap", [row.number for row in numbered]),
                doc.devices("device", [row.span.device for row in numbered]),
                doc.spans("", [row.span for row in numbered]),
                doc.times(
                    "start",
                    [row.span.start_ps for row in numbered],
                    priority=5,
                    meaning="from the start of the window",
                ),
                doc.times("length", [gap.duration_ps for gap in gaps]),
                doc.ordinals("step", [gap.step for gap in gaps], priority=3),
                doc.looks("mostly", [look_of(CAUSES, gap.cause) for gap in gaps]),
                doc.links("findings", [_findings(view, row) for row in numbered]),
                doc.names("evidence on the host", [_evidence(gap) for gap in gaps], priority=1),
                *(
                    [doc.names("line of Python", [gap.python for gap in gaps], priority=1)]
                    if any(gap.python for gap in gaps)
                    else []
                ),
                doc.names("previous op", [gap.before for gap in gaps], priority=2),
                doc.names("next op", [gap.after for gap in gaps], priority=4),
            ),
            row_count=sum(row.gap_count for row in used),
            rest=f"{view.command('gaps')} -o gaps.csv",
            anchors=[doc.gap_anchor(row.number) for row in numbered],
        ),
        terms=("gap",),
    )


def _evidence(gap: Gap) -> str | None:
    """The thread, and the event that it was in, or without one the event that it began next."""
    return evidence_text(gap.thread, gap.host_event, gap.next_event)


def evidence_text(thread: str | None, event: str | None, next_event: str | None) -> str | None:
    """What a thread was in; where no event shows it, what it began next."""
    if event is None and next_event is not None:
        event = f"nothing until {next_event}"
    return ": ".join(part for part in (thread_name(thread), event) if part and event) or None


def _findings(view: View, numbered: NumberedGap) -> tuple[doc.Link, ...]:
    """The findings that name this gap."""
    return tuple(
        doc.Link(f"finding {number}", doc.finding_anchor(number))
        for number in view.findings_of_gaps.get(numbered.number, ())
    )
