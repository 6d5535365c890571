"""Shows what the devices waited for: their idle time by state, and the longest gaps with the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.measures.context import View
from traceview.analysis.measures.idle_report import (
    Gap,
    Idle,
    IdleRow,
    NumberedGap,
    is_without_work,
    numbered_gaps,
)
from traceview.analysis.measures.listed_gaps import evidence_text
from traceview.analysis.rules.finding import LEAST_SHOWN_RATIO
from traceview.base.text import shell_word
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import STATES, look_of
from traceview.ledger.states import KEYS, State

BRIEF_GAPS: Final = 5
"""Gaps in a brief document, the longest ones."""
TITLE: Final = "Why the devices waited"


_NO_WORK: Final = State.NO_WORK.key


def idle_section(view: View, result: Idle) -> doc.Section | None:
    """The share of the window that each state has on each device while it is idle."""
    without_work = [row.device for row in result.devices if is_without_work(row)]
    no_work = (
        f"No work was given to {numbers.joined_devices(without_work)}." if without_work else ""
    )
    rows = [row for row in result.devices if row.idle_ps and not is_without_work(row)]
    if not rows:
        return doc.Section("idle", TITLE, (), lead=no_work or "No device waited.")
    ranked = _ranked(rows)
    outliers, others = view.split(rows)
    small = [state for state in ranked if not _is_shown(state, outliers)]
    small_words = numbers.listed([look_of(STATES, state).words for state in small])
    return doc.Section(
        "idle",
        TITLE,
        (
            *doc.table(
                "Idle time by state",
                _columns(outliers[: view.most_rows], ranked),
                row_count=len(outliers),
                rest=f"{view.command('show gaps')} -o gaps.csv",
            ),
            *_other_devices(view, others),
            *doc.remarks(
                no_work,
                f"Below {numbers.share(LEAST_SHOWN_RATIO)} on each device: {small_words}."
                if small
                else None,
                "Shares are of the window; the states of a device add up to its idle time.",
            ),
        ),
        lead=f"Idle {_idle_range(rows)} of the window; most of it over all devices: {look_of(STATES, ranked[0]).words}.",
        terms=("idle", "gap"),
        is_folded=False,
    )


def _other_devices(view: View, others: Sequence[IdleRow]) -> Iterator[doc.Remark]:
    """Between which shares the devices without a row were idle, and what shows why."""
    for first in others[:1]:
        yield doc.Remark(
            f"{numbers.plural(len(others), 'other device')}: idle {_idle_range(others)}. "
            f"Why {first.device} was idle:",
            f"{view.command('show gaps')} --device {shell_word(first.device)}",
        )


def _idle_range(rows: Sequence[IdleRow]) -> str:
    return numbers.share_range(doc.ratio(row.idle_ps, row.window_ps) for row in rows)


def _ranked(rows: Sequence[IdleRow]) -> list[str]:
    """The states that occur, the largest first."""
    totals = {state: sum(row.states.get(state, 0) for row in rows) for state in KEYS}
    return sorted((state for state in totals if totals[state]), key=lambda state: -totals[state])


def _columns(rows: Sequence[IdleRow], ranked: Sequence[str]) -> Iterator[doc.Column]:
    yield doc.devices("device", [row.device for row in rows])
    yield doc.shares("idle", [doc.ratio(row.idle_ps, row.window_ps) for row in rows])
    yield doc.bars("by state", [_bar(row, ranked) for row in rows])
    for priority, state in enumerate(state for state in ranked if _is_shown(state, rows)):
        look = look_of(STATES, state)
        parts = [doc.ratio(row.states.get(state, 0), row.window_ps) for row in rows]
        yield doc.shares(
            look.words, parts, priority=priority and priority + 2, meaning=look.meaning
        )
    yield doc.counts("gaps", [row.gap_count for row in rows], priority=2)
    yield doc.times("longest gap", [row.longest_gap_ps for row in rows], priority=1)


def _is_shown(state: str, rows: Sequence[IdleRow]) -> bool:
    """Whether some device is in it for a share of the window that shows."""
    return any(row.states.get(state, 0) >= LEAST_SHOWN_RATIO * row.window_ps for row in rows)


def _bar(row: IdleRow, ranked: Sequence[str]) -> doc.Bar:
    """The idle time of a device; a bar is as long as the window."""
    return doc.Bar(
        tuple(
            doc.Part(look_of(STATES, state), row.states[state] / row.idle_ps)
            for state in ranked
            if row.states.get(state)
        ),
        row.idle_ps / row.window_ps if row.window_ps else 1.0,
    )


# Gaps


def gaps_section(view: View, result: Idle) -> doc.Section | None:
    """The longest gaps of all devices, with the evidence for their state."""
    numbered = numbered_gaps(view)[: BRIEF_GAPS if view.is_brief else view.most_rows]
    if not numbered:
        return None
    used = [row for row in result.devices if not is_without_work(row)]
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
                doc.looks("mostly", [look_of(STATES, gap.state) for gap in gaps]),
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
            rest=f"{view.command('show gaps')} -o gaps.csv",
            anchors=[doc.gap_anchor(row.number) for row in numbered],
        ),
        terms=("gap",),
    )


def _evidence(gap: Gap) -> str | None:
    """The thread, and the event that it was in, or without one the event that it began next."""
    return evidence_text(gap.thread, gap.host_event, gap.next_event)


def _findings(view: View, numbered: NumberedGap) -> tuple[doc.Link, ...]:
    """The findings that name this gap."""
    return tuple(
        doc.Link(f"finding {number}", doc.finding_anchor(number))
        for number in view.findings_of_gaps.get(numbered.number, ())
    )
