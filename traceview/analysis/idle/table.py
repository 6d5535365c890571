"""Makes the table of gaps: every span in which a device did nothing, with its causes and their evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import numpy as np

from traceview.analysis.idle.result import Gap, gap_rows
from traceview.analysis.idle.section import evidence_text
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.selection import Selection
from traceview.document import model as doc
from traceview.document.vocabulary import CAUSES, look_of
from traceview.ids import is_in
from traceview.trace.cause import Cause
from traceview.trace.model import Trace
from traceview.trace.table import Table, integers, record_columns, table, texts

STACK_SEPARATOR: Final = " > "
_FIELDS: Final = (
    "start_ps",
    "duration_ps",
    "step",
    "cause",
    "before",
    "after",
    "thread",
    "host_event",
    "python",
    "python_inner",
    "python_ratio",
)


def gap_table(
    trace: Trace,
    selection: Selection,
    idle: IdleAttribution,
    *,
    devices: Collection[str],
    causes: Collection[str] = (),
    least_ps: int = 0,
    top: int | None = None,
) -> tuple[Table, int]:
    """The gaps of the devices, longest first, those of unused devices last, and how many rows `top` leaves out.

    `devices`: keys as in the report. `causes`: only gaps of which one of these is the largest part.
    `least_ps`: only gaps from this length on. The times by cause of a gap add up to `duration_ps`. `host_stack`: the
    names of the host events open at the one that shows the cause, outermost first. `previous_event` and `next_event`:
    what the thread recorded around the gap's cause where no event shows it.
    """
    wanted = {Cause[name.upper()] for name in causes} or set(Cause)
    order: list[tuple[bool, int, int, int]] = []
    for device, gaps in idle.gaps.items():
        if trace.device_key(device) not in devices:
            continue
        start, end = gaps.spans
        parts = gaps.causes_of(np.arange(gaps.count))
        is_wanted = is_in(parts.argmax(axis=0), list(wanted)) if parts.size else start == end
        chosen = np.flatnonzero(is_wanted & (end - start >= least_ps))
        longest = chosen[np.lexsort((start[chosen], start[chosen] - end[chosen]))]
        # A device that was not used waited for nothing: its one gap comes last.
        unused = parts[Cause.UNUSED] > 0
        order += [
            (bool(unused[i]), int(start[i] - end[i]), device, int(i)) for i in longest.tolist()
        ]
    order.sort()
    shown = [(device, number) for _, _, device, number in order[:top]]
    return _table(trace, selection, idle, shown), len(order) - len(shown)


def _table(
    trace: Trace, selection: Selection, idle: IdleAttribution, shown: list[tuple[int, int]]
) -> Table:
    gap_of: dict[tuple[int, int], Gap] = {}
    for device in {device for device, _ in shown}:
        numbers = [number for of_device, number in shown if of_device == device]
        chosen = np.array(numbers, dtype=np.int64)
        gaps = gap_rows(trace, selection, idle.gaps[device], idle, chosen)
        gap_of |= {(device, number): gap for number, gap in zip(numbers, gaps, strict=True)}
    rows = [gap_of[place] for place in shown]
    return table(
        "gaps",
        texts("device", [trace.device_key(device) for device, _ in shown]),
        *record_columns(Gap, rows, _FIELDS),
        texts("host_stack", [STACK_SEPARATOR.join(gap.host_stack) or None for gap in rows]),
        texts("previous_event", [gap.previous_event for gap in rows]),
        texts("next_event", [gap.next_event for gap in rows]),
        *(
            integers(f"{cause.key}_ps", [gap.causes.get(cause.key, 0) for gap in rows])
            for cause in Cause
        ),
    )


def gap_table_section(rows: Table, windows: Mapping[str, int]) -> doc.Section | None:
    """A row per gap: where it lies, its causes, and what shows them; nothing without any. `windows`: by device its start."""
    if not rows.count:
        return None
    return doc.Section("gap-rows", "Gaps", doc.table("Gaps", _columns(rows, windows)))


def _columns(rows: Table, windows: Mapping[str, int]) -> Iterator[doc.Column]:
    yield doc.devices("device", rows["device"])
    yield doc.times("length", rows["duration_ps"])
    yield doc.looks("mostly", [look_of(CAUSES, cause) for cause in rows["cause"]])
    yield doc.counts("step", rows["step"], priority=2)
    starts = zip(rows["device"], rows["start_ps"], strict=True)
    yield doc.times(
        "start",
        [start - windows[device] for device, start in starts],
        priority=4,
        meaning="from the start of the window",
    )
    evidence = zip(rows["thread"], rows["host_stack"], rows["next_event"], strict=True)
    yield doc.names("evidence on the host", [evidence_text(*row) for row in evidence], priority=1)
    if any(rows["python"]):
        yield doc.names("line of Python", rows["python"], priority=1)
    yield doc.names("previous op", rows["before"], priority=3)
    yield doc.names("next op", rows["after"], priority=5)
    parts = {cause: rows[f"{cause}_ps"] for cause in CAUSES if cause != "unused"}
    totals = {cause: sum(lengths) for cause, lengths in parts.items()}
    ranked = sorted((cause for cause in parts if totals[cause]), key=lambda cause: -totals[cause])
    if len(ranked) > 1:
        for priority, cause in enumerate(ranked, start=6):
            yield doc.times(CAUSES[cause].words, parts[cause], priority=priority)
