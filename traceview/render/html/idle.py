"""Why did the devices wait, and when longest?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.idle.compute import Gap, IdleRow
from traceview.render import numbers
from traceview.render.definitions import CAUSES
from traceview.render.html.blocks import (
    Cell,
    Column,
    Part,
    Section,
    View,
    counts,
    device_cell,
    devices,
    names,
    notes,
    places,
    ratio,
    shares,
    table,
    times,
)
from traceview.render.html.places import findings_of
from traceview.render.html.shown import name
from traceview.render.idle import LOOKS, between_steps

SHOWN_CAUSES: Final = 5
"""Causes with a column each, those that take most; the bar has all of them."""


def idle_section(view: View) -> Section:
    """The share of the window that each cause has on each device."""
    idle = view.report.results.idle
    if idle is None:
        reason = view.report.skipped.get("idle", "No device was recorded.")
        return Section("idle", "Why the devices waited", (), lead=reason)
    waiting = [row for row in idle.devices if row.idle_ps]
    if not waiting:
        return Section("idle", "Why the devices waited", (), lead="No device waited.")
    rows = view.in_order(waiting)
    ranked = _ranked(waiting)
    legend = [Part(f"idle-{cause}", _words(cause), 0.0) for cause in ranked]
    return Section(
        "idle",
        "Why the devices waited",
        (
            *table(
                "Idle time by cause",
                _columns(view, rows, ranked),
                row_count=len(waiting),
                rest=view.command("gaps"),
                legend=legend,
            ),
            *notes(between_steps(view.report)),
        ),
        lead="Shares are of the window; the causes of a device add up to its idle time.",
        terms=("idle", "gap"),
    )


def _ranked(rows: Sequence[IdleRow]) -> list[str]:
    """The causes that occur, that which takes most first."""
    totals = {cause: sum(row.causes.get(cause, 0) for row in rows) for cause in CAUSES}
    return sorted((cause for cause in totals if totals[cause]), key=lambda one: -totals[one])


def _words(cause: str) -> str:
    return LOOKS[cause].words if cause in LOOKS else cause


def _columns(view: View, rows: Sequence[IdleRow], ranked: Sequence[str]) -> list[Column]:
    found = view.report.results.device_time
    windows = {row.device: row.window_ps for row in found.devices} if found else {}

    def of_window(parts: list[int]) -> list[float | None]:
        return [ratio(part, windows.get(row.device)) for part, row in zip(parts, rows, strict=True)]

    return [
        devices(view, [row.device for row in rows]),
        shares("idle", of_window([row.idle_ps for row in rows])),
        Column("by cause", tuple(Cell(parts=_parts(row, ranked)) for row in rows)),
        *(
            shares(
                _words(cause),
                of_window([row.causes.get(cause, 0) for row in rows]),
                CAUSES.get(cause, ""),
            )
            for cause in ranked[:SHOWN_CAUSES]
        ),
        counts("gaps", [row.gap_count for row in rows]),
        times("longest", [row.longest_gap_ps for row in rows]),
    ]


def _parts(row: IdleRow, ranked: Sequence[str]) -> tuple[Part, ...]:
    """The idle time of a device, all of it one bar long."""
    return tuple(
        Part(
            f"idle-{cause}",
            f"{_words(cause)} {numbers.part(row.causes[cause], row.idle_ps)}",
            row.causes[cause] / row.idle_ps,
        )
        for cause in ranked
        if row.causes.get(cause)
    )


def gaps_section(view: View) -> Section | None:
    """The longest gaps of all devices, with the evidence for their cause."""
    idle = view.report.results.idle
    numbered = view.gaps
    if idle is None or not numbered:
        return None
    findings = findings_of(view.report, view.gaps)
    gaps = [one.gap for one in numbered]
    columns = [
        Column(
            "gap", tuple(Cell(str(one.number), one.number, look="name") for one in numbered), True
        ),
        Column("device", tuple(device_cell(view, one.place.device) for one in numbered)),
        places(view, [one.place for one in numbered]),
        times("start", [one.place.start_ps for one in numbered], "from the start of the window"),
        times("length", [gap.duration_ps for gap in gaps]),
        Column(
            "step",
            tuple(Cell("" if g.step is None else str(g.step), g.step) for g in gaps),
            is_number=True,
        ),
        Column("mostly", tuple(Cell(_words(gap.cause), look=f"cause-{gap.cause}") for gap in gaps)),
        Column(
            "findings",
            tuple(
                Cell(
                    links=tuple(
                        (f"finding\u00a0{n}", f"#finding-{n}") for n in findings[one.number]
                    )
                )
                if one.number in findings
                else Cell()
                for one in numbered
            ),
        ),
        Column("evidence on the host", tuple(Cell(_host(gap), look="name") for gap in gaps)),
        names("after", [gap.before for gap in gaps]),
        names("before", [gap.after for gap in gaps]),
    ]
    used = [row for row in idle.devices if "unused" not in row.causes]
    return Section(
        "gaps",
        "Longest gaps",
        tuple(
            table(
                "The longest gaps",
                columns,
                row_ids=[f"gap-{one.number}" for one in numbered],
                row_count=sum(row.gap_count for row in used),
                rest=view.command("gaps"),
            )
        ),
        terms=("gap",),
    )


def _host(gap: Gap) -> str:
    told = [name(part) for part in (gap.thread, gap.host_event) if part]
    return ": ".join(told)
