"""Idle time: what the devices waited for, and the longest gaps with what shows it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from traceview.analysis.gpu_time import host_wait_rules, python_waits, tracing
from traceview.analysis.gpu_time.host_waits import diagnose, diagnose_without_devices
from traceview.analysis.measures.context import Analysis, View
from traceview.analysis.measures.idle_report import (
    Gap,
    Idle,
    NumberedGap,
    compute,
    gap_rows,
    gap_span,
    gap_table,
    is_without_work,
    numbered_gaps,
)
from traceview.document import model as doc
from traceview.document.columns import Shown, columns, table
from traceview.document.vocabulary import STATES, look_of, thread_name
from traceview.ledger.states import IDLE_STATES, State
from traceview.trace.device.table import Table, device_keys

TITLE: Final = "Longest gaps"

RULES: Final = (*host_wait_rules.RULES, *python_waits.RULES, *tracing.RULES)


def gaps_section(view: View, result: Idle) -> doc.Section | None:
    """The longest gaps of all devices, with the evidence for their state."""
    rows = numbered_gaps(view)[: view.few_rows]
    if not rows:
        return None
    return doc.Section(
        "gaps",
        TITLE,
        doc.table(
            "The longest gaps",
            columns(rows, _COLUMNS),
            row_count=sum(row.gap_count for row in result.devices if not is_without_work(row)),
            rest=f"{view.command('show gaps')} -o gaps.csv",
            anchors=[doc.anchor("gap", row.number) for row in rows],
        ),
    )


def gap_table_section(
    rows: Table, windows: Mapping[str, int], states: Collection[str] = ()
) -> doc.Section | None:
    """A row per gap of a table: where it lies, its states, and what shows them; nothing without any.

    `windows`: by device its start. `states`: those whose columns stay longest where room is short.
    """
    shown = [
        NumberedGap(gap, gap_span(device, gap, windows[device]))
        for device, gap in zip(rows["device"], gap_rows(rows), strict=True)
    ]
    of_states = _of_states([row.gap for row in shown], states)
    tables = table("Gaps", shown, (*_COLUMNS, *of_states))
    return doc.Section("gap-rows", "Gaps", tables) if shown else None


_COLUMNS: Final = (
    Shown("gap", lambda row: row.number or None, kind="ordinal"),
    Shown("device", "span.device"),
    Shown("", "span", kind="span"),
    Shown("start", "span.start_ps", 6, meaning="from the start of the window"),
    Shown("length", "gap.duration_ps"),
    Shown("step", "gap.step", 4, "ordinal"),
    Shown("mostly", lambda row: look_of(STATES, row.gap.state), kind="look"),
    Shown("evidence on the host", lambda row: _evidence(row.gap), 2, "name"),
    Shown("line of Python", "gap.python", 1),
    Shown("previous op", "gap.before", 3),
    Shown("next op", "gap.after", 5),
)


def _of_states(gaps: Sequence[Gap], states: Collection[str]) -> Iterator[Shown]:
    """The time in each state of several, the largest first."""
    keys = [state.key for state in IDLE_STATES if state != State.NO_WORK]
    totals = {key: sum(gap.states.get(key, 0) for gap in gaps) for key in keys}
    ranked = sorted((key for key in keys if totals[key]), key=lambda key: -totals[key])
    for place, key in enumerate(ranked if len(ranked) > 1 else (), start=7):
        yield _in_state(key, 0 if key in states else place)


def _in_state(key: str, priority: int) -> Shown:
    words = look_of(STATES, key).words
    return Shown(words, lambda row: row.gap.states.get(key, 0), priority, "time")


def _evidence(gap: Gap) -> str | None:
    """The thread, and the event that it was in, or without one the event that it began next."""
    event = gap.host_event
    if event is None and gap.next_event is not None:
        event = f"nothing until {gap.next_event}"
    return ": ".join(part for part in (thread_name(gap.thread), event) if part and event) or None


ANALYSIS: Final = Analysis[Idle](
    "idle",
    compute=compute,
    rules=RULES,
    diagnose=diagnose,
    if_absent=diagnose_without_devices,
    sections=(gaps_section,),
    title_if_absent=TITLE,
    table=lambda context: gap_table(context, devices=device_keys(context.trace))[0],
)
